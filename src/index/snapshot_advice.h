// At which lengths of a request a snapshot is worth taking: the set that maximises pages saved minus the
// price of its points, given where later requests are expected to leave this one.
//
// Threads: plain values and pure functions. Cost: O(k^3) for k ≤ ReuseModel::kStopsMax lengths.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "index/reuse_model.h"

namespace tiercel {

// What a point has to be worth to be taken.
struct AdvicePrice {
  double point = 0;  // pages of recompute
  // Expected visits per request that count as one visit, where room is scarce and what stays long must be
  // visited often; 0 while there is room: then visits count whenever they come.
  double rate_of_one = 0;
  // The price of a point where the request ends, or leaves what is there; absent: the same as elsewhere.
  std::optional<double> at_ends;
};
// `room`: what the bytes of a point (snapshot and windows) earn elsewhere, in pages saved per request; 0
// while there is room. `rate_of_new`: ReuseModel::rate_of_new(). Without a budget `spent` means nothing; near
// its end the price rises, so that the last snapshots go where they save most. `sorted_out`: eviction throws
// out first what turns out worth nothing, so that while there is room what may be of use is taken.
AdvicePrice advice_price(double room, double rate_of_new, std::optional<std::uint64_t> budget,
                         std::uint64_t spent, bool sorted_out);

struct AdviceLimits {
  std::uint64_t pages = 0;        // no length beyond
  std::uint64_t multiple_of = 1;  // ≥ 1; lengths are rounded down to it
  std::uint64_t at_most = UINT64_MAX;
  std::uint64_t from = 0;        // lengths above only
  std::uint64_t restorable = 0;  // resumable without any advice; lengths above only
};
// Ascending lengths.
std::vector<std::uint64_t> advised_lengths(const Forecast& forecast, const AdviceLimits& limits,
                                           const AdvicePrice& price);

}  // namespace tiercel
