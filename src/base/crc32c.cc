#include "base/crc32c.h"

#include <array>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace tiercel {
namespace {

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < 8; ++t)
    for (std::size_t i = 0; i < 256; ++i)
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 0xFF];
  return tables;
}
constexpr Tables kTables = make_tables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_hardware(ByteView bytes, std::uint32_t crc) {
  std::uint64_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto state32 = static_cast<std::uint32_t>(state);
  for (; left > 0; --left, ++at) state32 = _mm_crc32_u8(state32, static_cast<unsigned char>(*at));
  return ~state32;
}
#endif

}  // namespace

std::uint32_t detail::crc32c_portable(ByteView bytes, std::uint32_t crc) {
  std::uint32_t state = ~crc;
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(at) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; left > 0; --left, ++at)
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<std::uint32_t>(*at)) & 0xFF];
  return ~state;
}

std::uint32_t crc32c(ByteView bytes, std::uint32_t crc) {
#if defined(__x86_64__)
  static const bool kHardware = __builtin_cpu_supports("sse4.2") != 0;
  if (kHardware) return crc32c_hardware(bytes, crc);
#endif
  return detail::crc32c_portable(bytes, crc);
}

}  // namespace tiercel
