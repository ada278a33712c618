// The workload of a run of the disk log: what a tier above does with it, and what the drive suffers.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "sim/disk_scene.h"

namespace tiercel::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two namespaces have the same keys: more, and one page's class-sets of all of them would fill its buckets.
Key key_below(const DiskScene& scene, std::size_t space, std::optional<std::size_t> parent,
              std::uint64_t branch) {
  const Key above = parent ? scene.book.pages()[*parent].key : Key{{1 + space / 2 * 1'000'003, 2}};
  const std::uint64_t word = mix64(above.words[0] ^ mix64(above.words[1] + branch + 1));
  return {{word, mix64(word + scene.seed)}};
}

std::size_t page_below(DiskScene& scene, std::size_t space, std::optional<std::size_t> parent,
                       std::uint64_t branch) {
  const Key key = key_below(scene, space, parent, branch);
  const auto known = scene.page_of.find({space, key});
  if (known != scene.page_of.end()) return known->second;
  const std::size_t page = scene.book.add_page(space, parent, key);
  scene.page_of.emplace(std::pair{space, key}, page);
  scene.spaces[space].pages.push_back(page);
  return page;
}

std::optional<std::size_t> any_space(DiskScene& scene) {
  const std::size_t space = scene.prng.below(scene.spaces.size());
  if (scene.spaces[space].id == DiskSpaceId{}) return std::nullopt;
  return space;
}

std::optional<std::size_t> any_page(DiskScene& scene) {
  const auto space = any_space(scene);
  if (!space || scene.spaces[*space].pages.empty()) return std::nullopt;
  const auto& pages = scene.spaces[*space].pages;
  return pages[scene.prng.below(pages.size())];
}

// A page that exists, or a new one below one.
std::optional<std::size_t> page_to_append(DiskScene& scene) {
  const auto space = any_space(scene);
  if (!space) return std::nullopt;
  const auto& pages = scene.spaces[*space].pages;
  const bool fresh = scene.book.pages().size() < scene.scenario.pages_max && scene.prng.chance(0.5);
  if (!pages.empty() && !fresh) return pages[scene.prng.below(pages.size())];
  std::optional<std::size_t> parent;
  if (!pages.empty() && scene.prng.chance(0.8)) parent = pages[scene.prng.below(pages.size())];
  return page_below(scene, *space, parent, scene.prng.below(3));
}

std::optional<DiskSet> any_set(DiskScene& scene, bool to_append) {
  const auto page = to_append ? page_to_append(scene) : any_page(scene);
  if (!page) return std::nullopt;
  const std::size_t form = scene.spaces[scene.book.pages()[*page].space].form;
  const std::uint64_t classes = scene.scenario.forms[form].classes.size();
  scene.view.touched.push_back(*page);
  const std::uint64_t cls = scene.scenario.uniform ? 0 : scene.prng.below(classes);
  return DiskSet{*page, ClassId(static_cast<std::uint16_t>(cls))};
}

void note_verdict(DiskScene& scene, DiskVerdict verdict) {
  switch (verdict) {
    case DiskVerdict::kAlreadyThere:
      return scene.coverage.hit("disk_already_there");
    case DiskVerdict::kSecondTouch:
      return scene.coverage.hit("disk_second_touch");
    case DiskVerdict::kWriteBudget:
      return scene.coverage.hit("disk_write_budget");
    case DiskVerdict::kRateLimited:
      return scene.coverage.hit("disk_rate_limited");
    case DiskVerdict::kTierDown:
      return scene.coverage.hit("disk_tier_down");
    default:
      return;
  }
}

void judge_verdict(DiskScene& scene, const DiskSet& set, const DiskRecords& records, DiskVerdict verdict) {
  note_verdict(scene, verdict);
  scene.view.note +=
      fmt::format(" page {} class {}: {}", set.page, set.cls.value(), disk_verdict_name(verdict));
  const auto present = scene.book.present(set);
  const bool there = present && scene.book.alive(*present);
  if (verdict == DiskVerdict::kAlreadyThere && !there && !scene.book.queued(set))
    scene.complain("disk_found", fmt::format("append of page {} class {}: already there, and it is not",
                                             set.page, set.cls.value()));
  if (verdict == DiskVerdict::kTooLarge &&
      records.shards.front().size() * records.shards.size() < scene.scenario.options.region_bytes / 2)
    scene.complain("disk_found", fmt::format("append of {} shards of {} bytes: too large",
                                             records.shards.size(), records.shards.front().size()));
  if (verdict == DiskVerdict::kTierDown && !scene.log->down())
    scene.complain("disk_found", "append: tier_down, and the tier is not down");
}

