// Block devices where the system does half of what it was asked for, or nothing; and past 4 GiB.
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "os/block_open.h"
#include "os/mapping.h"
#include "os/test_block_calls.h"
#include "os/test_block_run.h"
#include "os/test_machine.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;
constexpr std::uint64_t kPage = kMiB;

std::uint64_t whole_blocks(std::uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }

// Page `number` and what belongs there.
std::byte pattern(std::uint64_t number, std::uint64_t at) {
  return static_cast<std::byte>(mix64(number * 1'000'003 + at / 8));
}
void fill_page(std::uint64_t number, std::byte* to) {
  for (std::uint64_t i = 0; i < kPage; ++i) to[i] = pattern(number, i);
}
bool is_page(std::uint64_t number, const std::byte* from) {
  for (std::uint64_t i = 0; i < kPage; ++i)
    if (from[i] != pattern(number, i)) return false;
  return true;
}

struct EngineCase {
  BlockEngine engine;
  bool direct;
};

class BlockTrouble : public testing::TestWithParam<EngineCase> {
 protected:
  Result<OpenedBlockDevice> open(std::uint64_t bytes, BlockEngineOptions tuning = {}) {
    BlockDeviceOptions options;
    options.file = {
        .path = tree_.root() + "/log", .bytes = bytes, .create = true, .direct = GetParam().direct};
    options.file.sparse = sparse_;
    options.engine = GetParam().engine;
    options.tuning = std::move(tuning);
    return open_block_device(options, calls_);
  }
  void make(std::uint64_t bytes, BlockEngineOptions tuning = {}) {
    auto opened = open(bytes, std::move(tuning));
    if (!opened && opened.error().code == Code::kUnsupported)
      GTEST_SKIP() << "skipped: 1 case, " << opened.error().message;
    ASSERT_TRUE(opened) << opened.error().message;
    opened_ = std::move(*opened);
    device_ = opened_.device.get();
  }
  // Writes and reads all of [0, pages), several operations beside each other, in pieces that do not all fit
  // the drive; true bytes, or which operations failed.
  std::map<std::uint64_t, Status> write_pages(std::uint64_t first, std::uint64_t count) {
    memory_ = std::make_unique<AlignedBytes>(count * kPage);
    std::vector<BlockRequest> work;
    for (std::uint64_t i = 0; i < count; ++i) {
      fill_page(first + i, memory_->data() + i * kPage);
      work.push_back(
          {first + i,
           BlockWork::kWrite,
           false,
           (first + i) * kPage,
           {{memory_->data() + i * kPage, 5000}, {memory_->data() + i * kPage + 5000, kPage - 5000}}});
    }
    return run_to_the_end(*device_, work);
  }
  std::map<std::uint64_t, Status> read_pages(std::uint64_t first, std::uint64_t count) {
    memory_ = std::make_unique<AlignedBytes>(count * kPage + kBlockBytes);
    std::memset(memory_->data(), 0xEE, memory_->size());
    std::vector<BlockRequest> work;
    for (std::uint64_t i = 0; i < count; ++i)
      work.push_back({first + i,
                      BlockWork::kRead,
                      false,
                      (first + i) * kPage,
                      {{memory_->data() + 700 + i * kPage, 10'000},
                       {memory_->data() + 10'700 + i * kPage, kPage - 10'000}}});
    return run_to_the_end(*device_, work);
  }
  bool page_read(std::uint64_t index, std::uint64_t number) const {
    return is_page(number, memory_->data() + 700 + index * kPage);
  }
  void expect_round_trip(std::uint64_t pages) {
    expect_ok(write_pages(0, pages));
    expect_ok(read_pages(0, pages));
    for (std::uint64_t i = 0; i < pages; ++i) EXPECT_TRUE(page_read(i, i)) << i;
  }

  FileTree tree_;
  StagedBlockCalls calls_;
  bool sparse_ = false;
  std::unique_ptr<AlignedBytes> memory_;
  OpenedBlockDevice opened_;
  BlockDevice* device_ = nullptr;
};

INSTANTIATE_TEST_SUITE_P(
    Engines, BlockTrouble,
    testing::Values(EngineCase{BlockEngine::kUring, true}, EngineCase{BlockEngine::kUring, false},
                    EngineCase{BlockEngine::kThreads, true}, EngineCase{BlockEngine::kThreads, false}),
    [](const auto& each) {
      return std::string(each.param.engine == BlockEngine::kUring ? "uring" : "threads") +
             (each.param.direct ? "_direct" : "_cached");
    });

// Where a test can hold one attempt without holding all.
class BlockThreadsTrouble : public BlockTrouble {};
INSTANTIATE_TEST_SUITE_P(Threads, BlockThreadsTrouble,
                         testing::Values(EngineCase{BlockEngine::kThreads, true}));

// H06: half of the bytes, each time, of every attempt.
TEST_P(BlockTrouble, HalfResultsAreContinued) {
  std::atomic<int> attempts{0};
  calls_.allow = [](const BlockCall& call) {
    return call.length > kBlockBytes ? whole_blocks(call.length / 2) : call.length;
  };
  calls_.turn = [&](const BlockCall&, int result) { return ++attempts, result; };
  ASSERT_NO_FATAL_FAILURE(make(8 * kPage));
  expect_round_trip(8);
  EXPECT_GT(attempts.load(), 100);
}

// H06: all but one byte, of every attempt but small ones.
TEST_P(BlockTrouble, AllButOneByteIsContinued) {
  calls_.allow = [](const BlockCall& call) {
    return call.length > kBlockBytes ? whole_blocks(call.length - 1) : call.length;
  };
  calls_.turn = [](const BlockCall& call, int result) {
    const int all = static_cast<int>(call.length);
    return call.length > kBlockBytes && result == all - static_cast<int>(kBlockBytes) ? all - 1 : result;
  };
  ASSERT_NO_FATAL_FAILURE(make(8 * kPage));
  expect_round_trip(8);
}

// H06: nothing at all, two out of three times, and "try again".
TEST_P(BlockTrouble, EmptyResultsAreContinued) {
  std::atomic<std::uint64_t> count{0};
  calls_.allow = [&](const BlockCall& call) { return mix64(++count) % 3 != 0 ? 0 : call.length; };
  calls_.turn = [&](const BlockCall&, int result) {
    return result == 0 && count % 2 == 0 ? -EAGAIN : result;
  };
  ASSERT_NO_FATAL_FAILURE(make(8 * kPage));
  expect_round_trip(8);
}

TEST_P(BlockTrouble, NothingForEverIsAnErrorAndNotForEver) {
  std::atomic<bool> dead{false};
  calls_.allow = [&](const BlockCall& call) { return dead ? 0 : call.length; };
  ASSERT_NO_FATAL_FAILURE(make(2 * kPage));
  dead = true;
  for (const auto& [id, status] : write_pages(0, 2)) EXPECT_EQ(status.code, Code::kIoError) << status.message;
  dead = false;
  expect_round_trip(2);
}

// H06: one operation fails while others are in flight.
TEST_P(BlockTrouble, AFailureIsOfItsOperationAlone) {
  std::atomic<bool> failing{false};
  calls_.turn = [&](const BlockCall& call, int result) {
    return failing && call.offset / kPage == 5 && call.offset % kPage != 0 ? -EIO : result;
  };
  BlockEngineOptions tuning;
  tuning.attempt_bytes = 64U << 10;  // sixteen attempts each
  ASSERT_NO_FATAL_FAILURE(make(8 * kPage, std::move(tuning)));
  expect_round_trip(8);
  failing = true;
  for (const bool reading : {false, true}) {
    const auto ends = reading ? read_pages(0, 8) : write_pages(0, 8);
    for (const auto& [id, status] : ends)
      EXPECT_EQ(status.code, id == 5 ? Code::kIoError : Code::kOk) << id << ": " << status.message;
    EXPECT_NE(ends.at(5).message.find("log: "), std::string::npos) << ends.at(5).message;
  }
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(i == 5 || page_read(i, i)) << i;
  failing = false;
  expect_round_trip(8);
}

// H06: no room from some place on; what was written before is there, and the device goes on serving.
TEST_P(BlockTrouble, NoRoomIsToldAndTheRestStays) {
  calls_.turn = [](const BlockCall& call, int result) {
    return call.work == BlockWork::kWrite && call.offset >= 5 * kPage ? -ENOSPC : result;
  };
  ASSERT_NO_FATAL_FAILURE(make(8 * kPage));
  for (const auto& [id, status] : write_pages(0, 8)) {
    EXPECT_EQ(status.code, id >= 5 ? Code::kResourceExhausted : Code::kOk) << id;
    EXPECT_EQ(id >= 5, status.message.find("No space left") != std::string::npos) << status.message;
  }
  expect_ok(read_pages(0, 5));
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(page_read(i, i)) << i;
}

TEST_P(BlockTrouble, AGoneDriveIsUnavailable) {
  calls_.turn = [](const BlockCall&, int) { return -ENODEV; };
  ASSERT_NO_FATAL_FAILURE(make(2 * kPage));
  for (const auto& [id, status] : read_pages(0, 2)) EXPECT_EQ(status.code, Code::kUnavailable);
}

// What the page cache held when a flush failed may be lost: a later flush must not say that all is well.
TEST_P(BlockTrouble, AfterAFailedFlushOnlyADriveWithoutCacheIsBelieved) {
  std::atomic<bool> failing{true};
  calls_.turn = [&](const BlockCall& call, int result) {
    return call.work == BlockWork::kFlush && failing ? -EIO : result;
  };
  ASSERT_NO_FATAL_FAILURE(make(kPage));
  const BlockRequest flush{1, BlockWork::kFlush, false, 0, {}};
  EXPECT_EQ(run_to_the_end(*device_, {flush}).at(1).code, Code::kIoError);
  failing = false;
  EXPECT_EQ(run_to_the_end(*device_, {flush}).at(1).code, opened_.direct ? Code::kOk : Code::kIoError);
  expect_round_trip(1);
}

TEST_P(BlockTrouble, AFileMadeShorterIsAnErrorAndNotZeros) {
  ASSERT_NO_FATAL_FAILURE(make(4 * kPage));
  expect_round_trip(4);
  ASSERT_EQ(::truncate((tree_.root() + "/log").c_str(), 2 * kPage), 0);
  const auto ends = read_pages(0, 4);
  for (const auto& [id, status] : ends) EXPECT_EQ(status.code, id < 2 ? Code::kOk : Code::kIoError) << id;
}

// A read that the drive holds back: others pass it, nothing waits for it but its own end.
TEST_P(BlockThreadsTrouble, AHeldReadHoldsNothingElse) {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = true;
  calls_.turn = [&](const BlockCall& call, int result) {
    if (call.offset == 0 && call.work == BlockWork::kRead) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return !held; });
    }
    return result;
  };
  ASSERT_NO_FATAL_FAILURE(make(4 * kPage));
  expect_ok(write_pages(0, 4));
  const AlignedBytes memory(kBlockBytes);
  ASSERT_TRUE(device_->submit({99, BlockWork::kRead, false, 0, {{memory.data(), kBlockBytes}}}));
  std::size_t ended = 0;
  for (std::uint64_t i = 1; i < 4; ++i)
    ASSERT_TRUE(device_->submit({i, BlockWork::kRead, i == 2, i * kPage, {{nullptr, kPage}}}));
  while (ended < 3) {
    device_->wait(std::chrono::seconds(10));
    for (const BlockDone& done : device_->drain()) {
      EXPECT_NE(done.id, 99U);
      ++ended;
    }
  }
  {
    const std::lock_guard lock(mutex);
    held = false;
  }
  changed.notify_all();
  while (device_->drain().empty()) device_->wait(std::chrono::seconds(10));
}

