#include "trace/resume_points.h"

#include <gtest/gtest.h>

#include "model/resume_reference.h"

namespace tiercel {
namespace {

using Lengths = std::vector<std::uint64_t>;

TEST(ResumePoints, AtTheEndStandAtTheLastFullPage) {
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 0, {5, 4, 0, 0}), (Lengths{4}));
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 0, {5, 5, 2, 3}), (Lengths{5}));
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 0, {1, 0, 0, 0}), (Lengths{}));
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 0, {5, 4, 4, 4}), (Lengths{})) << "resumed there";
}

TEST(ResumePoints, AtABranchStandWhereTheRequestLeavesWhatIsKnown) {
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 0, {9, 8, 1, 3}), (Lengths{3, 8}));
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 0, {9, 8, 0, 0}), (Lengths{8})) << "nothing is known";
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 0, {8, 8, 0, 8}), (Lengths{8})) << "all of it is";
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 0, {9, 8, 3, 3}), (Lengths{8})) << "resumed at the branch";
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 0, {9, 8, 0, 8}), (Lengths{8}))
      << "only the partial page is new";
}

TEST(ResumePoints, ComeAtMultiplesToo) {
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 4, {11, 10, 0, 0}), (Lengths{4, 8, 10}));
  EXPECT_EQ(points_of(SnapshotRule::kBranch, 4, {13, 12, 4, 6}), (Lengths{6, 8, 12}));
  EXPECT_EQ(points_of(SnapshotRule::kAll, 0, {5, 4, 1, 2}), (Lengths{2, 3, 4}));
  EXPECT_EQ(points_of(SnapshotRule::kEnd, 64, {11, 10, 0, 0}), (Lengths{10}));
}

TEST(ResumePoints, TakeOnlyAdviceThatCanBeFollowed) {
  const Lengths advised = {9, 2, 4, 4, 0};
  EXPECT_EQ(points_of(SnapshotRule::kAdvice, 0, {9, 8, 2, 3, advised}), (Lengths{4}));
  EXPECT_EQ(points_of(SnapshotRule::kAdvice, 6, {9, 8, 2, 3, advised}), (Lengths{4, 6}));
}

TEST(ResumePoints, HaveNames) {
  for (const char* name : {"end", "branch", "all", "advice"})
    EXPECT_EQ(snapshot_rule_name(*snapshot_rule_from_name(name)), name);
  EXPECT_FALSE(snapshot_rule_from_name("never").has_value());
}

// Records as "class:page", with * for a resume point.
std::string due_text(const StorageForm& form, const DueQuery& query) {
  std::string text;
  for (const DueRecord& due : due_records(form, query))
    text += (text.empty() ? "" : " ") + std::to_string(due.cls.value()) + ":" + std::to_string(due.page) +
            (due.resume_point ? "*" : "");
  return text;
}

TEST(DueRecords, GoRootFirstEachPageFollowedByWhatIsDueAtIt) {
  using resume_reference::form_of;
  using resume_reference::window_of_pages;
  const StorageForm form = form_of(512, {RequiredRetention{}, window_of_pages(512, 2), StateRetention{}});
  const Lengths points = {2, 4};
  EXPECT_EQ(due_text(form, {{5, 4, 0, 0}, points}), "0:0 0:1 2:1 1:1 1:0 0:2 0:3 2:3 1:3 1:2 0:4");
  const Lengths close = {3, 4};
  EXPECT_EQ(due_text(form, {{5, 4, 1, 4}, close}), "2:2 1:2 1:1 2:3 1:3 0:4")
      << "attached to pages that are known";
}

TEST(DueRecords, OfAModelWithoutAStateMarkTheirPoints) {
  using resume_reference::form_of;
  using resume_reference::window_of_pages;
  const StorageForm form = form_of(512, {RequiredRetention{}, window_of_pages(512, 2)});
  const Lengths points = {2};
  EXPECT_EQ(due_text(form, {{3, 2, 0, 0}, points}), "0:0 0:1 1:1* 1:0 0:2");
  EXPECT_EQ(due_text(form, {{3, 2, 0, 0}, {}, true}), "0:0 1:0 0:1 1:1 0:2 1:2");
  EXPECT_EQ(due_text(form, {{3, 2, 1, 2}, {}, true}), "1:1 0:2 1:2")
      << "windows that a known page may have lost";
}

}  // namespace
}  // namespace tiercel