void append_one(DiskScene& scene) {
  const auto set = any_set(scene, true);
  if (!set) return;
  const Computation computation = scene.book.appends() + 1;
  DiskRecords records = make_disk_records(scene, *set, computation);
  const DiskEntry entry = disk_entry(scene, *set, records);
  const auto offer = static_cast<DiskOffer>(scene.prng.below(4));
  const DiskAnswer answer = scene.log->append(entry, offer);
  judge_verdict(scene, *set, records, answer.verdict);
  if (answer.verdict != DiskVerdict::kAccepted) return;
  if (scene.appends.contains(answer.append))
    scene.complain("disk_ends", fmt::format("append {} was given out twice", answer.append.value()));
  std::uint64_t bytes = 0;
  for (const auto& shard : records.shards) bytes += shard.size();
  const std::size_t number = scene.book.accepted(*set, bytes);
  scene.book.append(number).id = answer.append;
  scene.view.note += fmt::format(" append {}", number);
  scene.appends[answer.append] = {number, std::move(records)};
  scene.coverage.hit("disk_append");
}

std::string append_some(DiskScene& scene) {
  const std::uint64_t count = scene.prng.chance(0.2) ? scene.prng.between(2, 12) : 1;
  for (std::uint64_t i = 0; i < count; ++i) append_one(scene);
  return "append";
}

std::string read_one(DiskScene& scene) {
  for (int attempt = 0; attempt < 6; ++attempt) {
    const auto set = any_set(scene, false);
    if (!set) break;
    const bool wanted = scene.book.present(*set).has_value() || scene.prng.chance(0.1);
    if (!wanted) continue;
    start_disk_read(scene, *set);
    break;
  }
  return "read";
}

std::string touch(DiskScene& scene) {
  for (int i = 0; i < 4; ++i)
    if (const auto set = any_set(scene, false)) scene.log->touch(scene.name_of(*set));
  return "touch";
}

std::string drop(DiskScene& scene) {
  const auto set = any_set(scene, false);
  if (!set) return "drop";
  scene.log->drop(scene.name_of(*set));
  scene.book.dropped(*set);
  scene.view.note += fmt::format(" page {} class {}", set->page, set->cls.value());
  return "drop";
}

void note_removal(DiskScene& scene, DiskRemoval::Scope scope, std::size_t what,
                  std::optional<std::uint64_t> number) {
  scene.book.removed(scope, what, number);
  if (!scene.appends.empty()) scene.coverage.hit("disk_removed_while_queued");
  if (!number) scene.coverage.hit("disk_removal_unrecorded");
  scene.view.note += fmt::format(" {} number {}", what, number.value_or(0));
}

std::string remove(DiskScene& scene) {
  const auto page = any_page(scene);
  if (!page) return "remove";
  const std::size_t space = scene.book.pages()[*page].space;
  note_removal(scene, DiskRemoval::Scope::kPage, *page,
               scene.log->remove(scene.spaces[space].id, scene.book.pages()[*page].key));
  for (std::size_t i = 0; i < 3 && i < scene.spaces[space].pages.size(); ++i) {
    const auto& pages = scene.spaces[space].pages;
    scene.view.touched.push_back(pages[scene.prng.below(pages.size())]);
  }
  scene.view.touched.push_back(*page);
  scene.coverage.hit("disk_removed");
  return "remove";
}

std::string clear(DiskScene& scene) {
  const auto space = any_space(scene);
  if (!space) return "clear";
  note_removal(scene, DiskRemoval::Scope::kSpace, *space, scene.log->clear(scene.spaces[*space].id));
  scene.coverage.hit("disk_cleared");
  return "clear";
}

std::string clear_form(DiskScene& scene) {
  const std::size_t form = scene.prng.below(scene.scenario.forms.size());
  note_removal(scene, DiskRemoval::Scope::kForm, form,
               scene.log->clear_form(scene.scenario.forms[form].fingerprint, ++scene.weights_epoch));
  scene.coverage.hit("disk_form_cleared");
  return "clear_form";
}

std::string settle_log(DiskScene& scene) {
  const std::uint64_t at = scene.log->last_at();
  const bool fair = scene.prng.chance(0.5);
  if (fair) scene.drive->calm();
  const bool was_failing = failures(scene) != 0;  // then it may be waiting for its next try
  const Status status = scene.log->settle(at, seconds(10));
  if (fair) scene.drive->restless();
  if (status.ok() && scene.log->durable_at() < at)
    scene.complain("disk_durable", fmt::format("settle({}) ended well at {}", at, scene.log->durable_at()));
  if (fair && !was_failing && !scene.log->down() && !status.ok() && !scene.drive->power_is_off())
    scene.complain("disk_liveness", "settle on a calm drive: " + status.to_string());
  scene.coverage.hit(status.ok() ? "disk_settled" : "disk_not_settled");
  return "settle";
}

std::string pass_time(DiskScene& scene) {
  Prng& prng = scene.prng;
  const auto way = prng.below(10);
  if (way < 5) {
    if (const auto end = scene.drive->next_end()) scene.clock.advance_to(*end);
  } else if (way < 8) {
    scene.clock.advance(milliseconds(prng.between(1, 50)));
  } else {
    scene.clock.advance_to(std::min(scene.log->next_due(), scene.clock.now() + seconds(60)));
  }
  if (prng.chance(0.02)) scene.clock.advance(seconds(prng.between(1, 40)));
  if (prng.chance(0.004)) scene.clock.advance(std::chrono::minutes(prng.between(10, 2000)));
  return "pass_time";
}

