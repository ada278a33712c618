#include "os/numa.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "os/mapping.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kPagesPerMiB = kMiB / kSmallPageBytes;

// Several nodes where there is one: pages lie where the rule says, from the moment that it is set. What is
// touched before lies on node 0.
class SimulatedNodes final : public MappingCalls {
 public:
  explicit SimulatedNodes(std::vector<std::uint32_t> available) : available_(std::move(available)) {}

  SystemResult<int> create_file(bool hugetlb) const override {
    return hugetlb ? SystemResult<int>(tl::unexpected(ENODEV)) : linux_.create_file(false);
  }
  int size_and_seal(int fd, std::uint64_t bytes) const override { return linux_.size_and_seal(fd, bytes); }
  SystemResult<MappedRange> map(const MapRequest& request) const override {
    if (request.hugetlb) return tl::unexpected(ENOMEM);
    return linux_.map(request);
  }
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override {
    if (advice == Advice::kPopulateWrite && !rule_) touched_before_ = true;
    return linux_.advise(data, bytes, advice);
  }
  SystemResult<std::uint64_t> huge_bytes(const std::byte* data, std::uint64_t bytes) const override {
    return linux_.huge_bytes(data, bytes);
  }
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override {
    if (nodes_errno != 0) return tl::unexpected(nodes_errno);
    return available_;
  }
  int set_nodes(std::byte* data, std::uint64_t, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override {
    if (set_errno != 0) return set_errno;
    base_ = data;
    rule_ = rule;
    nodes_.assign(nodes.begin(), nodes.end());
    return 0;
  }
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
    if (ask_errno != 0) return tl::unexpected(ask_errno);
    std::vector<int> answers;
    for (const std::byte* page : pages) {
      const auto at = static_cast<std::uint64_t>(page - base_) / kSmallPageBytes;
      if (at < strayed)
        answers.push_back(static_cast<int>(stray_node));
      else if (at < strayed + silent)
        answers.push_back(-ENOENT);
      else
        answers.push_back(static_cast<int>(nodes_[at % nodes_.size()]));
    }
    return answers;
  }

  int nodes_errno = 0, set_errno = 0, ask_errno = 0;
  std::uint64_t strayed = 0, silent = 0;  // so many of the first pages
  std::uint32_t stray_node = 0;
  bool touched_before() const { return touched_before_; }
  std::optional<NodeRule> rule() const { return rule_; }
  const std::vector<std::uint32_t>& nodes() const { return nodes_; }

 private:
  LinuxMappingCalls linux_;
  std::vector<std::uint32_t> available_;
  mutable const std::byte* base_ = nullptr;
  mutable std::optional<NodeRule> rule_;
  mutable std::vector<std::uint32_t> nodes_;
  mutable bool touched_before_ = false;
};

// A folder of kernel files that a test writes.
class World {
 public:
  World() {
    std::string name = testing::TempDir() + "tiercel_numa_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  ~World() { std::filesystem::remove_all(root_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::FILE* file = std::fopen((root_ + path).c_str(), "wb");
    ASSERT_NE(file, nullptr);
    fmt::print(file, "{}", text);
    std::fclose(file);
  }
  MemoryLimits limits() const { return MemoryLimits(root_); }

 private:
  std::string root_;
};

Result<Mapping> open(const SimulatedNodes& calls, const NumaPlacement& numa,
                     MappingKind kind = MappingKind::kShared) {
  const World world;
  return Mapping::open({.kind = kind, .bytes = 4 * kMiB, .touch = {}, .numa = numa}, world.limits(), calls);
}

TEST(NumaText, RoundTripsAndRefusesEverythingElse) {
  for (const char* text : {"system", "interleave", "bind 0", "bind 7"}) {
    const auto placement = numa_from_text(text);
    ASSERT_TRUE(placement) << text;
    EXPECT_EQ(numa_text(*placement), text);
  }
  EXPECT_EQ(*numa_from_text("per_shard", 2, 8), (NumaPlacement{NumaMode::kPerShard, 0, 2, 8}));
  for (const char* text :
       {"", "bind", "bind ", "bind x", "bind 1x", "bind -1", "bind 99999999999", "Interleave", "node 1"}) {
    const auto placement = numa_from_text(text);
    ASSERT_FALSE(placement) << text;
    EXPECT_EQ(placement.error().code, Code::kInvalidArgument);
    EXPECT_THAT(placement.error().message, HasSubstr("numa: wanted"));
  }
}

