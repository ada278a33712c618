#include "disk/disk_log.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
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
  const std::uint64_t at = TIERCEL_FAULT(superblock_single) ? 0 : (superblock.sequence & 1) * kBlockBytes;
  if (Status status = io.write(at, bytes); !status.ok()) return status;
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

Status recover_log(Opening& opening, const DiskLogOptions& options, const disk::Superblock& superblock) {
  if (Status status = opening.recovery.recover(superblock, false); !status.ok()) return status;
  if (options.read_only) return {};
  disk::Recovered& found = opening.recovery.found();
  // What was refused stays refused, whatever a later crash leaves there: the log goes on over a void block.
  const std::vector<std::byte> nothing(kBlockBytes);
  for (const disk::TailFound& tail : found.tails) {
    if (tail.refused.empty()) continue;
    const std::uint64_t at = opening.recovery.region_offset(tail.region) + tail.next_block * kBlockBytes;
    if (Status status = opening.io.write(at, nothing); !status.ok()) return status;
  }
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
  if (options.read_only)
    return {Code::kFailedPrecondition, "disk: there is no log yet, and read_only makes none"};
  return make_log(opening, options, new_uuid);
}

}  // namespace

// ---- opening ----

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
  // A new log begins at 1; one that was opened before goes on far above all that was seen.
  if (superblock.epoch > 1 && !options.read_only && !TIERCEL_FAULT(epoch_ignored_in_tail)) {
    last_at = std::min(disk::kAtMax, last_at + disk::kNumbersApart);
    last_life += disk::kLivesApart;
  }
  durable_at = soon_at = last_at;
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
  stats.footers_damaged = found.counts.footers_damaged;
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
  std::vector<bool> without_footer(regions.size());
  std::optional<std::uint32_t> newest;  // with entries
  for (const std::uint32_t region : found.order)
    if (regions[region].last_at >= regions[region].first_at) newest = region;
  for (disk::TailFound& tail : found.tails) {
    without_footer[tail.region] = true;
    if (tail.entries.empty()) {
      // Ready, where it was the last to be prepared; else it is prepared again.
      if (tail.region == found.order.back())
        ready = tail.region;
      else
        free.push_front(tail.region);
      continue;
    }
    Filling filling;
    filling.region = tail.region;
    filling.next_block = tail.next_block;
    filling.entries = std::move(tail.entries);
    if (tail.region != newest) filling.stage = Filling::Stage::kSealed;
    fillings.push_back(std::move(filling));
  }
  for (const std::uint32_t region : found.order)
    if (!without_footer[region]) sealed.push_back(region);
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

DiskLog::DiskLog(std::unique_ptr<State> state) : state_(std::move(state)) {}

// Waits for what is under way, since its memory is the log's; memory that the drive does not give back stays.
DiskLog::~DiskLog() {
  State& s = *state_;
  s.closing = s.closed = true;
  const Time until = later(s.clock.now(), s.options.stall_after);
  Time last = s.clock.now();
  for (int vain = 0; s.drive.under_way() != 0 && s.clock.now() < until && vain < disk::kVainWaitsMax;) {
    const std::size_t things = s.drive.poll();
    if (things == 0) s.drive.wait(until - s.clock.now());
    vain = things == 0 && s.clock.now() == last ? vain + 1 : 0;
    last = s.clock.now();
  }
  if (s.drive.under_way() != 0) {
    [[maybe_unused]] State* const kept = state_.release();
  }
}

const DiskGeometry& DiskLog::geometry() const { return state_->geometry; }

// ---- running ----

bool DiskLog::State::has_work() const {
  if (closed || options.read_only || drive.blocks_writes()) return false;
  using Stage = disk::Preparing::Stage;
  const bool is_open = !fillings.empty() && fillings.back().stage == Filling::Stage::kOpen;
  const bool can_write = is_open || ready;
  const bool evicting = preparing && (preparing->stage == Stage::kErase || preparing->stage == Stage::kSweep);
  const bool copying = checkpoint && checkpoint->under_way == 0 && checkpoint->flush == 0;
  const bool unwritten = writing == 0 && !going.empty();  // closed by an append that found no room
  return was_blocked || went_on || unwritten || (!gathered.empty() && going.empty() && can_write) ||
         (!again.empty() && can_write) || evicting || copying || sweep_from.has_value() ||
         (!flushing && flush_wanted > flushes_begun);
}

