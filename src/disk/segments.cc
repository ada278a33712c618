// Gathering entries into segments, writing them, and what becomes of it.
#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
namespace {

std::uint64_t segment_blocks(std::uint64_t entries, std::uint64_t payload_blocks) {
  return disk::directory_bytes(entries) / kBlockBytes + payload_blocks;
}

DiskName name_of(const disk::Descriptor& d) { return {DiskSpaceId(d.space), d.key, d.cls}; }

bool is_class_set(const disk::Descriptor& d) { return d.kind == disk::EntryKind::kClassSet; }

// Over the first block of each of its records, as it will stand on the drive.
std::uint32_t first_blocks_crc(const disk::Queued& item, std::uint32_t crc) {
  static constexpr std::array<std::byte, kBlockBytes> kZeros{};
  if (item.payload != nullptr) {
    const std::uint64_t stride = item.payload->size() / item.descriptor.shards;
    for (std::uint64_t shard = 0; shard < item.descriptor.shards; ++shard)
      crc = crc32c(ByteView(*item.payload).subspan(shard * stride, kBlockBytes), crc);
    return crc;
  }
  for (const std::vector<BlockPiece>& record : item.shards) {
    std::uint64_t left = kBlockBytes;
    for (const BlockPiece& piece : record) {
      const std::uint64_t part = std::min(left, piece.length);
      if (part == 0) break;
      crc = crc32c(piece.data != nullptr ? ByteView(piece.data, part) : ByteView(kZeros).first(part), crc);
      left -= part;
    }
    if (left != 0) crc = crc32c(ByteView(kZeros).first(left), crc);
  }
  return crc;
}

}  // namespace

// Whether a segment of so many entries fits the open region, or an empty one where none is open.
bool DiskLog::State::fits(std::uint64_t entries, std::uint64_t payload_blocks) const {
  const Filling* const open = open_region();
  const std::uint64_t before = open != nullptr ? open->next_block : 1;
  const std::uint64_t listed = open != nullptr ? open->entries.size() : 0;
  return before + segment_blocks(entries, payload_blocks) +
             disk::footer_bytes(listed + entries) / kBlockBytes <=
         region_blocks();
}

// Room for one more entry behind what is gathered. What is gathered always fits the open region; without one
// it is removals and names alone, and fits an empty region. False: not now.
bool DiskLog::State::make_place(std::uint64_t payload_blocks, bool control) {
  if (open_region() == nullptr) open_next();
  if (!gathered.empty() && open_region() != nullptr &&
      segment_blocks(gathered.size() + 1, gathered_blocks + payload_blocks) * kBlockBytes >
          options.segment_bytes)
    close_gathered();
  if (open_region() == nullptr) return control && fits(gathered.size() + 1, gathered_blocks + payload_blocks);
  if (fits(gathered.size() + 1, gathered_blocks + payload_blocks)) return true;
  if (!ready && !control) return false;
  close_gathered();
  seal(*open_region());
  open_next();
  return fits(1, payload_blocks);
}

// What is gathered gets its place. Requires: an open region.
void DiskLog::State::close_gathered() {
  if (gathered.empty()) return;
  Filling& filling = *open_region();
  Segment segment;
  segment.region = filling.region;
  segment.block = filling.next_block;
  segment.blocks = static_cast<std::uint32_t>(segment_blocks(gathered.size(), gathered_blocks));
  segment.first_at = gathered.front().at;
  segment.lowest = std::exchange(gathered_lowest, UINT64_MAX);
  segment.first_entry = filling.entries.size();
  disk::Region& region = regions[filling.region];
  std::uint32_t block = segment.block + segment.blocks - static_cast<std::uint32_t>(gathered_blocks);
  for (disk::Queued& item : gathered) {
    Descriptor& d = item.descriptor;
    if (d.blocks != 0) d.block = block;
    block += d.blocks;
    segment.reinserts = segment.reinserts || item.reinserted;
    if (is_class_set(d)) {
      region.oldest_born = std::min(region.oldest_born, d.born);
    } else {
      region.last_control_at = item.at;
    }
    filling.entries.push_back(d);
  }
  region.last_at = gathered.back().at;
  filling.next_block += segment.blocks;
  ++filling.under_way;
  segment.entries = std::exchange(gathered, {});
  gathered_blocks = 0;
  going.emplace_hint(going.end(), ++last_segment, std::move(segment));
}

