// Regions: filled, sealed with a footer, evicted, used again.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "disk/format.h"
#include "disk/test_log.h"

namespace tiercel {
namespace {

class RegionTest : public LogTest {
 protected:
  RegionTest() : LogTest(4 * kMiB) {}
  // One segment each, so that a region holds about twenty.
  void fill(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) {
      DiskAnswer answer = append(i);
      for (int tries = 0; answer.verdict == DiskVerdict::kRateLimited && tries < 10; ++tries) {
        poll_all();
        answer = append(i);
      }
      ASSERT_EQ(answer.verdict, DiskVerdict::kAccepted) << i;
      poll_all();
    }
  }
  std::uint64_t region_of(std::uint64_t offset) const {
    return (offset - log->geometry().regions_offset) / log->geometry().region_bytes;
  }
  std::uint64_t region_start(std::uint64_t region) const {
    return log->geometry().regions_offset + region * log->geometry().region_bytes;
  }
  Result<disk::Footer> footer_of(std::uint64_t region) const {
    const std::uint64_t bytes = log->geometry().region_bytes;
    return disk::parse_footer(drive->bytes(region_start(region), bytes));
  }
};

TEST_F(RegionTest, AFullRegionEndsWithAFooterThatNamesAllOfItBehindAFlush) {
  open();
  fill(1, 30);
  const std::uint64_t region = region_of(log->find(name_of(1), true)->offset);
  const auto footer = footer_of(region);
  ASSERT_TRUE(footer.has_value()) << footer.error().message;
  std::set<Key> listed;
  for (const disk::Descriptor& d : footer->entries)
    if (d.kind == disk::EntryKind::kClassSet) listed.insert(d.key);
  for (std::uint64_t i = 1; i <= 30; ++i)
    EXPECT_EQ(listed.contains(test_key(i)), region_of(log->find(name_of(i), true)->offset) == region);
  // In the order of operations: its last segment, a flush, the footer.
  const std::uint64_t end = region_start(region) + log->geometry().region_bytes;
  std::size_t last_segment = 0, footer_at = 0;
  for (std::size_t i = 0; i < drive->done_so_far.size(); ++i) {
    const TestBlockDevice::Seen& op = drive->done_so_far[i];
    if (op.work != BlockWork::kWrite || op.offset < region_start(region) || op.offset >= end) continue;
    (op.offset + op.bytes == end ? footer_at : last_segment) = i;
  }
  ASSERT_LT(last_segment, footer_at);
  EXPECT_TRUE(std::any_of(drive->done_so_far.begin() + static_cast<std::ptrdiff_t>(last_segment),
                          drive->done_so_far.begin() + static_cast<std::ptrdiff_t>(footer_at),
                          [](const auto& op) { return op.work == BlockWork::kFlush; }));
}

TEST_F(RegionTest, TheOldestRegionLeavesFirstAndEachClassSetOfItIsTold) {
  open();
  fill(1, 400);
  std::set<Key> evicted;
  for (const DiskEvent& event : events)
    if (event.kind == DiskEvent::Kind::kEvicted) evicted.insert(event.name.key);
  ASSERT_FALSE(evicted.empty());
  EXPECT_EQ(log->stats().evicted, evicted.size());
  EXPECT_GT(log->stats().regions_evicted, 0U);
  for (std::uint64_t i = 1; i <= 400; ++i) {
    EXPECT_EQ(evicted.contains(test_key(i)), i <= evicted.size()) << i;
    EXPECT_EQ(found(i), i > evicted.size()) << i;
  }
  reopen();
  for (std::uint64_t i = 1; i <= 400; ++i) EXPECT_EQ(found(i), i > evicted.size()) << i;
  expect_bytes(400);
  expect_bytes(evicted.size() + 1);
}

TEST_F(RegionTest, ARegionIsNotUsedAgainWhileItIsRead) {
  open();
  fill(1, 25);
  const auto set = test_set(space, name, 1);
  TestSet into = set->blank();
  const std::uint64_t offset = log->find(name_of(1), true)->offset;
  const std::uint64_t region = region_of(offset);
  drive->held = [&](const BlockRequest& r) { return r.work == BlockWork::kRead && r.offset == offset; };
  const auto id = log->read(into.entry, true);
  ASSERT_TRUE(id.has_value());
  const std::size_t before = drive->done_so_far.size();
  for (std::uint64_t i = 26; i <= 500; ++i) {
    append(i);
    poll_all();
  }
  EXPECT_FALSE(found(1)) << "evicted";
  const auto written_to = [&] {
    return std::any_of(drive->done_so_far.begin() + static_cast<std::ptrdiff_t>(before),
                       drive->done_so_far.end(), [&](const auto& op) {
                         return op.work == BlockWork::kWrite && op.offset >= region_start(region) &&
                                op.offset + log->geometry().region_bytes / 2 <
                                    region_start(region) + log->geometry().region_bytes;
                       });
  };
  EXPECT_FALSE(written_to());
  EXPECT_EQ(append(600).verdict, DiskVerdict::kRateLimited) << "no other region can be had meanwhile";
  drive->held = {};
  poll_all();
  EXPECT_EQ(into.records, set->records) << "the bytes that were found";
  fill(600, 630);
  EXPECT_TRUE(written_to());
}

TEST_F(RegionTest, WhatIsUsedIsWrittenAgainUnderItsOldNumber) {
  options.reinsert_after = 2;
  open();
  fill(1, 3);
  const std::uint64_t born = log->find(name_of(2), true)->born;
  log->touch(name_of(2));
  log->touch(name_of(2));
  log->touch(name_of(3));
  fill(4, 400);
  EXPECT_FALSE(found(1));
  EXPECT_FALSE(found(3)) << "used once: not enough";
  ASSERT_TRUE(found(2));
  EXPECT_EQ(log->find(name_of(2), true)->born, born);
  EXPECT_EQ(log->stats().reinserted, 1U);
  expect_bytes(2);
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  reopen();
  ASSERT_TRUE(found(2));
  EXPECT_EQ(log->find(name_of(2), true)->born, born);
  const auto removal = log->remove(space, test_key(2));
  ASSERT_TRUE(removal.has_value());
  ASSERT_TRUE(log->settle(*removal, kLong).ok());
  lose_power();
  EXPECT_FALSE(found(2));
}

TEST_F(RegionTest, ARemovalBeatsWhatIsWrittenAgainAfterIt) {
  options.reinsert_after = 1;
  open();
  fill(1, 5);
  log->touch(name_of(2));
  // The page before it: the log does not know that, and writes 2 again.
  ASSERT_TRUE(log->settle(*log->remove(space, test_key(1)), kLong).ok());
  fill(6, 400);
  ASSERT_GT(log->stats().reinserted, 0U);
  const std::vector<Key> chain = {test_key(1), test_key(2)};
  std::vector<Presence> presence(2);
  for (int opening = 0; opening < 2; ++opening) {
    log->find_chain(space, 0, chain, presence);
    EXPECT_EQ(presence[1], 0U);
    reopen();
  }
}

TEST_F(RegionTest, ADamagedFooterCostsAWalkAndNothingElse) {
  open();
  fill(1, 30);
  const std::uint64_t region = region_of(log->find(name_of(1), true)->offset);
  drive->damage(region_start(region) + log->geometry().region_bytes - 1000);
  fill(31, 400);
  EXPECT_EQ(log->stats().footers_damaged, 1U);
  EXPECT_FALSE(found(1));
  EXPECT_TRUE(found(400));
  std::size_t told = 0;
  for (const DiskEvent& event : events) told += event.kind == DiskEvent::Kind::kEvicted ? 1 : 0;
  EXPECT_EQ(told, log->stats().evicted);
  EXPECT_EQ(told + log->stats().class_sets, 400U);
}

// Nothing that an append does grows with what the log holds: the drive sees the same, over and over.
TEST_F(RegionTest, TheDriveIsGivenNoMoreForEachClassSetWhenTheLogIsFull) {
  options.checkpoint_regions = 1000;
  open();
  const auto writes_for = [&](std::uint64_t first, std::uint64_t last) {
    const std::uint64_t before = drive->written_bytes, read = drive->read_bytes;
    fill(first, last);
    return (drive->written_bytes - before) + (drive->read_bytes - read);
  };
  const std::uint64_t empty = writes_for(1, 100);
  fill(101, 500);
  const std::uint64_t images = log->stats().image_bytes;
  const std::uint64_t full = writes_for(501, 600) - (log->stats().image_bytes - images);
  EXPECT_LT(full, empty + empty / 10) << "a footer read for each region, and no more";
}

class LargeDriveTest : public LogTest {
 protected:
  LargeDriveTest() : LogTest(16ULL << 40) { options.region_bytes = 256 * kMiB; }
};

TEST_F(LargeDriveTest, OffsetsNearSixteenTebibytesAreKept) {
  open();
  const DiskGeometry geometry = log->geometry();
  const auto last = static_cast<std::uint32_t>(geometry.regions - 1);
  const std::uint64_t start = geometry.regions_offset + last * geometry.region_bytes;
  log.reset();
  // As if all regions before it had been used: the last one is prepared, and the next to be written.
  disk::RegionHeader header;
  const auto front = drive->bytes(kBlockBytes, kBlockBytes);
  header.uuid = disk::parse_superblock(front)->uuid;
  header.region = last;
  header.life = 1000;
  header.first_at = 1;
  drive->overwrite(start, disk::encode(header));
  open();
  append(1);
  append(2, ClassId(1), 3);
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  EXPECT_GE(log->find(name_of(1), true)->offset, start);
  EXPECT_GT(log->find(name_of(1), true)->offset, (16ULL << 40) - 2 * geometry.region_bytes);
  expect_bytes(1);
  expect_bytes(2, ClassId(1), 3);
  reopen();
  expect_bytes(1);
  ASSERT_TRUE(log->close(kLong).ok());
  reopen();
  EXPECT_GE(log->find(name_of(1), true)->offset, start);
  expect_bytes(2, ClassId(1), 3);
}

}  // namespace
}  // namespace tiercel
