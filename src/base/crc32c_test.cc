#include "base/crc32c.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::byte kUntouched{0xA5};

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

// The definition, a bit at a time.
std::uint32_t by_definition(ByteView bytes) {
  std::uint32_t state = ~0U;
  for (const std::byte b : bytes) {
    state ^= static_cast<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~state;
}

TEST(Crc32c, MatchesRfc3720) {
  EXPECT_EQ(crc32c(as_byte_view("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
  EXPECT_EQ(crc32c({}), 0U);
}

// Every length around those where a body changes its ways, at every alignment of source and target.
TEST(Crc32c, EveryBodySumsAndCopiesTheSameBytes) {
  const std::vector<std::byte> bytes = random_bytes(1, 2300);
  std::vector<std::size_t> lengths;
  for (std::size_t length = 0; length < 700; ++length) lengths.push_back(length);
  for (const std::size_t edge : {768U, 1024U, 1088U, 1280U, 2048U})
    for (std::size_t length = edge - 2; length <= edge + 2; ++length) lengths.push_back(length);
  std::vector<std::byte> room(2300 + 128, kUntouched);
  for (const std::size_t length : lengths) {
    const std::size_t shift = length * 7 % 64;
    const ByteView from = ByteView(bytes).subspan(shift, length);
    const std::uint32_t wanted = by_definition(from);
    EXPECT_EQ(crc32c(from), wanted) << length;
    for (const detail::Crc32cBody body : detail::kCrc32cBodies) {
      if (!detail::crc32c_has(body)) continue;
      EXPECT_EQ(detail::crc32c_by(body, nullptr, from, 0, WritePath::kCached), wanted) << length;
      for (const WritePath path : {WritePath::kCached, WritePath::kPastCache}) {
        const std::size_t at = 1 + length * 13 % 64;
        EXPECT_EQ(detail::crc32c_by(body, room.data() + at, from, 0, path), wanted) << length;
        copy_fence();
        EXPECT_TRUE(std::equal(from.begin(), from.end(), room.data() + at)) << length;
        std::fill_n(room.data() + at, length, kUntouched);
        EXPECT_EQ(std::count(room.begin(), room.end(), kUntouched), static_cast<std::ptrdiff_t>(room.size()))
            << "bytes around the copy of " << length << " were written";
      }
    }
  }
}

TEST(Crc32c, PiecesComposeWhereverTheyAreCut) {
  const std::vector<std::byte> bytes = random_bytes(2, 5000);
  const ByteView all(bytes);
  const std::uint32_t wanted = by_definition(all);
  std::vector<std::byte> to(bytes.size());
  for (const detail::Crc32cBody body : detail::kCrc32cBodies) {
    if (!detail::crc32c_has(body)) continue;
    for (std::size_t cut = 0; cut <= bytes.size(); cut += 97) {
      const auto first = detail::crc32c_by(body, to.data(), all.first(cut), 0, WritePath::kPastCache);
      EXPECT_EQ(detail::crc32c_by(body, nullptr, all.subspan(cut), first, WritePath::kCached), wanted) << cut;
    }
  }
  EXPECT_EQ(crc32c(all.subspan(4096), crc32c(all.first(4096))), wanted);
  EXPECT_EQ(crc32c_copy(nullptr, {}, wanted, WritePath::kPastCache), wanted) << "nothing changes nothing";
}

TEST(Crc32c, EveryBitCounts) {
  std::vector<std::byte> bytes = random_bytes(3, 1500);
  const std::uint32_t before = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); bit += 5) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_NE(crc32c(bytes), before) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace tiercel
