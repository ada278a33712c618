#include "memory/arena_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;

std::uint64_t end_of(const ArenaSection& section) { return section.offset.value() + section.bytes; }

// Sections in order, apart, aligned, within the whole.
void expect_sound(const ArenaLayout& layout) {
  EXPECT_EQ(layout.header.offset, ArenaOffset(0));
  EXPECT_EQ(layout.header.bytes, kArenaHeaderBytes);
  EXPECT_LE(end_of(layout.header), layout.index.offset.value());
  EXPECT_LE(end_of(layout.index), layout.leases.offset.value());
  EXPECT_LE(end_of(layout.leases), layout.extents.offset.value());
  EXPECT_LE(end_of(layout.extents), layout.total_bytes);
  EXPECT_EQ(layout.index.offset.value() % kArenaIndexAlignment, 0U);
  EXPECT_EQ(layout.leases.offset.value() % kArenaSectionAlignment, 0U);
  EXPECT_EQ(layout.extents.offset.value() % kArenaSectionAlignment, 0U);
  EXPECT_EQ(layout.total_bytes % kArenaSectionAlignment, 0U);
  EXPECT_LE(layout.total_bytes, kArenaBytesMax);
}

TEST(ArenaLayout, SectionsFollowEachOtherOnTheirOwnHugePages) {
  const auto layout =
      arena_layout({.index_bytes = 5000, .leases_bytes = 64, .extent_bytes = 2 * kMiB, .extents = 3});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->index, (ArenaSection{ArenaOffset(4096), 5000}));
  EXPECT_EQ(layout->leases, (ArenaSection{ArenaOffset(2 * kMiB), 64}));
  EXPECT_EQ(layout->extents, (ArenaSection{ArenaOffset(4 * kMiB), 6 * kMiB}));
  EXPECT_EQ(layout->total_bytes, 10 * kMiB);
}

TEST(ArenaLayout, EdgesOfTheAlignmentCostExactlyOnePage) {
  const auto total = [](std::uint64_t index, std::uint64_t leases) {
    const auto layout = arena_layout({index, leases, 512, 1});
    EXPECT_TRUE(layout);
    return layout ? layout->total_bytes / kMiB : 0;
  };
  EXPECT_EQ(total(0, 0), 4U) << "an empty section takes nothing of its own";
  EXPECT_EQ(total(2 * kMiB - 4096, 0), 4U);
  EXPECT_EQ(total(2 * kMiB - 4095, 0), 6U);
  EXPECT_EQ(total(0, 2 * kMiB), 6U);
  EXPECT_EQ(total(0, 2 * kMiB + 1), 8U);
}

TEST(ArenaLayout, ExtremesAreRefusedWithTheirFieldAndNeverWrap) {
  const std::uint64_t extremes[] = {0,          1,
                                    511,        512,
                                    UINT32_MAX, 1ULL << 32,
                                    1ULL << 45, 1ULL << 46,
                                    1ULL << 62, (1ULL << 63) - 1,
                                    1ULL << 63, UINT64_MAX - 1,
                                    UINT64_MAX};
  int made = 0;
  for (const std::uint64_t index : extremes)
    for (const std::uint64_t leases : extremes)
      for (const std::uint64_t extent : extremes)
        for (const std::uint64_t extents : extremes) {
          const auto layout = arena_layout({index, leases, extent, extents});
          if (layout) {
            ++made;
            expect_sound(*layout);
            EXPECT_EQ(layout->index.bytes, index);
            EXPECT_EQ(layout->leases.bytes, leases);
            EXPECT_EQ(layout->extents.bytes, extent * extents);
          } else {
            EXPECT_EQ(layout.error().code, Code::kInvalidArgument);
            EXPECT_THAT(layout.error().message, HasSubstr("wanted "));
          }
        }
  EXPECT_GT(made, 100);
  EXPECT_TRUE(arena_layout({0, 0, 8192, UINT32_MAX})) << "2^32 - 1 extents";
  EXPECT_FALSE(arena_layout({0, 0, 512, 1ULL << 32}));
  EXPECT_FALSE(arena_layout({0, 0, 3000, 1})) << "not a power of two";
  EXPECT_TRUE(arena_layout({0, 0, 2 * kMiB, (1ULL << 25) - 1})) << "exactly 2^46 bytes";
  EXPECT_FALSE(arena_layout({0, 0, 2 * kMiB, 1ULL << 25}));
}

TEST(ArenaLayout, AddressesOfDifferentKindsAreFoundFromEachOther) {
  const ArenaSizes sizes{.index_bytes = 1, .leases_bytes = 1, .extent_bytes = 4096, .extents = 1000};
  const auto layout = arena_layout(sizes);
  ASSERT_TRUE(layout);
  EXPECT_EQ(extent_start(sizes, ExtentNumber(999)), SpaceOffset(999UL * 4096));
  EXPECT_EQ(arena_offset(*layout, extent_start(sizes, ExtentNumber(2))), ArenaOffset(4 * kMiB + 8192));
  const ArenaSizes large{.extent_bytes = 1 << 20, .extents = 1 << 20};
  EXPECT_EQ(extent_start(large, ExtentNumber((1 << 20) - 1)), SpaceOffset(((1ULL << 20) - 1) << 20));
  EXPECT_DEATH(extent_start(sizes, ExtentNumber(1000)), "extents");
  EXPECT_DEATH(arena_offset(*layout, SpaceOffset(1000UL * 4096)), "extents");
}

