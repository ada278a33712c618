#include "disk_command.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
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
  tiercel disk ls FOLDER          (of tiercel llama --cache FOLDER: FOLDER/cache.tiercel)
  tiercel disk status /var/cache/tiercel
  tiercel disk drop /var/cache/tiercel --namespace revision-7
check, ls and status change no byte, nor does a drop that is refused; they wait for nobody, so a cache that is open is
refused, by its process's number. One superblock of two that is not whole is no damage: a power failure leaves that.
Exit status: 0; 3 when check found damage (the report is printed); 1 when the file could not be read or holds no
cache; 2 when the command line made no sense, or named no namespace. docs/guide/disk.md says what the reports mean.)";

struct DiskArguments {
  std::string path, wanted;
  bool json = false, quick = false;
};

// A folder means the cache in it, by the name that the adapter of llama.cpp gives it.
std::string log_file(std::string path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored)
             ? (std::filesystem::path(path) / "cache.tiercel").string()
             : std::move(path);
}

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

// What failed names the path, once. Errors of the log begin with the word "disk".
int fail_at(const std::string& path, const Status& status, int exit_status = kExitFailed, int ways = R_OK) {
  std::string_view why = status.message;
  constexpr std::string_view kSubject = "disk: ";
  if (why.starts_with(kSubject)) why.remove_prefix(kSubject.size());
  const std::string file = fmt::format("disk file {}: ", path);
  if (why.starts_with(file)) why.remove_prefix(file.size());
  const std::string denied =
      ::access(path.c_str(), F_OK) == 0 || errno == EACCES ? access_problem(path, ways) : "";
  if (!denied.empty()) return fail("disk", denied + "; run this as its owner", exit_status);
  return fail("disk", fmt::format("{}: {}", path, why), exit_status);
}

// Opens what is there to look at it.
Result<std::unique_ptr<DiskLog>> look(const std::string& path, Opened& opened) {
  if (Status status = open_drive(path, true, opened); !status.ok()) return tl::unexpected(std::move(status));
  return open_log(opened, true);
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
  return part.there ? "in order" : "none yet";
}

// They are written in turn, so a power failure may leave one of them torn.
std::string superblock_text(const DiskCheckReport& report, std::size_t slot) {
  const DiskCheckReport::Part& part = report.superblocks[slot];
  const DiskCheckReport::Part& other = report.superblocks[1 - slot];
  if (part.damage.empty() || !other.damage.empty()) return part_text(part);
  return fmt::format("not whole ({}); the other one holds", part.damage);
}

std::string sources_text(const DiskCheckReport& report) {
  return fmt::format(
      "an opening reads {} in the image, {} in newer footers, {} at the end of the log; a class-set "
      "may stand in several, or be gone since",
      report.from_image, report.from_footers, report.from_tail);
}

std::string verified_text(const DiskCheckReport& report) {
  if (!report.records_read) return "nothing: no record was read (--quick)";
  return fmt::format("{} class-sets, {}{}; {} damaged, of which {} would be found", report.verified,
                     format_size(report.verified_bytes),
                     report.headers_only == 0
                         ? std::string()
                         : fmt::format(" ({} by their headers alone)", report.headers_only),
                     report.damaged, report.damaged_found);
}

std::string_view verdict_text(const DiskCheckReport& report) {
  if (!report.in_order())
    return "DAMAGED: what is named above is a miss when a cache asks for it; the rest is good\n";
  return report.records_read ? "in order\n" : "in order as far as it was read: no record was (--quick)\n";
}

struct SpaceRow {
  std::uint32_t id = 0;
  const DiskSpaceName* name = nullptr;
  std::uint64_t class_sets = 0, bytes = 0;
};

