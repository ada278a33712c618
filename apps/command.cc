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
  const char* terminal = std::getenv("TERM");
  const char* refused = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) == 1 && (refused == nullptr || *refused == '\0') &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

}  // namespace tiercel::apps
