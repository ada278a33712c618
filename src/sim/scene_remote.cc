#include "sim/scene_remote.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "memory/record.h"
#include "sim/actions.h"

namespace tiercel::sim {
namespace {

Digest own_seed(std::uint64_t seed, std::uint64_t life) {
  Digest digest{};
  store_le<std::uint64_t>(digest.data(), mix64(seed));
  store_le<std::uint64_t>(digest.data() + 8, life + 1);
  return digest;
}

RemoteSpaceId remote_space_of(const Scene& scene, const Space& space) {
  const auto [at, fresh] = scene.remote->spaces.try_emplace(space.id);
  if (!fresh) return at->second;
  RemoteSpaceName name;
  name.root = scene.node->root(space.id);
  name.form = std::make_shared<const StorageForm>(scene.form_of(space));
  for (const ClassForm& cls : name.form->classes)
    name.record_bytes.push_back(header_bytes(cls) + cls.record_bytes);
  return at->second = scene.remote->tier->open_space(name);
}

}  // namespace

Status open_scene_remote(Scene& scene) {
  if (scene.remote == nullptr) {
    scene.remote = std::make_unique<SceneRemote>();
    scene.remote->neighbour = std::make_unique<Neighbour>(scene.remote->objects, scene);
  }
  SceneRemote& remote = *scene.remote;
  const ScenarioRemote& scenario = *scene.scenario.remote;
  const std::uint64_t life = remote.lives++;
  remote.store = std::make_unique<StoreTwin>(remote.objects, scene.clock, scenario.nature,
                                             mix64(scene.seed ^ 0x57023) + life);
  auto tier = RemoteTier::open(scenario.tier, *remote.store, scene.clock, *scene.executor,
                               own_seed(scene.seed, life));
  if (!tier) return tier.error();
  remote.tier = std::move(*tier);
  remote.seen = RemoteStats{};
  remote.troubles_heard = 0;
  remote.spaces.clear();
  remote.late_seen = remote.misread_seen = remote.full_seen = 0;
  return {};
}

void lose_remote(Scene& scene) {
  scene.remote->store->kill();
  scene.remote->tier.reset();
  scene.remote->store.reset();
}

Presence known_remotely(const Scene& scene, const PageId& page) {
  const Space& space = scene.spaces[scene.space_of.at(page.ns)];
  Presence presence = 0;
  scene.remote->tier->find_chain(remote_space_of(scene, space), std::span(&page.key, 1),
                                 std::span(&presence, 1));
  return presence;
}

std::uint64_t store_troubles(const Scene& scene) {
  const RemoteStats& stats = scene.remote->tier->stats();
  return stats.lookups_failed + stats.reads_failed + stats.batches_failed + stats.trips;
}

bool remote_is_idle(const Scene& scene) {
  const SceneRemote& remote = *scene.remote;
  const Stats& stats = scene.node->stats();
  return remote.store->under_way() == 0 && remote.neighbour->idle() && !remote.tier->writing() &&
         !remote.tier->clearing() && !scene.node->storing_remotely() &&
         stats.remote_reading_bytes + stats.remote_writing_bytes == 0 &&
         remote.tier->stats().exchange_used_bytes == 0;
}

void calm_store(Scene& scene) {
  scene.remote->store->calm();
  scene.remote->store->nature().objects_bytes_max = UINT64_MAX;
  scene.remote->neighbour->calm();
}

void restless_store(Scene& scene) {
  scene.remote->store->nature() = scene.scenario.remote->nature;
  scene.remote->neighbour->restless(scene);
}

void note_remote(Scene& scene) {
  if (scene.remote == nullptr) return;
  SceneRemote& remote = *scene.remote;
  const RemoteStats& now = remote.tier->stats();
  const RemoteStats& seen = remote.seen;
  if (scene.view.polled) remote.troubles_heard = store_troubles(scene);
  Coverage& coverage = scene.coverage;
  coverage.hit("remote_lookup", now.lookups - seen.lookups);
  coverage.hit("remote_lookup_failed", now.lookups_failed - seen.lookups_failed);
  coverage.hit("remote_read", now.objects_read - seen.objects_read);
  coverage.hit("remote_read_failed", now.reads_failed - seen.reads_failed);
  coverage.hit("remote_write", now.objects_written - seen.objects_written);
  coverage.hit("remote_write_failed", now.writes_failed - seen.writes_failed);
  coverage.hit("remote_clear", now.clears - seen.clears);
  coverage.hit("remote_damaged_object", now.damaged_objects - seen.damaged_objects);
  coverage.hit("remote_mixed_shards", now.mixed_objects - seen.mixed_objects);
  coverage.hit("remote_down", now.trips - seen.trips);
  if (now.unquiet_bytes != 0) coverage.hit("remote_unquiet");
  coverage.hit("remote_late_batch", remote.store->late_batches - remote.late_seen);
  if (now.direct_bytes != seen.direct_bytes) coverage.hit("remote_direct");
  coverage.hit("remote_misread", remote.store->misread - remote.misread_seen);
  coverage.hit("remote_full", remote.store->full - remote.full_seen);
  remote.late_seen = remote.store->late_batches;
  remote.misread_seen = remote.store->misread;
  remote.full_seen = remote.store->full;
  remote.seen = now;
}

namespace {

// Rather one of those that were stored last: others may be out of reach since a clear.
TwinObjects::iterator some_object(Scene& scene) {
  TwinObjects& objects = scene.remote->objects;
  const StoreTwin& twin = scene.prng.chance(0.5) ? *scene.remote->store : scene.remote->neighbour->twin();
  const auto recent = objects.find(twin.recent[scene.prng.below(twin.recent.size())]);
  if (recent != objects.end()) return recent;
  return std::next(objects.begin(), static_cast<std::ptrdiff_t>(scene.prng.below(objects.size())));
}

}  // namespace

// ---- actions ----

void advance_store(Scene& scene) {
  scene.remote->store->wait(std::chrono::microseconds(scene.prng.between(50, 5000)));
  scene.remote->neighbour->poll(scene);
  poll_node(scene);
}

void trouble_store(Scene& scene) {
  if (!scene.scenario.remote->troubled || scene.calm) return;
  StoreTwin& store = *scene.remote->store;
  if (scene.prng.chance(0.4)) {
    scene.remote->neighbour->trouble(scene);
  } else if (!store.health().ready) {
    store.revive();
  } else if (store.hung()) {
    store.hang(false);
  } else if (scene.prng.chance(0.5)) {
    store.hang(true);
    scene.coverage.hit("remote_hung");
  } else {
    store.kill();
    scene.coverage.hit("remote_killed");
  }
}

void spoil_store(Scene& scene) {
  TwinObjects& objects = scene.remote->objects;
  if (!scene.scenario.remote->spoilt || scene.calm || objects.empty()) return;
  const auto victim = some_object(scene);
  if (scene.prng.chance(0.04)) {
    const std::size_t markers =
        std::erase_if(objects, [](const auto& each) { return each.first.starts_with("t1.marker."); });
    scene.coverage.hit("remote_markers_lost", markers);
  } else if (scene.prng.chance(0.5)) {
    const std::string name = victim->first;
    objects.erase(victim);
    scene.coverage.hit("remote_object_lost");
    if (scene.prng.chance(0.5)) scene.remote->neighbour->store_again(scene, name);
  } else {
    std::vector<std::byte>& bytes = victim->second;
    // Headers as often as what follows them.
    const std::uint64_t reach =
        scene.prng.chance(0.5) ? std::min<std::uint64_t>(bytes.size(), 128) : bytes.size();
    bytes[scene.prng.below(reach)] ^= std::byte{0x20};
    scene.coverage.hit("remote_object_damaged");
  }
}

void neighbour_stores(Scene& scene) { scene.remote->neighbour->store(scene); }
void neighbour_clears(Scene& scene) { scene.remote->neighbour->clear(scene); }
void neighbour_looks(Scene& scene) { scene.remote->neighbour->look_up(scene); }

}  // namespace tiercel::sim
