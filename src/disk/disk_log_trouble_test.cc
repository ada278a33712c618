// Refusals, drives that fail, stall or are full: what was promised stays, what failed is told, and the log
// comes back by itself.
#include <algorithm>

#include <gtest/gtest.h>

#include "disk/test_log.h"

namespace tiercel {
namespace {

class TroubleTest : public LogTest {
 protected:
  TroubleTest() : LogTest(4 * kMiB) {}
  void write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted) << i;
    ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
    poll_all();
  }
  std::vector<std::uint64_t> lost() const {
    std::vector<std::uint64_t> numbers;
    for (const DiskEvent& event : events)
      if (event.kind == DiskEvent::Kind::kLost)
        for (std::uint64_t i = 1; i < 100; ++i)
          if (event.name.key == test_key(i)) numbers.push_back(i);
    return numbers;
  }
  static bool is_write(const BlockRequest& request) { return request.work == BlockWork::kWrite; }
  void wait_for_the_drive() {
    for (int i = 0; i < 8; ++i) {
      clock.advance(options.retry_after_max);
      poll_all();
    }
  }
};

// ---- refusals, one by one ----

TEST_F(TroubleTest, WhatIsLargerThanARegionIsTooLarge) {
  open();
  EXPECT_EQ(append(1, ClassId(0), 32).verdict, DiskVerdict::kTooLarge);
  EXPECT_EQ(append(1, ClassId(0), 29).verdict, DiskVerdict::kAccepted) << "58 blocks of 64";
  poll_all();
  expect_bytes(1, ClassId(0), 29);
}

TEST_F(TroubleTest, TooManyBytesQueuedAreRefusedForAWhile) {
  options.queued_bytes_max = 20000;
  open();
  drive->held = is_write;
  EXPECT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  EXPECT_EQ(append(2).verdict, DiskVerdict::kAccepted);
  EXPECT_EQ(append(3).verdict, DiskVerdict::kRateLimited);
  drive->held = {};
  poll_all();
  EXPECT_EQ(append(3).verdict, DiskVerdict::kAccepted);
  EXPECT_EQ(log->stats().verdicts[static_cast<std::size_t>(DiskVerdict::kRateLimited)], 1U);
}

TEST_F(TroubleTest, TheWriteBudgetRefuses) {
  options.write_bytes_per_day = 50000;
  open();
  std::uint64_t accepted = 0;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const DiskVerdict verdict = append(i).verdict;
    if (verdict == DiskVerdict::kAccepted)
      ++accepted;
    else
      EXPECT_EQ(verdict, DiskVerdict::kWriteBudget);
    poll_all();
  }
  EXPECT_GT(accepted, 2U);
  EXPECT_LE(accepted, 7U);
  EXPECT_LT(log->stats().write_budget_left, 8192U);
}

TEST_F(TroubleTest, SecondTouchTakesWhatIsOfferedTwice) {
  options.admission = DiskAdmission::kSecondTouch;
  open();
  EXPECT_EQ(append(1).verdict, DiskVerdict::kSecondTouch);
  EXPECT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  auto set = test_set(space, name, 2);
  const DiskAnswer closing = log->append(set->entry, DiskOffer::kClosing);
  EXPECT_EQ(closing.verdict, DiskVerdict::kAccepted) << "there is no second time";
  memory[closing.append] = std::move(set);
}

TEST_F(TroubleTest, AFullIndexHasNoRoom) {
  options.index_entries = 1;
  open();
  const std::uint64_t room = log->stats().index_entries;
  ASSERT_LT(room, 3000U);
  bool refused = false;
  for (std::uint64_t i = 1; i <= 2 * room && !refused; ++i) {
    const DiskVerdict verdict = append(i, ClassId(1)).verdict;
    poll_all();
    refused = verdict == DiskVerdict::kNoRoom || !lost().empty() ||
              (count(DiskEvent::Kind::kLost) != 0 && events.back().status.code == Code::kResourceExhausted);
    if (count(DiskEvent::Kind::kEvicted) != 0) break;
  }
  EXPECT_LE(log->stats().class_sets, room);
}

// ---- errors ----

TEST_F(TroubleTest, AWriteThatFailsEndsItsRegionAndTakesNothingElseAlong) {
  open();
  write(1, 3);
  options.segments_in_flight = 4;
  bool fail = true;
  drive->failure = [&](const BlockRequest& request) -> Status {
    if (!is_write(request) || !std::exchange(fail, false)) return {};
    return {Code::kIoError, "injected"};
  };
  append(4);
  poll_all();
  EXPECT_EQ(lost(), (std::vector<std::uint64_t>{4}));
  EXPECT_FALSE(found(4));
  EXPECT_FALSE(log->down()) << "one error is no breakdown";
  EXPECT_EQ(append(4).verdict, DiskVerdict::kAccepted) << "it may be written again";
  poll_all();
  write(5, 6);
  for (int opening = 0; opening < 2; ++opening) {
    for (std::uint64_t i = 1; i <= 6; ++i) expect_bytes(i);
    reopen();
  }
}

TEST_F(TroubleTest, AFlushThatFailsTakesBackWhatItWasToKeep) {
  open();
  write(1, 3);
  append(4);
  poll_all();
  ASSERT_TRUE(found(4));
  const std::uint64_t durable = log->durable_at();
  bool fail = true;
  drive->failure = [&](const BlockRequest& request) -> Status {
    if (request.work != BlockWork::kFlush || !std::exchange(fail, false)) return {};
    return {Code::kIoError, "injected"};
  };
  log->flush_soon();
  poll_all();
  EXPECT_FALSE(found(4)) << "nobody knows what stands there";
  EXPECT_EQ(count(DiskEvent::Kind::kEvicted), 1U);
  EXPECT_TRUE(found(3));
  EXPECT_GE(log->durable_at(), durable);
  write(5, 5);
  lose_power();
  for (const std::uint64_t i : {1U, 2U, 3U, 5U}) expect_bytes(i);
}

