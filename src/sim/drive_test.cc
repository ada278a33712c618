#include "sim/drive.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace tiercel::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint64_t kBlocks = 64;

class DriveTest : public ::testing::Test {
 protected:
  void make(DriveNature nature, std::uint64_t seed = 1) {
    drive_ = std::make_unique<SimDrive>(DriveContent{std::vector<std::byte>(kBlocks * kBlockBytes), {}},
                                        clock_, nature, seed);
  }
  void submit(std::uint64_t id, BlockWork work, std::uint64_t block, std::vector<std::byte>* bytes) {
    BlockRequest request;
    request.id = id;
    request.work = work;
    request.offset = block * kBlockBytes;
    if (bytes != nullptr) request.pieces = {{bytes->data(), bytes->size()}};
    ASSERT_TRUE(drive_->submit(std::move(request)));
  }
  std::vector<BlockDone> all() {
    std::vector<BlockDone> done;
    while (drive_->under_way() != 0) {
      drive_->wait(seconds(100));
      for (BlockDone& each : drive_->drain()) done.push_back(std::move(each));
    }
    return done;
  }
  // What one block of the next drive has of a write of 1s over 0s: how many 1s.
  static std::size_t ones(const std::vector<std::byte>& content, std::uint64_t block) {
    const auto at = content.begin() + static_cast<std::ptrdiff_t>(block * kBlockBytes);
    return static_cast<std::size_t>(
        std::count(at, at + static_cast<std::ptrdiff_t>(kBlockBytes), std::byte{1}));
  }

  ManualClock clock_;
  std::unique_ptr<SimDrive> drive_;
  std::vector<std::byte> ones_ = std::vector<std::byte>(kBlockBytes, std::byte{1});
};

TEST_F(DriveTest, OperationsEndOnceAndInAnyOrder) {
  make({.late = 0.5});
  std::vector<std::vector<std::byte>> blocks(20, ones_);
  for (std::uint64_t i = 0; i < 20; ++i) submit(i, BlockWork::kWrite, i, &blocks[i]);
  const auto done = all();
  std::vector<std::uint64_t> ids;
  ids.reserve(done.size());
  for (const BlockDone& each : done) ids.push_back(each.id);
  EXPECT_FALSE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), 20U);
  std::vector<std::byte> back(kBlockBytes);
  submit(99, BlockWork::kRead, 7, &back);
  EXPECT_EQ(all().size(), 1U);
  EXPECT_EQ(back, ones_);
  EXPECT_FALSE(drive_->misuse().has_value());
}

TEST_F(DriveTest, APowerFailureKeepsWhatWasFlushedAndAnyPartOfTheRest) {
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 1; seed < 200; ++seed) {
    make({}, seed);
    submit(1, BlockWork::kWrite, 3, &ones_);
    all();
    submit(2, BlockWork::kFlush, 0, nullptr);
    all();
    submit(3, BlockWork::kWrite, 5, &ones_);
    all();
    drive_->power_fails_in(0);
    const auto content = drive_->take_content().bytes;
    EXPECT_EQ(ones(content, 3), kBlockBytes);
    seen.insert(ones(content, 5));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(seen.contains(kBlockBytes));
  EXPECT_GT(seen.size(), 4U);
}

TEST_F(DriveTest, AFlushDoesNotCoverAWriteThatHadNotEndedWhenItWasSubmitted) {
  bool lost = false;
  for (std::uint64_t seed = 1; seed < 100; ++seed) {
    make({}, seed);
    submit(1, BlockWork::kWrite, 3, &ones_);
    submit(2, BlockWork::kFlush, 0, nullptr);
    all();
    drive_->power_fails_in(0);
    lost = lost || ones(drive_->take_content().bytes, 3) == 0;
  }
  EXPECT_TRUE(lost);
}

TEST_F(DriveTest, ADyingProcessLosesNothingThatEnded) {
  make({});
  submit(1, BlockWork::kWrite, 3, &ones_);
  all();
  drive_->process_dies();
  EXPECT_EQ(ones(drive_->take_content().bytes, 3), kBlockBytes);
}

