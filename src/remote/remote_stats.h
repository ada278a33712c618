// What the remote tier counts. Counters only grow.
//
// Threads: plain values.
#pragma once

#include <cstdint>

namespace tiercel {

struct RemoteStats {
  std::uint64_t lookups = 0, lookups_failed = 0;
  std::uint64_t names_asked = 0;  // objects whose existence was asked for, by all lookups together
  std::uint64_t names_known = 0;  // that were not asked for, because the answer was known
  std::uint64_t reads = 0, reads_failed = 0, read_bytes = 0;       // class-sets, payload and headers
  std::uint64_t objects_read = 0, object_bytes_read = 0;           // whole objects
  std::uint64_t writes = 0, writes_failed = 0, written_bytes = 0;  // class-sets
  std::uint64_t objects_written = 0, object_bytes_written = 0;
  std::uint64_t direct_bytes = 0;  // of objects read and written: that stood in nobody's exchange
  std::uint64_t batches = 0, batches_late = 0, batches_failed = 0;
  std::uint64_t damaged_objects = 0, removed_objects = 0;
  std::uint64_t mixed_objects = 0;  // of the damaged ones: their shards were not stored together
  std::uint64_t trips = 0;          // how often the tier went down
  std::uint64_t clears = 0, markers_made = 0;
  bool down = false;
  std::uint64_t exchange_bytes = 0, exchange_used_bytes = 0;
  std::uint64_t unquiet_bytes = 0;  // of the exchange, that a late batch may still write to
  std::uint64_t queued_bytes = 0;   // of class-sets that wait to be written
};

}  // namespace tiercel
