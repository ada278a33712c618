#include "disk_command.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/sizes.h"
#include "disk/check.h"
#include "disk/disk_log.h"
#include "node/status_text.h"
#include "os/block_open.h"

namespace tiercel::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tiercel disk check /var/cache/tiercel
  tiercel disk check --quick --json /var/cache/tiercel
  tiercel disk ls /var/cache/tiercel
  tiercel disk status /var/cache/tiercel
  tiercel disk drop /var/cache/tiercel --namespace revision-7
check, ls and status change no byte; they wait for nobody, so a cache that is open is refused, by its process's number.
Exit status: 0; 3 when check found damage (the report is printed); 1 when the file could not be read or holds no
cache; 2 when the command line made no sense. docs/guide/disk.md says what the reports mean.)";

struct DiskArguments {
  std::string path, wanted;
  bool json = false, quick = false;
};

struct Opened {
  std::unique_ptr<BlockDevice> drive;
  SteadyClock clock;
};

Status open_drive(const std::string& path, bool read_only, Opened& opened) {
  BlockDeviceOptions options;
  options.file.path = path;
  options.file.read_only = read_only;
  auto drive = open_block_device(options);
  if (!drive) return drive.error();
  opened.drive = std::move(drive->device);
  return {};
}

Result<std::unique_ptr<DiskLog>> open_log(Opened& opened, bool read_only) {
  DiskLogOptions options;
  options.read_only = read_only;
  return DiskLog::open(options, *opened.drive, opened.clock, Digest{});
}

std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void row(std::string& text, std::string_view name, const std::string& value) {
  text += fmt::format("{:<13}{}\n", name, value);
}

// ---- check ----

std::string part_text(const DiskCheckReport::Part& part) {
  if (!part.damage.empty()) return "DAMAGED: " + part.damage;
  return part.there ? "in order" : "none";
}

std::string space_line(std::uint32_t id, const DiskSpaceName& name, std::uint64_t class_sets,
                       std::uint64_t bytes) {
  std::string text = name.text.empty() ? std::string("(its name is lost)") : name.text;
  for (char& c : text)
    if (c == '\n') c = ' ';
  constexpr std::size_t kLongest = 200;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return fmt::format("{:>6} {:>12} {:>12}  {}\n", id, class_sets, format_size(bytes), text);
}

std::string check_text(const DiskCheckReport& report, const std::string& path) {
  std::string text;
  const DiskGeometry& geometry = report.geometry;
  row(text, "cache",
      fmt::format("{}: {} in {} regions of {}, {} used; {}", path, format_size(geometry.size_bytes),
                  geometry.regions, format_size(geometry.region_bytes), report.regions_used, report.uuid));
  row(text, "opened",
      fmt::format("{} times for writing, {}", report.epoch,
                  report.closed ? "closed in order the last time" : "not closed the last time"));
  row(text, "superblocks",
      fmt::format("{}; {}", part_text(report.superblocks[0]), part_text(report.superblocks[1])));
  row(text, "images",
      fmt::format("{}; {}{}", part_text(report.images[0]), part_text(report.images[1]),
                  report.image ? fmt::format("; number {} is read", *report.image + 1) : std::string()));
  row(text, "class-sets",
      fmt::format("{}, {}: {} from the image, {} from footers, {} from the end of the log", report.class_sets,
                  format_size(report.bytes), report.from_image, report.from_footers, report.from_tail));
  row(text, "removals", fmt::format("{}", report.removals));
  row(text, "verified",
      fmt::format("{} class-sets, {}{}; {} damaged, of which {} would be found", report.verified,
                  format_size(report.verified_bytes),
                  report.headers_only == 0 ? std::string()
                                           : fmt::format(" ({} by their headers alone)", report.headers_only),
                  report.damaged, report.damaged_found));
  text += fmt::format("\n{:>6} {:>12} {:>12}  {}\n", "number", "class-sets", "bytes", "namespace");
  for (const DiskCheckReport::Space& space : report.spaces)
    text += space_line(space.id.value(), space.name, space.class_sets, space.bytes);
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  for (const DiskDamage& damage : report.damages)
    text += fmt::format("damaged{}: at {}, namespace {}, class {}: {}\n",
                        damage.found ? "" : " (and not found any more)", damage.offset,
                        damage.name.space.value(), damage.name.cls.value(), damage.why);
  text += report.in_order()
              ? "in order\n"
              : "DAMAGED: what is named above is a miss when a cache asks for it; the rest is good\n";
  return text;
}

