// One run of the disk log alone: as simulation.h's, which calls it for its specs.
//
// Threads: one thread.
#pragma once

#include "sim/simulation.h"

namespace tiercel::sim {

// Requires: is_disk_spec(options.spec). `step_now` is set at each step, for last words.
RunResult run_disk(const RunOptions& options, std::uint64_t& step_now);

}  // namespace tiercel::sim
