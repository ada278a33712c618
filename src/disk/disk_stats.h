// What a disk log counts. Bytes are bytes on the drive: records with headers, rounded up to whole blocks.
//
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>

#include "os/clock.h"

namespace tiercel {

struct DiskStats {
  std::uint64_t size_bytes = 0;  // of the drive or file: the quota
  std::uint64_t region_bytes = 0;
  std::uint64_t regions = 0, regions_free = 0;
  std::uint64_t live_bytes = 0;     // of class-sets that can be found
  std::uint64_t class_sets = 0;     // that can be found
  std::uint64_t index_entries = 0;  // that the index has room for
  std::uint64_t host_bytes = 0;     // taken of the host's memory

  std::uint64_t appended = 0, appended_bytes = 0;  // class-sets accepted, records without rounding
  // To the drive, everything: the sum of the six below it.
  std::uint64_t written_bytes = 0;
  std::uint64_t record_bytes = 0;     // of class-sets, without rounding; those re-inserted with it
  std::uint64_t padding_bytes = 0;    // rounding of records to whole blocks
  std::uint64_t directory_bytes = 0;  // of segments, and the names of namespaces
  std::uint64_t footer_bytes = 0, image_bytes = 0;
  std::uint64_t header_bytes = 0;  // of regions, and superblocks; all that the opening wrote
  std::uint64_t reinserted = 0, reinserted_bytes = 0;
  std::uint64_t lost = 0;                    // accepted, and not written after all
  std::array<std::uint64_t, 16> verdicts{};  // by DiskVerdict
  std::uint64_t segments = 0, flushes = 0, checkpoints = 0;

  std::uint64_t reads = 0, read_bytes = 0, read_failures = 0;
  std::uint64_t evicted = 0;  // class-sets that left with their regions
  std::uint64_t regions_evicted = 0;
  std::uint64_t removals = 0;         // kept one by one now
  std::uint64_t removals_folded = 0;  // turned into a clear of all that was older, for want of room
  std::uint64_t unrecorded = 0;       // removals and clears that the drive did not take

  std::uint64_t write_budget_bytes = 0;  // a day; 0: no limit
  std::uint64_t write_budget_left = 0;
  Duration oldest_age{0};  // of the oldest region with class-sets, as far as this opening knows

  bool down = false;
  std::uint64_t trips = 0;  // times that it went down
  std::uint64_t io_errors = 0, stalls = 0;

  // Of the last opening.
  std::uint64_t recovered_class_sets = 0, recovered_from_image = 0, recovered_from_footers = 0,
                recovered_from_tail = 0;
  std::uint64_t recovery_read_bytes = 0;
  std::uint64_t tail_segments_refused = 0;  // not whole
  std::uint64_t images_damaged = 0;
  std::uint64_t footers_damaged = 0;  // met by evictions since
};

}  // namespace tiercel
