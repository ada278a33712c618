#include "os/block_calls.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace tiercel {

SystemResult<int> LinuxBlockCalls::open(const std::string& path, int flags, unsigned mode) const {
  const int fd = ::open(path.c_str(), flags, mode);
  if (fd < 0) return tl::unexpected(errno);
  return fd;
}

int LinuxBlockCalls::lock(int fd, bool exclusive) const {
  return ::flock(fd, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 ? 0 : errno;
}

int LinuxBlockCalls::allocate(int fd, std::uint64_t bytes) const {
  int failed = 0;
  do {
    failed = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  return failed;
}

SystemResult<std::uint64_t> LinuxBlockCalls::write_zeros(int fd, std::uint64_t offset,
                                                         std::uint64_t length) const {
  static std::array<std::byte, 1U << 16> zeros;  // never written: takes no room in the program
  const ssize_t written =
      ::pwrite(fd, zeros.data(), static_cast<std::size_t>(std::min<std::uint64_t>(length, zeros.size())),
               static_cast<off_t>(offset));
  if (written < 0) return tl::unexpected(errno);
  return static_cast<std::uint64_t>(written);
}

SystemResult<std::uint64_t> LinuxBlockCalls::free_bytes(int fd) const {
  struct statvfs found {};
  if (::fstatvfs(fd, &found) != 0) return tl::unexpected(errno);
  const auto blocks = ::geteuid() == 0 ? found.f_bfree : found.f_bavail;
  return static_cast<std::uint64_t>(blocks) * found.f_frsize;
}

const BlockCalls& linux_block_calls() {
  static const LinuxBlockCalls kCalls;
  return kCalls;
}

}  // namespace tiercel
