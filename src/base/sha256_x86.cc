// SHA-256 by the x86 SHA extensions (Intel SDM volume 2, SHA256RNDS2, SHA256MSG1, SHA256MSG2), several
// messages in step: two rounds take four cycles to give their result, and another message's fit in between.
#include <algorithm>

#include "base/check.h"
#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tiercel {

#if defined(__x86_64__)
namespace {

// FIPS 180-4, 4.2.2: the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
alignas(16) constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// One message under way. The instructions want the eight words of the state as two halves, ABEF and CDGH,
// most significant first.
struct Lane {
  __m128i abef, cdgh;
  __m128i words[4];  // the last 16 of the message schedule
};

// Rounds 4 × group to 4 × group + 3.
[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void four_rounds(Lane& lane, int group) {
  __m128i(&w)[4] = lane.words;
  __m128i& now = w[group & 3];
  if (group >= 4) {
    const __m128i shifted = _mm_alignr_epi8(w[(group + 3) & 3], w[(group + 2) & 3], 4);
    now = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(now, w[(group + 1) & 3]), shifted),
                               w[(group + 3) & 3]);
  }
  const __m128i sum = _mm_add_epi32(
      now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + std::ptrdiff_t{4} * group)));
  lane.cdgh = _mm_sha256rnds2_epu32(lane.cdgh, lane.abef, sum);
  lane.abef = _mm_sha256rnds2_epu32(lane.abef, lane.cdgh, _mm_shuffle_epi32(sum, 0x0E));
}

