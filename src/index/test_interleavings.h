// For tests: looks at every state that a machine can reach, breadth first, so that what it finds is a
// shortest run. A machine has a State, `first()`, and `moves(state, visit)`, which calls visit(next, move,
// what is broken or "") for each move that is possible; `registers(state)` are all threads' registers.
//
// Threads: one thread. Cost: memory for each state 40 bytes, and the states themselves at the edge.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/prng.h"
#include "index/test_lease_steps.h"

namespace tiercel::interleaving {

struct Move {
  std::uint8_t thread = 0;
  std::uint8_t value = 0;
  bool drain = false;  // an older store leaves the store buffer; else the thread's next step
  bool old = false;    // a load of a value that is not the latest
  Step step;
};

struct Findings {
  std::uint64_t states = 0;
  std::uint64_t grants = 0;      // moves by which a reader got its lease
  std::uint64_t overwrites = 0;  // moves that wrote a byte over page 1
  std::string broken;            // what was found first; empty: all states are well
  std::vector<std::string> run;  // how it came about
  // Registers of all threads where no move is left.
  std::set<std::array<std::uint8_t, kThreads * kRegisters>> ends;
};

inline std::string describe(const Move& move) {
  const std::string_view who = kThreadNames[move.thread];
  if (move.drain)
    return fmt::format("{}              {} = {} leaves its store buffer", who, kPlaceNames[move.step.place],
                       move.value);
  switch (move.step.act) {
    case Act::kLoad:
      return fmt::format("{}  {:<10}  {} is {}{}", who, move.step.name, kPlaceNames[move.step.place],
                         move.value, move.old ? " (an old value)" : "");
    case Act::kStore:
      return fmt::format("{}  {:<10}  {} = {}", who, move.step.name, kPlaceNames[move.step.place],
                         move.value);
    case Act::kGranted:
      return fmt::format("{}  has its lease", who);
    default:
      return fmt::format("{}  (decides)", who);
  }
}

// Two halves of 64 bits: two different states meet in both with a chance of about 10^-25 at 10^7 states.
struct Mark {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Mark&, const Mark&) = default;
};
struct MarkHash {
  std::size_t operator()(const Mark& mark) const noexcept { return mark.low; }
};
template <typename State>
Mark mark_of(const State& state) {
  static_assert(std::has_unique_object_representations_v<State> && sizeof(State) % 8 == 0);
  Mark mark{1, 2};
  const auto* const bytes = reinterpret_cast<const char*>(&state);
  for (std::size_t at = 0; at < sizeof(State); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, sizeof word);
    mark.low = mix64(mark.low + word);
    mark.high = mix64(mark.high ^ (word + 0x9E3779B97F4A7C15ULL));
  }
  return mark;
}

template <typename Machine>
Findings explore(const Machine& machine) {
  using State = typename Machine::State;
  struct Arrival {
    std::uint32_t from = 0;
    Move move;
  };
  Findings found;
  std::vector<Arrival> arrivals{{}};
  std::unordered_set<Mark, MarkHash> visited;
  std::deque<std::pair<State, std::uint32_t>> edge{{machine.first(), 0}};
  visited.insert(mark_of(edge.front().first));
  while (!edge.empty() && found.broken.empty()) {
    const auto [state, index] = edge.front();
    edge.pop_front();
    ++found.states;
    bool moved = false;
    machine.moves(state, [&](const State& next, const Move& move, std::string_view broken) {
      moved = true;
      if (!found.broken.empty()) return;
      if (move.step.act == Act::kGranted) ++found.grants;
      if (move.step.act == Act::kStore && move.step.place == kA0) ++found.overwrites;
      const bool fresh = visited.insert(mark_of(next)).second;
      if (!fresh && broken.empty()) return;
      arrivals.push_back({index, move});
      if (broken.empty()) {
        edge.emplace_back(next, static_cast<std::uint32_t>(arrivals.size() - 1));
        return;
      }
      found.broken = broken;
      for (std::size_t at = arrivals.size() - 1; at != 0; at = arrivals[at].from)
        if (arrivals[at].move.step.act != Act::kJump) found.run.push_back(describe(arrivals[at].move));
      std::reverse(found.run.begin(), found.run.end());
    });
    if (!moved) found.ends.insert(machine.registers(state));
  }
  return found;
}

}  // namespace tiercel::interleaving
