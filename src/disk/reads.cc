// Where class-sets are, and reading them.
#include <utility>

#include "base/check.h"
#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
namespace {

// Keys whose buckets are asked for ahead of the one that is looked at.
constexpr std::size_t kKeysAhead = 8;

}  // namespace

bool DiskLog::State::dead(DiskSpaceId space, const Key& key, std::uint64_t born) const {
  return born < removals.cleared_at(space) || born < removals.page_at(space, key);
}

bool DiskLog::State::holds(const disk::IndexEntry& entry) const {
  if (TIERCEL_FAULT(stale_life_ignored) || TIERCEL_FAULT(evicted_entry_stays)) return true;
  return disk::low_byte(regions[region_of(entry)].life) == entry.life;
}

std::optional<disk::IndexEntry> DiskLog::State::find(const DiskName& name, bool chain_known) const {
  const std::optional<disk::IndexEntry> entry = index.find(name.space, name.key, name.cls);
  if (!entry || !holds(*entry)) return std::nullopt;
  const bool gone = chain_known || TIERCEL_FAULT(middle_of_chain_trusted)
                        ? dead(name.space, name.key, entry->born)
                        : removals.dead_in_middle(name.space, entry->born);
  if (gone) return std::nullopt;
  return entry;
}

void DiskLog::find_chain(DiskSpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                         std::span<Presence> presence) const {
  const State& s = *state_;
  TIERCEL_CHECK(presence.size() >= keys.size());
  const bool from_start = first_page == 0 || TIERCEL_FAULT(middle_of_chain_trusted);
  disk::Removals::Walk walk(s.removals, space);
  for (std::size_t i = 0; i < std::min(kKeysAhead, keys.size()); ++i) s.index.prefetch(keys[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kKeysAhead < keys.size()) s.index.prefetch(keys[i + kKeysAhead]);
    if (from_start) walk.step(keys[i]);
    Presence bits = 0;
    const disk::DiskIndex::Hits hits = s.index.find_all(space, keys[i]);
    for (std::size_t h = 0; h < hits.count; ++h) {
      const disk::IndexEntry& entry = hits.entries[h];
      const bool gone = from_start ? walk.dead(entry.born) : s.removals.dead_in_middle(space, entry.born);
      if (!gone && s.holds(entry) && entry.cls.value() < 32) bits |= Presence{1} << entry.cls.value();
    }
    presence[i] = bits;
  }
}

std::optional<DiskFound> DiskLog::find(const DiskName& name, bool chain_known) const {
  const auto entry = state_->find(name, chain_known);
  if (!entry) return std::nullopt;
  return DiskFound{entry->born, state_->geometry.regions_offset + std::uint64_t{entry->block} * kBlockBytes};
}

bool DiskLog::State::can_read() const {
  return !drive.down() && !closed && drive.under_way() < options.reads_in_flight;
}

bool DiskLog::can_read() const { return state_->can_read(); }

std::optional<DiskReadId> DiskLog::State::read(const DiskEntry& into, bool chain_known) {
  if (!can_read()) return std::nullopt;
  const auto entry = find(into.name, chain_known);
  if (!entry) return std::nullopt;
  const std::uint64_t stride = disk::stride_blocks(into.record_bytes);
  const std::uint64_t blocks = stride * into.shards.size();
  if (blocks == 0 || entry->block % region_blocks() + blocks > region_blocks()) {
    erase(*entry);  // not of this size: it can never be read
    return std::nullopt;
  }
  BlockRequest request;
  request.work = BlockWork::kRead;
  request.offset = geometry.regions_offset + std::uint64_t{entry->block} * kBlockBytes;
  const std::uint64_t padding = stride * kBlockBytes - into.record_bytes;
  for (const std::vector<BlockPiece>& record : into.shards) {
    std::uint64_t bytes = 0;
    for (const BlockPiece& piece : record) bytes += piece.length;
    TIERCEL_CHECK(bytes == into.record_bytes);
    request.pieces.insert(request.pieces.end(), record.begin(), record.end());
    if (padding != 0) request.pieces.push_back({nullptr, padding});
  }
  DiskEvent event;
  event.kind = DiskEvent::Kind::kRead;
  event.read = DiskReadId(last_read + 1);
  event.at = last_at;
  event.name = into.name;
  const std::uint32_t region = region_of(*entry);
  const std::uint64_t born = entry->born;
  const bool begun = drive.try_start(std::move(request), [this, event, region, born](const Status& status) {
    DiskEvent end = event;
    end.status = status;
    --regions[region].reads;
    if (!status.ok()) ++stats.read_failures;
    if (status.ok() && dead(end.name.space, end.name.key, born))
      end.status = {Code::kNotFound, "disk: removed while it was read"};
    events.push_back(std::move(end));
  });
  if (!begun) return std::nullopt;
  ++last_read;
  ++regions[region].reads;
  ++stats.reads;
  stats.read_bytes += blocks * kBlockBytes;
  return DiskReadId(last_read);
}

}  // namespace tiercel
