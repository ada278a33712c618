#include "capi/executors.h"

#include <utility>

namespace tiercel::capi {

void Wake::raise() {
  {
    const MutexLock lock(mutex_);
    up_ = true;
  }
  raised_.notify_one();
}

void Wake::wait(Duration at_most) {
  const auto end = std::chrono::steady_clock::now() + at_most;
  const MutexLock lock(mutex_);
  while (!up_)
    if (raised_.wait_until(mutex_, end) == std::cv_status::timeout) break;
  up_ = false;
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
