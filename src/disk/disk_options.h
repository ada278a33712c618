// What a disk log is opened with. Every default stands with its reason in docs/guide/defaults.md.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/bytes.h"
#include "os/clock.h"

namespace tiercel {

// Which class-sets are worth a write.
enum class DiskAdmission : std::uint8_t {
  kAuto,         // all while free regions and the day's write budget last, second touch after
  kAll,          // all that fits
  kSecondTouch,  // what is offered for the second time
};
std::string_view disk_admission_name(DiskAdmission admission);  // "second_touch"

struct DiskLogOptions {
  // Of one region; 0: 1/64 of the drive, between 64 MiB and 256 MiB, and never above 1/8 of it. A class-set
  // must fit one. A log keeps the one it was made with.
  std::uint64_t region_bytes = 0;
  std::uint64_t segment_bytes = 4ULL << 20;  // written at once at most (a larger entry goes alone)
  std::uint64_t index_entries = 0;  // class-sets; 0: one for each 64 KiB of the drive, at least 4,096
  std::uint64_t removals_max = 0;   // kept one by one; 0: index_entries / 16, at least 1,024
  DiskAdmission admission = DiskAdmission::kAuto;
  std::optional<std::uint64_t>
      write_bytes_per_day;  // averaged over the last 24 hours, of this opening; nothing: no limit
  std::uint32_t reinsert_after =
      0;  // uses since written after which eviction writes a class-set again; 0: never
  std::uint32_t segments_in_flight = 4;
  std::uint32_t reads_in_flight = 64;
  std::uint64_t queued_bytes_max = 64ULL
                                   << 20;  // accepted and not yet written; more is refused (rate_limited)
  // A flush follows the writes after so many bytes or so long, whichever is first, even if nobody asks.
  std::uint64_t flush_bytes = 64ULL << 20;
  Duration flush_after = std::chrono::milliseconds(200);
  std::uint32_t checkpoint_regions = 0;  // an image for each so many filled regions; 0: 1/8 of all
  // An operation of the drive that takes longer than this, or `errors_to_trip` failures in a row, and the
  // tier is down; it is asked again after `retry_after`, doubled each time up to `retry_after_max`.
  Duration stall_after = std::chrono::seconds(2);
  std::uint32_t errors_to_trip = 3;
  Duration retry_after = std::chrono::milliseconds(500);
  Duration retry_after_max = std::chrono::seconds(30);
  bool read_only = false;  // look and read; nothing is ever written
};

// What a drive of so many bytes is divided into, by options. A pure value; the superblock has it after that.
struct DiskGeometry {
  std::uint64_t size_bytes = 0;
  std::uint64_t region_bytes = 0, regions = 0;
  std::uint64_t index_buckets = 0;  // of 8 entries
  std::uint64_t catalogue_bytes = 0;
  std::uint64_t removals_max = 0;
  std::uint64_t image_offset[2] = {0, 0};
  std::uint64_t image_bytes = 0;  // of one
  std::uint64_t regions_offset = 0;
  // Host memory that a log of it takes: index, removals, filter, buffers of directories.
  std::uint64_t host_bytes = 0;
  friend bool operator==(const DiskGeometry&, const DiskGeometry&) = default;
};

}  // namespace tiercel
