// Every result that a system call can have, in every order: what an operation makes of it.
#include "os/block_progress.h"

#include <cerrno>
#include <functional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kOffset = 16 * kBlockBytes;

int bytes(std::uint64_t count) { return static_cast<int>(count); }

BlockProgress read_of(std::uint64_t blocks) { return {BlockWork::kRead, kOffset, blocks * kBlockBytes}; }

// Attempts whatever is left at once, whole.
BlockRange start(BlockProgress& progress) {
  const auto range = progress.next();
  EXPECT_TRUE(range.has_value());
  progress.started(*range);
  return *range;
}

TEST(BlockProgress, IsWholeAfterOneWholeResult) {
  BlockProgress progress = read_of(3);
  EXPECT_FALSE(progress.over());
  const BlockRange range = start(progress);
  EXPECT_EQ(range, (BlockRange{0, 3 * kBlockBytes}));
  EXPECT_FALSE(progress.next().has_value());
  EXPECT_FALSE(progress.over());
  progress.ended(range, bytes(3 * kBlockBytes));
  EXPECT_TRUE(progress.over());
  EXPECT_TRUE(progress.status().ok());
}

TEST(BlockProgress, GoesOnWhereAShortResultEnded) {
  BlockProgress progress = read_of(4);
  progress.ended(start(progress), bytes(2 * kBlockBytes));
  EXPECT_FALSE(progress.over());
  EXPECT_EQ(progress.next(), (BlockRange{2 * kBlockBytes, 4 * kBlockBytes}));
  progress.ended(start(progress), bytes(2 * kBlockBytes));
  EXPECT_TRUE(progress.over());
  EXPECT_TRUE(progress.status().ok());
}

TEST(BlockProgress, RepeatsABlockThatIsNotWhole) {
  BlockProgress progress = read_of(4);
  progress.ended(start(progress), bytes(4 * kBlockBytes - 1));
  EXPECT_EQ(progress.next(), (BlockRange{3 * kBlockBytes, 4 * kBlockBytes}));
}

TEST(BlockProgress, NothingOverAndOverIsAnError) {
  for (const int result : {0, 1, 4095, -EINTR, -EAGAIN}) {
    BlockProgress progress = read_of(1);
    std::uint32_t attempts = 0;
    while (!progress.over()) {
      progress.ended(start(progress), result);
      ASSERT_LE(++attempts, BlockProgress::kFruitlessMax);
    }
    EXPECT_EQ(attempts, BlockProgress::kFruitlessMax);
    EXPECT_EQ(progress.status().code, Code::kIoError) << result;
  }
}

TEST(BlockProgress, AnythingMovedStartsTheCountAgain) {
  BlockProgress progress = read_of(3);
  for (int block = 0; block < 3; ++block) {
    for (std::uint32_t i = 0; i + 1 < BlockProgress::kFruitlessMax; ++i) progress.ended(start(progress), 0);
    progress.ended(start(progress), bytes(kBlockBytes));
  }
  EXPECT_TRUE(progress.over());
  EXPECT_TRUE(progress.status().ok());
}

// Attempts that end at once with nothing, over and over, beside one that takes its time.
TEST(BlockProgress, OneThatTakesItsTimeIsNotMadeToFailByManyThatMoveNothing) {
  BlockProgress progress = read_of(8);
  const BlockRange slow{0, kBlockBytes};
  progress.started(slow);
  for (std::uint32_t i = 0; i + 1 < BlockProgress::kFruitlessMax; ++i) {
    std::vector<BlockRange> quick;
    for (std::uint64_t block = 1; block < 8; ++block) {
      const BlockRange range{progress.next()->from, progress.next()->from + kBlockBytes};
      progress.started(range);
      quick.push_back(range);
    }
    for (const BlockRange& range : quick) progress.ended(range, i % 2 == 0 ? 0 : -EAGAIN);
    ASSERT_FALSE(progress.failed());
  }
  while (progress.next()) progress.ended(start(progress), bytes(kBlockBytes));
  progress.ended(slow, bytes(kBlockBytes));
  EXPECT_TRUE(progress.over());
  EXPECT_TRUE(progress.status().ok());
}

