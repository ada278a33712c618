#include <atomic>
#include <cstdlib>
#include <latch>
#include <system_error>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/clock.h"
#include "os/executor.h"

namespace tiercel {
namespace {

TEST(Clock, AManualClockMovesOnlyWhenToldAndNeverBack) {
  ManualClock clock;
  EXPECT_EQ(clock.now(), Time{0});
  clock.advance(std::chrono::seconds(2));
  clock.advance_to(std::chrono::seconds(1));
  EXPECT_EQ(clock.now(), Time{std::chrono::seconds(2)}) << "an earlier moment does not turn it back";
  clock.advance_to(std::chrono::seconds(5));
  EXPECT_EQ(clock.now(), Time{std::chrono::seconds(5)});
}

TEST(Clock, TheSteadyClockNeverGoesBack) {
  const SteadyClock clock;
  Time before = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Time now = clock.now();
    ASSERT_GE(now, before);
    before = now;
  }
}

// Counts its runs and its destruction.
class Counting final : public Task {
 public:
  Counting(std::atomic<int>& runs, std::atomic<int>& ends) : runs_(runs), ends_(ends) {}
  ~Counting() override { ++ends_; }
  void run() override { ++runs_; }

 private:
  std::atomic<int>& runs_;
  std::atomic<int>& ends_;
};

// Says that it runs, then waits until it may end.
class Waiting final : public Task {
 public:
  Waiting(std::latch& started, std::latch& go) : started_(started), go_(go) {}
  void run() override {
    started_.count_down();
    go_.wait();
  }

 private:
  std::latch& started_;
  std::latch& go_;
};

class Releasing final : public Task {
 public:
  explicit Releasing(std::latch& go) : go_(go) {}
  void run() override { go_.count_down(); }

 private:
  std::latch& go_;
};

TEST(Executor, TheInlineOneRunsInsideSubmit) {
  std::atomic<int> runs{0}, ends{0};
  InlineExecutor executor;
  executor.submit(std::make_unique<Counting>(runs, ends));
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(ends, 1);
}

TEST(Executor, EachTaskRunsExactlyOnce) {
  constexpr int kTasks = 5000;
  std::atomic<int> runs{0}, ends{0};
  std::latch all(1);
  {
    ThreadExecutor executor(1);  // one worker takes them in order, so the last one ends the wait
    for (int i = 0; i < kTasks; ++i) executor.submit(std::make_unique<Counting>(runs, ends));
    executor.submit(std::make_unique<Releasing>(all));
    all.wait();
    EXPECT_EQ(runs, kTasks);
  }
  EXPECT_EQ(ends, kTasks);
}

TEST(Executor, ManyWorkersRunEachTaskOnceOrDropIt) {
  constexpr int kTasks = 5000;
  std::atomic<int> runs{0}, ends{0};
  {
    ThreadExecutor executor(4);
    for (int i = 0; i < kTasks; ++i) executor.submit(std::make_unique<Counting>(runs, ends));
  }
  EXPECT_LE(runs, kTasks);
  EXPECT_EQ(ends, kTasks) << "run or dropped, each is destroyed once";
}

TEST(Executor, WorkersRunAtTheSameTime) {
  std::latch started(3), go(1);  // outlive the workers that wait on them
  ThreadExecutor executor(3);
  for (int i = 0; i < 3; ++i) executor.submit(std::make_unique<Waiting>(started, go));
  started.wait();  // would never end with fewer than three workers
  go.count_down();
}

// Each run brings the next: a queue that never runs dry.
class Endless final : public Task {
 public:
  explicit Endless(Executor& executor) : executor_(executor) {}
  void run() override {
    executor_.submit(std::make_unique<Endless>(executor_));
    std::this_thread::yield();  // the lock is not fair: let the destructor have it
  }

 private:
  Executor& executor_;
};

TEST(Executor, DestructionDoesNotWaitForTheQueueToRunDry) {
  ThreadExecutor executor(1);
  executor.submit(std::make_unique<Endless>(executor));
}

TEST(Executor, DestructionFinishesWhatRunsAndDropsWhatWaits) {
  std::atomic<int> runs{0}, ends{0};
  std::latch started(1), go(1);
  auto executor = std::make_unique<ThreadExecutor>(1);
  executor->submit(std::make_unique<Waiting>(started, go));
  for (int i = 0; i < 10; ++i) executor->submit(std::make_unique<Counting>(runs, ends));
  started.wait();
  std::jthread destroyer([&executor] { executor.reset(); });
  go.count_down();
  destroyer.join();
  EXPECT_EQ(ends, 10);
  EXPECT_LE(runs, 10);
}

// In a process of its own, as a user that may start a few threads and no more.
TEST(Executor, WhereTheSystemGivesTooFewThreadsNoneIsLeftAndNobodyWaits) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(60);  // a hang ends as a failure
    constexpr rlim_t kFew = 4;
    const rlimit limit{kFew, kFew};
    ::setrlimit(RLIMIT_NPROC, &limit);
    constexpr uid_t kNobody = 65534;
    if (::getuid() == 0) ::setresuid(kNobody, kNobody, kNobody);  // root has no such limit
    try {
      const ThreadExecutor executor(64);
      std::_Exit(1);
    } catch (const std::system_error&) {
      std::_Exit(0);
    }
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "it was killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "64 threads were to be had";
}

}  // namespace
}  // namespace tiercel
