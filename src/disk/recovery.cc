#include "disk/recovery.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "disk/tail_scan.h"
#include "memory/record.h"

namespace tiercel::disk {
namespace {

// Looked at to tell a blank drive from one with somebody else's bytes.
constexpr std::uint64_t kBlankBytes = 1ULL << 20;
// Namespaces by number are looked up for each entry of an image: those up to here in an array.
constexpr std::uint32_t kSpacesInBits = 1U << 20;
constexpr std::string_view kSuperblockMagic = "TIERCLOG";

// Whether a block is what a power failure may leave of the first superblock: any of its sectors. Nobody
// else's bytes look like that.
bool torn_superblock(ByteView block) {
  constexpr std::size_t kSector = 512;
  const ByteView magic = as_byte_view(kSuperblockMagic);
  const ByteView first = block.first(kSector);
  const std::size_t crc_at = block.size() - sizeof(std::uint32_t);
  return (is_blank(first) || std::equal(magic.begin(), magic.end(), first.begin())) &&
         is_blank(block.subspan(kSector, crc_at - kSector));
}

Status refused(std::string_view what) { return {Code::kFailedPrecondition, fmt::format("disk: {}", what)}; }

}  // namespace

std::uint64_t Recovery::region_offset(std::uint32_t region) const {
  const DiskGeometry& g = found_.superblock.geometry;
  return g.regions_offset + region * g.region_bytes;
}

Result<std::optional<Superblock>> Recovery::find_superblock() {
  std::vector<std::byte> front(std::min(kBlankBytes, io_.drive().size_bytes() / kBlockBytes * kBlockBytes));
  if (front.size() < 2 * kBlockBytes)
    return error(Code::kInvalidArgument,
                 fmt::format("disk: size: wanted more, got {} bytes", io_.drive().size_bytes()));
  TIERCEL_RETURN_IF_ERROR(io_.read(0, front));
  if (is_blank(front)) return std::optional<Superblock>();
  std::optional<Superblock> best;
  std::string why;
  for (const std::uint64_t slot : {0U, 1U}) {
    const auto parsed = parse_superblock(ByteView(front).subspan(slot * kBlockBytes, kBlockBytes));
    if (!parsed && parsed.error().code == Code::kFailedPrecondition) return tl::unexpected(parsed.error());
    if (!parsed) why = parsed.error().message;
    if (parsed && (!best || parsed->sequence > best->sequence)) best = *parsed;
  }
  if (best && best->geometry.size_bytes > io_.drive().size_bytes())
    return tl::unexpected(refused(
        fmt::format("the log there was made for {} bytes, there are {}; left as it is: give it the old size",
                    best->geometry.size_bytes, io_.drive().size_bytes())));
  if (best) return best;
  // A first superblock that did not get whole: the log was never made.
  const auto rest_blank = [&](std::uint64_t slot) {
    return is_blank(ByteView(front).subspan((1 - slot) * kBlockBytes, kBlockBytes)) &&
           is_blank(ByteView(front).subspan(2 * kBlockBytes));
  };
  for (const std::uint64_t slot : {0U, 1U})
    if (rest_blank(slot) && torn_superblock(ByteView(front).subspan(slot * kBlockBytes, kBlockBytes)))
      return std::optional<Superblock>();
  return tl::unexpected(refused(fmt::format(
      "what is there is no log of ours ({}); left as it is: give another path, or wipe it", why)));
}

Status Recovery::claim(const DiskGeometry& geometry) {
  auto index = DiskIndex::create(geometry.index_buckets);
  if (!index) return index.error();
  found_.index.emplace(std::move(*index));
  found_.catalogue.emplace(names_bytes_max(geometry));
  found_.removals.emplace(geometry.removals_max);
  return {};
}

Status Recovery::recover(const Superblock& superblock, bool tolerant) {
  found_.superblock = superblock;
  const auto readable = [&]() -> Status {
    if (io_.gave_up()) return {Code::kIoError, "disk: the drive does not answer; nothing was changed"};
    if (tolerant || io_.unreadable().ok()) return {};
    return {Code::kIoError, io_.unreadable().message + "; nothing was changed"};
  };
  if (Status status = claim(superblock.geometry); !status.ok()) return status;
  read_regions();
  if (Status status = readable(); !status.ok()) return status;
  if (superblock.image)
    if (Status status = load_any_image(); !status.ok()) return status;
  if (Status status = readable(); !status.ok()) return status;
  order_regions();
  found_.counts.from_image = found_.index->size();
  const std::vector<Replay> replays = collect();
  if (Status status = readable(); !status.ok()) return status;
  learn_names(replays);
  if (!found_.superblock.image) learn_from_records(replays);
  // All of them, before those that nothing can be older than any more are forgotten.
  found_.removals->limit(UINT64_MAX);
  bool cleared = false;
  for (const Replay& replay : replays) cleared = remove(replay) || cleared;
  for (const DiskSpaceId id : found_.catalogue->all())
    if (const std::uint64_t at = found_.catalogue->form_cleared_at(found_.catalogue->name(id)->form); at != 0)
      found_.removals->clear_space(id, at);
  if (cleared)
    found_.index->sweep(0, found_.index->buckets(), [&](const IndexEntry& entry) {
      return entry.born >= found_.removals->cleared_at(DiskSpaceId(entry.space));
    });
  for (const Replay& replay : replays) put(replay);
  std::uint64_t oldest = UINT64_MAX;
  for (const RegionFound& region : found_.regions)
    if (region.life != 0) oldest = std::min(oldest, region.oldest_born);
  found_.removals->forget_below(oldest);
  found_.removals->limit(superblock.geometry.removals_max);
  return readable();
}

// ---- the image ----

// The one that the superblock names, or else the one before it: an image that stands in the other place with
// a lower sequence was once named by a superblock, so what it names was behind a flush.
Status Recovery::load_any_image() {
  const Superblock s = found_.superblock;
  found_.last_image = s.image_sequence;
  const std::array<std::array<std::uint64_t, 3>, 2> tries = {
      {{*s.image, s.image_sequence, s.image_sequence}, {1 - *s.image, 0, s.image_sequence - 1}}};
  for (const auto& [slot, least, most] : tries) {
    if (s.image_sequence == 0 && slot != *s.image) break;
    if (load_image(static_cast<std::uint32_t>(slot), least, most).ok()) return {};
    if (io_.gave_up()) return {};  // recover() tells
    ++found_.counts.images_damaged;
    found_.image_from_at = found_.image_from_life = 0;
    image_life_ = 0;
    for (RegionFound& region : found_.regions) region.oldest_born = UINT64_MAX;
    if (Status status = claim(s.geometry); !status.ok()) return status;
  }
  found_.image_lost = true;
  found_.superblock.image.reset();
  found_.superblock.image_sequence = 0;
  found_.superblock.closed = false;
  return {};
}

Status Recovery::load_image_alone(const Superblock& superblock, std::uint32_t slot) {
  found_.superblock = superblock;
  if (Status status = claim(superblock.geometry); !status.ok()) return status;
  return load_image(slot, 0, UINT64_MAX);
}

Status Recovery::load_image(std::uint32_t slot, std::uint64_t least, std::uint64_t most) {
  const DiskGeometry& g = found_.superblock.geometry;
  const std::uint64_t offset = g.image_offset[slot];
  const ImageLayout layout = image_layout(g.index_buckets, g.catalogue_bytes);
  std::vector<std::byte> block(kBlockBytes);
  if (Status status = io_.read(offset, block); !status.ok()) return status;
  const auto header = parse_image_header(block);
  if (!header) return header.error();
  const bool ours = header->uuid == found_.superblock.uuid && header->index_buckets == g.index_buckets &&
                    header->catalogue_used <= g.catalogue_bytes && header->sequence >= least &&
                    header->sequence <= most;
  if (!ours) return {Code::kDataCorrupt, "index image: of another log, or not the one that is named"};
  std::vector<std::byte> checksums(ceil_div(layout.checksums_bytes, kBlockBytes) * kBlockBytes);
  if (Status status = io_.read(offset + layout.checksums_at, checksums); !status.ok()) return status;
  const ByteView list = ByteView(checksums).first(layout.checksums_bytes);
  if (crc32c(list) != header->checksums_crc) return {Code::kDataCorrupt, "index image: checksums"};
  const auto names_crc = load_le<std::uint32_t>(&list[layout.chunks * sizeof(std::uint32_t)]);
  if (Status status = load_names(*header, offset + layout.catalogue_at, names_crc); !status.ok())
    return status;
  image_life_ = header->last_life;
  if (Status status = load_table(*header, offset + layout.table_at, list); !status.ok()) return status;
  found_.image_from_at = header->from_at;
  found_.image_from_life = header->from_life;
  found_.last_at = std::max(found_.last_at, header->to_at);
  found_.last_life = std::max(found_.last_life, header->last_life);
  found_.superblock.image = slot;
  found_.superblock.image_sequence = header->sequence;
  return {};
}

// Catalogue and removals.
Status Recovery::load_names(const ImageHeader& header, std::uint64_t offset, std::uint32_t crc) {
  std::vector<std::byte> names(ceil_div(header.catalogue_used, kBlockBytes) * kBlockBytes);
  if (!names.empty())
    if (Status status = io_.read(offset, names); !status.ok()) return status;
  const ByteView used = ByteView(names).first(header.catalogue_used);
  if (crc32c(used) != crc) return {Code::kDataCorrupt, "index image: checksum of the catalogue"};
  const auto read = found_.catalogue->load_from(used);
  if (!read) return read.error();
  const auto removals = found_.removals->load_from(used.subspan(*read));
  if (!removals) return removals.error();
  image_spaces_.assign(kSpacesInBits, false);
  for (const DiskSpaceId id : found_.catalogue->all())
    if (id.value() < kSpacesInBits) image_spaces_[id.value()] = true;
  return {};
}

// Straight into the index, many chunks at once; each is checked and taken while others are read. Whole blocks
// are read: the last chunk may end inside one.
Status Recovery::load_table(const ImageHeader& header, std::uint64_t offset, ByteView checksums) {
  const ImageLayout layout = image_layout(header.index_buckets, found_.superblock.geometry.catalogue_bytes);
  std::optional<std::uint64_t> damaged;
  const auto take = [&](std::uint64_t chunk) {
    if (damaged) return;
    const std::uint64_t at = chunk * kImageChunkBytes;
    const std::uint64_t length = std::min(kImageChunkBytes, layout.table_bytes - at);
    if (crc32c(found_.index->image(at, length)) != load_le<std::uint32_t>(&checksums[chunk * 4]))
      damaged = chunk;
    if (damaged) return;
    found_.index->take(at / kBucketBytes, length / kBucketBytes,
                       [&](const IndexEntry& entry) { return take_if_there(entry); });
  };
  std::vector<DriveIo::Range> ranges;
  std::vector<std::byte> last(ceil_div(layout.table_bytes % kImageChunkBytes, kBlockBytes) * kBlockBytes);
  for (std::uint64_t chunk = 0; chunk < layout.table_bytes / kImageChunkBytes; ++chunk) {
    const std::uint64_t at = chunk * kImageChunkBytes;
    ranges.push_back(
        {offset + at, found_.index->image_for_load(at, kImageChunkBytes), {}, true, [&take, chunk] {
           take(chunk);
         }});
  }
  if (!last.empty()) ranges.push_back({offset + ranges.size() * kImageChunkBytes, last, {}, false, {}});
  io_.read_all(ranges);
  for (const DriveIo::Range& range : ranges)
    if (!range.status.ok()) return range.status;
  if (!last.empty()) {
    const std::uint64_t at = (layout.chunks - 1) * kImageChunkBytes;
    const MutableByteView end = found_.index->image_for_load(at, layout.table_bytes - at);
    std::copy_n(last.begin(), end.size(), end.begin());
    take(layout.chunks - 1);
  }
  if (damaged) return {Code::kDataCorrupt, fmt::format("index image: checksum of chunk {}", *damaged)};
  return {};
}

// Whether what an image says is of a region that was not used again since, and of a namespace that it names.
// If so its number counts for that region.
bool Recovery::take_if_there(const IndexEntry& entry) {
  const bool named = entry.space < image_spaces_.size()
                         ? image_spaces_[entry.space]
                         : found_.catalogue->name(DiskSpaceId(entry.space)) != nullptr;
  if (!named) return false;
  if (found_.regions.empty()) return true;  // an image alone
  const std::uint32_t number = entry.block / static_cast<std::uint32_t>(region_blocks());
  if (number >= found_.regions.size()) return false;
  RegionFound& region = found_.regions[number];
  const bool holds = region.life != 0 && region.life <= image_life_ && low_byte(region.life) == entry.life;
  if (!holds && !TIERCEL_FAULT(stale_life_ignored)) return false;
  region.oldest_born = std::min(region.oldest_born, entry.born);
  return true;
}

// ---- regions ----

// The header of each.
void Recovery::read_regions() {
  constexpr std::uint32_t kAtOnce = 1024;
  const auto regions = static_cast<std::uint32_t>(found_.superblock.geometry.regions);
  found_.regions.resize(regions);
  std::vector<std::byte> blocks(std::min(kAtOnce, regions) * kBlockBytes);
  for (std::uint32_t first = 0; first < regions; first += kAtOnce) {
    const std::uint32_t count = std::min(kAtOnce, regions - first);
    std::vector<DriveIo::Range> ranges(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      ranges[i].offset = region_offset(first + i);
      ranges[i].into = MutableByteView(blocks).subspan(i * kBlockBytes, kBlockBytes);
    }
    io_.read_all(ranges);
    for (std::uint32_t i = 0; i < count; ++i) {
      RegionFound& region = found_.regions[first + i];
      const auto header = parse_region_header(ranges[i].into);
      if (ranges[i].status.ok() && header && header->uuid == found_.superblock.uuid &&
          header->region == first + i) {
        region.life = header->life;
        region.first_at = header->first_at;
      } else {
        region.header_damaged = !ranges[i].status.ok() || !is_blank(ranges[i].into);
      }
    }
  }
}

void Recovery::order_regions() {
  for (std::uint32_t i = 0; i < found_.regions.size(); ++i) {
    const RegionFound& region = found_.regions[i];
    if (region.life == 0) continue;
    found_.order.push_back(i);
    found_.last_life = std::max(found_.last_life, region.life);
    found_.last_at = std::max(found_.last_at, region.first_at - 1);
  }
  std::sort(found_.order.begin(), found_.order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(found_.regions[a].life, a) < std::pair(found_.regions[b].life, b);
  });
}

