// The file calls of a store on a folder (posix_store.h), as an interface, so that a test can let any of them
// fail, hang or be the last thing that a process does; and what they are on Linux.
//
// Threads: const calls from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/bytes.h"
#include "os/mapping_calls.h"

namespace tiercel {

// Paths are relative to the folder's descriptor. Plain int results are 0 or an errno.
class PosixCalls {
 public:
  virtual ~PosixCalls() = default;
  virtual SystemResult<int> open(int folder, const std::string& path, int flags, unsigned mode) const = 0;
  virtual void close(int fd) const = 0;
  virtual int make_folder(int folder, const std::string& path) const = 0;
  virtual SystemResult<std::uint64_t> size(int fd) const = 0;
  // All of it, in as many calls as that takes; fewer bytes: the file ends there.
  virtual SystemResult<std::uint64_t> read(int fd, std::uint64_t offset, MutableByteView to) const = 0;
  virtual int write(int fd, std::uint64_t offset, ByteView from) const = 0;
  // Gives a file without a name (O_TMPFILE) this one; EEXIST where it is taken.
  virtual int link_unnamed(int fd, int folder, const std::string& path) const = 0;
  virtual int link(int folder, const std::string& from, const std::string& to) const = 0;
  virtual int rename(int folder, const std::string& from, const std::string& to) const = 0;
  virtual int remove(int folder, const std::string& path) const = 0;
  // Ours alone until it is closed; EWOULDBLOCK where it is another's.
  virtual int lock(int fd) const = 0;
};

class LinuxPosixCalls : public PosixCalls {
 public:
  SystemResult<int> open(int folder, const std::string& path, int flags, unsigned mode) const override;
  void close(int fd) const override;
  int make_folder(int folder, const std::string& path) const override;
  SystemResult<std::uint64_t> size(int fd) const override;
  SystemResult<std::uint64_t> read(int fd, std::uint64_t offset, MutableByteView to) const override;
  int write(int fd, std::uint64_t offset, ByteView from) const override;
  int link_unnamed(int fd, int folder, const std::string& path) const override;
  int link(int folder, const std::string& from, const std::string& to) const override;
  int rename(int folder, const std::string& from, const std::string& to) const override;
  int remove(int folder, const std::string& path) const override;
  int lock(int fd) const override;
};
const PosixCalls& linux_posix_calls();

}  // namespace tiercel
