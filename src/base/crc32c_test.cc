#include "base/crc32c.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"

namespace tiercel {
namespace {

TEST(Crc32c, MatchesRfc3720) {
  EXPECT_EQ(crc32c(as_byte_view("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
}

TEST(Crc32c, BothBodiesAgreeAndPiecesCompose) {
  Prng prng(1);
  std::vector<std::byte> bytes(999);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  for (std::size_t cut = 0; cut < bytes.size(); cut += 37) {
    const ByteView view(bytes);
    EXPECT_EQ(crc32c(view.subspan(cut), crc32c(view.first(cut))), crc32c(view));
    EXPECT_EQ(detail::crc32c_portable(view.subspan(cut), 7), crc32c(view.subspan(cut), 7));
  }
}

}  // namespace
}  // namespace tiercel