std::size_t DiskLog::State::poll() {
  std::size_t things = drive.poll();
  if (options.read_only || closed) return things;
  if (drive.down() && !was_down) lose_unwritten({Code::kUnavailable, "disk: the tier is down"});
  if (!drive.down() && drive.blocks_writes())
    lose_unwritten({Code::kResourceExhausted, "disk: no space on the drive"});
  was_down = drive.down();
  was_blocked = drive.blocks_writes();
  things += write_again();
  if (open_region() == nullptr && !gathered.empty()) open_next();
  const bool soon = !gathered.empty() && soon_at >= gathered.front().at;
  if (!gathered.empty() && open_region() != nullptr && !drive.blocks_writes() && (going.empty() || soon))
    close_gathered();
  things += write_segments();
  things += seal_regions();
  things += prepare();
  things += checkpoint_step();
  things += sweep_cleared();
  things += flush_when_due();
  went_on = things != 0;
  return things;
}

Time DiskLog::State::next_due() const {
  Time due = drive.next_due();
  if (has_work()) return clock.now();
  if (unflushed_since && !flushing && !options.read_only && !drive.down() && ended_up_to() > durable_at)
    due = std::min(due, later(*unflushed_since, options.flush_after));
  return due;
}

Status DiskLog::State::run_until(const std::function<bool()>& done, Duration at_most) {
  const Time until = later(clock.now(), at_most);
  for (int vain = 0; vain < disk::kVainWaitsMax;) {
    const std::size_t things = poll();
    if (done()) return {};
    if (drive.down()) return {Code::kUnavailable, "disk: the tier is down"};
    if (drive.blocks_writes()) return {Code::kResourceExhausted, "disk: no space on the drive"};
    const Time now = clock.now();
    if (now >= until) return {Code::kDeadlineExceeded, "disk: not all was flushed in time"};
    vain = things == 0 ? vain + 1 : 0;
    if (things != 0) continue;
    drive.wait(std::max(std::min(next_due(), until) - now, Duration(0)));
    if (clock.now() != now) vain = 0;
  }
  return {Code::kResourceExhausted, "disk: no region can be had to write to"};
}

Status DiskLog::State::settle(std::uint64_t at, Duration at_most) {
  if (at <= durable_at) return {};
  if (options.read_only || closed) return {Code::kUnavailable, "disk: the log writes nothing more"};
  soon_at = std::max(soon_at, std::min(at, last_at));
  return run_until([&] { return durable_at >= std::min(at, last_at); }, at_most);
}

Status DiskLog::State::close(Duration at_most) {
  if (closed) return {};
  const Time until = later(clock.now(), at_most);
  const auto left = [&] { return std::max(until - clock.now(), Duration(0)); };
  closing = true;
  Status status;
  if (!options.read_only) {
    soon_at = last_at;
    status = run_until(
        [&] {
          const bool sealed_all = std::all_of(fillings.begin(), fillings.end(), [](const Filling& filling) {
            return filling.stage == Filling::Stage::kOpen;
          });
          return durable_at >= last_at && gathered.empty() && going.empty() && again.empty() && sealed_all &&
                 !checkpoint && !flushing;
        },
        left());
    if (status.ok()) {
      begin_checkpoint(true);
      status = run_until([&] { return !checkpoint; }, left());
      if (status.ok() && !superblock.closed)
        status = {Code::kIoError, "disk: the last image was not written"};
    }
  }
  // Whoever gave memory gets it back where nothing reads it yet.
  if (!status.ok()) lose_unwritten(status);
  closed = true;
  return status;
}

