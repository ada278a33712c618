#include "base/copy.h"

#include <algorithm>

#if defined(__x86_64__) && !defined(TIERCEL_PLAIN_COPY)
#include <immintrin.h>
#define TIERCEL_X86_COPY 1
#endif

namespace tiercel {
namespace {

constexpr std::size_t kLine = 64;

void ask_for(const CopyPiece& piece) {
  constexpr std::size_t kMostAsked = 2048;  // the rest of a long piece is guessed well enough
  const std::size_t asked = std::min(piece.length, kMostAsked);
  for (std::size_t at = 0; at < asked; at += kLine) __builtin_prefetch(piece.from + at);
}

void copy_cached(const CopyPiece& piece, const CopyPiece& next) {
  ask_for(next);
  if (piece.length != 0) std::memcpy(piece.to, piece.from, piece.length);
}

void pieces_cached(std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead) {
  for (std::size_t i = 0; i < count; ++i)
    copy_cached(pieces[i], i + ahead < pieces.size() ? pieces[i + ahead] : CopyPiece());
}

}  // namespace

#if defined(TIERCEL_X86_COPY)
namespace {

constexpr std::size_t kBlock = 4 * kLine;  // copied in one turn of a loop

// Bytes to ask for while others are copied, the n-th turn its n-th block.
struct Ahead {
  const std::byte* at = nullptr;
  std::size_t length = 0;
};

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

[[gnu::target("avx512f"), gnu::always_inline]] inline void line_512(std::byte* to, const std::byte* from) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
}
[[gnu::target("avx512f")]] void stream_512(std::byte* to, const std::byte* from, std::size_t length,
                                           Ahead ahead) {
  std::size_t done = 0;
  const std::size_t asked = std::min(ahead.length, length) / kBlock * kBlock;
  for (; done < asked; done += kBlock)
#pragma GCC unroll 4
    for (std::size_t i = done; i < done + kBlock; i += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead.at) + i, _MM_HINT_T0);
      line_512(to + i, from + i);
    }
  ask_block(ahead, done);
  for (; done < length; done += kLine) line_512(to + done, from + done);
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

namespace {

// The two ends, up to whole lines of the target.
struct Ends {
  std::size_t head = 0, lines = 0;
};
[[gnu::always_inline]] inline Ends copy_ends(std::byte* to, ByteView from) {
  const std::size_t head = -reinterpret_cast<std::uintptr_t>(to) % kLine;
  const Ends ends{head, (from.size() - head) / kLine * kLine};
  if (head != 0) std::memcpy(to, from.data(), head);
  const std::size_t tail = from.size() - head - ends.lines;
  if (tail != 0) std::memcpy(to + head + ends.lines, from.data() + head + ends.lines, tail);
  return ends;
}

using Stream = void (*)(std::byte*, const std::byte*, std::size_t, Ahead);
Stream stream_of(detail::CopyBody body) {
  return body == detail::CopyBody::kVectors512   ? stream_512
         : body == detail::CopyBody::kVectors256 ? stream_256
                                                 : stream_128;
}

// Requires: `ahead` more pieces, or as many as there are, behind the last.
void pieces_by(Stream stream, std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead) {
  for (std::size_t i = 0; i < count; ++i) {
    const CopyPiece& piece = pieces[i];
    const CopyPiece next = i + ahead < pieces.size() ? pieces[i + ahead] : CopyPiece();
    const bool whole_lines = (piece.length | reinterpret_cast<std::uintptr_t>(piece.to)) % kLine == 0;
    if (piece.length < kShortestOfMany && !whole_lines) {
      copy_cached(piece, next);
      continue;
    }
    const Ends ends = copy_ends(piece.to, ByteView(piece.from, piece.length));
    stream(piece.to + ends.head, piece.from + ends.head, ends.lines, {next.from, next.length});
  }
}

}  // namespace

void detail::copy_by(CopyBody body, std::byte* to, ByteView from, WritePath path) {
  if (body == CopyBody::kPlain || path == WritePath::kCached || from.size() < kShortest)
    return copy_cached({to, from.data(), from.size()}, {});
  const auto [head, lines] = copy_ends(to, from);
  const Ahead ahead = lines > kAhead ? Ahead{from.data() + head + kAhead, lines - kAhead} : Ahead();
  stream_of(body)(to + head, from.data() + head, lines, ahead);
}

void detail::copy_pieces_by(CopyBody body, std::span<const CopyPiece> pieces, std::size_t count,
                            std::size_t ahead, WritePath path) {
  if (body == CopyBody::kPlain || path == WritePath::kCached) return pieces_cached(pieces, count, ahead);
  pieces_by(stream_of(body), pieces, count, ahead);
}

void copy_fence() { _mm_sfence(); }

#else

bool detail::copy_has(CopyBody body) { return body == CopyBody::kPlain; }

void detail::copy_by(CopyBody, std::byte* to, ByteView from, WritePath) {
  copy_cached({to, from.data(), from.size()}, {});
}

void detail::copy_pieces_by(CopyBody, std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead,
                            WritePath) {
  pieces_cached(pieces, count, ahead);
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

void copy_bytes(std::byte* to, ByteView from, WritePath path) {
  detail::copy_by(detail::best_copy_body(), to, from, path);
}

void copy_pieces(std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead, WritePath path) {
  detail::copy_pieces_by(detail::best_copy_body(), pieces, count, ahead, path);
}

}  // namespace tiercel
