#include "sim/command.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "sim/disk_scenario.h"
#include "sim/faults.h"
#include "sim/scenario.h"
#include "sim/simulation.h"

namespace tiercel::sim {
namespace {

constexpr int kClean = 0;
constexpr int kUsage = 2;
constexpr int kCaught = 3;
constexpr int kNothingCaught = 4;
constexpr std::uint64_t kStepsDefault = 2000;

struct Arguments {
  std::uint64_t seed = 1;
  std::string seeds;
  std::uint64_t steps = kStepsDefault;
  std::string spec;
  std::string fault;
  double fresh_seconds = 0;
  bool all_counters = false;
  std::vector<std::string> counters;
  bool trace = false;
  bool list_faults = false;
  bool list_specs = false;
};

std::string repeat_line(const Arguments& arguments, std::uint64_t seed, std::string_view spec) {
  return fmt::format("repeat: tiercel-sim --seed {} --steps {} --spec {}{}{}\n", seed, arguments.steps, spec,
                     arguments.fault.empty() ? "" : " --fault ", arguments.fault);
}

// A program that ends itself (TIERCEL_CHECK) still says how to repeat it.
char last_words[256];
void on_abort(int) {
  std::fputs(last_words, stdout);
  std::printf("caught checker=check step=%llu\n", static_cast<unsigned long long>(current_step()));
  std::fflush(stdout);
  std::_Exit(kCaught);
}

void prepare_last_words(const std::string& line) {
  const std::size_t length = std::min(line.size(), sizeof(last_words) - 1);
  std::copy_n(line.begin(), length, last_words);
  last_words[length] = '\0';
}

// One run. Returns: its result, after the lines about a failure are printed.
RunResult run_one(const Arguments& arguments, std::uint64_t seed) {
  RunOptions options;
  options.seed = seed;
  options.steps = arguments.steps;
  options.spec = arguments.spec;
  options.trace = arguments.trace;
  const std::string spec = options.spec.empty() ? std::string(spec_of_seed(seed)) : options.spec;
  prepare_last_words(repeat_line(arguments, seed, spec));
  RunResult result = run(options);
  if (result.caught) {
    fmt::print("{}step {}: {}\n", result.coverage.to_string(), result.caught->step, result.caught->message);
    fmt::print("{}caught checker={} step={}\n", repeat_line(arguments, seed, spec), result.caught->checker,
               result.caught->step);
  }
  return result;
}

int run_single(const Arguments& arguments) {
  const RunResult result = run_one(arguments, arguments.seed);
  if (result.caught) return kCaught;
  fmt::print("seed {} steps {} spec {}\n{}", arguments.seed, arguments.steps, result.spec,
             result.coverage.to_string());
  if (arguments.fault.empty()) {
    fmt::print("clean\n");
    return kClean;
  }
  fmt::print("fault {} was not caught\n", arguments.fault);
  return kNothingCaught;
}

int run_range(const Arguments& arguments, std::uint64_t first, std::uint64_t last) {
  Coverage coverage;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const RunResult result = run_one(arguments, seed);
    if (result.caught) return kCaught;
    coverage.add(result.coverage);
  }
  fmt::print("seeds {}:{} steps {}\n{}", first, last, arguments.steps, coverage.to_string());
  for (const std::string& missing :
       {arguments.all_counters ? coverage.missing() : "", coverage.missing(arguments.counters)}) {
    if (missing.empty()) continue;
    fmt::print("never met: {}\ncaught checker=coverage step=0\n", missing);
    return kCaught;
  }
  if (!arguments.fault.empty()) {
    fmt::print("fault {} was not caught\n", arguments.fault);
    return kNothingCaught;
  }
  fmt::print("clean\n");
  return kClean;
}

// Seeds nobody has seen, for so long. The only mode that reads a clock and real randomness.
int run_fresh(const Arguments& arguments) {
  std::random_device entropy;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.fresh_seconds);
  std::uint64_t runs = 0;
  while (std::chrono::steady_clock::now() < until) {
    if (run_one(arguments, 1'000'000 + entropy()).caught) return kCaught;
    ++runs;
  }
  fmt::print("{} fresh seeds, clean\n", runs);
  return kClean;
}

bool parse_range(const std::string& text, std::uint64_t& first, std::uint64_t& last) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto a = std::from_chars(begin, begin + colon, first);
  const auto b = std::from_chars(begin + colon + 1, end, last);
  return a.ec == std::errc{} && a.ptr == begin + colon && b.ec == std::errc{} && b.ptr == end &&
         first <= last;
}

int usage(std::string_view message) {
  fmt::print(stderr, "tiercel-sim: {}\n", message);
  return kUsage;
}

int list_faults() {
  for (const Fault& fault : faults())
    fmt::print("{}\t{}\t{}\t{}\t{}\n", fault.name, fault.checker, fault.seed, fault.steps, fault.spec);
  return kClean;
}

int list_specs() {
  for (const SpecName& spec : spec_names()) fmt::print("{}\t{}\n", spec.name, spec.about);
  for (const SpecName& spec : disk_spec_names()) fmt::print("{}\t{}\n", spec.name, spec.about);
  return kClean;
}

bool is_spec(std::string_view spec) {
  const auto specs = spec_names();
  return is_disk_spec(spec) ||
         std::any_of(specs.begin(), specs.end(), [&](const SpecName& each) { return each.name == spec; });
}

int carry_out(const Arguments& arguments) {
  if (arguments.list_faults) return list_faults();
  if (arguments.list_specs) return list_specs();
  if (!arguments.spec.empty() && !is_spec(arguments.spec))
    return usage(fmt::format("--spec {}: there is no such spec; see --list-specs", arguments.spec));
  if (!arguments.fault.empty()) {
    if (!has_fault_points()) return usage("--fault: this program is built without fault points");
    if (find_fault(arguments.fault) == nullptr)
      return usage(fmt::format("--fault {}: there is no such fault; see --list-faults", arguments.fault));
    choose_fault(arguments.fault);
  }
  std::signal(SIGABRT, on_abort);
  if (arguments.fresh_seconds > 0) return run_fresh(arguments);
  if (arguments.seeds.empty()) return run_single(arguments);
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  if (!parse_range(arguments.seeds, first, last))
    return usage(fmt::format("--seeds {}: wanted FIRST:LAST, two numbers, the first not above the last",
                             arguments.seeds));
  return run_range(arguments, first, last);
}

}  // namespace

int command(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{"Runs the cache in a simulated world and checks every promise after every step."};
  app.add_option("--seed", arguments.seed, "the run to make (default 1)");
  app.add_option("--seeds", arguments.seeds, "FIRST:LAST, one run each");
  app.add_option("--steps", arguments.steps, fmt::format("steps of a run (default {})", kStepsDefault));
  app.add_option("--spec", arguments.spec, "the models in the node (default: the seed chooses)");
  app.add_option("--fault", arguments.fault, "make this mistake on purpose");
  app.add_option("--fresh", arguments.fresh_seconds, "for so many seconds, seeds that nobody has seen");
  app.add_flag("--all-counters", arguments.all_counters, "fail when a situation was never met");
  app.add_option("--counter", arguments.counters, "fail when this one was never met");
  app.add_flag("--trace", arguments.trace, "print each step");
  app.add_flag("--list-faults", arguments.list_faults, "name, checker, seed, steps, spec of each fault");
  app.add_flag("--list-specs", arguments.list_specs, "what --spec may name");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kClean;
  } catch (const CLI::ParseError& wrong) {
    return usage(wrong.what());
  }
  return carry_out(arguments);
}

}  // namespace tiercel::sim
