// What this machine can do for a cache, as plain values: huge pages of each sort and whether they are really
// given, what memory may be locked and claimed, the disk under a folder, io_uring, the processor, NUMA nodes,
// CUDA. What is good or bad about it is said elsewhere (os/machine_report.h).
//
// Threads: look_at_machine() from any thread; values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/machine_calls.h"
#include "os/mapping_calls.h"
#include "os/memory_limits.h"

namespace tiercel {

// So much is mapped for each trial, and given back.
inline constexpr std::uint64_t kTrialMappingBytes = 2 * kHugePageBytes;

// A pool of huge pages of one size.
struct HugePool {
  std::uint64_t total_pages = 0;
  std::uint64_t free_pages = 0;
  std::uint64_t reserved_pages = 0;  // free still, but promised to somebody
};

// A setting of transparent huge pages, and the file that decides it: the one of 2 MiB pages (Linux 6.8) where
// it does not say "inherit".
struct HugePageSetting {
  std::string word;  // "madvise"; "" = the kernel has no such setting
  std::string file;
};

// Whether one rung of the ladder (os/mapping.h), with those above it closed, gives huge pages.
struct RungTrial {
  std::optional<bool> got;  // nothing: it could not be found out
  std::string why;          // when it is not true
};
struct RungTrials {
  RungTrial hugetlb;
  RungTrial advice;
  RungTrial collapse;

  bool any() const { return hugetlb.got == true || advice.got == true || collapse.got == true; }
};

struct MemfdTrial {
  const char* failed_call = "";  // "" = it was made, given a size and sealed
  int failure = 0;

  bool ok() const { return *failed_call == '\0'; }
};

struct NumaNode {
  std::uint64_t id = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

struct Machine {
  std::string kernel;        // "6.1.0-13-amd64"
  std::string architecture;  // "x86_64"
  std::string processor;     // its model's name; may be empty
  unsigned processors = 0;   // that this process may run on
  unsigned user = 0;         // effective user id

  MemfdTrial memfd;
  Status mapped_private, mapped_shared;  // of kTrialMappingBytes, on whatever pages
  Result<MemoryRoom> room;               // for a memfd
  std::optional<std::uint64_t> memory_total_bytes, memory_available_bytes;

  std::optional<HugePool> pool_2mib, pool_1gib;
  HugePageSetting thp_private, thp_shared;
  RungTrials huge_private, huge_shared;

  SystemResult<LockLimit> lock_limit;
  std::optional<int> beyond_lock_limit;  // locking a page more: 0 or an errno; nothing: not tried
  SystemResult<FileSystem> dev_shm;

  int io_uring_failure = 0;
  std::string io_uring_disabled;  // sysctl kernel.io_uring_disabled; "" = there is none
  bool seccomp_filter = false;
  int pidfd_failure = 0;

  std::string direct_folder;
  DirectTrial direct;
  SystemResult<FileSystem> direct_file_system;

  CpuFeatures cpu;
  std::vector<NumaNode> numa;  // that have memory; empty: the kernel knows of no nodes
  CudaDriver cuda;
};

// Where a look is taken. Lives: no longer than what it refers to.
struct MachineSource {
  std::string root;  // files are read below it ("" = the real ones), as MemoryLimits does
  const MachineCalls& calls;
  const MappingCalls& mappings;
};

// Tries everything, O_DIRECT in `folder`. Leaves nothing behind. Cost: some 100 ms, most of it the CUDA
// driver's where there is one; for moments 4 MiB of memory, and 64 MiB at most of locked memory.
Machine look_at_machine(const MachineSource& source, const std::string& folder);

// The ids of a list such as "0-2,5"; empty for anything else. At most 4,096.
std::vector<std::uint64_t> ids_in(std::string_view list);

}  // namespace tiercel
