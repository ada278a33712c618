// What a seed decides before the first step: which models, how large (tiny) everything is, which policies,
// and which faults of the world the run may suffer.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "disk/disk_options.h"
#include "model/spec.h"
#include "node/options.h"
#include "remote/test_store_twin.h"
#include "sim/drive.h"
#include "sim/world.h"

namespace tiercel::sim {

// Specs of runs of a node. Those of the disk log alone: disk_scenario.h.
struct SpecName {
  std::string_view name;
  std::string_view about;
};
std::span<const SpecName> spec_names();

struct ScenarioModel {
  ModelSpec spec;
  std::uint32_t adapters = 1;  // content identities opened under it
  std::string weights;         // models with equal weights have equal identities: other forms of one content
};

// What may go wrong outside the node in this run.
struct Weather {
  bool damage = false;         // stored bytes change
  bool device_errors = false;  // engine memory refuses reads and writes
  bool lost_events = false;    // the event queue is too short
  bool slow_copies = false;    // many copies are held back beyond their deadlines
  bool removals = false;       // pages are removed all the time
  bool clock_jumps = true;
};

// The disk below the node.
struct ScenarioDisk {
  std::uint64_t bytes = 0;
  DiskLogOptions log;
  DriveNature nature;
  bool troubled = false;  // errors, stalls and absences
  bool crashes = false;   // everything but the drive is lost now and then
};

// The store that the node shares with others.
struct ScenarioRemote {
  RemoteTierOptions tier;
  TwinNature nature;      // the node's way to it
  TwinNature neighbours;  // another node's
  bool troubled = false;  // it hangs and dies
  bool spoilt = false;    // objects are lost and damaged, markers too
  bool clears = false;    // namespaces are cleared while something of them is being stored
};

struct Scenario {
  std::string spec;
  std::vector<ScenarioModel> models;
  NodeOptions options;
  std::uint64_t arena_bytes = 0;
  SimExecutor::Options executor;
  Weather weather;
  bool mapped_arena = false;  // the arena of production; else plain bytes
  std::uint32_t readers = 0;  // of the index, in other processes
  std::uint32_t writers = 0;  // of reserved slots, in other processes
  std::optional<ScenarioDisk> disk;
  std::optional<ScenarioRemote> remote;
  std::uint32_t sessions = 3;
  std::uint32_t salts = 2;  // tenants among them
  bool quotas = false;      // namespaces with a minimum and a maximum of bytes
  std::uint64_t prompt_pages_max = 10;
  std::size_t branches = 3;      // of the tree of prompts, at each page
  bool history_complete = true;  // large enough to forget nothing in a run
};

// Requires: `spec` is one of spec_names(). Cost: nothing; the same for the same arguments, always.
Scenario make_scenario(std::string_view spec, std::uint64_t seed);
// The spec that a seed takes when none is named: any, of the disk log too.
std::string_view spec_of_seed(std::uint64_t seed);

}  // namespace tiercel::sim
