// Opening: images, footers, the end of the log, and what is wrong with each of them.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "disk/format.h"
#include "disk/test_log.h"

namespace tiercel {
namespace {

class RecoveryTest : public LogTest {
 protected:
  // That with the highest life.
  std::optional<disk::RegionHeader> newest_region() const {
    const DiskGeometry g = superblock().geometry;
    std::optional<disk::RegionHeader> newest;
    for (std::uint64_t region = 0; region < g.regions; ++region) {
      const auto header =
          disk::parse_region_header(drive->bytes(g.regions_offset + region * g.region_bytes, kBlockBytes));
      const std::uint64_t first = g.regions_offset + region * g.region_bytes + kBlockBytes;
      const bool used = disk::parse_segment_head(drive->bytes(first, kBlockBytes)).has_value();
      if (header && used && (!newest || header->life > newest->life)) newest = *header;
    }
    return newest;
  }
  RecoveryTest() : LogTest(8 * kMiB) {}
  void write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) {
      ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted) << i;
      poll_all();
    }
    ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
    take_events();
  }
  void expect_all(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) {
      ASSERT_TRUE(found(i)) << i;
      expect_bytes(i);
    }
  }
  disk::Superblock superblock() const {
    std::optional<disk::Superblock> best;
    for (const std::uint64_t slot : {0U, 1U}) {
      const auto parsed = disk::parse_superblock(drive->bytes(slot * kBlockBytes, kBlockBytes));
      if (parsed && (!best || parsed->sequence > best->sequence)) best = *parsed;
    }
    return *best;
  }
};

TEST_F(RecoveryTest, AClosedLogIsOpenedFromItsImage) {
  open();
  write(1, 100);
  ASSERT_TRUE(log->close(kLong).ok());
  EXPECT_TRUE(superblock().closed);
  EXPECT_EQ(append(101).verdict, DiskVerdict::kTierDown) << "closed";
  reopen();
  const DiskStats& s = log->stats();
  EXPECT_EQ(s.recovered_from_image, 100U);
  EXPECT_EQ(s.recovered_from_footers, 0U);
  EXPECT_EQ(s.recovered_class_sets, 100U);
  EXPECT_FALSE(superblock().closed) << "open again";
  expect_all(1, 100);
  write(101, 110);
  reopen();
  expect_all(1, 110);
}

TEST_F(RecoveryTest, WithoutAnImageFootersAndTheEndTellAll) {
  options.checkpoint_regions = 1000;
  open();
  write(1, 100);
  reopen();
  const DiskStats& s = log->stats();
  EXPECT_EQ(s.recovered_from_image, 0U);
  EXPECT_GT(s.recovered_from_footers, 50U);
  EXPECT_GT(s.recovered_from_tail, 0U);
  EXPECT_EQ(s.recovered_class_sets, 100U);
  expect_all(1, 100);
}

TEST_F(RecoveryTest, OpeningReadsNoRecordsOfWhatAnImageHas) {
  options.checkpoint_regions = 2;
  open();
  write(1, 200);
  ASSERT_GT(log->stats().checkpoints, 1U);
  reopen();
  EXPECT_EQ(log->stats().recovered_class_sets, 200U);
  const DiskGeometry g = log->geometry();
  // An image, two blocks of each region, what three regions' footers or directories take; no more.
  EXPECT_LT(log->stats().recovery_read_bytes,
            kMiB + g.image_bytes + g.regions * 2 * kBlockBytes + 4 * g.region_bytes / 2);
}

TEST_F(RecoveryTest, ADamagedImageIsReplacedByTheOneBeforeItAndFooters) {
  options.checkpoint_regions = 1;
  open();
  write(1, 120);
  const disk::Superblock s = superblock();
  ASSERT_TRUE(s.image.has_value());
  ASSERT_GE(s.image_sequence, 2U);
  drive->damage(s.geometry.image_offset[*s.image] + kBlockBytes + 100);
  drive->damage(s.geometry.image_offset[*s.image] + 100);
  reopen();
  EXPECT_EQ(log->stats().images_damaged, 1U);
  EXPECT_GT(log->stats().recovered_from_image, 0U);
  expect_all(1, 120);
}

TEST_F(RecoveryTest, WithBothImagesDamagedFootersTellAll) {
  options.checkpoint_regions = 1;
  open();
  write(1, 120);
  const disk::Superblock s = superblock();
  for (const std::uint64_t offset : s.geometry.image_offset) drive->damage(offset + 100);
  reopen();
  EXPECT_EQ(log->stats().images_damaged, 2U);
  EXPECT_EQ(log->stats().recovered_from_image, 0U);
  expect_all(1, 120);
  ASSERT_TRUE(log->close(kLong).ok());
  reopen();
  EXPECT_EQ(log->stats().recovered_from_image, 120U);
}

