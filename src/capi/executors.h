// Who carries out copies behind the ABI: threads that wake the control thread at the end of each copy, or the
// caller's own thread inside tiercel_poll.
//
// Threads: as said for each class.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/status.h"
#include "os/clock.h"
#include "os/executor.h"
#include "os/thread_annotations.h"

namespace tiercel::capi {

// A flag that threads wait for and others raise.
class Wake final {
 public:
  Wake() = default;
  ~Wake();
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  // It is also up while this descriptor is readable. Requires: once, before anybody raises it or waits.
  // Errors: resource_exhausted: no descriptor left.
  Status watch(int fd);
  void raise() TIERCEL_EXCLUDES(mutex_);
  // Returns when it was raised since the last return, or after so long. Lowers it.
  void wait(Duration at_most) TIERCEL_EXCLUDES(mutex_);

 private:
  bool lower() TIERCEL_REQUIRES(mutex_);  // whether it was up

  int watched_ = -1;  // of our own
  int fd_ = -1;       // readable while it is up, where something is watched
  Mutex mutex_;
  std::condition_variable_any raised_;
  bool up_ TIERCEL_GUARDED_BY(mutex_) = false;
};

// Worker threads; raises `wake` after each task. Requires: wake outlives it.
class WakingExecutor final : public Executor {
 public:
  WakingExecutor(unsigned threads, Wake& wake) : wake_(wake), threads_(threads) {}
  void submit(std::unique_ptr<Task> task) override;

 private:
  Wake& wake_;
  ThreadExecutor threads_;
};

// Keeps tasks until somebody runs them. Threads: all calls from any thread.
class CallerExecutor final : public Executor {
 public:
  void submit(std::unique_ptr<Task> task) override;
  // Runs the oldest task here. False: there was none.
  bool run_one();

 private:
  Mutex mutex_;
  std::deque<std::unique_ptr<Task>> tasks_ TIERCEL_GUARDED_BY(mutex_);
};

}  // namespace tiercel::capi
