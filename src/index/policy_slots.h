// Slots of candidates: small numbers, taken again once they are free, so that a policy keeps what it knows of
// its candidates in arrays; and a set of such numbers that finds its next one.
//
// Threads: one thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "index/policy.h"

namespace tiercel {

// Cost: O(1) a call. Memory: kBytes for each page number up to the largest told, for every tag that is told,
// and 4 for each slot that is free.
class CandidateSlots final {
 public:
  using Slot = std::uint32_t;
  static constexpr Slot kNone = UINT32_MAX;
  static constexpr std::uint64_t kBytes = 4;

  Slot find(CandidateId id) const {
    const std::vector<Slot>& of_tag = slots_[candidate_tag(id)];
    return page_number(id) < of_tag.size() ? of_tag[page_number(id)] : kNone;
  }
  // Requires: it has none. Returns: the one freed last, or the smallest that was never taken.
  Slot add(CandidateId id) {
    TIERCEL_CHECK(page_number(id) < kNone);
    std::vector<Slot>& of_tag = slots_[candidate_tag(id)];
    if (page_number(id) >= of_tag.size()) of_tag.resize(page_number(id) + 1, kNone);
    Slot& slot = of_tag[page_number(id)];
    TIERCEL_CHECK(slot == kNone);
    slot = free_.empty() ? taken_++ : free_.back();
    if (!free_.empty()) free_.pop_back();
    ++size_;
    return slot;
  }
  void remove(CandidateId id) {
    Slot& slot = slots_[candidate_tag(id)][page_number(id)];
    free_.push_back(slot);
    slot = kNone;
    --size_;
  }
  std::uint64_t size() const { return size_; }  // candidates that have one

 private:
  std::array<std::vector<Slot>, kCandidateTags> slots_;
  std::vector<Slot> free_;
  Slot taken_ = 0;
  std::uint64_t size_ = 0;
};

// A set of numbers below a size, in words of 64 with a bit for each word that is not empty, and so on
// upwards. Cost: one word a level, of which there are log64(size). Memory: 65 bits for 64 numbers.
class NumberSet final {
 public:
  static constexpr std::uint64_t kNone = UINT64_MAX;

  // Afterwards empty, with room for numbers below `size`.
  void reset(std::uint64_t size) {
    levels_.clear();
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }
  // The same, with what is in it.
  void grow(std::uint64_t size) {
    if (!levels_.empty() && size <= levels_[0].size() * 64) return;
    std::vector<std::vector<std::uint64_t>> old = std::move(levels_);
    reset(size);
    if (old.empty()) return;
    for (std::size_t word = 0; word < old[0].size(); ++word) {
      levels_[0][word] = old[0][word];
      if (old[0][word] != 0) raise(1, word);
    }
  }
  void insert(std::uint64_t number) { raise(0, number); }
  void erase(std::uint64_t number) {
    for (std::vector<std::uint64_t>& level : levels_) {
      level[number / 64] &= ~(std::uint64_t{1} << number % 64);
      if (level[number / 64] != 0) return;
      number /= 64;
    }
  }
  bool contains(std::uint64_t number) const { return (levels_[0][number / 64] >> number % 64 & 1) != 0; }
  // The smallest one that is not smaller than `from`; kNone: there is none.
  std::uint64_t next(std::uint64_t from) const {
    for (std::size_t level = 0; level < levels_.size(); ++level, from = from / 64 + 1) {
      if (from / 64 >= levels_[level].size()) return kNone;
      const std::uint64_t word = levels_[level][from / 64] >> from % 64;
      if (word == 0) continue;
      from += static_cast<std::uint64_t>(std::countr_zero(word));
      while (level-- > 0)
        from = from * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[level][from]));
      return from;
    }
    return kNone;
  }

 private:
  void raise(std::size_t level, std::uint64_t number) {
    for (; level < levels_.size(); ++level, number /= 64)
      levels_[level][number / 64] |= std::uint64_t{1} << number % 64;
  }

  std::vector<std::vector<std::uint64_t>> levels_;
};

}  // namespace tiercel
