// Opening a log: what was found is settled on the drive before anything goes on over it, so that what this
// opening left out can never be there at a later one.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
namespace {

// Footers read while opening to learn how large the class-sets of an image are.
constexpr int kSizesReadMax = 64;

// What opening needs together; where the drive did not answer it must stay as long as the process.
struct Opening {
  Opening(BlockDevice& drive, const Clock& clock, const DiskLogOptions& options)
      : io(drive, clock, options.stall_after), recovery(io) {}
  disk::DriveIo io;
  disk::Recovery recovery;
};

Status check_options(const DiskLogOptions& options) {
  if (options.segment_bytes < 2 * kBlockBytes)
    return {Code::kInvalidArgument, fmt::format("disk: segment_bytes: wanted at least {}, got {}",
                                                2 * kBlockBytes, options.segment_bytes)};
  if (options.segments_in_flight == 0 || options.reads_in_flight == 0 || options.errors_to_trip == 0)
    return {Code::kInvalidArgument,
            "disk: segments_in_flight, reads_in_flight, errors_to_trip: wanted at least 1, got 0"};
  return {};
}

Status write_superblock(disk::DriveIo& io, const disk::Superblock& superblock) {
  const std::vector<std::byte> bytes = disk::encode(superblock);
  if (Status status = io.write(disk::superblock_place(superblock.sequence), bytes); !status.ok())
    return status;
  return io.flush();
}

// A new log on a blank drive.
Status make_log(Opening& opening, const DiskLogOptions& options, const Digest& new_uuid) {
  auto geometry = disk::plan_geometry(options, opening.io.drive().size_bytes());
  if (!geometry) return geometry.error();
  disk::Superblock superblock;
  std::copy_n(new_uuid.begin(), superblock.uuid.size(), superblock.uuid.begin());
  superblock.geometry = *geometry;
  if (Status status = opening.recovery.recover(superblock, false); !status.ok()) return status;
  // Lives of another log that was here before are void by the uuid, not by their height.
  disk::Recovered& found = opening.recovery.found();
  superblock.sequence = 1;
  superblock.epoch = 1;
  found.superblock = superblock;
  return write_superblock(opening.io, superblock);
}

// Whether the log goes on in it: nothing newer counts, and there is room for the mark.
bool goes_on(Opening& opening, const disk::TailFound& tail) {
  const disk::Recovered& found = opening.recovery.found();
  const auto newest = std::find_if(found.order.rbegin(), found.order.rend(), [&](std::uint32_t region) {
    return found.regions[region].last_at >= found.regions[region].first_at;
  });
  const std::uint64_t blocks =
      (disk::directory_bytes(tail.left_out.size()) + disk::footer_bytes(tail.entries.size())) / kBlockBytes;
  return newest != found.order.rend() && *newest == tail.region &&
         tail.next_block + blocks <= opening.recovery.region_blocks();
}

Status write_mark(Opening& opening, disk::TailFound& tail) {
  disk::Recovered& found = opening.recovery.found();
  disk::SegmentHead head;
  head.uuid = found.superblock.uuid;
  head.life = found.regions[tail.region].life;
  head.epoch = found.superblock.epoch + 1;
  head.first_at = found.last_at + 1;
  head.durable_at = found.last_at;
  head.block = tail.next_block;
  std::vector<disk::Descriptor> list;
  if (!TIERCEL_FAULT(mark_names_nothing)) {
    for (const disk::Descriptor& d : tail.left_out) {
      disk::Descriptor& out = list.emplace_back();
      out.kind = disk::EntryKind::kLeftOut;
      out.space = d.space;
      out.key = d.key;
      out.length = d.block;
      out.born = ++found.last_at;
    }
  }
  head.entries = static_cast<std::uint32_t>(list.size());
  head.blocks = static_cast<std::uint32_t>(disk::directory_bytes(list.size()) / kBlockBytes);
  const std::vector<std::byte> bytes = disk::encode_directory(head, list);
  const std::uint64_t at = opening.recovery.region_offset(tail.region) + tail.next_block * kBlockBytes;
  tail.next_block += head.blocks;
  return opening.io.write(at, bytes);
}

Status write_footer(Opening& opening, const disk::TailFound& tail) {
  const disk::Recovered& found = opening.recovery.found();
  disk::RegionFound& region = opening.recovery.found().regions[tail.region];
  region.entries = static_cast<std::uint32_t>(tail.entries.size());
  const disk::FooterTail footer{found.superblock.uuid, tail.region,    region.life,
                                region.first_at,       region.last_at, region.entries};
  const std::vector<std::byte> bytes = disk::encode_footer(footer, tail.entries);
  const std::uint64_t end = (opening.recovery.region_blocks() * kBlockBytes) - bytes.size();
  return opening.io.write(opening.recovery.region_offset(tail.region) + end, bytes);
}

// What was left out stays out, whatever a later opening could make of it.
Status settle(Opening& opening, disk::TailFound& tail) {
  using Becomes = disk::TailFound::Becomes;
  if (tail.next_block == 1) {  // no segment at all
    tail.becomes = Becomes::kEmpty;
    const std::vector<std::byte> nothing(kBlockBytes);
    return opening.io.write(opening.recovery.region_offset(tail.region) + kBlockBytes, nothing);
  }
  tail.becomes = goes_on(opening, tail) ? Becomes::kOpen : Becomes::kSealed;
  return tail.becomes == Becomes::kOpen ? write_mark(opening, tail) : write_footer(opening, tail);
}

// What counts, the superblock that was found with it, is behind a flush before anything says so or takes its
// place: whoever wrote it may have died before that. Then one flush for all that is settled; until it ends
// nothing is built on it, and the same bytes are settled the same way again.
Status recover_log(Opening& opening, const DiskLogOptions& options, const disk::Superblock& superblock) {
  if (Status status = opening.recovery.recover(superblock, false); !status.ok()) return status;
  if (options.read_only) return {};
  disk::Recovered& found = opening.recovery.found();
  if (found.last_at >= disk::kAtMax - disk::kNumbersApart)
    return {Code::kResourceExhausted,
            "disk: the log's numbers are used up: make a new one (this one can still be opened for reading "
            "only)"};
  if (!TIERCEL_FAULT(epoch_ignored_in_tail)) {
    found.last_at += disk::kNumbersApart;
    found.last_life += disk::kLivesApart;
  }
  if (Status status = opening.io.flush(); !status.ok()) return status;
  for (disk::TailFound& tail : found.tails)
    if (Status status = settle(opening, tail); !status.ok()) return status;
  disk::Superblock next = found.superblock;
  ++next.sequence;
  ++next.epoch;
  next.closed = false;
  if (Status status = write_superblock(opening.io, next); !status.ok()) return status;
  found.superblock = next;
  return {};
}

Status open_drive(Opening& opening, const DiskLogOptions& options, const Digest& new_uuid) {
  if (Status status = check_options(options); !status.ok()) return status;
  auto superblock = opening.recovery.find_superblock();
  if (!superblock) return superblock.error();
  if (*superblock) return recover_log(opening, options, **superblock);
  if (options.read_only) return {Code::kFailedPrecondition, "disk: there is no log: nothing but zeros"};
  return make_log(opening, options, new_uuid);
}

}  // namespace

