#include "bench_command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/print.h"
#include "model_arguments.h"

namespace tiercel::apps {
namespace {

constexpr const char* kExamples = R"(Examples:
  tiercel bench
  tiercel bench hash get
  tiercel bench put --json
  tiercel bench copy --model config.json
  tiercel bench disk --path ../scratch --size 8GiB
  tiercel bench remote --remote mooncake://10.0.0.1:50051
  tiercel bench --list
Without a name all of them run, a few minutes in all. Exit status: 0; 1 when a bench could not measure; 2 when the
command line made no sense. docs/guide/bench.md says what each line means and how to read it.)";

constexpr std::uint64_t kDiskBytesMin = 64ULL << 20;

struct BenchArguments {
  std::vector<std::string> names, models, folders;
  std::string folder = ".", disk_bytes = "4GiB", remote;
  bool json = false, list = false, quick = false;
};

// The named benches, each once, in the order of the list; without names all.
Result<std::vector<Bench>> chosen(const BenchArguments& arguments) {
  for (const std::string& name : arguments.names)
    if (find_bench(name) == nullptr) {
      std::string known;
      for (const Bench& bench : benches())
        known += fmt::format("{}{}", known.empty() ? "" : ", ", bench.name);
      return error(Code::kInvalidArgument,
                   fmt::format("there is no bench \"{}\"; there are {}", name, known));
    }
  std::vector<Bench> list;
  for (const Bench& bench : benches())
    if (arguments.names.empty() || std::ranges::find(arguments.names, bench.name) != arguments.names.end())
      list.push_back(bench);
  return list;
}

// In pages of 64 tokens, or of the next size that the model allows.
tl::expected<BenchModel, Refusal> bench_model(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  auto spec = load_model(path, {});
  if (spec) return BenchModel{name, std::move(*spec)};
  ModelArguments longer;
  longer.page_tokens = "256";
  if (auto other = load_model(path, longer))
    return BenchModel{name + " (pages of 256 tokens)", std::move(*other)};
  return tl::unexpected(std::move(spec.error()));
}

// Every model named, and every *.json of the folders named that describes one; the others are told.
Result<std::vector<BenchModel>> chosen_models(const BenchArguments& arguments) {
  std::vector<BenchModel> models;
  for (const std::string& path : arguments.models) {
    auto model = bench_model(path);
    if (!model) return error(Code::kInvalidArgument, model.error().message);
    models.push_back(std::move(*model));
  }
  for (const std::string& folder : arguments.folders) {
    std::error_code failed;
    std::vector<std::string> paths;
    for (const auto& entry : std::filesystem::directory_iterator(folder, failed))
      if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    if (failed)
      return error(Code::kInvalidArgument,
                   fmt::format("--models: folder {} cannot be read: {}", folder, failed.message()));
    std::ranges::sort(paths);
    for (const std::string& path : paths) {
      auto model = bench_model(path);
      if (model)
        models.push_back(std::move(*model));
      else
        std::fputs(fmt::format("passed over: {}\n", model.error().message).c_str(), stderr);
    }
    if (models.empty())
      return error(Code::kInvalidArgument, fmt::format("--models: no file of {} describes a model", folder));
  }
  return models;
}

std::string list_text() {
  std::size_t width = 0;
  for (const Bench& bench : benches()) width = std::max(width, bench.name.size());
  std::string text;
  for (const Bench& bench : benches()) text += fmt::format("{:<{}}  {}\n", bench.name, width, bench.what);
  return text;
}

// What goes on, on one line of a terminal; nothing elsewhere.
class ProgressLine final {
 public:
  void show(std::string_view bench, std::string_view what) const {
    if (shown_) std::fputs(fmt::format("\r\033[K{}: {} ...", bench, what).c_str(), stderr);
  }
  void clear() const {
    if (shown_) std::fputs("\r\033[K", stderr);
  }

 private:
  bool shown_ = isatty(STDERR_FILENO) == 1;
};

int run_benches(const BenchArguments& arguments) {
  const auto list = chosen(arguments);
  if (!list) return fail("bench", list.error().message, kExitUsage);
  if (arguments.list)
    return write_stdout(list_text()) ? kExitOk : fail("bench", "standard output cannot be written");
  auto models = chosen_models(arguments);
  if (!models) return fail("bench", models.error().message, kExitUsage);
  const auto disk_bytes = parse_size(arguments.disk_bytes);
  if (!disk_bytes) return fail("bench", "--size: " + disk_bytes.error().message, kExitUsage);
  if (*disk_bytes < kDiskBytesMin || *disk_bytes % kDiskBytesMin != 0)
    return fail("bench", fmt::format("--size: wanted a multiple of 64 MiB, got {}", arguments.disk_bytes),
                kExitUsage);
  const ProgressLine progress;
  std::vector<BenchResult> results;
  for (const Bench& bench : *list) {
    BenchRun run({.quick = arguments.quick,
                  .models = *models,
                  .folder = arguments.folder,
                  .disk_bytes = *disk_bytes,
                  .remote = arguments.remote},
                 [&](std::string_view what) { progress.show(bench.name, what); });
    const Status status = bench.run(run);
    progress.clear();
    if (!status.ok()) return fail("bench", fmt::format("{}: {}", bench.name, status.message));
    results.push_back({std::string(bench.name), run.lines()});
  }
  const std::string text = arguments.json ? bench_json(results, arguments.quick) + "\n"
                                          : bench_table(results, stdout_wants_colour());
  return write_stdout(text) ? kExitOk : fail("bench", "standard output cannot be written");
}

}  // namespace

Command bench_command(CLI::App& parent) {
  // Owners: the parser's callbacks during the parse, the returned `run` afterwards.
  auto arguments = std::make_shared<BenchArguments>();
  BenchArguments& a = *arguments;
  CLI::App* app = parent.add_subcommand(
      "bench", "Measure how near each part comes to what the machine allows, side by side");
  app->add_option("NAME", a.names, "benches to run (default: all)")->type_name("");
  app->add_option("--model", a.models,
                  "copy: a model's configuration; each of its pools, each pair of layouts")
      ->type_name("FILE");
  app->add_option("--models", a.folders, "copy: the same for each configuration in a folder")
      ->type_name("DIR");
  app->add_option("--path", a.folder,
                  "disk, remote: a folder on the drive to be measured (default: this one)")
      ->type_name("DIR");
  app->add_option("--size", a.disk_bytes, "disk: of the file there, removed afterwards (default: 4GiB)")
      ->type_name("SIZE");
  app->add_option("--remote", a.remote,
                  "remote: the store to be measured (default: a Mooncake that it starts on 127.0.0.1)")
      ->type_name("URL");
  app->add_flag("--list", a.list, "which benches there are");
  app->add_flag("--json", a.json, "one JSON object instead of a table");
  app->add_flag("--quick", a.quick, "tiny sizes: shows that every bench runs, its numbers say nothing");
  app->footer(kExamples);
  return {app, [arguments] { return run_benches(*arguments); }};
}

}  // namespace tiercel::apps
