#include "command.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/json_text.h"

namespace tiercel::apps {
namespace {

std::atomic<const char*> interrupted_command = nullptr;
std::atomic<bool> interrupted_terminal = false;
static_assert(std::atomic<const char*>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// A signal handler: nothing that locks or allocates.
void write_stderr(const char* text) {
  const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(written);  // nobody is left to tell
}

extern "C" void on_interrupt(int) {
  if (interrupted_terminal) write_stderr("\r\033[K");  // over a progress bar
  write_stderr("tiercel ");
  write_stderr(interrupted_command);
  write_stderr(": interrupted, so there is no result\n");
  _exit(kExitInterrupted);
}

}  // namespace

int fail(std::string_view command, std::string_view message, int status) {
  constexpr std::size_t kLongest = 2000;
  const std::string line =
      fmt::format("tiercel{}{}: {}\n", command.empty() ? "" : " ", command, printable(message, kLongest));
  std::fwrite(line.data(), 1, line.size(), stderr);
  return status;
}

bool write_stdout(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

int print(std::string_view command, std::string_view text) {
  if (write_stdout(text)) return kExitOk;
  const std::error_code why(errno, std::generic_category());
  return fail(command, fmt::format("standard output cannot be written: {}", why.message()));
}

InterruptLine::InterruptLine(const char* command) {
  interrupted_command = command;
  interrupted_terminal = isatty(STDERR_FILENO) == 1;
  ::sigaction(SIGINT, nullptr, &before_);
  if (before_.sa_handler == SIG_IGN) return;
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptLine::~InterruptLine() { ::sigaction(SIGINT, &before_, nullptr); }

namespace {
std::atomic<bool> stop_asked = false;
std::atomic<int> stop_signal = 0;
extern "C" void on_stop(int signal) {
  stop_signal = signal;
  stop_asked = true;
}
constexpr int kStopSignals[] = {SIGINT, SIGTERM};
}  // namespace

StopSignals::StopSignals() {
  stop_asked = false;
  stop_signal = 0;
  for (std::size_t i = 0; i < std::size(kStopSignals); ++i) {
    ::sigaction(kStopSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action = {};
    action.sa_handler = on_stop;
    ::sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < std::size(kStopSignals); ++i)
    ::sigaction(kStopSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>& StopSignals::asked() const { return stop_asked; }

int StopSignals::status() const {
  if (!stop_asked) return 0;
  return stop_signal == SIGTERM ? kExitTerminated : kExitInterrupted;
}

namespace {
bool wants_colour(int file) {
  // No thread has been started that could change the environment.
  const char* terminal = std::getenv("TERM");     // NOLINT(concurrency-mt-unsafe)
  const char* refused = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
  return isatty(file) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}
}  // namespace

bool stdout_wants_colour() { return wants_colour(STDOUT_FILENO); }
bool stderr_wants_colour() { return wants_colour(STDERR_FILENO); }

std::string progress_bar(std::uint64_t done, std::uint64_t total) {
  constexpr std::uint64_t kWidth = 40;
  const auto filled = static_cast<std::size_t>(kWidth * done / total);
  return fmt::format("[{:#<{}}{:.<{}}] {:>3} %", "", filled, "", kWidth - filled, 100 * done / total);
}

Bar::Bar(std::string what, bool wanted)
    : what_(std::move(what)), shown_(wanted && isatty(STDERR_FILENO) == 1) {}

void Bar::update(std::uint64_t done, std::uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (total == 0 || !shown_ || now - begun_ < std::chrono::milliseconds(500) ||
      now - last_ < std::chrono::milliseconds(100))
    return;
  last_ = now;
  drawn_ = true;
  const std::string line = fmt::format("\r{}  {} ", progress_bar(std::min(done, total), total), what_);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void Bar::clear() {
  if (std::exchange(drawn_, false)) std::fputs("\r\033[K", stderr);
}

std::string access_problem(const std::string& path, int ways) {
  if (::access(path.c_str(), ways) == 0) return "";
  const std::error_code why(errno, std::generic_category());
  struct stat is = {};
  const bool another = ::stat(path.c_str(), &is) == 0 && is.st_uid != ::geteuid();
  return fmt::format(
      "{}: {}{}", path, why.message(),
      another ? fmt::format(" (it belongs to user {}, this is user {})", is.st_uid, ::geteuid()) : "");
}

}  // namespace tiercel::apps