DiskLog::State::State(const DiskLogOptions& asked, BlockDevice& device, Clock& the_clock,
                      disk::Recovered& found)
    : options(asked),
      clock(the_clock),
      drive(device, the_clock, options, stats),
      geometry(found.superblock.geometry),
      superblock(found.superblock),
      index(std::move(*found.index)),
      catalogue(std::move(*found.catalogue)),
      removals(std::move(*found.removals)),
      admission(options.admission, index.buckets() * disk::kBucketEntriesPlanned,
                disk::WriteBudget(options.write_bytes_per_day, the_clock.now())),
      last_life(found.last_life),
      last_at(found.last_at),
      image_from_at(found.image_from_at) {
  // Who only looks flushes nothing: what a process wrote that died may still be lost.
  durable_at = options.read_only ? 0 : last_at;
  soon_at = durable_at;
  last_image = found.last_image;
  for (const auto& [name, blocks] : found.set_blocks) count_of(name.first, name.second).blocks = blocks;
  for (const DiskSpaceId id : catalogue.all()) {
    name_logged.insert(id);
  }
  geometry.host_bytes = disk::host_bytes_of(geometry, options);
  stats.recovered_from_image = found.counts.from_image;
  stats.recovered_from_footers = found.counts.from_footers;
  stats.recovered_from_tail = found.counts.from_tail;
  stats.recovered_class_sets = index.size();
  stats.tail_segments_refused = found.counts.segments_refused;
  stats.images_damaged = found.counts.images_damaged;
  take_regions(found);
}

