// The slots of one pool whose records are smaller than an extent: each extent of the pool is a shelf of equal
// slots. Shelves are kept in lists by how many of their slots are used, so that the fullest with room and the
// emptiest are found at once.
//
// Threads: one thread. Cost: O(slots of a shelf / 64) per call unless it says otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memory/index_set.h"

namespace tiercel {

class Shelves final {
 public:
  // Requires: slots_per_shelf ≥ 1.
  explicit Shelves(std::uint32_t slots_per_shelf);

  std::uint32_t slots_per_shelf() const { return slots_per_shelf_; }
  std::uint64_t count() const { return shelves_.size() - vacant_.size(); }
  std::uint64_t used() const { return used_; }
  std::uint64_t free_slots() const { return count() * slots_per_shelf_ - used_; }

  // A slot of the fullest shelf that has a free one; nothing when all are full.
  std::optional<std::uint32_t> take();
  // `extent` becomes a shelf and its first slot is taken: a shelf is never left empty.
  std::uint32_t add_and_take(std::uint32_t extent);
  // Returns: the shelf's extent when this was its last used slot (the shelf is then gone). Requires:
  // in_use(slot).
  std::optional<std::uint32_t> give_back(std::uint32_t slot);

  bool in_use(std::uint32_t slot) const;
  std::uint32_t extent_of(std::uint32_t slot) const { return shelves_[slot / slots_per_shelf_].extent; }
  std::uint32_t position_of(std::uint32_t slot) const { return slot % slots_per_shelf_; }

  // The shelf with the fewest used slots, at most `used_max` of them, all of which `movable` accepts; nothing
  // when there is none. Cost: O(used slots of the shelves looked at).
  using Movable = std::function<bool(std::uint32_t slot)>;
  std::optional<std::uint32_t> emptiest(std::uint64_t used_max, const Movable& movable) const;
  std::uint32_t used_of(std::uint32_t shelf) const { return shelves_[shelf].used; }
  // Takes a slot elsewhere for each used slot of `shelf`, which keeps its own. Requires: free_slots() ≥
  // slots_per_shelf().
  std::vector<std::pair<std::uint32_t, std::uint32_t>> take_for_drain(std::uint32_t shelf);

  // Calls `visit(slot)` for each used slot, ascending.
  void for_each_used(const std::function<void(std::uint32_t slot)>& visit) const;
  // Calls `visit(extent)` for each shelf.
  void for_each_extent(const std::function<void(std::uint32_t extent)>& visit) const;
  // What the lists and counts find wrong with themselves. Cost: O(all).
  std::optional<std::string> inconsistency() const;

 private:
  struct Shelf {
    std::uint32_t extent = kNone;  // kNone: vacant
    std::uint32_t used = 0;
    std::uint32_t previous = kNone;  // of the same used count
    std::uint32_t next = kNone;
  };
  static constexpr std::uint32_t kNone = UINT32_MAX;

  void link(std::uint32_t shelf);
  void unlink(std::uint32_t shelf);
  std::uint32_t take_from(std::uint32_t shelf);
  bool all_movable(std::uint32_t shelf, const Movable& movable) const;

  std::uint32_t slots_per_shelf_;
  std::uint32_t words_per_shelf_;
  std::uint64_t used_ = 0;
  std::vector<Shelf> shelves_;
  std::vector<std::uint64_t> bits_;    // words_per_shelf_ a shelf; set = used
  std::vector<std::uint32_t> vacant_;  // indices of shelves_ that hold no extent
  std::vector<std::uint32_t> heads_;   // first shelf by used count
  IndexSet counts_with_room_;          // used counts below slots_per_shelf_ that have a shelf
};

}  // namespace tiercel
