#include "os/child_process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tiercel {
namespace {

constexpr int kPatienceMs = 60'000;  // an upper limit, however slow the machine is
constexpr Duration kPatience = std::chrono::milliseconds(kPatienceMs);

// What a child wrote, until it closed its end.
class Output {
 public:
  Output() { EXPECT_EQ(::pipe2(ends_.data(), O_CLOEXEC), 0); }
  ~Output() {
    for (const int end : ends_)
      if (end >= 0) ::close(end);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  int end() const { return ends_[1]; }
  std::string all() {
    ::close(std::exchange(ends_[1], -1));
    std::string text;
    std::array<char, 4096> part{};
    pollfd asked{ends_[0], POLLIN, 0};
    for (;;) {
      if (::poll(&asked, 1, kPatienceMs) != 1) return text + "(and somebody still has its end)";
      const ssize_t got = ::read(ends_[0], part.data(), part.size());
      if (got <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(got));
    }
  }
  std::string line() {
    std::string text;
    for (char c = 0; ::read(ends_[0], &c, 1) == 1 && c != '\n';) text += c;
    return text;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

std::unique_ptr<ChildProcess> start(const std::string& script, const Output& output,
                                    ChildOptions options = {}) {
  options.argv = {"sh", "-c", script};
  options.output = output.end();
  auto child = LinuxChildProcesses().start(options);
  EXPECT_TRUE(child) << (child ? "" : child.error().to_string());
  return child ? std::move(*child) : nullptr;
}

TEST(ChildProcess, SaysHowItEnded) {
  Output output;
  auto child = start("exit 3", output);
  ASSERT_TRUE(child->wait(kPatience));
  EXPECT_TRUE(child->exited());
  EXPECT_EQ(child->end(), "exited with 3");
  child->kill();  // of what has gone: nothing
  auto stuck = start("kill -STOP $$; exit 4", output);
  EXPECT_FALSE(stuck->exited());
  stuck->kill();
  ASSERT_TRUE(stuck->wait(kPatience));
  EXPECT_EQ(stuck->end(), "killed by signal 9 (Killed)");
}

TEST(ChildProcess, HasTheDescriptorsThatItWasGivenAndNoOthers) {
  Output output;
  const int stray =
      ::open("/dev/null", O_RDONLY);  // NOLINT(android-cloexec-open): inherited, if nobody takes care
  Output given;
  ChildOptions options;
  options.descriptors = {given.end(), output.end(), given.end()};
  auto child =
      start("for i in 0 1 2 3 4 5 6 7 8 9; do test -e /proc/$$/fd/$i && printf $i; done; echo here >&4",
            output, options);
  EXPECT_EQ(output.all(), "012345here\n");
  EXPECT_TRUE(child->wait(kPatience));
  ::close(stray);
}

TEST(ChildProcess, ReadsItsInputAndThenTheEndOfIt) {
  Output output;
  ChildOptions options;
  options.input = "first\n" + std::string(kChildInputBytesMax - 7, 'x') + "\n";
  auto child = start("read line; echo $line; cat | wc -c", output, options);
  EXPECT_EQ(output.line(), "first");
  EXPECT_FALSE(child->exited());  // its input is open
  child->close_input();
  EXPECT_EQ(output.line(), std::to_string(kChildInputBytesMax - 6));
  EXPECT_TRUE(child->wait(kPatience));
}

TEST(ChildProcess, HasOurEnvironmentWithWhatWasSaid) {
  Output output;
  ChildOptions options;
  options.environment = {"TIERCEL_CHILD_TEST=a b", "HOME=elsewhere"};
  auto child = start(
      "echo \"$TIERCEL_CHILD_TEST $HOME\"; test -n \"$PATH\" && echo path; env | grep -c ^HOME=", output,
      options);
  EXPECT_EQ(output.all(), "a b elsewhere\npath\n1\n");
  EXPECT_TRUE(child->wait(kPatience));
}

TEST(ChildProcess, LeadsAGroupAndHasNoSignalsBlocked) {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &blocked, nullptr);
  Output output;
  auto child = start("cut -d ' ' -f 5 /proc/$$/stat; exec grep SigBlk /proc/self/status", output);
  ::pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr);
  const std::string text = output.all();
  EXPECT_NE(text.find("SigBlk:\t0000000000000000"), std::string::npos) << text;
  EXPECT_TRUE(child->wait(kPatience));
  EXPECT_TRUE(text.starts_with(std::to_string(child->pid()) + "\n")) << text;
}

TEST(ChildProcess, IsKilledWithItsObject) {
  Output output;
  auto child = start("echo ready; kill -STOP $$", output);
  EXPECT_EQ(output.line(), "ready");
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, child->pid(), 0U));
  ASSERT_GE(handle, 0);
  child.reset();
  pollfd asked{handle, POLLIN, 0};
  EXPECT_EQ(::poll(&asked, 1, kPatienceMs), 1);
  ::close(handle);
  EXPECT_EQ(output.all(), "");  // nobody else has its end
}

// With the kernel's help only (Linux 6.9).
TEST(ChildProcess, TakesItsOwnChildrenWithIt) {
  const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0U));
  const bool can = ::syscall(SYS_pidfd_send_signal, self, 0, nullptr, 4U) == 0 || errno != EINVAL;
  ::close(self);
  if (!can) GTEST_SKIP() << "skipped: 1 case, this kernel signals no groups by handle";
  Output output;
  auto child = start("sh -c 'echo ready; kill -STOP $$' & wait", output);
  EXPECT_EQ(output.line(), "ready");
  child->kill();
  EXPECT_TRUE(child->wait(kPatience));
  EXPECT_EQ(output.all(), "");  // ends only when the last one that has it is gone
  // One that ends by itself, too.
  Output left;
  auto leaves = start("sh -c 'echo ready; kill -STOP $$' & read line", left);
  EXPECT_EQ(left.line(), "ready");
  leaves->close_input();
  EXPECT_TRUE(leaves->wait(kPatience));
  EXPECT_EQ(left.all(), "");
}

TEST(ChildProcess, WhatCannotBeStartedIsRefusedInWords) {
  LinuxChildProcesses processes;
  const auto code = [&](const ChildOptions& options) {
    const auto refused = processes.start(options);
    EXPECT_FALSE(refused);
    if (refused) return Code::kOk;
    EXPECT_EQ(refused.error().message.find('\n'), std::string::npos);
    return refused.error().code;
  };
  EXPECT_EQ(code({}), Code::kInvalidArgument);
  EXPECT_EQ(code({.argv = {"no/such/program"}}), Code::kNotFound);
  EXPECT_EQ(code({.argv = {"no-such-program-anywhere"}}), Code::kNotFound);
  EXPECT_EQ(code({.argv = {"/proc/self/status"}}), Code::kUnavailable);
  EXPECT_EQ(code({.argv = {"true"}, .input = std::string(kChildInputBytesMax + 1, 'x')}),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tiercel
