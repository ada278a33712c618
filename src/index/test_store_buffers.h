// For tests: a machine as x86 is described (total store order): each thread has a queue of its own stores,
// which reach memory in order and at any later moment; a thread reads its own waiting stores first. A seq_cst
// store waits until the queue is empty and goes to memory at once (xchg). Loads are never late, whatever
// their order.
//
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "index/test_interleavings.h"
#include "index/test_lease_steps.h"

namespace tiercel::interleaving {

class StoreBuffers final {
 public:
  static constexpr std::size_t kWaitingMax = 12;
  struct Waiting {
    std::uint8_t place = 0, value = 0;
  };
  struct Thread {
    std::uint8_t next = 0;   // step
    std::uint8_t holds = 0;  // 1: it was granted a lease on slot A and has not given it back
    std::uint8_t waiting = 0;
    std::array<std::uint8_t, kRegisters> regs{};
    std::array<Waiting, kWaitingMax> stores{};
  };
  struct State {
    std::array<std::uint8_t, kPlaces> memory = kAtFirst;
    std::array<Thread, kThreads> threads{};
    std::array<std::uint8_t, 2> filler{};
  };

  explicit StoreBuffers(Programs programs) : programs_(std::move(programs)) {}
  State first() const { return {}; }
  static std::array<std::uint8_t, kThreads * kRegisters> registers(const State& state) {
    std::array<std::uint8_t, kThreads * kRegisters> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = state.threads[i / kRegisters].regs[i % kRegisters];
    return all;
  }

  template <typename Visit>
  void moves(const State& state, Visit visit) const {
    for (std::uint8_t thread = 0; thread < kThreads; ++thread)
      // What only the thread itself sees comes at once: nothing depends on when.
      if (is_local(programs_[thread][state.threads[thread].next].act)) return step(state, thread, visit);
    for (std::uint8_t thread = 0; thread < kThreads; ++thread) {
      if (state.threads[thread].waiting != 0) drain(state, thread, visit);
      step(state, thread, visit);
    }
  }

 private:
  template <typename Visit>
  void drain(const State& state, std::uint8_t thread, Visit& visit) const {
    State next = state;
    Thread& mine = next.threads[thread];
    const Waiting oldest = mine.stores[0];
    --mine.waiting;
    for (std::size_t i = 0; i < mine.waiting; ++i) mine.stores[i] = mine.stores[i + 1];
    mine.stores[mine.waiting] = {};
    Move move{.thread = thread, .value = oldest.value, .drain = true, .step = {.act = Act::kStore}};
    move.step.place = static_cast<Place>(oldest.place);
    const std::string_view broken = reach_memory(next, oldest);
    visit(next, move, broken);
  }

  template <typename Visit>
  void step(const State& state, std::uint8_t thread, Visit& visit) const {
    const Step& step = programs_[thread][state.threads[thread].next];
    if (step.act == Act::kEnd) return;
    State next = state;
    Thread& mine = next.threads[thread];
    ++mine.next;
    Move move{.thread = thread, .value = step.value, .step = step};
    std::string_view broken;
    switch (step.act) {
      case Act::kLoad:
        move.value = mine.regs[step.reg] = value_seen(state, thread, step.place);
        break;
      case Act::kJump:
        if (interleaving::holds(step, mine.regs)) mine.next = step.target;
        break;
      case Act::kGranted:
        mine.holds = mine.regs[kWhere] == 1 ? 1 : 0;
        break;
      case Act::kExpectThePage:
        if (mine.regs[kOther] != content_of(mine.regs[kSeen], step.value))
          broken = "a reader read bytes of another page under its lease";
        break;
      default:
        if (step.place == kLease1 || step.place == kLease2) mine.holds = 0;
        if (step.order == std::memory_order_seq_cst) {
          if (mine.waiting != 0) return;
          broken = reach_memory(next, {step.place, step.value});
        } else {
          TIERCEL_CHECK(mine.waiting < kWaitingMax);
          mine.stores[mine.waiting++] = {step.place, step.value};
        }
    }
    visit(next, move, broken);
  }

  static std::uint8_t value_seen(const State& state, std::uint8_t thread, Place place) {
    const Thread& mine = state.threads[thread];
    for (std::size_t i = mine.waiting; i-- != 0;)
      if (mine.stores[i].place == place) return mine.stores[i].value;
    return state.memory[place];
  }

  static std::string_view reach_memory(State& state, Waiting store) {
    state.memory[store.place] = store.value;
    if (store.place != kA0 && store.place != kA1) return "";
    for (const Thread& each : state.threads)
      if (each.holds != 0) return "the slot is written over while a reader holds its lease";
    return "";
  }

  Programs programs_;
};

}  // namespace tiercel::interleaving
