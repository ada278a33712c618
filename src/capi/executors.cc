#include "capi/executors.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace tiercel::capi {

Wake::~Wake() {
  if (fd_ >= 0) ::close(fd_);
  if (watched_ >= 0) ::close(watched_);
}

Status Wake::watch(int fd) {
  fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  watched_ = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);  // its owner may close it while somebody still waits
  if (fd_ < 0 || watched_ < 0)
    return {Code::kResourceExhausted,
            "open: no eventfd could be opened; close some files or raise the limit of open files"};
  return {};
}

void Wake::raise() {
  {
    const MutexLock lock(mutex_);
    if (up_) return;
    up_ = true;
    const std::uint64_t one = 1;
    if (fd_ >= 0) static_cast<void>(::write(fd_, &one, sizeof one) == sizeof one);  // the counter is 0
  }
  if (fd_ < 0) raised_.notify_one();
}

bool Wake::lower() {
  if (!up_) return false;
  up_ = false;
  std::uint64_t count = 0;
  if (fd_ >= 0) static_cast<void>(::read(fd_, &count, sizeof count) == sizeof count);  // resets it
  return true;
}

void Wake::wait(Duration at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  if (fd_ < 0) {
    const MutexLock lock(mutex_);
    while (!up_)
      if (raised_.wait_until(mutex_, end) == std::cv_status::timeout) break;
    up_ = false;
    return;
  }
  {
    const MutexLock lock(mutex_);
    if (lower()) return;
  }
  pollfd both[] = {{fd_, POLLIN, 0}, {watched_, POLLIN, 0}};
  constexpr Duration kSecond = std::chrono::seconds(1);
  const Duration rest = std::clamp(at_most, Duration(0), kSecond);  // whoever waits looks again
  const timespec time{rest / kSecond, static_cast<long>((rest % kSecond).count())};
  static_cast<void>(::ppoll(both, 2, &time, nullptr));
  const MutexLock lock(mutex_);
  lower();
}

namespace {
class WakingTask final : public Task {
 public:
  WakingTask(std::unique_ptr<Task> task, Wake& wake) : task_(std::move(task)), wake_(wake) {}
  void run() override {
    task_->run();
    task_.reset();
    wake_.raise();
  }

 private:
  std::unique_ptr<Task> task_;
  Wake& wake_;
};
}  // namespace

void WakingExecutor::submit(std::unique_ptr<Task> task) {
  threads_.submit(std::make_unique<WakingTask>(std::move(task), wake_));
}

void CallerExecutor::submit(std::unique_ptr<Task> task) {
  const MutexLock lock(mutex_);
  tasks_.push_back(std::move(task));
}

bool CallerExecutor::run_one() {
  std::unique_ptr<Task> task;
  {
    const MutexLock lock(mutex_);
    if (tasks_.empty()) return false;
    task = std::move(tasks_.front());
    tasks_.pop_front();
  }
  task->run();
  return true;
}

}  // namespace tiercel::capi
