#include "os/executor.h"

#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "os/thread_annotations.h"

namespace tiercel {

struct ThreadExecutor::Shared {
  Mutex mutex;
  std::condition_variable_any changed;
  std::deque<std::unique_ptr<Task>> queue TIERCEL_GUARDED_BY(mutex);
  bool stopping TIERCEL_GUARDED_BY(mutex) = false;
  std::vector<std::jthread> workers;  // last: joined before anything above goes

  // The next task, or nothing once the executor stops.
  std::unique_ptr<Task> next() TIERCEL_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    while (queue.empty() && !stopping) changed.wait(mutex);
    if (stopping) return nullptr;
    std::unique_ptr<Task> task = std::move(queue.front());
    queue.pop_front();
    return task;
  }

  // Blocks until no worker is left.
  void stop() TIERCEL_EXCLUDES(mutex) {
    {
      const MutexLock lock(mutex);
      stopping = true;
    }
    changed.notify_all();
    workers.clear();
  }
};

ThreadExecutor::ThreadExecutor(unsigned threads) : shared_(std::make_unique<Shared>()) {
  TIERCEL_CHECK(threads >= 1);
  try {
    for (unsigned i = 0; i < threads; ++i)
      shared_->workers.emplace_back([&shared = *shared_] {
        while (const std::unique_ptr<Task> task = shared.next()) task->run();
      });
  } catch (...) {
    shared_->stop();  // those that came to be wait for tasks, and would be waited for
    throw;
  }
}

ThreadExecutor::~ThreadExecutor() {
  shared_->stop();  // the queued tasks are dropped after, on this thread
}

void ThreadExecutor::submit(std::unique_ptr<Task> task) {
  {
    const MutexLock lock(shared_->mutex);
    shared_->queue.push_back(std::move(task));
  }
  shared_->changed.notify_one();
}

}  // namespace tiercel
