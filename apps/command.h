// What a subcommand of `tiercel` is: options added to the command line, and what runs when it was named.
//
// Threads: main thread only.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <signal.h>

namespace CLI {
class App;
}

namespace tiercel::apps {

// Exit statuses of every subcommand. Nothing is on stdout when the status is not 0, but for the reports of
// `doctor` and `disk check`, which are about what is missing or damaged, and for what `llama` writes as it
// comes: answers, and the rows of `llama demo`.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;   // a file or a result was bad; one line on stderr says which and why
inline constexpr int kExitUsage = 2;    // the command line made no sense; the same
inline constexpr int kExitDamaged = 3;  // `disk check` found damage: the report is printed
inline constexpr int kExitInterrupted = 130;  // SIGINT; the same
inline constexpr int kExitTerminated = 143;   // SIGTERM; the same

// An error and the exit status that goes with it.
struct Refusal {
  int status = kExitUsage;
  std::string message;
};

struct Command {
  CLI::App* app;             // owned by the parent given at creation
  std::function<int()> run;  // after a successful parse: does the work and returns the exit status
};

// Writes "tiercel COMMAND: MESSAGE" (without a command "tiercel: MESSAGE") as one line on stderr.
// Returns: `status`.
int fail(std::string_view command, std::string_view message, int status = kExitFailed);

inline int fail(std::string_view command, const Refusal& refusal) {
  return fail(command, refusal.message, refusal.status);
}

// Writes all of `text` to stdout. Returns: whether it got there (a full disk, a closed pipe).
bool write_stdout(std::string_view text);

// The same, and says on stderr, as fail(), that it did not get there. Returns: kExitOk or kExitFailed.
int print(std::string_view command, std::string_view text);

// While it lives, SIGINT writes "tiercel COMMAND: interrupted ..." as one line on stderr and ends the process
// at once with kExitInterrupted; what stdout has not got by then it never gets. Changes nothing where SIGINT
// is ignored, as in a background job of a shell. Lives: one at a time, outlived by `command`.
class InterruptLine final {
 public:
  explicit InterruptLine(const char* command);
  ~InterruptLine();
  InterruptLine(const InterruptLine&) = delete;
  InterruptLine& operator=(const InterruptLine&) = delete;

 private:
  struct sigaction before_ = {};
};

// While it lives, SIGINT and SIGTERM are kept for the program to look at: for work that ends in good order.
// Lives: one at a time.
class StopSignals final {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  const std::atomic<bool>& asked() const;
  int status() const;  // kExitInterrupted, or that of SIGTERM; 0: not asked

 private:
  struct sigaction before_[2] = {};
};

// Whether that is a terminal that wants colours (NO_COLOR unset, TERM not "dumb").
bool stdout_wants_colour();
bool stderr_wants_colour();

// "[####......]  40 %": what a line of progress begins with. `done` of `total`, which is above 0.
std::string progress_bar(std::uint64_t done, std::uint64_t total);

// Such a line on stderr, "[####......]  40 %  WHAT": on a terminal only, not in the first half second, then
// at most ten times a second; cleared when it ends.
class Bar final {
 public:
  explicit Bar(std::string what, bool wanted = true);
  ~Bar() { clear(); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;
  void update(std::uint64_t done, std::uint64_t total);  // total 0: nobody knows; not shown
  void clear();

 private:
  std::string what_;
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now(), last_ = begun_;
};

// Why this process may not use what is at `path` in such `ways` (R_OK, W_OK, X_OK of access(2)):
// "PATH: Permission denied (it belongs to user 0, this is user 1000)". Empty: it may.
std::string access_problem(const std::string& path, int ways);

}  // namespace tiercel::apps
