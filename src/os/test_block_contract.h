// What every block device does, whatever it is made of: the same suite for files, engines and the simulated
// drive. A test program instantiates BlockContract with the devices that it has, and includes this in one
// source only.
//
// Threads: those of the device.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "os/block_device.h"
#include "os/test_block_run.h"

namespace tiercel {

// Devices of zeros. What `make` returns is used until the test ends; empty: not on this machine, because of
// `why_not`.
struct BlockContractCase {
  std::string name;
  std::function<std::unique_ptr<BlockDevice>(std::uint64_t bytes, std::string& why_not)> make;
};

class BlockContract : public testing::TestWithParam<BlockContractCase> {
 protected:
  static constexpr std::uint64_t kBytes = 8ULL << 20;
  void SetUp() override {
    std::string why_not;
    device_ = GetParam().make(kBytes, why_not);
    if (!device_ && !why_not.empty()) GTEST_SKIP() << "skipped: 1 case, " << why_not;
    ASSERT_NE(device_, nullptr);
  }
  BlockRequest request(BlockWork work, std::uint64_t offset, std::vector<BlockPiece> pieces) {
    return {++last_, work, prng_.chance(0.5), offset, std::move(pieces)};
  }
  void run(const std::vector<BlockRequest>& work) { expect_ok(run_to_the_end(*device_, work)); }

