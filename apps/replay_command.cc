#include "replay_command.h"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/sizes.h"
#include "model_arguments.h"
#include "remote/open_store.h"
#include "trace/generator.h"
#include "trace/replay.h"
#include "trace/report.h"
#include "trace/trace.h"

namespace tiercel::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tiercel replay
  tiercel replay --trace trace.jsonl --config config.json --snapshots branch --host-bytes 200GiB
  tiercel replay --generate synthetic:2000:7 --policy s3fifo --capacity-pages 5000 --bound --json
  tiercel replay --host-bytes 8GiB --disk cache.tiercel --disk-bytes 4GiB --restart-at 6000 --status
  tiercel replay --capacity-pages 5000 --remote mooncake://127.0.0.1:50051?global_segment_size=4GiB --restart-at 6000
With --disk the disk tier is real: --disk-bytes counts bytes on the drive, and of each record only its header and
--page-bytes are written: docs/guide/disk.md says for how large a drive a file stands. What earlier replays left there is
cleared first and never hit; to compare two replays give each a new file. At the end the cache is closed, as in a service.
With --remote the store is real, too, and cleared first, unless --remote-warm says that another replay is to go on from it.
Exit status: 0; 1 when a file was refused, a page came back wrong or the sums do not add up; 2 when the command
line made no sense. docs/guide/replay.md says what each number means.)";

struct ReplayArguments {
  std::optional<std::string> trace, generate, config, spec, policy, snapshots;
  std::optional<std::string> capacity_pages, host_bytes, snapshot_every, snapshot_budget, page_bytes;
  std::optional<std::string> disk, disk_bytes, disk_admission, disk_writes, restart_at, remote;
  bool remote_warm = false, bound = false, skip_bad = false, json = false, status = false;
  ModelArguments model;
};

using Checked = std::optional<Refusal>;

Checked usage(std::string message) { return Refusal{kExitUsage, std::move(message)}; }

Checked take_count(const char* option, const std::optional<std::string>& text,
                   std::optional<std::uint64_t>& value) {
  if (!text) return std::nullopt;
  const auto parsed = parse_count(option, *text);
  if (!parsed) return usage(parsed.error().message);
  value = *parsed;
  return std::nullopt;
}

Checked take_size(const char* option, const std::optional<std::string>& text,
                  std::optional<std::uint64_t>& value) {
  if (!text) return std::nullopt;
  const auto parsed = parse_size(*text);
  if (!parsed) return usage(fmt::format("{}: {}", option, parsed.error().message));
  value = *parsed;
  return std::nullopt;
}

// The value that has this name.
template <typename Value>
std::optional<Value> one_of(std::string_view name, std::string_view (*name_of)(Value),
                            std::initializer_list<Value> values) {
  for (const Value value : values)
    if (name_of(value) == name) return value;
  return std::nullopt;
}

Checked take_names(const ReplayArguments& arguments, ReplayOptions& options) {
  if (arguments.policy) {
    const auto policy = policy_from_name(*arguments.policy);
    if (!policy)
      return usage(
          fmt::format("--policy: wanted lru, s3fifo, tinylfu or value, is \"{}\"", *arguments.policy));
    options.policy = *policy;
  }
  if (arguments.snapshots) {
    options.snapshots = snapshot_rule_from_name(*arguments.snapshots);
    if (!options.snapshots)
      return usage(
          fmt::format("--snapshots: wanted end, branch, all or advice, is \"{}\"", *arguments.snapshots));
  }
  return std::nullopt;
}

Checked take_model(const ReplayArguments& arguments, ReplayOptions& options) {
  if (arguments.config && arguments.spec)
    return usage("--config and --spec are both given; a replay has one model");
  if (!arguments.config && !arguments.spec) {
    if (arguments.model.dtype || arguments.model.tp || arguments.model.state_dtype)
      return usage("--dtype, --tp and --state-dtype describe a model; they need --config");
    options.spec = one_full_group();
    return std::nullopt;
  }
  ModelArguments model = arguments.model;
  model.page_tokens = fmt::format("{}", kTraceBlockTokens);
  auto spec = load_model(arguments.config ? *arguments.config : *arguments.spec, model);
  if (!spec) return std::move(spec.error());
  options.spec = std::move(*spec);
  return std::nullopt;
}

