#include "transfer/pool_copy.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "os/thread_annotations.h"
#include "transfer/pool_copy_check.h"

namespace tiercel {

namespace {

// Copies of fewer bytes stay in the caches, where their reader finds them.
constexpr std::uint64_t kPastCacheFrom = std::uint64_t{1} << 20;

std::chrono::steady_clock::time_point time_point(Time time) {
  return std::chrono::steady_clock::time_point(time);
}

}  // namespace

PoolBuffer host_buffer(MutableByteView bytes) { return {bytes.data(), 0, bytes.size()}; }

// What a copy has to do, how far it is, and who waits for it.
class LayeredCopy::Work final {
 public:
  // Granules [first, last) of one layer of one part.
  struct Piece {
    std::size_t part = 0;
    std::size_t layer = 0;  // of the part's plan
    std::size_t event = 0;
    std::uint64_t first = 0, last = 0;
  };

  Work(std::vector<PoolCopy> parts, const LayeredCopyOptions& options)
      : parts_(std::move(parts)), options_(options) {
    for (const PoolCopy& part : parts_) {
      auto& sums = sums_.emplace_back();
      if (options_.sums)
        sums.assign(part.plan->layers.size(), std::vector<std::uint32_t>(part.target_granules.size()));
    }
    const MutexLock lock(mutex_);  // for the compiler: nobody else is there yet
    add_events();
    add_jobs();
    for (std::size_t i = 0; i < events_.size(); ++i)
      if (events_[i].open == 0) give(i);
  }

  const std::vector<PoolCopy>& parts() const { return parts_; }
  const LayeredCopyOptions& options() const { return options_; }
  std::uint64_t pieces() const { return pieces_; }
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::span<std::uint32_t> sums_of(const Piece& piece) {
    if (!options_.sums) return {};
    return std::span(sums_[piece.part][piece.layer]).subspan(piece.first, piece.last - piece.first);
  }
  std::span<const std::uint32_t> sums(std::size_t part, std::size_t layer) const {
    return sums_[part][layer];
  }

