#include "memory/arena.h"

#include <gtest/gtest.h>

namespace tiercel {
namespace {

// Writes byte position % 251 to each position of the record, through however many views it takes.
std::size_t fill(Arena& arena, std::span<const ArenaSpan> record, std::uint64_t length) {
  std::size_t views = 0;
  for (std::uint64_t position = 0; position < length; ++views) {
    const MutableByteView view = arena.view(record, position, length - position);
    if (view.empty()) break;
    for (std::byte& b : view) b = static_cast<std::byte>(position++ % 251);
  }
  return views;
}

TEST(ByteArena, ARecordOfSeveralSpansIsReadInRecordOrder) {
  std::vector<std::byte> memory(100);
  ByteArena arena{MutableByteView(memory)};
  const std::vector<ArenaSpan> record = {{50, 10}, {0, 5}, {90, 10}};
  EXPECT_EQ(fill(arena, record, 25), 3U);
  EXPECT_EQ(memory[50], std::byte{0});
  EXPECT_EQ(memory[59], std::byte{9});
  EXPECT_EQ(memory[0], std::byte{10});
  EXPECT_EQ(memory[4], std::byte{14});
  EXPECT_EQ(memory[90], std::byte{15});
  EXPECT_EQ(memory[60], std::byte{0}) << "nothing outside the spans";
  EXPECT_EQ(arena.view(record, 12, 2).size(), 2U);
  EXPECT_EQ(arena.view(record, 12, 5).size(), 3U) << "cut where the span ends";
  EXPECT_EQ(arena.view(record, 15, 1).data(), &memory[90]);
}

TEST(ByteArena, LivesOverItsOwnBytesOrSomebodyElses) {
  ByteArena own(64);
  EXPECT_EQ(own.size_bytes(), 64U);
  EXPECT_EQ(own.payload_kept(1ULL << 40), 1ULL << 40) << "keeps all of a record";
  std::vector<std::byte> mapping(32);
  ByteArena external{MutableByteView(mapping)};
  const std::vector<ArenaSpan> record = {{0, 32}};
  EXPECT_EQ(external.view(record, 0, 32).data(), mapping.data());
}

TEST(ByteArenaDeathTest, ASpanOutsideTheArenaIsOurMistake) {
  ByteArena arena(64);
  const std::vector<ArenaSpan> outside = {{60, 10}};
  EXPECT_DEATH(arena.view(outside, 0, 1), "arena");
  const std::vector<ArenaSpan> record = {{0, 10}};
  EXPECT_DEATH(arena.view(record, 10, 1), "arena");
}

TEST(ThinArena, KeepsTheFirstBytesOfEachRecordPastFourGiB) {
  constexpr std::uint64_t kTiB = 1ULL << 40;
  ThinArena arena(8 * kTiB, 4096);
  EXPECT_EQ(arena.size_bytes(), 8 * kTiB);
  EXPECT_EQ(arena.payload_kept(300ULL << 20), 4096U);
  EXPECT_EQ(arena.payload_kept(100), 100U);
  const std::vector<ArenaSpan> low = {{5ULL << 30, 2 << 20}, {7 * kTiB, 2 << 20}};
  const std::vector<ArenaSpan> high = {{(5ULL << 30) + (1ULL << 32), 4 << 20}};  // equal in the lower 32 bits
  EXPECT_EQ(fill(arena, low, 4096 + 100), 1U);
  for (const std::byte b : arena.view(high, 0, 4096)) ASSERT_EQ(b, std::byte{0});
  EXPECT_EQ(arena.view(low, 4195, 1)[0], static_cast<std::byte>(4195 % 251));
  EXPECT_EQ(arena.view(low, 5000, 16).size(), 16U) << "grows to the furthest byte";
  arena.discard(low);
  EXPECT_EQ(arena.view(low, 4195, 1)[0], std::byte{0}) << "forgotten";
}

}  // namespace
}  // namespace tiercel
