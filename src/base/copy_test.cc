#include "base/copy.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

constexpr std::byte kUntouched{0xA5};

// Every length, with the alignments of both sides going through all of a line, by every body that this
// processor has.
TEST(Copy, EveryBodyCopiesTheSameBytesAndNoOthers) {
  Prng prng(1);
  std::vector<std::byte> bytes(8192);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  std::vector<std::size_t> lengths;
  for (std::size_t length = 0; length <= 300; ++length) lengths.push_back(length);
  for (const std::size_t edge : {512U, 1024U, 2048U, 4096U})
    for (std::size_t length = edge - 65; length <= edge + 65; length += 13) lengths.push_back(length);
  std::vector<std::byte> room(4096 + 512, kUntouched);
  for (const detail::CopyBody body : detail::kCopyBodies) {
    if (!detail::copy_has(body)) continue;
    for (const std::size_t length : lengths)
      for (std::size_t shift = 0; shift < 64; shift += 1 + length % 7) {
        const ByteView from = ByteView(bytes).subspan(shift, length);
        const std::size_t at = 64 + shift * 5 % 64;
        for (const WritePath path : {WritePath::kCached, WritePath::kPastCache}) {
          detail::copy_by(body, room.data() + at, from, path);
          copy_fence();
          ASSERT_TRUE(std::equal(from.begin(), from.end(), room.data() + at)) << length << " at " << at;
          std::fill_n(room.data() + at, length, kUntouched);
          ASSERT_TRUE(std::ranges::all_of(room, [](std::byte b) { return b == kUntouched; }))
              << "bytes around the copy of " << length << " were written";
        }
      }
  }
}

TEST(Copy, PiecesOfEveryLengthArriveWhateverIsAskedForBehindThem) {
  Prng prng(2);
  std::vector<std::byte> bytes(1 << 16);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  for (const detail::CopyBody body : detail::kCopyBodies) {
    if (!detail::copy_has(body)) continue;
    for (const WritePath path : {WritePath::kCached, WritePath::kPastCache})
      for (std::size_t ahead = 1; ahead < 5; ++ahead) {
        std::vector<std::byte> room(1 << 16, kUntouched);
        std::vector<std::byte> wanted = room;
        std::vector<CopyPiece> pieces;
        for (std::size_t at = 0; at + 3000 < room.size(); at += 3000) {
          const std::size_t shift = prng.below(64);
          pieces.push_back({room.data() + at + shift, bytes.data() + prng.below(60000), prng.below(2900)});
        }
        const std::size_t count = pieces.size() - 3;
        for (std::size_t i = 0; i < count; ++i)
          std::copy_n(pieces[i].from, pieces[i].length, wanted.data() + (pieces[i].to - room.data()));
        detail::copy_pieces_by(body, pieces, count, ahead, path);
        copy_fence();
        ASSERT_TRUE(room == wanted);
      }
  }
}

TEST(Copy, TheBestBodyIsOneThatThisProcessorHas) {
  EXPECT_TRUE(detail::copy_has(detail::best_copy_body()));
  EXPECT_TRUE(detail::copy_has(detail::CopyBody::kPlain));
}

}  // namespace
}  // namespace tiercel