  // The next piece, which its taker must finish(); nothing when there is none, or the copy has ended.
  std::optional<Piece> take() TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ended_ || next_job_ == jobs_.size()) return std::nullopt;
    const Job& job = jobs_[next_job_];
    Piece piece = job.piece;
    piece.first = next_granule_;
    piece.last = std::min(job.piece.last, next_granule_ + job.step);
    next_granule_ = piece.last;
    if (next_granule_ == job.piece.last) {
      ++next_job_;
      next_granule_ = 0;
    }
    ++taken_;
    return piece;
  }
  void finish(const Piece& piece, Status status) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    --taken_;
    if (!status.ok() && !ended_) end(std::move(status));
    Event& event = events_[piece.event];
    event.open -= piece.last - piece.first;
    if (event.open == 0 && !ended_) give(piece.event);
    changed_.notify_all();
  }
  void cancel() TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ended_ || given_ == events_.size()) return;
    end({Code::kCancelled, "the copy was cancelled"});
    changed_.notify_all();
  }

  // A task of the executor is over; or was dropped, and when it was the last nobody will do what is left.
  void add_task() TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++tasks_;
  }
  void drop_task() TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (--tasks_ > 0 || ended_ || next_job_ == jobs_.size()) return;
    end({Code::kUnavailable, "the copy's executor was closed before the copy was done"});
    changed_.notify_all();
  }

  bool layer_ready(std::uint32_t layer) const TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return is_ready(layer);
  }
  Status wait_layer(std::uint32_t layer, Time deadline) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (!is_ready(layer)) {
      if (ended_) return status_;
      if (!wait_changed(deadline))
        return {Code::kDeadlineExceeded, fmt::format("layer {} was not there in time", layer)};
    }
    return {};
  }
  std::vector<std::uint32_t> whole_layers() const TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    std::vector<std::uint32_t> layers;
    for (const Event& event : events_)
      if (event.given && event.layer != kAllLayers) layers.push_back(event.layer);
    return layers;
  }
  LayeredCopyState state() const TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return current_state();
  }
  Status wait(Time deadline) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (current_state() == LayeredCopyState::kRunning)
      if (!wait_changed(deadline)) return {Code::kDeadlineExceeded, "the copy was not over in time"};
    return status_;
  }

 private:
  struct Event {
    std::uint32_t layer = 0;
    std::uint64_t open = 0;  // granules, of all parts
    bool given = false;
  };
  struct Job {  // all granules of one layer of one part
    Piece piece;
    std::uint64_t step = 1;  // granules of a piece
  };

  void add_events() TIERCEL_REQUIRES(mutex_) {
    for (const PoolCopy& part : parts_)
      for (const LayerCopy& layer : part.plan->layers) events_.push_back({layer.layer});
    std::ranges::sort(events_, {}, &Event::layer);
    const auto twice = std::ranges::unique(events_, {}, &Event::layer);
    events_.erase(twice.begin(), twice.end());
  }
  void add_jobs() TIERCEL_REQUIRES(mutex_) {
    for (std::size_t p = 0; p < parts_.size(); ++p)
      for (std::size_t l = 0; l < parts_[p].plan->layers.size(); ++l) {
        const LayerCopy& layer = parts_[p].plan->layers[l];
        const std::uint64_t granules = parts_[p].target_granules.size();
        if (granules == 0 || layer.nests.empty()) continue;
        std::uint64_t bytes = 0;
        for (const CopyNest& nest : layer.nests) bytes += nest.bytes();
        const auto event = std::ranges::lower_bound(events_, layer.layer, {}, &Event::layer);
        event->open += granules;
        Job job{{p, l, static_cast<std::size_t>(event - events_.begin()), 0, granules}, 1};
        job.step = std::max<std::uint64_t>(options_.piece_bytes / std::max<std::uint64_t>(bytes, 1), 1);
        pieces_ += (granules + job.step - 1) / job.step;
        total_bytes_ += bytes * granules;
        jobs_.push_back(job);
      }
    std::ranges::stable_sort(jobs_, {}, [](const Job& job) { return job.piece.event; });
  }

  // Callers tell who waits.
  void give(std::size_t event) TIERCEL_REQUIRES(mutex_) {
    events_[event].given = true;
    ++given_;
  }
  void end(Status status) TIERCEL_REQUIRES(mutex_) {
    ended_ = true;
    status_ = std::move(status);
  }
  bool is_ready(std::uint32_t layer) const TIERCEL_REQUIRES(mutex_) {
    if (!events_.empty() && events_.back().layer == kAllLayers && !events_.back().given) return false;
    const auto event = std::ranges::lower_bound(events_, layer, {}, &Event::layer);
    return event == events_.end() || event->layer != layer || event->given;
  }
  LayeredCopyState current_state() const TIERCEL_REQUIRES(mutex_) {
    if (taken_ > 0) return LayeredCopyState::kRunning;
    if (ended_)
      return status_.code == Code::kCancelled ? LayeredCopyState::kCancelled : LayeredCopyState::kFailed;
    return given_ == events_.size() ? LayeredCopyState::kDone : LayeredCopyState::kRunning;
  }
  // False: it is past the deadline.
  bool wait_changed(Time deadline) TIERCEL_REQUIRES(mutex_) {
    if (deadline == Time::max()) {
      changed_.wait(mutex_);
      return true;
    }
    if (SteadyClock().now() >= deadline) return false;
    changed_.wait_until(mutex_, time_point(deadline));
    return true;
  }

  // Constant after construction; sums are written by whoever has the piece, and read when its event is given.
  std::vector<PoolCopy> parts_;
  LayeredCopyOptions options_;
  std::vector<Job> jobs_;  // by layer
  std::uint64_t pieces_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::vector<std::vector<std::vector<std::uint32_t>>> sums_;

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Event> events_ TIERCEL_GUARDED_BY(mutex_);  // by layer
  std::size_t given_ TIERCEL_GUARDED_BY(mutex_) = 0;
  std::size_t next_job_ TIERCEL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_granule_ TIERCEL_GUARDED_BY(mutex_) = 0;
  std::uint64_t taken_ TIERCEL_GUARDED_BY(mutex_) = 0;  // pieces
  std::uint64_t tasks_ TIERCEL_GUARDED_BY(mutex_) = 0;
  bool ended_ TIERCEL_GUARDED_BY(mutex_) = false;  // cancelled or failed
  Status status_ TIERCEL_GUARDED_BY(mutex_);
};

