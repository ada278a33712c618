// For tests: a machine that does whatever the C++ memory model allows (C++20, as repaired by Lahav et al.,
// PLDI 2017), short of reading what is written only later in the same run. Every store stays; a load may
// return any one that is not older than what the thread knows of; release and acquire pass that knowledge on.
// The total order S of seq_cst operations is kept as a graph: a load that would close a cycle in it is not
// possible. Bytes of a slot are not atomic: two accesses that nothing orders are a data race, which is what
// the search is for.
//
// Since each place has one writer (test_lease_steps.h), the order of its stores is that thread's own.
//
// Threads: plain values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "index/test_interleavings.h"
#include "index/test_lease_steps.h"

namespace tiercel::interleaving {

class CxxMemory final {
 public:
  static constexpr std::size_t kStoresMax = 6;       // to one place
  static constexpr std::size_t kTotalMax = 16;       // seq_cst operations of one thread
  using Clock = std::array<std::uint8_t, kThreads>;  // accesses of each thread that happened before
  using View = std::array<std::uint8_t, kPlaces>;    // index of the oldest store that may still be read

  struct Stored {
    std::uint8_t value = 0;
    std::uint8_t releases = 0;  // 1: whoever acquires it gets what follows
    Clock clock{};
    View view{};
  };
  struct Variable {
    std::uint8_t stores = 1;      // the first is what was there before
    std::uint8_t written_at = 0;  // bytes: when by the evictor's clock
    Clock read_at{};              // bytes: when last, by each thread's own clock
    std::array<Stored, kStoresMax> stored{};
  };
  struct Thread {
    std::uint8_t next = 0;
    std::uint8_t totals = 0;  // seq_cst operations so far
    Clock clock{};
    View view{};
    std::array<std::uint8_t, kRegisters> regs{};
  };
  // An operation of S: at which place, and before or after which store: store k stands at 2k, its loads at 2k
  // + 1.
  struct Total {
    std::uint8_t used = 0, place = 0, position = 0, at = 0;  // `at`: of its thread's clock
  };
  static constexpr std::size_t kFiller = 8 - (sizeof(Thread) * kThreads + sizeof(Variable) * kPlaces) % 8;
  struct State {
    std::array<std::uint64_t, kThreads * kTotalMax> later{};  // in S, as far as it must be
    std::array<Total, kThreads * kTotalMax> totals{};
    std::array<Thread, kThreads> threads{};
    std::array<Variable, kPlaces> variables{};
    std::array<std::uint8_t, kFiller> filler{};
  };

  explicit CxxMemory(Programs programs) : programs_(std::move(programs)) {}

  State first() const {
    State state;
    for (std::size_t place = 0; place < kPlaces; ++place)
      state.variables[place].stored[0].value = kAtFirst[place];
    return state;
  }
  static std::array<std::uint8_t, kThreads * kRegisters> registers(const State& state) {
    std::array<std::uint8_t, kThreads * kRegisters> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = state.threads[i / kRegisters].regs[i % kRegisters];
    return all;
  }

  template <typename Visit>
  void moves(const State& state, Visit visit) const {
    for (std::uint8_t thread = 0; thread < kThreads; ++thread) {
      // What only the thread itself sees comes at once: nothing depends on when.
      const Step& step = programs_[thread][state.threads[thread].next];
      if (is_local(step.act)) return other(state, thread, step, visit);
    }
    for (std::uint8_t thread = 0; thread < kThreads; ++thread) {
      const Step& step = programs_[thread][state.threads[thread].next];
      if (step.act == Act::kLoad && !is_bytes(step.place)) {
        const Variable& variable = state.variables[step.place];
        for (std::uint8_t k = state.threads[thread].view[step.place]; k < variable.stores; ++k)
          load(state, thread, step, k, visit);
      } else if (step.act != Act::kEnd) {
        other(state, thread, step, visit);
      }
    }
  }

 private:
  static bool acquires(std::memory_order order) {
    return order == std::memory_order_acquire || order == std::memory_order_seq_cst;
  }
  static bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_seq_cst;
  }

  template <typename Visit>
  void load(const State& state, std::uint8_t thread, const Step& step, std::uint8_t k, Visit& visit) const {
    State next = state;
    Thread& mine = next.threads[thread];
    ++mine.next;
    if (step.order == std::memory_order_seq_cst &&
        !place_in_total_order(next, thread, step.place, static_cast<std::uint8_t>(2 * k + 1)))
      return;
    ++mine.clock[thread];
    mine.view[step.place] = k;
    const Stored& stored = next.variables[step.place].stored[k];
    if (acquires(step.order) && stored.releases != 0) {
      for (std::size_t i = 0; i < kThreads; ++i) mine.clock[i] = std::max(mine.clock[i], stored.clock[i]);
      for (std::size_t i = 0; i < kPlaces; ++i) mine.view[i] = std::max(mine.view[i], stored.view[i]);
    }
    mine.regs[step.reg] = stored.value;
    const bool old = k + 1 != next.variables[step.place].stores;
    visit(next, Move{.thread = thread, .value = stored.value, .old = old, .step = step}, "");
  }

