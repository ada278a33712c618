// What a subcommand of `tiercel` is: options added to the command line, and what runs when it was named.
//
// Threads: main thread only.
#pragma once

#include <functional>
#include <string_view>

namespace CLI {
class App;
}

namespace tiercel::apps {

// Exit statuses of every subcommand. Nothing is on stdout when the status is not 0.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // a file or a result was bad; one line on stderr says which and why
inline constexpr int kExitUsage = 2;   // the command line made no sense; the same

struct Command {
  CLI::App* app;             // owned by the parent given at creation
  std::function<int()> run;  // after a successful parse: does the work and returns the exit status
};

// Writes "tiercel COMMAND: MESSAGE" (without a command "tiercel: MESSAGE") as one line on stderr.
// Returns: `status`.
int fail(std::string_view command, std::string_view message, int status = kExitFailed);

// Writes all of `text` to stdout. Returns: whether it got there (a full disk, a closed pipe).
bool write_stdout(std::string_view text);

// Whether stdout is a terminal that wants colours (NO_COLOR unset, TERM not "dumb").
bool stdout_wants_colour();

}  // namespace tiercel::apps
