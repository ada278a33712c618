// How often a name was used of late, in four rows of 4-bit counters (count-min): never too low within a
// period, rarely too high. After ten uses an entry all counters are halved, so that the past fades.
//
// Threads: one thread. Cost: four counters a call; a halving, amortised over its period, visits all.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tiercel {

class FrequencySketch final {
 public:
  static constexpr std::uint64_t kEntryBytes = 16;  // at most, of the most entries covered

  explicit FrequencySketch(std::uint64_t seed);
  // Room for `entries` names in the cache and their halving period. Grows only, and keeps what is counted.
  void cover(std::uint64_t entries);
  void add(std::uint64_t hash);
  unsigned estimate(std::uint64_t hash) const;  // 0–15

 private:
  static constexpr std::size_t kRows = 4;
  struct Cell {
    std::size_t word;
    unsigned shift;
  };
  Cell cell_of(std::size_t row, std::uint64_t hash) const;

  std::array<std::uint64_t, kRows> seeds_;
  std::array<std::vector<std::uint64_t>, kRows> rows_;  // 16 counters a word; a power of two of words
  std::uint64_t entries_ = 0;
  std::uint64_t additions_ = 0;
};

}  // namespace tiercel