[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline __m128i load(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
// Words stand most significant byte first in memory.
[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline __m128i swapped(__m128i words) {
  return _mm_shuffle_epi8(words, _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203));
}

[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void start(Lane& lane) {  // FIPS 180-4, 5.3.3
  lane.abef =
      _mm_set_epi32(0x6a09e667, static_cast<int>(0xbb67ae85), 0x510e527f, static_cast<int>(0x9b05688c));
  lane.cdgh = _mm_set_epi32(0x3c6ef372, static_cast<int>(0xa54ff53a), 0x1f83d9ab, 0x5be0cd19);
}

[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void store_digest(const Lane& lane, Digest& digest) {
  const __m128i feba = _mm_shuffle_epi32(lane.abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(lane.cdgh, 0xB1);
  auto* out = reinterpret_cast<__m128i*>(digest.data());
  _mm_storeu_si128(out, swapped(_mm_blend_epi16(feba, dchg, 0xF0)));
  _mm_storeu_si128(out + 1, swapped(_mm_alignr_epi8(dchg, feba, 8)));
}
[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void load_digest(Lane& lane, const Digest& digest) {
  const __m128i cdab = _mm_shuffle_epi32(swapped(load(digest.data())), 0xB1);
  const __m128i hgfe = _mm_shuffle_epi32(swapped(load(digest.data() + 16)), 0x1B);
  lane.abef = _mm_alignr_epi8(cdab, hgfe, 8);
  lane.cdgh = _mm_blend_epi16(hgfe, cdab, 0xF0);
}

// The first block of a message whose bytes 1 to 32 are the digest that `lane` holds: straight from its
// registers. Through memory it would have to wait, since every load spans two of the digest's stores.
[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void load_behind_parent(Lane& lane,
                                                                                 const std::byte* message) {
  static_assert(kSha256ParentAt == 1);
  constexpr char kNone = -1;
  const __m128i last_byte_of_word = _mm_cvtsi32_si128(static_cast<int>(0xFF000000));
  const __m128i first = _mm_and_si128(last_byte_of_word, swapped(load(message)));
  const __m128i third = _mm_andnot_si128(last_byte_of_word, swapped(load(message + 32)));
  const __m128i abef = lane.abef;
  const __m128i cdgh = lane.cdgh;
  const auto pick = [&](__m128i from, __m128i places) __attribute__((target("sha,sse4.1"), always_inline)) {
    return _mm_shuffle_epi8(from, places);
  };
  // Each word of the message is the last byte of one word of the digest and the first three of the next.
  lane.words[0] = _mm_or_si128(
      _mm_or_si128(first, pick(abef, _mm_setr_epi8(13, 14, 15, kNone, 9, 10, 11, 12, kNone, kNone, kNone, 8,
                                                   kNone, kNone, kNone, kNone))),
      pick(cdgh, _mm_setr_epi8(kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, 13, 14, 15, kNone, 9,
                               10, 11, 12)));
  lane.words[1] = _mm_or_si128(pick(abef, _mm_setr_epi8(5, 6, 7, kNone, 1, 2, 3, 4, kNone, kNone, kNone, 0,
                                                        kNone, kNone, kNone, kNone)),
                               pick(cdgh, _mm_setr_epi8(kNone, kNone, kNone, 8, kNone, kNone, kNone, kNone, 5,
                                                        6, 7, kNone, 1, 2, 3, 4)));
  lane.words[2] =
      _mm_or_si128(third, pick(cdgh, _mm_setr_epi8(kNone, kNone, kNone, 0, kNone, kNone, kNone, kNone, kNone,
                                                   kNone, kNone, kNone, kNone, kNone, kNone, kNone)));
  lane.words[3] = swapped(load(message + 48));
}

// All rounds of one block whose words are loaded, on top of the state in each lane.
template <std::size_t kLanes>
[[gnu::target("sha,sse4.1"), gnu::always_inline]] inline void compress(Lane (&lanes)[kLanes]) {
  __m128i abef[kLanes];
  __m128i cdgh[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) {
    abef[l] = lanes[l].abef;
    cdgh[l] = lanes[l].cdgh;
  }
#pragma GCC unroll 16
  for (int group = 0; group < 16; ++group)
#pragma GCC unroll 4
    for (std::size_t l = 0; l < kLanes; ++l) four_rounds(lanes[l], group);
  for (std::size_t l = 0; l < kLanes; ++l) {
    lanes[l].abef = _mm_add_epi32(lanes[l].abef, abef[l]);
    lanes[l].cdgh = _mm_add_epi32(lanes[l].cdgh, cdgh[l]);
  }
}

template <std::size_t kLanes>
[[gnu::target("sha,sse4.1")]] void hash(const std::byte* const* messages, std::size_t blocks,
                                        Digest* digests) {
  Lane lanes[kLanes];
  for (Lane& lane : lanes) start(lane);
  for (std::size_t block = 0; block < blocks; ++block) {
    for (std::size_t l = 0; l < kLanes; ++l)
      for (std::size_t i = 0; i < 4; ++i)
        lanes[l].words[i] = swapped(load(messages[l] + block * kSha256BlockBytes + 16 * i));
    compress(lanes);
  }
  for (std::size_t l = 0; l < kLanes; ++l) store_digest(lanes[l], digests[l]);
}

template <std::size_t kLanes>
[[gnu::target("sha,sse4.1")]] void hash_chains(const Sha256Chain* chains, std::size_t blocks,
                                               std::size_t count) {
  Lane lanes[kLanes];
  for (std::size_t l = 0; l < kLanes; ++l) load_digest(lanes[l], chains[l].digests[0]);
  for (std::size_t message = 0; message < count; ++message) {
    for (std::size_t block = 0; block < blocks; ++block) {
      for (std::size_t l = 0; l < kLanes; ++l) {
        const std::byte* at = chains[l].messages + (message * blocks + block) * kSha256BlockBytes;
        if (block == 0) {
          load_behind_parent(lanes[l], at);
          start(lanes[l]);
        } else {
          for (std::size_t i = 0; i < 4; ++i) lanes[l].words[i] = swapped(load(at + 16 * i));
        }
      }
      compress(lanes);
    }
    for (std::size_t l = 0; l < kLanes; ++l) store_digest(lanes[l], chains[l].digests[message + 1]);
  }
}

bool has_instructions() {
  // CPUID leaf 7, EBX bit 29; g++ 12 does not know the name "sha" in __builtin_cpu_supports.
  static const bool kHas = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __builtin_cpu_supports("sse4.1") != 0 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
           (ebx & (1U << 29)) != 0;
  }();
  return kHas;
}

}  // namespace

// Three messages take four lanes: less time than two lanes and one.
bool detail::sha256_padded_hardware(std::span<const std::byte* const> messages, std::size_t bytes,
                                    std::span<Digest> digests) {
  static_assert(kSha256Lanes == 4);
  TIERCEL_CHECK(!messages.empty() && messages.size() <= kSha256Lanes && messages.size() == digests.size());
  if (!has_instructions()) return false;
  const std::size_t blocks = sha256_padded_bytes(bytes) / kSha256BlockBytes;
  if (messages.size() == 1) {
    hash<1>(messages.data(), blocks, digests.data());
  } else if (messages.size() == 2) {
    hash<2>(messages.data(), blocks, digests.data());
  } else {
    const std::byte* const four[4] = {messages[0], messages[1], messages[2], messages.back()};
    Digest out[4];
    hash<4>(four, blocks, out);
    std::copy_n(out, digests.size(), digests.begin());
  }
  return true;
}

bool detail::sha256_chained_hardware(std::span<const Sha256Chain> chains, std::size_t bytes,
                                     std::size_t count) {
  TIERCEL_CHECK(!chains.empty() && chains.size() <= kSha256Lanes);
  if (!has_instructions()) return false;
  const std::size_t blocks = sha256_padded_bytes(bytes) / kSha256BlockBytes;
  if (chains.size() == 1) {
    hash_chains<1>(chains.data(), blocks, count);
  } else if (chains.size() == 2) {
    hash_chains<2>(chains.data(), blocks, count);
  } else {  // the fourth of three is the third again, and writes the same
    const Sha256Chain four[4] = {chains[0], chains[1], chains[2], chains.back()};
    hash_chains<4>(four, blocks, count);
  }
  return true;
}

#else

bool detail::sha256_padded_hardware(std::span<const std::byte* const>, std::size_t, std::span<Digest>) {
  return false;
}
bool detail::sha256_chained_hardware(std::span<const Sha256Chain>, std::size_t, std::size_t) { return false; }

#endif

}  // namespace tiercel
