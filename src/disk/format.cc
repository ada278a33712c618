#include "disk/format.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "os/block_device.h"

namespace tiercel::disk {
namespace {

// What all five have in front; docs/format.md has the tables.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kFrameZeroAt = 10;
constexpr std::size_t kUuidAt = 16;
constexpr std::size_t kBodyAt = 32;
constexpr std::size_t kCrcBytes = 4;

struct Kind {
  std::string_view name, magic;
};
constexpr Kind kSuperblock{"superblock", "TIERCLOG"};
constexpr Kind kRegion{"region header", "TIERCRGN"};
constexpr Kind kSegment{"segment", "TIERCSEG"};
constexpr Kind kFooter{"region footer", "TIERCFTR"};
constexpr Kind kImage{"index image", "TIERCIMG"};

// In order, or why not.
using Checked = Result<void>;

tl::unexpected<Status> differs(const Kind& kind, std::string_view field, const auto& wanted,
                               const auto& got) {
  return error(Code::kDataCorrupt, fmt::format("{}: {}: wanted {}, got {}", kind.name, field, wanted, got));
}

bool all_zero(ByteView bytes) {
  return bytes.empty() ||
         (bytes[0] == std::byte{0} && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

std::string hex(ByteView bytes) {
  std::string out;
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<int>(b));
  return out;
}

Checked check_crc(const Kind& kind, std::uint32_t wanted, std::uint32_t got) {
  if (wanted == got) return {};
  return differs(kind, "checksum", fmt::format("{:#010x}", wanted), fmt::format("{:#010x}", got));
}

// What must be right before any other field means anything. Another version may have its checksum elsewhere,
// so it is told apart before that.
Checked check_frame(const Kind& kind, ByteView head) {
  const ByteView magic = head.first(kind.magic.size());
  if (!std::equal(magic.begin(), magic.end(), as_byte_view(kind.magic).begin()))
    return differs(kind, "magic", hex(as_byte_view(kind.magic)), hex(magic));
  const auto version = load_le<std::uint16_t>(head.data() + kVersionAt);
  if (version != kDiskVersion)
    return error(
        Code::kFailedPrecondition,
        fmt::format("{}: format version: wanted {}, got {}; left as it is: open it with a program that "
                    "knows version {}, or give another path",
                    kind.name, kDiskVersion, version, version));
  if (!all_zero(head.subspan(kFrameZeroAt, kUuidAt - kFrameZeroAt)))
    return differs(kind, "unused bytes", "0", "another value");
  return {};
}

// Of a block that is one by itself.
Checked check_block(const Kind& kind, ByteView block) {
  if (block.size() != kBlockBytes) return differs(kind, "size", kBlockBytes, block.size());
  TIERCEL_RETURN_IF_ERROR(check_frame(kind, block));
  const std::size_t checked = kBlockBytes - kCrcBytes;
  return check_crc(kind, load_le<std::uint32_t>(block.data() + checked), crc32c(block.first(checked)));
}

Checked check_number(const Kind& kind, std::string_view field, std::uint64_t got, std::uint64_t least,
                     std::uint64_t most) {
  if (got >= least && got <= most) return {};
  return differs(kind, field, fmt::format("{} to {}", least, most), got);
}

// Fields one behind the other.
class Writer final {
 public:
  Writer(const Kind& kind, MutableByteView out, const Uuid& uuid) : out_(out) {
    const ByteView magic = as_byte_view(kind.magic);
    std::copy(magic.begin(), magic.end(), out.begin());
    store_le(&out[kVersionAt], kDiskVersion);
    std::copy(uuid.begin(), uuid.end(), out.begin() + kUuidAt);
  }
  template <typename UInt>
  Writer& put(UInt value) {
    store_le(&out_[at_], value);
    at_ += sizeof(UInt);
    return *this;
  }

 private:
  MutableByteView out_;
  std::size_t at_ = kBodyAt;
};

class Reader final {
 public:
  explicit Reader(ByteView in, std::size_t at = kBodyAt) : in_(in), at_(at) {}
  Uuid uuid() const {
    Uuid uuid;
    std::copy_n(in_.begin() + kUuidAt, uuid.size(), uuid.begin());
    return uuid;
  }
  template <typename UInt>
  void take(UInt& value) {
    value = load_le<UInt>(in_.data() + at_);
    at_ += sizeof(UInt);
  }
  // Whether nothing but zeros follows up to `end`.
  Checked rest(const Kind& kind, std::size_t end) const {
    if (all_zero(in_.subspan(at_, end - at_))) return {};
    return differs(kind, "unused bytes", "0", "another value");
  }

 private:
  ByteView in_;
  std::size_t at_;
};

std::vector<std::byte> sealed_block(std::vector<std::byte> block) {
  const std::size_t checked = kBlockBytes - kCrcBytes;
  store_le(&block[checked], crc32c(ByteView(block).first(checked)));
  return block;
}

// ---- descriptors ----

// What a kind that is no class-set has besides its number.
struct Fields {
  bool key = false, parent = false, length = false, payload = false;
};

Checked check_nothing_else(const Kind& kind, const Descriptor& d, Fields has) {
  const bool fits = (has.key || d.key == Key{}) && (has.parent || d.parent == Key{}) &&
                    (has.length || d.length == 0) && (has.payload || d.blocks == 0) && d.cls == ClassId(0) &&
                    d.shards == 0;
  if (fits) return {};
  return differs(kind, "entry", "no more fields than its kind has", "others, too");
}

Checked check_kind(const Kind& kind, const Descriptor& d) {
  switch (d.kind) {
    case EntryKind::kClassSet:
      if (d.cls.value() > 0xFF) return differs(kind, "entry's class", "at most 255", d.cls.value());
      if (d.shards == 0 || d.blocks == 0 || d.blocks % d.shards != 0)
        return differs(kind, "entry's blocks", fmt::format("as many for each of {} shards", d.shards),
                       d.blocks);
      return {};
    case EntryKind::kRemovePage:
      return check_nothing_else(kind, d, {.key = true});
    case EntryKind::kClearSpace:
      return check_nothing_else(kind, d, {});
    case EntryKind::kClearForm:
      return check_nothing_else(kind, d, {.key = true, .parent = true, .length = true});
    case EntryKind::kName:
      if (d.blocks == 0) return differs(kind, "entry's blocks", "at least 1", d.blocks);
      return check_nothing_else(kind, d, {.payload = true});
    case EntryKind::kLeftOut:
      return check_nothing_else(kind, d, {.key = true, .length = true});
  }
  return differs(kind, "entry's kind", "1 to 6", static_cast<int>(d.kind));
}

// Where payloads may lie, ascending.
struct Room {
  std::uint64_t from = 0, end = 0;  // blocks of the region
};

Checked check_entry(const Kind& kind, const Descriptor& d, std::uint64_t at_max, Room& room) {
  TIERCEL_RETURN_IF_ERROR(check_kind(kind, d));
  TIERCEL_RETURN_IF_ERROR(check_number(kind, "entry's number", d.born, 1, at_max));
  if ((d.space == 0) != (d.kind == EntryKind::kClearForm))
    return differs(kind, "entry's namespace", d.space == 0 ? "not 0" : "0", d.space);
  if (d.blocks == 0) return check_number(kind, "entry's place without a payload", d.block, 0, 0);
  const std::uint64_t end = std::uint64_t{d.block} + d.blocks;
  if (d.block < room.from || end > room.end)
    return differs(kind, "entry's place", fmt::format("blocks {} to {}", room.from, room.end),
                   fmt::format("{} to {}", d.block, end));
  room.from = end;
  return {};
}

void put_descriptor(const Descriptor& d, std::byte* to) {
  store_le(to, static_cast<std::uint8_t>(d.kind));
  store_le(to + 1, static_cast<std::uint8_t>(d.cls.value()));
  store_le(to + 2, d.shards);
  store_le(to + 4, d.space);
  store_le(to + 8, d.key.words[0]);
  store_le(to + 16, d.key.words[1]);
  store_le(to + 24, d.parent.words[0]);
  store_le(to + 32, d.parent.words[1]);
  store_le(to + 40, d.born);
  store_le(to + 48, d.length);
  store_le(to + 56, d.block);
  store_le(to + 60, d.blocks);
}

Descriptor descriptor_at(const std::byte* from) {
  Descriptor d;
  d.kind = static_cast<EntryKind>(from[0]);
  d.cls = ClassId(std::to_integer<std::uint8_t>(from[1]));
  d.shards = load_le<std::uint16_t>(from + 2);
  d.space = load_le<std::uint32_t>(from + 4);
  d.key.words = {load_le<std::uint64_t>(from + 8), load_le<std::uint64_t>(from + 16)};
  d.parent.words = {load_le<std::uint64_t>(from + 24), load_le<std::uint64_t>(from + 32)};
  d.born = load_le<std::uint64_t>(from + 40);
  d.length = load_le<std::uint64_t>(from + 48);
  d.block = load_le<std::uint32_t>(from + 56);
  d.blocks = load_le<std::uint32_t>(from + 60);
  return d;
}

std::vector<Descriptor> descriptors_at(const std::byte* from, std::size_t count) {
  std::vector<Descriptor> entries;
  entries.reserve(count);
  for (std::size_t i = 0; i < count; ++i) entries.push_back(descriptor_at(from + i * kDescriptorBytes));
  return entries;
}

// ---- what values a block may have; encoders insist on it, parsers refuse the rest ----

constexpr std::uint64_t kCountMax = 1ULL << 62;  // of what only counts upwards: nobody gets there

Checked check_values(const Superblock& s) {
  TIERCEL_RETURN_IF_ERROR(check_geometry(s.geometry));
  TIERCEL_RETURN_IF_ERROR(check_number(kSuperblock, "sequence", s.sequence, 0, kCountMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kSuperblock, "epoch", s.epoch, 0, kCountMax));
  if (s.image && *s.image > 1) return differs(kSuperblock, "image", "0 or 1", *s.image);
  if (!s.image && (s.image_sequence != 0 || s.closed))
    return differs(kSuperblock, "image", "one, when it has a sequence or the log is closed", "none");
  return {};
}

Checked check_values(const RegionHeader& header) {
  TIERCEL_RETURN_IF_ERROR(check_number(kRegion, "life", header.life, 1, kCountMax));
  return check_number(kRegion, "first entry's number", header.first_at, 1, kAtMax);
}

Checked check_values(const ImageHeader& header) {
  TIERCEL_RETURN_IF_ERROR(check_number(kImage, "last entry's number", header.to_at, 0, kAtMax));
  TIERCEL_RETURN_IF_ERROR(
      check_number(kImage, "number from which on it holds", header.from_at, 0, header.to_at));
  TIERCEL_RETURN_IF_ERROR(check_number(kImage, "last life", header.last_life, 0, kCountMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kImage, "first life", header.from_life, 1, header.last_life + 1));
  return check_number(kImage, "buckets", header.index_buckets, 1, kSizeMax / kBlockBytes);
}

Checked check_values(const SegmentHead& head) {
  TIERCEL_RETURN_IF_ERROR(check_number(kSegment, "life", head.life, 1, kCountMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kSegment, "first entry's number", head.first_at, 1, kAtMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kSegment, "entries", head.entries, 0, kAtMax - head.first_at + 1));
  TIERCEL_RETURN_IF_ERROR(check_number(kSegment, "durable number", head.durable_at, 0, kAtMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kSegment, "place", head.block, 1, UINT32_MAX - head.blocks));
  return check_number(kSegment, "blocks", head.blocks, directory_bytes(head.entries) / kBlockBytes,
                      UINT32_MAX);
}

Checked check_entries(const SegmentHead& head, std::span<const Descriptor> entries) {
  Room room{head.block + directory_bytes(head.entries) / kBlockBytes,
            std::uint64_t{head.block} + head.blocks};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    TIERCEL_RETURN_IF_ERROR(check_entry(kSegment, entries[i], head.first_at + i, room));
    if (entries[i].kind == EntryKind::kLeftOut)
      TIERCEL_RETURN_IF_ERROR(
          check_number(kSegment, "place of what is left out", entries[i].length, 1, head.block - 1));
  }
  return {};
}

Checked check_values(const FooterTail& tail) {
  TIERCEL_RETURN_IF_ERROR(check_number(kFooter, "life", tail.life, 1, kCountMax));
  TIERCEL_RETURN_IF_ERROR(check_number(kFooter, "first entry's number", tail.first_at, 1, kAtMax));
  TIERCEL_RETURN_IF_ERROR(
      check_number(kFooter, "last entry's number", tail.last_at, tail.first_at - 1, kAtMax));
  return check_number(kFooter, "entries", tail.entries, 0, tail.last_at + 1 - tail.first_at);
}

Checked check_entries(const FooterTail& tail, std::span<const Descriptor> entries) {
  Room room{1, UINT32_MAX};
  for (const Descriptor& d : entries) {
    if (d.kind == EntryKind::kLeftOut)
      return differs(kFooter, "entry's kind", "1 to 5", static_cast<int>(d.kind));
    TIERCEL_RETURN_IF_ERROR(check_entry(kFooter, d, tail.last_at, room));
  }
  return {};
}

std::uint64_t whole_blocks(std::uint64_t bytes) { return ceil_div(bytes, kBlockBytes) * kBlockBytes; }

}  // namespace

void set_form(Descriptor& descriptor, const Digest& form) {
  descriptor.key.words = {load_le<std::uint64_t>(form.data()), load_le<std::uint64_t>(form.data() + 8)};
  descriptor.parent.words = {load_le<std::uint64_t>(form.data() + 16),
                             load_le<std::uint64_t>(form.data() + 24)};
}

Digest form_of(const Descriptor& descriptor) {
  Digest form;
  store_le(form.data(), descriptor.key.words[0]);
  store_le(form.data() + 8, descriptor.key.words[1]);
  store_le(form.data() + 16, descriptor.parent.words[0]);
  store_le(form.data() + 24, descriptor.parent.words[1]);
  return form;
}

std::uint64_t superblock_place(std::uint64_t sequence) {
  return TIERCEL_FAULT(superblock_single) ? 0 : (sequence & 1) * kBlockBytes;
}

bool is_blank(ByteView bytes) { return all_zero(bytes); }

std::vector<std::byte> encode(const Superblock& superblock) {
  TIERCEL_CHECK(check_values(superblock));
  const DiskGeometry& g = superblock.geometry;
  std::vector<std::byte> block(kBlockBytes);
  Writer(kSuperblock, block, superblock.uuid)
      .put(superblock.sequence)
      .put(superblock.epoch)
      .put(g.size_bytes)
      .put(g.region_bytes)
      .put(g.regions)
      .put(g.index_buckets)
      .put(g.catalogue_bytes)
      .put(g.removals_max)
      .put(g.image_offset[0])
      .put(g.image_offset[1])
      .put(g.image_bytes)
      .put(g.regions_offset)
      .put(superblock.image_sequence)
      .put(superblock.image ? *superblock.image + 1 : std::uint32_t{0})
      .put(std::uint32_t{superblock.closed});
  return sealed_block(std::move(block));
}

Result<Superblock> parse_superblock(ByteView block) {
  TIERCEL_RETURN_IF_ERROR(check_block(kSuperblock, block));
  Reader in(block);
  Superblock s;
  DiskGeometry& g = s.geometry;
  s.uuid = in.uuid();
  in.take(s.sequence);
  in.take(s.epoch);
  for (std::uint64_t* value :
       {&g.size_bytes, &g.region_bytes, &g.regions, &g.index_buckets, &g.catalogue_bytes, &g.removals_max,
        &g.image_offset[0], &g.image_offset[1], &g.image_bytes, &g.regions_offset, &s.image_sequence})
    in.take(*value);
  std::uint32_t image = 0, closed = 0;
  in.take(image);
  in.take(closed);
  TIERCEL_RETURN_IF_ERROR(in.rest(kSuperblock, kBlockBytes - kCrcBytes));
  TIERCEL_RETURN_IF_ERROR(check_number(kSuperblock, "image", image, 0, 2));
  TIERCEL_RETURN_IF_ERROR(check_number(kSuperblock, "closed", closed, 0, 1));
  if (image != 0) s.image = image - 1;
  s.closed = closed != 0;
  TIERCEL_RETURN_IF_ERROR(check_values(s));
  return s;
}

std::vector<std::byte> encode(const RegionHeader& header) {
  TIERCEL_CHECK(check_values(header).has_value());
  std::vector<std::byte> block(kBlockBytes);
  Writer(kRegion, block, header.uuid)
      .put(header.region)
      .put(std::uint32_t{0})
      .put(header.life)
      .put(header.first_at);
  return sealed_block(std::move(block));
}

Result<RegionHeader> parse_region_header(ByteView block) {
  TIERCEL_RETURN_IF_ERROR(check_block(kRegion, block));
  Reader in(block);
  RegionHeader header;
  std::uint32_t zero = 0;
  header.uuid = in.uuid();
  in.take(header.region);
  in.take(zero);
  in.take(header.life);
  in.take(header.first_at);
  TIERCEL_RETURN_IF_ERROR(in.rest(kRegion, kBlockBytes - kCrcBytes));
  TIERCEL_RETURN_IF_ERROR(check_number(kRegion, "unused bytes", zero, 0, 0));
  TIERCEL_RETURN_IF_ERROR(check_values(header));
  return header;
}

std::vector<std::byte> encode(const ImageHeader& header) {
  TIERCEL_CHECK(check_values(header).has_value());
  std::vector<std::byte> block(kBlockBytes);
  Writer(kImage, block, header.uuid)
      .put(header.sequence)
      .put(header.from_at)
      .put(header.to_at)
      .put(header.last_life)
      .put(header.from_life)
      .put(header.index_buckets)
      .put(header.catalogue_used)
      .put(header.checksums_crc);
  return sealed_block(std::move(block));
}

Result<ImageHeader> parse_image_header(ByteView block) {
  TIERCEL_RETURN_IF_ERROR(check_block(kImage, block));
  Reader in(block);
  ImageHeader header;
  header.uuid = in.uuid();
  in.take(header.sequence);
  in.take(header.from_at);
  in.take(header.to_at);
  in.take(header.last_life);
  in.take(header.from_life);
  in.take(header.index_buckets);
  in.take(header.catalogue_used);
  in.take(header.checksums_crc);
  TIERCEL_RETURN_IF_ERROR(in.rest(kImage, kBlockBytes - kCrcBytes));
  TIERCEL_RETURN_IF_ERROR(check_values(header));
  return header;
}

std::uint64_t directory_bytes(std::uint64_t entries) {
  return whole_blocks(kSegmentHeadBytes + entries * kDescriptorBytes);
}

std::vector<std::byte> encode_directory(const SegmentHead& head, std::span<const Descriptor> entries) {
  TIERCEL_CHECK(head.entries == entries.size());
  TIERCEL_CHECK(check_values(head).has_value() && check_entries(head, entries).has_value());
  std::vector<std::byte> bytes(directory_bytes(entries.size()));
  Writer(kSegment, bytes, head.uuid)
      .put(head.life)
      .put(head.epoch)
      .put(head.first_at)
      .put(head.durable_at)
      .put(head.block)
      .put(head.blocks)
      .put(head.entries)
      .put(head.records_crc);
  for (std::size_t i = 0; i < entries.size(); ++i)
    put_descriptor(entries[i], &bytes[kSegmentHeadBytes + i * kDescriptorBytes]);
  const std::size_t checked = kSegmentHeadBytes - kCrcBytes;
  const ByteView list = ByteView(bytes).subspan(kSegmentHeadBytes, entries.size() * kDescriptorBytes);
  store_le(&bytes[checked], crc32c(list, crc32c(ByteView(bytes).first(checked))));
  return bytes;
}

Result<SegmentHead> parse_segment_head(ByteView first_block) {
  if (first_block.size() < kBlockBytes) return differs(kSegment, "size", "at least 4096", first_block.size());
  TIERCEL_RETURN_IF_ERROR(check_frame(kSegment, first_block));
  Reader in(first_block);
  SegmentHead head;
  head.uuid = in.uuid();
  in.take(head.life);
  in.take(head.epoch);
  in.take(head.first_at);
  in.take(head.durable_at);
  in.take(head.block);
  in.take(head.blocks);
  in.take(head.entries);
  in.take(head.records_crc);
  TIERCEL_RETURN_IF_ERROR(in.rest(kSegment, kSegmentHeadBytes - kCrcBytes));
  TIERCEL_RETURN_IF_ERROR(check_values(head));
  return head;
}

Result<Directory> parse_directory(ByteView bytes) {
  Directory directory;
  TIERCEL_ASSIGN_OR_RETURN(directory.head, parse_segment_head(bytes));
  const std::uint64_t size = directory_bytes(directory.head.entries);
  if (size > bytes.size()) return differs(kSegment, "size", fmt::format("at least {}", size), bytes.size());
  const ByteView list = bytes.subspan(kSegmentHeadBytes, directory.head.entries * kDescriptorBytes);
  const std::size_t checked = kSegmentHeadBytes - kCrcBytes;
  TIERCEL_RETURN_IF_ERROR(check_crc(kSegment, load_le<std::uint32_t>(bytes.data() + checked),
                                    crc32c(list, crc32c(bytes.first(checked)))));
  TIERCEL_RETURN_IF_ERROR(Reader(bytes, kSegmentHeadBytes + list.size()).rest(kSegment, size));
  directory.entries = descriptors_at(list.data(), directory.head.entries);
  TIERCEL_RETURN_IF_ERROR(check_entries(directory.head, directory.entries));
  return directory;
}

std::uint64_t footer_bytes(std::uint64_t entries) {
  return whole_blocks(kFooterTailBytes + entries * kDescriptorBytes);
}

std::vector<std::byte> encode_footer(const FooterTail& tail, std::span<const Descriptor> entries) {
  TIERCEL_CHECK(tail.entries == entries.size());
  TIERCEL_CHECK(check_values(tail).has_value() && check_entries(tail, entries).has_value());
  std::vector<std::byte> bytes(footer_bytes(entries.size()));
  for (std::size_t i = 0; i < entries.size(); ++i) put_descriptor(entries[i], &bytes[i * kDescriptorBytes]);
  const MutableByteView last = MutableByteView(bytes).last(kFooterTailBytes);
  Writer(kFooter, last, tail.uuid)
      .put(tail.region)
      .put(std::uint32_t{0})
      .put(tail.life)
      .put(tail.first_at)
      .put(tail.last_at)
      .put(tail.entries);
  const std::size_t checked = kFooterTailBytes - kCrcBytes;
  const std::uint32_t crc = crc32c(ByteView(bytes).first(entries.size() * kDescriptorBytes));
  store_le(&last[checked], crc32c(last.first(checked), crc));
  return bytes;
}

Result<FooterTail> parse_footer_tail(ByteView last_block) {
  if (last_block.size() < kBlockBytes) return differs(kFooter, "size", "at least 4096", last_block.size());
  const ByteView last = last_block.last(kFooterTailBytes);
  TIERCEL_RETURN_IF_ERROR(check_frame(kFooter, last));
  Reader in(last);
  FooterTail tail;
  std::uint32_t zero = 0;
  tail.uuid = in.uuid();
  in.take(tail.region);
  in.take(zero);
  in.take(tail.life);
  in.take(tail.first_at);
  in.take(tail.last_at);
  in.take(tail.entries);
  TIERCEL_RETURN_IF_ERROR(in.rest(kFooter, kFooterTailBytes - kCrcBytes));
  TIERCEL_RETURN_IF_ERROR(check_number(kFooter, "unused bytes", zero, 0, 0));
  TIERCEL_RETURN_IF_ERROR(check_values(tail));
  return tail;
}

Result<Footer> parse_footer(ByteView bytes) {
  Footer footer;
  TIERCEL_ASSIGN_OR_RETURN(footer.tail, parse_footer_tail(bytes));
  const std::uint64_t size = footer_bytes(footer.tail.entries);
  if (size > bytes.size()) return differs(kFooter, "size", fmt::format("at least {}", size), bytes.size());
  const ByteView whole = bytes.last(size);
  const ByteView list = whole.first(footer.tail.entries * kDescriptorBytes);
  const ByteView last = whole.last(kFooterTailBytes);
  const std::size_t checked = kFooterTailBytes - kCrcBytes;
  TIERCEL_RETURN_IF_ERROR(check_crc(kFooter, load_le<std::uint32_t>(last.data() + checked),
                                    crc32c(last.first(checked), crc32c(list))));
  TIERCEL_RETURN_IF_ERROR(Reader(whole, list.size()).rest(kFooter, size - kFooterTailBytes));
  footer.entries = descriptors_at(list.data(), footer.tail.entries);
  TIERCEL_RETURN_IF_ERROR(check_entries(footer.tail, footer.entries));
  return footer;
}

}  // namespace tiercel::disk
