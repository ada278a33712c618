#include "index/key_filter.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr NamespaceId kNs{1};
constexpr std::uint64_t kBitsPerEntry = 14;

std::uint64_t mark_of(std::uint64_t n, NamespaceId ns = kNs) {
  return page_mark(ns, Key{{mix64(n + 1), mix64(n ^ 0xABCDEF)}});
}

TEST(KeyFilter, HasNoFalseNegativeForKeysAddedSinceItsMomentAcrossRotations) {
  constexpr std::uint64_t kEntries = 500;
  KeyFilter filter(kEntries, kBitsPerEntry);
  Time last{-1};
  int rotations = 0;
  for (std::uint64_t n = 0; n < 10 * kEntries; ++n) {
    const Time now{static_cast<std::int64_t>(n / 7)};  // several keys share a moment
    filter.add(mark_of(n), now);
    if (filter.since() == last) continue;
    last = filter.since();
    ++rotations;
    for (std::uint64_t back = 0; back <= n; ++back) {
      if (Time{static_cast<std::int64_t>(back / 7)} < filter.since()) continue;
      ASSERT_TRUE(filter.contains(mark_of(back))) << back << " of " << n;
    }
  }
  EXPECT_GE(rotations, 8);
}

TEST(KeyFilter, MakesNoPromiseAboutAMomentThatNeverEnds) {
  KeyFilter filter(10, kBitsPerEntry);
  for (std::uint64_t n = 0; n < 100; ++n) filter.add(mark_of(n), Time{0});
  EXPECT_GT(filter.since(), Time{0});
}

TEST(KeyFilter, KeepsAKeyThatIsAddedAgainAndAgain) {
  KeyFilter filter(100, kBitsPerEntry);
  for (std::uint64_t n = 0; n < 5000; ++n) {
    filter.add(mark_of(n), Time{static_cast<std::int64_t>(n)});
    if (n % 50 == 0) filter.add(mark_of(999'999), Time{static_cast<std::int64_t>(n)});
    ASSERT_TRUE(filter.contains(mark_of(999'999)));
  }
}

TEST(KeyFilter, IsWrongAboutFewerThanOneStrangerInAHundredWithBothHalvesFull) {
  constexpr std::uint64_t kEntries = 10'000;
  KeyFilter filter(kEntries, kBitsPerEntry);
  for (std::uint64_t n = 0; n < 2 * kEntries; ++n) {
    filter.add(mark_of(n), Time{static_cast<std::int64_t>(n)});
  }
  std::uint64_t wrong = 0;
  constexpr std::uint64_t kStrangers = 100'000;
  for (std::uint64_t n = 0; n < kStrangers; ++n) {
    wrong += filter.contains(mark_of(10'000'000 + n)) ? 1u : 0u;
  }
  std::printf("%llu of %llu strangers taken for known\n", static_cast<unsigned long long>(wrong),
              static_cast<unsigned long long>(kStrangers));
  EXPECT_LT(wrong, kStrangers / 100);
  EXPECT_GT(wrong, kStrangers / 1000);  // two halves at 14 bits: about 0.4 %
}

TEST(KeyFilter, TellsNamespacesApart) {
  KeyFilter filter(1000, kBitsPerEntry);
  for (std::uint64_t n = 0; n < 500; ++n) filter.add(mark_of(n, NamespaceId{1}), Time{0});
  std::uint64_t wrong = 0;
  for (std::uint64_t n = 0; n < 500; ++n) wrong += filter.contains(mark_of(n, NamespaceId{2})) ? 1u : 0u;
  EXPECT_LT(wrong, 10u);
}

}  // namespace
}  // namespace tiercel
