#include "base/crc32c.h"

#include <algorithm>
#include <array>

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

std::uint32_t by_tables(ByteView bytes, std::uint32_t state) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(at) ^ state;
    state = 0;
    for (std::size_t i = 0; i < 8; ++i) state ^= kTables[7 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; left > 0; --left, ++at)
    state = (state >> 8) ^ kTables[0][(state ^ static_cast<std::uint32_t>(*at)) & 0xFF];
  return state;
}

detail::Crc32cBody best_body() {
  static const detail::Crc32cBody kBest = [] {
    auto best = detail::Crc32cBody::kTables;
    for (const detail::Crc32cBody body : detail::kCrc32cBodies)
      if (detail::crc32c_has(body)) best = body;
    return best;
  }();
  return kBest;
}

}  // namespace

bool detail::crc32c_has(Crc32cBody body) { return body == Crc32cBody::kTables || crc32c_x86_has(body); }

std::uint32_t detail::crc32c_by(Crc32cBody body, std::byte* to, ByteView from, std::uint32_t crc,
                                WritePath path, std::ptrdiff_t ahead) {
  if (body != Crc32cBody::kTables) return ~crc32c_x86(body, to, from, ~crc, path, ahead);
  std::uint32_t state = ~crc;
  constexpr std::size_t kStrip = 4096;  // what was copied is still near when it is summed
  for (; !from.empty(); from = from.subspan(std::min(kStrip, from.size()))) {
    ByteView strip = from.first(std::min(kStrip, from.size()));
    if (to != nullptr) {
      std::memcpy(to, strip.data(), strip.size());
      strip = ByteView(to, strip.size());
      to += strip.size();
    }
    state = by_tables(strip, state);
  }
  return ~state;
}

std::uint32_t crc32c(ByteView bytes, std::uint32_t crc) {
  return detail::crc32c_by(best_body(), nullptr, bytes, crc, WritePath::kCached);
}

std::uint32_t crc32c_copy(std::byte* to, ByteView from, std::uint32_t crc, WritePath path,
                          bool more_follows) {
  // The processor's own guess starts anew with each piece of a record, so where the next piece follows in
  // memory it should be on its way before this one's sum is done.
  constexpr std::ptrdiff_t kAhead = 1024;
  constexpr std::ptrdiff_t kAheadOfNext = 4096;
  return from.empty()
             ? crc
             : detail::crc32c_by(best_body(), to, from, crc, path, more_follows ? kAheadOfNext : kAhead);
}

std::uint32_t crc32c_copy(std::byte* to, ByteView from, std::uint32_t crc, WritePath path, ByteView next) {
  // They lie in different memory: only the numbers are subtracted, and added again.
  const auto ahead = static_cast<std::ptrdiff_t>(reinterpret_cast<std::uintptr_t>(next.data()) -
                                                 reinterpret_cast<std::uintptr_t>(from.data()));
  return from.empty() ? crc : detail::crc32c_by(best_body(), to, from, crc, path, ahead);
}

}  // namespace tiercel
