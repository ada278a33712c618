// The oldest region leaves: what is worth it is written again, the rest leaves the index with it.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/fault.h"
#include "disk/state.h"
#include "memory/record.h"

namespace tiercel {
namespace {

// Looked at in one step of poll().
constexpr std::size_t kEntriesAtOnce = 4096;
constexpr std::uint64_t kBucketsAtOnce = 4096;
constexpr std::uint64_t kReinsertsAtOnce = 8;

}  // namespace

std::size_t DiskLog::State::evict() {
  using Stage = disk::Preparing::Stage;
  disk::Preparing& p = *preparing;
  switch (p.stage) {
    case Stage::kImage:
      // Removals and names of the region must be somewhere else before it goes.
      if (regions[p.region].last_control_at > image_from_at) {
        // Not once more while one that has them is under way.
        if (!checkpoint || checkpoint->header.from_at < regions[p.region].last_control_at)
          checkpoint_wanted = true;
        return 0;
      }
      p.stage = Stage::kFooter;
      return 1;
    case Stage::kFooter:
      read_footer(disk::footer_bytes(regions[p.region].entries));
      return 1;
    case Stage::kReinsert:
      return reinsert_some();
    case Stage::kErase:
      erase_some();
      return 1;
    case Stage::kSweep:
      sweep_some();
      return 1;
    default:
      return 0;
  }
}

void DiskLog::State::read_footer(std::uint64_t bytes) {
  preparing->stage = disk::Preparing::Stage::kReading;
  const auto into = std::make_shared<std::vector<std::byte>>(bytes);
  BlockRequest request;
  request.work = BlockWork::kRead;
  request.background = true;
  request.offset = offset_of(preparing->region, region_blocks() - bytes / kBlockBytes);
  request.pieces = {{into->data(), into->size()}};
  drive.start(std::move(request), [this, into](const Status& status) { footer_read(*into, status); });
}

// Without its footer a region's entries are found by a walk through the whole index.
void DiskLog::State::footer_read(const std::vector<std::byte>& bytes, const Status& status) {
  using Stage = disk::Preparing::Stage;
  disk::Preparing& p = *preparing;
  p.next = 0;
  p.stage = Stage::kSweep;
  if (drive.down()) {
    p.stage = Stage::kFooter;
    return;
  }
  if (status.ok()) {
    const auto tail = disk::parse_footer_tail(bytes);
    const bool ours = tail && tail->uuid == superblock.uuid && tail->region == p.region &&
                      tail->life == regions[p.region].life;
    const std::uint64_t size = ours ? disk::footer_bytes(tail->entries) : 0;
    if (ours && size > bytes.size() && size < geometry.region_bytes && !closed) {
      read_footer(size);
      return;
    }
    auto footer = disk::parse_footer(bytes);
    const auto inside = [&](const Descriptor& d) {
      return d.block + std::uint64_t{d.blocks} <= region_blocks();
    };
    if (ours && footer && std::all_of(footer->entries.begin(), footer->entries.end(), inside)) {
      p.entries = std::move(footer->entries);
      p.stage = options.reinsert_after != 0 ? Stage::kReinsert : Stage::kErase;
      return;
    }
  }
  ++stats.footers_damaged;
}

void DiskLog::State::evict_entry(const disk::IndexEntry& entry) {
  const bool removed = dead(DiskSpaceId(entry.space), entry.key, entry.born);
  forget(entry, !removed);
  ++stats.evicted;
}

void DiskLog::State::erase_some() {
  disk::Preparing& p = *preparing;
  const std::size_t end = std::min(p.next + kEntriesAtOnce, p.entries.size());
  for (; p.next < end; ++p.next) {
    const Descriptor& d = p.entries[p.next];
    if (d.kind != disk::EntryKind::kClassSet) continue;
    const auto there = index.find(DiskSpaceId(d.space), d.key, d.cls);
    if (there && there->block != p.region * region_blocks() + d.block) p.barrier = last_segment;
    if (!there || there->block != p.region * region_blocks() + d.block) continue;
    if (TIERCEL_FAULT(evicted_entry_stays)) continue;
    evict_entry(*there);
  }
  if (p.next < p.entries.size()) return;
  ++stats.regions_evicted;
  p.stage = disk::Preparing::Stage::kReads;
}

void DiskLog::State::sweep_some() {
  disk::Preparing& p = *preparing;
  const std::uint64_t count = std::min(kBucketsAtOnce, index.buckets() - p.next);
  std::vector<disk::IndexEntry> found;
  index.sweep(p.next, count, [&](const disk::IndexEntry& entry) {
    if (region_of(entry) == p.region) found.push_back(entry);
    return true;
  });
  for (const disk::IndexEntry& entry : found) evict_entry(entry);
  p.next += count;
  if (p.next < index.buckets()) return;
  p.barrier = last_segment;
  ++stats.regions_evicted;
  p.stage = disk::Preparing::Stage::kReads;
}

// ---- re-insertion ----

bool DiskLog::State::worth_reinserting(const Descriptor& d) const {
  if (d.kind != disk::EntryKind::kClassSet) return false;
  // At most half of it: with more, what is new would not get on.
  if (preparing->reinserted_bytes + d.blocks * kBlockBytes > geometry.region_bytes / 2) return false;
  const auto there = index.find(DiskSpaceId(d.space), d.key, d.cls);
  return there && there->block == preparing->region * region_blocks() + d.block &&
         there->uses >= std::min(options.reinsert_after, 255U) &&
         !dead(DiskSpaceId(d.space), d.key, there->born);
}

std::size_t DiskLog::State::reinsert_some() {
  disk::Preparing& p = *preparing;
  std::size_t things = 0;
  for (; p.next < p.entries.size() && things < kEntriesAtOnce && p.reinserting < kReinsertsAtOnce; ++p.next) {
    ++things;
    if (worth_reinserting(p.entries[p.next])) reinsert(p.entries[p.next]);
  }
  if (p.next < p.entries.size() || p.reinserting != 0) return things;
  // The old copies stay until the new ones are durable.
  if (!reinserted_are_durable()) return things;
  p.next = 0;
  p.stage = disk::Preparing::Stage::kErase;
  return things + 1;
}

void DiskLog::State::reinsert(const Descriptor& d) {
  disk::Preparing& p = *preparing;
  ++p.reinserting;
  p.reinserted_bytes += d.blocks * kBlockBytes;
  ++regions[p.region].reads;
  auto bytes = std::make_shared<std::vector<std::byte>>(d.blocks * kBlockBytes);
  BlockRequest request;
  request.work = BlockWork::kRead;
  request.background = true;
  request.offset = offset_of(p.region, d.block);
  request.pieces = {{bytes->data(), bytes->size()}};
  drive.start(std::move(request), [this, d, bytes](const Status& status) {
    --preparing->reinserting;
    --regions[preparing->region].reads;
    if (status.ok()) reinsert_read(d, bytes);
  });
}

// Its number stays: a removal that beat the old copy beats the new one.
void DiskLog::State::reinsert_read(const Descriptor& d, std::shared_ptr<std::vector<std::byte>> bytes) {
  const auto header = parse_header(*bytes);
  const bool right = header && header->label.key == d.key && header->label.cls == d.cls;
  const auto there = index.find(DiskSpaceId(d.space), d.key, d.cls);
  const bool same = there && there->block == preparing->region * region_blocks() + d.block;
  if (!right || !same || closing || drive.blocks_writes() || !make_place(d.blocks, false)) return;
  disk::Queued item;
  item.descriptor = d;
  item.descriptor.block = 0;
  if (TIERCEL_FAULT(reinserted_gets_new_number)) item.descriptor.born = 0;
  item.reinserted = true;
  item.record_bytes = d.blocks / d.shards * kBlockBytes;
  item.payload = std::move(bytes);
  spend(d.blocks * kBlockBytes);
  enqueue(std::move(item));
}

// By segments, not by numbers: a removal with an old number may wait for this very region. So may what is
// gathered when no region is open: that leaves with its old region after all.
bool DiskLog::State::reinserted_are_durable() {
  if (open_region() == nullptr && !ready) drop_gathered_reinserts();
  if (std::any_of(gathered.begin(), gathered.end(), [](const auto& item) { return item.reinserted; }))
    return false;
  const auto reinserts = [](const auto& item) { return item.second.reinserts; };
  if (std::any_of(going.begin(), going.end(), reinserts)) return false;
  if (std::none_of(written.begin(), written.end(), reinserts)) return true;
  std::uint64_t& flush = preparing->flush;
  if (flush == 0 || std::max(last_good_flush, last_bad_flush) >= flush) flush = want_flush();
  return false;
}

// All that is gathered, since numbers must follow one another: removals among it are written again.
void DiskLog::State::drop_gathered_reinserts() {
  if (std::none_of(gathered.begin(), gathered.end(),
                   [](const disk::Queued& item) { return item.reinserted; }))
    return;
  lose_gathered({Code::kUnavailable, "disk: no region to write to after a failure"});
}

// ---- what a removal leaves behind ----

// What a clear killed leaves the index, a part at a time: it is found no more in any case.
std::size_t DiskLog::State::sweep_cleared() {
  if (!sweep_from) return 0;
  const std::uint64_t count = std::min(kBucketsAtOnce, index.buckets() - *sweep_from);
  index.sweep(*sweep_from, count, [&](const disk::IndexEntry& entry) {
    if (entry.born >= removals.cleared_at(DiskSpaceId(entry.space))) return true;
    --count_of(entry.space, entry.cls).sets;
    return false;
  });
  *sweep_from += count;
  if (*sweep_from == index.buckets()) sweep_from.reset();
  return 1;
}

// Removals of pages are kept while anything older may be in the log.
void DiskLog::State::forget_removals() {
  std::uint64_t oldest = last_at + 1;
  for (const disk::Region& region : regions)
    if (region.life != 0) oldest = std::min(oldest, region.oldest_born);
  for (const disk::Queued& item : gathered) oldest = std::min(oldest, item.descriptor.born);
  removals.forget_below(oldest);
}

}  // namespace tiercel
