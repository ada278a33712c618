#include "disk/admission.h"

#include <chrono>
#include <cstdio>

#include <gtest/gtest.h>

namespace tiercel::disk {
namespace {

using std::chrono::hours;

DiskName name_of(std::uint64_t number, std::uint16_t cls = 0) {
  return {DiskSpaceId(1), {{number, 7}}, ClassId(cls)};
}

constexpr DiskOffer kOffers[] = {DiskOffer::kComputed, DiskOffer::kHit, DiskOffer::kLeaving};

class Fixture {
 public:
  explicit Fixture(DiskAdmission rule, std::optional<std::uint64_t> a_day = std::nullopt)
      : admission(rule, 1000, WriteBudget(a_day, clock.now())) {}
  DiskVerdict judge(std::uint64_t number, DiskOffer offer, bool room_unused, std::uint64_t bytes = 100) {
    return admission.judge(name_of(number), bytes, offer, room_unused, clock.now());
  }
  ManualClock clock;
  Admission admission;
};

TEST(Admission, AutoTakesAllWhileRoomIsUnused) {
  Fixture it(DiskAdmission::kAuto);
  for (const DiskOffer offer : kOffers) EXPECT_EQ(it.judge(1, offer, true), DiskVerdict::kAccepted);
  EXPECT_EQ(it.judge(2, DiskOffer::kComputed, true), DiskVerdict::kAccepted);
}

TEST(Admission, AutoAsksForASecondTouchOnceAllRoomIsUsed) {
  for (const DiskOffer first : kOffers)
    for (const DiskOffer second : kOffers) {
      Fixture it(DiskAdmission::kAuto);
      EXPECT_EQ(it.judge(1, first, false), DiskVerdict::kSecondTouch);
      EXPECT_EQ(it.judge(2, first, false), DiskVerdict::kSecondTouch) << "another page";
      EXPECT_EQ(it.judge(1, second, false), DiskVerdict::kAccepted);
    }
}

TEST(Admission, WhatWasTakenWhileRoomWasUnusedHasBeenSeen) {
  Fixture it(DiskAdmission::kAuto);
  EXPECT_EQ(it.judge(1, DiskOffer::kComputed, true), DiskVerdict::kAccepted);
  EXPECT_EQ(it.judge(1, DiskOffer::kHit, false), DiskVerdict::kAccepted);
}

TEST(Admission, SecondTouchAsksForItFromTheFirstByteOn) {
  Fixture it(DiskAdmission::kSecondTouch);
  EXPECT_EQ(it.judge(1, DiskOffer::kComputed, true), DiskVerdict::kSecondTouch);
  EXPECT_EQ(it.judge(1, DiskOffer::kLeaving, true), DiskVerdict::kAccepted);
}

TEST(Admission, AllTakesAll) {
  Fixture it(DiskAdmission::kAll);
  EXPECT_EQ(it.judge(1, DiskOffer::kComputed, false), DiskVerdict::kAccepted);
  EXPECT_EQ(it.judge(2, DiskOffer::kLeaving, false), DiskVerdict::kAccepted);
}

TEST(Admission, ATierThatEndsAsksForNoSecondTouch) {
  for (const DiskAdmission rule : {DiskAdmission::kAuto, DiskAdmission::kAll, DiskAdmission::kSecondTouch}) {
    Fixture it(rule, 1000);
    EXPECT_EQ(it.judge(1, DiskOffer::kClosing, false), DiskVerdict::kAccepted);
    EXPECT_EQ(it.judge(2, DiskOffer::kClosing, false, 1001), DiskVerdict::kWriteBudget);
  }
}

TEST(Admission, TheWriteBudgetRefusesLastAndUnderEveryRule) {
  for (const DiskAdmission rule : {DiskAdmission::kAuto, DiskAdmission::kAll, DiskAdmission::kSecondTouch}) {
    Fixture it(rule, 1000);
    it.judge(1, DiskOffer::kComputed, false);
    EXPECT_EQ(it.judge(1, DiskOffer::kHit, false, 1000), DiskVerdict::kAccepted);
    EXPECT_EQ(it.judge(1, DiskOffer::kHit, false, 1001), DiskVerdict::kWriteBudget);
    it.admission.budget().spend(1000, it.clock.now());
    EXPECT_EQ(it.judge(1, DiskOffer::kHit, false, 1), DiskVerdict::kWriteBudget);
  }
}

TEST(Admission, ATouchCountsWhileTheBudgetIsUsedUp) {
  Fixture it(DiskAdmission::kAuto, 1000);
  it.admission.budget().spend(1000, it.clock.now());
  EXPECT_EQ(it.judge(1, DiskOffer::kComputed, false), DiskVerdict::kSecondTouch);
  EXPECT_EQ(it.judge(1, DiskOffer::kHit, false), DiskVerdict::kWriteBudget);
  EXPECT_EQ(it.judge(2, DiskOffer::kComputed, true), DiskVerdict::kWriteBudget);
  it.clock.advance(hours(24));
  EXPECT_EQ(it.judge(2, DiskOffer::kHit, false), DiskVerdict::kAccepted);
}

TEST(Admission, JudgingSpendsNothing) {
  Fixture it(DiskAdmission::kAll, 1000);
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(it.judge(1, DiskOffer::kComputed, true, 1000), DiskVerdict::kAccepted);
  EXPECT_EQ(it.admission.budget().left(it.clock.now()), 1000U);
}

TEST(WriteBudget, WithoutALimitEverythingIsLeft) {
  WriteBudget budget(std::nullopt, Time(0));
  budget.spend(UINT64_MAX, Time(0));
  EXPECT_EQ(budget.left(Time(0)), UINT64_MAX);
  EXPECT_FALSE(budget.limited());
  EXPECT_EQ(budget.bytes_per_day(), 0U);
}

TEST(WriteBudget, RefillsEvenlyUpToADaysWorth) {
  ManualClock clock;
  WriteBudget budget(24'000'000, clock.now());
  EXPECT_EQ(budget.left(clock.now()), 24'000'000U);
  clock.advance(hours(100));
  EXPECT_EQ(budget.left(clock.now()), 24'000'000U) << "no more than a day's worth";
  budget.spend(24'000'000, clock.now());
  EXPECT_EQ(budget.left(clock.now()), 0U);
  for (std::uint64_t hour = 1; hour <= 24; ++hour) {
    clock.advance(hours(1));
    EXPECT_EQ(budget.left(clock.now()), hour * 1'000'000);
  }
}

TEST(WriteBudget, WhatWasOverspentIsPaidForLater) {
  ManualClock clock;
  WriteBudget budget(24'000'000, clock.now());
  budget.spend(36'000'000, clock.now());
  EXPECT_EQ(budget.left(clock.now()), 0U);
  clock.advance(hours(12));
  EXPECT_EQ(budget.left(clock.now()), 0U);
  clock.advance(hours(1));
  EXPECT_EQ(budget.left(clock.now()), 1'000'000U);
}

TEST(WriteBudget, OfNothingNeverHasAnyLeft) {
  WriteBudget budget(0, Time(0));
  EXPECT_TRUE(budget.limited());
  EXPECT_EQ(budget.left(hours(1000)), 0U);
}

TEST(SeenBefore, NoneOfTheLastNamesIsForgotten) {
  constexpr std::uint64_t kEntries = 1000;
  SeenBefore seen(kEntries);
  for (std::uint64_t i = 0; i < 10 * kEntries; ++i) {
    seen.note(name_of(i));
    if (i >= kEntries && i % 97 == 0) {
      SeenBefore copy = seen;
      for (std::uint64_t back = 0; back < kEntries; ++back)
        ASSERT_TRUE(copy.note(name_of(i - back))) << i << " " << back;
    }
  }
}

TEST(SeenBefore, OldNamesAreForgotten) {
  SeenBefore seen(1000);
  for (std::uint64_t i = 0; i < 10; ++i) seen.note(name_of(i));
  for (std::uint64_t i = 100; i < 2200; ++i) seen.note(name_of(i));
  int known = 0;
  for (std::uint64_t i = 0; i < 10; ++i) known += seen.note(name_of(i));
  EXPECT_LE(known, 2);
}

TEST(SeenBefore, TakesFewNamesForKnown) {
  constexpr std::uint64_t kEntries = 100000;
  SeenBefore full(kEntries);
  for (std::uint64_t i = 0; i < 2 * kEntries - 200; ++i) full.note(name_of(i));  // as full as they get
  std::uint64_t taken = 0;
  for (std::uint64_t round = 0; round < 100; ++round) {
    SeenBefore seen = full;
    for (std::uint64_t i = 0; i < 100; ++i) taken += seen.note(name_of(1'000'000 + 100 * round + i, 1));
  }
  std::printf("taken for known: %.2f %%\n", static_cast<double>(taken) / 100.0);
  EXPECT_LE(taken, 200U);
}

TEST(SeenBefore, ClassesAndNamespacesAreNamesOfTheirOwn) {
  SeenBefore seen(1000);
  EXPECT_FALSE(seen.note(name_of(1, 0)));
  EXPECT_FALSE(seen.note(name_of(1, 1)));
  EXPECT_FALSE(seen.note({DiskSpaceId(2), {{1, 7}}, ClassId(0)}));
  EXPECT_TRUE(seen.note(name_of(1, 1)));
}

TEST(SeenBefore, TakesThreeBytesANameInAll) {
  EXPECT_NEAR(static_cast<double>(SeenBefore::nominal_bytes(1 << 20)), 3.0 * (1 << 20), 300);
  EXPECT_EQ(SeenBefore::nominal_bytes(0), 128U);
  SeenBefore none(0);
  EXPECT_FALSE(none.note(name_of(1)));
}

}  // namespace
}  // namespace tiercel::disk