TEST_F(TroubleTest, ErrorsInARowTripTheTierAndItComesBackByItself) {
  open();
  write(1, 3);
  drive->failure = [](const BlockRequest& request) -> Status {
    return is_write(request) ? Status{Code::kIoError, "injected"} : Status{};
  };
  for (std::uint64_t i = 4; i <= 10 && !log->down(); ++i) {
    append(i);
    poll_all();
  }
  ASSERT_TRUE(log->down());
  EXPECT_EQ(log->stats().trips, 1U);
  EXPECT_EQ(append(20).verdict, DiskVerdict::kTierDown);
  EXPECT_FALSE(log->read(test_set(space, name, 1)->blank().entry, true).has_value());
  EXPECT_NE(log->next_due(), Time::max());
  drive->failure = {};
  wait_for_the_drive();
  EXPECT_FALSE(log->down());
  for (const std::uint64_t i : {1U, 2U, 3U}) expect_bytes(i);
  write(21, 22);
  reopen();
  for (const std::uint64_t i : {1U, 2U, 3U, 21U, 22U}) expect_bytes(i);
}

TEST_F(TroubleTest, AnOperationThatDoesNotEndTripsTheTier) {
  open();
  write(1, 3);
  drive->held = [](const BlockRequest&) { return true; };
  append(4);
  log->poll();
  clock.advance(options.stall_after - Duration(1));
  log->poll();
  EXPECT_FALSE(log->down());
  EXPECT_EQ(log->next_due(), clock.now() + Duration(1));
  clock.advance(Duration(1));
  log->poll();
  EXPECT_TRUE(log->down());
  EXPECT_EQ(log->stats().stalls, 1U);
  take_events();
  EXPECT_EQ(memory.size(), 1U) << "the drive still has its memory";
  drive->held = {};
  wait_for_the_drive();
  EXPECT_FALSE(log->down());
  EXPECT_TRUE(memory.empty());
  for (const std::uint64_t i : {1U, 2U, 3U}) expect_bytes(i);
}

TEST_F(TroubleTest, AFullDriveIsStillRead) {
  open();
  write(1, 3);
  drive->failure = [](const BlockRequest& request) -> Status {
    return is_write(request) ? Status{Code::kResourceExhausted, "injected"} : Status{};
  };
  append(4);
  poll_all();
  EXPECT_EQ(lost(), (std::vector<std::uint64_t>{4}));
  EXPECT_FALSE(log->down());
  EXPECT_EQ(append(5).verdict, DiskVerdict::kRateLimited) << "it is asked again soon";
  expect_bytes(1);
  drive->failure = {};
  wait_for_the_drive();
  write(6, 7);
  reopen();
  for (const std::uint64_t i : {1U, 2U, 3U, 6U, 7U}) expect_bytes(i);
}

TEST_F(TroubleTest, ADamagedRecordIsReadAsItStandsAndDropped) {
  open();
  write(1, 2);
  drive->damage(log->find(name_of(1), true)->offset + 5000);
  const auto set = test_set(space, name, 1);
  TestSet into = set->blank();
  ASSERT_TRUE(log->read(into.entry, true).has_value());
  poll_all();
  EXPECT_NE(into.records, set->records) << "unverified: the reader checks";
  log->drop(name_of(1));
  EXPECT_FALSE(found(1));
  EXPECT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  poll_all();
  expect_bytes(1);
}

TEST_F(TroubleTest, AReadThatFailsIsTold) {
  open();
  write(1, 1);
  drive->failure = [](const BlockRequest& request) -> Status {
    return request.work == BlockWork::kRead ? Status{Code::kIoError, "injected"} : Status{};
  };
  TestSet into = test_set(space, name, 1)->blank();
  ASSERT_TRUE(log->read(into.entry, true).has_value());
  poll_all();
  ASSERT_EQ(events.back().kind, DiskEvent::Kind::kRead);
  EXPECT_EQ(events.back().status.code, Code::kIoError);
  EXPECT_EQ(log->stats().read_failures, 1U);
  EXPECT_TRUE(found(1)) << "it may be read the next time";
}

TEST_F(TroubleTest, OnlySoManyReadsAreUnderWay) {
  options.reads_in_flight = 2;
  open();
  write(1, 3);
  drive->held = [](const BlockRequest& request) { return request.work == BlockWork::kRead; };
  std::vector<TestSet> sets;
  for (std::uint64_t i = 1; i <= 3; ++i) sets.push_back(test_set(space, name, i)->blank());
  for (TestSet& set : sets) set.point();
  EXPECT_TRUE(log->read(sets[0].entry, true).has_value());
  EXPECT_TRUE(log->read(sets[1].entry, true).has_value());
  EXPECT_FALSE(log->read(sets[2].entry, true).has_value());
  drive->held = {};
  poll_all();
  EXPECT_TRUE(log->read(sets[2].entry, true).has_value());
  poll_all();
}

TEST_F(TroubleTest, ALogThatEndsWaitsForItsMemory) {
  open();
  append(1);
  int drains = 0;
  drive->held = [&](const BlockRequest&) { return ++drains < 4; };
  log.reset();
  EXPECT_EQ(drive->under_way(), 0U);
}

}  // namespace
}  // namespace tiercel
