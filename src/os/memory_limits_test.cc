#include "os/memory_limits.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/prng.h"
#include "os/test_machine.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr MemorySource kPrivate{};
constexpr MemorySource kMemfd{.shared = true};
constexpr MemorySource kPool{.hugetlb = true};

// A machine made of files.
class Tree : public FileTree {
 public:
  Tree& file(const std::string& path, std::string_view text) {
    write(path, text);
    return *this;
  }
  Tree& available(std::uint64_t bytes) {
    return file("/proc/meminfo",
                fmt::format("MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   {} kB\n", bytes / 1024));
  }
  // This process in `group` of a v2 hierarchy, or of the v1 memory hierarchy beside an empty v2 one.
  Tree& v2(std::string_view group) {
    return file("/proc/self/cgroup", fmt::format("0::{}\n", group))
        .file("/proc/self/mountinfo",
              "22 27 0:21 / /proc rw shared:5 - proc proc rw\n"
              "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  Tree& v1(std::string_view group, std::string_view mount_root = "/") {
    return file("/proc/self/cgroup",
                fmt::format("5:cpu,cpuacct:/x\n4:memory:{}\n1:hugetlb:/h\n0::/\n", group))
        .file("/proc/self/mountinfo",
              fmt::format("32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
                          "35 31 0:32 {} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                          "36 31 0:33 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n"
                          "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                          mount_root));
  }

  MemoryRoom room(MemorySource source = kPrivate) const {
    const auto found = MemoryLimits(root()).room(source);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(MemoryRoom{});
  }
};

TEST(MemoryLimits, AMachineThatSaysNothingLimitsNothing) {
  Tree tree;
  EXPECT_EQ(tree.room().bytes, UINT64_MAX);
  EXPECT_EQ(MemoryLimits(tree.root()).check(kMemfd, 1ULL << 50), Status{});
}

TEST(MemoryLimits, WhatTheMachineHasAvailableIsALimit) {
  Tree tree;
  tree.available(3 * kGiB);
  EXPECT_EQ(tree.room().bytes, 3 * kGiB);
  tree.file("/proc/meminfo", "MemFree:        2097152 kB\n");
  EXPECT_EQ(tree.room().bytes, 2 * kGiB) << "kernels without an estimate: what is free";
}

TEST(MemoryLimits, ARefusalSaysWhatWhereWantedGotAndTheRemedy) {
  Tree tree;
  tree.available(64 * kGiB).v2("/pod/engine");
  tree.file("/sys/fs/cgroup/pod/memory.max", "8589934592\n")
      .file("/sys/fs/cgroup/pod/memory.current", "2147483648\n");
  const Status refused = MemoryLimits(tree.root()).check(kMemfd, 16 * kGiB);
  EXPECT_EQ(refused.code, Code::kResourceExhausted);
  EXPECT_EQ(refused.message,
            "memory: the cgroup limit /sys/fs/cgroup/pod/memory.max is 8 GiB, of which 2 GiB are in use: "
            "wanted 16 GiB "
            "(16.0 GiB with page tables and reserve), got 6 GiB; ask for less, or raise that limit");
  EXPECT_EQ(MemoryLimits(tree.root()).check(kMemfd, 5 * kGiB), Status{});
}

TEST(MemoryLimits, EveryAncestorOfTheGroupCounts) {
  Tree tree;
  tree.available(64 * kGiB).v2("/a/b/c");
  tree.file("/sys/fs/cgroup/a/b/c/memory.max", "9000000000\n").file("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(tree.room().bytes, 9000000000U);
  tree.file("/sys/fs/cgroup/a/memory.max", "4294967296")
      .file("/sys/fs/cgroup/a/memory.current", "4294967290");
  EXPECT_EQ(tree.room().bytes, 6U);
  tree.file("/sys/fs/cgroup/memory.max", "5");
  EXPECT_EQ(tree.room().bytes, 5U) << "the group that is mounted, too";
}

TEST(MemoryLimits, PageCacheIsRoomInPart) {
  Tree tree;
  tree.v2("/a");
  tree.file("/sys/fs/cgroup/a/memory.max", "1000000")
      .file("/sys/fs/cgroup/a/memory.current", "900000")
      .file("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nactive_file 40000\n");
  EXPECT_EQ(tree.room().bytes, 100000U + 100000U + 20000U);
  tree.file("/sys/fs/cgroup/a/memory.stat", "inactive_file 99999999999\nactive_file 99999999999\n");
  EXPECT_EQ(tree.room().bytes, 1000000U) << "never more than the limit";
}

TEST(MemoryLimits, TheThrottlingLimitCountsToo) {
  Tree tree;
  tree.v2("/a");
  tree.file("/sys/fs/cgroup/a/memory.max", "1000000").file("/sys/fs/cgroup/a/memory.high", "600000");
  EXPECT_EQ(tree.room().bytes, 600000U);
  EXPECT_THAT(tree.room().where, testing::HasSubstr("/sys/fs/cgroup/a/memory.high"));
}

TEST(MemoryLimits, VersionOneIsReadBesideAnEmptyVersionTwo) {
  Tree tree;
  tree.available(64 * kGiB).v1("/pod/engine");
  tree.file("/sys/fs/cgroup/memory/pod/engine/memory.limit_in_bytes", "9223372036854771712\n")
      .file("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", "3000000\n")
      .file("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "2500000\n")
      .file("/sys/fs/cgroup/memory/pod/memory.stat",
            "inactive_file 0\nactive_file 0\nhierarchical_memory_limit 3000000\n"
            "total_inactive_file 1000000\ntotal_active_file 500000\n");
  EXPECT_EQ(tree.room().bytes, 500000U + 1000000U + 250000U);
  EXPECT_THAT(tree.room().where, testing::HasSubstr("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes"));
}

TEST(MemoryLimits, ALimitOfHiddenAncestorsIsSeen) {
  Tree tree;
  tree.v1("/docker/abc", "/docker/abc");
  tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
      .file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n")
      .file("/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 5000\n");
  EXPECT_EQ(tree.room().bytes, 4000U);
  EXPECT_THAT(tree.room().where, testing::HasSubstr("memory.stat (hierarchical_memory_limit)"));
}

TEST(MemoryLimits, AContainersOwnViewIsFollowed) {
  const std::string below = "/sys/fs/cgroup/memory/sub/memory.limit_in_bytes";
  for (const auto& [group, root, file] :
       {std::tuple("/docker/abc/sub", "/docker/abc", below.c_str()),
        std::tuple("/docker/abcd", "/docker/abc", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        std::tuple("/../../x", "/", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        std::tuple("/gone/away", "/", "/sys/fs/cgroup/memory/memory.limit_in_bytes")}) {
    Tree tree;
    tree.v1(group, root).file(file, "77");
    for (const char* elsewhere :
         {"/sys/fs/cgroup/memoryd", "/sys/fs/x"})  // what a careless path would lead to
      tree.file(std::string(elsewhere) + "/memory.limit_in_bytes", "5");
    EXPECT_EQ(tree.room().bytes, 77U) << group << " seen at " << root;
  }
}

TEST(MemoryLimits, PathsWithSpacesAreRead) {
  Tree tree;
  tree.file("/proc/self/cgroup", "0::/my pod\n")
      .file("/proc/self/mountinfo", "31 23 0:28 / /sys/cg\\040two rw - cgroup2 cgroup2 rw\n")
      .file("/sys/cg two/my pod/memory.max", "4096\n");
  EXPECT_EQ(tree.room().bytes, 4096U);
}

TEST(MemoryLimits, NumbersTooLargeToHoldAreNoLimit) {
  Tree tree;
  tree.available(7 * kGiB).v2("/a").file("/sys/fs/cgroup/a/memory.max", "99999999999999999999999999\n");
  EXPECT_EQ(tree.room().bytes, 7 * kGiB);
  tree.file("/proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
  EXPECT_EQ(tree.room().bytes, UINT64_MAX);
}

TEST(MemoryLimits, SomethingElseThanANumberIsAnErrorOfOneLine) {
  for (const char* text : {"banana", "", "-5", "0x10", "1 2 3\n4", "12\xff\x01\n", "-"}) {
    Tree tree;
    tree.v2("/a").file("/sys/fs/cgroup/a/memory.max", text);
    const auto room = MemoryLimits(tree.root()).room(kPrivate);
    ASSERT_FALSE(room) << text;
    EXPECT_EQ(room.error().code, Code::kIoError);
    EXPECT_THAT(room.error().message, testing::HasSubstr("/sys/fs/cgroup/a/memory.max"));
    for (const char c : room.error().message) EXPECT_TRUE(c >= ' ' && c <= '~');
    EXPECT_EQ(MemoryLimits(tree.root()).check(kPrivate, 1).code, Code::kIoError);
  }
}

TEST(MemoryLimits, MoreInUseThanAllowedIsNoRoom) {
  Tree tree;
  tree.v2("/a").file("/sys/fs/cgroup/a/memory.max", "100").file("/sys/fs/cgroup/a/memory.current", "300");
  EXPECT_EQ(tree.room().bytes, 0U);
}

TEST(MemoryLimits, StrictOvercommitLimitsWhatIsPromised) {
  Tree tree;
  tree.file("/proc/meminfo", "MemAvailable: 9000 kB\nCommitLimit:  5000 kB\nCommitted_AS: 1000 kB\n");
  EXPECT_EQ(tree.room().bytes, 9000 * 1024UL);
  tree.file("/proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(tree.room().bytes, 4000 * 1024UL);
}

TEST(MemoryLimits, TheProcessesOwnLimitsCount) {
  Tree tree;
  tree.file("/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            "Max file size             5000                 unlimited            bytes     \n"
            "Max address space         9000                 unlimited            bytes     \n")
      .file("/proc/self/status", "Name:\tx\nVmSize:\t       4 kB\n");
  EXPECT_EQ(tree.room(kMemfd).bytes, 4904U);
  EXPECT_EQ(tree.room(kPrivate).bytes, 4904U);
  tree.file("/proc/self/status", "VmSize:\t       1 kB\n");
  EXPECT_EQ(tree.room(kMemfd).bytes, 5000U) << "a memfd is a file";
  EXPECT_EQ(tree.room(kPrivate).bytes, 9000U - 1024U);
}

TEST(MemoryLimits, HugetlbPagesComeFromTheirPoolAndNotFromOrdinaryMemory) {
  Tree tree;
  tree.available(kMiB);
  EXPECT_EQ(tree.room(kPool).bytes, 0U) << "a kernel without them";
  tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "512\n")
      .file("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "12\n");
  EXPECT_EQ(tree.room(kPool).bytes, 1000 * kMiB);
  EXPECT_EQ(MemoryLimits(tree.root()).check(kPool, 1000 * kMiB), Status{}) << "exactly all of it";
  EXPECT_EQ(MemoryLimits(tree.root()).check(kPool, 1000 * kMiB + 1).code, Code::kResourceExhausted);
  tree.v1("/x").file("/sys/fs/cgroup/hugetlb/h/hugetlb.2MB.limit_in_bytes", "4194304\n");
  EXPECT_EQ(tree.room(kPool).bytes, 4 * kMiB);
}

TEST(MemoryLimits, PageTablesAndAReserveAreNeededTooAndNeverWrap) {
  EXPECT_EQ(MemoryLimits::needed_bytes(kPrivate, kGiB), kGiB + kGiB / 512 + 16 * kMiB);
  EXPECT_EQ(MemoryLimits::needed_bytes(kPool, kGiB), kGiB);
  EXPECT_EQ(MemoryLimits::needed_bytes(kMemfd, UINT64_MAX - 5), UINT64_MAX);
}

TEST(MemoryLimits, ThisMachineHasAnAnswer) {
  const auto room = MemoryLimits().room(kMemfd);
  ASSERT_TRUE(room) << room.error().message;
  EXPECT_GT(room->bytes, kMiB);
  EXPECT_LT(room->bytes, 1ULL << 60) << "some limit is always there";
  EXPECT_FALSE(room->where.empty());
  EXPECT_EQ(MemoryLimits().check(kMemfd, UINT64_MAX).code, Code::kResourceExhausted);
}

TEST(MemoryLimits, AnyBytesInThoseFilesAreAnAnswerOrAnError) {
  const std::string alphabet = "0123456789:,/ -\n\tmaxcgroup2memory\\040.kB";
  Tree tree;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Prng random(seed);
    tree.v2("/a");
    for (const char* path :
         {"/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/proc/self/limits",
          "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.stat"}) {
      if (random.below(2) == 0) continue;
      std::string text;
      for (std::uint64_t i = random.below(200); i > 0; --i) text += alphabet[random.below(alphabet.size())];
      tree.file(path, text);
    }
    const Status answer = MemoryLimits(tree.root()).check(kMemfd, 4096);
    EXPECT_EQ(answer.message.find('\n'), std::string::npos) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tiercel
