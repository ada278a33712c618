// The benches that there are, by name.
//
// Threads: a bench runs alone: two at once would measure each other.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "bench/bench.h"

namespace tiercel {

struct Bench {
  std::string_view name;  // one lower-case word
  std::string_view what;  // one line for --list
  // Adds its lines to the run. Errors: what kept it from measuring, as too little memory.
  Status (*run)(BenchRun& run);
};
std::span<const Bench> benches();
const Bench* find_bench(std::string_view name);  // nothing: no such bench

// Each stands in the file of its name.
Status match_bench(BenchRun& run);  // and insert_bench: index_bench.cc
Status insert_bench(BenchRun& run);
Status hash_bench(BenchRun& run);
Status get_bench(BenchRun& run);  // and put_bench: record_bench.cc
Status put_bench(BenchRun& run);
Status replay_bench(BenchRun& run);
Status crc_bench(BenchRun& run);
Status arena_bench(BenchRun& run);
Status copy_bench(BenchRun& run);
Status disk_bench(BenchRun& run);
Status remote_bench(BenchRun& run);

}  // namespace tiercel