std::string check_json(const DiskCheckReport& report) {
  nlohmann::ordered_json json;
  json["in_order"] = report.in_order();
  json["uuid"] = report.uuid;
  json["size_bytes"] = report.geometry.size_bytes;
  json["region_bytes"] = report.geometry.region_bytes;
  json["regions"] = report.geometry.regions;
  json["regions_used"] = report.regions_used;
  json["opened"] = report.epoch;
  json["closed"] = report.closed;
  const auto parts = [](const auto& both) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const DiskCheckReport::Part& part : both)
      list.push_back({{"there", part.there}, {"damage", part.damage}});
    return list;
  };
  json["superblocks"] = parts(report.superblocks);
  json["images"] = parts(report.images);
  json["class_sets"] = report.class_sets;
  json["bytes"] = report.bytes;
  json["from_image"] = report.from_image;
  json["from_footers"] = report.from_footers;
  json["from_tail"] = report.from_tail;
  json["removals"] = report.removals;
  json["verified"] = report.verified;
  json["verified_bytes"] = report.verified_bytes;
  json["headers_only"] = report.headers_only;
  json["damaged"] = report.damaged;
  json["damaged_found"] = report.damaged_found;
  json["notes"] = report.notes;
  json["namespaces"] = nlohmann::ordered_json::array();
  for (const DiskCheckReport::Space& space : report.spaces)
    json["namespaces"].push_back({{"number", space.id.value()},
                                  {"class_sets", space.class_sets},
                                  {"bytes", space.bytes},
                                  {"text", space.name.text}});
  json["damages"] = nlohmann::ordered_json::array();
  for (const DiskDamage& damage : report.damages)
    json["damages"].push_back({{"offset", damage.offset},
                               {"namespace", damage.name.space.value()},
                               {"class", damage.name.cls.value()},
                               {"found", damage.found},
                               {"why", damage.why}});
  return json_text(json);
}

// A bar on a terminal, nothing elsewhere; at most ten times a second.
std::function<void(std::uint64_t, std::uint64_t)> progress_bar() {
  if (isatty(STDERR_FILENO) != 1) return {};
  auto last = std::make_shared<std::chrono::steady_clock::time_point>();
  return [last](std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (total == 0 || (done != total && now - *last < std::chrono::milliseconds(100))) return;
    *last = now;
    constexpr std::uint64_t kWidth = 40;
    const auto filled = static_cast<std::size_t>(kWidth * done / total);
    const std::string line = fmt::format("\r[{:#<{}}{:.<{}}] {:>3} %  {} of {} regions ", "", filled, "",
                                         kWidth - filled, 100 * done / total, done, total);
    std::fwrite(line.data(), 1, line.size(), stderr);
    if (done == total) std::fputs("\r\033[K", stderr);
  };
}

int run_check(const DiskArguments& arguments) {
  std::optional<InterruptLine> interruptible("disk");
  Opened opened;
  if (const Status status = open_drive(arguments.path, true, opened); !status.ok())
    return fail("disk", status.message);
  DiskCheckOptions options;
  options.verify_records = !arguments.quick;
  if (!arguments.json) options.progress = progress_bar();
  const auto report = check_disk(*opened.drive, opened.clock, options);
  interruptible.reset();
  if (!report) return fail("disk", report.error().message);
  const int printed =
      print("disk", arguments.json ? check_json(*report) : check_text(*report, arguments.path));
  if (printed != kExitOk) return printed;
  return report->in_order() ? kExitOk : kExitDamaged;
}

// ---- ls, status, drop ----

int run_ls(const DiskArguments& arguments) {
  Opened opened;
  if (const Status status = open_drive(arguments.path, true, opened); !status.ok())
    return fail("disk", status.message);
  const auto log = open_log(opened, true);
  if (!log) return fail("disk", log.error().message);
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  std::string text = fmt::format("{:>6} {:>12} {:>12}  {}\n", "number", "class-sets", "bytes", "namespace");
  for (const DiskLog::SpaceView& space : (*log)->spaces()) {
    text += space_line(space.id.value(), space.name, space.class_sets, space.bytes);
    json.push_back({{"number", space.id.value()},
                    {"class_sets", space.class_sets},
                    {"bytes", space.bytes},
                    {"text", space.name.text}});
  }
  return print("disk", arguments.json ? json_text(json) : text);
}

