#include "disk/disk_log.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "disk/test_log.h"

namespace tiercel {
namespace {

class DiskLogTest : public LogTest {
 protected:
  DiskLogTest() : LogTest(8 * kMiB) {}
};

TEST_F(DiskLogTest, WhatIsWrittenIsFoundAndReadBack) {
  open();
  const DiskAnswer first = append(1);
  ASSERT_EQ(first.verdict, DiskVerdict::kAccepted);
  EXPECT_FALSE(found(1)) << "nothing is found before its write has ended";
  poll_all();
  EXPECT_EQ(count(DiskEvent::Kind::kWritten), 1U);
  EXPECT_TRUE(found(1));
  EXPECT_FALSE(found(2));
  expect_bytes(1);
  ASSERT_EQ(append(2, ClassId(1), 3).verdict, DiskVerdict::kAccepted);
  poll_all();
  expect_bytes(2, ClassId(1), 3);
  EXPECT_FALSE(found(2, ClassId(0)));
}

TEST_F(DiskLogTest, TheSameClassSetIsNotWrittenTwice) {
  open();
  ASSERT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  EXPECT_EQ(append(1).verdict, DiskVerdict::kAlreadyThere) << "it is queued";
  poll_all();
  EXPECT_EQ(append(1).verdict, DiskVerdict::kAlreadyThere) << "it is there";
  EXPECT_EQ(append(1, ClassId(1)).verdict, DiskVerdict::kAccepted) << "another class";
}

TEST_F(DiskLogTest, DurableIsWhatIsBehindAFlush) {
  open();
  ASSERT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  const std::uint64_t at = log->last_at();
  log->poll();
  log->poll();
  take_events();
  EXPECT_LT(log->durable_at(), at);
  EXPECT_TRUE(log->settle(at, kLong).ok());
  EXPECT_GE(log->durable_at(), at);
  poll_all();
  EXPECT_GE(count(DiskEvent::Kind::kDurable), 1U);
  lose_power();
  EXPECT_TRUE(found(1));
  expect_bytes(1);
}

TEST_F(DiskLogTest, AFlushFollowsTheWritesByItself) {
  open();
  append(0);
  poll_all();  // the next region is made ready, with a flush of its own
  append(1);
  poll_all();
  const std::uint64_t at = log->last_at();
  EXPECT_LT(log->durable_at(), at);
  EXPECT_EQ(log->next_due(), clock.now() + options.flush_after);
  clock.advance(options.flush_after);
  poll_all();
  EXPECT_EQ(log->durable_at(), at);
  EXPECT_EQ(log->next_due(), Time::max()) << "nothing is left to do";
}

TEST_F(DiskLogTest, WhatWasWrittenSurvivesTheProcessAndWhatWasNotFlushedMayNotSurviveThePower) {
  open();
  for (std::uint64_t i = 1; i <= 20; ++i) ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted);
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  for (std::uint64_t i = 21; i <= 30; ++i) ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted);
  poll_all();
  reopen();
  EXPECT_EQ(log->stats().recovered_class_sets, 30U);
  EXPECT_GT(log->stats().recovered_from_tail, 0U);
  for (std::uint64_t i = 1; i <= 30; ++i) expect_bytes(i);
  for (std::uint64_t i = 31; i <= 40; ++i) ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted);
  poll_all();
  lose_power();
  for (std::uint64_t i = 1; i <= 30; ++i) expect_bytes(i);
  for (std::uint64_t i = 31; i <= 40; ++i) EXPECT_FALSE(found(i));
}

TEST_F(DiskLogTest, WhatIsNotWholeAtTheEndIsDroppedAlone) {
  open();
  append(1);
  poll_all();
  append(2);
  poll_all();
  const std::uint64_t second = log->find(name_of(2), true)->offset;
  append(3);
  poll_all();
  drive->damage(second + 5000);
  reopen();
  EXPECT_TRUE(found(1));
  EXPECT_FALSE(found(2));
  expect_bytes(3);
  EXPECT_EQ(log->stats().tail_segments_refused, 1U);
  append(4);
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  reopen();
  EXPECT_TRUE(found(1));
  expect_bytes(4);
  expect_bytes(3);
  EXPECT_FALSE(found(2)) << "what was not found by one opening is not found by the next";
}

TEST_F(DiskLogTest, DamageOfADurablePageIsNotLookedForWhenOpening) {
  open();
  append(1);
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  append(2);  // says that 1 was durable
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  drive->damage(log->find(name_of(1), true)->offset + 5000);
  reopen();
  EXPECT_TRUE(found(1));
  EXPECT_TRUE(found(2));
}

TEST_F(DiskLogTest, EachByteGivenToTheDriveIsAccountedFor) {
  open();
  for (std::uint64_t i = 1; i <= 500; ++i) {
    if (append(i).verdict != DiskVerdict::kAccepted) poll_all();
    if (i % 7 == 0) poll_all();
  }
  poll_all();
  ASSERT_TRUE(log->close(kLong).ok());
  const DiskStats& s = log->stats();
  EXPECT_EQ(s.written_bytes, drive->written_bytes);
  EXPECT_EQ(s.written_bytes, s.record_bytes + s.padding_bytes + s.directory_bytes + s.footer_bytes +
                                 s.image_bytes + s.header_bytes);
  EXPECT_GT(s.footer_bytes, 0U);
  EXPECT_GT(s.image_bytes, 0U);
}

TEST_F(DiskLogTest, AnotherNamespaceHasOtherPages) {
  open();
  append(1);
  poll_all();
  const auto other = log->open_space(test_space(2));
  ASSERT_TRUE(other.has_value());
  EXPECT_NE(*other, space);
  EXPECT_FALSE(log->find({*other, test_key(1), ClassId(0)}, true));
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  const DiskSpaceId before = space;
  reopen();
  EXPECT_EQ(space, before) << "a name keeps its number";
  EXPECT_TRUE(found(1));
  const auto views = log->spaces();
  ASSERT_FALSE(views.empty());
  EXPECT_EQ(views.front().name.text, name.text);
  EXPECT_EQ(views.front().name.runs, name.runs);
  EXPECT_EQ(views.front().class_sets, 1U);
  EXPECT_EQ(views.front().bytes, 8192U);
}

TEST_F(DiskLogTest, ADriveWithSomethingElseIsLeftAlone) {
  drive->overwrite(70000, {std::byte{1}});
  auto opened = DiskLog::open(options, *drive, clock, test_digest(1));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(drive->written_bytes, 0U);
}

}  // namespace
}  // namespace tiercel
