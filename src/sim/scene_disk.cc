#include "sim/scene_disk.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/actions.h"
#include "sim/checkers.h"
#include "sim/scene_below.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

std::vector<Key> chain_of(const Scene& scene, const PageId& page) {
  const std::size_t space = scene.space_of.at(page.ns);
  const auto at = std::find_if(scene.prompts.begin(), scene.prompts.end(),
                               [&](const Prompt& each) { return each.ns == space && each.key == page.key; });
  TIERCEL_CHECK(at != scene.prompts.end());
  std::vector<Key> keys;
  for (const Prompt* up = &*at;; up = &scene.prompts[*up->parent]) {
    keys.push_back(up->key);
    if (!up->parent) break;
  }
  std::reverse(keys.begin(), keys.end());
  return keys;
}

Digest uuid_of(std::uint64_t seed) {
  Digest uuid{};
  for (std::size_t i = 0; i < 8; ++i) uuid[i] = static_cast<std::byte>(seed >> (8 * i) & 0xFF);
  return uuid;
}

// Nobody has anything any more, and nobody is there.
void lose_everything(Scene& scene) {
  scene.node.reset();
  scene.disk->log.reset();
  scene.tickets.clear();
  scene.operations.clear();
  scene.reservations.clear();
  scene.requests.clear();
  scene.pins.clear();
  scene.failed_loads.clear();
  scene.events_waiting.clear();
  scene.damage_found.clear();
  scene.cleared_generations.clear();
  scene.suspended = scene.suspending = false;
  scene.device_errors_seen = {};
  scene.ran_before_poll = 0;
  *scene.below = SceneBelow{};
  if (scene.remote != nullptr) lose_remote(scene);
  scene.disk->lower.clear();
  scene.disk->descending.clear();
  scene.disk->flushes.clear();
}

void new_drive(Scene& scene, bool power) {
  SceneDisk& disk = *scene.disk;
  if (power)
    disk.drive->power_fails_in(0);
  else
    disk.drive->process_dies();
  (void)disk.drive->drain();
  DriveContent content = disk.drive->take_content();
  disk.drive = std::make_unique<SimDrive>(std::move(content), scene.clock, scene.scenario.disk->nature,
                                          mix64(scene.seed + ++disk.restarts));
}

}  // namespace

DiskSpaceId disk_space_of(const Scene& scene, const Space& space) {
  DiskSpaceName name;
  name.root = scene.node->root(space.id);
  name.form = scene.form_of(space).fingerprint;
  for (const DiskLog::SpaceView& each : scene.disk->log->spaces())
    if (each.name.root == name.root && each.name.form == name.form) return each.id;
  return {};
}

Presence in_log(const Scene& scene, const PageId& page) {
  const Space& space = scene.spaces[scene.space_of.at(page.ns)];
  const std::vector<Key> keys = chain_of(scene, page);
  std::vector<Presence> presence(keys.size());
  scene.disk->log->find_chain(disk_space_of(scene, space), 0, keys, presence);
  return presence.back();
}

Presence found_below(const Scene& scene, const PageId& page) {
  Presence bits = in_log(scene, page);
  // A drive that lies loses classes that the page cannot be without.
  for (const ClassForm& cls : scene.form_of(scene.spaces[scene.space_of.at(page.ns)]).classes)
    if (cls.required() && (bits >> cls.id.value() & 1) == 0) return bits;
  for (const AuditResidence& each : scene.view.after.residences)
    if (each.page_below && each.ns == page.ns && each.key == page.key &&
        !scene.cleared_generations.contains(each.generation))
      bits |= Presence{1} << each.cls.value();
  return bits;
}

std::optional<std::uint64_t> born_in_log(const Scene& scene, const PageId& page, ClassId cls) {
  if ((in_log(scene, page) >> cls.value() & 1) == 0) return std::nullopt;
  const Space& space = scene.spaces[scene.space_of.at(page.ns)];
  const auto found = scene.disk->log->find({disk_space_of(scene, space), page.key, cls}, true);
  return found ? std::optional(found->born) : std::nullopt;
}

Status open_scene_disk(Scene& scene) {
  const ScenarioDisk& scenario = *scene.scenario.disk;
  const auto blank_drive = [&](std::uint64_t number) {
    return std::make_unique<SimDrive>(DriveContent{std::vector<std::byte>(scenario.bytes), {}}, scene.clock,
                                      scenario.nature, mix64(scene.seed ^ 0xD15C) + number);
  };
  if (scene.disk == nullptr) {
    scene.disk = std::make_unique<SceneDisk>();
    scene.disk->drive = blank_drive(0);
  }
  constexpr std::uint64_t kTries = 16;
  for (std::uint64_t tries = 1;; ++tries) {
    scene.disk->drive->calm();  // an opening that fails is the business of runs of the log alone
    auto opened = DiskLog::open(scenario.log, *scene.disk->drive, scene.clock, uuid_of(scene.seed));
    scene.disk->drive->restless();
    if (opened) {
      scene.disk->log = std::move(*opened);
      return {};
    }
    if (!scenario.nature.lies() || tries == kTries) return opened.error();
    scene.disk->drive = blank_drive(tries);  // it lied about what says what it is
  }
}