TEST_P(BlockTrouble, TheEndsDescriptorIsReadableWhileAnEndWaits) {
  ASSERT_NO_FATAL_FAILURE(make(kPage));
  pollfd end{opened_.end_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 0), 0);
  ASSERT_TRUE(device_->submit({1, BlockWork::kFlush, false, 0, {}}));
  EXPECT_EQ(::poll(&end, 1, 10'000), 1);
  EXPECT_EQ(device_->drain().size(), 1U);
  EXPECT_EQ(::poll(&end, 1, 0), 0);
}

TEST_P(BlockTrouble, PastTheEndIsOurOwnMistake) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        auto opened = open(kPage);
        if (!opened) std::abort();
        opened->device->submit({1, BlockWork::kRead, false, kPage, {{nullptr, kBlockBytes}}});
      },
      "");
}

// Every rung below the best one works the same.
TEST_P(BlockTrouble, EveryRefusedFeatureIsDoneWithout) {
  for (const BlockFeature absent : {BlockFeature::kDirect, BlockFeature::kCalmRing,
                                    BlockFeature::kRegisterFile, BlockFeature::kRegisterMemory}) {
    calls_.absent = {absent};
    auto arena = Mapping::open({.bytes = 2 * kMiB});
    ASSERT_TRUE(arena);
    BlockEngineOptions tuning;
    tuning.memory = {arena->bytes()};
    ASSERT_NO_FATAL_FAILURE(make(4 * kPage, std::move(tuning)));
    const bool told = absent == BlockFeature::kDirect
                          ? GetParam().direct
                          : GetParam().engine == BlockEngine::kUring && absent != BlockFeature::kCalmRing;
    EXPECT_EQ(opened_.notes.size(), told ? 1U : 0U) << static_cast<int>(absent);
    expect_round_trip(4);
    opened_ = {};
  }
}

