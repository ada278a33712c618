// A seeded generator whose sequence is the same on every machine and standard library: SplitMix64 (Steele,
// Lea, Flood 2014). Threads: a Prng is a value, used by one thread at a time.
#pragma once

#include <cstdint>

namespace tiercel {

// One step of the mixing function alone: a good 64-bit hash of a 64-bit value.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

__extension__ using Uint128 = unsigned __int128;

class Prng final {
 public:
  constexpr explicit Prng(std::uint64_t seed) : state_(seed) {}
  constexpr std::uint64_t next() { return mix64(state_ += 0x9E3779B97F4A7C15ULL); }
  // Uniform in [0, bound). Requires: bound > 0. The bias is below bound / 2^64.
  constexpr std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<Uint128>(next()) * bound) >> 64);
  }
  // Uniform in [first, last], both included.
  constexpr std::uint64_t between(std::uint64_t first, std::uint64_t last) {
    return first + below(last - first + 1);
  }
  constexpr double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }  // [0, 1)
  constexpr bool chance(double probability) { return unit() < probability; }

 private:
  std::uint64_t state_;
};

}  // namespace tiercel