int run_status(const DiskArguments& arguments) {
  Opened opened;
  if (const Status status = open_drive(arguments.path, true, opened); !status.ok())
    return fail("disk", status.message);
  const auto log = open_log(opened, true);
  if (!log) return fail("disk", log.error().message);
  const DiskStats& stats = (*log)->stats();
  if (!arguments.json) return print("disk", disk_status_text(stats));
  nlohmann::ordered_json json;
  json["size_bytes"] = stats.size_bytes;
  json["region_bytes"] = stats.region_bytes;
  json["regions"] = stats.regions;
  json["regions_free"] = stats.regions_free;
  json["class_sets"] = stats.class_sets;
  json["live_bytes"] = stats.live_bytes;
  json["index_entries"] = stats.index_entries;
  json["removals"] = stats.removals;
  json["recovered_from_image"] = stats.recovered_from_image;
  json["recovered_from_footers"] = stats.recovered_from_footers;
  json["recovered_from_tail"] = stats.recovered_from_tail;
  json["recovery_read_bytes"] = stats.recovery_read_bytes;
  return print("disk", json_text(json));
}

// The one namespace that is meant: by its number, or by a part of its text.
Result<DiskLog::SpaceView> find_space(const DiskLog& log, const std::string& wanted) {
  std::vector<DiskLog::SpaceView> found;
  for (const DiskLog::SpaceView& space : log.spaces()) {
    if (fmt::format("{}", space.id.value()) == wanted) return space;
    if (space.name.text.find(wanted) != std::string::npos) found.push_back(space);
  }
  if (found.size() == 1) return found.front();
  if (found.empty())
    return error(
        Code::kNotFound,
        fmt::format("--namespace: none has the number \"{0}\" or \"{0}\" in its text; tiercel disk ls "
                    "shows them",
                    wanted));
  return error(
      Code::kInvalidArgument,
      fmt::format("--namespace: \"{}\" is in the texts of {} of them; give a number, as tiercel disk "
                  "ls shows",
                  wanted, found.size()));
}

int run_drop(const DiskArguments& arguments) {
  Opened opened;
  if (const Status status = open_drive(arguments.path, false, opened); !status.ok())
    return fail("disk", status.message);
  auto log = open_log(opened, false);
  if (!log) return fail("disk", log.error().message);
  const auto space = find_space(**log, arguments.wanted);
  if (!space) {
    const Status closed = (*log)->close(std::chrono::seconds(30));
    static_cast<void>(closed.ok());  // nothing was changed
    return fail("disk", space.error().message, kExitUsage);
  }
  const std::optional<std::uint64_t> at = (*log)->clear(space->id);
  Status status = at ? (*log)->settle(*at, std::chrono::seconds(30))
                     : Status{Code::kUnavailable, "the drive does not take it"};
  if (status.ok()) status = (*log)->close(std::chrono::seconds(60));
  if (!status.ok()) return fail("disk", fmt::format("{}: {}", arguments.path, status.message));
  if (arguments.json)
    return print("disk", json_text({{"number", space->id.value()},
                                    {"class_sets", space->class_sets},
                                    {"bytes", space->bytes}}));
  return print("disk", fmt::format("dropped: namespace {}, {} class-sets, {}\n", space->id.value(),
                                   space->class_sets, format_size(space->bytes)));
}

}  // namespace

Command disk_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto arguments = std::make_shared<DiskArguments>();
  CLI::App* app =
      parent.add_subcommand("disk", "Look into the disk tier of a cache, verify it, drop a namespace");
  app->require_subcommand(1);
  app->footer(kExamples);
  using Run = int (*)(const DiskArguments&);
  auto runs = std::make_shared<std::vector<std::pair<CLI::App*, Run>>>();
  const auto add = [&](const char* name, const char* what, Run run) {
    CLI::App* command = app->add_subcommand(name, what);
    command->add_option("PATH", arguments->path, "the file or block device that a cache was opened with")
        ->required();
    command->add_flag("--json", arguments->json, "JSON on one line instead of text");
    command->footer(kExamples);
    runs->emplace_back(command, run);
    return command;
  };
  add("check", "Verify everything, record by record, and say what an opening would find", run_check)
      ->add_flag("--quick", arguments->quick,
                 "without reading records: index, footers and the end of the log");
  add("ls", "List its namespaces", run_ls);
  add("status", "How full it is, and how it was found", run_status);
  add("drop", "Clear one namespace, so that its pages are never found again", run_drop)
      ->add_option("--namespace", arguments->wanted, "its number, or a part of its text that no other has")
      ->type_name("TEXT|NUMBER")
      ->required();
  return {app, [arguments, runs] {
            for (const auto& [command, run] : *runs)
              if (command->parsed()) return run(*arguments);
            return kExitUsage;
          }};
}

}  // namespace tiercel::apps
