// Verification of a whole log without changing a byte: what an opening would find, and every record on the
// drive against its checksums.
//
// Threads: pure functions and plain values.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "disk/disk_log.h"
#include "disk/disk_options.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel {

struct DiskCheckOptions {
  bool verify_records = true;        // else what is read is what an opening reads, and footers
  std::uint64_t damages_max = 1000;  // listed one by one; more are only counted
  Duration stall_after = std::chrono::seconds(30);
  // Called now and then with regions done and all; may be empty.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

struct DiskDamage {
  std::uint64_t offset = 0;  // in the drive, of the class-set's first byte
  DiskName name;
  bool found = false;  // an opening finds it there: a read of it would be a miss, and is counted as damage
  std::string why;
};

struct DiskCheckReport {
  DiskGeometry geometry;
  std::string uuid;  // 32 digits
  std::uint64_t epoch = 0;
  bool closed = false;  // in order
  std::uint64_t last_at = 0;

  struct Part {
    bool there = false;  // it is not blank
    std::string damage;  // why it is not whole; empty: in order, or there was none yet
  };
  std::array<Part, 2> superblocks, images;
  std::optional<std::uint32_t> image;  // that an opening would read

  struct Space {
    DiskSpaceId id;
    DiskSpaceName name;
    std::uint64_t class_sets = 0, bytes = 0;  // that an opening finds
  };
  std::vector<Space> spaces;
  std::uint64_t class_sets = 0, bytes = 0;  // of all of them
  // Where an opening reads them. No parts of a sum: a class-set may stand in several of them, or be gone
  // since.
  std::uint64_t from_image = 0, from_footers = 0, from_tail = 0;
  std::uint64_t removals = 0;

  std::uint64_t regions_used = 0, regions_with_footer = 0, regions_without_footer = 0;
  std::vector<std::string> notes;  // regions without a readable footer or header, and why; refused segments

  bool records_read = false;                       // else the five below are 0
  std::uint64_t verified = 0, verified_bytes = 0;  // class-sets whose records are whole, found or not
  std::uint64_t headers_only = 0;                  // of those: no run lengths were known
  std::uint64_t damaged = 0;                       // of all that stands in footers and directories
  std::uint64_t damaged_found = 0;                 // of those: an opening finds them
  std::vector<DiskDamage> damages;

  // Nothing that an opening finds or needs is damaged, as far as it was read. One superblock of two is
  // enough.
  bool in_order() const;
};

// Errors: failed_precondition: no log there, or one of another version; io_error; resource_exhausted.
// Cost: reads everything that class-sets take.
Result<DiskCheckReport> check_disk(BlockDevice& drive, const Clock& clock, const DiskCheckOptions& options);

}  // namespace tiercel
