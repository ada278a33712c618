#include "remote/posix_calls.h"

#include <cerrno>
#include <cstdio>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tiercel {
namespace {

int errno_of(int result) { return result == 0 ? 0 : errno; }

}  // namespace

SystemResult<int> LinuxPosixCalls::open(int folder, const std::string& path, int flags, unsigned mode) const {
  int fd = -1;
  do fd = ::openat(folder, path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return tl::unexpected(errno);
  return fd;
}

void LinuxPosixCalls::close(int fd) const { ::close(fd); }

int LinuxPosixCalls::make_folder(int folder, const std::string& path) const {
  return errno_of(::mkdirat(folder, path.c_str(), 0700));
}

SystemResult<std::uint64_t> LinuxPosixCalls::size(int fd) const {
  struct stat found {};
  if (::fstat(fd, &found) != 0) return tl::unexpected(errno);
  if (!S_ISREG(found.st_mode)) return tl::unexpected(EISDIR);
  return static_cast<std::uint64_t>(found.st_size);
}

SystemResult<std::uint64_t> LinuxPosixCalls::read(int fd, std::uint64_t offset, MutableByteView to) const {
  std::uint64_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return tl::unexpected(errno);
    if (got == 0) break;
    done += static_cast<std::uint64_t>(got);
  }
  return done;
}

int LinuxPosixCalls::write(int fd, std::uint64_t offset, ByteView from) const {
  while (!from.empty()) {
    const ssize_t put = ::pwrite(fd, from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    if (put == 0) return EIO;
    offset += static_cast<std::uint64_t>(put);
    from = from.subspan(static_cast<std::size_t>(put));
  }
  return 0;
}

int LinuxPosixCalls::link_unnamed(int fd, int folder, const std::string& path) const {
  const std::string unnamed = fmt::format("/proc/self/fd/{}", fd);
  return errno_of(::linkat(AT_FDCWD, unnamed.c_str(), folder, path.c_str(), AT_SYMLINK_FOLLOW));
}

int LinuxPosixCalls::link(int folder, const std::string& from, const std::string& to) const {
  return errno_of(::linkat(folder, from.c_str(), folder, to.c_str(), 0));
}

int LinuxPosixCalls::rename(int folder, const std::string& from, const std::string& to) const {
  return errno_of(::renameat(folder, from.c_str(), folder, to.c_str()));
}

int LinuxPosixCalls::remove(int folder, const std::string& path) const {
  return errno_of(::unlinkat(folder, path.c_str(), 0));
}

int LinuxPosixCalls::lock(int fd) const { return errno_of(::flock(fd, LOCK_EX | LOCK_NB)); }

const PosixCalls& linux_posix_calls() {
  static const LinuxPosixCalls kCalls;
  return kCalls;
}

}  // namespace tiercel
