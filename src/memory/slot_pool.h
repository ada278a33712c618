// Slots (pages or snapshots) of host pools, handed out and taken back. A pool that uses another one's slots
// has none of its own: whoever holds a page of the anchor holds that page of its index keys and draft too.
//
// The lowest free slot goes first, so that ranks that ask alike are answered alike.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/host_pool_plan.h"
#include "memory/index_set.h"

namespace tiercel {

class SlotPool final {
 public:
  // Errors: invalid_argument for 2^32 slots or more.
  static Result<SlotPool> make(std::uint64_t slots);

  std::uint64_t slots() const { return slots_; }
  std::uint64_t free_slots() const { return slots_ - used_; }
  bool in_use(std::uint64_t slot) const;

  // `count` slots, rising. Errors: resource_exhausted when fewer are free; then none is taken. Cost:
  // O(count).
  Result<std::vector<std::uint64_t>> allocate(std::uint64_t count);

  // Errors: invalid_argument for a slot that this pool does not have, or that is twice in the list;
  // failed_precondition for one that is free already; then none is freed. Cost: O(n log n).
  Status free(std::span<const std::uint64_t> slots);
  // What free() would say.
  Status check(std::span<const std::uint64_t> slots) const;

 private:
  explicit SlotPool(std::uint64_t slots) : slots_(slots) {}

  std::uint64_t slots_;
  std::uint64_t used_ = 0;
  std::uint64_t fresh_ = 0;  // from here on no slot was ever handed out
  IndexSet freed_;           // below that
};

// Those of all pools of a group.
class GroupSlots final {
 public:
  // Errors: invalid_argument for a pool with 2^32 slots or more.
  static Result<GroupSlots> make(const HostPoolPlan& plan);

  struct Want {
    std::uint32_t pool = 0;
    std::uint64_t slots = 0;
  };
  struct Grant {
    std::uint32_t pool = 0;
    std::vector<std::uint64_t> slots;
  };

  // What every want asks for, in their order; two wants of one pool act as two calls in a row. Errors:
  // invalid_argument for a pool that is not there or uses another one's slots; resource_exhausted when one
  // want cannot be met, naming its pool; then nothing is taken from any.
  Result<std::vector<Grant>> allocate(std::span<const Want> wants);

  // Errors: as SlotPool::free(), naming the pool; failed_precondition for slots that are held; then nothing
  // is freed in any.
  Status free(std::span<const Grant> grants);

  // Slots whose holder alone gives them back: nobody frees them until they are let go. Requires: they are in
  // use, and not held (held).
  void hold(const Grant& grant);
  void let_go(const Grant& grant);

  // Of a pool with slots of its own, or of the one whose slots it uses. Requires: the pool is there.
  const SlotPool& slots_of(std::uint32_t pool) const { return pools_[roots_[pool]]; }

 private:
  Status check_own(std::uint32_t pool) const;
  Status check_free(std::uint32_t pool, std::span<const std::uint64_t> slots) const;

  std::vector<std::string> names_;
  std::vector<std::uint32_t> roots_;
  std::vector<SlotPool> pools_;  // of each pool; without slots where it uses another one's
  std::vector<IndexSet> held_;   // of those
};

}  // namespace tiercel