constexpr ArenaHeader kExample{.epoch = 0x1122334455667788,
                               .sizes = {.index_bytes = 3 * kMiB, .leases_bytes = 70000, .extents = 5}};
constexpr std::uint64_t kExampleBytes = (4 + 2 + 10) * kMiB;

std::vector<std::byte> encoded(const ArenaHeader& header = kExample) {
  std::vector<std::byte> bytes(kArenaHeaderBytes);
  encode_arena_header(header, bytes);
  return bytes;
}
void put_checksum_right(std::vector<std::byte>& bytes) {
  store_le(&bytes[124], crc32c(ByteView(bytes).first(124)));
}

TEST(ArenaHeader, ComesBackAsItWasWritten) {
  const auto header = decode_arena_header(encoded(), kExampleBytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(*header, kExample);
}

TEST(ArenaHeader, EveryFlippedBitIsRefused) {
  const auto right = encoded();
  for (std::size_t at = 0; at < right.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      auto wrong = right;
      wrong[at] ^= static_cast<std::byte>(1 << bit);
      const auto header = decode_arena_header(wrong, kExampleBytes);
      ASSERT_FALSE(header) << at << '.' << bit;
      const bool version = at >= 8 && at < 12;
      EXPECT_EQ(header.error().code, version ? Code::kUnsupported : Code::kDataCorrupt);
      EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
    }
}

struct Field {
  const char* name;
  std::size_t at, bytes;
  bool derived;  // from other fields: any other value is refused
};
constexpr Field kFields[] = {
    {"magic", 0, 8, true},           {"layout version", 8, 4, true}, {"header bytes", 12, 4, true},
    {"epoch", 16, 8, false},         {"total bytes", 24, 8, true},   {"index offset", 32, 8, true},
    {"index bytes", 40, 8, false},   {"leases offset", 48, 8, true}, {"leases bytes", 56, 8, false},
    {"extents offset", 64, 8, true}, {"extent bytes", 72, 8, false}, {"extents", 80, 8, false},
    {"unused bytes", 88, 8, true},   {"unused bytes", 116, 8, true}};

// A liar who knows the checksum gets at most another sound layout of exactly this memory.
TEST(ArenaHeader, EveryFieldWithARightChecksumIsRefusedOrSound) {
  for (const Field& field : kFields) {
    const auto right = encoded();
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < field.bytes; ++i)
      value |= std::to_integer<std::uint64_t>(right[field.at + i]) << (8 * i);
    for (const std::uint64_t lie : std::initializer_list<std::uint64_t>{
             0, 1, value + 1, value - 1, value * 2, value / 2, value + 2 * kMiB, value - 2 * kMiB, ~value,
             1ULL << 31, 1ULL << 63, UINT64_MAX}) {
      auto wrong = right;
      for (std::size_t i = 0; i < field.bytes; ++i)
        wrong[field.at + i] = static_cast<std::byte>((lie >> (8 * i)) & 0xFF);
      if (wrong == right) continue;
      put_checksum_right(wrong);
      const auto header = decode_arena_header(wrong, kExampleBytes);
      if (!header) {
        EXPECT_EQ(header.error().message.find('\n'), std::string::npos);
        if (field.derived) {
          EXPECT_THAT(header.error().message, HasSubstr(field.name));
        }
        continue;
      }
      EXPECT_FALSE(field.derived) << field.name << " = " << lie;
      const auto layout = arena_layout(header->sizes);
      ASSERT_TRUE(layout);
      expect_sound(*layout);
      EXPECT_EQ(layout->total_bytes, kExampleBytes);
      EXPECT_NE(header->epoch, 0U);
    }
  }
}

TEST(ArenaHeader, AnotherVersionIsUnsupportedWhateverElseItSays) {
  auto newer = encoded();
  store_le(&newer[8], kArenaVersion + 1);
  const auto header = decode_arena_header(newer, kExampleBytes);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().code, Code::kUnsupported);
  EXPECT_THAT(header.error().message, HasSubstr("layout version: wanted 1, got 2"));
}

TEST(ArenaHeader, MustBeThatOfAllTheMemory) {
  for (const std::uint64_t bytes : {kExampleBytes - 2 * kMiB, kExampleBytes + 2 * kMiB, std::uint64_t{0}}) {
    const auto header = decode_arena_header(encoded(), bytes);
    ASSERT_FALSE(header);
    EXPECT_THAT(header.error().message, HasSubstr("bytes of the memory"));
  }
}

TEST(ArenaHeader, CutShortIsRefused) {
  const auto right = encoded();
  for (std::size_t length = 0; length < right.size(); ++length) {
    const std::vector<std::byte> part(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_FALSE(decode_arena_header(part, kExampleBytes));
  }
  EXPECT_FALSE(decode_arena_header(std::vector<std::byte>(4096), kExampleBytes))
      << "memory that nobody wrote";
}

}  // namespace
}  // namespace tiercel
