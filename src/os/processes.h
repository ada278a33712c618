// Other processes, by a handle that cannot come to mean somebody else: whether one that writes into our
// memory is still there. A number alone would not do, it is given out again after an exit.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace tiercel {

class WatchedProcess {
 public:
  virtual ~WatchedProcess() = default;
  // Whether all its threads have ended; stays so. It writes nothing to memory any more then.
  virtual bool exited() = 0;
};

class Processes {
 public:
  virtual ~Processes() = default;
  // Errors: not_found: it has exited already; invalid_argument: this very process, a thread of one, or 0;
  // resource_exhausted (descriptors), unsupported (the kernel), unavailable (not allowed).
  virtual Result<std::unique_ptr<WatchedProcess>> watch(std::uint32_t pid) = 0;
};

// By pidfd: one descriptor for each process that is watched. Cost of exited(): one system call.
class LinuxProcesses final : public Processes {
 public:
  Result<std::unique_ptr<WatchedProcess>> watch(std::uint32_t pid) override;
};

}  // namespace tiercel
