// How openings of the log end and begin: in order, by death of the process, by power failure; and what the
// next one has.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/disk_scene.h"

namespace tiercel::sim {
namespace {

using std::chrono::seconds;

constexpr std::size_t kRoundsMax = 20'000;

Digest uuid_of(const DiskScene& scene) {
  std::vector<std::byte> bytes;
  append_le<std::uint64_t>(bytes, scene.seed);
  append_le<std::uint64_t>(bytes, scene.openings);
  return sha256(bytes);
}

void new_drive(DiskScene& scene, DriveContent content) {
  scene.drive = std::make_unique<SimDrive>(std::move(content), scene.clock, scene.scenario.nature,
                                           mix64(scene.seed) + ++scene.openings);
}

// The log's own end. What it had under way is nobody's any more.
void destroy_log(DiskScene& scene, bool clean) {
  collect_disk_events(scene);
  scene.log.reset();
  if (scene.drive->under_way() != 0) {
    // Memory that a stalling drive does not give back is left to it.
    if (scene.drive->counts().stalled == 0)
      scene.complain("disk_drive", "the log has ended with operations of the drive under way");
    while (scene.drive->under_way() != 0) {
      scene.drive->wait(seconds(100));
      scene.drive->drain();
    }
  }
  if (const auto& misuse = scene.drive->misuse()) scene.complain("disk_drive", *misuse);
  for (auto& [id, pending] : scene.appends) bury(scene, std::move(pending.records));
  for (auto& [id, pending] : scene.reads) bury(scene, std::move(pending.records));
  scene.appends.clear();
  scene.reads.clear();
  if (auto touched = graveyard_touched(scene)) scene.complain("disk_ends", *touched);
  scene.graveyard.clear();
  scene.durable_told = 0;
  scene.folded_seen = 0;
  if (scene.scenario.lying)
    scene.book.trust_nothing();
  else
    scene.book.ended(clean && !scene.read_only);  // who only looked made nothing durable
}

bool end_log(DiskScene& scene, DiskEnd end) {
  bool clean = false;
  const bool fair = scene.prng.chance(0.6) && !scene.drive->power_is_off();
  if (end == DiskEnd::kKilled) scene.drive->process_dies();
  if (end == DiskEnd::kPowerFailed) {
    scene.drive->power_fails_in(0);
    if (scene.prng.chance(0.3)) scene.log->poll();  // it lives on for a moment
  }
  if (end == DiskEnd::kClosed) {
    if (fair) scene.drive->calm();
    if (scene.scenario.crashes && scene.prng.chance(0.3)) scene.drive->power_fails_in(scene.prng.below(16));
    const bool was_failing = failures(scene) != 0;
    const Status status = scene.log->close(seconds(fair ? 120 : 5));
    clean = status.ok();
    scene.view.note += fmt::format(" close: {}", status.ok() ? "ok" : status.message);
    if (fair && !was_failing && !scene.log->down() && !clean && !scene.drive->power_is_off())
      scene.complain("disk_liveness", "close on a calm drive: " + status.to_string());
    if (clean) {
      collect_disk_events(scene);
      if (!scene.appends.empty())
        scene.complain("disk_ends",
                       fmt::format("closed, and {} appends have not ended", scene.appends.size()));
    }
    scene.coverage.hit(clean ? "disk_closed" : "disk_not_closed");
  }
  destroy_log(scene, clean);
  return clean;
}

void open_spaces(DiskScene& scene) {
  for (const DiskLog::SpaceView& view : scene.log->spaces()) {
    const auto known = std::find_if(scene.spaces.begin(), scene.spaces.end(), [&](const DiskSpace& each) {
      return each.name.root == view.name.root && each.name.form == view.name.form;
    });
    if (known == scene.spaces.end() || (known->name.text != view.name.text && !view.name.text.empty()))
      scene.complain("disk_found", fmt::format("namespace {} is none that was opened", view.id.value()));
  }
  for (DiskSpace& space : scene.spaces) {
    const auto id = scene.log->open_space(space.name);
    if (!id && !scene.read_only) scene.complain("disk_open", "open_space: " + id.error().to_string());
    space.id = id ? *id : DiskSpaceId{};
    if (id && scene.log->open_space(space.name) != id)
      scene.complain("disk_found", "the same namespace has two numbers");
  }
}

bool still_found(const DiskScene& scene, const DiskSet& set) {
  return scene.log->down() || (find_disk_path(scene, set.page).back() >> set.cls.value() & 1) != 0;
}

// Reads all of `sets`, as many at once as the log takes.
std::vector<ReadSeen> read_all(DiskScene& scene, const std::vector<DiskSet>& sets) {
  const std::size_t first = scene.view.reads.size();
  std::size_t next = 0;
  for (std::size_t round = 0; round < kRoundsMax && (next < sets.size() || !scene.reads.empty()); ++round) {
    while (next < sets.size() && (!still_found(scene, sets[next]) || start_disk_read(scene, sets[next])))
      ++next;
    scene.log->poll();
    collect_disk_events(scene);
    if (scene.drive->power_is_off()) break;
    if (scene.drive->under_way() != 0) scene.drive->wait(seconds(1));
    if (scene.reads.empty() && scene.log->down()) scene.clock.advance(seconds(1));
  }
  if ((next < sets.size() || !scene.reads.empty()) && !scene.drive->power_is_off())
    scene.complain("disk_liveness",
                   fmt::format("{} of {} class-sets could not be read", sets.size() - next, sets.size()));
  return {scene.view.reads.begin() + static_cast<std::ptrdiff_t>(first), scene.view.reads.end()};
}

std::vector<DiskSet> all_found(const DiskScene& scene) {
  std::vector<DiskSet> found;
  for (std::size_t page = 0; page < scene.book.pages().size(); ++page) {
    const Presence presence = find_disk_path(scene, page).back();
    for (std::uint16_t c = 0; c < 32; ++c)
      if ((presence >> c & 1) != 0) found.push_back({page, ClassId(c)});
  }
  return found;
}

void note_recovery(DiskScene& scene) {
  const DiskStats& stats = scene.log->stats();
  scene.view.note +=
      fmt::format(" (image {} footers {} tail {} refused {})", stats.recovered_from_image,
                  stats.recovered_from_footers, stats.recovered_from_tail, stats.tail_segments_refused);
  if (stats.recovered_from_image != 0) scene.coverage.hit("disk_recovered_from_image");
  if (stats.recovered_from_footers != 0) scene.coverage.hit("disk_recovered_from_footers");
  if (stats.recovered_from_tail != 0) scene.coverage.hit("disk_recovered_from_tail");
  if (stats.tail_segments_refused != 0) scene.coverage.hit("disk_tail_refused");
}

// The append whose bytes were read; nothing: there are none that the log may serve.
std::optional<std::size_t> judge_recovered(DiskScene& scene, const ReadSeen& seen) {
  const std::string where = fmt::format("opened: page {} class {}", seen.set.page, seen.set.cls.value());
  if (!seen.status.ok() || !seen.verified) {
    if (!scene.scenario.lying)
      scene.complain("disk_bytes", fmt::format("{} is found and its bytes are not: {}", where,
                                               seen.status.ok() ? "damaged" : seen.status.to_string()));
    return std::nullopt;
  }
  if (!seen.append) {
    scene.complain("disk_bytes", where + " has bytes that nobody appended");
    return std::nullopt;
  }
  DiskAppend& append = scene.book.append(*seen.append);
  const auto there = scene.log->find(scene.name_of(seen.set), true);
  if (!there) return std::nullopt;
  if (!scene.scenario.lying && append.fate == Fate::kWritten && append.at && *append.at != there->born)
    scene.complain("disk_found", fmt::format("{}: append {} was at {}, now at {}", where, *seen.append,
                                             *append.at, there->born));
  append.at = there->born;
  return seen.append;
}

void judge_opened(DiskScene& scene) {
  scene.leaving.emplace();
  collect_disk_events(scene);
  DiskBook::Found found;
  const std::vector<ReadSeen> all = read_all(scene, all_found(scene));
  const std::vector<DiskSet> leaving = *std::exchange(scene.leaving, std::nullopt);
  if (scene.drive->power_is_off()) return;  // nobody knows: the next opening is judged
  for (const ReadSeen& seen : all)
    if (const auto number = judge_recovered(scene, seen)) found.emplace(seen.set, *number);
  scene.view.reads.clear();  // judged
  for (const DiskSet& set : leaving)
    if (!found.contains(set)) scene.book.excuse(set);
  const bool judged = !scene.scenario.lying;
  if (const auto wrong = scene.read_only ? scene.book.looked(found, judged)
                                         : scene.book.opened(found, judged, scene.log->durable_at()))
    scene.complain(wrong->checker, wrong->message);
  for (const DiskSet& set : leaving) scene.book.evicted(set);
  scene.view.note += fmt::format(" {} found", found.size());
  if (!found.empty()) scene.coverage.hit("disk_recovered");
  note_recovery(scene);
  scene.view.found = std::move(found);
}

// Nobody can tell what a lying drive has made of the superblocks: then a new log begins.
void begin_afresh(DiskScene& scene) {
  scene.coverage.hit("disk_lying_refused");
  new_drive(scene, {std::vector<std::byte>(scene.scenario.drive_bytes), {}});
  scene.drive->calm();
  auto log = DiskLog::open(scene.scenario.options, *scene.drive, scene.clock, uuid_of(scene));
  TIERCEL_CHECK(log.has_value());
  scene.log = *std::move(log);
}

// True: there is a log, or never will be.
bool try_open(DiskScene& scene, bool fair) {
  DiskLogOptions options = scene.scenario.options;
  options.read_only = scene.read_only;
  scene.drive->forbid_writes(scene.read_only);
  auto log = DiskLog::open(options, *scene.drive, scene.clock, uuid_of(scene));
  if (log) {
    scene.log = *std::move(log);
    scene.made = true;
    return true;
  }
  scene.view.note += " open: " + log.error().to_string();
  // Memory that a stalling drive does not give back is left to it.
  if (scene.drive->under_way() != 0 && scene.drive->counts().stalled == 0)
    scene.complain("disk_drive", "open failed with operations under way");
  if (const auto& misuse = scene.drive->misuse()) scene.complain("disk_drive", *misuse);
  if (scene.drive->power_is_off()) {
    scene.coverage.hit("disk_power_failed_in_recovery");
    return false;
  }
  if (scene.scenario.lying) {
    begin_afresh(scene);
    return true;
  }
  if (fair) scene.complain("disk_open", "on a calm drive: " + log.error().to_string());
  return fair;
}

}  // namespace

std::vector<Presence> find_disk_path(const DiskScene& scene, std::size_t page) {
  const DiskPage& last = scene.book.pages()[page];
  std::vector<Key> keys;
  keys.reserve(last.path.size());
  for (const std::size_t each : last.path) keys.push_back(scene.book.pages()[each].key);
  std::vector<Presence> presence(keys.size(), 0);
  const DiskSpaceId id = scene.spaces[last.space].id;
  if (id != DiskSpaceId{}) scene.log->find_chain(id, 0, keys, presence);
  return presence;
}

std::string open_disk_log(DiskScene& scene) {
  if (scene.drive == nullptr) new_drive(scene, {std::vector<std::byte>(scene.scenario.drive_bytes), {}});
  scene.read_only = false;
  for (int attempt = 0; scene.log == nullptr; ++attempt) {
    const bool fair = attempt >= 2 || scene.prng.chance(0.7);
    if (fair) scene.drive->calm();
    if (attempt < 2 && scene.scenario.crashes && scene.prng.chance(0.25))
      scene.drive->power_fails_in(scene.prng.below(12));
    scene.read_only = scene.made && scene.prng.chance(0.08);
    if (try_open(scene, fair)) break;
    // With operations under way only another process may open it.
    if (scene.drive->power_is_off() || scene.drive->under_way() != 0 || scene.prng.chance(0.5)) {
      scene.drive->power_fails_in(0);
      while (scene.drive->under_way() != 0) scene.drive->drain();
      new_drive(scene, scene.drive->take_content());
    }
  }
  if (scene.log == nullptr) return "open";
  if (!scene.drive->power_is_off()) scene.drive->calm();
  open_spaces(scene);
  judge_opened(scene);
  scene.drive->restless();
  // Soon again, while little was written over what the last one left behind.
  if (scene.scenario.uniform && scene.scenario.crashes && scene.prng.chance(0.4))
    scene.drive->power_fails_in(scene.prng.below(8));
  return "open";
}

std::string be_quiet_on_disk(DiskScene& scene) {
  scene.drive->calm();
  scene.log->flush_soon();
  std::uint64_t idle = 0;
  const auto quiet = [&] {
    return scene.appends.empty() && scene.reads.empty() && !scene.log->down() &&
           scene.drive->under_way() == 0 &&
           (scene.read_only || scene.log->durable_at() == scene.log->last_at());
  };
  for (std::size_t round = 0; !quiet() && !scene.drive->power_is_off(); ++round) {
    const Time due = scene.log->next_due();
    const Time next = std::min(due, scene.drive->next_end().value_or(Time::max()));
    if (next == Time::max() || idle > 100 || round == kRoundsMax) {
      scene.complain(
          "disk_liveness",
          fmt::format("a calm drive, and {} appends and {} reads do not end; durable {} of {}, down {}; {}",
                      scene.appends.size(), scene.reads.size(), scene.log->durable_at(), scene.log->last_at(),
                      scene.log->down(),
                      next == Time::max() ? "nothing is due" : "what is due does nothing"));
      return "be_quiet";
    }
    scene.clock.advance_to(next);
    const std::size_t done = scene.log->poll();
    collect_disk_events(scene);
    idle = done == 0 && scene.log->next_due() <= scene.clock.now() ? idle + 1 : 0;
  }
  if (!scene.drive->power_is_off()) read_all(scene, all_found(scene));
  scene.drive->restless();
  return "be_quiet";
}

std::string reopen_disk_log(DiskScene& scene, DiskEnd end) {
  static constexpr std::string_view kNames[] = {"close", "destroy", "kill", "power_failure"};
  if (scene.log != nullptr) end_log(scene, end);
  scene.coverage.hit(fmt::format("disk_{}", kNames[static_cast<std::size_t>(end)]));
  if (!scene.complaints.empty()) return std::string(kNames[static_cast<std::size_t>(end)]);
  if (end == DiskEnd::kDestroyed)
    scene.drive->process_dies();
  else
    scene.drive->power_fails_in(0);  // also after an orderly end: then all that was written is flushed
  while (scene.drive->under_way() != 0) scene.drive->drain();
  new_drive(scene, scene.drive->take_content());
  open_disk_log(scene);
  return std::string(kNames[static_cast<std::size_t>(end)]);
}

}  // namespace tiercel::sim
