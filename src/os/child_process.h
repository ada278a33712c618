// A child process of ours: started with the descriptors that it is given and no others, watched, killed and
// reaped by a handle that cannot come to mean somebody else. For programs that must be kept at arm's length.
//
// Threads: one thread. Starting is safe beside other threads: no code of ours runs in the child.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/clock.h"

namespace tiercel {

// What a pipe takes at once, and so what a child's input may begin with.
inline constexpr std::size_t kChildInputBytesMax = 60U << 10;

struct ChildOptions {
  std::vector<std::string> argv;         // the first without a slash: looked for in PATH
  std::vector<std::string> environment;  // "NAME=value", besides ours or instead of it
  std::vector<int> descriptors;          // are 3, 4, ... there; stay the caller's
  int output = -1;                       // its standard output and error; -1: our standard error
  std::string input;                     // what its standard input begins with; the pipe then stays open
};

class ChildProcess {
 public:
  // Killed and waited for (a second at most), if it is still there.
  virtual ~ChildProcess() = default;
  virtual std::uint32_t pid() const = 0;
  // Whether all its threads have ended; stays so. It touches no memory any more then. Reaps it, and kills
  // what it has left behind in its process group (Linux 6.9; before, that is nobody's).
  virtual bool exited() = 0;
  // "exited with 3", "killed by signal 9 (Killed)". Requires: exited().
  virtual std::string end() const = 0;
  // SIGKILL, to its process group, too, where the kernel can. Its exit is seen a moment later.
  virtual void kill() = 0;
  // End of file on its standard input.
  virtual void close_input() = 0;
  // Readable once it has exited; to poll together with others.
  virtual int watch_fd() const = 0;
  // Until it has exited or `at_most` has passed. Returns exited().
  virtual bool wait(Duration at_most) = 0;
};

class ChildProcesses {
 public:
  virtual ~ChildProcesses() = default;
  // In a process group of its own, all signals at their defaults. Errors: invalid_argument: no program, or
  // too much input; not_found, unavailable: no such program, or not allowed; resource_exhausted; unsupported.
  // Blocks: until the program's file has been opened.
  virtual Result<std::unique_ptr<ChildProcess>> start(const ChildOptions& options) = 0;
};

class LinuxChildProcesses final : public ChildProcesses {
 public:
  Result<std::unique_ptr<ChildProcess>> start(const ChildOptions& options) override;
};

}  // namespace tiercel
