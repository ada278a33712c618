// The deliberate faults: mistakes that the second build of the sources can be told to make, each with the
// checker that must catch it and a run in which it does.
//
// Threads: chosen once before anything runs.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace tiercel::sim {

struct Fault {
  std::string_view name;  // as at its TIERCEL_FAULT points
  std::string_view checker;
  std::uint64_t seed = 0;
  std::uint64_t steps = 0;
  std::string_view spec;
};
std::span<const Fault> faults();
const Fault* find_fault(std::string_view name);

// Makes the fault happen from now on; empty: none. Only the build with fault points heeds it.
void choose_fault(std::string_view name);
// What happens at the next TIERCEL_PAUSE, and at each one after; null: nothing. Heeded as faults are.
void on_pause(const std::function<void()>* action);
// Whether this program was built with fault points.
bool has_fault_points();

}  // namespace tiercel::sim
