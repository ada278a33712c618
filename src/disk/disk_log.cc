#include "disk/disk_log.h"

#include <algorithm>
#include <utility>

#include "disk/state.h"

namespace tiercel {

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
  const bool can_write = open_region() != nullptr || ready;
  const bool evicting = preparing && (preparing->stage == Stage::kErase || preparing->stage == Stage::kSweep);
  const bool copying = checkpoint && checkpoint->under_way == 0 && checkpoint->flush == 0 && !image_waits();
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
  list.reserve(views.size());
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
