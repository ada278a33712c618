#include "os/block_threads.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/block_queue.h"
#include "os/mapping.h"

namespace tiercel {
namespace {

// Of each thread, one behind the other: zeros, what is thrown away, what bounces.
constexpr std::uint64_t kRoom = 512U << 10;

class ThreadsDevice final : public BlockDevice {
 public:
  ThreadsDevice(int fd, std::unique_ptr<BlockQueue> queue, Mapping room, const BlockCalls& calls)
      : fd_(fd), queue_(std::move(queue)), room_(std::move(room)), calls_(calls) {}
  ~ThreadsDevice() override {
    queue_->stop();
    threads_.clear();
  }
  // At least two, or an error.
  Status start(std::size_t count) {
    try {
      for (std::size_t i = 0; i < count; ++i)
        threads_.emplace_back([this, room = room_.bytes().data() + 3 * i * kRoom] { work(room); });
    } catch (const std::system_error& failure) {
      if (threads_.size() < 2)
        return {Code::kResourceExhausted,
                fmt::format("{}: no thread for it: {}", queue_->options().name, failure.code().message())};
    }
    return {};
  }
  void keep(BlockFile file) { file_ = std::move(file); }
  int end_fd() const { return queue_->end_fd(); }
  std::uint64_t host_bytes() const { return room_.size_bytes(); }

  std::uint64_t size_bytes() const override { return queue_->options().size_bytes; }
  bool submit(BlockRequest request) override { return queue_->submit(std::move(request)); }
  std::vector<BlockDone> drain() override { return queue_->drain(); }
  void wait(Duration at_most) override { queue_->wait(at_most); }

 private:
  void work(std::byte* room) {
    std::byte* const zeros = room;
    std::byte* const thrown = room + kRoom;
    std::byte* const bounce = room + 2 * kRoom;
    while (auto attempt = queue_->wait_and_take()) {
      BlockVectors& vectors = attempt->vectors;
      vectors.place(bounce, attempt->call.work == BlockWork::kWrite ? zeros : thrown);
      const std::uint64_t allowed = calls_.allowed(attempt->call);
      if (allowed < attempt->call.length) vectors.cut(allowed);
      const int result = calls_.result(attempt->call, make(*attempt));
      if (attempt->call.work == BlockWork::kRead && result > 0)
        vectors.scatter(attempt->memory(), static_cast<std::uint64_t>(result));
      queue_->ended(*attempt, result);
    }
  }

  // Bytes, or minus an errno.
  int make(const BlockQueue::Attempt& attempt) const {
    const auto& vectors = attempt.vectors.vectors();
    const auto at = static_cast<off_t>(attempt.call.offset);
    const int count = static_cast<int>(vectors.size());
    ssize_t moved = 0;
    switch (attempt.call.work) {
      case BlockWork::kFlush:
        moved = ::fdatasync(fd_);
        break;
      case BlockWork::kRead:
        moved = count == 0 ? 0 : ::preadv(fd_, vectors.data(), count, at);
        break;
      case BlockWork::kWrite:
        attempt.vectors.gather(attempt.memory());
        moved = count == 0 ? 0 : ::pwritev(fd_, vectors.data(), count, at);
        break;
    }
    return moved < 0 ? -errno : static_cast<int>(moved);
  }

  const int fd_;
  BlockFile file_;
  std::unique_ptr<BlockQueue> queue_;
  Mapping room_;
  const BlockCalls& calls_;
  std::vector<std::jthread> threads_;  // last: joined before anything above goes
};

}  // namespace

Result<BlockEngineDevice> open_block_threads(BlockFile& file, const BlockEngineOptions& options,
                                             const BlockCalls& calls) {
  BlockQueueOptions queue_options{
      .name = fmt::format("disk file {}", file.path()),
      .size_bytes = file.size_bytes(),
      .cached = !file.direct(),
      .event = true,
      .operations_max = options.operations_max,
      .attempts_max = std::clamp<std::size_t>(options.attempts_max, 2, kBlockThreads)};
  queue_options.limits = {
      .alignment = file.memory_alignment(), .bytes = options.attempt_bytes, .bounced = kRoom, .blank = kRoom};
  const std::size_t threads = queue_options.attempts_max;
  TIERCEL_ASSIGN_OR_RETURN(auto queue, BlockQueue::create(std::move(queue_options)));
  TIERCEL_ASSIGN_OR_RETURN(Mapping room, Mapping::open({.bytes = 3 * threads * kRoom}));
  auto device = std::make_unique<ThreadsDevice>(file.fd(), std::move(queue), std::move(room), calls);
  TIERCEL_RETURN_IF_ERROR(device->start(threads));
  device->keep(std::move(file));
  BlockEngineDevice opened{.end_fd = device->end_fd(), .host_bytes = device->host_bytes()};
  opened.device = std::move(device);
  return opened;
}

}  // namespace tiercel
