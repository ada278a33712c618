// The disk below a simulated node: a drive that keeps what it keeps when everything else is lost, and the
// life after a crash of all else.
//
// Threads: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "disk/disk_log.h"
#include "sim/drive.h"
#include "sim/scene.h"

namespace tiercel::sim {

// The disk of a scene.
struct SceneDisk {
  std::unique_ptr<SimDrive> drive;
  std::unique_ptr<DiskLog> log;
  std::map<OperationId, std::map<std::pair<PageId, ClassId>, Computation>>
      descending;  // class-sets of stores
  std::map<OperationId, std::uint32_t>
      lower;  // stores that asked to hear of the disk: bits of what they heard
  std::map<OperationId, Time> flushes;
  // What the node called durable, by its number in the log: another number is another, later copy.
  std::map<std::pair<PageId, ClassId>, std::uint64_t> promised;
  std::vector<std::string> wrong;  // seen outside of a step: at a restart
  std::uint64_t restarts = 0;
  bool unrecorded = false;  // a removal that the drive did not take: it may come back, so nothing dies now
};

// The number of a namespace in the scene's log.
DiskSpaceId disk_space_of(const Scene& scene, const Space& space);
// Classes of a page that the log can give, as it says itself, from the start of the page's chain.
Presence in_log(const Scene& scene, const PageId& page);
// Too, and what stands in memory for a page that is nowhere but there.
Presence found_below(const Scene& scene, const PageId& page);
// Its number there; nothing: it can not be given.
std::optional<std::uint64_t> born_in_log(const Scene& scene, const PageId& page, ClassId cls);

// Opens the drive's log. Requires: the scenario has a disk, and the scene no node.
Status open_scene_disk(Scene& scene);
// Everything but the drive is lost: with `power` also what the drive has not made durable. Then all of it is
// opened anew. What was promised durable and could be found before must be found after.
Status restart_scene(Scene& scene, bool power);

// -- actions --
void advance_drive(Scene& scene);  // a little time, and the node hears of what has ended
void trouble_drive(Scene& scene);
void flush_disk(Scene& scene);
// Nothing is under way between the node and its drive, and nobody waits for a flush.
bool disk_is_idle(const Scene& scene);
// Completions of the disk in this step.
void settle_disk(Scene& scene);

}  // namespace tiercel::sim
