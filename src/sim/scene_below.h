// Who waits in a simulated node for what only a tier below the host has, whichever tier that is.
//
// Threads: one thread.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "remote/remote_stats.h"
#include "sim/scene.h"

namespace tiercel::sim {

// A match or prefetch that waits.
struct SimWaiting {
  std::optional<SimTicket> ticket;  // of a match; nothing: a prefetch
  Time deadline{0};
  std::uint64_t troubles = 0;  // of the store, that the node knew of when it began
};

struct SceneBelow {
  std::map<TicketId, SimWaiting> matches;
  std::map<OperationId, SimWaiting> prefetches;
  std::map<TicketId, SimWaiting> answered;  // in this step; their tickets are the scene's now
  std::vector<std::string> wrong;           // answers that nobody waited for
};

// -- actions --
void prefetch_pages(Scene& scene);
// Whether a match may wait, and for how long.
void choose_promotion(Scene& scene, MatchQuery& query);

// Nothing is under way between the node and the tiers below, and nobody waits.
bool below_is_idle(const Scene& scene);
// A little time, and the node hears of what has ended.
void advance_below(Scene& scene);
// Answers and ends of prefetches in this step.
void settle_below(Scene& scene);

}  // namespace tiercel::sim