Checked take_disk(const ReplayArguments& arguments, ReplayOptions& options) {
  if (!arguments.disk) {
    if (arguments.disk_bytes || arguments.disk_admission || arguments.disk_writes)
      return usage("--disk-bytes, --disk-admission and --disk-writes need --disk PATH");
    return std::nullopt;
  }
  ReplayDiskOptions& disk = options.disk.emplace();
  disk.path = *arguments.disk;
  std::optional<std::uint64_t> bytes;
  if (auto refusal = take_size("--disk-bytes", arguments.disk_bytes, bytes)) return refusal;
  disk.bytes = bytes.value_or(0);
  if (arguments.disk_admission) {
    const auto admission = one_of(*arguments.disk_admission, disk_admission_name,
                                  {DiskAdmission::kAuto, DiskAdmission::kAll, DiskAdmission::kSecondTouch});
    if (!admission)
      return usage(fmt::format("--disk-admission: wanted auto, all or second_touch, is \"{}\"",
                               *arguments.disk_admission));
    disk.admission = *admission;
  }
  if (arguments.disk_writes) {
    const auto policy =
        one_of(*arguments.disk_writes, write_policy_name,
               {WritePolicy::kWriteThrough, WritePolicy::kWriteThroughSelective, WritePolicy::kWriteBack});
    if (!policy)
      return usage(
          fmt::format("--disk-writes: wanted write_through, write_through_selective or write_back, is \"{}\"",
                      *arguments.disk_writes));
    disk.write_policy = *policy;
  }
  return std::nullopt;
}

Checked take_remote(const ReplayArguments& arguments, ReplayOptions& options) {
  if (!arguments.remote)
    return arguments.remote_warm ? usage("--remote-warm needs --remote URL") : std::nullopt;
  if (arguments.remote->empty())
    return usage("--remote: wanted an address, such as mooncake://HOST:PORT or posix:FOLDER, got nothing");
  ReplayRemoteOptions& remote = options.remote.emplace();
  remote.address.url = *arguments.remote;
  if (const auto plan = plan_store(remote.address); !plan && plan.error().code == Code::kInvalidArgument)
    return usage(plan.error().message);
  remote.tier.batch_deadline = std::chrono::seconds(10);  // nobody waits for an answer
  remote.warm = arguments.remote_warm;
  return std::nullopt;
}

Checked take_options(const ReplayArguments& arguments, ReplayOptions& options) {
  std::optional<std::uint64_t> page_bytes;
  if (auto refusal = take_names(arguments, options)) return refusal;
  if (auto refusal = take_count("--capacity-pages", arguments.capacity_pages, options.capacity_pages))
    return refusal;
  if (auto refusal = take_size("--host-bytes", arguments.host_bytes, options.host_bytes)) return refusal;
  if (auto refusal = take_count("--snapshot-every", arguments.snapshot_every, options.snapshot_every))
    return refusal;
  if (auto refusal = take_count("--snapshot-budget", arguments.snapshot_budget, options.snapshot_budget))
    return refusal;
  if (auto refusal = take_size("--page-bytes", arguments.page_bytes, page_bytes)) return refusal;
  if (page_bytes) options.page_bytes = *page_bytes;
  options.bound = arguments.bound;
  options.status = arguments.status;
  if (auto refusal = take_disk(arguments, options)) return refusal;
  if (auto refusal = take_remote(arguments, options)) return refusal;
  if (auto refusal = take_count("--restart-at", arguments.restart_at, options.restart_at)) return refusal;
  if (arguments.trace && arguments.generate)
    return usage("--trace and --generate are both given; a replay has one trace");
  if (auto refusal = take_model(arguments, options)) return refusal;
  const Status status = check_options(options);
  return status.ok() ? std::nullopt : usage(status.message);
}

std::string no_requests(std::string_view name, const Trace& trace) {
  const std::string got =
      trace.skipped_lines == 0
          ? std::string("it is empty")
          : fmt::format("all of its {} lines are damaged; leave --skip-bad out to see why",
                        trace.skipped_lines);
  return fmt::format(
      "trace {}: wanted at least one request, a line such as "
      R"({{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}})"
      ": {}",
      name, got);
}

Checked take_trace(const ReplayArguments& arguments, Trace& trace, std::string& name) {
  if (arguments.trace) {
    name = *arguments.trace == "-" ? "standard input"
                                   : std::filesystem::path(*arguments.trace).filename().string();
    auto read = read_trace(*arguments.trace,
                           arguments.skip_bad ? TraceReader::OnDamage::kSkip : TraceReader::OnDamage::kStop);
    if (!read) return Refusal{kExitFailed, read.error().message};
    if (read->requests.empty()) return Refusal{kExitFailed, no_requests(name, *read)};
    trace = std::move(*read);
    return std::nullopt;
  }
  const auto generator = parse_generator(arguments.generate.value_or("conversation"));
  if (!generator) return usage(generator.error().message);
  name = "generated " + generator_text(*generator);
  trace = generate(*generator);
  return std::nullopt;
}

// A bar on a terminal, nothing elsewhere; at most ten times a second.
class ProgressBar final {
 public:
  explicit ProgressBar(std::uint64_t total) : total_(total), shown_(isatty(STDERR_FILENO) == 1) {}
  void update(std::uint64_t done, const ReplayReport& so_far) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || (done != total_ && now - last_ < std::chrono::milliseconds(100))) return;
    last_ = now;
    const std::string line =
        fmt::format("\r{}  {} of {} requests  hit ratio {:.4f} ", progress_bar(done, total_), grouped(done),
                    grouped(total_), so_far.hit_ratio());
    std::fwrite(line.data(), 1, line.size(), stderr);
    if (done == total_) std::fputs("\r\033[K", stderr);
  }
  void clear() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  std::uint64_t total_;
  bool shown_;
  std::chrono::steady_clock::time_point last_;
};