std::string trouble(DiskScene& scene) {
  Prng& prng = scene.prng;
  const auto kind = static_cast<SimDrive::Trouble>(prng.below(6));
  const Duration length =
      prng.chance(0.7) ? milliseconds(prng.between(1, 300)) : seconds(prng.between(1, 15));
  scene.drive->trouble(kind, scene.clock.now() + length);
  scene.view.note += fmt::format(" {} for {} ms", static_cast<int>(kind), length / milliseconds(1));
  if (kind == SimDrive::Trouble::kGone) scene.coverage.hit("disk_drive_gone");
  if (kind == SimDrive::Trouble::kStall) scene.coverage.hit("disk_drive_stalled");
  return "trouble";
}

std::string arm_power_failure(DiskScene& scene) {
  if (scene.prng.chance(0.5)) {
    const bool header = scene.prng.chance(0.4);
    const bool superblock = !header && scene.prng.chance(0.5);
    const std::uint64_t operations = scene.prng.below(8);
    const std::uint64_t end = superblock ? 2 * kBlockBytes : scene.log->geometry().regions_offset;
    scene.drive->power_fails_after_write(end, header, operations);
    scene.view.note += fmt::format(" {} operations after {}", operations,
                                   header       ? "a header"
                                   : superblock ? "a superblock"
                                                : "an image or superblock");
    return "arm_power_failure";
  }
  const std::uint64_t operations = scene.prng.below(24);
  scene.drive->power_fails_in(operations);
  scene.view.note += fmt::format(" in {} operations", operations);
  return "arm_power_failure";
}

std::string poll(DiskScene& scene) {
  scene.log->poll();
  return "poll";
}

std::string end_and_reopen(DiskScene& scene) {
  const auto way = scene.prng.below(10);
  if (way < 3) return reopen_disk_log(scene, DiskEnd::kClosed);
  if (way < 4) return reopen_disk_log(scene, DiskEnd::kDestroyed);
  if (!scene.scenario.crashes) return "nothing";
  return reopen_disk_log(scene, way < 6 ? DiskEnd::kKilled : DiskEnd::kPowerFailed);
}

// Nothing is ever written to a log that is only looked at.
std::string look_only(DiskScene& scene) {
  const auto way = scene.prng.below(10);
  if (way < 2) return reopen_disk_log(scene, DiskEnd::kDestroyed);
  if (way < 6) return read_one(scene);
  return way < 8 ? poll(scene) : pass_time(scene);
}

struct Weighted {
  double weight;
  std::string (*action)(DiskScene&);
};

}  // namespace

bool start_disk_read(DiskScene& scene, const DiskSet& set) {
  const auto presence = find_disk_path(scene, set.page);
  const bool found = (presence.back() >> set.cls.value() & 1) != 0;
  PendingRead read;
  read.set = set;
  if (found) read.expected = scene.book.present(set);
  read.failed_before = failures(scene);
  read.records = empty_disk_records(scene, set);
  const auto id = scene.log->read(disk_entry(scene, set, read.records), found);
  if (!id) return false;
  if (!found && scene.book.present(set) == std::nullopt && !scene.book.queued(set))
    scene.complain("disk_found", fmt::format("a read of page {} class {} began, which is not there", set.page,
                                             set.cls.value()));
  if (scene.reads.contains(*id)) scene.complain("disk_ends", "a read's number was given out twice");
  scene.reads[*id] = std::move(read);
  scene.coverage.hit("disk_read");
  return true;
}

std::string act_on_disk(DiskScene& scene) {
  const double removals = scene.scenario.removals;
  const double troubles = scene.scenario.troubled ? 0.01 : 0;
  const double crashes = scene.scenario.crashes ? (scene.scenario.uniform ? 0.03 : 0.01) : 0;
  const std::array<Weighted, 14> table = {{{0.28, append_some},
                                           {0.12, read_one},
                                           {0.04, touch},
                                           {0.005, drop},
                                           {removals, remove},
                                           {removals / 10, clear},
                                           {removals / 20, clear_form},
                                           {0.004, settle_log},
                                           {0.25, poll},
                                           {0.2, pass_time},
                                           {troubles, trouble},
                                           {crashes, arm_power_failure},
                                           {0.006, end_and_reopen},
                                           {0.03, [](DiskScene& each) {
                                              each.log->flush_soon();
                                              return std::string("flush_soon");
                                            }}}};
  if (scene.drive->power_is_off()) return reopen_disk_log(scene, DiskEnd::kPowerFailed);
  if (scene.read_only) return look_only(scene);
  double sum = 0;
  for (const Weighted& each : table) sum += each.weight;
  double die = scene.prng.unit() * sum;
  for (const Weighted& each : table) {
    if (die < each.weight) return each.action(scene);
    die -= each.weight;
  }
  return poll(scene);
}

}  // namespace tiercel::sim
