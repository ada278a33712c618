// What a node has and does, as a few lines for people: tiers, bytes, hits by tier, why pages missed.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "disk/disk_stats.h"
#include "node/audit.h"

namespace tiercel {

// Lines, each ended. `disk`: null: there is none.
std::string status_text(const Stats& stats, const DiskStats* disk);
// The lines of the disk alone, as its log counts.
std::string disk_status_text(const DiskStats& disk);

}  // namespace tiercel
