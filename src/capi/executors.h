// Who carries out copies behind the ABI: threads that wake the control thread at the end of each copy, or the
// caller's own thread inside tiercel_poll.
//
// Threads: as said for each class.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>

#include "os/clock.h"
#include "os/executor.h"
#include "os/thread_annotations.h"

namespace tiercel::capi {

// A flag that one thread waits for and others raise.
class Wake final {
 public:
  void raise();
  // Returns when it was raised since the last return, or after so long. Lowers it.
  void wait(Duration at_most);

 private:
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
