// The store that a simulated node shares with another one: what it keeps, what goes wrong with it, and what
// the other node does there.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "remote/remote_tier.h"
#include "remote/test_store_twin.h"
#include "sim/neighbour.h"
#include "sim/scene.h"

namespace tiercel::sim {

struct SceneRemote {
  TwinObjects objects;               // outlives everything
  std::unique_ptr<StoreTwin> store;  // the node's way to them
  std::unique_ptr<RemoteTier> tier;
  std::unique_ptr<Neighbour> neighbour;
  std::uint64_t lives = 0;
  std::map<NamespaceId, RemoteSpaceId> spaces;
  RemoteStats seen;                  // by the counters
  std::uint64_t troubles_heard = 0;  // that the node knew of after its last poll
  std::uint64_t late_seen = 0, misread_seen = 0, full_seen = 0;
};

// Opens the node's tier. Requires: the scenario has a store, and the scene no node.
Status open_scene_remote(Scene& scene);
// The node's process has died; its store, and the other node, live on.
void lose_remote(Scene& scene);

// What the tier knows to be there of a page, for whoever asks it now.
Presence known_remotely(const Scene& scene, const PageId& page);
// Batches, lookups and reads that failed, and times that the tier went down: grows.
std::uint64_t store_troubles(const Scene& scene);
// Nothing is under way between the two nodes and the store.
bool remote_is_idle(const Scene& scene);
void calm_store(Scene& scene);
void restless_store(Scene& scene);
// Situations of this step, for the counters.
void note_remote(Scene& scene);

// -- actions --
void advance_store(Scene& scene);
void trouble_store(Scene& scene);  // it hangs, dies, comes back
void spoil_store(Scene& scene);    // objects and markers go, or are damaged
void neighbour_stores(Scene& scene);
void neighbour_clears(Scene& scene);
void neighbour_looks(Scene& scene);

}  // namespace tiercel::sim
