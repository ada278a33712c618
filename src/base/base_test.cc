#include <set>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/exhaustive.h"
#include "base/prng.h"
#include "base/sizes.h"
#include "base/status.h"

namespace tiercel {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return error(Code::kInvalidArgument, "odd");
  return value / 2;
}
Result<int> quarter(int value) {
  TIERCEL_ASSIGN_OR_RETURN(const int first, half(value));
  TIERCEL_RETURN_IF_ERROR(half(first));
  return half(first);
}

TEST(Status, ErrorsTravelThroughTheMacros) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).error().code, Code::kInvalidArgument);
  EXPECT_EQ(quarter(7).error().to_string(), "invalid_argument: odd");
}

TEST(Checked, SaysWhenItWouldWrap) {
  EXPECT_EQ(checked_mul(1ULL << 32, 1ULL << 30).value(), 1ULL << 62);
  EXPECT_FALSE(checked_mul(1ULL << 32, 1ULL << 31));
  EXPECT_FALSE(checked_add(kSizeMax, 1));
  EXPECT_EQ(checked_add(kSizeMax - 1, 1).value(), kSizeMax);
  EXPECT_FALSE(checked_mul(1ULL << 63, 0))
      << "an operand above the limit is an error even when multiplied by zero";
  EXPECT_EQ(ceil_div(4095, 512), 8U);
  EXPECT_EQ(ceil_div(4096, 512), 8U);
}

TEST(Sizes, ReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_size("32GiB").value(), 32ULL << 30);
  EXPECT_EQ(parse_size("1.5 MiB").value(), 3ULL << 19);
  EXPECT_EQ(parse_size("7").value(), 7U);
  EXPECT_EQ(parse_size("9007199254740993").value(), 9007199254740993ULL);
  for (const char* bad : {"", "GiB", "-1", "12 parsecs", "nan", "inf", "99999999999GiB", "1e3", "0x10"})
    EXPECT_FALSE(parse_size(bad)) << bad;
  EXPECT_EQ(format_size(12ULL << 20), "12 MiB");
  EXPECT_EQ(format_size((12ULL << 20) + (1 << 19)), "12.5 MiB");
}

TEST(Prng, RepeatsFromItsSeedAndStaysInBounds) {
  Prng a(42), b(42), c(43);
  EXPECT_EQ(a.next(), b.next());
  EXPECT_NE(a.next(), c.next());
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(a.between(3, 5));
  EXPECT_EQ(seen, (std::set<std::uint64_t>{3, 4, 5}));
}

TEST(Exhaustive, VisitsEveryDependentCombinationOnce) {
  Exhaustive every;
  std::set<std::pair<std::uint64_t, std::uint64_t>> seen;
  std::size_t runs = 0;
  while (every.next()) {
    const auto first = every.choose(3);
    const auto second = every.choose(first + 1);
    seen.insert({first, second});
    ++runs;
  }
  EXPECT_EQ(runs, 6U);
  EXPECT_EQ(seen.size(), 6U);
}

}  // namespace
}  // namespace tiercel
