// Replays over a remote tier, in a folder as the store.
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "trace/generator.h"
#include "trace/replay.h"
#include "trace/report.h"

namespace tiercel {
namespace {

class ReplayRemote : public testing::Test {
 protected:
  ReplayRemote() {
    std::string name = (std::filesystem::temp_directory_path() / "tiercel-replay.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    options.spec = one_full_group();
    options.page_bytes = 256;
    options.capacity_pages = 300;
    options.remote.emplace();
    options.remote->address.url = "posix:" + (folder_ / "store").string();
    options.remote->tier.batch_deadline = std::chrono::seconds(60);  // however busy the machine is
  }
  ~ReplayRemote() override { std::filesystem::remove_all(folder_); }

  ReplayReport run() {
    const auto report = replay(trace, options);
    EXPECT_TRUE(report) << report.error().to_string();
    if (!report) return {};
    EXPECT_TRUE(report->good()) << report->corrupt_pages << " "
                                << (report->wrong.empty() ? "" : report->wrong.front());
    return *report;
  }
  std::uint64_t unlimited_hits() {
    ReplayOptions unlimited = options;
    unlimited.remote.reset();
    unlimited.restart_at.reset();
    unlimited.capacity_pages.reset();
    return replay(trace, unlimited).value().hit_pages;
  }

  Trace trace = generate({TraceKind::kConversation, 200, 3});
  ReplayOptions options;
  std::filesystem::path folder_;
};

TEST_F(ReplayRemote, ASmallMemoryHitsWhatUnlimitedMemoryHits) {
  const std::uint64_t unlimited = unlimited_hits();
  const ReplayReport first = run(), second = run();
  EXPECT_EQ(first.hit_pages, unlimited);
  EXPECT_GT(first.remote->hit_pages, 0U);
  EXPECT_GT(first.remote->tier.objects_read, 0U);
  EXPECT_EQ(second.hit_pages, first.hit_pages) << "what an earlier replay left is not hit";
}

TEST_F(ReplayRemote, AFreshNodeFindsEverythingInTheStore) {
  options.restart_at = 100;
  const ReplayReport report = run();
  EXPECT_EQ(report.hit_pages, unlimited_hits());
  EXPECT_EQ(report.restart.value().after_requests, 100U);
  EXPECT_EQ(report.restart->recovered_class_sets, 0U);
  EXPECT_GT(report.restart->hit_pages, 0U);
  EXPECT_NE(report_json(report).find("\"restart\":"), std::string::npos);
  EXPECT_NE(report_text(report, "t", "m", false).find("remote hits"), std::string::npos);
}

TEST_F(ReplayRemote, AWarmOneHitsAllThatAnotherStored) {
  run();
  options.remote->warm = true;
  const ReplayReport warm = run();
  EXPECT_EQ(warm.hit_pages, warm.pages);
  EXPECT_EQ(warm.remote->stored_class_sets, 0U);
}

TEST_F(ReplayRemote, ADiskAboveItIsAskedFirst) {
  ReplayDiskOptions& disk = options.disk.emplace();
  disk.path = (folder_ / "disk").string();
  disk.bytes = 32 << 20;
  disk.admission = DiskAdmission::kAll;
  options.restart_at = 100;
  const ReplayReport report = run();
  EXPECT_EQ(report.hit_pages, unlimited_hits());
  EXPECT_GT(report.disk->hit_pages, 0U);
  EXPECT_EQ(report.remote->hit_pages, 0U);
}

TEST_F(ReplayRemote, AStoreThatIsNotReadyIsNamed) {
  options.remote->address.url = "program:" + (folder_ / "nothing").string();
  const auto report = replay(trace, options);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kUnavailable);
  EXPECT_NE(report.error().message.find("No such file"), std::string::npos) << report.error().message;
}

TEST_F(ReplayRemote, OptionsThatContradictAreRefused) {
  options.remote->warm = true;
  options.disk.emplace().path = "x";
  EXPECT_EQ(check_options(options).code, Code::kInvalidArgument);
  options.disk.reset();
  options.remote.reset();
  options.restart_at = 5;
  EXPECT_EQ(check_options(options).code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace tiercel
