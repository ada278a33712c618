#include "capi/completion_queue.h"

#include <utility>

#include <sys/eventfd.h>
#include <unistd.h>

#include "capi/live.h"

namespace tiercel::capi {

Result<std::shared_ptr<CompletionQueue>> CompletionQueue::create(std::uint64_t capacity) {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    return error(Code::kResourceExhausted,
                 "cq_create: no eventfd could be opened; close some files or raise the limit of open files");
  return std::shared_ptr<CompletionQueue>(new CompletionQueue(fd, capacity));
}

CompletionQueue::~CompletionQueue() { ::close(fd_); }

bool CompletionQueue::full() const {
  const MutexLock lock(mutex_);
  return entries_.size() >= capacity_;
}

void CompletionQueue::push(const tiercel_completion& completion, std::shared_ptr<const Operation> operation) {
  const MutexLock lock(mutex_);
  if (closed_) return;
  entries_.push_back({completion, std::move(operation)});
  if (entries_.size() > 1) return;
  const std::uint64_t one = 1;
  static_cast<void>(::write(fd_, &one, sizeof one) == sizeof one);  // cannot fail: the counter is 0
}

std::uint64_t CompletionQueue::drain(std::span<tiercel_completion> out) {
  const MutexLock lock(mutex_);
  std::uint64_t taken = 0;
  for (; taken < out.size() && !entries_.empty(); ++taken) {
    Entry& entry = entries_.front();
    out[taken] = entry.completion;
    out[taken].handle = entry.operation != nullptr ? entry.operation->handle.load() : nullptr;
    entries_.pop_front();
  }
  if (taken != 0 && entries_.empty()) {
    std::uint64_t count = 0;
    static_cast<void>(::read(fd_, &count, sizeof count) == sizeof count);  // resets it
  }
  return taken;
}

void CompletionQueue::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  entries_.clear();
}

}  // namespace tiercel::capi
