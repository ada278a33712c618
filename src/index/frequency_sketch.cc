#include "index/frequency_sketch.h"

#include <algorithm>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kCountersPerWord = 16;
constexpr std::uint64_t kCountersPerEntry = 4;  // of one row: with four rows more than ten an entry
constexpr std::uint64_t kWordsMin = 256;
constexpr std::uint64_t kUsesPerEntry = 10;
constexpr std::uint64_t kCounterMax = 15;
constexpr std::uint64_t kHalfMask = 0x7777777777777777ULL;

}  // namespace

FrequencySketch::FrequencySketch(std::uint64_t seed) {
  Prng prng(seed);
  for (std::size_t row = 0; row < kRows; ++row) {
    seeds_[row] = prng.next();
    rows_[row].assign(kWordsMin, 0);
  }
}

void FrequencySketch::cover(std::uint64_t entries) {
  entries_ = std::max(entries_, entries);
  while (rows_[0].size() * kCountersPerWord < entries_ * kCountersPerEntry) {
    // A name's counter of the wider row has the low bits of its old one: two copies keep every count.
    for (std::vector<std::uint64_t>& row : rows_) {
      const std::size_t words = row.size();
      row.resize(2 * words);
      std::copy_n(row.begin(), words, row.begin() + static_cast<std::ptrdiff_t>(words));
    }
  }
}

FrequencySketch::Cell FrequencySketch::cell_of(std::size_t row, std::uint64_t hash) const {
  const std::uint64_t mixed = mix64(hash ^ seeds_[row]);
  return {(mixed / kCountersPerWord) & (rows_[row].size() - 1),
          4 * static_cast<unsigned>(mixed % kCountersPerWord)};
}

void FrequencySketch::add(std::uint64_t hash) {
  for (std::size_t row = 0; row < kRows; ++row) {
    const Cell cell = cell_of(row, hash);
    std::uint64_t& word = rows_[row][cell.word];
    if ((word >> cell.shift & kCounterMax) < kCounterMax) word += std::uint64_t{1} << cell.shift;
  }
  if (++additions_ < kUsesPerEntry * entries_) return;
  additions_ /= 2;
  for (std::vector<std::uint64_t>& row : rows_) {
    for (std::uint64_t& word : row) word = word >> 1 & kHalfMask;
  }
}

unsigned FrequencySketch::estimate(std::uint64_t hash) const {
  std::uint64_t lowest = kCounterMax;
  for (std::size_t row = 0; row < kRows; ++row) {
    const Cell cell = cell_of(row, hash);
    lowest = std::min(lowest, rows_[row][cell.word] >> cell.shift & kCounterMax);
  }
  return static_cast<unsigned>(lowest);
}

}  // namespace tiercel