int run_replay(const ReplayArguments& arguments) {
  std::optional<InterruptLine> interruptible("replay");
  ReplayOptions options;
  if (const auto refusal = take_options(arguments, options))
    return fail("replay", refusal->message, refusal->status);
  Trace trace;
  std::string trace_name;
  if (const auto refusal = take_trace(arguments, trace, trace_name))
    return fail("replay", refusal->message, refusal->status);
  std::optional<StopSignals> stopping;
  if (options.disk || options.remote) {  // ends in good order: they are closed
    interruptible.reset();
    options.stop = &stopping.emplace().asked();
  }
  ProgressBar bar(trace.requests.size());
  const auto report = replay(trace, options, [&](std::uint64_t done, const ReplayReport& so_far) {
    if (!arguments.json) bar.update(done, so_far);
  });
  interruptible.reset();  // what is printed is printed whole
  if (!report && stopping && stopping->status() != 0) {
    if (!arguments.json) bar.clear();
    return fail("replay", report.error().message, stopping->status());
  }
  if (!report) return fail("replay", report.error().message);
  const std::string text =
      arguments.json ? report_json(*report) + "\n"
                     : report_text(*report, trace_name, options.spec.model_type, stdout_wants_colour());
  if (const int status = print("replay", text); status != kExitOk || report->good()) return status;
  return fail("replay", report->corrupt_pages != 0
                            ? fmt::format("{} pages came back wrong", report->corrupt_pages)
                            : report->wrong.front());
}

}  // namespace

Command replay_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto arguments = std::make_shared<ReplayArguments>();
  ReplayArguments& a = *arguments;
  CLI::App* app =
      parent.add_subcommand("replay", "Replay a request trace through the cache and say why pages missed");
  app->add_option("--trace", a.trace,
                  "JSON lines: timestamp, input_length, output_length, hash_ids; - is standard input")
      ->type_name("FILE");
  app->add_option("--generate", a.generate,
                  "a made-up trace instead: conversation|synthetic[:REQUESTS[:SEED]]")
      ->type_name("KIND");
  app->add_option("--config", a.config, "the model's Hugging Face config.json (default: one full group)")
      ->type_name("CONFIG.json");
  app->add_option("--spec", a.spec, "the model as a spec of our own (docs/guide/specs.md)")
      ->type_name("SPEC.json");
  app->add_option("--policy", a.policy, "eviction: lru (default), s3fifo, tinylfu, value")->type_name("NAME");
  app->add_option("--capacity-pages", a.capacity_pages, "most pages in the cache (default: unlimited)")
      ->type_name("N");
  app->add_option("--host-bytes", a.host_bytes, "most bytes of the model's records in the cache, as 200GiB")
      ->type_name("SIZE");
  add_model_options(*app, a.model);
  app->add_option("--snapshots", a.snapshots,
                  "where resume points are made: end (default), branch, all, advice")
      ->type_name("RULE");
  app->add_option("--snapshot-every", a.snapshot_every, "and at each multiple of so many pages")
      ->type_name("PAGES");
  app->add_option("--snapshot-budget", a.snapshot_budget, "most snapshots to make (with advice)")
      ->type_name("N");
  app->add_option("--page-bytes", a.page_bytes,
                  "bytes of each record that really exist (default 4KiB; at most the record's own)")
      ->type_name("SIZE");
  app->add_option("--disk", a.disk, "a disk tier on this file (made where there is none) or block device")
      ->type_name("PATH");
  app->add_option("--disk-bytes", a.disk_bytes,
                  "of a new file, as 4GiB: bytes on the drive, all claimed at once")
      ->type_name("SIZE");
  app->add_option("--disk-admission", a.disk_admission,
                  "what is worth a write: auto (default), all, second_touch")
      ->type_name("RULE");
  app->add_option("--disk-writes", a.disk_writes,
                  "when: write_through (default), write_through_selective, write_back")
      ->type_name("RULE");
  app->add_option("--remote", a.remote,
                  "a remote tier in this store: mooncake://HOST:PORT, valkey://HOST:PORT, posix:FOLDER")
      ->type_name("URL");
  app->add_flag("--remote-warm", a.remote_warm, "what earlier replays left in the store is hit, not cleared");
  app->add_option("--restart-at", a.restart_at,
                  "after N requests close the cache, open it again, and go on with what disk and store have")
      ->type_name("N");
  app->add_flag("--status", a.status, "also the cache's own status at the end");
  app->add_flag("--bound", a.bound, "also what the best possible eviction would hit");
  app->add_flag("--skip-bad", a.skip_bad, "count damaged lines of the trace instead of stopping");
  app->add_flag("--json", a.json, "one JSON object instead of text");
  app->footer(kExamples);
  return {app, [arguments] { return run_replay(*arguments); }};
}

}  // namespace tiercel::apps
