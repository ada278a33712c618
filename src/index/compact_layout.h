// How the compact index lies in memory: a block of bytes without pointers, the same in every process that
// maps it. Every byte is in docs/format.md (page index image).
//
//   header · marks · buckets · strips · rows · singles
//
// A *strip* holds up to 16 pages that follow each other in a chain: page n of a chain stands in cell n mod
// 16, beside its parent where that cell is free. So 128 pages are eight strips and not 128 places. A
// *bucket* is one cache line of 16 entries {tag, page number}; every page has one entry, in one of two
// buckets. The first class's address stands in the cell; further sets of a strip's pages are rows (16
// addresses of one set), or singles where fewer than nine pages have that set.
//
// Threads: shared words are atomics; one writer, any number of readers (index_view.h has the protocol).
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/bytes.h"
#include "base/status.h"

namespace tiercel::compact {

static_assert(std::endian::native == std::endian::little, "the image is little-endian and used in place");

inline constexpr std::uint64_t kMagic = 0x5844'4E49'4C43'5254;  // "TRCLINDX"
inline constexpr std::uint32_t kFormat = 1;
inline constexpr std::uint32_t kCells = 16;
inline constexpr std::uint32_t kEntries = 16;
inline constexpr std::uint32_t kMarks = 4096;
inline constexpr std::uint32_t kStash = 32;
inline constexpr std::uint32_t kSinglesMax = (1U << 20) - 1;  // a single names the next in 20 bits
inline constexpr std::uint32_t kRowMinimum = 9;  // sets from which on a row takes less than singles
inline constexpr std::uint32_t kRetired =
    0x8000'0000;  // a strip whose version comes so far is not used again

using Word = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);

struct Strip {
  Word version;   // the generation: even = stable, odd = being written, never 0
  Word space;     // of all its pages
  Word further;   // reference to rows and singles; 0 = none. Of a free strip: the next free one + 1
  Word last_use;  // of the page used last
  std::atomic<std::uint16_t> used, visible;  // bit per cell
  Word reserved;
  std::array<Word, kCells> first;                                      // address of set 0, 0 = absent
  std::array<std::array<std::atomic<std::uint64_t>, 2>, kCells> keys;  // of used cells
  std::array<std::atomic<std::uint8_t>, kCells> children;              // visible ones, 255 = or more
  std::array<std::atomic<std::uint8_t>, kCells> age;  // last_use of the strip less that of the page
};
static_assert(sizeof(Strip) == 376 && alignof(Strip) == 8);

struct Bucket {
  alignas(64) std::array<Word, kEntries> entries;  // tag << number_bits | page number + 1; 0 = free
};
static_assert(sizeof(Bucket) == 64);

// Sixteen addresses of one set.
struct Row {
  Word set;                          // set number; of a free row: the next free one + 1
  Word next;                         // reference
  std::array<Word, kCells> address;  // 0 = absent
};
static_assert(sizeof(Row) == 72);

// One address: address << 32 | set << 24 | cell << 20 | next single + 1 (0 = last).
using Single = std::atomic<std::uint64_t>;

// References: 0 = none; row i = kRowBit | i; single i = i + 1.
inline constexpr std::uint32_t kRowBit = 0x8000'0000;

struct Constants {  // as the image was made
  std::uint64_t magic;
  std::uint32_t format;
  std::uint32_t number_bits;  // of a bucket entry
  std::uint64_t bytes;        // of the whole image
  std::uint64_t pages_max, strips, buckets, rows, singles;
  std::uint64_t seed;      // mixed into places, so that nobody outside can aim at one bucket
  std::uint32_t checksum;  // CRC32C of all before it
  std::uint32_t zero;
};
static_assert(sizeof(Constants) == 80);

struct Header {
  Constants constants;
  Word stash_used;
  std::array<Word, kStash> stash;  // page number + 1 of pages that found both their buckets full
  Word reserved;
};
static_assert(sizeof(Header) == 216);

struct Sizes {
  std::uint64_t pages_max = 0;  // ≥ 1
  std::uint64_t strips = 0;     // ≥ 1; pages_max / 16 hold pages_max pages if all are in whole chains
  std::uint64_t rows = 0;
  std::uint64_t singles = 0;  // ≤ kSinglesMax
};
// Offsets of the parts, all multiples of 64. Errors: invalid_argument when a size is 0 or beyond what 32 bits
// name.
struct Plan {
  std::uint64_t marks = 0, buckets = 0, strips = 0, rows = 0, singles = 0, bytes = 0;
  std::uint64_t bucket_count = 0;
  std::uint32_t number_bits = 0;
};
Result<Plan> plan_image(const Sizes& sizes);

// Where a key may stand, and its tag.
struct Places {
  std::uint64_t first = 0, second = 0;  // buckets
  std::uint32_t tag = 0;                // shifted into place
};

}  // namespace tiercel::compact
