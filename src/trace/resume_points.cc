#include "trace/resume_points.h"

#include <algorithm>
#include <array>

namespace tiercel {
namespace {

constexpr std::array<std::string_view, 4> kRuleNames = {"end", "branch", "all", "advice"};

void add_window_records(const ClassForm& cls, std::uint64_t point, std::uint64_t& covered, bool makes_point,
                        std::vector<DueRecord>& due) {
  const std::uint64_t reach = std::min(point, cls.window_pages());
  for (std::uint64_t page = point; page > std::max(point - reach, covered); --page)
    due.push_back({cls.id, page - 1, makes_point && page == point});
  covered = point;
}

}  // namespace

std::string_view snapshot_rule_name(SnapshotRule rule) { return kRuleNames[static_cast<std::size_t>(rule)]; }

std::optional<SnapshotRule> snapshot_rule_from_name(std::string_view name) {
  const auto at = std::find(kRuleNames.begin(), kRuleNames.end(), name);
  if (at == kRuleNames.end()) return std::nullopt;
  return static_cast<SnapshotRule>(at - kRuleNames.begin());
}

std::vector<std::uint64_t> points_of(SnapshotRule rule, std::uint64_t every, const PointQuery& query) {
  std::vector<std::uint64_t> points;
  if (rule == SnapshotRule::kAdvice) points.assign(query.advised.begin(), query.advised.end());
  if (rule == SnapshotRule::kEnd || rule == SnapshotRule::kBranch) points.push_back(query.full_pages);
  if (rule == SnapshotRule::kBranch && query.known_pages < query.pages) points.push_back(query.known_pages);
  const std::uint64_t step = rule == SnapshotRule::kAll ? 1 : every;
  if (step != 0)
    for (std::uint64_t length = (query.hit_pages / step + 1) * step; length <= query.full_pages;
         length += step)
      points.push_back(length);
  std::erase_if(points,
                [&](std::uint64_t length) { return length <= query.hit_pages || length > query.full_pages; });
  std::sort(points.begin(), points.end());
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

std::vector<DueRecord> due_records(const StorageForm& form, const DueQuery& query) {
  const bool has_state = std::any_of(form.classes.begin(), form.classes.end(),
                                     [](const ClassForm& cls) { return cls.is_state(); });
  std::vector<DueRecord> due;
  std::vector<std::uint64_t> covered(form.classes.size(),
                                     0);  // per window class: pages below are taken care of
  auto point = query.points.begin();
  for (std::uint64_t page = query.request.hit_pages; page < query.request.pages; ++page) {
    if (page >= query.request.known_pages)
      for (const ClassForm& cls : form.classes)
        if (cls.required() || cls.optional()) due.push_back({cls.id, page});
    if (query.all_windows)
      for (const ClassForm& cls : form.classes)
        if (cls.is_window()) due.push_back({cls.id, page});
    if (point == query.points.end() || *point != page + 1) continue;
    for (const ClassForm& cls : form.classes)
      if (cls.is_state()) due.push_back({cls.id, page});
    for (const ClassForm& cls : form.classes)
      if (cls.is_window() && !query.all_windows)
        add_window_records(cls, *point, covered[cls.id.value()], !has_state, due);
    ++point;
  }
  return due;
}

}  // namespace tiercel
