#include "disk_kills_device.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "base/check.h"

namespace tiercel::kills {
namespace {

constexpr std::uint64_t kOwnId = UINT64_MAX;  // of operations that the log knows nothing of
constexpr std::uint64_t kSectorBytes = 512;   // what a drive writes whole or not at all

std::vector<std::byte> gather(const BlockRequest& request) {
  std::vector<std::byte> bytes;
  bytes.reserve(request.bytes());
  for (const BlockPiece& piece : request.pieces) {
    if (piece.data != nullptr)
      bytes.insert(bytes.end(), piece.data, piece.data + piece.length);
    else
      bytes.resize(bytes.size() + piece.length);
  }
  return bytes;
}

}  // namespace

MortalDevice::MortalDevice(BlockDevice& inner, const DiskGeometry& geometry, const Plan& plan, Book& book,
                           Met& met, Clock& clock, Time dies_at)
    : inner_(inner),
      geometry_(geometry),
      plan_(plan),
      book_(book),
      met_(met),
      clock_(clock),
      dies_at_(dies_at),
      random_(plan.seed ^ 0xD1E) {}

MortalDevice::~MortalDevice() {
  for (Cached& write : cached_) write_now(write.offset, std::move(write.bytes));
}

Target MortalDevice::target_of(const BlockRequest& request) const {
  if (request.work == BlockWork::kRead) return Target::kRead;
  if (request.work == BlockWork::kFlush) return Target::kFlush;
  if (request.offset < 2 * kBlockBytes) return Target::kSuperblock;
  if (request.offset < geometry_.regions_offset) return Target::kImage;
  const std::uint64_t in_region = (request.offset - geometry_.regions_offset) % geometry_.region_bytes;
  if (in_region == 0) return Target::kHeader;
  return in_region + request.bytes() == geometry_.region_bytes ? Target::kFooter : Target::kSegment;
}

// From here on the region's class-sets may be gone.
void MortalDevice::note_header(const BlockRequest& request) {
  const std::uint64_t region = (request.offset - geometry_.regions_offset) / geometry_.region_bytes;
  TIERCEL_CHECK(region < kRegionsMax);
  ++book_.region_writes[region];
  book_.count(Count::kRegions);
}

// ---- death ----

void MortalDevice::die(std::size_t point) {
  if (plan_.power_cut) lose_power();
  ++book_.kills_at[point];
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void MortalDevice::die_if_late() {
  if (!plan_.kill.by_parent && clock_.now() >= dies_at_ && book_.phase != kWaiting) die(kKilledByItself);
}

void MortalDevice::die_in(const BlockRequest& request, Moment moment, std::size_t point) {
  const bool write = request.work == BlockWork::kWrite;
  if (moment != Moment::kBefore) {
    // The drive may have taken this one first of all.
    if (plan_.power_cut && write && moment == Moment::kAfter && random_.chance(0.5))
      write_now(request.offset, gather(request));
    else if (plan_.power_cut && write)
      cached_.push_back({request.offset, gather(request)});
    else if (moment == Moment::kAfter)
      static_cast<void>(end({request, cached_.size()}));
  }
  if (moment == Moment::kHalf && write && !plan_.power_cut)
    write_part({request.offset, gather(request)}, random_.chance(0.5) ? 0.5 : random_.unit());
  die(point);
}

void MortalDevice::meet(const BlockRequest& request) {
  const KillPlan& kill = plan_.kill;
  ++met_.operations;
  if (kill.nth == 0) return;
  if (!kill.point) {
    if (met_.operations >= kill.nth)
      die_in(request, static_cast<Moment>(random_.below(3)), kKilledAtOperation);
    return;
  }
  if (kPoints[*kill.point].target != target_of(request)) return;
  if (++met_.points[*kill.point] >= kill.nth) die_in(request, kPoints[*kill.point].moment, *kill.point);
}

// ---- operations ----

bool MortalDevice::submit(BlockRequest request) {
  die_if_late();
  if (target_of(request) == Target::kHeader) note_header(request);
  meet(request);
  if (!plan_.power_cut) return inner_.submit(std::move(request));
  waiting_.push_back({std::move(request), cached_.size()});
  return true;
}

std::vector<BlockDone> MortalDevice::drain() {
  die_if_late();
  std::vector<BlockDone> ends = std::exchange(ends_of_others_, {});
  if (!plan_.power_cut) {
    for (BlockDone& done : inner_.drain()) ends.push_back(std::move(done));
    return ends;
  }
  // In any order, some now and some later. A flush covers what had ended before it came.
  for (std::size_t turns = waiting_.size(); turns != 0; --turns) {
    if (!must_end_one_ && !random_.chance(0.6)) continue;
    must_end_one_ = false;
    const std::size_t which = random_.below(waiting_.size());
    Waiting waiting = std::move(waiting_[which]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(which));
    const std::uint64_t id = waiting.request.id;
    ends.push_back({id, end(std::move(waiting))});
  }
  return ends;
}

void MortalDevice::wait(Duration at_most) {
  die_if_late();
  if (!ends_of_others_.empty()) return;
  if (!plan_.power_cut) return inner_.wait(at_most);
  must_end_one_ = true;
}

// ---- the volatile cache ----

Status MortalDevice::end(Waiting waiting) {
  BlockRequest& request = waiting.request;
  switch (request.work) {
    case BlockWork::kWrite:
      if (!plan_.power_cut) return run_now(std::move(request));
      cached_.push_back({request.offset, gather(request)});
      return {};
    case BlockWork::kRead:
      read_through(request);
      return {};
    case BlockWork::kFlush:
      if (!plan_.power_cut) return run_now(std::move(request));
      // What an earlier flush has taken was older than all that this one covers.
      for (std::size_t i = 0; i < waiting.covers; ++i)
        write_now(cached_[i].offset, std::move(cached_[i].bytes));
      cached_.erase(cached_.begin(), cached_.begin() + static_cast<std::ptrdiff_t>(waiting.covers));
      for (Waiting& other : waiting_) other.covers -= std::min(other.covers, waiting.covers);
      return {};
  }
  return {};
}

Status MortalDevice::run_now(BlockRequest request) {
  request.id = kOwnId;
  for (bool accepted = false;;) {
    if (!accepted) {
      BlockRequest copy = request;
      accepted = inner_.submit(std::move(copy));
    }
    inner_.wait(std::chrono::milliseconds(100));
    std::optional<Status> ended;
    for (BlockDone& done : inner_.drain()) {
      if (done.id == kOwnId)
        ended = std::move(done.status);
      else
        ends_of_others_.push_back(std::move(done));
    }
    if (ended) return *ended;
  }
}

void MortalDevice::write_now(std::uint64_t offset, std::vector<std::byte> bytes) {
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.offset = offset;
  request.pieces = {{bytes.data(), bytes.size()}};
  const Status status = run_now(std::move(request));
  TIERCEL_CHECK(status.ok());
}

void MortalDevice::read_through(const BlockRequest& request) {
  const Status status = run_now(request);
  TIERCEL_CHECK(status.ok());
  if (!plan_.power_cut) return;
  for (const Cached& write : cached_) {
    std::uint64_t at = request.offset;
    for (const BlockPiece& piece : request.pieces) {
      const std::uint64_t from = std::max(at, write.offset);
      const std::uint64_t to = std::min(at + piece.length, write.offset + write.bytes.size());
      if (piece.data != nullptr && from < to)
        std::memcpy(piece.data + (from - at), write.bytes.data() + (from - write.offset), to - from);
      at += piece.length;
    }
  }
}

// About so much of it reaches the drive, in any order, sector by sector.
void MortalDevice::write_part(const Cached& write, double share) {
  std::vector<std::byte> there(write.bytes.size());
  BlockRequest read;
  read.offset = write.offset;
  read.pieces = {{there.data(), there.size()}};
  const Status status = run_now(std::move(read));
  TIERCEL_CHECK(status.ok());
  const bool prefix = random_.chance(0.4);
  const std::uint64_t unit = random_.chance(0.5) ? kSectorBytes : kBlockBytes;
  const auto until = static_cast<std::uint64_t>(share * static_cast<double>(write.bytes.size()));
  for (std::uint64_t at = 0; at < write.bytes.size(); at += unit)
    if (prefix ? at < until : random_.chance(share))
      std::memcpy(there.data() + at, write.bytes.data() + at, unit);
  write_now(write.offset, std::move(there));
}

void MortalDevice::lose_power() {
  for (const Waiting& waiting : waiting_)
    if (waiting.request.work == BlockWork::kWrite && random_.chance(0.7))
      cached_.push_back({waiting.request.offset, gather(waiting.request)});
  // One drive had written nothing yet, another one nearly everything.
  const double share = random_.chance(0.2) ? 0 : random_.chance(0.25) ? 1 : random_.unit();
  const bool torn = random_.chance(0.7);
  for (std::size_t left = cached_.size(); left != 0; --left) {
    std::swap(cached_[random_.below(left)], cached_[left - 1]);
    const Cached& write = cached_[left - 1];
    if (!random_.chance(share)) continue;
    if (torn && random_.chance(0.3))
      write_part(write, random_.unit());
    else
      write_now(write.offset, write.bytes);
  }
}

}  // namespace tiercel::kills
