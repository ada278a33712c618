#include "capi/process.h"

#include <atomic>

#include <pthread.h>

namespace tiercel::capi {

namespace {
std::atomic<std::uint64_t> generation{0};
void forked() { generation.fetch_add(1, std::memory_order_relaxed); }
}  // namespace

std::uint64_t fork_generation() {
  static const int watching = pthread_atfork(nullptr, nullptr, &forked);
  static_cast<void>(watching);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace tiercel::capi
