// Replays over a disk tier, on a small real file.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "disk/check.h"
#include "os/block_open.h"
#include "trace/generator.h"
#include "trace/replay.h"
#include "trace/report.h"

namespace tiercel {
namespace {

class ReplayDisk : public testing::Test {
 protected:
  ReplayDisk() {
    std::string name = (std::filesystem::temp_directory_path() / "tiercel-replay.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options.spec = one_full_group();
    options.page_bytes = 256;
    options.capacity_pages = 300;
    options.disk.emplace();
    options.disk->path = (folder_ / "cache").string();
    options.disk->bytes = 32 << 20;
    options.disk->admission = DiskAdmission::kAll;
  }
  ~ReplayDisk() override { std::filesystem::remove_all(folder_); }

  ReplayReport run() {
    const auto report = replay(trace, options);
    EXPECT_TRUE(report) << report.error().to_string();
    if (!report) return {};
    EXPECT_TRUE(report->good()) << report->corrupt_pages << " "
                                << (report->wrong.empty() ? "" : report->wrong.front());
    return *report;
  }
  ReplayReport run_unlimited() {
    ReplayOptions unlimited = options;
    unlimited.disk.reset();
    unlimited.capacity_pages.reset();
    return replay(trace, unlimited).value();
  }

  Trace trace = generate({TraceKind::kConversation, 200, 3});
  ReplayOptions options;

 private:
  std::filesystem::path folder_;
};

TEST_F(ReplayDisk, ALargeDiskHitsWhatUnlimitedMemoryHits) {
  const ReplayReport unlimited = run_unlimited(), first = run(), second = run();
  EXPECT_EQ(first.hit_pages, unlimited.hit_pages);
  EXPECT_GT(first.disk->hit_pages, 0U);
  EXPECT_EQ(second.hit_pages, first.hit_pages) << "what an earlier replay left is not hit";
  EXPECT_EQ(second.disk->hit_pages, first.disk->hit_pages);
  EXPECT_EQ(second.disk->log.class_sets, first.disk->log.class_sets);
}

TEST_F(ReplayDisk, AfterARestartInMidTraceItIsWarm) {
  const ReplayReport unlimited = run_unlimited();
  options.restart_at = 100;
  for (const WritePolicy policy :
       {WritePolicy::kWriteThrough, WritePolicy::kWriteThroughSelective, WritePolicy::kWriteBack}) {
    options.disk->write_policy = policy;
    const ReplayReport report = run();
    const ReplayRestart& restart = report.restart.value();
    EXPECT_EQ(restart.after_requests, 100U);
    EXPECT_GT(restart.hit_pages, 0U);
    EXPECT_EQ(restart.left_class_sets, 0U);
    EXPECT_GE(restart.recovered_class_sets, restart.resident_pages);
    if (policy == WritePolicy::kWriteThrough) {
      EXPECT_EQ(report.hit_pages, unlimited.hit_pages);
    }
  }
}

TEST_F(ReplayDisk, ItEndsWithACloseInOrder) {
  for (const WritePolicy policy : {WritePolicy::kWriteThrough, WritePolicy::kWriteBack}) {
    options.disk->write_policy = policy;
    const ReplayReport report = run();
    EXPECT_EQ(report.disk->closed_left, 0U);
    EXPECT_EQ(report.disk->closed_written > 0, policy == WritePolicy::kWriteBack);
    BlockDeviceOptions file;
    file.file.path = options.disk->path;
    file.file.read_only = true;
    const auto drive = open_block_device(file);
    ASSERT_TRUE(drive) << drive.error().to_string();
    const SteadyClock clock;
    const auto there = check_disk(*drive->device, clock, {});
    ASSERT_TRUE(there) << there.error().to_string();
    EXPECT_TRUE(there->closed);
    EXPECT_EQ(there->class_sets, report.disk->log.class_sets);
  }
}

TEST_F(ReplayDisk, ARestartThatIsNotReachedIsTold) {
  options.restart_at = trace.requests.size() - 1;
  EXPECT_TRUE(run().restart);
  for (const std::uint64_t at : {trace.requests.size(), trace.requests.size() + 1}) {
    options.restart_at = at;
    const ReplayReport report = run();
    EXPECT_FALSE(report.restart);
    EXPECT_EQ(report.restart_not_reached, at);
    EXPECT_NE(report_text(report, "t", "m", false).find("there were only 200"), std::string::npos);
    EXPECT_NE(report_json(report).find("\"restart_not_reached\":"), std::string::npos);
  }
}

TEST_F(ReplayDisk, HybridModelsComeBackWithStatesAndWindows) {
  const auto add = [&](GroupKind kind, std::uint32_t layer, std::uint64_t record_bytes) {
    Group group;
    group.kind = kind;
    group.need = Need::kSparse;
    group.layers = {layer};
    group.components = {{"bytes", {}, std::nullopt, record_bytes}};
    options.spec.groups.push_back(std::move(group));
  };
  add(WindowKind{1000}, 1, 1536);
  add(StateKind{}, 2, 5000);
  options.snapshots = SnapshotRule::kBranch;
  options.restart_at = 100;
  const ReplayReport report = run();
  EXPECT_GT(report.disk->hit_pages, 0U);
  EXPECT_GT(report.verified_snapshots, 0U);
}

TEST_F(ReplayDisk, TheReportNamesTheDiskOnlyWhereThereIsOne) {
  options.status = true;
  const ReplayReport report = run();
  const std::string json = report_json(report), text = report_text(report, "t", "m", false);
  for (const char* word : {"\"disk\"", "\"admission\":\"all\"", "\"status\""})
    EXPECT_NE(json.find(word), std::string::npos) << word;
  for (const char* word : {"disk hits", "oldest page", "budget"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
  const std::string without = report_json(run_unlimited());
  EXPECT_EQ(without.find("disk"), std::string::npos);
}

TEST_F(ReplayDisk, WhatCannotBeOpenedIsAnErrorAndLeavesNoFile) {
  options.disk->bytes = 64 << 10;
  EXPECT_FALSE(replay(trace, options));
  EXPECT_FALSE(std::filesystem::exists(options.disk->path));
  options.disk->bytes = 0;
  EXPECT_FALSE(replay(trace, options)) << "there is no file, and no size to make it";
  options.restart_at = 0;
  EXPECT_FALSE(check_options(options).ok());
}

}  // namespace
}  // namespace tiercel
