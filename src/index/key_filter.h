// A rotating Bloom filter over marks of pages: two halves, of which the older one is emptied when the newer
// one is full. No false negatives for marks added since since(); false positives below 1 %.
//
// A half is an array of blocks of one cache line (Putze, Sanders, Singler 2007): a mark has one bit in each
// of the eight words of one block. Blocks fill unevenly, so this asks for more bits than a plain filter.
//
// Threads: one thread. Cost: one cache line of each half a call; a rotation clears one half.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/key_chain.h"
#include "os/clock.h"

namespace tiercel {

// 64 bits that stand for a page of a namespace. Two pages share them with chance 2^-64, and never when their
// keys are equal and their namespaces are not.
std::uint64_t page_mark(NamespaceId ns, const Key& key);

class KeyFilter final {
 public:
  // Each half holds `entries` marks at `bits_per_entry` bits. 0 entries: any mark may be contained.
  KeyFilter(std::uint64_t entries, std::uint64_t bits_per_entry);
  // Afterwards the mark is contained, at least until `entries` other marks have been added.
  void add(std::uint64_t mark, Time now);
  // False: not added since since(), certainly.
  bool contains(std::uint64_t mark) const;
  // Every mark added at this moment or later is contained. A mark added before may have been lost.
  Time since() const { return halves_[1 - newer_].start; }
  // Of both halves of such a filter.
  static std::uint64_t bytes(std::uint64_t entries, std::uint64_t bits_per_entry);

 private:
  static constexpr std::size_t kBlockWords = 8;
  struct alignas(64) Block {
    std::array<std::uint64_t, kBlockWords> words{};
  };
  struct Half {
    std::vector<Block> blocks;
    std::uint64_t keys = 0;
    Time start{0};
  };

  std::size_t block_of(std::uint64_t mark) const;
  static bool block_contains(const Block& block, std::uint64_t bits);

  std::uint64_t entries_;
  std::array<Half, 2> halves_;
  std::size_t newer_ = 0;
};

}  // namespace tiercel
