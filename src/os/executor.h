// Where work that moves bytes is carried out. The control plane hands over tasks and is told of their end by
// whatever the task does last.
//
// Threads: submit() is called by one thread; tasks run wherever the executor likes, each exactly once (or are
// destroyed unrun when the executor is destroyed).
#pragma once

#include <memory>

namespace tiercel {

class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;
  virtual void submit(std::unique_ptr<Task> task) = 0;
};

// Runs each task inside submit().
class InlineExecutor final : public Executor {
 public:
  void submit(std::unique_ptr<Task> task) override { task->run(); }
};

// `threads` ≥ 1 workers and a queue. Destruction finishes the tasks under way, drops the queued ones and
// joins. Throws std::system_error where the system gives fewer threads; none is left then.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(unsigned threads);
  ~ThreadExecutor() override;
  void submit(std::unique_ptr<Task> task) override;

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace tiercel