TEST(NumaNodes, FollowFromThePlacement) {
  const std::vector<std::uint32_t> two = {0, 3};
  EXPECT_THAT(*nodes_of({}, two), ElementsAre(0, 3));
  EXPECT_THAT(*nodes_of({.mode = NumaMode::kInterleave}, two), ElementsAre(0, 3));
  EXPECT_THAT(*nodes_of({.mode = NumaMode::kBind, .node = 3}, two), ElementsAre(3));
  EXPECT_FALSE(nodes_of({.mode = NumaMode::kBind, .node = 1}, two));
  EXPECT_FALSE(nodes_of({.mode = NumaMode::kInterleave}, {}));
}

TEST(NumaNodes, NeighbouringShardsShareANodeAndEveryNodeGetsItsPart) {
  const std::vector<std::uint32_t> nodes = {0, 1, 2, 5};
  for (const std::uint32_t shards : {1U, 2U, 4U, 6U, 8U}) {
    std::map<std::uint32_t, std::uint32_t> count;
    std::uint32_t last = 0;
    for (std::uint32_t shard = 0; shard < shards; ++shard) {
      const auto got = nodes_of({NumaMode::kPerShard, 0, shard, shards}, nodes);
      ASSERT_TRUE(got);
      ASSERT_EQ(got->size(), 1U);
      EXPECT_GE(got->front(), last);
      last = got->front();
      ++count[last];
    }
    for (const auto& [node, times] : count) EXPECT_LE(times, (shards + 3) / 4) << node;
  }
  EXPECT_FALSE(nodes_of({NumaMode::kPerShard, 0, 2, 2}, nodes));
  EXPECT_FALSE(nodes_of({NumaMode::kPerShard, 0, 0, 0}, nodes));
}

TEST(NumaMapping, TheRuleIsSetBeforeAnyPageIsTouchedAndLookedAtAfterwards) {
  for (const MappingKind kind : {MappingKind::kShared, MappingKind::kAnonymous}) {
    const SimulatedNodes calls({0, 1});
    const auto mapping = open(calls, {.mode = NumaMode::kInterleave}, kind);
    ASSERT_TRUE(mapping) << mapping.error().message;
    EXPECT_EQ(calls.rule(), NodeRule::kInterleave);
    EXPECT_FALSE(calls.touched_before());
    const NumaReport& report = mapping->numa();
    EXPECT_TRUE(report.as_wanted());
    EXPECT_EQ(report.looked_at, 4 * kPagesPerMiB);
    EXPECT_THAT(report.found,
                ElementsAre(NumaReport::Share{0, 2 * kPagesPerMiB}, NumaReport::Share{1, 2 * kPagesPerMiB}));
    EXPECT_EQ(numa_report_text(report), "interleave over 0,1: 512 pages on 0, 512 pages on 1");
  }
}

TEST(NumaMapping, ABoundOneNamesItsOneNode) {
  const SimulatedNodes calls({0, 1, 2, 3});
  const auto mapping = open(calls, {NumaMode::kPerShard, 0, 5, 8});
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(calls.rule(), NodeRule::kBind);
  EXPECT_THAT(calls.nodes(), ElementsAre(2));
  EXPECT_TRUE(mapping->numa().as_wanted());
  EXPECT_THAT(mapping->numa().found, ElementsAre(NumaReport::Share{2, 1024}));
}

TEST(NumaMapping, PagesElsewhereAndPagesUnknownAreCounted) {
  SimulatedNodes calls({0, 1});
  calls.strayed = 3;
  calls.silent = 2;
  const auto mapping = open(calls, {.mode = NumaMode::kBind, .node = 1});
  ASSERT_TRUE(mapping);
  EXPECT_FALSE(mapping->numa().as_wanted());
  EXPECT_EQ(mapping->numa().misplaced, 3U);
  EXPECT_EQ(mapping->numa().unanswered, 2U);
  EXPECT_EQ(
      numa_report_text(mapping->numa()),
      "bind 1 over 1: 3 pages on 0, 1019 pages on 1; 3 of 1024 elsewhere than wanted; 2 of 1024 unknown");
}

TEST(NumaMapping, AKernelThatDoesNotSayIsReportedSo) {
  SimulatedNodes calls({0, 1});
  calls.ask_errno = EPERM;
  const auto mapping = open(calls, {.mode = NumaMode::kInterleave});
  ASSERT_TRUE(mapping);
  EXPECT_FALSE(mapping->numa().as_wanted());
  EXPECT_THAT(numa_report_text(mapping->numa()), HasSubstr("not verified (Operation not permitted)"));
}

