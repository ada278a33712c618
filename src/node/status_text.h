// What a node has and does, as a few lines for people: tiers, bytes, hits by tier, why pages missed.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "disk/disk_stats.h"
#include "node/audit.h"
#include "remote/remote_tier.h"

namespace tiercel {

// Lines, each ended. `disk`, `remote`: null: there is none.
std::string status_text(const Stats& stats, const DiskStats* disk, const RemoteTier* remote = nullptr);
// The lines of a disk alone that was opened to look at it: what its file says, and nothing that only a
// running cache knows.
std::string disk_file_text(const DiskStats& disk);

}  // namespace tiercel
