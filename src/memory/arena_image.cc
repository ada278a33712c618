#include "memory/arena_image.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/crc32c.h"

namespace tiercel {
namespace {

constexpr std::string_view kMagic = "TIERCARN";

// Offsets of the fields; docs/format.md has the same table.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kHeaderBytesAt = 12;
constexpr std::size_t kEpochAt = 16;
constexpr std::size_t kTotalAt = 24;
constexpr std::size_t kIndexAt = 32;
constexpr std::size_t kIndexBytesAt = 40;
constexpr std::size_t kLeasesAt = 48;
constexpr std::size_t kLeasesBytesAt = 56;
constexpr std::size_t kExtentsAt = 64;
constexpr std::size_t kExtentBytesAt = 72;
constexpr std::size_t kExtentCountAt = 80;
constexpr std::size_t kUnusedAt = 88;
constexpr std::size_t kChecksumAt = 124;

using HeaderBytes = std::array<std::byte, kArenaHeaderBytes>;

Status differs(std::string_view field, const auto& wanted, const auto& got) {
  return {Code::kDataCorrupt, fmt::format("arena header: {}: wanted {}, got {}", field, wanted, got)};
}

std::uint64_t u64_at(const HeaderBytes& bytes, std::size_t at) { return load_le<std::uint64_t>(&bytes[at]); }

// What must be right before any other field means anything.
Status check_frame(const HeaderBytes& bytes) {
  if (!std::equal(kMagic.begin(), kMagic.end(), bytes.begin(),
                  [](char c, std::byte b) { return static_cast<std::byte>(c) == b; }))
    return differs("magic", kMagic, "something else; this is not the memory of an arena");
  const auto version = load_le<std::uint32_t>(&bytes[kVersionAt]);
  if (version != kArenaVersion)
    return {Code::kUnsupported,
            fmt::format("arena header: layout version: wanted {}, got {}; use one version of this "
                        "program on both sides",
                        kArenaVersion, version)};
  const auto wanted = load_le<std::uint32_t>(&bytes[kChecksumAt]);
  const std::uint32_t got = crc32c(ByteView(bytes).first(kChecksumAt));
  if (wanted != got)
    return differs("checksum", fmt::format("{:#010x}", wanted), fmt::format("{:#010x}", got));
  return {};
}

// Whether the offsets are those that the sizes give.
Status check_offsets(const HeaderBytes& bytes, const ArenaLayout& layout, std::uint64_t image_bytes) {
  struct Field {
    std::string_view name;
    std::size_t at;
    std::uint64_t wanted;
  };
  for (const Field& field : {Field{"total bytes", kTotalAt, layout.total_bytes},
                             Field{"index offset", kIndexAt, layout.index.offset.value()},
                             Field{"leases offset", kLeasesAt, layout.leases.offset.value()},
                             Field{"extents offset", kExtentsAt, layout.extents.offset.value()}})
    if (u64_at(bytes, field.at) != field.wanted)
      return differs(field.name, field.wanted, u64_at(bytes, field.at));
  if (layout.total_bytes != image_bytes)
    return differs("bytes of the memory", layout.total_bytes, image_bytes);
  return {};
}

// The first byte at or behind `offset` that is aligned; nothing beyond what can be counted.
std::optional<std::uint64_t> aligned(std::optional<std::uint64_t> offset, std::uint64_t alignment) {
  return offset ? checked_mul(ceil_div(*offset, alignment), alignment) : std::nullopt;
}
std::optional<std::uint64_t> plus(std::optional<std::uint64_t> offset, std::uint64_t bytes) {
  return offset ? checked_add(*offset, bytes) : std::nullopt;
}

}  // namespace

Result<ArenaLayout> arena_layout(const ArenaSizes& sizes) {
  const auto refused = [](std::string_view field, std::string_view wanted, std::uint64_t got) {
    return error(Code::kInvalidArgument,
                 fmt::format("arena layout: {}: wanted {}, got {}", field, wanted, got));
  };
  if (sizes.extents == 0 || sizes.extents > UINT32_MAX)
    return refused("extents", "1 to 2^32 - 1", sizes.extents);
  if (!std::has_single_bit(sizes.extent_bytes) || sizes.extent_bytes < kArenaExtentBytesMin)
    return refused("extent_bytes", fmt::format("a power of two of at least {}", kArenaExtentBytesMin),
                   sizes.extent_bytes);
  const auto extents_bytes = checked_mul(sizes.extents, sizes.extent_bytes);
  const std::uint64_t index = kArenaIndexAlignment;
  const auto leases = aligned(plus(index, sizes.index_bytes), kArenaSectionAlignment);
  const auto extents = aligned(plus(leases, sizes.leases_bytes), kArenaSectionAlignment);
  const auto total =
      extents_bytes ? aligned(plus(extents, *extents_bytes), kArenaSectionAlignment) : std::nullopt;
  if (!total || *total > kArenaBytesMax)
    return error(
        Code::kInvalidArgument,
        fmt::format("arena layout: wanted at most {} bytes in all, got an index of {}, leases of {} and {} "
                    "extents of {}",
                    kArenaBytesMax, sizes.index_bytes, sizes.leases_bytes, sizes.extents,
                    sizes.extent_bytes));
  return ArenaLayout{.header = {ArenaOffset(0), kArenaHeaderBytes},
                     .index = {ArenaOffset(index), sizes.index_bytes},
                     .leases = {ArenaOffset(*leases), sizes.leases_bytes},
                     .extents = {ArenaOffset(*extents), *extents_bytes},
                     .total_bytes = *total};
}

SpaceOffset extent_start(const ArenaSizes& sizes, ExtentNumber extent) {
  TIERCEL_CHECK(extent.value() < sizes.extents);
  return SpaceOffset(extent.value() * sizes.extent_bytes);
}

ArenaOffset arena_offset(const ArenaLayout& layout, SpaceOffset offset) {
  TIERCEL_CHECK(offset.value() < layout.extents.bytes);
  return ArenaOffset(layout.extents.offset.value() + offset.value());
}

void encode_arena_header(const ArenaHeader& header, MutableByteView out) {
  const Result<ArenaLayout> layout = arena_layout(header.sizes);
  TIERCEL_CHECK(layout && header.epoch != 0 && out.size() == kArenaHeaderBytes);
  HeaderBytes bytes{};
  std::transform(kMagic.begin(), kMagic.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  store_le(&bytes[kVersionAt], kArenaVersion);
  store_le(&bytes[kHeaderBytesAt], static_cast<std::uint32_t>(kArenaHeaderBytes));
  store_le(&bytes[kEpochAt], header.epoch);
  store_le(&bytes[kTotalAt], layout->total_bytes);
  store_le(&bytes[kIndexAt], layout->index.offset.value());
  store_le(&bytes[kIndexBytesAt], layout->index.bytes);
  store_le(&bytes[kLeasesAt], layout->leases.offset.value());
  store_le(&bytes[kLeasesBytesAt], layout->leases.bytes);
  store_le(&bytes[kExtentsAt], layout->extents.offset.value());
  store_le(&bytes[kExtentBytesAt], header.sizes.extent_bytes);
  store_le(&bytes[kExtentCountAt], header.sizes.extents);
  store_le(&bytes[kChecksumAt], crc32c(ByteView(bytes).first(kChecksumAt)));
  std::copy(bytes.begin(), bytes.end(), out.begin());
}

Result<ArenaHeader> decode_arena_header(ByteView shared, std::uint64_t image_bytes) {
  if (shared.size() < kArenaHeaderBytes)
    return tl::unexpected(
        differs("size", fmt::format("at least {} bytes", kArenaHeaderBytes), shared.size()));
  HeaderBytes bytes;
  std::copy_n(shared.begin(), bytes.size(), bytes.begin());
  TIERCEL_RETURN_IF_ERROR(check_frame(bytes));
  const auto header_bytes = load_le<std::uint32_t>(&bytes[kHeaderBytesAt]);
  if (header_bytes != kArenaHeaderBytes)
    return tl::unexpected(differs("header bytes", kArenaHeaderBytes, header_bytes));
  const ByteView unused = ByteView(bytes).subspan(kUnusedAt, kChecksumAt - kUnusedAt);
  if (std::any_of(unused.begin(), unused.end(), [](std::byte b) { return b != std::byte{0}; }))
    return tl::unexpected(differs("unused bytes", "0", "another value"));
  const ArenaHeader header{.epoch = u64_at(bytes, kEpochAt),
                           .sizes = {.index_bytes = u64_at(bytes, kIndexBytesAt),
                                     .leases_bytes = u64_at(bytes, kLeasesBytesAt),
                                     .extent_bytes = u64_at(bytes, kExtentBytesAt),
                                     .extents = u64_at(bytes, kExtentCountAt)}};
  if (header.epoch == 0) return tl::unexpected(differs("epoch", "not 0", 0));
  const Result<ArenaLayout> layout = arena_layout(header.sizes);
  if (!layout) return tl::unexpected(differs("sizes", "those of an arena", layout.error().message));
  TIERCEL_RETURN_IF_ERROR(check_offsets(bytes, *layout, image_bytes));
  return header;
}

}  // namespace tiercel