const DiskStats& DiskLog::State::fill_stats() {
  stats.size_bytes = geometry.size_bytes;
  stats.region_bytes = geometry.region_bytes;
  stats.regions = geometry.regions;
  stats.regions_free = free.size() + (ready ? 1 : 0);
  stats.class_sets = index.size();
  stats.index_entries = index.capacity();
  stats.host_bytes = geometry.host_bytes;
  stats.live_bytes = 0;
  for (const auto& [name, count] : counts) stats.live_bytes += count.sets * count.blocks * kBlockBytes;
  stats.removals = removals.pages();
  stats.removals_folded = removals.folded();
  stats.write_budget_bytes = admission.budget().bytes_per_day();
  stats.write_budget_left = admission.budget().left(clock.now());
  std::optional<std::uint32_t> oldest;
  if (!sealed.empty())
    oldest = sealed.front();
  else if (!fillings.empty())
    oldest = fillings.front().region;
  stats.oldest_age = oldest ? clock.now() - regions[*oldest].opened : Duration(0);
  return stats;
}

// ---- the calls ----

std::vector<DiskLog::SpaceView> DiskLog::spaces() const {
  const State& s = *state_;
  std::map<DiskSpaceId, SpaceView> views;
  for (const DiskSpaceId id : s.catalogue.all()) views[id] = {id, *s.catalogue.name(id), 0, 0};
  s.index.for_each([&](const disk::IndexEntry& entry) {
    const auto view = views.find(DiskSpaceId(entry.space));
    if (view == views.end() || s.dead(view->first, entry.key, entry.born) || !s.holds(entry)) return;
    ++view->second.class_sets;
    const auto count = s.counts.find((std::uint64_t{entry.space} << 16) | entry.cls.value());
    if (count != s.counts.end()) view->second.bytes += count->second.blocks * kBlockBytes;
  });
  std::vector<SpaceView> list;
  for (auto& [id, view] : views) list.push_back(std::move(view));
  return list;
}

std::uint64_t DiskLog::weights_epoch(const Digest& form) const {
  return state_->catalogue.weights_epoch(form);
}
DiskAnswer DiskLog::append(const DiskEntry& entry, DiskOffer offer) { return state_->append(entry, offer); }
std::optional<std::uint64_t> DiskLog::remove(DiskSpaceId space, const Key& key) {
  return state_->remove(space, key);
}
std::optional<std::uint64_t> DiskLog::clear(DiskSpaceId space) { return state_->clear(space); }
std::optional<std::uint64_t> DiskLog::clear_form(const Digest& form, std::uint64_t weights_epoch) {
  return state_->clear_form(form, weights_epoch);
}
void DiskLog::drop(const DiskName& name) {
  const auto entry = state_->index.find(name.space, name.key, name.cls);
  if (entry) state_->erase(*entry);
}
std::optional<DiskReadId> DiskLog::read(const DiskEntry& into, bool chain_known) {
  return state_->read(into, chain_known);
}
void DiskLog::touch(const DiskName& name) { state_->index.use(name.space, name.key, name.cls); }
bool DiskLog::down() const { return state_->drive.down(); }
void DiskLog::flush_soon() { state_->soon_at = state_->last_at; }
std::uint64_t DiskLog::last_at() const { return state_->last_at; }
std::uint64_t DiskLog::durable_at() const { return state_->durable_at; }
std::size_t DiskLog::poll() { return state_->poll(); }
std::vector<DiskEvent> DiskLog::drain_events() { return std::exchange(state_->events, {}); }
Time DiskLog::next_due() const { return state_->next_due(); }
void DiskLog::wait(Duration at_most) {
  State& s = *state_;
  const Time now = s.clock.now();
  s.drive.wait(std::max(std::min(s.next_due(), later(now, at_most)) - now, Duration(0)));
}
Status DiskLog::settle(std::uint64_t at, Duration at_most) { return state_->settle(at, at_most); }
Status DiskLog::close(Duration at_most) { return state_->close(at_most); }
const DiskStats& DiskLog::stats() const { return state_->fill_stats(); }

}  // namespace tiercel
