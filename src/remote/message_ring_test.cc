#include "remote/message_ring.h"

#include <array>
#include <cstring>
#include <deque>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "tiercel/connector.h"

namespace tiercel {
namespace {

using Bytes = std::vector<std::byte>;

class MessageRingTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kRing = 256;
  Bytes message(std::uint64_t bytes, std::uint8_t fill = 1) {
    Bytes made(bytes, std::byte{fill});
    store_le(made.data(), static_cast<std::uint32_t>(bytes));
    store_le(made.data() + 4, std::uint32_t{TIERCEL_CONNECTOR_PING});
    return made;
  }
  RingPlace place() { return {memory_.data(), kRing, &tail_, &head_}; }
  RingReader::Take take() { return reader_.take(taken_); }
  // As if the other side had written this at `at`, up to `tail`.
  void forge(std::uint64_t at, std::uint32_t bytes, std::uint16_t verb, std::uint64_t tail) {
    store_le(memory_.data() + at, bytes);
    store_le(memory_.data() + at + 4, verb);
    tail_ = tail;
  }

  alignas(8) std::array<std::byte, kRing> memory_{};
  std::uint64_t tail_ = 0, head_ = 0;
  RingWriter writer_{place()};
  RingReader reader_{place()};
  Bytes taken_;
};

TEST_F(MessageRingTest, MessagesComeInOrderWhateverTheirLengthsAndPlaces) {
  Prng prng(1);
  std::deque<Bytes> under_way;
  std::uint64_t full = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (prng.chance(0.6)) {
      const Bytes made = message(8 * prng.between(1, kRing / 16), static_cast<std::uint8_t>(round));
      const auto put = writer_.put(made);
      ASSERT_NE(put, RingWriter::Put::kNonsense);
      if (put == RingWriter::Put::kPut)
        under_way.push_back(made);
      else
        ++full;
    } else if (under_way.empty()) {
      ASSERT_EQ(take(), RingReader::Take::kEmpty);
    } else {
      ASSERT_EQ(take(), RingReader::Take::kTaken) << reader_.nonsense();
      ASSERT_EQ(taken_, under_way.front());
      under_way.pop_front();
    }
  }
  EXPECT_GT(full, 100U);
}

// Around the ring's beginning, its end, and where a half of it no longer fits before the end.
TEST_F(MessageRingTest, TheLargestMessageFitsAtEveryPosition) {
  const std::uint64_t half = writer_.message_bytes_max();
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{8}, half - 8, half, half + 8, kRing - 8}) {
    head_ = tail_ = 0;
    writer_ = RingWriter(place());
    reader_ = RingReader(place());
    for (std::uint64_t bytes = 0; bytes < at; bytes += 8) {
      ASSERT_EQ(writer_.put(message(8)), RingWriter::Put::kPut);
      ASSERT_EQ(take(), RingReader::Take::kTaken);
    }
    ASSERT_EQ(tail_, at);
    const Bytes largest = message(half, 7);
    ASSERT_EQ(writer_.put(largest), RingWriter::Put::kPut) << at;
    ASSERT_EQ(take(), RingReader::Take::kTaken) << at << ": " << reader_.nonsense();
    EXPECT_EQ(taken_, largest) << at;
    EXPECT_EQ(take(), RingReader::Take::kEmpty) << at;
  }
}

TEST_F(MessageRingTest, AFullRingTakesNothingUntilThereIsRoom) {
  for (std::uint64_t i = 0; i < kRing / 64; ++i) ASSERT_EQ(writer_.put(message(64)), RingWriter::Put::kPut);
  ASSERT_EQ(writer_.put(message(8)), RingWriter::Put::kFull);
  ASSERT_EQ(take(), RingReader::Take::kTaken);
  ASSERT_EQ(writer_.put(message(64)), RingWriter::Put::kPut);
  ASSERT_EQ(writer_.put(message(8)), RingWriter::Put::kFull);
}

TEST_F(MessageRingTest, PositionsOfAReaderThatCannotBeAreNonsense) {
  ASSERT_EQ(writer_.put(message(64)), RingWriter::Put::kPut);
  for (const std::uint64_t head :
       {std::uint64_t{4}, std::uint64_t{72}, std::uint64_t{1} << 40, ~std::uint64_t{7}}) {
    head_ = head;
    EXPECT_EQ(writer_.put(message(8)), RingWriter::Put::kNonsense) << head;
  }
  head_ = 64;
  EXPECT_EQ(writer_.put(message(8)), RingWriter::Put::kPut);
  head_ = 0;  // backwards
  EXPECT_EQ(writer_.put(message(8)), RingWriter::Put::kNonsense);
}

TEST_F(MessageRingTest, LengthsAndPositionsOfAWriterThatCannotBeAreNonsenseForGood) {
  struct Forged {
    std::uint32_t bytes;
    std::uint16_t verb;
    std::uint64_t tail;
  };
  const std::vector<Forged> forgeries = {
      {0, 6, 64},          {4, 6, 64},     {12, 6, 64},           {72, 6, 64},
      {0xFFFFFFF8, 6, 64}, {64, 6, 60},    {64, 6, kRing + 8},    {64, 6, ~0ULL},
      {64, 0, 64},         {kRing, 0, 64}, {kRing + 8, 0, kRing}, {kRing - 8, 0, kRing},
  };
  for (const Forged& forged : forgeries) {
    reader_ = RingReader(place());
    head_ = 0;
    forge(0, forged.bytes, forged.verb, forged.tail);
    EXPECT_EQ(take(), RingReader::Take::kNonsense) << forged.bytes << ", " << forged.tail;
    EXPECT_NE(reader_.nonsense(), "");
    forge(0, 64, 6, 64);
    EXPECT_EQ(take(), RingReader::Take::kNonsense);
  }
}

TEST_F(MessageRingTest, FillersWithoutEndAreNonsense) {
  forge(0, kRing, TIERCEL_CONNECTOR_FILLER, kRing);
  EXPECT_EQ(take(), RingReader::Take::kEmpty);  // a writer may publish it alone
  tail_ = 2 * kRing;
  EXPECT_EQ(take(), RingReader::Take::kNonsense);
}

TEST_F(MessageRingTest, AWriterThatGoesBackIsNonsense) {
  ASSERT_EQ(writer_.put(message(64)), RingWriter::Put::kPut);
  ASSERT_EQ(writer_.put(message(64)), RingWriter::Put::kPut);
  ASSERT_EQ(take(), RingReader::Take::kTaken);
  tail_ = 64;
  EXPECT_EQ(take(), RingReader::Take::kNonsense);
}

}  // namespace
}  // namespace tiercel
