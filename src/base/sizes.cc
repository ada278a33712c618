#include "base/sizes.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/checked.h"

namespace tiercel {
namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                          {"B", 1},
                                          {"KiB", 1ULL << 10},
                                          {"MiB", 1ULL << 20},
                                          {"GiB", 1ULL << 30},
                                          {"TiB", 1ULL << 40},
                                          {"KB", 1000ULL},
                                          {"MB", 1000ULL * 1000},
                                          {"GB", 1000ULL * 1000 * 1000},
                                          {"TB", 1000ULL * 1000 * 1000 * 1000}}};

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto bad = [&](std::string_view why) {
    return error(Code::kInvalidArgument,
                 fmt::format("size \"{}\" {}; write a number and a unit, such as 512MiB, 32GiB or 1048576",
                             text, why));
  };
  double number = 0;
  const auto [rest, code] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (code != std::errc() || !(number >= 0)) return bad("is not a number");
  std::string_view unit(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& known : kUnits) {
    if (known.name != unit) continue;
    // Whole numbers are exact: 2^53 + 1 must not pass through a double.
    std::uint64_t whole = 0;
    const auto [end, whole_code] = std::from_chars(text.data(), rest, whole);
    if (whole_code == std::errc() && end == rest) {
      const auto bytes = checked_mul(whole, known.bytes);
      if (!bytes) return bad("is above 2^63 - 1 bytes");
      return *bytes;
    }
    const double bytes = number * static_cast<double>(known.bytes);
    if (bytes >= 9.2e18) return bad("is above 2^63 - 1 bytes");
    return static_cast<std::uint64_t>(std::llround(bytes));
  }
  return bad(fmt::format("has the unknown unit \"{}\"", unit));
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (unit + 1 < kNames.size() && value >= 1024) {
    value /= 1024;
    ++unit;
  }
  const bool whole = value == std::floor(value);
  return whole ? fmt::format("{:.0f} {}", value, kNames[unit])
               : fmt::format("{:.1f} {}", value, kNames[unit]);
}

}  // namespace tiercel