  // Pieces of `bytes` together, in the memory between `from` and `to`, of every shape that there is.
  std::vector<BlockPiece> pieces(std::uint64_t bytes, std::byte* from, const std::byte* to) {
    std::vector<BlockPiece> list;
    const std::uint64_t shape = prng_.below(5);
    while (bytes > 0) {
      std::uint64_t length = bytes;
      std::uint64_t gap = 0;
      if (shape == 1) length = prng_.between(1, bytes);
      if (shape == 2) length = prng_.chance(0.99) ? 1 : prng_.between(1, bytes);
      if (shape == 3) length = std::min(bytes, 512 * prng_.between(1, 64));
      if (shape == 4) length = prng_.between(0, std::min<std::uint64_t>(bytes, 20'000));
      if (shape == 3) gap = 512 * prng_.below(3);
      if (shape == 1 || shape == 4) gap = prng_.below(700);
      if (list.size() > 700) length = bytes;
      if (from + gap + length > to) gap = 0;
      if (from + length > to || (shape != 0 && prng_.chance(0.1))) {
        list.push_back({nullptr, length});
      } else {
        from += gap;
        list.push_back({from, length});
        from += length;
      }
      bytes -= length;
    }
    return list;
  }

  std::unique_ptr<BlockDevice> device_;
  Prng prng_{1};
  std::uint64_t last_ = 0;
};

TEST_P(BlockContract, HasTheSizeItWasMadeWithAndHoldsZeros) {
  ASSERT_EQ(device_->size_bytes(), kBytes);
  const AlignedBytes read(kBytes);
  std::memset(read.data(), 0xEE, kBytes);
  run({request(BlockWork::kRead, 0, {{read.data(), kBytes}})});
  for (std::uint64_t i = 0; i < kBytes; ++i) ASSERT_EQ(read.data()[i], std::byte{0}) << i;
}

// Batches of operations beside each other, on ranges that do not overlap; each in its own memory, of which
// nothing but the pieces may change.
TEST_P(BlockContract, BytesComeBackAsTheyWereWrittenWhateverTheirPieces) {
  constexpr std::uint64_t kParts = 8;
  constexpr std::uint64_t kPart = kBytes / kParts;
  std::vector<std::byte> model(kBytes);
  std::vector<std::unique_ptr<AlignedBytes>> memory;
  for (std::uint64_t i = 0; i < kParts; ++i)
    memory.push_back(std::make_unique<AlignedBytes>(kPart + (1U << 18)));
  std::vector<std::vector<std::byte>> expected(kParts);
  for (int round = 0; round < 16; ++round) {
    std::vector<BlockRequest> batch;
    const BlockWork work = round % 2 == 0 ? BlockWork::kWrite : BlockWork::kRead;
    for (std::uint64_t part = 0; part < kParts; ++part) {
      const AlignedBytes& own = *memory[part];
      own.fill(prng_);
      const std::uint64_t blocks =
          prng_.chance(0.5) ? prng_.between(1, 8) : prng_.between(1, kPart / kBlockBytes);
      const std::uint64_t first = prng_.between(0, kPart / kBlockBytes - blocks);
      const std::uint64_t offset = part * kPart + first * kBlockBytes;
      std::byte* const from = own.data() + (prng_.chance(0.5) ? 0 : prng_.below(5000));
      auto list = pieces(blocks * kBlockBytes, from, own.data() + own.size());
      expected[part].assign(own.data(), own.data() + own.size());
      std::uint64_t at = offset;
      for (const BlockPiece& piece : list) {
        if (work == BlockWork::kWrite && piece.data == nullptr)
          std::memset(model.data() + at, 0, piece.length);
        else if (work == BlockWork::kWrite)
          std::memcpy(model.data() + at, piece.data, piece.length);
        else if (piece.data != nullptr)
          std::memcpy(expected[part].data() + (piece.data - own.data()), model.data() + at, piece.length);
        at += piece.length;
      }
      batch.push_back(request(work, offset, std::move(list)));
    }
    run(batch);
    for (std::uint64_t part = 0; part < kParts; ++part)
      ASSERT_EQ(std::memcmp(memory[part]->data(), expected[part].data(), expected[part].size()), 0)
          << "round " << round << ", part " << part;
  }
  const AlignedBytes all(kBytes);
  run({request(BlockWork::kRead, 0, {{all.data(), kBytes}})});
  ASSERT_EQ(std::memcmp(all.data(), model.data(), kBytes), 0);
}

TEST_P(BlockContract, PiecesOfOneByteAreWrittenAndRead) {
  const AlignedBytes memory(4 * kBlockBytes);
  memory.fill(prng_);
  std::vector<BlockPiece> list;
  for (std::uint64_t i = 0; i < kBlockBytes; ++i) list.push_back({memory.data() + 2 * i, 1});
  run({request(BlockWork::kWrite, kBlockBytes, list)});
  const AlignedBytes read(kBlockBytes);
  run({request(BlockWork::kRead, kBlockBytes, {{read.data(), kBlockBytes}})});
  for (std::uint64_t i = 0; i < kBlockBytes; ++i) ASSERT_EQ(read.data()[i], memory.data()[2 * i]) << i;
}

TEST_P(BlockContract, WithoutMemoryZerosAreWrittenAndWhatIsReadIsThrownAway) {
  const AlignedBytes memory(kBytes);
  memory.fill(prng_);
  run({request(BlockWork::kWrite, 0, {{memory.data(), kBytes}})});
  run({request(BlockWork::kWrite, 0, {{memory.data(), 100}, {nullptr, 3 * kBlockBytes - 100}}),
       request(BlockWork::kRead, kBytes / 2, {{nullptr, kBytes / 2}})});
  const AlignedBytes read(kBytes);
  run({request(BlockWork::kRead, 0, {{read.data(), kBytes}})});
  EXPECT_EQ(std::memcmp(read.data(), memory.data(), 100), 0);
  for (std::uint64_t i = 100; i < 3 * kBlockBytes; ++i) ASSERT_EQ(read.data()[i], std::byte{0}) << i;
  EXPECT_EQ(
      std::memcmp(read.data() + 3 * kBlockBytes, memory.data() + 3 * kBlockBytes, kBytes - 3 * kBlockBytes),
      0);
}

TEST_P(BlockContract, TheLastBlockIsReadAndWritten) {
  const AlignedBytes memory(kBlockBytes);
  memory.fill(prng_);
  const AlignedBytes read(kBlockBytes);
  run({request(BlockWork::kWrite, kBytes - kBlockBytes, {{memory.data(), kBlockBytes}})});
  run({request(BlockWork::kRead, kBytes - kBlockBytes, {{read.data(), kBlockBytes}})});
  EXPECT_EQ(std::memcmp(read.data(), memory.data(), kBlockBytes), 0);
}

TEST_P(BlockContract, IsFullAtSomeTimeAndTellsEachEndOnce) {
  constexpr std::uint64_t kWorks = 1000;
  const AlignedBytes memory(kWorks * kBlockBytes);  // of each its own
  std::vector<BlockRequest> work;
  for (std::uint64_t i = 0; i < kWorks; ++i) {
    const std::uint64_t offset = prng_.below(kBytes / kBlockBytes) * kBlockBytes;
    if (i % 50 == 49)
      work.push_back(request(BlockWork::kFlush, 0, {}));
    else
      work.push_back(request(BlockWork::kRead, offset, {{memory.data() + i * kBlockBytes, kBlockBytes}}));
  }
  run(work);
  bool full = false;
  std::size_t submitted = 0;
  while (!full && submitted < 100'000) {
    full = !device_->submit(request(BlockWork::kRead, 0, {{nullptr, kBytes}}));
    submitted += full ? 0 : 1;
  }
  EXPECT_TRUE(full);
  for (std::size_t ended = 0; ended < submitted;) {
    device_->wait(std::chrono::seconds(10));
    ended += device_->drain().size();
    ASSERT_LE(ended, submitted);
  }
}

TEST_P(BlockContract, AFlushEndsAndKeepsWhatWasWritten) {
  const AlignedBytes memory(kBlockBytes);
  memory.fill(prng_);
  run({request(BlockWork::kWrite, 0, {{memory.data(), kBlockBytes}})});
  run({request(BlockWork::kFlush, 0, {}), request(BlockWork::kFlush, 0, {})});
  const AlignedBytes read(kBlockBytes);
  run({request(BlockWork::kRead, 0, {{read.data(), kBlockBytes}})});
  EXPECT_EQ(std::memcmp(read.data(), memory.data(), kBlockBytes), 0);
}

TEST_P(BlockContract, GoesAwayWhileWorkIsUnderWay) {
  const AlignedBytes memory(kBytes), into(kBytes);
  ASSERT_TRUE(device_->submit(request(BlockWork::kRead, 0, {{into.data(), kBytes}})));
  for (int i = 0; i < 100; ++i)
    if (!device_->submit(request(BlockWork::kWrite, 0, {{memory.data(), kBytes}}))) break;
  device_.reset();
  memory.fill(prng_);  // nobody else touches them any more
  into.fill(prng_);
}

}  // namespace tiercel
