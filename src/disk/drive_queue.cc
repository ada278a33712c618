#include "disk/drive_queue.h"

#include <algorithm>
#include <utility>

#include "disk/drive_io.h"

namespace tiercel::disk {
namespace {

std::size_t index_of(BlockWork work) { return static_cast<std::size_t>(work); }

}  // namespace

DriveQueue::DriveQueue(BlockDevice& drive, const Clock& clock, const DiskLogOptions& options,
                       DiskStats& stats)
    : drive_(drive),
      clock_(clock),
      options_(options),
      stats_(stats),
      last_id_(DriveIo::first_id(clock)),
      retry_wait_(options.retry_after),
      no_space_wait_(options.retry_after),
      looked_at_(kBlockBytes) {}

bool DriveQueue::submit(BlockRequest& request, Then& then) {
  request.id = last_id_ + 1;
  const BlockWork work = request.work;
  const std::uint64_t bytes = request.bytes();
  if (!drive_.submit(request)) return false;
  ++last_id_;
  ops_.emplace_hint(ops_.end(), last_id_, Op{work, clock_.now(), std::move(then)});
  if (work == BlockWork::kWrite) stats_.written_bytes += bytes;
  if (work == BlockWork::kFlush) ++stats_.flushes;
  return true;
}

void DriveQueue::start(BlockRequest request, Then then) {
  if (!down_ && waiting_.empty() && submit(request, then)) return;
  waiting_.push_back({std::move(request), std::move(then)});
}

bool DriveQueue::try_start(BlockRequest request, Then then) { return !down_ && submit(request, then); }

void DriveQueue::end(const BlockDone& done) {
  const auto found = ops_.find(done.id);
  if (found == ops_.end()) return;  // of an earlier user of the drive, who gave up
  const Op op = std::move(found->second);
  ops_.erase(found);
  judge(op.work, done.status);
  op.then(done.status);
}

// A success of the kind that brought the tier down ends the doubling of its waits: a drive that can be read
// but not written must not be asked again and again at the first pace.
void DriveQueue::judge(BlockWork work, const Status& status) {
  if (status.ok()) {
    failures_[index_of(work)] = 0;
    if (!down_ && (!tripped_by_ || tripped_by_ == work)) retry_wait_ = options_.retry_after;
    if (work == BlockWork::kWrite) no_space_wait_ = options_.retry_after;
    return;
  }
  ++stats_.io_errors;
  if (work == BlockWork::kWrite && status.code == Code::kResourceExhausted) {
    no_space_until_ = later(clock_.now(), no_space_wait_);
    no_space_wait_ = std::min(no_space_wait_ * 2, options_.retry_after_max);
    return;
  }
  if (++failures_[index_of(work)] >= options_.errors_to_trip) trip(work);
}

void DriveQueue::trip(std::optional<BlockWork> by) {
  if (down_) return;
  down_ = true;
  stats_.down = true;
  ++stats_.trips;
  tripped_by_ = by;
  retry_at_ = later(clock_.now(), retry_wait_);
  retry_wait_ = std::min(retry_wait_ * 2, options_.retry_after_max);
}

// Whether the oldest operation takes too long.
bool DriveQueue::stalls(Time now) {
  if (ops_.empty()) return false;
  Op& oldest = ops_.begin()->second;
  if (now < later(oldest.since, options_.stall_after)) return false;
  if (!std::exchange(oldest.stalled, true)) ++stats_.stalls;
  return true;
}

void DriveQueue::look() {
  BlockRequest request;
  request.work = BlockWork::kRead;
  request.pieces = {{looked_at_.data(), looked_at_.size()}};
  Then then = [this](const Status& status) { looked(status); };
  looking_ = submit(request, then);
  if (!looking_) retry_at_ = later(clock_.now(), retry_wait_);
}

void DriveQueue::looked(const Status& status) {
  looking_ = false;
  const Time now = clock_.now();
  if (!status.ok() || stalls(now)) {
    retry_at_ = later(now, retry_wait_);
    retry_wait_ = std::min(retry_wait_ * 2, options_.retry_after_max);
    return;
  }
  down_ = false;
  stats_.down = false;
  failures_ = {};
  // What brought it down gets one try.
  if (tripped_by_) failures_[index_of(*tripped_by_)] = std::max(options_.errors_to_trip, 1U) - 1;
}

std::size_t DriveQueue::poll() {
  std::size_t things = 0;
  for (const BlockDone& done : drive_.drain()) {
    end(done);
    ++things;
  }
  const Time now = clock_.now();
  if (!down_ && stalls(now)) trip(std::nullopt);
  if (down_) {
    for (Waiting& waiting : std::exchange(waiting_, {})) {
      waiting.then({Code::kUnavailable, "the disk tier is down"});
      ++things;
    }
    if (!looking_ && now >= retry_at_) look();
    return things;
  }
  while (!waiting_.empty() && submit(waiting_.front().request, waiting_.front().then)) {
    waiting_.pop_front();
    ++things;
  }
  return things;
}

Time DriveQueue::next_due() const {
  Time due = Time::max();
  if (down_) return looking_ ? due : retry_at_;
  if (!ops_.empty()) due = later(ops_.begin()->second.since, options_.stall_after);
  if (no_space_until_ > clock_.now()) due = std::min(due, no_space_until_);
  return due;
}

}  // namespace tiercel::disk