TEST_P(BlockTrouble, MemoryMadeKnownIsReadAndWrittenAcrossItsEdges) {
  auto arena = Mapping::open({.bytes = 4 * kMiB});
  ASSERT_TRUE(arena);
  BlockEngineOptions tuning;
  tuning.memory = {arena->bytes().subspan(0, kMiB),
                   arena->bytes().subspan(kMiB, kMiB)};  // and half of it not
  ASSERT_NO_FATAL_FAILURE(make(4 * kPage, std::move(tuning)));
  for (std::uint64_t i = 0; i < 4; ++i) fill_page(i, arena->bytes().data() + i * kPage);
  expect_ok(
      run_to_the_end(*device_, {{1, BlockWork::kWrite, false, 0, {{arena->bytes().data(), 4 * kPage}}}}));
  std::memset(arena->bytes().data(), 0, 4 * kPage);
  expect_ok(
      run_to_the_end(*device_, {{1, BlockWork::kRead, false, 0, {{arena->bytes().data(), 4 * kPage}}}}));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_TRUE(is_page(i, arena->bytes().data() + i * kPage)) << i;
  opened_ = {};
}

// H12: sums, offsets and results of an operation of 5 GiB. Away from the borders nothing is really moved: an
// attempt in the middle is said to be whole.
TEST_P(BlockTrouble, H12OneOperationOf5GiBTouchesWhatItShouldAndNoMore) {
  constexpr std::uint64_t kGiB = 1ULL << 30;
  constexpr std::uint64_t kStart = kMiB, kLength = 5 * kGiB;
  constexpr std::uint64_t kBuffer = 64 * kMiB;
  const auto near = [](const BlockCall& call) {
    for (const std::uint64_t border :
         {kStart, 2 * kGiB, 4 * kGiB, kStart + 2 * kGiB, kStart + 4 * kGiB, kStart + kLength})
      if (call.offset + call.length + 3 * kMiB > border && call.offset < border + 2 * kMiB) return true;
    return call.work == BlockWork::kFlush;
  };
  calls_.allow = [&](const BlockCall& call) { return near(call) ? call.length : 0; };
  calls_.turn = [&](const BlockCall& call, int result) {
    return near(call) ? result : static_cast<int>(call.length);
  };
  sparse_ = true;
  ASSERT_NO_FATAL_FAILURE(make(kLength + 2 * kMiB));
  const AlignedBytes page(kPage);
  std::memset(page.data(), 0x3C, kPage);
  expect_ok(
      run_to_the_end(*device_, {{1, BlockWork::kWrite, false, 0, {{page.data(), kPage}}},
                                {2, BlockWork::kWrite, false, kStart + kLength, {{page.data(), kPage}}}}));
  const AlignedBytes buffer(kBuffer);
  for (std::uint64_t i = 0; i < kBuffer / kPage; ++i) fill_page(i, buffer.data() + i * kPage);
  const std::vector<BlockPiece> pieces(kLength / kBuffer, BlockPiece{buffer.data(), kBuffer});
  BlockRequest object{7, BlockWork::kWrite, true, kStart, pieces};
  ASSERT_EQ(object.bytes(), kLength);
  expect_ok(run_to_the_end(*device_, {object}));
  for (const std::uint64_t border :
       {kStart, 2 * kGiB, 4 * kGiB, kStart + 2 * kGiB, kStart + 4 * kGiB, kStart + kLength})
    for (std::uint64_t at = border - kMiB; at < border + kMiB; at += kMiB) {
      expect_ok(run_to_the_end(*device_, {{3, BlockWork::kRead, false, at, {{page.data(), kPage}}}}));
      if (at >= kStart && at < kStart + kLength)
        EXPECT_TRUE(is_page((at - kStart) / kPage % (kBuffer / kPage), page.data())) << at;
      else
        for (std::uint64_t i = 0; i < kPage; ++i) ASSERT_EQ(page.data()[i], std::byte{0x3C}) << at;
    }
  // Its parts are read side by side: each needs memory of its own.
  const AlignedBytes beginning(kBuffer), end(kBuffer);
  object.work = BlockWork::kRead;
  object.pieces = {{beginning.data(), kBuffer}, {nullptr, kLength - 2 * kBuffer}, {end.data(), kBuffer}};
  expect_ok(run_to_the_end(*device_, {object}));
  EXPECT_TRUE(is_page(0, beginning.data()));
  EXPECT_TRUE(is_page(kBuffer / kPage - 1, end.data() + kBuffer - kPage));
}

