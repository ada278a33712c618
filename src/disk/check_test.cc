#include "disk/check.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "disk/test_log.h"

namespace tiercel {
namespace {

class CheckTest : public LogTest {
 protected:
  CheckTest() : LogTest(8 * kMiB) {}
  void write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) {
      ASSERT_EQ(append(i, ClassId(static_cast<std::uint16_t>(i % 2)), 2).verdict, DiskVerdict::kAccepted);
      poll_all();
    }
    ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  }
  std::uint64_t offset_of(std::uint64_t number) const {
    return log->find(name_of(number, ClassId(static_cast<std::uint16_t>(number % 2))), true)->offset;
  }
  // Whatever it finds, it writes nothing.
  DiskCheckReport check(const DiskCheckOptions& asked = {}) {
    const std::size_t before = drive->done_so_far.size();
    auto report = check_disk(*drive, clock, asked);
    for (std::size_t i = before; i < drive->done_so_far.size(); ++i)
      EXPECT_EQ(drive->done_so_far[i].work, BlockWork::kRead);
    EXPECT_TRUE(report.has_value()) << report.error().to_string();
    return report.value_or(DiskCheckReport{});
  }
};

TEST_F(CheckTest, ALogInOrderIsReportedAsItIs) {
  open();
  write(1, 100);
  ASSERT_TRUE(log->close(kLong).ok());
  log.reset();
  std::uint64_t regions = 0;
  DiskCheckOptions asked;
  asked.progress = [&](std::uint64_t done, std::uint64_t) { regions = done; };
  const DiskCheckReport report = check(asked);
  EXPECT_TRUE(report.in_order());
  EXPECT_TRUE(report.closed);
  EXPECT_EQ(report.class_sets, 100U);
  EXPECT_EQ(report.verified, 100U);
  EXPECT_EQ(report.headers_only, 0U);
  EXPECT_EQ(report.damaged, 0U);
  EXPECT_EQ(report.from_image, 100U);
  ASSERT_EQ(report.spaces.size(), 1U);
  EXPECT_EQ(report.spaces[0].name.text, name.text);
  EXPECT_EQ(report.spaces[0].class_sets, 100U);
  EXPECT_EQ(report.spaces[0].bytes, 50 * (16384U + 8192U)) << "two shards of two blocks, and of one";
  EXPECT_EQ(report.bytes, report.verified_bytes);
  EXPECT_EQ(report.uuid.size(), 32U);
  EXPECT_EQ(regions, report.geometry.regions);
  EXPECT_GT(report.regions_with_footer, 0U);
  ASSERT_TRUE(report.image.has_value());
  EXPECT_TRUE(report.images[*report.image].there);
}

TEST_F(CheckTest, ADamagedRecordIsNamedWithItsPlace) {
  open();
  write(1, 60);
  const std::uint64_t first = offset_of(2), second = offset_of(41);
  drive->damage(first + 5000);
  drive->damage(second + 4096 + 500);  // of the second shard
  const DiskCheckReport report = check();
  EXPECT_FALSE(report.in_order());
  EXPECT_EQ(report.damaged, 2U);
  EXPECT_EQ(report.damaged_found, 2U);
  EXPECT_EQ(report.verified, 58U);
  ASSERT_EQ(report.damages.size(), 2U);
  const auto named = [&](std::uint64_t offset, std::uint64_t number, std::string_view word) {
    return std::any_of(report.damages.begin(), report.damages.end(), [&](const DiskDamage& damage) {
      return damage.offset == offset && damage.name.key == test_key(number) && damage.found &&
             damage.why.find(word) != std::string::npos;
    });
  };
  EXPECT_TRUE(named(first, 2, "shard 0"));
  EXPECT_TRUE(named(second, 41, "shard 1"));
  DiskCheckOptions asked;
  asked.damages_max = 1;
  EXPECT_EQ(check(asked).damages.size(), 1U);
  asked.verify_records = false;
  const DiskCheckReport quick = check(asked);
  EXPECT_EQ(quick.damaged, 0U) << "records were not looked at";
  EXPECT_FALSE(quick.records_read);
  EXPECT_TRUE(report.records_read);
}