TEST_F(RecoveryTest, AnImageIsCopiedWhileTheLogGoesOn) {
  options.checkpoint_regions = 1;
  open();
  write(1, 10);
  const DiskGeometry g = log->geometry();
  const auto is_image = [&](const BlockRequest& r) {
    return r.work == BlockWork::kWrite && r.offset >= g.image_offset[0] && r.offset < g.regions_offset;
  };
  int let = 1;  // the first of its writes goes, the others wait
  drive->held = [&](const BlockRequest& r) { return is_image(r) && --let < 0; };
  for (std::uint64_t i = 11; i <= 60; ++i) {
    append(i);
    log->poll();
    take_events();
  }
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  EXPECT_EQ(log->stats().checkpoints, 0U);
  drive->held = {};
  poll_all();
  EXPECT_GE(log->stats().checkpoints, 1U);
  EXPECT_GE(count(DiskEvent::Kind::kCheckpoint), 1U);
  reopen();
  expect_all(1, 60);
}

// What is written behind a segment that is still under way does not count yet: an image that named it would
// have nothing of what it took the place of.
TEST_F(RecoveryTest, AnImageNamesNothingBehindAGap) {
  options.checkpoint_regions = 1;
  options.segment_bytes = 2 * kBlockBytes;  // one class-set each
  open();
  write(1, 10);
  ASSERT_TRUE(log->remove(space, test_key(9)));  // so that the others are written again
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  const DiskGeometry g = log->geometry();
  std::optional<std::uint64_t> gap;  // the next segment
  drive->held = [&](const BlockRequest& r) {
    if (!gap && r.work == BlockWork::kWrite && r.offset >= g.regions_offset) gap = r.offset;
    return r.work == BlockWork::kWrite && r.offset == gap;
  };
  const std::uint64_t images = log->stats().checkpoints;
  append(11);
  EXPECT_EQ(append(1, ClassId(0), 1, 2).verdict, DiskVerdict::kAccepted);
  for (std::uint64_t i = 12; i <= 60; ++i) {
    append(i);
    poll_all();
  }
  ASSERT_TRUE(gap);
  EXPECT_GT(log->find(name_of(1), true)->offset, *gap);
  EXPECT_EQ(log->stats().checkpoints, images) << "it waits";
  for (int i = 0; i < 20; ++i) log->poll();
  EXPECT_GT(log->next_due(), clock.now()) << "and does not ask to be polled for that";
  lose_power();
  expect_all(1, 8);
  EXPECT_FALSE(found(12));
  drive->held = {};
  write(61, 100);
  EXPECT_GE(log->stats().checkpoints, 1U);
}

TEST_F(RecoveryTest, WhoOpensTheLogMeanwhileIsNoticed) {
  open();
  write(1, 10);
  EXPECT_TRUE(log->still_ours(*drive).ok());
  DiskLogOptions look = options;
  look.read_only = true;
  ASSERT_TRUE(DiskLog::open(look, *drive, clock, test_digest(1)).has_value());
  EXPECT_TRUE(log->still_ours(*drive).ok()) << "who only looks changes nothing";
  ASSERT_TRUE(DiskLog::open(options, *drive, clock, test_digest(1)).has_value());
  EXPECT_EQ(log->still_ours(*drive).code, Code::kFailedPrecondition);
}

TEST_F(RecoveryTest, ADamagedSuperblockIsReplacedByTheOther) {
  open();
  write(1, 10);
  ASSERT_TRUE(log->close(kLong).ok());
  drive->damage((superblock().sequence & 1) * kBlockBytes + 200);
  reopen();
  expect_all(1, 10);
  write(11, 20);
  reopen();
  expect_all(1, 20);
}

TEST_F(RecoveryTest, EachOpeningGoesOnWhereTheLastOneEnded) {
  open();
  for (std::uint64_t opening = 0; opening < 12; ++opening) {
    write(opening * 5 + 1, opening * 5 + 5);
    if (opening % 3 == 2) {
      ASSERT_TRUE(log->close(kLong).ok());
    }
    if (opening % 3 == 1)
      lose_power();
    else
      reopen();
    expect_all(1, opening * 5 + 5);
  }
}

