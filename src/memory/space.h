// Who owns which extent and slot of the arena: a pure control-plane value, no bytes. The arena's space is
// divided among pools at run time in extents (2 MiB); a record smaller than an extent shares it with its
// pool, a larger one takes several, not necessarily adjacent. An extent without a used slot is free at once.
//
// Space never evicts: it says what is free and what would have to be emptied; its owner chooses victims and
// moves bytes. The loop that makes room for one record of pool `p` (space_test.cc runs it):
//
//   if (!space.fits_alone(p)) refuse: too large;
//   for (const bool last_resort : {false, true}) {
//     while (space.extents_missing(p) > 0) {
//       if (auto moves = space.plan_compaction(p, bytes_max, movable, last_resort)) {
//         for each: move the bytes, re-point the index, release(from);     // an extent has become free
//       } else if (a victim, unleased, whose pool o has space.may_take(p, o, last_resort)) {
//         evict it: release(its slot);
//       } else {
//         break;                                                           // try the last resort, then
//         refuse
//       }
//     }
//   }
//   slot = space.allocate(p);
//
// Compaction comes before each eviction: then floors hold for records and not only for extents, and a pool
// that is asked for an extent never loses more records than one extent's worth of slots. With bytes_max ≥
// extent_bytes and nothing leased or pinned the loop ends with a slot for every record that fits alone.
//
// Threads: one thread (the control thread). Cost: every call is O(1), O(spans of one record) or O(slots of
// one extent / 64), unless it says otherwise. Memory is proportional to the extents ever used, not to the
// budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "memory/index_set.h"
#include "memory/shelves.h"

namespace tiercel {

// Bytes of the arena: [offset, offset + length).
struct ArenaSpan {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const ArenaSpan&, const ArenaSpan&) = default;
};

struct SpaceOptions {
  std::uint64_t extent_bytes = 2ULL << 20;
  std::uint64_t extents = 0;  // how many the budget grants; below 2^32
  // A pool that lost an extent to another pool takes none from other pools within so many allocations, unless
  // it holds less than its floor.
  std::uint64_t take_back_operations = 64;
};

// How many slots of one extent an address (32 bits) can tell apart among so many extents; smaller slots leave
// the rest of their extent unused. 2,047 for 4 TiB in extents of 2 MiB.
constexpr std::uint64_t slots_per_extent_max(std::uint64_t extents) {
  return (std::uint64_t{UINT32_MAX} - 1) / (extents == 0 ? 1 : extents);
}

// Where in the arena a slot begins, by its address.
constexpr std::uint64_t slot_offset(SlotAddress address, std::uint64_t slot_bytes, std::uint64_t extent_bytes,
                                    std::uint64_t extents) {
  const std::uint64_t slots_max = slots_per_extent_max(extents);
  return address.value() / slots_max * extent_bytes + address.value() % slots_max * slot_bytes;
}

struct PoolSpec {
  std::uint64_t slot_bytes = 0;  // header + payload + rounding, what one record takes; > 0
  // One resume point: other pools take none of this pool's extents if what is left would hold fewer slots
  // (except as a last resort).
  std::uint64_t floor_slots = 0;
};

struct PoolUse {
  std::uint64_t slots_used = 0;
  std::uint64_t extents_owned = 0;
  std::uint64_t bytes_used = 0;           // slots_used × slot_bytes
  std::uint64_t fragmentation_bytes = 0;  // extents_owned × extent_bytes − bytes_used: lost to rounding and
                                          // to free slots
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

  // Ids are never used again. Requires: slot_bytes > 0.
  PoolId add_pool(PoolSpec spec);
  // Requires: no slot in use (then no extent is owned either).
  void remove_pool(PoolId pool);

  // Bytes that a record of `slot_bytes` takes of the budget when alone: whole extents.
  std::uint64_t bytes_alone(std::uint64_t slot_bytes) const;
  // Whether one record of this pool could ever fit the budget.
  bool fits_alone(PoolId pool) const;

  // A slot of the pool: one of its free slots (of its fullest extent that has one, so that emptier ones
  // drain), else from free extents, lowest first; nothing when neither is there.
  std::optional<SlotId> allocate(PoolId pool);
  // Requires: the slot is in use.
  void release(PoolId pool, SlotId slot);

