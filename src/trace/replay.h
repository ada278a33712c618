// A request trace through the production node: every new page stored with bytes that follow from its key,
// every hit loaded and compared, a reason for every page that missed. Exactly contract §9.
//
// Threads: one thread; a replay runs its copies inline and its time is the trace's.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "index/policy.h"
#include "model/spec.h"
#include "node/reasons.h"
#include "trace/resume_points.h"
#include "trace/trace.h"

namespace tiercel {

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

// Errors: those of check_options; resource_exhausted when the longest request passes what --page-bytes
// allows; what the node says when it cannot be opened. Damage and wrong sums are no errors: they stand in the
// report.
Result<ReplayReport> replay(const Trace& trace, const ReplayOptions& options,
                            const ReplayProgress& progress = {});

}  // namespace tiercel
