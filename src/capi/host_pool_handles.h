// What the ABI's handles of host pools are.
//
// Threads: constant after they are made, except where it says otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tiercel/host_pools.h>

#include "capi/handles.h"
#include "device/cuda_device.h"
#include "memory/host_pools.h"
#include "memory/host_sequence.h"
#include "memory/slot_pool.h"
#include "model/storage_form.h"
#include "os/executor.h"
#include "os/thread_annotations.h"
#include "transfer/pool_copy.h"

namespace tiercel::capi {

// tiercel_host_pools_options, read. The builder and its memory are made anew at each step from it, so that
// what was refused leaves nothing.
struct PoolsOptions {
  Layout layout;
  Stage stage;
  std::uint64_t full_pages_per_resume_point = 1;
  std::vector<std::pair<std::string, std::uint64_t>> device_pages;
  HostPoolOptions group;
  tiercel_progress progress = nullptr;
  void* progress_context = nullptr;
  unsigned copy_threads = 0;
  int device = 0;
  bool on_device = false;
};
// Errors: invalid_argument naming the option.
Answer read_pools_options(const tiercel_host_pools_options* options, PoolsOptions& out);

// A group with what its calls share. Lives as long as any handle, sequence or copy of it.
class Pools final {
 public:
  // `own_slots`: false for a group of another process, which gives the slots out.
  // `device`: what pinned the memory, or whose memory it is; may be null.
  Pools(HostPoolGroup group, GroupSlots slots, bool own_slots, unsigned copy_threads,
        std::unique_ptr<CudaDevice> device);

  HostPoolGroup& group() { return group_; }
  const HostPoolGroup& group() const { return group_; }
  const HostPoolPlan& plan() const { return group_.plan(); }
  const std::string& layout_text_of(std::uint32_t pool) const { return layouts_[pool]; }
  // Errors: invalid_argument: no such pool.
  Answer check_pool(std::string_view name, std::uint32_t pool) const;

  // Calls body(slots) under the lock. Errors: failed_precondition: another process gives them out.
  template <typename Body>
  Answer with_slots(const Body& body) TIERCEL_EXCLUDES(mutex_) {
    if (!own_slots_)
      return {TIERCEL_FAILED_PRECONDITION,
              "the slots are those of the process that owns the pools; ask it for some"};
    const MutexLock lock(mutex_);
    return body(slots_);
  }
  // Threads of this group that copy; started at the first use.
  Executor& executor() TIERCEL_EXCLUDES(mutex_);
  unsigned copy_threads() const { return copy_threads_; }
  // Whose addresses the buffers' are; null: this process's own.
  Device* memory_device() const { return group_.kind() == MemoryKind::kExternal ? device_.get() : nullptr; }

  tiercel_pool_segment segment(std::uint32_t pool, const PageObject& object, std::uint32_t component,
                               const Segment& at) const;

 private:
  std::unique_ptr<CudaDevice> device_;  // outlives the memory that is registered with it
  HostPoolGroup group_;
  std::vector<std::string> layouts_;
  unsigned copy_threads_;
  bool own_slots_;
  Mutex mutex_;
  GroupSlots slots_ TIERCEL_GUARDED_BY(mutex_);
  std::optional<ThreadExecutor> executor_ TIERCEL_GUARDED_BY(mutex_);
};

}  // namespace tiercel::capi

struct tiercel_host_pools {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 10;
  static constexpr std::string_view kName = "host pools";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Pools> pools;
};
struct tiercel_host_pools_builder {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 11;
  static constexpr std::string_view kName = "host pools builder";
  tiercel::capi::Mark mark{kKind};
  tiercel::StorageForm form;
  tiercel::capi::PoolsOptions options;
  // Change:
  std::vector<tiercel::HostPoolRequest> requests;
  bool sealed = false;
};
struct tiercel_sequence {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 12;
  static constexpr std::string_view kName = "sequence";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Pools> pools;
  std::optional<tiercel::HostSequence> sequence;  // behind the pools' lock
  ~tiercel_sequence();
};
struct tiercel_copy {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 13;
  static constexpr std::string_view kName = "copy";
  tiercel::capi::Mark mark{kKind};
  std::vector<std::shared_ptr<tiercel::capi::Pools>> pools;  // of sources and target
  std::optional<tiercel::LayeredCopy> copy;
  std::vector<std::vector<std::uint32_t>> layers;  // of each part
  bool sums = false;
};
