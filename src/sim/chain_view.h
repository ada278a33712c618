// A matched chain as the simulator's own books see it, and the resume rule stated once more over it: sets of
// lengths, no runs. Shared by the checkers of lengths and of reasons.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "sim/scene.h"

namespace tiercel::sim {

struct ChainView {
  std::uint64_t first_page = 0;
  std::uint64_t end = 0;               // one past the last page asked for
  std::uint64_t limit_pages = 0;       // not cut to `end`
  std::vector<Presence> presence;      // of pages first_page, …; pages that failed for the request: 0
  std::vector<bool> failed;            // for this request, known or possible
  std::vector<std::uint64_t> lengths;  // restorable, ascending
  std::uint64_t gap = 0;               // first page that lacks a required class and is not held
  std::uint64_t longest() const { return lengths.back(); }
};

ChainView view_chain(const Scene& scene, const SimTicket& ticket);
// Lengths and gap of the presence that `view` has.
void find_lengths(const StorageForm& form, const SimTicket& ticket, ChainView& view);
// Page `page` of class `cls` is present or held by the engine (a state: its snapshot of length page + 1).
bool has(const ChainView& view, const ClassForm& cls, const SimTicket& ticket, std::uint64_t page);
bool held(const ClassForm& cls, const SimTicket& ticket, std::uint64_t page);
// Every class can resume at `length`.
bool can_resume(const StorageForm& form, const ChainView& view, const SimTicket& ticket,
                std::uint64_t length);

}  // namespace tiercel::sim
