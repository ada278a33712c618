// Where the bytes of a record's payload lie in an engine's pool: the one bridge between the order at rest
// (layer, group, component, token, head, dim: storage_form.h) and an engine's layout.
//
// Threads: pure values and functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "model/pool_layout.h"
#include "model/storage_form.h"

namespace tiercel {

// Bytes that are contiguous in the payload and in the pool. Those of page p lie at offset + p × page.
struct RecordRun {
  std::uint64_t payload_offset = 0;
  std::uint64_t length = 0;
  std::uint32_t tensor = 0;  // of the pool's shape
  std::uint32_t buffer = 0;  // of the pool
  std::uint64_t offset = 0;
  std::uint64_t page = 0;
  friend bool operator==(const RecordRun&, const RecordRun&) = default;
};

// More are never made: a layout that takes a record into so many pieces is of no use to anybody.
inline constexpr std::uint64_t kRecordRunsMax = std::uint64_t{1} << 22;

// All bytes that `pool` has of a record of `cls`, ascending by payload offset; together with those of the
// pools of the class's other groups they are the payload, when every pool has all layers. Errors:
// invalid_argument when the pool's group is not of the class, or its tensors are not the class's (another
// page size, number of ranks or dtype), naming the layer and component; resource_exhausted when they would be
// more than kRecordRunsMax. Cost: O(runs log runs).
Result<std::vector<RecordRun>> record_runs(const ClassForm& cls, const PoolLayout& pool);

}  // namespace tiercel