// H06 on a real file system of 8 MiB, in a mount namespace of a child.
bool pages_until_full(BlockEngine engine, bool direct, const std::string& folder) {
  BlockDeviceOptions options;
  options.file = {.path = folder + "/claimed", .bytes = 16 * kPage, .create = true, .direct = direct};
  options.engine = engine;
  const auto claimed = open_block_device(options);
  if (claimed || claimed.error().code != Code::kResourceExhausted) return false;
  if (std::filesystem::exists(options.file.path)) return false;
  options.file.path = folder + "/sparse";
  options.file.sparse = true;
  auto opened = open_block_device(options);
  if (!opened) return opened.error().code == Code::kUnsupported;
  const AlignedBytes page(kPage);
  std::uint64_t stored = 0;
  Status status;
  for (; stored < 16 && status.ok(); ++stored) {
    fill_page(stored, page.data());
    status = run_to_the_end(*opened->device,
                            {{1, BlockWork::kWrite, false, stored * kPage, {{page.data(), kPage}}}})[1];
  }
  --stored;
  if (status.code != Code::kResourceExhausted || stored < 4 || stored > 8) return false;
  for (std::uint64_t i = 0; i < stored; ++i) {
    const auto ends =
        run_to_the_end(*opened->device, {{1, BlockWork::kRead, false, i * kPage, {{page.data(), kPage}}}});
    if (!ends.at(1).ok() || !is_page(i, page.data())) return false;
  }
  opened->device.reset();
  return std::filesystem::remove(options.file.path);
}

