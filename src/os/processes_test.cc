#include "os/processes.h"

#include <csignal>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tiercel {
namespace {

// A child that waits for its end; it holds nothing of this process but the pipe it waits on.
class Child {
 public:
  Child() {
    int ends[2] = {};
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[1]);
      char byte = 0;
      static_cast<void>(::read(ends[0], &byte, 1) == 0);
      ::_exit(0);
    }
    ::close(ends[0]);
    hold_ = ends[1];
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  std::uint32_t pid() const { return static_cast<std::uint32_t>(pid_); }
  void kill() const { ::kill(pid_, SIGKILL); }
  // Waits until it has exited; it is a zombie then.
  void wait_for_exit() const {
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  void end() {
    if (pid_ == 0) return;
    ::close(hold_);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int hold_ = -1;
};

TEST(Processes, OneThatLivesIsSeenToExitWhetherReapedOrNot) {
  LinuxProcesses processes;
  Child child;
  auto watched = processes.watch(child.pid());
  ASSERT_TRUE(watched) << watched.error().to_string();
  EXPECT_FALSE((*watched)->exited());
  child.kill();
  child.wait_for_exit();
  EXPECT_TRUE((*watched)->exited());
  const auto late = processes.watch(child.pid());
  ASSERT_FALSE(late) << "a zombie writes nothing, but its reservation would be a mistake";
  EXPECT_EQ(late.error().code, Code::kNotFound);
  const std::uint32_t pid = child.pid();
  child.end();
  EXPECT_TRUE((*watched)->exited());
  EXPECT_EQ(processes.watch(pid).error().code, Code::kNotFound);
}

TEST(Processes, NumbersThatNameNoOtherProcessAreRefusedInWords) {
  LinuxProcesses processes;
  EXPECT_EQ(processes.watch(0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(processes.watch(UINT32_MAX).error().code, Code::kInvalidArgument);
  const auto own = processes.watch(static_cast<std::uint32_t>(::getpid()));
  ASSERT_FALSE(own);
  EXPECT_NE(own.error().message.find("this process"), std::string::npos) << own.error().to_string();
}

TEST(Processes, WithoutADescriptorTheErrorSaysWhichLimit) {
  LinuxProcesses processes;
  Child child;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = processes.watch(child.pid());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted) << refused.error().to_string();
}

}  // namespace
}  // namespace tiercel
