// Host pools of an engine, with memory behind them: a plan (host_pool_plan.h) and one mapping for all pools,
// or the caller's own allocations. Built in steps, as engines know their pools (begin, add_pool …, seal), or
// at once from a model. Nothing is sized, allocated, shared or registered before all pools are known, and
// none can be added after.
//
// Threads: one thread builds, moves and destroys; const calls from any; the bytes are as thread-safe as any
// memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "memory/host_pool_plan.h"
#include "memory/registered_ranges.h"
#include "os/mapping.h"

namespace tiercel {

struct HostPoolOptions {
  HostPoolPlanOptions plan;
  NumaPlacement numa;
  TouchOptions touch;
  // Of kind pinned. Lives: must outlive the group.
  HostRegistrar* registrar = nullptr;
  std::uint64_t registration_bytes = 64ULL << 30;  // at most so many in one call
};

class HostPoolGroup;

// Use it once: after a seal that worked it takes nothing more.
class HostPoolGroupBuilder final {
 public:
  // The anchor first, then whatever uses its slots. Errors: failed_precondition after seal(); what
  // plan_host_pools() says of a pool; then the pool is not in.
  Status add_pool(HostPoolRequest request);
  // All pools of a model. Errors: the same, and what stack_of() says; then none of them is in.
  Status add_pools(const StorageForm& form, const StackOptions& options);

  // What seal() would make. Errors: what plan_host_pools() says.
  Result<HostPoolPlan> plan() const;
  // Errors: failed_precondition when it was sealed before; what plan_host_pools() says; resource_exhausted
  // with what was wanted, what is there and which option to change, asked before any of it is touched;
  // unsupported for pinned memory without a registrar, and what the registrar says. Then nothing is left
  // behind, and the builder is as before. Cost: claims all of the memory (os/mapping.h).
  Result<HostPoolGroup> seal(const MemoryLimits& limits = MemoryLimits(),
                             const MappingCalls& calls = LinuxMappingCalls());

 private:
  friend class HostPoolGroup;
  explicit HostPoolGroupBuilder(HostPoolOptions options) : options_(std::move(options)) {}
  Status try_pools(const std::vector<HostPoolRequest>& requests) const;

  HostPoolOptions options_;
  std::vector<HostPoolRequest> requests_;
  bool sealed_ = false;
};

class HostPoolGroup final {
 public:
  static HostPoolGroupBuilder begin(HostPoolOptions options) {
    return HostPoolGroupBuilder(std::move(options));
  }

  // Errors: as add_pools() and seal().
  static Result<HostPoolGroup> build(const StorageForm& form, const StackOptions& stack,
                                     HostPoolOptions options, const MemoryLimits& limits = MemoryLimits(),
                                     const MappingCalls& calls = LinuxMappingCalls());

  // The same pools in another process: `fd` comes from the group's owner, `plan` was made from the same spec
  // (compare plan_fingerprint()). `fd` stays the caller's. Errors: invalid_argument when the plan is not of
  // kind shared; what Mapping::attach says.
  static Result<HostPoolGroup> attach(HostPoolPlan plan, int fd, MappingAccess access,
                                      const MappingCalls& calls = LinuxMappingCalls());

  HostPoolGroup(HostPoolGroup&&) = default;
  HostPoolGroup& operator=(HostPoolGroup&& other) noexcept;
  ~HostPoolGroup() = default;

  const HostPoolPlan& plan() const { return plan_; }
  MemoryKind kind() const { return plan_.kind; }
  std::uint64_t required_bytes() const { return tiercel::required_bytes(plan_); }
  std::uint64_t mapped_bytes() const { return tiercel::mapped_bytes(plan_); }

  // What to register elsewhere: each allocation once and whole, never a view of it. Empty when no pool has
  // bytes. Requires: write access.
  std::vector<MutableByteView> ranges() const;

  // Requires: pool and page are there.
  std::vector<PageObject> page_segments(std::uint32_t pool, std::uint64_t page) const;
  // Requires: a segment of that pool, and write access.
  MutableByteView bytes(std::uint32_t pool, const Segment& segment) const;
  // Requires: a segment of that pool.
  ByteView view(std::uint32_t pool, const Segment& segment) const;
  // Where one of its buffers begins; null when it has no bytes. Requires: write access.
  std::byte* buffer_address(std::uint32_t pool, std::uint32_t buffer) const;

  // Of shared memory, to be handed to another process; stays the group's. −1 for every other kind.
  int fd() const { return mapping_.fd(); }
  // What the group allocated itself: its pages, where they lie.
  const PageReport& page_report() const { return mapping_.pages(); }
  const NumaReport& numa_report() const { return mapping_.numa(); }
  // The pieces in which pinned memory is registered.
  const std::vector<MutableByteView>& registered() const { return registration_.ranges(); }

 private:
  friend class HostPoolGroupBuilder;
  HostPoolGroup() = default;
  static Result<HostPoolGroup> make(HostPoolPlan plan, const HostPoolOptions& options,
                                    const MemoryLimits& limits, const MappingCalls& calls);
  Status pin(const HostPoolOptions& options);
  ByteView allocation(std::uint32_t index) const;

  HostPoolPlan plan_;
  Mapping mapping_;
  std::vector<MutableByteView> external_;
  RegisteredRanges registration_;  // ends before the memory does
};

}  // namespace tiercel