// Carries out pieces: by this processor, or by a stream of the device that a side lies on.
class LayeredCopy::Runner final {
 public:
  Runner(std::shared_ptr<Work> work, DeviceStream* stream, std::unique_ptr<DeviceStream> own)
      : work_(std::move(work)), own_(std::move(own)), stream_(own_ ? own_.get() : stream) {}
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    while (!flight_.empty()) land_first();
  }

  // Takes one piece, or ends one that the device is done with. False: there is nothing left to do. When it
  // may not wait for the device it may also have done nothing.
  bool turn(bool may_wait) {
    while (!flight_.empty() && flight_.front().is_over()) land_first();
    if (in_flight_bytes_ < work_->options().in_flight_bytes || flight_.empty())
      if (const auto piece = work_->take()) {
        if (is_on_device(*piece))
          send(*piece);
        else
          work_->finish(*piece, copy_here(*piece));
        return true;
      }
    if (flight_.empty()) return false;
    if (may_wait) land_first();
    return true;
  }

 private:
  struct Flying {
    Work::Piece piece;
    std::uint64_t bytes = 0;
    std::unique_ptr<DeviceEvent> event;
    bool is_over() const {
      const Result<bool> done = event->done();
      return !done || *done;
    }
  };

  static GranuleLists lists(const PoolCopy& part, const Work::Piece& piece) {
    const auto cut = [&](const std::vector<std::uint64_t>& granules) {
      return std::span(granules).subspan(piece.first, piece.last - piece.first);
    };
    return {cut(part.source_granules), cut(part.target_granules)};
  }
  static const PoolBuffer& buffer(const PoolMemory& memory, const CopySide& side) {
    return memory.ranks[side.shard][side.buffer];
  }
  const PoolCopy& part(const Work::Piece& piece) const { return work_->parts()[piece.part]; }
  const std::vector<CopyNest>& nests(const Work::Piece& piece) const {
    return part(piece).plan->layers[piece.layer].nests;
  }
  bool is_on_device(const Work::Piece& piece) const {
    return std::ranges::any_of(nests(piece), [&](const CopyNest& nest) {
      return buffer(part(piece).source, nest.source).host == nullptr ||
             buffer(part(piece).target, nest.target).host == nullptr;
    });
  }

  Status copy_here(const Work::Piece& piece) {
    const PoolCopy& p = part(piece);
    const WritePath path =
        work_->total_bytes() >= kPastCacheFrom ? WritePath::kPastCache : WritePath::kCached;
    const auto sums = work_->sums_of(piece);
    for (const CopyNest& nest : nests(piece)) {
      const NestMemory memory{buffer(p.source, nest.source).host, buffer(p.target, nest.target).host};
      if (work_->options().sums)
        copy_fragments(*p.plan, nest, memory, lists(p, piece), path, *work_->options().sums, sums);
      else
        copy_fragments(*p.plan, nest, memory, lists(p, piece), path);
    }
    copy_fence();
    return compare(piece);
  }
  Status compare(const Work::Piece& piece) {
    const PoolCopy& p = part(piece);
    if (p.expected_sums.empty()) return {};
    const auto sums = work_->sums_of(piece);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::uint32_t expected = p.expected_sums[piece.layer][piece.first + i];
      if (sums[i] != expected)
        return {Code::kDataCorrupt,
                fmt::format("layer {} of source granule {}: its bytes sum to {:08x}, wanted {:08x}",
                            p.plan->layers[piece.layer].layer, p.source_granules[piece.first + i], sums[i],
                            expected)};
    }
    return {};
  }

  // Bytes that lie on the host side of a piece that a device copies.
  void sum_host_side(const Work::Piece& piece, bool source) {
    if (!work_->options().sums) return;
    const PoolCopy& p = part(piece);
    for (const CopyNest& nest : nests(piece)) {
      const PoolBuffer& host = source ? buffer(p.source, nest.source) : buffer(p.target, nest.target);
      sum_fragments(*p.plan, nest, source ? PlanSide::kSource : PlanSide::kTarget, host.host, lists(p, piece),
                    *work_->options().sums, work_->sums_of(piece));
    }
  }

  void send(const Work::Piece& piece) {
    const PoolCopy& p = part(piece);
    const bool to_device = buffer(p.source, nests(piece).front().source).host != nullptr;
    if (to_device) {
      sum_host_side(piece, true);
      if (Status status = compare(piece); !status.ok()) return work_->finish(piece, std::move(status));
    }
    batch_.clear();
    std::uint64_t bytes = 0;
    for (const CopyNest& nest : nests(piece)) {
      fragments_.clear();
      append_fragments(*p.plan, nest, lists(p, piece), fragments_);
      const PoolBuffer& from = buffer(p.source, nest.source);
      const PoolBuffer& to = buffer(p.target, nest.target);
      for (const Fragment& f : fragments_) {
        batch_.push_back(
            to_device ? DeviceCopy{from.host + f.source_offset, to.address + f.target_offset, f.length}
                      : DeviceCopy{to.host + f.target_offset, from.address + f.source_offset, f.length});
        bytes += f.length;
      }
    }
    Status status = stream_->submit(to_device ? CopyDirection::kToDevice : CopyDirection::kToHost, batch_);
    Result<std::unique_ptr<DeviceEvent>> event =
        status.ok() ? stream_->record() : Result<std::unique_ptr<DeviceEvent>>(tl::unexpected(status));
    if (!event) {
      static_cast<void>(stream_->drain());  // some of it may still run
      return work_->finish(piece, event.error());
    }
    flight_.push_back({piece, bytes, std::move(*event)});
    in_flight_bytes_ += bytes;
  }
  void land_first() {
    const Flying flying = std::move(flight_.front());
    flight_.pop_front();
    in_flight_bytes_ -= flying.bytes;
    Status status = flying.event->wait();
    const PoolCopy& p = part(flying.piece);
    if (status.ok() && buffer(p.target, nests(flying.piece).front().target).host != nullptr) {
      sum_host_side(flying.piece, false);
      status = compare(flying.piece);
    }
    work_->finish(flying.piece, std::move(status));
  }

  std::shared_ptr<Work> work_;  // with the copy and its other tasks
  std::unique_ptr<DeviceStream> own_;
  DeviceStream* stream_;
  std::deque<Flying> flight_;
  std::uint64_t in_flight_bytes_ = 0;
  std::vector<DeviceCopy> batch_;  // kept to spare allocations
  std::vector<Fragment> fragments_;
};