  template <typename Visit>
  void other(const State& state, std::uint8_t thread, const Step& step, Visit& visit) const {
    State next = state;
    Thread& mine = next.threads[thread];
    ++mine.next;
    Move move{.thread = thread, .value = step.value, .step = step};
    std::string_view broken;
    switch (step.act) {
      case Act::kLoad:
        broken = load_bytes(next, thread, step, move.value);
        break;
      case Act::kStore:
        broken = store(next, thread, step);
        break;
      case Act::kJump:
        if (interleaving::holds(step, mine.regs)) mine.next = step.target;
        break;
      case Act::kExpectThePage:
        if (mine.regs[kOther] != content_of(mine.regs[kSeen], step.value))
          broken = "a reader read bytes of another page under its lease";
        break;
      default:
        break;
    }
    visit(next, move, broken);
  }

  static std::string_view load_bytes(State& next, std::uint8_t thread, const Step& step,
                                     std::uint8_t& value) {
    Thread& mine = next.threads[thread];
    Variable& variable = next.variables[step.place];
    ++mine.clock[thread];
    variable.read_at[thread] = mine.clock[thread];
    const std::size_t last = variable.stores - std::size_t{1};
    value = mine.regs[step.reg] = variable.stored[last].value;
    if (variable.written_at > mine.clock[kEvictor])
      return "a reader's load races with the store over the slot";
    return "";
  }

  static std::string_view store(State& next, std::uint8_t thread, const Step& step) {
    Thread& mine = next.threads[thread];
    Variable& variable = next.variables[step.place];
    TIERCEL_CHECK(variable.stores < kStoresMax);
    const std::uint8_t k = variable.stores++;
    if (step.order == std::memory_order_seq_cst)
      TIERCEL_CHECK(place_in_total_order(next, thread, step.place, static_cast<std::uint8_t>(2 * k)));
    ++mine.clock[thread];
    mine.view[step.place] = k;
    Stored& stored = variable.stored[k];
    stored.value = step.value;
    if (is_bytes(step.place)) {
      variable.written_at = mine.clock[thread];
      for (std::size_t i = 0; i < kThreads; ++i)
        if (i != thread && variable.read_at[i] > mine.clock[i])
          return "the slot is written over, and nothing orders a reader's load before that";
      return "";
    }
    if (releases(step.order)) {
      stored.releases = 1;
      stored.clock = mine.clock;
      stored.view = mine.view;
    }
    return "";
  }

  // Adds an operation to S with what must come before and after it. False: there is no such order.
  static bool place_in_total_order(State& next, std::uint8_t thread, Place place, std::uint8_t position) {
    Thread& mine = next.threads[thread];
    TIERCEL_CHECK(mine.totals < kTotalMax);
    const std::size_t self = thread * kTotalMax + mine.totals++;
    std::uint64_t before = 0, after = 0;
    for (std::size_t i = 0; i < next.totals.size(); ++i) {
      const Total& each = next.totals[i];
      if (each.used == 0) continue;
      const std::size_t whose = i / kTotalMax;
      const std::uint64_t bit = std::uint64_t{1} << i;
      // Strongly happens before: the same thread, or something after it happened before something before us.
      if (whose == thread || mine.clock[whose] > each.at) before |= bit;
      // Coherence.
      if (each.place == place && each.position < position) before |= bit;
      if (each.place == place && each.position > position) after |= bit;
    }
    const auto at = static_cast<std::uint8_t>(mine.clock[thread] + 1);
    next.totals[self] = {.used = 1, .place = place, .position = position, .at = at};
    std::uint64_t later = after;
    for (std::uint64_t rest = after; rest != 0; rest &= rest - 1)
      later |= next.later[static_cast<std::size_t>(std::countr_zero(rest))];
    next.later[self] = later;
    if ((later & before) != 0) return false;
    for (std::size_t i = 0; i < next.totals.size(); ++i)
      if (((before >> i) & 1) != 0 || (next.later[i] & before) != 0)
        next.later[i] |= later | (std::uint64_t{1} << self);
    return true;
  }

  Programs programs_;
};

}  // namespace tiercel::interleaving
