// One run: a seed, a spec, so many steps; every step is judged by every checker. The same arguments give the
// same run, to the last byte of what is printed.
//
// Threads: one thread; runs do not share anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sim/coverage.h"

namespace tiercel::sim {

struct RunOptions {
  std::uint64_t seed = 1;
  std::uint64_t steps = 0;
  std::string spec;    // empty: the one that the seed takes
  bool trace = false;  // prints each step's action
};

struct Caught {
  std::string checker;
  std::uint64_t step = 0;
  std::string message;
};

struct RunResult {
  std::string spec;
  std::optional<Caught> caught;
  Coverage coverage;
};

RunResult run(const RunOptions& options);
// The step that the current run is at, for a message from a dying program.
std::uint64_t current_step();

}  // namespace tiercel::sim