void DiskLog::State::take_regions(disk::Recovered& found) {
  const Time now = clock.now();
  for (const disk::RegionFound& from : found.regions) {
    disk::Region region;
    region.life = from.life;
    region.first_at = from.first_at;
    region.last_at = from.last_at;
    region.last_control_at = from.last_control_at;
    region.oldest_born = from.oldest_born;
    region.entries = from.entries;
    region.opened = now;
    regions.push_back(region);
  }
  for (std::uint32_t i = 0; i < regions.size(); ++i)
    if (regions[i].life == 0) free.push_back(i);
  std::vector<bool> is_sealed(regions.size(), true);
  for (disk::TailFound& tail : found.tails) {
    using Becomes = disk::TailFound::Becomes;
    is_sealed[tail.region] = tail.becomes == Becomes::kSealed;
    if (tail.becomes == Becomes::kOpen) {
      Filling filling;
      filling.region = tail.region;
      filling.next_block = tail.next_block;
      filling.entries = std::move(tail.entries);
      fillings.push_back(std::move(filling));
    } else if (tail.becomes == Becomes::kEmpty && tail.region == found.order.back()) {
      ready = tail.region;  // the last one to be prepared
    } else if (tail.becomes == Becomes::kEmpty) {
      free.push_front(tail.region);  // it is prepared again
    }
  }
  for (const std::uint32_t region : found.order)
    if (is_sealed[region]) sealed.push_back(region);
}

// How many class-sets of each kind the index names, and how large they are: the image does not say that.
void DiskLog::State::count_index(disk::Recovery& recovery) {
  std::uint64_t last = UINT64_MAX;
  disk::Count* count = nullptr;
  std::map<std::uint64_t, std::uint32_t> unknown;  // a region in which one lies
  index.for_each([&](const disk::IndexEntry& entry) {
    const std::uint64_t name = (std::uint64_t{entry.space} << 16) | entry.cls.value();
    if (name != last) count = &count_of(entry.space, entry.cls);
    last = name;
    ++count->sets;
    if (count->blocks == 0) unknown.try_emplace(name, region_of(entry));
  });
  int reads = 0;
  for (const auto& [name, region] : unknown) {
    if (counts[name].blocks != 0) continue;
    if (++reads > kSizesReadMax) break;
    const auto footer = recovery.read_footer(region);
    if (!footer) continue;
    for (const Descriptor& d : footer->entries)
      if (d.kind == disk::EntryKind::kClassSet) count_of(d.space, d.cls).blocks = d.blocks;
  }
}

Status DiskLog::State::make_ready(disk::DriveIo& io) {
  if (ready || open_region() != nullptr || free.empty()) return {};
  const std::uint32_t region = free.front();
  const std::vector<std::byte> bytes = new_header(region);
  if (Status status = io.write(offset_of(region, 0), bytes); !status.ok()) return status;
  if (Status status = io.flush(); !status.ok()) return status;
  free.pop_front();
  ready = region;
  return {};
}

Status DiskLog::still_ours(BlockDevice& drive) const {
  const State& s = *state_;
  auto opening = std::make_unique<Opening>(drive, s.clock, s.options);
  const auto there = opening->recovery.find_superblock();
  if (opening->io.gave_up()) {
    [[maybe_unused]] Opening* const kept = opening.release();  // its read may be under way for ever
  }
  if (!there) return there.error();
  if (*there && (*there)->uuid == s.superblock.uuid && (*there)->epoch == s.superblock.epoch) return {};
  return {Code::kFailedPrecondition, "disk: another process has opened the log meanwhile: open it again"};
}

Result<std::unique_ptr<DiskLog>> DiskLog::open(const DiskLogOptions& options, BlockDevice& drive,
                                               Clock& clock, const Digest& new_uuid) {
  auto opening = std::make_unique<Opening>(drive, clock, options);
  Status status = open_drive(*opening, options, new_uuid);
  std::unique_ptr<State> state;
  if (status.ok()) {
    state = std::make_unique<State>(options, drive, clock, opening->recovery.found());
    state->count_index(opening->recovery);
    if (!options.read_only) status = state->make_ready(opening->io);
    state->stats.written_bytes = opening->io.written_bytes();
    state->stats.header_bytes = opening->io.written_bytes();
    state->stats.recovery_read_bytes = opening->io.read_bytes();
  }
  if (opening->io.gave_up()) {
    if (status.ok()) status = {Code::kIoError, "disk: the drive does not answer while its log is opened"};
    // Operations may still be under way: their memory is never used again.
    [[maybe_unused]] Opening* const kept = opening.release();
  }
  if (!status.ok()) return tl::unexpected(status);
  return std::unique_ptr<DiskLog>(new DiskLog(std::move(state)));
}

}  // namespace tiercel
