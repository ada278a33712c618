// What load, store and reserve share: memory that an operation brings along, and events it waits for.
//
// Threads: under the node's lock.
#pragma once

#include <cstdint>
#include <vector>

#include "capi/handles.h"

namespace tiercel::capi {

// Memory that a call brings, given back unless the operation takes it over.
class Brought final {
 public:
  Brought(Core& core, Live& live, const FormTable& table) : core_(core), live_(live), table_(table) {}
  ~Brought() { live_.give_back(slots_); }
  Brought(const Brought&) = delete;
  Brought& operator=(const Brought&) = delete;

  // A slot that stands for the pieces. Errors: failed_precondition: the class and shard have registered
  // memory, or the node is suspended; resource_exhausted.
  Answer add(std::uint32_t class_id, std::uint32_t shard, Pieces pieces, std::uint64_t& slot);
  std::vector<BroughtSlot> take() { return std::exchange(slots_, {}); }

 private:
  Core& core_;
  Live& live_;
  const FormTable& table_;
  std::vector<BroughtSlot> slots_;
};

// 0 when the event has fired: there is nothing to wait for. Errors: invalid_argument: it was never made.
Answer waiting_event(const Live& live, std::uint64_t event, std::uint64_t& wait_for);

}  // namespace tiercel::capi
