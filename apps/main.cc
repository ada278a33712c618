// `tiercel`: the command line. Parses, wires together, prints; everything else lives in the modules.
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bench_command.h"
#include "command.h"
#include "disk_command.h"
#include "doctor_command.h"
#include "inspect_command.h"
#include "llama_command.h"
#include "remote/open_store.h"
#include "replay_command.h"

namespace tiercel::apps {
namespace {

constexpr const char* kOutOfMemory =
    "out of memory: this takes more than the system gives; use a smaller trace, model or --page-bytes, or "
    "raise "
    "the limit (ulimit -v, the container's)";

int run_command(const Command& command) {
  try {
    return command.run();
  } catch (const std::bad_alloc&) {
    return fail(command.app->get_name(), kOutOfMemory);
  } catch (const std::length_error&) {  // a container asked for more than there can be
    return fail(command.app->get_name(), kOutOfMemory);
  }
}

// The parser repeats words that it does not understand: an address among them may have a password.
std::string without_passwords(std::string text, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.find("://") == std::string_view::npos) continue;
    const std::string shown = printable_address(word);
    for (std::size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += shown.size())
      text.replace(at, word.size(), shown);
  }
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("Tiercel: a hierarchical KV cache for LLM serving", "tiercel");
  app.require_subcommand(1);
  app.set_version_flag("--version", TIERCEL_VERSION);
  const Command commands[] = {
      inspect_command(app), replay_command(app), llama_command(app),
      disk_command(app),    bench_command(app),  doctor_command(app),
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {  // --help, --version
    const bool version = request.get_name() == "CallForVersion";
    return print("", version ? std::string(request.what()) + "\n" : app.help());
  } catch (const CLI::ParseError& refusal) {
    const std::string why = without_passwords(refusal.what(), argc, argv);
    for (const Command& command : commands)
      if (command.app->parsed()) return fail(command.app->get_name(), why, kExitUsage);
    return fail("", fmt::format("{} (tiercel --help shows the commands)", why), kExitUsage);
  }
  for (const Command& command : commands)
    if (command.app->parsed()) return run_command(command);
  return kExitUsage;
}

}  // namespace
}  // namespace tiercel::apps

int main(int argc, char** argv) {
  try {
    return tiercel::apps::run(argc, argv);
  } catch (const std::exception& unexpected) {  // a mistake of a library: still one line
    return tiercel::apps::fail("", unexpected.what());
  }
}