std::size_t alike(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// How much of each text is shown: its first 200 bytes, and where another one begins like it, to the end of
// the line in which they differ.
std::map<std::string_view, std::size_t> shown_lengths(const std::vector<SpaceRow>& rows) {
  constexpr std::size_t kShortest = 200;
  std::map<std::string_view, std::size_t> lengths;
  for (const SpaceRow& row : rows) lengths[row.name->text] = 0;
  const std::string_view* before = nullptr;
  std::size_t* length_before = nullptr;
  for (auto& [text, length] : lengths) {  // most alike are neighbours
    const std::size_t same = before == nullptr ? 0 : alike(*before, text);
    length = same;
    if (length_before != nullptr) *length_before = std::max(*length_before, same);
    before = &text;
    length_before = &length;
  }
  for (auto& [text, length] : lengths)
    length = length < kShortest ? kShortest : std::min(text.find('\n', length), text.size());
  return lengths;
}

std::string spaces_text(const std::vector<SpaceRow>& rows) {
  std::string text = fmt::format("{:>6} {:>12} {:>12}  {}\n", "number", "class-sets", "bytes", "namespace");
  const auto lengths = shown_lengths(rows);
  for (const SpaceRow& row : rows) {
    const std::string& whole = row.name->text;
    const std::size_t length = lengths.at(whole);
    std::string name = whole.empty() ? "(its name is lost)" : whole.substr(0, length);
    std::replace(name.begin(), name.end(), '\n', ' ');
    text += fmt::format("{:>6} {:>12} {:>12}  {}{}\n", row.id, row.class_sets, format_size(row.bytes), name,
                        length < whole.size() ? "…" : "");
  }
  return text;
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
      fmt::format("1: {}. 2: {}", superblock_text(report, 0), superblock_text(report, 1)));
  row(text, "images",
      fmt::format("1: {}. 2: {}{}", part_text(report.images[0]), part_text(report.images[1]),
                  report.image ? fmt::format("; number {} is read", *report.image + 1) : std::string()));
  row(text, "class-sets", fmt::format("{}, {}", report.class_sets, format_size(report.bytes)));
  row(text, "", sources_text(report));
  row(text, "removals", fmt::format("{}", report.removals));
  row(text, "verified", verified_text(report));
  std::vector<SpaceRow> rows;
  rows.reserve(report.spaces.size());
  for (const DiskCheckReport::Space& space : report.spaces)
    rows.push_back({space.id.value(), &space.name, space.class_sets, space.bytes});
  text += "\n" + spaces_text(rows);
  for (const std::string& note : report.notes) text += fmt::format("note: {}\n", note);
  for (const DiskDamage& damage : report.damages)
    text += fmt::format("damaged{}: at {}, namespace {}, class {}: {}\n",
                        damage.found ? "" : " (and not found any more)", damage.offset,
                        damage.name.space.value(), damage.name.cls.value(), damage.why);
  text += verdict_text(report);
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
  json["records_read"] = report.records_read;
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

int run_check(const DiskArguments& arguments) {
  std::optional<InterruptLine> interruptible("disk");
  Opened opened;
  if (const Status status = open_drive(arguments.path, true, opened); !status.ok())
    return fail_at(arguments.path, status);
  DiskCheckOptions options;
  options.verify_records = !arguments.quick;
  Bar bar("reading regions", !arguments.json);
  options.progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); };
  const auto report = check_disk(*opened.drive, opened.clock, options);
  bar.clear();
  interruptible.reset();
  if (!report) return fail_at(arguments.path, report.error());
  const int printed =
      print("disk", arguments.json ? check_json(*report) : check_text(*report, arguments.path));
  if (printed != kExitOk) return printed;
  return report->in_order() ? kExitOk : kExitDamaged;
}

// ---- ls, status, drop ----

int run_ls(const DiskArguments& arguments) {
  Opened opened;
  const auto log = look(arguments.path, opened);
  if (!log) return fail_at(arguments.path, log.error());
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  const std::vector<DiskLog::SpaceView> spaces = (*log)->spaces();
  std::vector<SpaceRow> rows;
  rows.reserve(spaces.size());
  for (const DiskLog::SpaceView& space : spaces) {
    rows.push_back({space.id.value(), &space.name, space.class_sets, space.bytes});
    json.push_back({{"number", space.id.value()},
                    {"class_sets", space.class_sets},
                    {"bytes", space.bytes},
                    {"text", space.name.text}});
  }
  return print("disk", arguments.json ? json_text(json) : spaces_text(rows));
}

int run_status(const DiskArguments& arguments) {
  Opened opened;
  const auto log = look(arguments.path, opened);
  if (!log) return fail_at(arguments.path, log.error());
  const DiskStats& stats = (*log)->stats();
  if (!arguments.json) return print("disk", disk_file_text(stats));
  nlohmann::ordered_json json;
  json["size_bytes"] = stats.size_bytes;
  json["region_bytes"] = stats.region_bytes;
  json["regions"] = stats.regions;
  json["regions_free"] = stats.regions_free;
  json["class_sets"] = stats.class_sets;
  json["live_bytes"] = stats.live_bytes;
  json["index_entries"] = stats.index_entries;
  json["removals"] = stats.removals;
  json["host_bytes"] = stats.host_bytes;
  json["recovered_from_image"] = stats.recovered_from_image;
  json["recovered_from_footers"] = stats.recovered_from_footers;
  json["recovered_from_tail"] = stats.recovered_from_tail;
  json["recovery_read_bytes"] = stats.recovery_read_bytes;
  json["images_damaged"] = stats.images_damaged;
  json["tail_segments_refused"] = stats.tail_segments_refused;
  return print("disk", json_text(json));
}

