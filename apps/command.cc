#include "command.h"

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "model/json_text.h"

namespace tiercel::apps {

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

bool stdout_wants_colour() {
  // No thread has been started that could change the environment.
  const char* terminal = std::getenv("TERM");     // NOLINT(concurrency-mt-unsafe)
  const char* refused = std::getenv("NO_COLOR");  // NOLINT(concurrency-mt-unsafe)
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace tiercel::apps