TEST_F(RecoveryTest, ShardsOfTwoComputationsAreNoClassSet) {
  open();
  write(1, 1);
  auto set = test_set(space, name, 2, ClassId(0), 2);
  // The second shard is of another computation, whole in itself.
  auto header = *parse_header(set->records[1]);
  header.label.generation = 8;
  ClassForm form;
  form.id = ClassId(0);
  form.layers.resize(test_runs()[0].size());
  encode_header(header, MutableByteView(set->records[1]).first(header_bytes(form)));
  const DiskAnswer answer = log->append(set->entry, DiskOffer::kComputed);
  ASSERT_EQ(answer.verdict, DiskVerdict::kAccepted);
  memory[answer.append] = std::move(set);
  poll_all();
  reopen();
  EXPECT_TRUE(found(1));
  EXPECT_FALSE(found(2));
  EXPECT_EQ(log->stats().tail_segments_refused, 1U);
}

// A mark is of its own opening: what an earlier one left and this one did not take stays out.
TEST_F(RecoveryTest, TheMarkOfALaterOpeningVouchesForNothingThatItDidNotTake) {
  open();
  write(1, 1);
  append(2);
  poll_all();
  const std::uint64_t torn = log->find(name_of(2), true)->offset;
  drive->damage(torn + 5000);
  reopen();
  ASSERT_FALSE(found(2));
  append(3);
  poll_all();
  reopen();
  EXPECT_TRUE(found(1));
  EXPECT_FALSE(found(2)) << "it is not whole";
  EXPECT_TRUE(found(3));
  drive->damage(torn + 5000);  // whole again
  reopen();
  EXPECT_TRUE(found(1));
  EXPECT_FALSE(found(2)) << "an opening left it out";
  EXPECT_TRUE(found(3));
}

// The same where the log does not go on: the opening writes the footer of an older region, of what counts.
TEST_F(RecoveryTest, WhatAnOpeningLeftOutOfAnOlderRegionStaysOut) {
  options.checkpoint_regions = 1000;
  options.flush_after = std::chrono::hours(1);
  open();
  write(1, 2);  // and the next region is ready
  drive->held = [](const BlockRequest& r) { return r.work == BlockWork::kFlush; };
  std::uint64_t last = 2;
  for (; append(last + 1).verdict == DiskVerdict::kAccepted; ++last) poll_all();  // until a region is wanting
  const DiskGeometry g = log->geometry();
  const auto region_of = [&](std::uint64_t i) {
    return (log->find(name_of(i), true)->offset - g.regions_offset) / g.region_bytes;
  };
  ASSERT_NE(region_of(5), region_of(last));
  const std::uint64_t torn = log->find(name_of(5), true)->offset;
  drive->held = {};
  log.reset();
  drive->damage(torn + 5000);
  open();
  EXPECT_EQ(log->stats().recovered_from_footers, 0U);
  EXPECT_FALSE(found(5)) << "it is not whole";
  drive->damage(torn + 5000);  // whole again
  reopen();
  EXPECT_GT(log->stats().recovered_from_footers, 0U);
  EXPECT_FALSE(found(5)) << "an opening left it out";
  expect_all(1, 4);
  expect_all(6, last);
}

// A process that died may have flushed nothing of what the next one finds: that is behind a flush before a
// mark, a footer or the next superblock says so.
TEST_F(RecoveryTest, AnOpeningFlushesWhatItFoundBeforeItWrites) {
  open();
  append(1);
  poll_all();
  log.reset();
  drive->done_so_far.clear();
  open();
  ASSERT_TRUE(found(1));
  const auto first = std::find_if(drive->done_so_far.begin(), drive->done_so_far.end(),
                                  [](const auto& seen) { return seen.work != BlockWork::kRead; });
  ASSERT_NE(first, drive->done_so_far.end());
  EXPECT_EQ(first->work, BlockWork::kFlush);
}

// What a region held and does not count is not forgotten with it: the log goes on behind a mark.
TEST_F(RecoveryTest, ARegionOfWhichNothingCountsGoesOnBehindAMark) {
  open();
  write(1, 1);
  ASSERT_TRUE(log->close(kLong).ok());
  reopen();
  const std::uint64_t blocks = log->geometry().region_bytes / kBlockBytes;
  for (std::uint64_t i = 2; i < blocks; ++i) {  // until another region is begun
    append(i);
    poll_all();
  }
  log.reset();
  const disk::RegionHeader newest = *newest_region();
  const DiskGeometry g = superblock().geometry;
  const std::uint64_t front = g.regions_offset + newest.region * g.region_bytes + kBlockBytes;
  const auto directory = disk::parse_directory(drive->bytes(front, g.region_bytes / 2));
  ASSERT_TRUE(directory.has_value());
  // Its first segment is not whole, and what lies behind it is void.
  for (const disk::Descriptor& d : directory->entries)
    drive->damage(front + (d.block - 1) * kBlockBytes + 100);
  drive->overwrite(front + directory->head.blocks * kBlockBytes, std::vector<std::byte>(kBlockBytes));
  open();
  const auto mark =
      disk::parse_directory(drive->bytes(front + directory->head.blocks * kBlockBytes, kBlockBytes));
  ASSERT_TRUE(mark.has_value());
  EXPECT_EQ(mark->entries.size(), directory->entries.size());
  for (const disk::Descriptor& d : mark->entries) EXPECT_EQ(d.kind, disk::EntryKind::kLeftOut);
  append(1000);
  poll_all();
  reopen();
  EXPECT_TRUE(found(1000));
}

