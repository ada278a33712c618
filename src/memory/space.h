// Who owns which extent and slot of the arena: a pure control-plane value, no bytes. The arena's space is
// divided among pools at run time in extents (2 MiB); a record smaller than an extent shares it with its
// pool, a larger one takes several, not necessarily adjacent.
//
// Space never evicts: it says what is free and what would have to be emptied; the node chooses victims and
// moves bytes. Threads: one thread (the control thread). Cost: every call is O(log n) or O(spans of one
// record) unless it says otherwise.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tiercel {

// Bytes of the arena: [offset, offset + length).
struct ArenaSpan {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const ArenaSpan&, const ArenaSpan&) = default;
};

struct SpaceOptions {
  std::uint64_t extent_bytes = 2ULL << 20;
  std::uint64_t extents = 0;  // how many the budget grants
  std::uint64_t take_back_operations =
      64;  // a pool that lost an extent may not take one from another pool within so many allocations
};

struct PoolSpec {
  std::uint64_t slot_bytes = 0;  // header + payload + rounding, what one record takes
  std::uint64_t floor_slots =
      0;  // one resume point: below it other pools do not take this pool's extents (except as a last resort)
};

struct PoolUse {
  std::uint64_t slots_used = 0;
  std::uint64_t extents_owned = 0;
  std::uint64_t bytes_used = 0;  // slots_used × slot_bytes
  std::uint64_t fragmentation_bytes =
      0;  // extents_owned × extent_bytes − bytes_used: lost to rounding and to free slots
};

// A record to be moved within its pool so that its extent becomes free.
struct Move {
  PoolId pool;
  SlotId from;
  SlotId to;  // already allocated by the plan; release(from) after the bytes have moved, or release(to) to
              // give up
};

class Space final {
 public:
  explicit Space(SpaceOptions options);

  PoolId add_pool(PoolSpec spec);
  // Requires: no slot in use. Its extents become free.
  void remove_pool(PoolId pool);

  // Bytes that a record of `slot_bytes` takes of the budget when alone: whole extents.
  std::uint64_t bytes_alone(std::uint64_t slot_bytes) const;
  // Whether one record of this pool could ever fit the budget.
  bool fits_alone(PoolId pool) const;

  // A slot of the pool: one of its free slots (of its fullest extent that has one, so that emptier ones
  // drain), else from free extents; nothing when neither is there.
  std::optional<SlotId> allocate(PoolId pool);
  void release(PoolId pool, SlotId slot);

  std::vector<ArenaSpan> spans(PoolId pool, SlotId slot) const;  // in record order, total slot_bytes

  // Extents still missing before one more record of `pool` fits, given what is free now. 0 = allocate() would
  // succeed.
  std::uint64_t extents_missing(PoolId pool) const;

  // Extents that another pool (or this one, for multi-extent slots there are none) could give up by moving
  // records into its own free slots, without eviction: the moves that would empty the emptiest such extent,
  // or nothing. `movable(pool, slot)` says whether a record may move (not leased, pinned, in flight). At most
  // `bytes_max` are moved. The targets are allocated.
  template <typename Movable>
  std::optional<std::vector<Move>> plan_compaction(PoolId wanted_by, std::uint64_t bytes_max,
                                                   const Movable& movable);

  // Whether `taker` may, at this moment, take an extent from `owner`: floors and the take-back rule. Last
  // resort ignores both.
  bool may_take(PoolId taker, PoolId owner, bool last_resort) const;

  PoolUse use(PoolId pool) const;
  std::uint64_t extents_total() const;
  std::uint64_t extents_free() const;
  std::uint64_t fragmentation_bytes() const;  // sum over pools
  std::uint64_t bytes_owned() const;  // extents owned by pools × extent_bytes: what counts against the budget

  // Every slot in use, each once: for audits. Cost: O(slots).
  std::vector<std::pair<PoolId, SlotId>> slots_in_use() const;
  // What the book-keeping itself finds wrong with itself (a slot in two extents, a free extent owned …), or
  // nothing. Cost: O(all).
  std::optional<std::string> inconsistency() const;
};

}  // namespace tiercel