Result<Footer> Recovery::read_footer(std::uint32_t region) {
  const std::uint64_t end = region_offset(region) + found_.superblock.geometry.region_bytes;
  std::vector<std::byte> last(kBlockBytes);
  TIERCEL_RETURN_IF_ERROR(io_.read(end - kBlockBytes, last));
  TIERCEL_ASSIGN_OR_RETURN(const FooterTail tail, parse_footer_tail(last));
  const RegionFound& found = found_.regions[region];
  if (tail.uuid != found_.superblock.uuid || tail.region != region || tail.life != found.life)
    return error(Code::kDataCorrupt, "region footer: of another use of the region");
  const std::uint64_t size = footer_bytes(tail.entries);
  if (size > (region_blocks() - 1) * kBlockBytes)
    return error(Code::kDataCorrupt, "region footer: longer than the region");
  if (size > kBlockBytes) {
    last.resize(size);
    TIERCEL_RETURN_IF_ERROR(io_.read(end - size, last));
  }
  TIERCEL_ASSIGN_OR_RETURN(Footer footer, parse_footer(last));
  const std::uint64_t footer_block = region_blocks() - size / kBlockBytes;
  for (const Descriptor& d : footer.entries)
    if (d.block + std::uint64_t{d.blocks} > footer_block)
      return error(Code::kDataCorrupt, "region footer: an entry beyond the region");
  return footer;
}