// The one namespace that is meant: digits alone are its number; anything else is a part of its text.
Result<DiskLog::SpaceView> find_space(const std::vector<DiskLog::SpaceView>& spaces,
                                      const std::string& wanted) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool is_number = std::all_of(wanted.begin(), wanted.end(), is_digit);
  std::optional<std::uint64_t> number;
  if (std::uint64_t value = 0;
      std::from_chars(wanted.data(), wanted.data() + wanted.size(), value).ec == std::errc())
    number = value;
  std::vector<DiskLog::SpaceView> found;
  for (const DiskLog::SpaceView& space : spaces)
    if (is_number ? number == space.id.value() : space.name.text.find(wanted) != std::string::npos)
      found.push_back(space);
  if (found.size() == 1) return found.front();
  const std::string_view see = "tiercel disk ls shows them";
  if (!found.empty())
    return error(
        Code::kInvalidArgument,
        fmt::format("--namespace: \"{}\" is in the texts of {} of them; give more of it, or a number: {}",
                    wanted, found.size(), see));
  return error(Code::kNotFound,
               is_number ? fmt::format("--namespace: none has the number {}; {}", wanted, see)
                         : fmt::format("--namespace: none has \"{}\" in its text; {}", wanted, see));
}

Status clear_space(const std::string& path, const DiskLog::SpaceView& space) {
  Opened opened;
  if (Status status = open_drive(path, false, opened); !status.ok()) return status;
  const auto log = open_log(opened, false);
  if (!log) return log.error();
  const std::vector<DiskLog::SpaceView> spaces = (*log)->spaces();
  const bool is_there = std::any_of(spaces.begin(), spaces.end(), [&](const DiskLog::SpaceView& there) {
    return there.id == space.id && there.name.text == space.name.text;
  });
  // Somebody may have had it between the look and now.
  Status status{Code::kUnavailable, "its namespaces have changed meanwhile; nothing was dropped: try again"};
  if (is_there) {
    const std::optional<std::uint64_t> at = (*log)->clear(space.id);
    status = at ? (*log)->settle(*at, std::chrono::seconds(30))
                : Status{Code::kUnavailable, "it takes no writes; nothing was dropped"};
  }
  const Status closed = (*log)->close(std::chrono::seconds(60));
  return status.ok() ? closed : status;
}

// Looks before it opens for writing: what holds no cache, or not that namespace, is left as it is.
int run_drop(const DiskArguments& arguments) {
  if (arguments.wanted.empty())
    return fail("disk", "--namespace: wanted a number, or a part of a namespace's text; got nothing",
                kExitUsage);
  std::vector<DiskLog::SpaceView> spaces;
  {
    Opened opened;
    const auto log = look(arguments.path, opened);
    if (!log) return fail_at(arguments.path, log.error());
    spaces = (*log)->spaces();
  }
  const auto space = find_space(spaces, arguments.wanted);
  if (!space) return fail_at(arguments.path, space.error(), kExitUsage);
  if (const Status status = clear_space(arguments.path, *space); !status.ok())
    return fail_at(arguments.path, status, kExitFailed, R_OK | W_OK);
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
    command
        ->add_option(
            "PATH", arguments->path,
            "the file or block device that a cache was opened with, or the folder of `tiercel llama`")
        ->required();
    command->add_flag("--json", arguments->json, "JSON on one line instead of text");
    command->footer(kExamples);
    runs->emplace_back(command, run);
    return command;
  };
  add("check", "Verify everything, record by record, and say what an opening would find", run_check)
      ->add_flag("--quick", arguments->quick,
                 "without reading records: index and footers, and the end of the log");
  add("ls", "List its namespaces", run_ls);
  add("status", "How full it is, and where its class-sets were found", run_status);
  add("drop", "Clear one namespace, so that its pages are never found again", run_drop)
      ->add_option("--namespace", arguments->wanted,
                   "digits: its number; else a part of its text that no other has")
      ->type_name("TEXT|NUMBER")
      ->required();
  return {app, [arguments, runs] {
            arguments->path = log_file(std::move(arguments->path));
            for (const auto& [command, run] : *runs)
              if (command->parsed()) return run(*arguments);
            return kExitUsage;
          }};
}

}  // namespace tiercel::apps