TEST(BlockProgress, NamesWhatFailedAndWhy) {
  BlockProgress progress(BlockWork::kWrite, kOffset, 2 * kBlockBytes);
  progress.ended(start(progress), bytes(kBlockBytes));
  progress.ended(start(progress), -EIO);
  EXPECT_TRUE(progress.over());
  EXPECT_EQ(progress.status().message, "write of 4096 bytes at 69632: Input/output error");
}

TEST(BlockProgress, CodesFollowFromErrnos) {
  const std::pair<int, Code> cases[] = {{EIO, Code::kIoError},
                                        {EINVAL, Code::kIoError},
                                        {ENOSPC, Code::kResourceExhausted},
                                        {EDQUOT, Code::kResourceExhausted},
                                        {ENODEV, Code::kUnavailable},
                                        {ENXIO, Code::kUnavailable},
                                        {ESHUTDOWN, Code::kUnavailable},
                                        {ECANCELED, Code::kIoError}};
  for (const auto& [number, code] : cases)
    for (const BlockWork work : {BlockWork::kRead, BlockWork::kWrite, BlockWork::kFlush}) {
      BlockProgress progress(work, kOffset, work == BlockWork::kFlush ? 0 : kBlockBytes);
      progress.ended(start(progress), -number);
      EXPECT_TRUE(progress.over());
      EXPECT_EQ(progress.status().code, code) << number;
    }
}

TEST(BlockProgress, MoreThanWasAskedForIsAnError) {
  BlockProgress progress = read_of(1);
  progress.ended(start(progress), bytes(kBlockBytes + 1));
  EXPECT_TRUE(progress.over());
  EXPECT_EQ(progress.status().code, Code::kIoError);
}

TEST(BlockProgress, AFailureWaitsForWhatIsUnderWayAndStartsNothingMore) {
  BlockProgress progress = read_of(4);
  progress.started({0, kBlockBytes});
  progress.started({kBlockBytes, 2 * kBlockBytes});
  progress.ended({0, kBlockBytes}, -EIO);
  EXPECT_TRUE(progress.failed());
  EXPECT_FALSE(progress.next().has_value());
  EXPECT_FALSE(progress.over());
  progress.ended({kBlockBytes, 2 * kBlockBytes}, -ENOSPC);
  EXPECT_TRUE(progress.over());
  EXPECT_EQ(progress.status().code, Code::kIoError) << "the first is told";
}

TEST(BlockProgress, AResultIsNeverAddedToAnothers) {
  BlockProgress progress = read_of(4);
  progress.started({0, 2 * kBlockBytes});
  progress.started({2 * kBlockBytes, 4 * kBlockBytes});
  progress.ended({2 * kBlockBytes, 4 * kBlockBytes}, bytes(2 * kBlockBytes));
  progress.ended({0, 2 * kBlockBytes}, bytes(kBlockBytes));
  EXPECT_EQ(progress.next(), (BlockRange{kBlockBytes, 2 * kBlockBytes}));
  EXPECT_FALSE(progress.over());
}

TEST(BlockProgress, AFlushIsTriedAgainAndEndsOnce) {
  BlockProgress progress(BlockWork::kFlush, 0, 0);
  EXPECT_FALSE(progress.over());
  progress.ended(start(progress), -EINTR);
  EXPECT_FALSE(progress.over());
  progress.ended(start(progress), 0);
  EXPECT_TRUE(progress.over());
  EXPECT_TRUE(progress.status().ok());
}

// A drive that is nothing but which blocks were really moved.
struct Model {
  BlockProgress progress;
  std::set<std::uint64_t> moved;
  std::vector<BlockRange> under_way;
  bool refused = false;  // an errno that means failure was given

  explicit Model(std::uint64_t blocks) : progress(read_of(blocks)) {}
};

