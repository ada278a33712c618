// Everything of a run of the disk log alone: drive, clock, log, what is under way, and the simulator's own
// knowledge. The actions change it, the checkers only look.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "disk/disk_log.h"
#include "os/clock.h"
#include "sim/coverage.h"
#include "sim/disk_book.h"
#include "sim/disk_scenario.h"
#include "sim/drive.h"

namespace tiercel::sim {

struct DiskSpace {
  DiskSpaceName name;
  std::size_t form = 0;  // into DiskScenario::forms
  DiskSpaceId id;
  std::vector<std::size_t> pages;
};

// Records of a class-set, one for each shard, and how they are handed over in pieces.
struct DiskRecords {
  std::vector<std::vector<std::byte>> shards;
  std::vector<std::vector<BlockPiece>> pieces;
};

struct PendingAppend {
  std::size_t number = 0;  // in the book
  DiskRecords records;
};

struct PendingRead {
  DiskSet set;
  std::optional<std::size_t> expected;  // the append that was found when it was asked for
  std::uint64_t failed_before = 0;      // DriveCounts::failed and DiskStats::trips then
  DiskRecords records;
};

// What a read brought.
struct ReadSeen {
  DiskSet set;
  std::optional<std::size_t> expected;
  Status status;
  bool drive_failed = false;  // some operation has failed since it was asked for, or the tier was down
  bool verified = false;      // headers and checksums are those of this class-set, of one life
  std::optional<std::size_t> append;  // whose bytes they are, to the last one
};

struct DiskStepView {
  enum class Phase : std::uint8_t { kRunning, kQuiet };
  std::uint64_t step = 0;
  std::string action;
  std::string note;
  Phase phase = Phase::kRunning;
  std::vector<ReadSeen> reads;
  std::vector<std::size_t> touched;  // pages
  std::uint64_t events = 0;
  DiskBook::Found found;   // by an opening
  bool all_pages = false;  // the checkers look at every page, not only at some
};

struct DiskScene {
  DiskScene(DiskScenario of, std::uint64_t seed);
  ~DiskScene();  // the log before what it may still write from
  DiskScene(const DiskScene&) = delete;
  DiskScene& operator=(const DiskScene&) = delete;

  const ClassForm& class_form(const DiskSet& set) const;
  DiskName name_of(const DiskSet& set) const;
  std::optional<DiskSet> set_of(const DiskName& name) const;
  // Something that is broken, seen while an action or an event was worked through: the checker of that name
  // says it. The first one of each stays.
  void complain(std::string_view checker, std::string message);

  DiskScenario scenario;
  std::uint64_t seed;
  Prng prng;
  ManualClock clock;
  std::unique_ptr<SimDrive> drive;
  std::unique_ptr<DiskLog> log;  // null: between two openings
  bool made = false;             // there is a log on the drive
  bool read_only = false;
  DiskBook book;
  std::vector<DiskSpace> spaces;
  std::map<std::pair<std::size_t, Key>, std::size_t> page_of;  // by space and key
  std::map<DiskAppendId, PendingAppend> appends;
  std::map<DiskReadId, PendingRead> reads;
  std::vector<DiskRecords> graveyard;  // memory that was given back, poisoned: nobody may touch it
  std::map<std::string, std::string, std::less<>> complaints;
  std::uint64_t openings = 0;
  std::uint64_t weights_epoch = 0;
  std::uint64_t durable_told = 0;  // by the last kDurable of this opening
  std::uint64_t folded_seen = 0;
  // While an opening is judged: what leaves meanwhile.
  std::optional<std::vector<DiskSet>> leaving;
  DiskStepView view;
  Coverage coverage;
};

inline constexpr std::byte kPoison{0xDB};

// -- records (disk_records.cc) --
DiskRecords make_disk_records(DiskScene& scene, const DiskSet& set, Computation computation);
DiskRecords empty_disk_records(DiskScene& scene, const DiskSet& set);
DiskEntry disk_entry(DiskScene& scene, const DiskSet& set, const DiskRecords& records);
// Whose bytes they are.
void judge_records(const DiskScene& scene, const DiskRecords& records, ReadSeen& seen);
void bury(DiskScene& scene, DiskRecords records);
std::optional<std::string> graveyard_touched(DiskScene& scene);

// -- actions (disk_actions.cc): one step's doing; returns its name --
std::string act_on_disk(DiskScene& scene);
// Events into the book.
void collect_disk_events(DiskScene& scene);
bool start_disk_read(DiskScene& scene, const DiskSet& set);

// -- openings (disk_openings.cc) --
// The first one, and whenever there is no log.
std::string open_disk_log(DiskScene& scene);
enum class DiskEnd : std::uint8_t { kClosed, kDestroyed, kKilled, kPowerFailed };
// Ends this opening in that way and begins another; now and then the power fails again while it does.
std::string reopen_disk_log(DiskScene& scene, DiskEnd end);
// All that was accepted ends, all that can be found is read. Complains when it does not.
std::string be_quiet_on_disk(DiskScene& scene);
// Operations of the drive that failed or stalled and times that the tier went down, in this opening.
std::uint64_t failures(const DiskScene& scene);
// Classes found of every page of the path to `page`, from its start.
std::vector<Presence> find_disk_path(const DiskScene& scene, std::size_t page);

}  // namespace tiercel::sim
