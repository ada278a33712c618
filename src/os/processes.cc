#include "os/processes.h"

#include <cerrno>
#include <climits>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/fd.h"

namespace tiercel {

namespace {

class PidFd final : public WatchedProcess {
 public:
  explicit PidFd(int fd) : fd_(fd) {}
  bool exited() override {
    if (exited_) return true;
    pollfd asked{fd_.get(), POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&asked, 1, 0);
    while (ready < 0 && errno == EINTR);
    exited_ = ready > 0 && (asked.revents & POLLIN) != 0;
    return exited_;
  }

 private:
  Fd fd_;
  bool exited_ = false;
};

Status refusal(std::uint32_t pid, int reason) {
  switch (reason) {
    case ESRCH:
      return {Code::kNotFound, fmt::format("writer: process {} is not there (any more)", pid)};
    case EINVAL:
      return {Code::kInvalidArgument,
              fmt::format("writer: {} is no process; give the process id, not that of a thread", pid)};
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return {
          Code::kResourceExhausted,
          fmt::format("writer: no descriptor to watch process {} with ({}); raise the limit of open files",
                      pid, std::strerror(reason))};  // NOLINT(concurrency-mt-unsafe): one of fixed texts
    case ENOSYS:
      return {Code::kUnsupported, "writer: this kernel has no pidfd_open (Linux 5.3)"};
    default:
      return {Code::kUnavailable,
              fmt::format("writer: process {} cannot be watched ({}); is pidfd_open filtered out?", pid,
                          std::strerror(reason))};  // NOLINT(concurrency-mt-unsafe)
  }
}

}  // namespace

Result<std::unique_ptr<WatchedProcess>> LinuxProcesses::watch(std::uint32_t pid) {
  if (pid == 0 || pid > INT_MAX)
    return error(Code::kInvalidArgument, fmt::format("writer: {} is no process id", pid));
  if (pid == static_cast<std::uint32_t>(::getpid()))
    return error(
        Code::kInvalidArgument,
        fmt::format("writer: {} is this process; name no writer, and give back by abort or commit", pid));
  const long fd = ::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U);
  if (fd < 0) return tl::unexpected(refusal(pid, errno));
  auto process = std::make_unique<PidFd>(static_cast<int>(fd));
  if (process->exited()) return tl::unexpected(refusal(pid, ESRCH));  // not reaped yet
  return process;
}

}  // namespace tiercel
