// How much moves at a time: by what the store has shown of its speed.

#include <algorithm>

#include "remote/tier_state.h"

namespace tiercel {

using remote::Flow;

namespace {

// Two objects as large as runs are made, with their headers. More goes in several batches: while one is on
// its way, what another brings or takes is copied.
constexpr std::uint64_t kOneBatch = 17ULL << 20;
constexpr std::uint64_t kWindowMax = 1ULL << 40;  // whatever a batch may have

}  // namespace

std::uint64_t RemoteTier::State::batch_share(const Flow& flow, std::uint32_t in_flight) const {
  return std::clamp<std::uint64_t>(flow.window / in_flight, 1, std::min(options.batch_bytes_max, kOneBatch));
}

bool RemoteTier::State::may_leave(const Flow& flow, std::uint64_t share, std::uint64_t taken,
                                  std::uint64_t size) {
  if (taken == 0 && flow.bytes == 0) return true;
  return (taken == 0 || taken + size <= share) && flow.bytes + taken + size <= flow.window;
}

void RemoteTier::State::note_left(Flow& flow, std::uint64_t bytes) {
  ++flow.batches;
  flow.bytes += bytes;
}

// Little at first, more with every batch that came early, half of it after one that came late.
void RemoteTier::State::note_back(Flow& flow, std::uint64_t bytes, Time since,
                                  const std::vector<RemoteResult>& results) const {
  --flow.batches;
  flow.bytes -= bytes;
  const std::uint64_t most = 2 * std::min(options.batch_bytes_max, kWindowMax / 2);
  const bool late = std::any_of(results.begin(), results.end(), [](const RemoteResult& result) {
    return result.outcome == RemoteOutcome::kLate;
  });
  if (late)
    flow.window = std::max<std::uint64_t>(std::min(flow.window, bytes) / 2, 1);
  else if (now() - since < options.batch_deadline / 4)
    flow.window = std::min(flow.window + bytes, most);
}

}  // namespace tiercel