// One write at a time is enough to keep small entries from waiting; more go side by side when they are full.
std::size_t DiskLog::State::write_segments() {
  std::size_t things = 0;
  if (drive.blocks_writes()) return things;
  for (auto& [id, segment] : going) {
    if (writing >= std::max(options.segments_in_flight, 1U)) break;
    if (segment.stage != Segment::Stage::kWaiting) continue;
    write(id, segment);
    ++things;
  }
  return things;
}

void DiskLog::State::write(std::uint64_t id, Segment& segment) {
  std::vector<Descriptor> list;
  list.reserve(segment.entries.size());
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.background = true;
  request.offset = offset_of(segment.region, segment.block);
  request.pieces.push_back({nullptr, 0});  // the directory
  std::uint32_t records_crc = 0;
  for (disk::Queued& item : segment.entries) {
    const Descriptor& d = item.descriptor;
    list.push_back(d);
    if (item.payload != nullptr) {
      request.pieces.push_back({item.payload->data(), item.payload->size()});
      if (!is_class_set(d)) stats.directory_bytes += item.payload->size();
    }
    const std::uint64_t padding = is_class_set(d) && item.payload == nullptr
                                      ? d.blocks / d.shards * kBlockBytes - item.record_bytes
                                      : 0;
    for (const std::vector<BlockPiece>& record : item.shards) {
      std::uint64_t bytes = 0;
      for (const BlockPiece& piece : record) bytes += piece.length;
      TIERCEL_CHECK(bytes == item.record_bytes);
      request.pieces.insert(request.pieces.end(), record.begin(), record.end());
      if (padding != 0) request.pieces.push_back({nullptr, padding});
    }
    if (!is_class_set(d)) continue;
    records_crc = first_blocks_crc(item, records_crc);
    stats.record_bytes += item.record_bytes * d.shards;
    stats.padding_bytes += d.blocks * kBlockBytes - item.record_bytes * d.shards;
    if (item.reinserted) stats.reinserted_bytes += d.blocks * kBlockBytes;
  }
  const disk::SegmentHead head{superblock.uuid,  regions[segment.region].life,
                               superblock.epoch, segment.first_at,
                               durable_at,       segment.block,
                               segment.blocks,   static_cast<std::uint32_t>(list.size()),
                               records_crc};
  segment.directory = disk::encode_directory(head, list);
  request.pieces.front() = {segment.directory.data(), segment.directory.size()};
  stats.directory_bytes += segment.directory.size();
  ++stats.segments;
  spend(segment.directory.size());
  segment.stage = Segment::Stage::kWriting;
  ++writing;
  drive.start(std::move(request), [this, id](const Status& status) { ended(id, status); });
}

void DiskLog::State::ended(std::uint64_t id, const Status& status) {
  auto node = going.extract(id);
  TIERCEL_CHECK(!node.empty());
  Segment& segment = node.mapped();
  --writing;
  Filling* const filling = filling_of(segment.region);
  TIERCEL_CHECK(filling != nullptr && filling->under_way > 0);
  --filling->under_way;
  segment.directory = {};
  const bool good = (status.ok() || TIERCEL_FAULT(segment_lost_counts_written)) && !segment.doomed;
  if (!good) {
    const bool first = !segment.doomed;
    lose(segment, status.ok() ? Status{Code::kIoError, "disk: a write before it failed"} : status);
    if (first) {
      going.insert(std::move(node));
      cut(id);
      going.erase(id);
    }
    return;
  }
  segment.stage = Segment::Stage::kWritten;
  segment.ended = ++segments_ended;
  unflushed_bytes += segment.blocks * kBlockBytes;
  if (!unflushed_since) unflushed_since = clock.now();
  publish(segment);
  written.insert(std::move(node));
  if (TIERCEL_FAULT(durable_before_flush)) durable_now(ended_up_to());
}