TailFound Recovery::scan(std::uint32_t region) {
  TailScan scan(*this, region);
  scan.read();
  return scan.as_it_stands();
}

Result<std::pair<DiskSpaceId, DiskSpaceName>> Recovery::read_name(std::uint32_t region, const Descriptor& d) {
  if (d.blocks > kNameBlocksMax)
    return error(Code::kDataCorrupt, fmt::format("catalogue: a name: wanted at most {} blocks, got {}",
                                                 kNameBlocksMax, d.blocks));
  std::vector<std::byte> bytes(d.blocks * kBlockBytes);
  TIERCEL_RETURN_IF_ERROR(io_.read(region_offset(region) + d.block * kBlockBytes, bytes));
  TIERCEL_ASSIGN_OR_RETURN(auto parsed, Catalogue::parse_name(bytes));
  if (parsed.first.value() != d.space)
    return error(Code::kDataCorrupt, "catalogue: a name of another namespace than its entry says");
  return parsed;
}

Result<ByteView> Recovery::blocks(std::uint32_t region, std::uint64_t block, std::uint64_t count,
                                  const BlocksRead& read, std::vector<std::byte>& memory) {
  const std::uint64_t bytes = count * kBlockBytes;
  if (!read.bytes.empty() && block >= read.first)
    return ByteView(read.bytes).subspan((block - read.first) * kBlockBytes, bytes);
  memory.resize(bytes);
  TIERCEL_RETURN_IF_ERROR(io_.read(region_offset(region) + block * kBlockBytes, memory));
  return ByteView(memory);
}

