// One memory mapping, owned: private or shared (a memfd), on the largest pages that can be had. All of it is
// claimed when it is opened, so that no later access can fail for want of memory, and a shared one is sealed
// against shrinking, so that no process can pull it from under a reader: never SIGBUS.
//
// Pages, by a ladder; each rung is taken only when the one before gave nothing:
//   1. hugetlb, from the machine's pool (kinds `hugepage` and `shared`)
//   2. transparent huge pages by advice
//   3. MADV_COLLAPSE, which needs no privilege and works where advice is switched off
//   4. small pages of 4 KiB (not for `hugepage`)
// What was really got is counted in the kernel's page tables and told as a value, with the reason why
// each better rung gave nothing.
//
// Threads: one thread opens, moves and closes a Mapping; its bytes are as thread-safe as any memory. A child
// that is forked has no part of it: there the bytes are absent and the destructor only closes the fd.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/bytes.h"
#include "base/status.h"
#include "os/mapping_calls.h"
#include "os/memory_limits.h"
#include "os/numa.h"

namespace tiercel {

enum class MappingKind : unsigned char {
  kAnonymous,  // private; transparent huge pages where they can be had
  kHugepage,   // private; every byte on huge pages, or an error
  kShared,     // a memfd that other processes can map
};

enum class PageKind : unsigned char {
  kUnknown,      // the kernel did not say
  kSmall,        // 4 KiB
  kMixed,        // part of it on huge pages: see huge_bytes
  kCollapsed,    // 2 MiB, all of it, rung 3
  kTransparent,  // 2 MiB, all of it, rung 2 (of an attached mapping: rung 2 or 3)
  kHugetlb,      // 2 MiB, all of it, rung 1
};
std::string_view page_kind_name(PageKind kind);  // "2 MiB hugetlb"

struct PageReport {
  PageKind kind = PageKind::kUnknown;
  std::uint64_t huge_bytes = 0;
  std::vector<std::string> declined;  // for each rung that gave nothing or not all, one line why
};

// How memory is claimed and its page tables filled.
struct TouchOptions {
  unsigned threads = 0;  // 0: one for each core, at most 16
  // Called on the opening thread now and then: done never falls, and at the end of a success it is total.
  // Must not throw.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
  // Looked at every 32 MiB.
  std::stop_token stop;
};

struct MappingOptions {
  MappingKind kind = MappingKind::kAnonymous;
  std::uint64_t bytes = 0;  // rounded up to 2 MiB
  TouchOptions touch;
  NumaPlacement numa;
};

struct AttachOptions {
  std::uint64_t bytes = 0;  // what the mapping must have, exactly
  MappingAccess access = MappingAccess::kReadOnly;
  TouchOptions touch;
};

class Mapping final {
 public:
  Mapping() = default;  // of no bytes
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  // All bytes are 0, claimed and present in this process's page tables. When it fails nothing is left behind.
  // Errors: invalid_argument for no bytes, too many to be addressed, or a memory node that is not there;
  // unsupported where the kernel places nothing by node; resource_exhausted when they do not
  // fit what MemoryLimits says (asked before any is touched), when the kernel refuses, or for kHugepage when
  // not all of it is on huge pages; cancelled. Cost: about the time to write the bytes once on huge pages; on
  // small ones up to ten times that.
  static Result<Mapping> open(const MappingOptions& options, const MemoryLimits& limits = MemoryLimits(),
                              const MappingCalls& calls = LinuxMappingCalls());

  // Maps a shared mapping once more, in this or another process. `fd` stays the caller's. The seals and the
  // size are checked first, and that its owner has claimed all of it. Errors: invalid_argument naming what is
  // wrong with the file; failed_precondition for write access through an fd that may only read;
  // resource_exhausted when the kernel refuses; cancelled. Cost: fills the page tables; huge pages take no
  // time that matters.
  static Result<Mapping> attach(int fd, const AttachOptions& options,
                                const MappingCalls& calls = LinuxMappingCalls());

  ByteView view() const { return {range_.data, bytes_}; }
  // Requires: access() is kReadWrite.
  MutableByteView bytes() const;
  std::uint64_t size_bytes() const { return bytes_; }
  MappingAccess access() const { return access_; }
  // Of a shared mapping, to be handed to another process; stays the mapping's. −1 for private memory.
  int fd() const { return fd_; }
  const PageReport& pages() const { return pages_; }
  // Where it came to lie; nothing looked at when no placement was asked for.
  const NumaReport& numa() const { return numa_; }

 private:
  friend class MappingOpening;
  void swap(Mapping& other) noexcept;

  MappedRange range_;
  std::uint64_t bytes_ = 0;
  MappingAccess access_ = MappingAccess::kReadWrite;
  int fd_ = -1;
  pid_t owner_ = 0;  // the process that mapped it
  PageReport pages_;
  NumaReport numa_;
};

}  // namespace tiercel
