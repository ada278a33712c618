// What the system is asked, beside its files, to find out what this machine can do (os/machine.h): each thing
// is tried, not concluded from a version, since containers and seccomp filters refuse what the kernel has.
//
// Threads: const calls from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "os/mapping_calls.h"

namespace tiercel {

struct LockLimit {
  std::uint64_t soft_bytes = 0;  // UINT64_MAX: none
  std::uint64_t hard_bytes = 0;
};

struct FileSystem {
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;  // for this user
  std::uint64_t type = 0;        // the number that statfs() gives
};
// "ext4"; "type 0x1234" for one that is not known here.
std::string file_system_name(std::uint64_t type);

// A file written and read past the page cache.
struct DirectTrial {
  const char* failed_call = "";         // the first that failed; "" = none did
  int failure = 0;                      // its errno; 0 with failed_call "compare": other bytes came back
  std::uint64_t alignment_bytes = 0;    // the least at which memory, offset and length worked; 1 = any
  std::uint64_t told_offset_bytes = 0;  // what statx() says is wanted; 0 = it does not say
  std::uint64_t told_memory_bytes = 0;

  bool ok() const { return *failed_call == '\0'; }
};

struct CpuFeatures {
  bool x86 = false;
  bool sse4_2 = false;
  bool pclmul = false;
  bool avx2 = false;
  bool avx512f = false;
  bool vpclmulqdq = false;
  bool sha_ni = false;  // and sse4.1, without which it is of no use
};

struct CudaDriver {
  std::string load_failure;      // why libcuda.so.1 could not be loaded; "" = it was
  const char* failed_call = "";  // of the driver's; "" = none
  int failure = 0;               // its CUresult
  unsigned devices = 0;
  int version = 0;  // 1000 × major + 10 × minor of the newest CUDA that it runs; 0 = not known
};

class MachineCalls {
 public:
  virtual ~MachineCalls() = default;
  virtual SystemResult<LockLimit> lock_limit() const = 0;
  // Locks so many bytes into memory and gives them back. Returns: 0 or an errno. Cost: claims them.
  virtual int try_lock(std::uint64_t bytes) const = 0;
  virtual SystemResult<FileSystem> file_system(const std::string& folder) const = 0;
  // Sets up a ring and closes it. Returns: 0 or an errno.
  virtual int try_io_uring() const = 0;
  // A file descriptor of this process itself. Returns: 0 or an errno.
  virtual int try_pidfd() const = 0;
  // Leaves nothing in `folder`, also when the process is killed, where the file system knows files without a
  // name; elsewhere the name is there for some microseconds. Cost: 16 KiB through the disk.
  virtual DirectTrial try_direct(const std::string& folder) const = 0;
  virtual CpuFeatures cpu() const = 0;
  virtual CudaDriver cuda() const = 0;
};

class LinuxMachineCalls final : public MachineCalls {
 public:
  SystemResult<LockLimit> lock_limit() const override;
  int try_lock(std::uint64_t bytes) const override;
  SystemResult<FileSystem> file_system(const std::string& folder) const override;
  int try_io_uring() const override;
  int try_pidfd() const override;
  // Requires: SIGXFSZ is ignored where a limit on file sizes may be set (ulimit -f).
  DirectTrial try_direct(const std::string& folder) const override;
  CpuFeatures cpu() const override;
  // The library stays loaded: unloading a driver that has started threads is not safe.
  CudaDriver cuda() const override;
};

}  // namespace tiercel
