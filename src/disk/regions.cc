// Regions: opened, sealed with a footer, prepared for their next use.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {

bool DiskLog::State::open_next() {
  if (!ready) return false;
  Filling filling;
  filling.region = *ready;
  regions[*ready].opened = clock.now();
  fillings.push_back(std::move(filling));
  ready.reset();
  return true;
}

void DiskLog::State::seal(Filling& filling) {
  filling.stage = Filling::Stage::kSealed;
  ++regions_since_image;
}

// A footer is believed as it stands, so all that it names is behind a flush before it is written.
std::size_t DiskLog::State::seal_regions() {
  std::size_t things = 0;
  if (drive.blocks_writes()) return things;
  for (auto it = fillings.begin(); it != fillings.end();) {
    Filling& filling = *it;
    if (filling.stage == Filling::Stage::kFlushing && last_bad_flush >= filling.flush) {
      filling.stage = Filling::Stage::kSealed;
    } else if (filling.stage == Filling::Stage::kFlushing && last_good_flush >= filling.flush) {
      write_footer(filling);
      ++things;
    } else if (filling.stage == Filling::Stage::kSealed && filling.under_way == 0) {
      ++things;
      if (filling.entries.empty()) {  // nothing of it was written: it is prepared again
        free.push_front(filling.region);
        it = fillings.erase(it);
        continue;
      }
      if (TIERCEL_FAULT(footer_without_flush)) {
        write_footer(filling);
      } else {
        filling.stage = Filling::Stage::kFlushing;
        filling.flush = want_flush();
      }
    }
    ++it;
  }
  return things;
}

void DiskLog::State::write_footer(Filling& filling) {
  filling.stage = Filling::Stage::kFooter;
  const std::uint32_t number = filling.region;
  disk::Region& region = regions[number];
  const disk::FooterTail tail{superblock.uuid, number,
                              region.life,     region.first_at,
                              region.last_at,  static_cast<std::uint32_t>(filling.entries.size())};
  const auto bytes = std::make_shared<std::vector<std::byte>>(disk::encode_footer(tail, filling.entries));
  stats.footer_bytes += bytes->size();
  spend(bytes->size());
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.background = true;
  request.offset = offset_of(number, region_blocks() - bytes->size() / kBlockBytes);
  request.pieces = {{bytes->data(), bytes->size()}};
  drive.start(std::move(request), [this, number, bytes](const Status& status) {
    Filling* const of = filling_of(number);
    if (of == nullptr || of->stage != Filling::Stage::kFooter) return;  // it was cut meanwhile
    if (!status.ok()) {
      of->stage = Filling::Stage::kSealed;
      return;
    }
    regions[number].entries = static_cast<std::uint32_t>(of->entries.size());
    std::erase_if(fillings, [&](const Filling& filled) { return filled.region == number; });
    const auto place =
        std::upper_bound(sealed.begin(), sealed.end(), number,
                         [&](std::uint32_t a, std::uint32_t b) { return regions[a].life < regions[b].life; });
    sealed.insert(place, number);
  });
}

// One region is always kept ready, so that appends need not wait for an eviction.
std::size_t DiskLog::State::prepare() {
  if (ready || drive.blocks_writes()) return 0;
  if (!preparing) choose_region();
  if (!preparing) return 0;
  using Stage = disk::Preparing::Stage;
  disk::Preparing& p = *preparing;
  switch (p.stage) {
    case Stage::kReads:
      if (regions[p.region].reads != 0 || !behind_barrier()) return 0;
      write_header();
      return 1;
    case Stage::kWriting:
      return 0;
    case Stage::kFlushing:
      if (last_bad_flush >= p.flush) {
        p.stage = Stage::kReads;  // and the header again
        return 1;
      }
      if (last_good_flush < p.flush && !TIERCEL_FAULT(region_reused_before_header_flush)) return 0;
      // Only now is what it held gone for good, and with it the need of what beat it.
      regions[p.region].oldest_born = UINT64_MAX;
      forget_removals();
      ready = p.region;
      preparing.reset();
      return 1;
    default:
      return evict();
  }
}

// Whether what took the place of entries of the region is durable; else a crash might leave neither.
bool DiskLog::State::behind_barrier() {
  disk::Preparing& p = *preparing;
  if (!going.empty() && going.begin()->first <= p.barrier) return false;
  if (written.empty() || written.begin()->first > p.barrier) {
    p.flush = 0;
    return true;
  }
  if (p.flush == 0 || std::max(last_good_flush, last_bad_flush) >= p.flush) p.flush = want_flush();
  return false;
}

void DiskLog::State::choose_region() {
  disk::Preparing next;
  if (!free.empty()) {
    next.region = free.front();
    free.pop_front();
    next.stage = disk::Preparing::Stage::kReads;
  } else if (!sealed.empty()) {
    next.region = sealed.front();
    sealed.pop_front();
    next.evicts = true;
  } else {
    return;
  }
  preparing = std::move(next);
}

// A life differs from the region's last one in its low byte, which is all that the index keeps of it.
std::vector<std::byte> DiskLog::State::new_header(std::uint32_t number) {
  disk::Region& region = regions[number];
  std::uint64_t life = last_life + 1;
  if (disk::low_byte(life) == disk::low_byte(region.life)) ++life;
  last_life = life;
  region = {};
  region.life = life;
  region.first_at = gathered.empty() ? std::min(last_at + 1, disk::kAtMax) : gathered.front().at;
  return disk::encode(disk::RegionHeader{superblock.uuid, number, life, region.first_at});
}

void DiskLog::State::write_header() {
  disk::Preparing& p = *preparing;
  const std::uint64_t oldest_born = regions[p.region].oldest_born;
  const auto bytes = std::make_shared<std::vector<std::byte>>(new_header(p.region));
  regions[p.region].oldest_born = oldest_born;  // its old life holds until this is durable
  stats.header_bytes += bytes->size();
  spend(bytes->size());
  p.stage = disk::Preparing::Stage::kWriting;
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.background = true;
  request.offset = offset_of(p.region, 0);
  request.pieces = {{bytes->data(), bytes->size()}};
  drive.start(std::move(request), [this, bytes](const Status& status) {
    preparing->stage = status.ok() ? disk::Preparing::Stage::kFlushing : disk::Preparing::Stage::kReads;
    const bool wanted = !TIERCEL_FAULT(region_reused_before_header_flush);
    if (status.ok()) preparing->flush = wanted ? want_flush() : flushes_begun + 1;
  });
}

}  // namespace tiercel