void DiskLog::State::publish(Segment& segment) {
  for (disk::Queued& item : segment.entries) {
    if (is_class_set(item.descriptor)) publish(segment, item);
    item.shards = {};
    if (is_class_set(item.descriptor)) item.payload = {};
  }
}

void DiskLog::State::publish(Segment& segment, disk::Queued& item) {
  const Descriptor& d = item.descriptor;
  const DiskName name = name_of(d);
  disk::IndexEntry entry;
  entry.key = d.key;
  entry.space = d.space;
  entry.cls = d.cls;
  entry.block = static_cast<std::uint32_t>(segment.region * region_blocks() + d.block);
  entry.born = TIERCEL_FAULT(queued_entry_beats_removal) ? last_at : d.born;
  entry.life = disk::low_byte(regions[segment.region].life);
  if (!item.reinserted) {
    queued_bytes -= d.blocks * kBlockBytes;
    if (const auto found = queued.find(name); found != queued.end() && found->second == item.at)
      queued.erase(found);
  }
  const std::optional<disk::IndexEntry> there = index.find(name.space, name.key, name.cls);
  const bool newer = there && holds(*there) && there->born > entry.born;
  // What is re-inserted must still be there; it may have been dropped.
  const bool gone = item.reinserted && !there;
  DiskEvent event;
  event.append = item.append;
  event.name = name;
  event.at = item.at;
  if (dead(name.space, name.key, entry.born)) {
    event.kind = DiskEvent::Kind::kLost;
    event.status = {Code::kCancelled, "disk: removed while it was written"};
  } else if (!newer && !gone && !put(entry)) {
    event.kind = DiskEvent::Kind::kLost;
    event.status = {Code::kResourceExhausted,
                    "disk: the index has no place for it; give it more index_entries"};
  }
  const bool lost = event.kind == DiskEvent::Kind::kLost;
  item.in_index = !lost && !gone && !newer;
  if (item.reinserted) {  // where it found no place it leaves with its old region
    if (item.in_index) ++stats.reinserted;
    return;
  }
  if (lost) ++stats.lost;
  events.push_back(std::move(event));
}

void DiskLog::State::lose(disk::Queued& item, const Status& why) {
  const Descriptor& d = item.descriptor;
  item.shards = {};
  if (!is_class_set(d)) {
    again.push_back(std::move(item));
    return;
  }
  if (item.reinserted) return;
  queued_bytes -= d.blocks * kBlockBytes;
  const DiskName name = name_of(d);
  if (const auto found = queued.find(name); found != queued.end() && found->second == item.at)
    queued.erase(found);
  ++stats.lost;
  DiskEvent event;
  event.kind = DiskEvent::Kind::kLost;
  event.append = item.append;
  event.name = name;
  event.at = item.at;
  event.status = why;
  events.push_back(std::move(event));
}

void DiskLog::State::lose(Segment& segment, const Status& why) {
  for (disk::Queued& item : segment.entries) lose(item, why);
}

void DiskLog::State::take_back(Segment& segment) {
  for (disk::Queued& item : segment.entries) {
    if (!is_class_set(item.descriptor)) {
      again.push_back(std::move(item));
      continue;
    }
    const DiskName name = name_of(item.descriptor);
    const std::uint64_t block = segment.region * region_blocks() + item.descriptor.block;
    const auto there = index.find(name.space, name.key, name.cls);
    const bool here = there && there->block == block;
    const bool removed = !there && item.in_index && dead(name.space, name.key, item.descriptor.born);
    if (here) erase(*there);
    if (here || removed) tell_taken_back(name);
  }
}

// Told also where a removal took it from the index before: that may be lost, too, and it is gone.
void DiskLog::State::tell_taken_back(const DiskName& name) {
  DiskEvent event;
  event.kind = DiskEvent::Kind::kEvicted;
  event.name = name;
  event.status = {Code::kIoError, "disk: its write was not durable when a write or flush failed"};
  events.push_back(std::move(event));
}