TEST(BlockFull, H06ARealFileSystemOf8MiB) {
  const FileTree tree;
  constexpr int kNoMount = 77;
  const int status = in_child([&] {
    const int flags = ::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS;
    if (::unshare(flags) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tiercel", tree.root().c_str(), "tmpfs", 0, "size=8m") != 0)
      ::_exit(kNoMount);
    bool right = true;
    for (const BlockEngine engine : {BlockEngine::kUring, BlockEngine::kThreads})
      for (const bool direct : {true, false})
        if (!pages_until_full(engine, direct, tree.root())) {
          std::fprintf(stderr, "%s, direct %d\n", std::string(block_engine_name(engine)).c_str(), direct);
          right = false;
        }
    return right && !testing::Test::HasFailure();
  });
  if (status == kNoMount) GTEST_SKIP() << "skipped: 1 case, no file system can be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(BlockLadder, WithoutIoUringThereAreThreads) {
  const FileTree tree;
  StagedBlockCalls calls;
  calls.absent = {BlockFeature::kRing};
  BlockDeviceOptions options;
  options.file = {.path = tree.root() + "/log", .bytes = kPage, .create = true};
  auto opened = open_block_device(options, calls);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ(opened->engine, BlockEngine::kThreads);
  EXPECT_TRUE(opened->created);
  ASSERT_FALSE(opened->notes.empty());
  EXPECT_NE(opened->notes.back().find("threads are used instead"), std::string::npos) << opened->notes.back();
  opened->device.reset();
  options.engine = BlockEngine::kUring;
  const auto refused = open_block_device(options, calls);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace tiercel