TEST_F(DriveTest, WhatADeadProcessDidNotFlushIsLostWithThePowerOfTheNext) {
  std::set<std::size_t> seen;
  for (std::uint64_t seed = 1; seed < 100; ++seed) {
    make({}, seed);
    submit(1, BlockWork::kWrite, 3, &ones_);
    all();
    drive_->process_dies();
    for (const bool flushed : {false, true}) {
      SimDrive next(drive_->take_content(), clock_, {}, seed);
      drive_ = std::make_unique<SimDrive>(next.take_content(), clock_, DriveNature{}, seed);
      if (flushed) {
        submit(2, BlockWork::kFlush, 0, nullptr);
        all();
      }
    }
    drive_->power_fails_in(0);
    EXPECT_EQ(ones(drive_->take_content().bytes, 3), kBlockBytes) << "behind a flush of the next process";
    make({}, seed);
    submit(1, BlockWork::kWrite, 3, &ones_);
    all();
    drive_->process_dies();
    SimDrive next(drive_->take_content(), clock_, {}, seed);
    next.power_fails_in(0);
    seen.insert(ones(next.take_content().bytes, 3));
  }
  EXPECT_TRUE(seen.contains(0));
  EXPECT_TRUE(seen.contains(kBlockBytes));
}

TEST_F(DriveTest, EverythingIsUnavailableOnceThePowerHasFailed) {
  make({});
  submit(1, BlockWork::kWrite, 3, &ones_);
  submit(2, BlockWork::kWrite, 4, &ones_);
  drive_->power_fails_in(1);
  const auto done = all();
  ASSERT_EQ(done.size(), 2U);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_EQ(done[1].status.code, Code::kUnavailable);
  submit(3, BlockWork::kFlush, 0, nullptr);
  EXPECT_EQ(all()[0].status.code, Code::kUnavailable);
}

TEST_F(DriveTest, ADriveThatIsGoneComesBack) {
  make({});
  drive_->trouble(SimDrive::Trouble::kGone, clock_.now() + seconds(1));
  submit(1, BlockWork::kWrite, 3, &ones_);
  EXPECT_EQ(all()[0].status.code, Code::kUnavailable);
  clock_.advance(seconds(2));
  submit(2, BlockWork::kWrite, 3, &ones_);
  EXPECT_TRUE(all()[0].status.ok());
}

TEST_F(DriveTest, AStallEndsWithTheTrouble) {
  make({.late = 0});
  drive_->trouble(SimDrive::Trouble::kStall, clock_.now() + seconds(5));
  submit(1, BlockWork::kWrite, 3, &ones_);
  drive_->wait(seconds(1));
  EXPECT_TRUE(drive_->drain().empty());
  drive_->calm();
  drive_->wait(milliseconds(10));
  EXPECT_EQ(drive_->drain().size(), 1U);
}

TEST_F(DriveTest, MemoryThatChangesUnderAWriteIsFound) {
  make({});
  std::vector<std::byte> bytes = ones_;
  submit(1, BlockWork::kWrite, 3, &bytes);
  bytes[17] = std::byte{0};
  all();
  EXPECT_TRUE(drive_->misuse().has_value());
}

TEST_F(DriveTest, WritesThatOverlapAreFound) {
  make({});
  submit(1, BlockWork::kWrite, 3, &ones_);
  submit(2, BlockWork::kWrite, 3, &ones_);
  all();
  EXPECT_TRUE(drive_->misuse().has_value());
}

TEST_F(DriveTest, WhatIsOutOfBoundsIsFound) {
  make({});
  submit(1, BlockWork::kWrite, kBlocks, &ones_);
  all();
  EXPECT_TRUE(drive_->misuse().has_value());
}

TEST_F(DriveTest, ALyingDriveSaysThatItWroteWhatItDidNot) {
  make({.lost = 1.0});
  submit(1, BlockWork::kWrite, 3, &ones_);
  EXPECT_TRUE(all()[0].status.ok());
  drive_->process_dies();
  EXPECT_EQ(ones(drive_->take_content().bytes, 3), 0U);
}

TEST_F(DriveTest, ItTakesNoMoreOperationsThanItsDepth) {
  make({.depth = 1});
  submit(1, BlockWork::kWrite, 3, &ones_);
  BlockRequest flush;
  flush.work = BlockWork::kFlush;
  EXPECT_FALSE(drive_->submit(flush));
  all();
  EXPECT_TRUE(drive_->submit(flush));
  all();
}

}  // namespace
}  // namespace tiercel::sim
