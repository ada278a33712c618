// How much memory this process may still claim, asked before any is touched: a memfd that grows beyond a
// memory cgroup is a kill, not an error. What limits it: the memory cgroup (v1 and v2) and each of its
// ancestors, the memory of the machine, strict overcommit, the process's own limits on file and address-space
// size, and for hugetlb pages their pool and their cgroup. A memfd stands on the kernel's own file system,
// which has no size of its own, so that no mounted tmpfs limits it.
//
// An answer is true when it is given; others may claim memory right after. Swap is not counted.
//
// Threads: const calls from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace tiercel {

// What the memory is made of.
struct MemorySource {
  bool shared = false;   // a memfd, not private memory
  bool hugetlb = false;  // out of the pool of 2 MiB huge pages
};

// The tightest of all limits.
struct MemoryRoom {
  std::uint64_t bytes = UINT64_MAX;
  std::string where;   // the limit, its file, its value and how much is in use
  std::string remedy;  // what a person can do about it
};

class MemoryLimits final {
 public:
  // Files are read below `root` ("" = the real ones): root/proc/meminfo, root/sys/fs/cgroup/....
  explicit MemoryLimits(std::string root = {});

  // Files that are not there limit nothing. Page cache of a cgroup counts as room as far as it would be
  // reclaimed without hurting: what was not used lately in full, the rest by half, as the kernel estimates
  // MemAvailable. Pages that a hugetlb pool may add on demand (nr_overcommit_hugepages) do not count: nothing
  // promises them. Errors: io_error for a file with something else than a number in it. Cost: reads some ten
  // small files.
  Result<MemoryRoom> room(MemorySource source) const;

  // Whether `bytes` more fit, with needed_bytes of them. Errors: resource_exhausted naming the limit, what
  // was wanted, what is left and what to do; io_error as in room().
  Status check(MemorySource source, std::uint64_t bytes) const;

  // Whether `bytes` more fit on one memory node (NUMA): memory that is bound to a full node is a kill, not an
  // error. A kernel that does not say limits nothing. Errors: as check().
  Status check_node(std::uint32_t node, std::uint64_t bytes) const;

  // What `bytes` of it really take: beside themselves their page tables, and a small reserve so that the next
  // allocation of this process is not the one that gets it killed. Saturates.
  static std::uint64_t needed_bytes(MemorySource source, std::uint64_t bytes);

 private:
  std::string root_;
};

}  // namespace tiercel
