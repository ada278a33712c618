// Lines of a bench, for people and for programs.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench.h"

namespace tiercel {

struct BenchResult {
  std::string bench;
  std::vector<BenchLine> lines;
};

// The processor's own name, or "unknown processor"; how many of its cores this process may use.
std::string processor_name();
unsigned usable_cores();

// One table for all results: each line its numbers, units and targets; notes last. Ends with a newline.
std::string bench_table(std::span<const BenchResult> results, bool colour);
// One JSON object without a newline: {"processor", "cores", "quick", "lines": [{"bench", "name", …}]}. What a
// line does not have (limit, peer, p50, target …) is left out.
std::string bench_json(std::span<const BenchResult> results, bool quick);

}  // namespace tiercel