TEST_F(RecoveryTest, AnImageMayHaveTheHighestNumberOfANamespace) {
  open();
  write(1, 3);
  ASSERT_TRUE(log->close(kLong).ok());
  log.reset();
  const disk::Superblock s = superblock();
  const std::uint64_t at = s.geometry.image_offset[*s.image];
  const disk::ImageLayout layout = disk::image_layout(s.geometry.index_buckets, s.geometry.catalogue_bytes);
  disk::ImageHeader header = *disk::parse_image_header(drive->bytes(at, kBlockBytes));
  std::vector<std::byte> names = drive->bytes(at + layout.catalogue_at, header.catalogue_used);
  store_le(&names[16], UINT32_MAX);  // the one namespace's number
  drive->overwrite(at + layout.catalogue_at, names);
  std::vector<std::byte> checksums = drive->bytes(at + layout.checksums_at, layout.checksums_bytes);
  store_le(&checksums[layout.chunks * 4], crc32c(names));
  drive->overwrite(at + layout.checksums_at, checksums);
  header.checksums_crc = crc32c(checksums);
  drive->overwrite(at, disk::encode(header));
  const auto opened = DiskLog::open(options, *drive, clock, test_digest(1));
  ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
  EXPECT_EQ((*opened)->stats().recovered_from_image, 0U) << "of a namespace that it does not name";
  ASSERT_EQ((*opened)->spaces().size(), 1U);
  EXPECT_FALSE((*opened)->open_space(test_space(5)).has_value()) << "no number is left";
}

TEST_F(RecoveryTest, WhenItsNumbersAreUsedUpALogIsReadAndNotWritten) {
  open();
  write(1, 3);
  log.reset();
  const DiskGeometry g = superblock().geometry;
  disk::RegionHeader header{superblock().uuid, 5, 1000, disk::kAtMax - 1000};
  drive->overwrite(g.regions_offset + 5 * g.region_bytes, disk::encode(header));
  const auto refused = DiskLog::open(options, *drive, clock, test_digest(1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  options.read_only = true;
  open();
  EXPECT_EQ(log->spaces().size(), 1U);
  EXPECT_EQ(log->durable_at(), 0U) << "it flushed nothing";
}

// A class-set whose namespace nobody can name is not that of another one that gets its number.
TEST_F(RecoveryTest, TheNumberOfALostNameIsNotGivenAway) {
  open();
  append(1);
  poll_all();
  const std::uint64_t first = log->find(name_of(1), true)->offset;
  drive->damage(first - kBlockBytes + 10);  // its name stands before it
  name = test_space(2);
  reopen();
  EXPECT_FALSE(found(1));
  EXPECT_EQ(space, DiskSpaceId(2));
  drive->damage(first - kBlockBytes + 10);  // whole again
  write(2, 2);
  reopen();
  EXPECT_FALSE(found(1));
  EXPECT_TRUE(found(2));
  EXPECT_EQ(log->spaces().size(), 1U);
}

// A whole record of the same name under a new directory, where the power failed between the two: what was
// there before may be dead.
TEST_F(RecoveryTest, AnEarlierRecordOfTheSameNameUnderANewDirectoryDoesNotCount) {
  open();
  write(1, 1);
  append(2, ClassId(0), 1, 1);
  poll_all();
  const std::uint64_t place = log->find(name_of(2), true)->offset;
  const std::vector<std::byte> old = drive->bytes(place, 2 * kBlockBytes);
  for (const bool torn : {false, true}) {
    log.reset();
    memory.clear();
    drive = std::make_unique<TestBlockDevice>(8 * kMiB, clock);
    open();
    write(1, 1);
    append(2, ClassId(0), 1, 2);
    poll_all();
    ASSERT_EQ(log->find(name_of(2), true)->offset, place);
    if (torn) drive->overwrite(place, old);
    reopen();
    EXPECT_TRUE(found(1));
    EXPECT_EQ(found(2), !torn);
  }
}

TEST_F(RecoveryTest, AReadErrorWhileOpeningIsNoDamage) {
  open();
  write(1, 30);
  log.reset();
  const std::uint64_t before = drive->written_bytes;
  int failures = 3;
  drive->failure = [&](const BlockRequest& r) -> Status {
    if (r.work == BlockWork::kRead && failures-- > 0) return {Code::kIoError, "injected"};
    return {};
  };
  open();
  expect_all(1, 30);
  log.reset();
  const std::uint64_t after = drive->written_bytes;
  EXPECT_GT(after, before);
  drive->failure = [&](const BlockRequest& r) -> Status {
    const bool region = r.work == BlockWork::kRead && r.offset >= superblock().geometry.regions_offset;
    return region ? Status{Code::kIoError, "injected"} : Status{};
  };
  const auto failed = DiskLog::open(options, *drive, clock, test_digest(1));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kIoError);
  EXPECT_EQ(drive->written_bytes, after) << "nothing was changed";
  drive->failure = {};
  open();
  expect_all(1, 30);
}

TEST_F(RecoveryTest, ALogOfAnotherVersionIsLeftAlone) {
  open();
  write(1, 3);
  log.reset();
  for (const std::uint64_t slot : {0U, 1U}) {
    std::vector<std::byte> block = drive->bytes(slot * kBlockBytes, kBlockBytes);
    block[8] = std::byte{99};
    drive->overwrite(slot * kBlockBytes, block);
  }
  const std::uint64_t before = drive->written_bytes;
  const auto opened = DiskLog::open(options, *drive, clock, test_digest(1));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kFailedPrecondition);
  EXPECT_NE(opened.error().message.find("99"), std::string::npos) << opened.error().message;
  EXPECT_EQ(drive->written_bytes, before);
}

