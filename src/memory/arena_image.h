// What stands where in an arena's memory, and the header at its start by which another process knows it. The
// bytes are in docs/format.md ("Arena image").
//
//   header · index · (to 2 MiB) leases · (to 2 MiB) extents · (to 2 MiB)
//
// What readers only read lies apart from what they write by whole huge pages, so that a process can be given
// each with the access it needs.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace tiercel {

// Three things that are all "a number in the arena" and never each other:
using ArenaOffset = Id<struct ArenaOffsetTag, std::uint64_t>;  // a byte of the whole image
using SpaceOffset =
    Id<struct SpaceOffsetTag, std::uint64_t>;  // a byte of the extents, as in ArenaSpan::offset
using ExtentNumber = Id<struct ExtentNumberTag, std::uint32_t>;  // which extent

inline constexpr std::uint32_t kArenaVersion = 1;
inline constexpr std::uint64_t kArenaHeaderBytes = 128;
inline constexpr std::uint64_t kArenaSectionAlignment = 2ULL << 20;  // of leases, extents and the whole
inline constexpr std::uint64_t kArenaIndexAlignment = 4096;
inline constexpr std::uint64_t kArenaExtentBytesMin = 512;
inline constexpr std::uint64_t kArenaBytesMax = 1ULL << 46;

struct ArenaSizes {
  std::uint64_t index_bytes = 0;
  std::uint64_t leases_bytes = 0;
  std::uint64_t extent_bytes = 2ULL << 20;  // a power of two, at least kArenaExtentBytesMin
  std::uint64_t extents = 0;                // 1 to 2^32 − 1
  friend bool operator==(const ArenaSizes&, const ArenaSizes&) = default;
};

struct ArenaSection {
  ArenaOffset offset;
  std::uint64_t bytes = 0;
  friend bool operator==(const ArenaSection&, const ArenaSection&) = default;
};

struct ArenaLayout {
  ArenaSection header, index, leases, extents;  // in this order, none overlaps another
  std::uint64_t total_bytes = 0;  // a multiple of kArenaSectionAlignment, all sections lie within
  friend bool operator==(const ArenaLayout&, const ArenaLayout&) = default;
};

// The one layout of these sizes. Errors: invalid_argument naming the size that is out of its range, or when
// the whole would be larger than kArenaBytesMax.
Result<ArenaLayout> arena_layout(const ArenaSizes& sizes);

// Of an arena with such extents. Requires: the number is one of them.
SpaceOffset extent_start(const ArenaSizes& sizes, ExtentNumber extent);
// Requires: an offset within the extents.
ArenaOffset arena_offset(const ArenaLayout& layout, SpaceOffset offset);

struct ArenaHeader {
  std::uint64_t epoch = 0;  // random, never 0: which arena this is, of all there ever were
  ArenaSizes sizes;
  friend bool operator==(const ArenaHeader&, const ArenaHeader&) = default;
};

// Writes all of `out`. Requires: kArenaHeaderBytes of it; sizes that have a layout; an epoch.
void encode_arena_header(const ArenaHeader& header, MutableByteView out);

// Reads a header that anybody may have written, from memory that has `image_bytes` in all. Errors:
// unsupported for another layout version; data_corrupt naming the field, what was wanted, what it was. Cost:
// reads kArenaHeaderBytes, once each, so that what was checked is what is used.
Result<ArenaHeader> decode_arena_header(ByteView bytes, std::uint64_t image_bytes);

}  // namespace tiercel
