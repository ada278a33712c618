// What a seed decides before the first step of a run of the disk log alone: which forms and namespaces, how
// large (tiny) the drive is, its nature, the log's options.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disk/disk_log.h"
#include "disk/disk_options.h"
#include "model/storage_form.h"
#include "sim/drive.h"
#include "sim/scenario.h"

namespace tiercel::sim {

// "disk" and "disk_lying": runs of the log alone.
std::span<const SpecName> disk_spec_names();
bool is_disk_spec(std::string_view spec);

struct DiskScenario {
  bool lying = false;
  std::vector<StorageForm> forms;
  std::uint32_t spaces = 3;
  DiskLogOptions options;
  std::uint64_t drive_bytes = 0;
  DriveNature nature;
  bool troubled = false;   // errors, stalls and absences of the drive
  bool uniform = false;    // one namespace, one class: every segment is as long as the other
  bool crashes = false;    // else only orderly ends
  double removals = 0.03;  // share of steps
  std::uint64_t pages_max = 60;
};

DiskScenario make_disk_scenario(std::string_view spec, std::uint64_t seed);

}  // namespace tiercel::sim