TEST_F(RecoveryTest, ReadOnlyFindsAndReadsAndNeverWrites) {
  options.read_only = true;
  EXPECT_FALSE(DiskLog::open(options, *drive, clock, test_digest(1)).has_value()) << "there is none";
  options.read_only = false;
  open();
  write(1, 50);
  log.reset();
  const std::uint64_t before = drive->written_bytes;
  const std::size_t operations = drive->done_so_far.size();
  options.read_only = true;
  open();
  EXPECT_EQ(log->open_space(name), space);
  EXPECT_EQ(log->open_space(test_space(9)).error().code, Code::kUnavailable);
  EXPECT_EQ(append(60).verdict, DiskVerdict::kTierDown);
  expect_all(1, 50);
  clock.advance(kLong);
  poll_all();
  EXPECT_TRUE(log->close(kLong).ok());
  log.reset();
  EXPECT_EQ(drive->written_bytes, before);
  for (std::size_t i = operations; i < drive->done_so_far.size(); ++i)
    EXPECT_EQ(drive->done_so_far[i].work, BlockWork::kRead);
}

TEST_F(RecoveryTest, AFirstSuperblockThatWasTornIsALogThatWasNeverMade) {
  open();
  const std::vector<std::byte> whole = drive->bytes(kBlockBytes, kBlockBytes);
  log.reset();
  for (int part = 0; part < 3; ++part) {
    std::vector<std::byte> torn = whole;
    if (part == 0) std::fill(torn.begin() + 512, torn.end(), std::byte{0});
    if (part == 1) std::fill(torn.begin(), torn.end() - 512, std::byte{0});
    if (part == 2) torn[20] ^= std::byte{1};  // not torn by a power failure, but as far from a log
    drive = std::make_unique<TestBlockDevice>(8 * kMiB, clock);
    drive->overwrite(kBlockBytes, torn);
    reopen();
    write(1, 2);
    log.reset();
  }
  std::vector<std::byte> foreign(kBlockBytes);
  foreign[1080] = std::byte{0x53};
  drive = std::make_unique<TestBlockDevice>(8 * kMiB, clock);
  drive->overwrite(0, foreign);
  EXPECT_FALSE(DiskLog::open(options, *drive, clock, test_digest(1)).has_value());
  EXPECT_EQ(drive->written_bytes, 0U);
}

TEST_F(RecoveryTest, TheSizeItWasMadeForIsAskedFor) {
  open();
  log.reset();
  TestBlockDevice smaller(4 * kMiB, clock);
  smaller.overwrite(0, drive->bytes(0, kMiB));
  const auto opened = DiskLog::open(options, smaller, clock, test_digest(1));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tiercel
