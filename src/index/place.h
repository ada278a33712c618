// A place in an eviction order, and an ordered set of places: what tinylfu keeps its queues in, and what
// defines the order of lru.
//
// Threads: plain values.
#pragma once

#include <compare>
#include <cstdint>
#include <set>

#include "index/policy.h"

namespace tiercel {

// Smaller places go earlier. Within one request the deepest page goes first, so a prefix outlives what hangs
// on it; `tick` is unique within a policy and decides what is left, so an order never depends on addresses
// or hashes.
struct Place {
  std::uint64_t sequence = 0;
  std::uint64_t shallowness = 0;  // all bits of the length turned over
  std::uint64_t tick = 0;
  CandidateId id;
  friend auto operator<=>(const Place&, const Place&) = default;
};

using PlaceSet = std::set<Place>;
constexpr std::uint64_t kPlaceBytes = 80;  // of a node: links, place, what an allocator adds

}  // namespace tiercel
