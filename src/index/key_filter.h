// A rotating Bloom filter over keys of namespaces: two halves, of which the older one is emptied when the
// newer one is full. No false negatives for keys added since since(); false positives below 1 %.
//
// Threads: one thread. Cost: at most 2 × 8 bits looked at a call; a rotation clears one half.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "model/key_chain.h"
#include "os/clock.h"

namespace tiercel {

class KeyFilter final {
 public:
  // Each half holds `entries` keys at `bits_per_entry` bits. 0 entries: any key may be contained.
  KeyFilter(std::uint64_t entries, std::uint64_t bits_per_entry);
  // Afterwards the key is contained, at least until `entries` other keys have been added.
  void add(NamespaceId ns, const Key& key, Time now);
  // False: not added since since(), certainly.
  bool contains(NamespaceId ns, const Key& key) const;
  // Every key added at this moment or later is contained. A key added before may have been lost.
  Time since() const { return halves_[1 - newer_].start; }
  // Of both halves of such a filter.
  static std::uint64_t bytes(std::uint64_t entries, std::uint64_t bits_per_entry);

 private:
  struct Half {
    std::vector<std::uint64_t> words;
    std::uint64_t keys = 0;
    Time start{0};
  };
  struct Probes {
    std::uint64_t first;
    std::uint64_t step;
  };

  static Probes probes_of(NamespaceId ns, const Key& key);
  static bool half_contains(const Half& half, Probes probes);

  std::uint64_t entries_;
  std::array<Half, 2> halves_;
  std::size_t newer_ = 0;
};

}  // namespace tiercel
