#include "base/copy.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiercel {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead =
    2048;  // asked for so early: the processor's own guess starts late in a short copy
constexpr std::size_t kShortest =
    1024;  // below it the two ends, which go through the cache, outweigh the gain

// Requires: `to` on a line's boundary, whole lines.
[[gnu::target("avx512f")]] void stream_512(std::byte* to, const std::byte* from, std::size_t length) {
  for (; length >= 4 * kLine; length -= 4 * kLine, to += 4 * kLine, from += 4 * kLine) {
    if (length > kAhead)
      for (std::size_t i = 0; i < 4; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead + kLine * i, _MM_HINT_T0);
    __m512i lines[4];
    for (std::size_t i = 0; i < 4; ++i) lines[i] = _mm512_loadu_si512(from + kLine * i);
    for (std::size_t i = 0; i < 4; ++i)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + kLine * i), lines[i]);
  }
  for (; length > 0; length -= kLine, to += kLine, from += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}

void stream_128(std::byte* to, const std::byte* from, std::size_t length) {
  for (; length > 0; length -= kLine, to += kLine, from += kLine) {
    __m128i parts[4];
    for (std::size_t i = 0; i < 4; ++i)
      parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
    for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, parts[i]);
  }
}

}  // namespace

void copy_bytes(std::byte* to, ByteView from, WritePath path) {
  if (from.empty()) return;
  if (path == WritePath::kCached || from.size() < kShortest) {
    std::memcpy(to, from.data(), from.size());
    return;
  }
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t lines = (from.size() - head) / kLine * kLine;
  std::memcpy(to, from.data(), head);
  static const bool kWide = __builtin_cpu_supports("avx512f") != 0;
  (kWide ? stream_512 : stream_128)(to + head, from.data() + head, lines);
  const ByteView tail = from.subspan(head + lines);
  std::memcpy(to + head + lines, tail.data(), tail.size());
}

void copy_fence() { _mm_sfence(); }

#else

void copy_bytes(std::byte* to, ByteView from, WritePath) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}
void copy_fence() {}

#endif

}  // namespace tiercel
