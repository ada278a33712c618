// Completions on their way to the caller: first in, first out, with an eventfd that is readable exactly while
// some wait.
//
// Threads: all calls from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include <tiercel/types.h>

#include "base/status.h"
#include "os/thread_annotations.h"

namespace tiercel::capi {

struct Operation;

class CompletionQueue final {
 public:
  // Errors: resource_exhausted: no file descriptor left.
  static Result<std::shared_ptr<CompletionQueue>> create(std::uint64_t capacity);
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  // Whether a new operation must be refused. What is under way may still add its completions.
  bool full() const;
  // `operation`: whose handle the completion names when it is taken out; may be null. No effect once closed.
  void push(const tiercel_completion& completion, std::shared_ptr<const Operation> operation);
  // Returns: how many were taken out, oldest first.
  std::uint64_t drain(std::span<tiercel_completion> out);
  // Nobody will drain any more.
  void close();
  int fd() const { return fd_; }

 private:
  struct Entry {
    tiercel_completion completion;
    std::shared_ptr<const Operation> operation;
  };
  CompletionQueue(int fd, std::uint64_t capacity) : fd_(fd), capacity_(capacity) {}

  const int fd_;
  const std::uint64_t capacity_;
  mutable Mutex mutex_;
  std::deque<Entry> entries_ TIERCEL_GUARDED_BY(mutex_);
  bool closed_ TIERCEL_GUARDED_BY(mutex_) = false;
};

}  // namespace tiercel::capi
