// A set of 32-bit indices with ordered queries: a bitmap with summary bitmaps above it. Memory grows with the
// largest index ever inserted (one bit each), not with the range.
//
// Threads: one thread. Cost: six steps at most per call.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tiercel {

class IndexSet final {
 public:
  void insert(std::uint32_t index) {
    for (auto& words : levels_) {
      const std::size_t word = index / kWordBits;
      if (words.size() <= word) words.resize(word + 1, 0);
      const bool known_above = words[word] != 0;
      words[word] |= bit(index);
      if (known_above) return;
      index /= kWordBits;
    }
  }
  void erase(std::uint32_t index) {
    for (auto& words : levels_) {
      const std::size_t word = index / kWordBits;
      if (word >= words.size()) return;
      words[word] &= ~bit(index);
      if (words[word] != 0) return;
      index /= kWordBits;
    }
  }
  bool contains(std::uint32_t index) const {
    const std::size_t word = index / kWordBits;
    return word < levels_[0].size() && (levels_[0][word] & bit(index)) != 0;
  }
  std::optional<std::uint32_t> first() const { return first_from(0); }
  // The smallest member ≥ `index`.
  std::optional<std::uint32_t> first_from(std::uint32_t index) const {
    for (std::size_t level = 0; level < kLevels; ++level) {
      const std::size_t word = index / kWordBits;
      if (word >= levels_[level].size()) return std::nullopt;
      const std::uint64_t rest = levels_[level][word] & (~0ULL << (index % kWordBits));
      if (rest != 0) {
        index = static_cast<std::uint32_t>(word * kWordBits) + low(rest);
        while (level-- > 0) index = index * kWordBits + low(levels_[level][index]);
        return index;
      }
      index = static_cast<std::uint32_t>(word) + 1;
    }
    return std::nullopt;
  }
  std::optional<std::uint32_t> last() const {
    const auto& top = levels_[kLevels - 1];
    if (top.empty() || top[0] == 0) return std::nullopt;
    std::uint32_t index = 0;
    for (std::size_t level = kLevels; level-- > 0;)
      index = index * kWordBits +
              (kWordBits - 1 - static_cast<std::uint32_t>(std::countl_zero(levels_[level][index])));
    return index;
  }

 private:
  static constexpr std::uint32_t kWordBits = 64;
  static constexpr std::size_t kLevels = 6;  // 64^6 > 2^32: the top level is a single word
  static std::uint64_t bit(std::uint32_t index) { return 1ULL << (index % kWordBits); }
  static std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(std::countr_zero(word)); }

  std::array<std::vector<std::uint64_t>, kLevels> levels_;
};

}  // namespace tiercel
