// Every byte of a log on the drive that is not a record: superblock, region header, segment directory,
// region footer, image header. Little-endian; each block carries magic, version, the log's uuid and a CRC32C
// of itself. docs/format.md has the same in words.
//
// Threads: pure functions and plain values. Parsers never read beyond what they are given, allocate no more
// than its length, and believe no number in it before it was checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "disk/disk_options.h"
#include "model/key_chain.h"

namespace tiercel::disk {

inline constexpr std::uint16_t kDiskVersion = 1;
// Where the superblock of that sequence stands: they are written in turn.
std::uint64_t superblock_place(std::uint64_t sequence);
inline constexpr std::uint64_t kAtMax =
    (1ULL << 40) - 1;  // highest number of an entry: the index keeps 40 bits
using Uuid = std::array<std::byte, 16>;

// At offsets 0 and kBlockBytes; written in turn, the higher `sequence` holds.
struct Superblock {
  Uuid uuid{};
  std::uint64_t sequence = 0;
  std::uint64_t epoch = 0;  // openings for writing
  DiskGeometry geometry;    // host_bytes is not kept
  // The image that holds: 0 or 1; nothing: none yet.
  std::optional<std::uint32_t> image;
  std::uint64_t image_sequence = 0;  // in that image's header, too
  bool closed = false;               // closed in order: nothing lies behind the image
  friend bool operator==(const Superblock&, const Superblock&) = default;
};

// First block of a region.
struct RegionHeader {
  Uuid uuid{};
  std::uint32_t region = 0;
  std::uint64_t life = 0;      // never falls, never 0 in a written header; higher in each use of any region
  std::uint64_t first_at = 0;  // number of the first entry that it will hold
  friend bool operator==(const RegionHeader&, const RegionHeader&) = default;
};

enum class EntryKind : std::uint8_t {
  kClassSet = 1,
  kRemovePage = 2,  // the page and all below it that was born before
  kClearSpace = 3,
  kClearForm = 4,  // `weights_epoch` in `length`; the form's fingerprint in key and parent: set_form()
  kName = 5,       // a namespace: the payload is Catalogue::encode_name(), which checks itself
  kLeftOut = 6,    // in a mark: the entry of that name whose payload begins at block `length` does not count
};

// One entry of a directory or footer: 64 bytes. What a kind has no use for is zero: encoders insist on it,
// parsers refuse the rest. A class-set has all of it, with `blocks` a multiple of `shards`; a removal has
// space, key and born; a clear of a namespace space and born; of a form key, parent, length and born; a name
// space, born and a payload; what is left out space, key, length and born.
struct Descriptor {
  EntryKind kind = EntryKind::kClassSet;
  ClassId cls;              // below 256
  std::uint32_t space = 0;  // DiskSpaceId
  Key key, parent;
  std::uint64_t born = 0;    // = its place in the log's numbering, unless it was re-inserted
  std::uint64_t length = 0;  // pages of the prefix, or the epoch of kClearForm
  std::uint16_t shards = 0;
  std::uint32_t block = 0;   // of its first byte, in blocks from the region's start
  std::uint32_t blocks = 0;  // 0: no payload
  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};
inline constexpr std::uint64_t kDescriptorBytes = 64;
void set_form(Descriptor& descriptor, const Digest& form);
Digest form_of(const Descriptor& descriptor);

// Head of a segment; its descriptors follow at once, then its entries from the next whole block on.
struct SegmentHead {
  Uuid uuid{};
  std::uint64_t life = 0;        // of its region
  std::uint64_t epoch = 0;       // of the opening that wrote it
  std::uint64_t first_at = 0;    // of its first descriptor; the others count on
  std::uint64_t durable_at = 0;  // what was durable when it was written
  std::uint32_t block = 0;       // where it stands in its region
  std::uint32_t blocks = 0;      // of the whole segment, this directory included
  std::uint32_t entries = 0;
  // CRC32C over the first block of each record of its class-sets, as they stand on the drive, in order: what
  // an earlier use left under a new directory may be a whole record of the same name.
  std::uint32_t records_crc = 0;
  friend bool operator==(const SegmentHead&, const SegmentHead&) = default;
};
inline constexpr std::uint64_t kSegmentHeadBytes = 128;

// At a region's very end: descriptors of all of it, then a tail of 128 bytes that ends with the last block.
struct FooterTail {
  Uuid uuid{};
  std::uint32_t region = 0;
  std::uint64_t life = 0;
  std::uint64_t first_at = 0, last_at = 0;  // numbers of its entries; not all between need be there
  std::uint32_t entries = 0;
  friend bool operator==(const FooterTail&, const FooterTail&) = default;
};
inline constexpr std::uint64_t kFooterTailBytes = 128;

// First block of an image: what it holds and of which length; the catalogue's bytes follow from the next
// block on, then the table's chunks (kImageChunkBytes each), then one u32 CRC32C for each chunk and one for
// the catalogue (the header has theirs).
struct ImageHeader {
  Uuid uuid{};
  std::uint64_t sequence = 0;
  std::uint64_t from_at = 0;  // all entries up to it are in; later ones may be
  std::uint64_t to_at = 0;    // nothing later is in
  std::uint64_t last_life = 0;
  std::uint64_t from_life = 0;  // what lies in regions of lower lives is in, or does not count
  std::uint64_t index_buckets = 0;
  std::uint64_t catalogue_used = 0;
  std::uint32_t checksums_crc = 0;
  friend bool operator==(const ImageHeader&, const ImageHeader&) = default;
};
inline constexpr std::uint64_t kImageChunkBytes = 1ULL << 20;

// Where an image's parts lie, from its start; whole blocks each.
struct ImageLayout {
  std::uint64_t catalogue_at = 0, catalogue_bytes = 0;  // Catalogue, then Removals; catalogue_used of it
  std::uint64_t table_at = 0, table_bytes = 0;  // the table's own bytes, without the last block's rest
  std::uint64_t chunks = 0;                     // of kImageChunkBytes; the last one may be shorter
  std::uint64_t checksums_at = 0, checksums_bytes = 0;  // (chunks + 1) × u32, without the last block's rest
  std::uint64_t bytes = 0;                              // of the whole image
};
// Requires: sizes of a geometry that was planned or parsed.
ImageLayout image_layout(std::uint64_t index_buckets, std::uint64_t catalogue_bytes);

// What a drive of `size_bytes` becomes; what lies behind its last whole block is left out of it. Errors:
// invalid_argument naming the option or the size wanted: at least four regions.
Result<DiskGeometry> plan_geometry(const DiskLogOptions& options, std::uint64_t size_bytes);
// Whether a geometry fits together. Errors: data_corrupt naming the field.
Status check_geometry(const DiskGeometry& geometry);
// DiskGeometry::host_bytes of a log that was made with other options than it is opened with.
std::uint64_t host_bytes_of(const DiskGeometry& geometry, const DiskLogOptions& options);
// Of catalogue_bytes, what the Catalogue may take so that Removals always fit behind it.
std::uint64_t names_bytes_max(const DiskGeometry& geometry);

// Whether these bytes are nothing but zeros: a drive that holds no log.
bool is_blank(ByteView bytes);

// Blocks of kBlockBytes each. parse_*: data_corrupt naming the field (wanted, got); failed_precondition: of
// another version (magic right), told with both numbers. What encoders are given must be what parsers accept.
std::vector<std::byte> encode(const Superblock& superblock);
Result<Superblock> parse_superblock(ByteView block);
std::vector<std::byte> encode(const RegionHeader& header);
Result<RegionHeader> parse_region_header(ByteView block);
std::vector<std::byte> encode(const ImageHeader& header);
Result<ImageHeader> parse_image_header(ByteView block);

// Whole blocks: head, descriptors, zeros. The CRC covers head and descriptors. The entries' payloads lie
// behind the directory, within the segment, in order.
std::vector<std::byte> encode_directory(const SegmentHead& head, std::span<const Descriptor> entries);
std::uint64_t directory_bytes(std::uint64_t entries);
// Of the first block alone: how long the directory is, before all of it was read.
Result<SegmentHead> parse_segment_head(ByteView first_block);  // its CRC is not checked yet
// `bytes` starts with it and may go on.
struct Directory {
  SegmentHead head;
  std::vector<Descriptor> entries;
};
Result<Directory> parse_directory(ByteView bytes);

// Whole blocks: descriptors, zeros, tail. The CRC covers descriptors and tail.
std::vector<std::byte> encode_footer(const FooterTail& tail, std::span<const Descriptor> entries);
std::uint64_t footer_bytes(std::uint64_t entries);
Result<FooterTail> parse_footer_tail(ByteView last_block);  // the CRC is not checked yet
// `bytes` ends with it and may begin earlier.
struct Footer {
  FooterTail tail;
  std::vector<Descriptor> entries;
};
Result<Footer> parse_footer(ByteView bytes);

}  // namespace tiercel::disk