TEST_F(CheckTest, WhatIsRemovedOrEvictedDoesNotCount) {
  open();
  write(1, 10);
  ASSERT_TRUE(log->settle(*log->remove(space, test_key(3)), kLong).ok());
  const DiskCheckReport report = check();
  EXPECT_EQ(report.class_sets, 9U);
  EXPECT_EQ(report.removals, 1U);
  EXPECT_EQ(report.verified, 10U) << "its bytes are still there";
  EXPECT_TRUE(report.in_order());
}

TEST_F(CheckTest, DamageOfItsOwnStructuresIsTold) {
  options.checkpoint_regions = 1;
  open();
  write(1, 100);
  ASSERT_TRUE(log->close(kLong).ok());
  const DiskGeometry g = log->geometry();
  log.reset();
  const DiskCheckReport before = check();
  ASSERT_TRUE(before.images[0].there && before.images[1].there);
  drive->damage(g.image_offset[*before.image] + 50);
  drive->damage(g.regions_offset + g.region_bytes - 30);  // the first region's footer
  const DiskCheckReport report = check();
  EXPECT_FALSE(report.images[*before.image].damage.empty());
  EXPECT_NE(report.image, before.image) << "an opening would take the other";
  EXPECT_EQ(report.class_sets, 100U);
  EXPECT_EQ(report.regions_without_footer, before.regions_without_footer + 1);
  EXPECT_FALSE(report.notes.empty());
  drive->damage(100);
  const DiskCheckReport torn = check();
  EXPECT_TRUE(torn.in_order()) << "the other superblock holds, as after a power failure";
  EXPECT_FALSE(torn.superblocks[0].damage.empty());
  EXPECT_TRUE(torn.superblocks[1].damage.empty());
  drive->damage(kBlockBytes + 100);
  EXPECT_FALSE(check_disk(*drive, clock, {}).has_value());
}

TEST_F(CheckTest, ASuperblockIsMissedFromTheSecondOneOn) {
  open();
  log.reset();
  const DiskCheckReport first = check();
  EXPECT_EQ(std::pair(first.superblocks[0].there, first.superblocks[1].there), std::pair(false, true));
  EXPECT_TRUE(first.superblocks[0].damage.empty()) << "there was only one";
  open();
  log.reset();
  const std::vector<std::byte> blank(kBlockBytes);
  drive->overwrite(kBlockBytes, blank);
  const DiskCheckReport second = check();
  EXPECT_TRUE(second.superblocks[0].damage.empty());
  EXPECT_EQ(second.superblocks[1].damage, "it is blank");
  EXPECT_TRUE(second.in_order());
}

TEST_F(CheckTest, OnlyARegionThatIsNotTheNewestMissesItsFooter) {
  open();
  write(1, 60);
  const DiskGeometry g = log->geometry();
  log.reset();
  const DiskCheckReport before = check();
  ASSERT_GT(before.regions_with_footer, 0U);
  ASSERT_EQ(before.notes.size(), 1U);
  EXPECT_NE(before.notes[0].find("still being written"), std::string::npos) << before.notes[0];
  drive->damage(g.regions_offset + g.region_bytes - 30);
  const DiskCheckReport after = check();
  ASSERT_EQ(after.notes.size(), 2U);
  EXPECT_NE(after.notes[0].find("region 0: no footer (region footer: "), std::string::npos) << after.notes[0];
}

// What an opening left out stays out, and is no damage: nobody was told that it is there.
TEST_F(CheckTest, WhatAnOpeningLeftOutIsNoDamage) {
  open();
  write(1, 10);
  const std::uint64_t last = offset_of(10);
  log.reset();
  drive->damage(last + 5000);
  open();
  write(11, 12);
  log.reset();
  const DiskCheckReport report = check();
  EXPECT_TRUE(report.in_order());
  EXPECT_EQ(report.damaged, 0U) << (report.damages.empty() ? "" : report.damages[0].why);
  EXPECT_EQ(report.class_sets, 11U);
}

TEST_F(CheckTest, ABlankDriveHasNoLog) {
  const auto report = check_disk(*drive, clock, {});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tiercel