TEST(NumaMapping, WhatCannotBeHadIsAnErrorAndNothingIsLeft) {
  SimulatedNodes calls({0, 2});
  const auto absent = open(calls, {.mode = NumaMode::kBind, .node = 1});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kInvalidArgument);
  EXPECT_THAT(absent.error().message, HasSubstr("wanted one of the nodes 0,2"));
  calls.set_errno = EPERM;
  const auto refused = open(calls, {.mode = NumaMode::kInterleave});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("to place it by nodes (interleave)"));
  calls.nodes_errno = ENOSYS;
  const auto none = open(calls, {.mode = NumaMode::kInterleave});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnsupported);
  EXPECT_TRUE(open(calls, {})) << "nobody asked for a placement";
}

TEST(NumaMapping, AFullNodeIsRefusedBeforeAnyIsTouched) {
  const World world;
  world.put("/sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal:  1048576 kB\nNode 1 MemFree:  1024 kB\nNode 1 Active(file):  2048 kB\n"
            "Node 1 Inactive(file):  512 kB\n");
  const SimulatedNodes calls({0, 1});
  const auto open_on = [&](std::uint32_t node) {
    return Mapping::open({MappingKind::kShared, 4 * kMiB, {}, {.mode = NumaMode::kBind, .node = node}},
                         world.limits(), calls);
  };
  const auto full = open_on(1);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kResourceExhausted);
  EXPECT_THAT(full.error().message, HasSubstr("node1/meminfo says that 2.5 MiB are free"));
  EXPECT_FALSE(calls.rule());
  EXPECT_TRUE(open_on(0)) << "a node that the kernel says nothing of limits nothing";
}

TEST(NumaSample, TurnsBetweenNodesAreSeenAlsoInASample) {
  class Turns final : public MappingCalls {
   public:
    SystemResult<int> create_file(bool) const override { return tl::unexpected(ENOSYS); }
    int size_and_seal(int, std::uint64_t) const override { return ENOSYS; }
    SystemResult<MappedRange> map(const MapRequest&) const override { return tl::unexpected(ENOSYS); }
    int advise(std::byte*, std::uint64_t, Advice) const override { return ENOSYS; }
    SystemResult<std::uint64_t> huge_bytes(const std::byte*, std::uint64_t) const override { return 0; }
    SystemResult<std::vector<std::uint32_t>> memory_nodes() const override { return std::vector{0U, 1U}; }
    int set_nodes(std::byte*, std::uint64_t, NodeRule, std::span<const std::uint32_t>) const override {
      return 0;
    }
    SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
      std::vector<int> nodes;
      for (const std::byte* page : pages)
        nodes.push_back(static_cast<int>(reinterpret_cast<std::uintptr_t>(page) / kSmallPageBytes % 2));
      return nodes;
    }
  };
  // Nothing is read there, so that the addresses may be anybody's.
  const ByteView all(reinterpret_cast<const std::byte*>(kMiB),  // NOLINT(performance-no-int-to-ptr)
                     (40ULL << 30) + 123);
  const std::vector<std::uint32_t> nodes = {0, 1};
  const NumaReport report = verify_placement(all, {.mode = NumaMode::kInterleave}, nodes, Turns());
  EXPECT_LE(report.looked_at, 1U << 18);
  ASSERT_EQ(report.found.size(), 2U);
  EXPECT_LE(std::max(report.found[0].pages, report.found[1].pages) -
                std::min(report.found[0].pages, report.found[1].pages),
            1U);
}

TEST(NumaOnThisMachine, RealPagesLieWhereTheyWereBound) {
  const LinuxMappingCalls calls;
  const auto nodes = calls.memory_nodes();
  if (!nodes) GTEST_SKIP() << "skipped: 1 case, this kernel has no memory nodes: errno " << nodes.error();
  ASSERT_FALSE(nodes->empty());
  for (const NumaPlacement& placement : {NumaPlacement{.mode = NumaMode::kBind, .node = nodes->back()},
                                         NumaPlacement{.mode = NumaMode::kInterleave}})
    for (const MappingKind kind : {MappingKind::kShared, MappingKind::kAnonymous}) {
      const auto mapping = Mapping::open({kind, 4 * kMiB, {}, placement});
      ASSERT_TRUE(mapping) << mapping.error().message;
      if (!mapping->numa().declined.empty())
        GTEST_SKIP() << "skipped: 1 case, the kernel does not say where pages lie: "
                     << mapping->numa().declined;
      EXPECT_TRUE(mapping->numa().as_wanted()) << numa_report_text(mapping->numa());
      fmt::print("numa: {}\n", numa_report_text(mapping->numa()));
    }
}

}  // namespace
}  // namespace tiercel
