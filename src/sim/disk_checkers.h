// The checkers of a run of the disk log alone. Some of what is broken shows only while an action or an event
// is worked through; that was complained of already, under the checker's name.
//
// Threads: one thread.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "sim/disk_scene.h"
#include "sim/simulation.h"

namespace tiercel::sim {

struct DiskChecker {
  std::string_view name;
  void (*look)(DiskScene& scene);  // null: complaints only
};

// The drive is used as it may be: within its bounds, no write under another, no memory changed under a write.
void check_disk_drive(DiskScene& scene);
// Each append and read ends exactly once, and its memory is touched no more.
void check_disk_ends(DiskScene& scene);
// Nothing older than a removal is found: of the page, of one above it, of its namespace, of its form. And
// what is found is there, what is there is found.
void check_disk_found(DiskScene& scene);
// What is read back is what was appended, whole, of one computation.
void check_disk_bytes(DiskScene& scene);
// What was promised durable is.
void check_disk_durable(DiskScene& scene);
// Queues are bounded.
void check_disk_bounds(DiskScene& scene);
// Figures agree with the drive's, with what is found, with each other.
void check_disk_stats(DiskScene& scene);

// In the order in which they are asked: what is broken at the root first.
std::span<const DiskChecker> disk_checkers();
// Asks all; what the first one has to say.
std::optional<Caught> ask_disk_checkers(DiskScene& scene);

}  // namespace tiercel::sim
