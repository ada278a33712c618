#include "os/block_queue.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"

namespace tiercel {
namespace {

// Attempts of the background under way: beside foreground work, and alone.
constexpr std::size_t kBackgroundBeside = 4;
constexpr std::size_t kBackgroundAlone = 16;

void raise(int fd) {
  const std::uint64_t one = 1;
  while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void lower(int fd) {
  std::uint64_t count = 0;
  while (::read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace

struct BlockQueue::Operation {
  explicit Operation(BlockRequest from)
      : request(std::move(from)),
        memory(request.pieces),
        progress(request.work, request.offset, memory.bytes()) {}
  BlockRequest request;
  BlockMemory memory;
  BlockProgress progress;
  bool ready = true;  // stands in one of the two queues
};

const BlockMemory& BlockQueue::Attempt::memory() const { return operation->memory; }

Result<std::unique_ptr<BlockQueue>> BlockQueue::create(BlockQueueOptions options) {
  const int end_fd = options.event ? ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
  if (options.event && end_fd < 0)
    return error(Code::kUnavailable, fmt::format("{}: no file descriptor for events: {}; look at ulimit -n",
                                                 options.name, std::generic_category().message(errno)));
  return std::unique_ptr<BlockQueue>(new BlockQueue(std::move(options), end_fd));
}

BlockQueue::BlockQueue(BlockQueueOptions options, int end_fd)
    : options_(std::move(options)), end_fd_(end_fd) {
  TIERCEL_CHECK(options_.attempts_max >= 2);
}

BlockQueue::~BlockQueue() = default;

bool BlockQueue::submit(BlockRequest request) {
  const std::uint64_t bytes = request.bytes();
  if (request.work == BlockWork::kFlush) {
    TIERCEL_CHECK(bytes == 0);
  } else {
    TIERCEL_CHECK(request.offset % kBlockBytes == 0 && bytes % kBlockBytes == 0 && bytes != 0);
    TIERCEL_CHECK(request.offset <= options_.size_bytes && bytes <= options_.size_bytes - request.offset);
  }
  {
    const MutexLock lock(mutex_);
    if (operations_.size() + ends_.size() >= options_.operations_max) return false;
    if (request.work == BlockWork::kFlush && !flush_lost_.ok()) {
      tell(request.id, flush_lost_);
      return true;
    }
    std::deque<Operation*>& ready = request.background ? background_ : foreground_;
    operations_.push_back(std::make_unique<Operation>(std::move(request)));
    ready.push_back(operations_.back().get());
  }
  changed_.notify_one();
  return true;
}

std::vector<BlockDone> BlockQueue::drain() {
  const MutexLock lock(mutex_);
  if (!ends_.empty() && end_fd_.get() >= 0) lower(end_fd_.get());
  return std::exchange(ends_, {});
}

bool BlockQueue::nothing_to_wait_for() {
  const MutexLock lock(mutex_);
  return !ends_.empty() || operations_.empty();
}

bool BlockQueue::end_waits() {
  const MutexLock lock(mutex_);
  return !ends_.empty();
}

void BlockQueue::wait(Duration at_most) {
  if (nothing_to_wait_for()) return;
  const auto left = std::max(at_most, Duration{0});
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  const timespec time{static_cast<time_t>(seconds.count()), static_cast<long>((left - seconds).count())};
  pollfd end{end_fd_.get(), POLLIN, 0};
  ::ppoll(&end, 1, &time, nullptr);  // a signal ends it early: the caller asks again
}

std::optional<BlockQueue::Attempt> BlockQueue::next_of(std::deque<Operation*>& ready, std::uint64_t bounce) {
  Operation* const operation = ready.front();
  const auto pending = operation->progress.next();
  TIERCEL_CHECK(pending.has_value());
  BlockVectorLimits limits = options_.limits;
  limits.bounced = bounce;
  Attempt attempt{operation,
                  {operation->request.work, operation->request.offset + pending->from, 0},
                  BlockVectors(operation->memory, *pending, limits)};
  if (attempt.call.work != BlockWork::kFlush && attempt.vectors.range().length() == 0) return std::nullopt;
  attempt.call.length = attempt.vectors.range().length();
  operation->progress.started(attempt.vectors.range());
  if (!operation->progress.next()) {
    operation->ready = false;
    ready.pop_front();
  }
  ++(operation->request.background ? background_attempts_ : foreground_attempts_);
  return attempt;
}

std::optional<BlockQueue::Attempt> BlockQueue::next(std::uint64_t bounce) {
  if (stopping_) return std::nullopt;
  const std::size_t all = options_.attempts_max;
  const bool foreground = !foreground_.empty() || foreground_attempts_ != 0;
  const bool background = !background_.empty() || background_attempts_ != 0;
  // Beside each other each side keeps at least one attempt.
  const std::size_t beside = std::clamp<std::size_t>(kBackgroundBeside, 1, std::max<std::size_t>(all / 4, 1));
  if (!foreground_.empty() && foreground_attempts_ < all - (background ? beside : 0))
    return next_of(foreground_, bounce);
  const std::size_t most = foreground ? beside : std::min(kBackgroundAlone, all);
  if (!background_.empty() && background_attempts_ < most) return next_of(background_, bounce);
  return std::nullopt;
}

std::optional<BlockQueue::Attempt> BlockQueue::take(std::uint64_t bounce) {
  const MutexLock lock(mutex_);
  return next(bounce);
}

std::optional<BlockQueue::Attempt> BlockQueue::wait_and_take() {
  const MutexLock lock(mutex_);
  while (true) {
    if (stopping_) return std::nullopt;
    if (auto attempt = next(options_.limits.bounced)) return attempt;
    changed_.wait(mutex_);
  }
}

void BlockQueue::ended(const Attempt& attempt, int result) {
  const MutexLock lock(mutex_);
  Operation* const operation = attempt.operation;
  --(operation->request.background ? background_attempts_ : foreground_attempts_);
  operation->progress.ended(attempt.vectors.range(), result);
  const bool more = operation->progress.next().has_value();
  std::deque<Operation*>& ready = operation->request.background ? background_ : foreground_;
  if (operation->ready && !more) {
    std::erase(ready, operation);
    operation->ready = false;
  } else if (!operation->ready && more) {
    ready.push_front(operation);  // what was begun is ended first
    operation->ready = true;
  }
  if (operation->progress.over()) {
    Status status = operation->progress.status();
    if (!status.ok()) status.message = fmt::format("{}: {}", options_.name, status.message);
    if (!status.ok() && options_.cached && operation->request.work == BlockWork::kFlush && flush_lost_.ok())
      flush_lost_ = {status.code, status.message +
                                      " (of an earlier flush: what the page cache held then may be "
                                      "lost; close this drive and open it again)"};
    tell(operation->request.id, std::move(status));
    remove(operation);
  }
  changed_.notify_all();
}

void BlockQueue::tell(std::uint64_t id, Status status) {
  if (ends_.empty() && end_fd_.get() >= 0) raise(end_fd_.get());
  ends_.push_back({id, std::move(status)});
}

void BlockQueue::remove(Operation* operation) {
  const auto place = std::find_if(operations_.begin(), operations_.end(),
                                  [operation](const auto& each) { return each.get() == operation; });
  TIERCEL_CHECK(place != operations_.end());
  std::swap(*place, operations_.back());
  operations_.pop_back();
}

void BlockQueue::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

}  // namespace tiercel
