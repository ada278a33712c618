#include "doctor_command.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "os/machine.h"
#include "os/machine_report.h"
#include "remote_check.h"

namespace tiercel::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kExamples = R"(Examples:
  tiercel doctor
  tiercel doctor --path FOLDER-OF-THE-DISK-TIER
  tiercel doctor --remote mooncake://10.0.0.1:50051
  tiercel doctor --json | jq '.checks | map_values(.state)'
Run it as the user, and in the container, that the cache will run as. It leaves nothing behind.
Exit status: 0 when everything that Tiercel needs is there (what is lacking beside it is advice); 1 when something
needed is missing: the report is printed, and one line on stderr names it; 2 when the command line made no sense,
or --path is no folder. A store that --remote names is needed; in it one object is put and removed. docs/guide/doctor.md says what each line means.)";

struct DoctorArguments {
  std::string path = ".", remote;
  bool json = false;
};

Json value_json(const CheckValue& value) {
  return std::visit(
      [](const auto& is) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(is)>, std::monostate>)
          return nullptr;
        else
          return is;
      },
      value);
}

// A path or a model's name may hold any bytes: what is not UTF-8 is replaced.
std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string report_json(const Machine& machine, const std::vector<Check>& checks) {
  Json json = {{"ready", is_ready(checks)},
               {"kernel", machine.kernel},
               {"architecture", machine.architecture},
               {"processor", machine.processor},
               {"processors", machine.processors},
               {"user", machine.user},
               {"checks", Json::object()}};
  for (const Check& check : checks) {
    Json& entry = json["checks"][std::string(check.name)];
    entry = {{"state", check_state_name(check.state)},
             {"text", check.text},
             {"remedy", check.remedy.empty() ? Json(nullptr) : Json(check.remedy)}};
    for (const auto& [name, value] : check.values) entry[std::string(name)] = value_json(value);
  }
  return json_text(json);
}

std::string_view colour_of(CheckState state) {
  switch (state) {
    case CheckState::kOk:
      return "\x1b[32m";
    case CheckState::kNote:
      return "\x1b[2m";
    case CheckState::kLack:
      return "\x1b[33m";
    case CheckState::kMissing:
      return "\x1b[1;31m";
  }
  return "";
}

std::string summary(const std::vector<Check>& checks) {
  const auto lacks = std::ranges::count(checks, CheckState::kLack, &Check::state);
  const std::string_view slower = "it works without, slower or with less";
  const bool here = std::ranges::none_of(checks, [](const Check& check) {
    return check.state == CheckState::kMissing && check.name != "remote";
  });
  if (!here) return "Tiercel cannot run here: see what is missing.\n";
  if (!is_ready(checks))
    return "Tiercel can run here, but not with this remote store: see what is missing.\n";
  if (lacks == 0) return "Everything is here.\n";
  return fmt::format("Everything that Tiercel needs is here. {} of {} lacking: {}.\n", lacks, checks.size(),
                     slower);
}

std::string report_text(const Machine& machine, const std::vector<Check>& checks, bool colour) {
  constexpr std::size_t kLongest = 2000;
  const std::string_view plain = colour ? "\x1b[0m" : "";
  std::size_t width = 0;
  for (const Check& check : checks) width = std::max(width, check.name.size());
  std::string out = fmt::format(
      "Linux {}, {}, {} processor{}{}, user {}\n", printable(machine.kernel), printable(machine.architecture),
      machine.processors, machine.processors == 1 ? "" : "s",
      machine.processor.empty() ? "" : fmt::format(" ({})", printable(machine.processor)), machine.user);
  for (const Check& check : checks) {
    out +=
        fmt::format("  {}{:<7}{}  {:<{}}  {}\n", colour ? colour_of(check.state) : "",
                    check_state_name(check.state), plain, check.name, width, printable(check.text, kLongest));
    if (!check.remedy.empty())
      out += fmt::format("  {:7}  {:{}}  -> {}\n", "", "", width, printable(check.remedy, kLongest));
  }
  return out + summary(checks);
}

int run_doctor(const DoctorArguments& arguments) {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is then an error, which is what is asked for
  const LinuxMachineCalls calls;
  const LinuxMappingCalls mappings;
  std::error_code failure;
  const std::filesystem::path folder = std::filesystem::canonical(arguments.path, failure);
  const Machine machine = look_at_machine({{}, calls, mappings}, failure ? arguments.path : folder.string());
  std::vector<Check> checks = check_machine(machine);
  if (!arguments.remote.empty()) {
    auto remote = check_remote(arguments.remote);
    if (!remote) return fail("doctor", remote.error());
    checks.push_back(*std::move(remote));
  }
  const std::string text =
      arguments.json ? report_json(machine, checks) : report_text(machine, checks, stdout_wants_colour());
  if (const int status = print("doctor", text); status != kExitOk) return status;
  for (const Check& check : checks)
    if (check.state == CheckState::kMissing)
      return fail("doctor", fmt::format("{}: {}; {}", check.name, check.text, check.remedy));
  return kExitOk;
}

}  // namespace

Command doctor_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* app =
      parent.add_subcommand("doctor", "Tell what this machine can do, and how to mend what it cannot");
  app->add_option("--path", arguments->path,
                  "the folder in which O_DIRECT is tried (default: the current one)")
      ->type_name("FOLDER")
      ->check(CLI::ExistingDirectory);
  app->add_option("--remote", arguments->remote,
                  "a remote store that is tried: mooncake://HOST:PORT, valkey://HOST:PORT, posix:FOLDER")
      ->type_name("URL");
  app->add_flag("--json", arguments->json, "one JSON object instead of a table");
  app->footer(kExamples);
  return {app, [arguments] { return run_doctor(*arguments); }};
}

}  // namespace tiercel::apps
