#include "disk/check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "disk/drive_io.h"
#include "disk/recovery.h"

namespace tiercel {
namespace {

class Check final {
 public:
  Check(BlockDevice& drive, const Clock& clock, const DiskCheckOptions& options)
      : options_(options), io_(drive, clock, options.stall_after), recovery_(io_) {}

  Status run();
  DiskCheckReport& report() { return report_; }
  bool gave_up() const { return io_.gave_up(); }

 private:
  void check_superblocks();
  void check_images(const disk::Superblock& superblock);
  void count_spaces();
  void check_region(std::uint32_t region);
  void note_open_regions();
  void check_entry(std::uint32_t region, const disk::Descriptor& descriptor);

  struct OpenRegion {  // without a footer
    std::uint32_t number;
    std::size_t entries;
    std::string no_footer, end;  // why it has none; why its segments go on no further
  };

  const DiskCheckOptions& options_;
  disk::DriveIo io_;
  disk::Recovery recovery_;
  DiskCheckReport report_;
  std::vector<OpenRegion> open_regions_;
  std::uint64_t newest_life_ = 0;                                          // of regions with entries
  std::map<std::pair<std::uint32_t, ClassId>, std::uint32_t> set_blocks_;  // as footers and directories say
};

Status Check::run() {
  auto superblock = recovery_.find_superblock();
  if (!superblock) return superblock.error();
  if (!*superblock) return {Code::kFailedPrecondition, "disk: there is no log: nothing but zeros"};
  check_superblocks();
  check_images(**superblock);
  if (Status status = recovery_.recover(**superblock, true); !status.ok()) return status;
  const disk::Recovered& found = recovery_.found();
  report_.geometry = found.superblock.geometry;
  for (const std::byte b : found.superblock.uuid)
    fmt::format_to(std::back_inserter(report_.uuid), "{:02x}", std::to_integer<int>(b));
  report_.epoch = found.superblock.epoch;
  report_.closed = found.superblock.closed;
  report_.last_at = found.last_at;
  report_.image = found.superblock.image;
  report_.from_image = found.counts.from_image;
  report_.from_footers = found.counts.from_footers;
  report_.from_tail = found.counts.from_tail;
  report_.removals = found.removals->pages();
  report_.records_read = options_.verify_records;
  for (std::uint32_t region = 0; region < found.regions.size(); ++region) {
    check_region(region);
    if (options_.progress) options_.progress(region + 1, found.regions.size());
    if (io_.gave_up()) return {Code::kIoError, "disk: the drive does not answer"};
  }
  note_open_regions();
  if (found.counts.no_room != 0)
    report_.notes.push_back(
        fmt::format("{} class-sets are whole, and the index has no place for them", found.counts.no_room));
  if (!io_.unreadable().ok()) report_.notes.push_back(io_.unreadable().message);
  count_spaces();
  return {};
}

void Check::check_superblocks() {
  std::vector<std::byte> block(kBlockBytes);
  std::uint64_t sequence = 0;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    DiskCheckReport::Part& part = report_.superblocks[slot];
    const Status status = io_.read(slot * kBlockBytes, block);
    part.there = !status.ok() || !disk::is_blank(block);
    if (!status.ok()) part.damage = status.message;
    if (!part.there || !status.ok()) continue;
    const auto parsed = disk::parse_superblock(block);
    if (!parsed) part.damage = parsed.error().message;
    if (parsed) sequence = std::max(sequence, parsed->sequence);
  }
  // They are written in turn, so from the second one on there are two.
  for (DiskCheckReport::Part& part : report_.superblocks)
    if (!part.there && sequence >= 2) part.damage = "it is blank";
}

void Check::check_images(const disk::Superblock& superblock) {
  std::vector<std::byte> block(kBlockBytes);
  for (std::uint32_t slot = 0; slot < 2; ++slot) {
    DiskCheckReport::Part& part = report_.images[slot];
    const Status status = io_.read(superblock.geometry.image_offset[slot], block);
    part.there = !status.ok() || !disk::is_blank(block);
    if (!part.there) continue;
    // Apart from the opening: it reads only the one that it needs.
    auto apart = std::make_unique<disk::Recovery>(io_);
    const Status loaded = apart->load_image_alone(superblock, slot);
    if (io_.gave_up()) {
      [[maybe_unused]] disk::Recovery* const kept = apart.release();  // reads may be under way into it
      return;
    }
    if (!loaded.ok()) part.damage = loaded.message;
  }
}

void Check::check_region(std::uint32_t number) {
  const disk::Recovered& found = recovery_.found();
  const disk::RegionFound& region = found.regions[number];
  if (region.header_damaged) report_.notes.push_back(fmt::format("region {}: its header is damaged", number));
  if (region.life == 0) return;
  ++report_.regions_used;
  std::vector<disk::Descriptor> entries;
  auto footer = recovery_.read_footer(number);
  if (footer) {
    ++report_.regions_with_footer;
    entries = std::move(footer->entries);
  } else {
    ++report_.regions_without_footer;
    disk::TailFound tail = recovery_.scan(number);
    if (tail.entries.empty()) return;
    open_regions_.push_back(
        {number, tail.entries.size(), footer.error().message, tail.refused.value_or("with the region")});
    entries = std::move(tail.entries);
  }
  newest_life_ = std::max(newest_life_, region.life);
  for (const disk::Descriptor& d : entries) {
    if (d.kind != disk::EntryKind::kClassSet) continue;
    set_blocks_[{d.space, d.cls}] = d.blocks;
    if (options_.verify_records) check_entry(number, d);
  }
}

// Of the newest region none is expected yet. Another should have one: damage, or its process ended before it
// was written.
void Check::note_open_regions() {
  for (const OpenRegion& region : open_regions_) {
    const bool is_newest = recovery_.found().regions[region.number].life == newest_life_;
    report_.notes.push_back(
        is_newest
            ? fmt::format(
                  "region {}: the one still being written (the newest), so without a footer; {} entries by "
                  "its segments",
                  region.number, region.entries)
            : fmt::format("region {}: no footer ({}); {} entries by its segments, which end: {}",
                          region.number, region.no_footer, region.entries, region.end));
  }
}

void Check::check_entry(std::uint32_t region, const disk::Descriptor& d) {
  const disk::Recovered& found = recovery_.found();
  const DiskSpaceName* const name = found.catalogue->name(DiskSpaceId(d.space));
  const Status status = recovery_.verify(region, d, {});
  if (status.ok()) {
    ++report_.verified;
    report_.verified_bytes += d.blocks * kBlockBytes;
    if (name == nullptr || d.cls.value() >= name->runs.size() || name->runs[d.cls.value()].empty())
      ++report_.headers_only;
    return;
  }
  DiskDamage damage;
  damage.offset = recovery_.region_offset(region) + d.block * kBlockBytes;
  damage.name = {DiskSpaceId(d.space), d.key, d.cls};
  damage.why = status.message;
  const auto there = found.index->find(damage.name.space, d.key, d.cls);
  damage.found = there && there->block == region * recovery_.region_blocks() + d.block;
  ++report_.damaged;
  report_.damaged_found += damage.found ? 1 : 0;
  if (report_.damages.size() < options_.damages_max) report_.damages.push_back(std::move(damage));
}

void Check::count_spaces() {
  const disk::Recovered& found = recovery_.found();
  std::map<std::uint32_t, DiskCheckReport::Space> spaces;
  for (const DiskSpaceId id : found.catalogue->all())
    spaces[id.value()] = {id, *found.catalogue->name(id), 0, 0};
  found.index->for_each([&](const disk::IndexEntry& entry) {
    const DiskSpaceId id(entry.space);
    const auto space = spaces.find(entry.space);
    if (space == spaces.end()) return;
    if (entry.born < std::max(found.removals->cleared_at(id), found.removals->page_at(id, entry.key))) return;
    ++space->second.class_sets;
    const auto size = set_blocks_.find({entry.space, entry.cls});
    if (size != set_blocks_.end()) space->second.bytes += size->second * kBlockBytes;
  });
  for (auto& [id, space] : spaces) {
    report_.class_sets += space.class_sets;
    report_.bytes += space.bytes;
    report_.spaces.push_back(std::move(space));
  }
}

}  // namespace

bool DiskCheckReport::in_order() const {
  const auto good = [](const Part& part) { return part.damage.empty(); };
  // They are written in turn: a power failure may leave one of them torn, and the other holds.
  return damaged_found == 0 && std::any_of(superblocks.begin(), superblocks.end(), good) &&
         (!image || good(images[*image]));
}

Result<DiskCheckReport> check_disk(BlockDevice& drive, const Clock& clock, const DiskCheckOptions& options) {
  auto check = std::make_unique<Check>(drive, clock, options);
  const Status status = check->run();
  DiskCheckReport report = std::move(check->report());
  if (check->gave_up()) {
    // Reads may still be under way: their memory is never used again.
    [[maybe_unused]] Check* const kept = check.release();
  }
  if (!status.ok()) return tl::unexpected(status);
  return report;
}

}  // namespace tiercel
