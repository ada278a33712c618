// At which lengths of a request a replay makes resume points (snapshots; for models with windows and no
// state, window points), and in which order a request's records are stored.
//
// Threads: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/storage_form.h"

namespace tiercel {

enum class SnapshotRule : std::uint8_t {
  kEnd,     // the last full page
  kBranch,  // that, and where the request leaves what is known
  kAll,     // each full page
  kAdvice,  // what the node advises
};
std::string_view snapshot_rule_name(SnapshotRule rule);  // "end"
std::optional<SnapshotRule> snapshot_rule_from_name(std::string_view name);

struct PointQuery {
  std::uint64_t pages = 0;                      // of the request, a partial last one included
  std::uint64_t full_pages = 0;                 // without it
  std::uint64_t hit_pages = 0;                  // the engine resumes there: it computes nothing before
  std::uint64_t known_pages = 0;                // longest prefix whose required records are there
  std::span<const std::uint64_t> advised = {};  // for kAdvice
};
// Ascending lengths in (hit_pages, full_pages]. `every` adds its multiples; 0 = none.
std::vector<std::uint64_t> points_of(SnapshotRule rule, std::uint64_t every, const PointQuery& query);

// One record to store.
struct DueRecord {
  ClassId cls;
  std::uint64_t page = 0;
  bool resume_point = false;  // window record that makes its page a window point (models without a state)
  friend bool operator==(const DueRecord&, const DueRecord&) = default;
};
struct DueQuery {
  PointQuery request;
  std::span<const std::uint64_t> points;
  bool all_windows = false;  // each page keeps its windows, whatever the points
};
// In order of storing: pages root first, each page's required and optional records, then what is due at it.
// That is, where a resume point ends with it, the snapshot, then the window records from the page backwards
// that no earlier point brought. Required records only from known_pages on.
std::vector<DueRecord> due_records(const StorageForm& form, const DueQuery& query);

}  // namespace tiercel