Status Recovery::verify(std::uint32_t region, const Descriptor& d, const BlocksRead& read) {
  // Record by record: a class-set may be as large as a region.
  const std::uint64_t stride = d.blocks / d.shards;
  std::vector<std::byte> memory;
  std::uint32_t generation = 0;
  for (std::uint16_t shard = 0; shard < d.shards; ++shard) {
    const auto record = blocks(region, d.block + shard * stride, stride, read, memory);
    if (!record) return record.error();
    Status status = records_.check(*record, d, shard, name_of(DiskSpaceId(d.space)), generation);
    if (!status.ok()) return {status.code, fmt::format("shard {}: {}", shard, status.message)};
  }
  return {};
}

// ---- what the image lacks ----

// Regions that may hold something newer than the image. The others are not looked into: what the image does
// not name of them was lost, evicted or never durable, whatever stands there.
std::vector<std::uint32_t> Recovery::newer_than_image() {
  std::vector<std::uint32_t> chosen;
  for (const std::uint32_t number : found_.order) {
    RegionFound& region = found_.regions[number];
    if (region.life >= found_.image_from_life)
      chosen.push_back(number);
    else
      region.last_at = std::max(region.first_at, found_.image_from_at);
  }
  return chosen;
}

// Directories and footers first: a name that had to be written again stands behind what uses it.
std::vector<Recovery::Replay> Recovery::collect() {
  std::vector<Replay> replays;
  std::map<std::uint32_t, TailScan> tails;
  for (const std::uint32_t number : newer_than_image()) {
    Replay replay{number, {}, false};
    if (auto footer = read_footer(number)) {
      RegionFound& region = found_.regions[number];
      region.entries = footer->tail.entries;
      region.last_at = footer->tail.last_at;
      found_.last_at = std::max(found_.last_at, region.last_at);
      replay.entries = std::move(footer->entries);
      see_names(number, replay.entries);
    } else {
      TailScan& scan = tails.try_emplace(number, *this, number).first->second;
      scan.read();
      for (const Directory& directory : scan.chain()) see_names(number, directory.entries);
      replay.tail = true;
    }
    replays.push_back(std::move(replay));
  }
  for (Replay& replay : replays) {
    if (replay.tail) {
      TailFound tail = tails.at(replay.region).accept();
      replay.entries = tail.entries;
      found_.tails.push_back(std::move(tail));
    }
    for (const Descriptor& d : replay.entries) note(d, replay.region);
  }
  return replays;
}

