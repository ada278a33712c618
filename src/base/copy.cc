#include "base/copy.h"

#include <algorithm>

#if defined(__x86_64__) && !defined(TIERCEL_PLAIN_COPY)
#include <immintrin.h>
#define TIERCEL_X86_COPY 1
#endif

namespace tiercel {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kBlock = 4 * kLine;  // copied in one turn of a loop

// Bytes to ask for while others are copied, the n-th turn its n-th block.
struct Ahead {
  const std::byte* at = nullptr;
  std::size_t length = 0;
};

void ask(ByteView bytes) {
  for (std::size_t at = 0; at < bytes.size(); at += kLine) __builtin_prefetch(bytes.data() + at);
}

// The library's copy asks for nothing; a longer piece is guessed well enough after its first lines.
void copy_cached(std::byte* to, ByteView from, ByteView next) {
  constexpr std::size_t kFirst = 2048;
  ask(next.first(std::min(next.size(), kFirst)));
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace

#if defined(TIERCEL_X86_COPY)
namespace {

// Asked for so early within a piece: the processor's own guess starts late. Farther is slower than not at
// all.
constexpr std::size_t kAhead = 512;
// Below these the two ends, which go through the cache, outweigh the gain; many short pieces with other
// lines of their own between gain from 256 on.
constexpr std::size_t kShortest = 1024;
constexpr std::size_t kShortestOfMany = 256;

[[gnu::always_inline]] inline void ask_block(Ahead ahead, std::size_t done) {
  if (done >= ahead.length) return;
  for (std::size_t i = 0; i < kBlock; i += kLine)
    _mm_prefetch(reinterpret_cast<const char*>(ahead.at) + done + i, _MM_HINT_T0);
}

// All three require: `to` on a line's boundary, whole lines.

[[gnu::target("avx512f")]] void stream_512(std::byte* to, const std::byte* from, std::size_t length,
                                           Ahead ahead) {
  std::size_t done = 0;
  for (; done + kBlock <= length; done += kBlock) {
    ask_block(ahead, done);
    __m512i lines[4];
    for (std::size_t i = 0; i < 4; ++i) lines[i] = _mm512_loadu_si512(from + done + kLine * i);
    for (std::size_t i = 0; i < 4; ++i)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done + kLine * i), lines[i]);
  }
  ask_block(ahead, done);
  for (; done < length; done += kLine)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + done), _mm512_loadu_si512(from + done));
}

[[gnu::target("avx2")]] void stream_256(std::byte* to, const std::byte* from, std::size_t length,
                                        Ahead ahead) {
  for (std::size_t done = 0; done < length; done += kLine) {
    if (done % kBlock == 0) ask_block(ahead, done);
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + done));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + done) + 1);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + done), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + done) + 1, high);
  }
}

void stream_128(std::byte* to, const std::byte* from, std::size_t length, Ahead ahead) {
  for (std::size_t done = 0; done < length; done += kLine) {
    if (done % kBlock == 0) ask_block(ahead, done);
    __m128i parts[4];
    for (std::size_t i = 0; i < 4; ++i)
      parts[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + done) + i);
    for (std::size_t i = 0; i < 4; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to + done) + i, parts[i]);
  }
}

}  // namespace

bool detail::copy_has(CopyBody body) {
  switch (body) {
    case CopyBody::kPlain:
    case CopyBody::kVectors128:
      return true;
    case CopyBody::kVectors256:
      return __builtin_cpu_supports("avx2") != 0;
    case CopyBody::kVectors512:
      return __builtin_cpu_supports("avx512f") != 0;
  }
  return false;
}

void detail::copy_by(CopyBody body, std::byte* to, ByteView from, WritePath path, ByteView next) {
  const std::size_t shortest = next.empty() ? kShortest : kShortestOfMany;
  if (body == CopyBody::kPlain || path == WritePath::kCached || from.size() < shortest)
    return copy_cached(to, from, next);
  const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t lines = (from.size() - head) / kLine * kLine;
  Ahead ahead{next.data(), next.size()};
  if (next.empty() && lines > kAhead) ahead = {from.data() + head + kAhead, lines - kAhead};
  std::memcpy(to, from.data(), head);
  const auto stream = body == CopyBody::kVectors512   ? stream_512
                      : body == CopyBody::kVectors256 ? stream_256
                                                      : stream_128;
  stream(to + head, from.data() + head, lines, ahead);
  const ByteView tail = from.subspan(head + lines);
  std::memcpy(to + head + lines, tail.data(), tail.size());
}

void copy_fence() { _mm_sfence(); }

#else

bool detail::copy_has(CopyBody body) { return body == CopyBody::kPlain; }

void detail::copy_by(CopyBody, std::byte* to, ByteView from, WritePath, ByteView next) {
  copy_cached(to, from, next);
}

void copy_fence() {}

#endif

detail::CopyBody detail::best_copy_body() {
  static const CopyBody kBest = [] {
    CopyBody best = CopyBody::kPlain;
    for (const CopyBody body : kCopyBodies)
      if (copy_has(body)) best = body;
    return best;
  }();
  return kBest;
}

void copy_bytes(std::byte* to, ByteView from, WritePath path, ByteView next) {
  detail::copy_by(detail::best_copy_body(), to, from, path, next);
}

}  // namespace tiercel
