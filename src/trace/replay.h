// A request trace through the production node: every new page stored with bytes that follow from its key,
// every hit loaded and compared, a reason for every page that missed. Exactly contract §9.
//
// Threads: one thread; a replay runs its copies inline and its time is the trace's. A remote store has time
// of its own, and threads or a process.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "disk/disk_options.h"
#include "disk/disk_stats.h"
#include "index/policy.h"
#include "model/spec.h"
#include "node/options.h"
#include "node/reasons.h"
#include "remote/open_store.h"
#include "remote/remote_options.h"
#include "remote/remote_stats.h"
#include "trace/resume_points.h"
#include "trace/trace.h"

namespace tiercel {

std::string_view write_policy_name(WritePolicy policy);  // "write_through_selective"

// A disk tier below, really on a file or drive. What it held of replays before is cleared first.
struct ReplayDiskOptions {
  std::string path;
  std::uint64_t bytes = 0;  // on the drive: headers, and page_bytes of each record at most; 0: as it is
  DiskAdmission admission = DiskAdmission::kAuto;
  WritePolicy write_policy = WritePolicy::kWriteThrough;
};

// A remote tier below memory and disk, really in a store. Trace time stands still while the store works,
// whose own limits are in real time.
struct ReplayRemoteOptions {
  StoreAddress address;
  RemoteTierOptions tier;
  bool warm = false;  // what earlier replays left there is hit; else it is cleared first
  Duration wait_ready = std::chrono::seconds(15);  // for a connector, whenever it is opened
};

struct ReplayOptions {
  ModelSpec spec;  // pages of kTraceBlockTokens; several ranks are taken as one of them
  PolicyKind policy = PolicyKind::kLru;
  std::optional<std::uint64_t> capacity_pages;
  std::optional<std::uint64_t> host_bytes;  // the model's payload bytes of resident records
  std::optional<SnapshotRule> snapshots;    // default: `end`; with windows and no state `all`
  std::optional<std::uint64_t> snapshot_every;
  std::optional<std::uint64_t> snapshot_budget;
  std::uint64_t page_bytes = 4096;  // of each record's payload that really exist
  bool bound = false;
  std::optional<ReplayDiskOptions> disk;
  std::optional<ReplayRemoteOptions> remote;
  // After so many requests, before the next one, the cache is closed and opened again; needs a disk or a
  // store.
  std::optional<std::uint64_t> restart_at;
  bool status = false;                      // the report has the node's own, too
  const std::atomic<bool>* stop = nullptr;  // once true the replay ends in good order, as cancelled
};

// One full group of 2,048 bytes a token: what a replay without a model uses.
ModelSpec one_full_group();

// The rule that holds when options.snapshots names none, or the one it names.
SnapshotRule snapshot_rule_of(const ReplayOptions& options);
// Whether each page keeps its window records, resume point or not: `all` of a model with windows and no
// state.
bool keeps_all_windows(const ReplayOptions& options);

// Errors: invalid_argument, naming the option, where options contradict each other or the model.
Status check_options(const ReplayOptions& options);

// What a restart in mid-trace did.
struct ReplayRestart {
  std::uint64_t after_requests = 0;
  std::uint64_t resident_pages = 0;                           // that the host tier lost
  std::uint64_t written_class_sets = 0, left_class_sets = 0;  // on closing; not written
  std::uint64_t recovered_class_sets = 0;
  double close_seconds = 0, open_seconds = 0;
  std::uint64_t pages = 0, hit_pages = 0;  // of the requests after it
};
struct ReplayDiskReport {
  std::string admission, write_policy;
  std::uint64_t closed_written = 0, closed_left = 0;  // class-sets of the write-down at the end
  std::uint64_t hit_pages = 0;  // of which something was brought up for the request that hit them
  std::uint64_t brought_pages = 0;
  std::uint64_t stored_class_sets = 0, refused_class_sets = 0;
  std::uint64_t promoted_class_sets = 0;
  DiskStats log;  // of the last opening, as it was closed
};
struct ReplayRemoteReport {
  std::string address;          // without a password
  std::uint64_t hit_pages = 0;  // of which something came from there for the request that hit them
  std::uint64_t brought_pages = 0;
  std::uint64_t stored_class_sets = 0, refused_class_sets = 0, promoted_class_sets = 0;
  RemoteStats tier;                     // of all openings; what is said of now: of the last one
  std::uint64_t starts = 0, kills = 0;  // of the connector's process
};

struct ReplayReport {
  std::string policy, snapshots;
  std::uint64_t snapshot_every = 0;  // 0: none
  std::uint64_t skipped_lines = 0;
  std::optional<std::uint64_t> bound_hit_pages;
  std::uint64_t requests = 0, pages = 0, hit_pages = 0;
  std::uint64_t tokens = 0, hit_tokens = 0;
  std::array<std::uint64_t, kReasonCount> missed{};  // pages
  std::uint64_t stored_pages = 0, evicted_pages = 0, resident_pages = 0;
  std::uint64_t snapshots_made = 0, snapshots_evicted = 0;
  std::uint64_t page_bytes = 0;      // the model's: required records of one page
  std::uint64_t snapshot_bytes = 0;  // of one snapshot
  std::uint64_t window_bytes = 0;    // window records of one page
  std::uint64_t resident_bytes = 0, peak_bytes = 0, fragmentation_bytes = 0;
  std::uint64_t verified_pages = 0, verified_snapshots = 0, corrupt_pages = 0;
  std::uint64_t compared_bytes = 0;  // of hits, byte for byte
  double seconds = 0;
  std::optional<ReplayDiskReport> disk;
  std::optional<ReplayRemoteReport> remote;
  std::optional<ReplayRestart> restart;
  std::optional<std::uint64_t> restart_not_reached;  // asked for after so many, and none came behind them
  std::string status;                                // when it was asked for
  // What does not add up; empty in a good replay.
  std::vector<std::string> wrong;
  double hit_ratio() const {
    return pages == 0 ? 0 : static_cast<double>(hit_pages) / static_cast<double>(pages);
  }
  double pages_per_second() const { return seconds > 0 ? static_cast<double>(pages) / seconds : 0; }
  bool good() const { return corrupt_pages == 0 && wrong.empty(); }
};

// Called after each request with the number done and what has come of it so far.
using ReplayProgress = std::function<void(std::uint64_t done, const ReplayReport& so_far)>;

// A disk is closed in order at the end, what is resident written down; so is a remote store.
// Errors: those of check_options; cancelled: stopped; what the disk says when it cannot be opened;
// unavailable: the remote store is not ready in time, or has not confirmed that it is cleared;
// resource_exhausted when the longest request passes what --page-bytes allows; what the node says when it
// cannot be opened. Damage and wrong sums are no errors: they stand in the report.
Result<ReplayReport> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayProgress& progress = {});

}  // namespace tiercel