// A worker's share. Dropped unrun, it says so.
class LayeredCopy::RunnerTask final : public Task {
 public:
  RunnerTask(std::shared_ptr<Work> work, std::unique_ptr<Runner> runner)
      : work_(std::move(work)), runner_(std::move(runner)) {
    work_->add_task();
  }
  RunnerTask(const RunnerTask&) = delete;
  RunnerTask& operator=(const RunnerTask&) = delete;
  ~RunnerTask() override { work_->drop_task(); }
  void run() override {
    while (runner_->turn(true)) continue;
  }

 private:
  std::shared_ptr<Work> work_;  // with the copy and its other tasks
  std::unique_ptr<Runner> runner_;
};

LayeredCopy::LayeredCopy(std::shared_ptr<Work> work, std::unique_ptr<Runner> stepped)
    : work_(std::move(work)), stepped_(std::move(stepped)) {}

Result<LayeredCopy> LayeredCopy::start(std::vector<PoolCopy> parts, const LayeredCopyOptions& options,
                                       Executor* executor) {
  LayeredCopyOptions chosen = options;
  Device* device = nullptr;  // whose streams are needed
  for (std::size_t i = 0; i < parts.size(); ++i) {
    TIERCEL_RETURN_IF_ERROR(check_pool_copy(parts[i], i));
    TIERCEL_RETURN_IF_ERROR(look_into_device(parts[i], i, device));
    if (!parts[i].expected_sums.empty() && !chosen.sums) chosen.sums = PlanSide::kSource;
  }
  std::unique_ptr<DeviceStream> own;
  if (device != nullptr && options.stream == nullptr) {
    TIERCEL_ASSIGN_OR_RETURN(own, device->open_stream());
  }
  auto work = std::make_shared<Work>(std::move(parts), chosen);
  if (options.workers == 0) {
    auto runner = std::make_unique<Runner>(work, options.stream, std::move(own));
    return LayeredCopy(std::move(work), std::move(runner));
  }
  TIERCEL_CHECK(executor != nullptr);
  const std::uint64_t tasks = device != nullptr ? std::min<std::uint64_t>(work->pieces(), 1)
                                                : std::min<std::uint64_t>(work->pieces(), options.workers);
  std::vector<std::unique_ptr<Task>> made;
  for (std::uint64_t i = 0; i < tasks; ++i)
    made.push_back(
        std::make_unique<RunnerTask>(work, std::make_unique<Runner>(work, options.stream, std::move(own))));
  for (std::unique_ptr<Task>& task : made) executor->submit(std::move(task));
  return LayeredCopy(std::move(work), nullptr);
}

LayeredCopy::LayeredCopy(LayeredCopy&&) noexcept = default;

LayeredCopy::~LayeredCopy() {
  if (!work_) return;  // moved from
  work_->cancel();
  stepped_.reset();
  static_cast<void>(work_->wait(Time::max()));
}

Status LayeredCopy::wait_layer(std::uint32_t layer, Time deadline) {
  return work_->wait_layer(layer, deadline);
}
bool LayeredCopy::layer_ready(std::uint32_t layer) const { return work_->layer_ready(layer); }
std::vector<std::uint32_t> LayeredCopy::whole_layers() const { return work_->whole_layers(); }
LayeredCopyState LayeredCopy::state() const { return work_->state(); }
Status LayeredCopy::wait(Time deadline) { return work_->wait(deadline); }
void LayeredCopy::cancel() { work_->cancel(); }

bool LayeredCopy::step() {
  TIERCEL_CHECK(stepped_ != nullptr);
  return stepped_->turn(false);
}

std::span<const std::uint32_t> LayeredCopy::sums(std::size_t part, std::size_t layer) const {
  return work_->sums(part, layer);
}

}  // namespace tiercel
