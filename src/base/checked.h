// Arithmetic on sizes that says when it would wrap. Sizes are unsigned 64-bit everywhere; what is printed or
// stored must also fit a signed 64-bit integer, which is the limit applied here. Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

namespace tiercel {

inline constexpr std::uint64_t kSizeMax =
    static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  if (a > kSizeMax || b > kSizeMax - a) return std::nullopt;
  return a + b;
}

constexpr std::optional<std::uint64_t> checked_mul(std::uint64_t a, std::uint64_t b) {
  if (a > kSizeMax || b > kSizeMax) return std::nullopt;
  if (a != 0 && b > kSizeMax / a) return std::nullopt;
  return a * b;
}

// ceil(a / b), b > 0.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace tiercel