// All ways to start attempts of at most two blocks and to end any of them with any result: where it stops,
// either every block was moved, or an error was given.
class Walk {
 public:
  explicit Walk(std::uint64_t blocks) : blocks_(blocks) {}
  std::uint64_t ends() const { return ends_; }
  void go(const Model& model, int troubles) {
    if (model.progress.over()) {
      ++ends_;
      EXPECT_TRUE(model.under_way.empty());
      EXPECT_EQ(model.progress.status().ok(), !model.refused);
      EXPECT_TRUE(model.refused || model.moved.size() == blocks_);
      return;
    }
    const auto pending = model.progress.next();
    ASSERT_TRUE(pending.has_value() || !model.under_way.empty()) << "it would wait for ever";
    ASSERT_FALSE(model.refused && pending.has_value());
    if (pending && model.under_way.size() < 3) begin(model, *pending, troubles);
    for (std::size_t i = 0; i < model.under_way.size(); ++i) end(model, i, troubles);
  }

 private:
  void begin(const Model& model, BlockRange pending, int troubles) {
    for (std::uint64_t length = kBlockBytes; length <= std::min(pending.length(), 2 * kBlockBytes);
         length += kBlockBytes) {
      Model next = model;
      const BlockRange range{pending.from, pending.from + length};
      next.progress.started(range);
      next.under_way.push_back(range);
      go(next, troubles);
    }
  }
  void end(const Model& model, std::size_t which, int troubles) {
    const BlockRange range = model.under_way[which];
    ended(model, which, bytes(range.length()), troubles);
    if (troubles == 0) return;
    for (const int result :
         {0, 1, bytes(range.length() - 1), bytes(range.length() / 2), -EINTR, -EIO, -ENOSPC})
      ended(model, which, result, troubles - 1);
  }
  void ended(const Model& model, std::size_t which, int result, int troubles) {
    Model next = model;
    const BlockRange range = next.under_way[which];
    next.under_way.erase(next.under_way.begin() + static_cast<std::ptrdiff_t>(which));
    for (std::uint64_t at = range.from;
         result > 0 && at + kBlockBytes <= range.from + static_cast<unsigned>(result); at += kBlockBytes)
      EXPECT_TRUE(next.moved.insert(at).second) << "a whole block was moved twice";
    next.refused = next.refused || result == -EIO || result == -ENOSPC;
    next.progress.ended(range, result);
    go(next, troubles);
  }

  std::uint64_t blocks_;
  std::uint64_t ends_ = 0;
};

TEST(BlockProgressExhaustive, EveryOrderOfEveryResultEndsWholeOrFailed) {
  for (std::uint64_t blocks = 1; blocks <= 4; ++blocks) {
    Walk walk(blocks);
    walk.go(Model(blocks), blocks <= 3 ? 3 : 2);
    EXPECT_GT(walk.ends(), blocks * 8);
  }
}

TEST(BlockProgress, RandomTroubleOnALargeOperationMovesEachBlockOnce) {
  Prng prng(7);
  for (int run = 0; run < 200; ++run) {
    const std::uint64_t blocks = prng.between(1, 300);
    BlockProgress progress = read_of(blocks);
    std::vector<BlockRange> under_way;
    std::set<std::uint64_t> moved;
    while (!progress.over()) {
      if (const auto pending = progress.next(); pending && under_way.size() < 16 && prng.chance(0.6)) {
        const std::uint64_t length = prng.between(1, pending->length() / kBlockBytes) * kBlockBytes;
        under_way.push_back({pending->from, pending->from + length});
        progress.started(under_way.back());
      } else if (!under_way.empty()) {
        const auto which = static_cast<std::ptrdiff_t>(prng.below(under_way.size()));
        const BlockRange range = under_way[static_cast<std::size_t>(which)];
        under_way.erase(under_way.begin() + which);
        const std::uint64_t most = prng.chance(0.5) ? range.length() : prng.between(0, range.length());
        const int result = prng.chance(0.1) ? -EAGAIN : bytes(most);
        for (std::uint64_t at = 0; result > 0 && at + kBlockBytes <= static_cast<unsigned>(result);
             at += kBlockBytes)
          ASSERT_TRUE(moved.insert(range.from + at).second);
        progress.ended(range, result);
      }
    }
    ASSERT_TRUE(progress.status().ok()) << progress.status().message;
    ASSERT_EQ(moved.size(), blocks);
  }
}

}  // namespace
}  // namespace tiercel