// The region ends before that segment: what was placed behind it in the region counts as lost, too, so that
// what is there can be found again without a footer.
void DiskLog::State::cut(std::uint64_t id) {
  // An image on its way may name what goes now.
  if (checkpoint && checkpoint->stage < disk::Checkpoint::Stage::kSuperblock) checkpoint->failed = true;
  const bool was_written = written.contains(id);
  const Segment& first = was_written ? written.at(id) : going.at(id);
  Filling* const filling = filling_of(first.region);
  const bool may_be_gone =
      TIERCEL_FAULT(footer_without_flush);  // outside of the check, which names what it asks
  TIERCEL_CHECK(filling != nullptr || may_be_gone);
  const std::uint32_t region = first.region;
  if (filling != nullptr) {
    filling->next_block = first.block;
    filling->entries.resize(first.first_entry);
    filling->stage = Filling::Stage::kSealed;
  }
  const Status why{Code::kIoError, "disk: a write before it failed"};
  for (auto it = going.upper_bound(id); it != going.end();) {
    Segment& segment = it->second;
    if (segment.region != region || segment.doomed) {
      ++it;
    } else if (segment.stage == Segment::Stage::kWriting) {
      segment.doomed = true;
      ++it;
    } else {
      lose(segment, why);
      --filling->under_way;
      it = going.erase(it);
    }
  }
  for (auto it = was_written ? written.find(id) : written.upper_bound(id); it != written.end();) {
    if (it->second.region != region) {
      ++it;
      continue;
    }
    take_back(it->second);
    it = written.erase(it);
  }
}

// What no write has begun for: the drive does not take it, and its memory is wanted back.
void DiskLog::State::lose_unwritten(const Status& why) {
  for (auto it = going.begin(); it != going.end();) {
    Segment& segment = it->second;
    if (segment.stage != Segment::Stage::kWaiting) {
      ++it;
      continue;
    }
    Filling* const filling = filling_of(segment.region);
    --filling->under_way;
    if (segment.block < filling->next_block) {
      filling->next_block = segment.block;
      filling->entries.resize(segment.first_entry);
    }
    lose(segment, why);
    it = going.erase(it);
  }
  lose_gathered(why);
}

void DiskLog::State::lose_gathered(const Status& why) {
  for (disk::Queued& item : std::exchange(gathered, {})) lose(item, why);
  gathered_blocks = 0;
  gathered_lowest = UINT64_MAX;
}

// Removals, clears and names that a failed write took along, with their old numbers.
std::size_t DiskLog::State::write_again() {
  std::size_t things = 0;
  if (again.empty() || drive.blocks_writes()) return things;
  std::vector<disk::Queued> list = std::exchange(again, {});
  for (disk::Queued& item : list) {
    if (last_at < disk::kAtMax && make_place(item.descriptor.blocks, true)) {
      item.descriptor.block = 0;
      enqueue(std::move(item));
      ++things;
    } else {
      again.push_back(std::move(item));
    }
  }
  return things;
}

DiskLog::State::Filling* DiskLog::State::filling_of(std::uint32_t region) {
  for (Filling& filling : fillings)
    if (filling.region == region) return &filling;
  return nullptr;
}

bool DiskLog::State::put(const disk::IndexEntry& entry) {
  const std::uint64_t before = index.size();
  const bool done = index.put(entry);
  count_of(entry.space, entry.cls).sets += index.size() - before;
  return done;
}

bool DiskLog::State::erase(const disk::IndexEntry& entry) {
  const std::uint64_t before = index.size();
  const bool done = index.erase(DiskSpaceId(entry.space), entry.key, entry.cls);
  count_of(entry.space, entry.cls).sets -= before - index.size();
  return done;
}

void DiskLog::State::forget(const disk::IndexEntry& entry, bool tell) {
  erase(entry);
  if (!tell) return;
  DiskEvent event;
  event.kind = DiskEvent::Kind::kEvicted;
  event.name = {DiskSpaceId(entry.space), entry.key, entry.cls};
  event.at = entry.born;
  events.push_back(std::move(event));
}

}  // namespace tiercel
