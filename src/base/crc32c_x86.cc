// CRC-32C on x86, by the CRC instruction and by carry-less multiplication (Gopal et al., "Fast CRC
// Computation for Generic Polynomials Using PCLMULQDQ"): what was read so far is kept as a few vectors of
// bytes that leave the same remainder, and each is moved ahead onto the bytes that follow by two
// multiplications. In the end the CRC instruction turns what is left into the remainder.
#include "base/check.h"
#include "base/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tiercel {

#if defined(__x86_64__)
namespace {

// x^exponent modulo the polynomial, reflected: bit 31 is x^0.
constexpr std::uint32_t power(unsigned exponent) {
  std::uint32_t value = 0x80000000U;
  for (unsigned i = 0; i < exponent; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
  return value;
}
// What moves a reflected 64-bit half of a vector ahead by so many bits. One less, since the product of two
// reflected numbers comes out one bit short; in the upper 32 bits, where a reflected 64-bit number has its
// first 32 coefficients.
consteval std::int64_t multiplier(unsigned bits) {
  return static_cast<std::int64_t>(std::uint64_t{power(bits - 1)} << 32);
}
// For all 16 bytes of a lane: the first 8 stand 64 bits further from the end.
template <unsigned kBits>
[[gnu::target("sse4.2"), gnu::always_inline]] inline __m128i multipliers() {
  return _mm_set_epi64x(multiplier(kBits), multiplier(kBits + 64));
}

[[gnu::target("sse4.2")]] std::uint32_t by_words(const std::byte* at, std::size_t length,
                                                 std::uint32_t state) {
  std::uint64_t wide = state;
  for (; length >= 8; length -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; length > 0; --length, ++at) narrow = _mm_crc32_u8(narrow, static_cast<unsigned char>(*at));
  return narrow;
}

// Where the bytes go besides into the sum.
enum class To : std::uint8_t { kNowhere, kCache, kPastCache };

// Nowhere has no next place.
template <To kTo>
std::byte* moved(std::byte* to, std::size_t by) {
  return kTo == To::kNowhere ? to : to + by;
}

std::uint32_t words_to(To kind, std::byte* to, const std::byte* at, std::size_t length, std::uint32_t state) {
  if (length == 0) return state;
  if (kind == To::kNowhere) return by_words(at, length, state);
  std::memcpy(to, at, length);
  return by_words(to, length, state);
}

// Asks for what lies `ahead` of `at`, which may be in memory of its own.
[[gnu::always_inline]] inline void ask(const std::byte* at, std::ptrdiff_t ahead) {
  const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(at) + static_cast<std::uintptr_t>(ahead);
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T0);  // NOLINT(performance-no-int-to-ptr)
}

// ---- 64 bytes at once ----

template <unsigned kBits>
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i multipliers_512() {
  constexpr std::int64_t kSecond = multiplier(kBits);
  constexpr std::int64_t kFirst = multiplier(kBits + 64);
  return _mm512_set_epi64(kSecond, kFirst, kSecond, kFirst, kSecond, kFirst, kSecond, kFirst);
}

template <To kTo>
[[gnu::target("avx512f"), gnu::always_inline]] inline __m512i take_512(std::byte* to, const std::byte* at,
                                                                       std::ptrdiff_t ahead) {
  ask(at, ahead);
  const __m512i bytes = _mm512_loadu_si512(at);
  if constexpr (kTo == To::kCache) _mm512_storeu_si512(to, bytes);
  if constexpr (kTo == To::kPastCache) _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bytes);
  return bytes;
}
[[gnu::target("avx512f,vpclmulqdq"), gnu::always_inline]] inline __m512i ahead_512(__m512i sum, __m512i by,
                                                                                   __m512i next) {
  constexpr int kXor3 = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(sum, by, 0x00),
                                   _mm512_clmulepi64_epi128(sum, by, 0x11), next, kXor3);
}

// Requires: length a multiple of 64, at least 256; `to` on a 64-byte boundary for kPastCache.
template <To kTo>
[[gnu::target("avx512f,vpclmulqdq,sse4.2")]] std::uint32_t by_512(std::byte* to, const std::byte* at,
                                                                  std::size_t length, std::ptrdiff_t ahead,
                                                                  std::uint32_t state) {
  const __m512i by_four = multipliers_512<8 * 256>();
  const __m512i by_one = multipliers_512<8 * 64>();
  __m512i sums[4];
  for (std::size_t i = 0; i < 4; ++i) sums[i] = take_512<kTo>(moved<kTo>(to, 64 * i), at + 64 * i, ahead);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  std::size_t done = 256;
  for (; done + 256 <= length; done += 256)
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i)
      sums[i] = ahead_512(sums[i], by_four,
                          take_512<kTo>(moved<kTo>(to, done + 64 * i), at + done + 64 * i, ahead));
  __m512i sum = sums[0];
  for (std::size_t i = 1; i < 4; ++i) sum = ahead_512(sum, by_one, sums[i]);
  for (; done < length; done += 64)
    sum = ahead_512(sum, by_one, take_512<kTo>(moved<kTo>(to, done), at + done, ahead));
  alignas(64) std::byte left[64];
  _mm512_store_si512(left, sum);
  return by_words(left, sizeof left, 0);
}

