// Where a writer in another process puts a record: runs of the payload in the byte order of its own layout,
// and the pieces of the arena's file in which they lie.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <tiercel/writers.h>

#include "base/status.h"
#include "capi/form_table.h"
#include "memory/space.h"

namespace tiercel::capi {

// A run of one component of one layer, in one piece in the payload and in the writer's memory.
struct NamedRun {
  std::uint64_t offset = 0;  // in the payload
  std::uint64_t length = 0;
  std::uint32_t component = 0;  // number in the class
  std::uint32_t layer = 0;
  friend bool operator==(const NamedRun&, const NamedRun&) = default;
};

// A whole record in the order in which a page (or snapshot) stands in a pool of that layout; the groups of
// the class one behind the other. Errors: invalid_argument: no such layout, or not one for this class;
// resource_exhausted: more than kListMax fragments. Requires: the class exists.
Result<std::vector<NamedRun>> named_runs_of(const FormTable& table, std::uint32_t class_id,
                                            std::string_view layout);

// The same in the file, cut where a span ends. `spans`: of the record, relative to the extents, which begin
// at `extents_at` in the file.
std::vector<tiercel_file_segment> file_segments(std::span<const NamedRun> fragments,
                                                std::uint64_t header_bytes, std::span<const ArenaSpan> spans,
                                                std::uint64_t extents_at, int fd);

}  // namespace tiercel::capi