  // Where the slot lies, for readers who have no Space: first extent × slots_per_extent_max() + position in
  // it. Requires: the slot is in use.
  SlotAddress address(PoolId pool, SlotId slot) const;

  // In record order, total slot_bytes; adjacent extents are one span. Requires: the slot is in use.
  std::vector<ArenaSpan> spans(PoolId pool, SlotId slot) const;

  // Extents still missing before one more record of `pool` fits, given what is free now. 0 = allocate() would
  // succeed.
  std::uint64_t extents_missing(PoolId pool) const;

  // The moves, within one pool's own free slots, that empty the extent with the fewest bytes to move, over
  // all pools from which `wanted_by` may take (a pool of multi-extent slots has nothing to compact); nothing
  // when there is no such extent whose records may all move and take at most `bytes_max`. The targets are
  // allocated; no other extent is touched. `movable` says whether a record may move (not leased, pinned, in
  // flight). Until the moves are done the owner must not allocate in the emptied extent's pool, or it may
  // fill again. Cost: O(used slots of the extents looked at: those emptier than the one found).
  using Movable = std::function<bool(PoolId, SlotId)>;
  std::optional<std::vector<Move>> plan_compaction(PoolId wanted_by, std::uint64_t bytes_max,
                                                   const Movable& movable, bool last_resort = false);

  // Whether `taker` may, at this moment, take an extent from `owner`: floors and the take-back rule. Last
  // resort ignores both. Always true for its own.
  bool may_take(PoolId taker, PoolId owner, bool last_resort) const;

  PoolUse use(PoolId pool) const;
  std::uint64_t extents_total() const { return options_.extents; }
  std::uint64_t extents_free() const { return options_.extents - extents_owned_; }
  std::uint64_t fragmentation_bytes() const;  // sum over pools
  std::uint64_t bytes_owned() const;  // extents owned by pools × extent_bytes: what counts against the budget

  // Every slot in use, each once, by pool, then slot: for audits. Cost: O(slots).
  std::vector<std::pair<PoolId, SlotId>> slots_in_use() const;
  // What the book-keeping itself finds wrong with itself (a slot in two extents, a free extent owned …), or
  // nothing. Cost: O(all).
  std::optional<std::string> inconsistency() const;

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  struct Extent {
    std::uint32_t owner = kNone;  // pool; of a free extent: the one that had it last
    std::uint32_t next = kNone;   // the record's next extent, where a record takes several
  };
  // Slots of a pool whose records take whole extents.
  struct Chains {
    std::uint32_t extents_per_slot = 0;
    std::vector<std::uint32_t> first;   // by slot: first extent; kNone when the slot is free
    std::vector<std::uint32_t> vacant;  // free slots
    std::uint64_t used() const { return first.size() - vacant.size(); }
  };
  struct Pool {
    PoolSpec spec;
    std::variant<Shelves, Chains> slots;
    std::optional<std::uint64_t> lost_at;  // value of allocations_ when another pool took one of its extents
    bool open = true;
  };

  Pool& at(PoolId pool);
  const Pool& at(PoolId pool) const;
  std::uint32_t take_extent(PoolId pool);
  void free_extent(std::uint32_t extent);
  SlotId allocate_chain(PoolId pool, Chains& chains);
  void release_chain(Chains& chains, std::uint32_t slot);
  bool in_use(const Pool& pool, SlotId slot) const;
  std::optional<std::string> claim(std::uint32_t extent, std::uint32_t owner,
                                   std::vector<bool>& claimed) const;
  std::optional<std::string> claim_all(std::uint32_t pool, std::vector<bool>& claimed) const;

  SpaceOptions options_;
  std::vector<Pool> pools_;      // by PoolId
  std::vector<Extent> extents_;  // those ever used; the rest of the budget is free and has no entry
  IndexSet free_extents_;        // among extents_
  std::uint64_t extents_owned_ = 0;
  std::uint64_t bytes_used_ = 0;   // sum over pools of slots used × slot_bytes
  std::uint64_t allocations_ = 0;  // the clock of the take-back rule
};

}  // namespace tiercel
