// A queue in an array, from which anything may leave, and that finds the next entry that is marked without
// looking at the others.
//
// Threads: one thread. Cost: O(1) amortised; next looks at one word a level of its set of marks. Memory: at
// most kBytes for each of the most entries that it has held, and a bit of each 2 bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "index/policy_slots.h"

namespace tiercel {

class MarkedFifo final {
 public:
  using Slot = CandidateSlots::Slot;
  static constexpr std::uint64_t kNone = NumberSet::kNone;
  static constexpr std::uint64_t kBytes = 8;

  // Behind all others, unmarked. Returns: its place. When the array is full its entries move together, in
  // their order, and `moved` is told each one's slot and new place: at most one entry a call on average.
  template <typename Moved>
  std::uint32_t push(Slot slot, const Moved& moved) {
    if (end_ == slots_.size()) rebuild(moved);
    slots_[end_] = slot;
    ++held_;
    return static_cast<std::uint32_t>(end_++);
  }
  void mark(std::uint32_t place, bool marked) {
    if (marked) {
      marks_.insert(place);
    } else {
      marks_.erase(place);
    }
  }
  void remove(std::uint32_t place) {
    marks_.erase(place);
    slots_[place] = CandidateSlots::kNone;
    --held_;
  }
  // The first marked one from a place on; kNone: there is none.
  std::uint64_t next(std::uint64_t from) const { return marks_.next(from); }
  Slot at(std::uint64_t place) const { return slots_[place]; }

 private:
  template <typename Moved>
  void rebuild(const Moved& moved) {
    std::vector<Slot> old(std::max<std::uint64_t>(64, 2 * (held_ + 1)), CandidateSlots::kNone);
    old.swap(slots_);
    NumberSet marks;
    marks.reset(slots_.size());
    end_ = 0;
    for (std::uint64_t place = 0; place < old.size(); ++place) {
      if (old[place] == CandidateSlots::kNone) continue;
      if (marks_.contains(place)) marks.insert(end_);
      slots_[end_] = old[place];
      moved(old[place], static_cast<std::uint32_t>(end_));
      ++end_;
    }
    marks_ = std::move(marks);
  }

  std::vector<Slot> slots_;
  NumberSet marks_;
  std::uint64_t end_ = 0;
  std::uint64_t held_ = 0;
};

}  // namespace tiercel