// So that records can be verified. Not learned: where the segment does not count, neither does the name. What
// uses a name that nobody knows must not get another one with its number.
void Recovery::see_names(std::uint32_t region, const std::vector<Descriptor>& entries) {
  for (const Descriptor& d : entries) {
    found_.catalogue->seen(DiskSpaceId(d.space));
    if (d.kind != EntryKind::kName) continue;
    auto name = read_name(region, d);
    if (!name) continue;
    const std::size_t runs = runs_of(name->second);
    if (runs_read_ + runs > kCatalogueRunsMax)
      name->second.runs.clear();
    else
      runs_read_ += runs;
    const auto kept = names_read_.insert_or_assign({region, d.block}, *std::move(name)).first;
    names_seen_[kept->second.first] = &kept->second.second;
  }
}

const DiskSpaceName* Recovery::name_of(DiskSpaceId space) const {
  if (const DiskSpaceName* const known = found_.catalogue->name(space)) return known;
  const auto seen = names_seen_.find(space);
  return seen == names_seen_.end() ? nullptr : seen->second;
}

void Recovery::note(const Descriptor& d, std::uint32_t number) {
  RegionFound& region = found_.regions[number];
  found_.last_at = std::max(found_.last_at, d.born);
  if (d.kind == EntryKind::kClassSet) {
    region.oldest_born = std::min(region.oldest_born, d.born);
    found_.set_blocks[{d.space, d.cls}] = d.blocks;
  } else {
    region.last_control_at = std::max(region.last_control_at, std::max(region.last_at, d.born));
  }
}

