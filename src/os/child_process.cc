#include "os/child_process.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/fd.h"

namespace tiercel {
namespace {

// Younger than the C library's headers.
constexpr int kWaitByPidFd = 3;               // P_PIDFD
constexpr unsigned kSignalProcessGroup = 4U;  // PIDFD_SIGNAL_PROCESS_GROUP
constexpr Duration kLastWait = std::chrono::seconds(1);

std::string text_of(int reason) {
  return std::strerror(reason);  // NOLINT(concurrency-mt-unsafe): one of fixed texts
}

void send_signal(int pidfd, int signal) {
  // Both: it may have left the group that it was started in.
  ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0U);
  ::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, kSignalProcessGroup);
}

class LinuxChild final : public ChildProcess {
 public:
  LinuxChild(pid_t pid, Fd pidfd, Fd input) : pid_(pid), pidfd_(std::move(pidfd)), input_(std::move(input)) {}
  ~LinuxChild() override {
    if (exited()) return;
    kill();
    wait(kLastWait);
  }
  LinuxChild(const LinuxChild&) = delete;
  LinuxChild& operator=(const LinuxChild&) = delete;

  std::uint32_t pid() const override { return static_cast<std::uint32_t>(pid_); }
  bool exited() override { return exited_ || look(Duration(0)); }
  std::string end() const override { return end_; }
  void kill() override {
    if (!exited_) send_signal(pidfd_.get(), SIGKILL);
  }
  void close_input() override { input_.reset(); }
  int watch_fd() const override { return pidfd_.get(); }
  bool wait(Duration at_most) override {
    const SteadyClock clock;
    const Time until = later(clock.now(), at_most);
    while (!exited_ && !look(std::max(until - clock.now(), Duration(0))))
      if (clock.now() >= until) break;
    return exited_;
  }

 private:
  // A pidfd is readable when all threads have ended, whoever reaps the process.
  bool look(Duration at_most) {
    pollfd asked{pidfd_.get(), POLLIN, 0};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
    const timespec limit{static_cast<time_t>(seconds.count()),
                         static_cast<long>((at_most - seconds).count())};
    if (::ppoll(&asked, 1, &limit, nullptr) <= 0 || (asked.revents & POLLIN) == 0) return false;
    // While it is not reaped its group's number is nobody else's.
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, kSignalProcessGroup);
    siginfo_t info{};
    int failed = 0;
    do
      failed = ::waitid(static_cast<idtype_t>(kWaitByPidFd), static_cast<id_t>(pidfd_.get()), &info, WEXITED);
    while (failed != 0 && errno == EINTR);
    if (failed != 0)  // the program around us ignores SIGCHLD, or waits for every child
      end_ = "ended, nobody knows how";
    else if (info.si_code == CLD_EXITED)
      end_ = fmt::format("exited with {}", info.si_status);
    else
      end_ = fmt::format("killed by signal {} ({})", info.si_status,
                         strsignal(info.si_status));  // NOLINT(concurrency-mt-unsafe): one of fixed texts
    exited_ = true;
    return true;
  }

  pid_t pid_;
  Fd pidfd_, input_;
  bool exited_ = false;
  std::string end_;
};

tl::unexpected<Status> refused(const ChildOptions& options, std::string_view what, int reason) {
  Code code = Code::kResourceExhausted;
  std::string_view remedy = "look at the limits of open files, memory and processes";
  if (reason == ENOENT || reason == ENOTDIR) {
    code = Code::kNotFound;
    remedy = "give the program's path, or one that PATH finds";
  } else if (reason == EACCES || reason == EPERM || reason == ENOEXEC) {
    code = Code::kUnavailable;
    remedy = "it must be a program, or a script with a first line that names one, that this user may run";
  } else if (reason == ENOSYS) {
    code = Code::kUnsupported;
    remedy = "a kernel with pidfd_open (Linux 5.3) is needed";
  }
  return error(code,
               fmt::format("child process '{}': {}: {}; {}", options.argv[0], what, text_of(reason), remedy));
}