Status restart_scene(Scene& scene, bool power) {
  SceneDisk& disk = *scene.disk;
  std::set<std::pair<PageId, ClassId>> there;  // promised, and found now
  if (!scene.scenario.disk->nature.lies())
    for (const auto& [set, born] : disk.promised)
      if (born_in_log(scene, set.first, set.second) == born) there.insert(set);
  lose_everything(scene);
  new_drive(scene, power);
  std::map<NamespaceId, NamespaceId> now_called;
  std::vector<NamespaceId> before;
  before.reserve(scene.spaces.size());
  for (const Space& space : scene.spaces) before.push_back(space.id);
  if (Status status = reopen_scene(scene); !status.ok()) return status;
  for (std::size_t i = 0; i < before.size(); ++i) now_called[before[i]] = scene.spaces[i].id;
  scene.book.restarted(now_called);
  std::map<std::pair<PageId, ClassId>, std::uint64_t> kept;
  for (const auto& [set, born] : disk.promised) {
    const std::pair now{PageId{now_called.at(set.first.ns), set.first.key}, set.second};
    if (!there.contains(set)) continue;
    kept.emplace(now, born);
    // A later copy that was on its way may have taken its place.
    const auto found = born_in_log(scene, now.first, now.second);
    if (disk.log->stats().regions_evicted != 0 || (found && *found >= born)) continue;
    // Damaged in memory before it was written down: an opening that verifies it drops it by right.
    if (scene.book.find(now.first)->ever_damaged.contains(now.second)) continue;
    disk.wrong.push_back(
        fmt::format("class {} of page {} was durable before the {} and is not there after it",
                    set.second.value(), to_hex(set.first.key), power ? "power cut" : "crash"));
  }
  disk.promised = std::move(kept);
  scene.coverage.hit(power ? "node_power_cut" : "node_crash");
  return {};
}

// ---- actions ----

void advance_drive(Scene& scene) {
  scene.disk->drive->wait(std::chrono::microseconds(scene.prng.between(50, 3000)));
  poll_node(scene);
}

void trouble_drive(Scene& scene) {
  if (!scene.scenario.disk->troubled || scene.calm) return;
  using Trouble = SimDrive::Trouble;
  const Trouble kinds[] = {Trouble::kReadErrors, Trouble::kWriteErrors, Trouble::kFlushErrors,
                           Trouble::kNoSpace,    Trouble::kStall,       Trouble::kGone};
  const Trouble kind = kinds[scene.prng.below(6)];
  scene.disk->drive->trouble(kind,
                             scene.clock.now() + std::chrono::milliseconds(scene.prng.between(1, 3000)));
  scene.coverage.hit("node_drive_trouble");
}

void flush_disk(Scene& scene) {
  const Duration patience = std::chrono::milliseconds(scene.prng.between(1, 3000));
  const auto answer = scene.node->flush(patience);
  if (answer) scene.disk->flushes.emplace(*answer, scene.clock.now() + patience);
}

bool disk_is_idle(const Scene& scene) {
  const SceneDisk& disk = *scene.disk;
  const Stats& stats = scene.node->stats();
  return disk.drive->under_way() == 0 && disk.flushes.empty() &&
         stats.disk_reading_bytes + stats.disk_writing_bytes == 0;
}

// ---- what came of them ----

namespace {

void note_wrong(Scene& scene, std::string text) { scene.disk->wrong.push_back(std::move(text)); }

void store_durable(Scene& scene, OperationId id, std::uint64_t class_sets) {
  SceneDisk& disk = *scene.disk;
  const auto at = disk.descending.find(id);
  if (at == disk.descending.end()) return;
  // With fewer than were stored nobody says which ones.
  if (class_sets == at->second.size())
    for (const auto& [set, computation] : at->second)
      if (const auto born = born_in_log(scene, set.first, set.second)) disk.promised[set] = *born;
  scene.coverage.hit("node_store_durable");
  disk.descending.erase(at);
}

// What a store that listens has brought in.
void note_stored_down(Scene& scene, const Completion& completion) {
  const auto at = scene.operations.find(completion.operation);
  if (at == scene.operations.end() || !at->second.tell_lower) return;
  const SimOperation& operation = at->second;
  auto& sets = scene.disk->descending[operation.id];
  for (std::size_t i = 0; i < operation.items.size(); ++i)
    if (operation.first[i] == StoreOutcome::kAccepted)
      sets[{{scene.spaces[operation.space].id, operation.items[i].key}, operation.items[i].cls}] =
          operation.computation;
}

void take_lower(Scene& scene, const Completion& completion) {
  SceneDisk& disk = *scene.disk;
  std::uint32_t& heard = disk.lower[completion.operation];
  const bool durable = completion.kind == CompletionKind::kDurable;
  const std::uint32_t bit = durable ? 2 : 1;
  if (heard != bit - 1)
    note_wrong(scene, fmt::format("operation {} hears of the disk in the wrong order",
                                  completion.operation.value()));
  heard |= bit;
  if (durable) store_durable(scene, completion.operation, completion.class_sets);
}

}  // namespace

void settle_disk(Scene& scene) {
  if (scene.disk == nullptr) return;
  SceneDisk& disk = *scene.disk;
  for (const Completion& completion : scene.view.completions) {
    switch (completion.kind) {
      case CompletionKind::kVisible:
        note_stored_down(scene, completion);
        break;
      case CompletionKind::kFlushed:
        if (disk.flushes.erase(completion.operation) == 0)
          note_wrong(scene, fmt::format("flush {} has ended twice", completion.operation.value()));
        break;
      case CompletionKind::kAccepted:
      case CompletionKind::kDurable:
        take_lower(scene, completion);
        break;
      default:
        break;
    }
  }
}

}  // namespace tiercel::sim