// Names first: a name that had to be written again stands behind what uses it.
void Recovery::learn_names(const std::vector<Replay>& replays) {
  for (const Replay& replay : replays)
    for (const Descriptor& d : replay.entries)
      if (d.kind == EntryKind::kName) static_cast<void>(learn_name(replay.region, d));
}

Status Recovery::learn_name(std::uint32_t region, const Descriptor& d) {
  const auto read = names_read_.find({region, d.block});
  if (read == names_read_.end()) return {Code::kDataCorrupt, "catalogue: a name that cannot be read"};
  return found_.catalogue->learn(read->second.first, read->second.second);
}

// Without an image nothing tells the names of namespaces whose entry left with an old region, but each record
// says whose it is.
void Recovery::learn_from_records(const std::vector<Replay>& replays) {
  for (const Replay& replay : replays)
    for (const Descriptor& d : replay.entries) {
      if (d.kind != EntryKind::kClassSet || found_.catalogue->name(DiskSpaceId(d.space)) != nullptr) continue;
      std::vector<std::byte> record(kBlockBytes);
      if (!io_.read(region_offset(replay.region) + d.block * kBlockBytes, record).ok()) continue;
      const auto header = parse_header(record);
      if (!header || header->label.key != d.key || header->label.cls != d.cls) continue;
      DiskSpaceName name;
      name.root = header->label.root;
      name.form = header->form;
      static_cast<void>(found_.catalogue->learn(DiskSpaceId(d.space), name));
    }
}

// Removals and clears, before anything is put: what they beat takes no place in the index. Whether anything
// was cleared.
bool Recovery::remove(const Replay& replay) {
  bool cleared = false;
  for (const Descriptor& d : replay.entries) {
    const DiskSpaceId space(d.space);
    if (d.kind == EntryKind::kClearForm) {
      found_.catalogue->note_form(form_of(d), d.born, d.length);
      cleared = true;
    }
    if (found_.catalogue->name(space) == nullptr) continue;  // nothing of it can be found
    if (d.kind == EntryKind::kClearSpace) {
      found_.removals->clear_space(space, d.born);
      cleared = true;
    }
    if (d.kind != EntryKind::kRemovePage) continue;
    found_.removals->remove_page(space, d.key, d.born);
    const DiskIndex::Hits hits = found_.index->find_all(space, d.key);
    for (std::size_t i = 0; i < hits.count; ++i)
      if (hits.entries[i].born < d.born) found_.index->erase(space, d.key, hits.entries[i].cls);
  }
  return cleared;
}

void Recovery::put(const Replay& replay) {
  constexpr std::size_t kKeysAhead = 16;  // of which the buckets are asked for before they are needed
  for (std::size_t i = 0; i < replay.entries.size(); ++i) {
    if (i + kKeysAhead < replay.entries.size()) found_.index->prefetch(replay.entries[i + kKeysAhead].key);
    if (replay.entries[i].kind == EntryKind::kClassSet) put(replay, replay.entries[i]);
  }
}

void Recovery::put(const Replay& replay, const Descriptor& d) {
  const DiskSpaceId space(d.space);
  if (found_.catalogue->name(space) == nullptr) return;
  // What was re-inserted may be older than removals that only a lost image knew.
  if (found_.image_lost && d.born < found_.regions[found_.order.front()].first_at) return;
  if (d.born < std::max(found_.removals->cleared_at(space), found_.removals->page_at(space, d.key))) return;
  const auto there = found_.index->find(space, d.key, d.cls);
  if (there && there->born > d.born) return;
  IndexEntry entry;
  entry.key = d.key;
  entry.space = d.space;
  entry.cls = d.cls;
  entry.block = static_cast<std::uint32_t>(replay.region * region_blocks() + d.block);
  entry.born = d.born;
  entry.uses = there ? there->uses : std::uint8_t{0};
  entry.life = low_byte(found_.regions[replay.region].life);
  if (!found_.index->put_with_moves(entry)) {
    ++found_.counts.no_room;
    return;
  }
  ++(replay.tail ? found_.counts.from_tail : found_.counts.from_footers);
}

}  // namespace tiercel::disk