// The arguments of one posix_spawn.
class Spawning final {
 public:
  Spawning() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
  }
  ~Spawning() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;

  // `from` is to be `to` there. Copied to where no later step of the child can overwrite it.
  int give(int from, int to, int first_free) {
    Fd copy(::fcntl(from, F_DUPFD_CLOEXEC, first_free));
    if (copy.get() < 0) return errno;
    const int failed = ::posix_spawn_file_actions_adddup2(&actions_, copy.get(), to);
    copies_.push_back(std::move(copy));
    return failed;
  }
  int give_nothing(int to) {
    return ::posix_spawn_file_actions_addopen(&actions_, to, "/dev/null", O_RDWR, 0);
  }

  // Returns 0 or an errno. Requires: every descriptor below `first_free` was given.
  int run(const ChildOptions& options, int first_free, pid_t& pid) {
    if (const int failed = ::posix_spawn_file_actions_addclosefrom_np(&actions_, first_free); failed != 0)
      return failed;
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &all);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_,
                               POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::vector<char*> argv, environment;
    for (const std::string& word : options.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
      if (!replaced(options, *entry)) environment.push_back(*entry);
    for (const std::string& entry : options.environment)
      environment.push_back(const_cast<char*>(entry.c_str()));
    environment.push_back(nullptr);
    return ::posix_spawnp(&pid, argv[0], &actions_, &attributes_, argv.data(), environment.data());
  }

 private:
  static bool replaced(const ChildOptions& options, std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('='));
    return std::ranges::any_of(options.environment, [&](std::string_view other) {
      return other.substr(0, other.find('=')) == name;
    });
  }

  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  std::vector<Fd> copies_;
};

// A pipe that holds `input` already, so that nobody has to wait for a reader, and no reader that has gone can
// end us with SIGPIPE.
int make_input(const std::string& input, Fd& reading, Fd& writing) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno;
  reading = Fd(ends[0]);
  writing = Fd(ends[1]);
  if (::fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) return errno;
  std::string_view left = input;
  while (!left.empty()) {
    const ssize_t written = ::write(ends[1], left.data(), left.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno == EAGAIN ? ENOBUFS : errno;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> LinuxChildProcesses::start(const ChildOptions& options) {
  if (options.argv.empty() || options.argv[0].empty())
    return error(Code::kInvalidArgument, "child process: no program is named; give at least its path");
  if (options.input.size() > kChildInputBytesMax)
    return error(Code::kInvalidArgument,
                 fmt::format("child process '{}': input: wanted at most {} bytes, got {}", options.argv[0],
                             kChildInputBytesMax, options.input.size()));
  Fd reading, writing;
  if (const int failed = make_input(options.input, reading, writing); failed != 0)
    return refused(options, "a pipe for its input", failed);
  Spawning spawning;
  const int first_free = 3 + static_cast<int>(options.descriptors.size());
  const int output = options.output >= 0 ? options.output : STDERR_FILENO;
  const bool has_output = ::fcntl(output, F_GETFD) >= 0;
  int failed = spawning.give(reading.get(), STDIN_FILENO, first_free);
  for (const int to : {STDOUT_FILENO, STDERR_FILENO})
    if (failed == 0) failed = has_output ? spawning.give(output, to, first_free) : spawning.give_nothing(to);
  for (std::size_t i = 0; i < options.descriptors.size() && failed == 0; ++i)
    failed = spawning.give(options.descriptors[i], 3 + static_cast<int>(i), first_free);
  if (failed != 0) return refused(options, "its descriptors", failed);
  // Taken before there is a child: without a handle it could not be kept.
  Fd spare(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U)));
  if (spare.get() < 0) return refused(options, "a handle for it", errno);
  pid_t pid = 0;
  if (failed = spawning.run(options, first_free, pid); failed != 0)
    return refused(options, "to start it", failed);
  spare.reset();
  Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (pidfd.get() < 0) {  // another thread was faster to take the last descriptor
    failed = errno;
    ::kill(pid, SIGKILL);  // not reaped by anybody yet: the number is still its own
    ::waitpid(pid, nullptr, 0);
    return refused(options, "a handle for it", failed);
  }
  return std::make_unique<LinuxChild>(pid, std::move(pidfd), std::move(writing));
}

}  // namespace tiercel