// ---- 16 bytes at once ----

template <To kTo>
[[gnu::target("sse4.2"), gnu::always_inline]] inline __m128i take_128(std::byte* to, const std::byte* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  if constexpr (kTo == To::kCache) _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
  if constexpr (kTo == To::kPastCache) _mm_stream_si128(reinterpret_cast<__m128i*>(to), bytes);
  return bytes;
}
[[gnu::target("sse4.2,pclmul"), gnu::always_inline]] inline __m128i ahead_128(__m128i sum, __m128i by,
                                                                              __m128i next) {
  return _mm_xor_si128(
      _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x00), _mm_clmulepi64_si128(sum, by, 0x11)), next);
}

// Requires: length a multiple of 64, at least 256; `to` on a 16-byte boundary for kPastCache.
template <To kTo>
[[gnu::target("sse4.2,pclmul")]] std::uint32_t by_128(std::byte* to, const std::byte* at, std::size_t length,
                                                      std::ptrdiff_t ahead, std::uint32_t state) {
  const __m128i by_four = multipliers<8 * 64>();
  __m128i sums[4];
  for (std::size_t i = 0; i < 4; ++i) sums[i] = take_128<kTo>(moved<kTo>(to, 16 * i), at + 16 * i);
  sums[0] = _mm_xor_si128(sums[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (std::size_t done = 64; done < length; done += 64) {
    ask(at + done, ahead);
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i)
      sums[i] = ahead_128(sums[i], by_four, take_128<kTo>(moved<kTo>(to, done + 16 * i), at + done + 16 * i));
  }
  alignas(16) std::byte left[64];
  for (std::size_t i = 0; i < 4; ++i) _mm_store_si128(reinterpret_cast<__m128i*>(left + 16 * i), sums[i]);
  return by_words(left, sizeof left, 0);
}

template <To kTo>
std::uint32_t by_vectors(bool wide, std::byte* to, const std::byte* at, std::size_t length,
                         std::ptrdiff_t ahead, std::uint32_t state) {
  return wide ? by_512<kTo>(to, at, length, ahead, state) : by_128<kTo>(to, at, length, ahead, state);
}

constexpr std::size_t kLine = 64;
constexpr std::size_t kShortest = 256;  // for vectors; shorter is as fast by words

}  // namespace

bool detail::crc32c_x86_has(Crc32cBody body) {
  const bool words = __builtin_cpu_supports("sse4.2") != 0;
  switch (body) {
    case Crc32cBody::kTables:
      return false;
    case Crc32cBody::kWords:
      return words;
    case Crc32cBody::kVectors128:
      return words && __builtin_cpu_supports("pclmul") != 0;
    case Crc32cBody::kVectors512:
      return words && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  }
  return false;
}

std::uint32_t detail::crc32c_x86(Crc32cBody body, std::byte* to, ByteView from, std::uint32_t state,
                                 WritePath path, std::ptrdiff_t ahead) {
  const To cached = to == nullptr ? To::kNowhere : To::kCache;
  const bool past_cache = to != nullptr && path == WritePath::kPastCache;
  const std::size_t head = past_cache ? (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine : 0;
  const std::size_t lines = from.size() < head ? 0 : (from.size() - head) / kLine * kLine;
  if (body == Crc32cBody::kWords || lines < kShortest)
    return words_to(cached, to, from.data(), from.size(), state);
  const bool wide = body == Crc32cBody::kVectors512;
  state = words_to(cached, to, from.data(), head, state);
  const std::byte* at = from.data() + head;
  if (to == nullptr) {
    state = by_vectors<To::kNowhere>(wide, nullptr, at, lines, ahead, state);
  } else {
    to += head;
    state = past_cache ? by_vectors<To::kPastCache>(wide, to, at, lines, ahead, state)
                       : by_vectors<To::kCache>(wide, to, at, lines, ahead, state);
    to += lines;
  }
  return words_to(cached, to, at + lines, from.size() - head - lines, state);
}

#else

bool detail::crc32c_x86_has(Crc32cBody) { return false; }
std::uint32_t detail::crc32c_x86(Crc32cBody, std::byte*, ByteView, std::uint32_t, WritePath, std::ptrdiff_t) {
  TIERCEL_CHECK(false);
  return 0;
}

#endif

}  // namespace tiercel
