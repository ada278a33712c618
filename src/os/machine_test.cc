#include "os/machine.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "os/test_machine.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kGiB = 1ULL << 30;

// A folder of its own; with files in it, a machine made of files.
class Tree : public FileTree {
 public:
  Tree& file(const std::string& path, std::string_view text) {
    write(path, text);
    return *this;
  }
  Tree& pool(std::string_view size, int total, int free_pages, int reserved) {
    const std::string folder = fmt::format("/sys/kernel/mm/hugepages/hugepages-{}/", size);
    return file(folder + "nr_hugepages", fmt::format("{}\n", total))
        .file(folder + "free_hugepages", fmt::format("{}\n", free_pages))
        .file(folder + "resv_hugepages", fmt::format("{}\n", reserved));
  }
  Tree& setting(const std::string& name, std::string_view words) {
    return file("/sys/kernel/mm/transparent_hugepage/" + name, words);
  }
};

// A system of which everything can be said.
class StagedCalls final : public MachineCalls {
 public:
  SystemResult<LockLimit> lock_limit() const override { return limit; }
  int try_lock(std::uint64_t bytes) const override {
    locked_bytes = bytes;
    return lock_errno;
  }
  SystemResult<FileSystem> file_system(const std::string& folder) const override {
    asked += folder + " ";
    return FileSystem{.total_bytes = 3, .free_bytes = 2, .type = 1};
  }
  int try_io_uring() const override { return io_uring_errno; }
  int try_pidfd() const override { return pidfd_errno; }
  DirectTrial try_direct(const std::string& folder) const override {
    asked += folder + " ";
    return {.alignment_bytes = 512};
  }
  CpuFeatures cpu() const override { return {.avx2 = true}; }
  CudaDriver cuda() const override { return {.devices = 5}; }

  SystemResult<LockLimit> limit = LockLimit{8 * kMiB, 9 * kMiB};
  int lock_errno = 0, io_uring_errno = 0, pidfd_errno = 0;
  mutable std::uint64_t locked_bytes = 0;
  mutable std::string asked;
};

// Linux, except that it says itself by which rungs the pages of a mapping are huge. Hugetlb memory is
// ordinary memory here.
class StagedMappings final : public MappingCalls {
 public:
  SystemResult<int> create_file(bool hugetlb) const override {
    if (file_errno != 0 && !hugetlb) return tl::unexpected(file_errno);
    if (hugetlb && !by_hugetlb) return tl::unexpected(ENOMEM);
    return linux_.create_file(false);
  }
  int size_and_seal(int fd, std::uint64_t bytes) const override {
    return seal_errno != 0 ? seal_errno : linux_.size_and_seal(fd, bytes);
  }
  SystemResult<MappedRange> map(const MapRequest& request) const override {
    if (request.hugetlb && !by_hugetlb) return tl::unexpected(ENOMEM);
    huge_ = request.hugetlb || always_huge;
    MapRequest ordinary = request;
    ordinary.hugetlb = false;
    return linux_.map(ordinary);
  }
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override {
    if (advice == Advice::kHugePages) huge_ = huge_ || by_advice;
    if (advice != Advice::kCollapse) return linux_.advise(data, bytes, advice);
    huge_ = huge_ || by_collapse;
    return by_collapse ? 0 : EINVAL;
  }
  SystemResult<std::uint64_t> huge_bytes(const std::byte*, std::uint64_t bytes) const override {
    if (count_errno != 0) return tl::unexpected(count_errno);
    return huge_ ? bytes : 0;
  }
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override { return linux_.memory_nodes(); }
  int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override {
    return linux_.set_nodes(data, bytes, rule, nodes);
  }
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
    return linux_.page_nodes(pages);
  }

  bool by_hugetlb = false, by_advice = false, by_collapse = false, always_huge = false;
  int file_errno = 0, seal_errno = 0, count_errno = 0;

 private:
  LinuxMappingCalls linux_;
  mutable bool huge_ = false;
};

struct World {
  Tree tree;
  StagedCalls calls;
  StagedMappings mappings;

  Machine look() const { return look_at_machine({tree.root(), calls, mappings}, "the folder"); }
};

std::string open_files() {
  std::string all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code failure;
    all += std::filesystem::read_symlink(entry.path(), failure).string() + "\n";
  }
  return all;
}

TEST(Machine, EachRungIsTriedWithThoseAboveItClosed) {
  for (unsigned open = 0; open < 8; ++open) {
    World world;
    world.tree.pool("2048kB", 9, 9, 0);
    world.mappings.by_hugetlb = (open & 1) != 0;
    world.mappings.by_advice = (open & 2) != 0;
    world.mappings.by_collapse = (open & 4) != 0;
    const Machine machine = world.look();
    for (const RungTrials& trials : {machine.huge_private, machine.huge_shared}) {
      EXPECT_EQ(trials.hugetlb.got, (open & 1) != 0) << open << trials.hugetlb.why;
      EXPECT_EQ(trials.advice.got, (open & 2) != 0) << open << trials.advice.why;
      EXPECT_EQ(trials.collapse.got, (open & 4) != 0) << open << trials.collapse.why;
      EXPECT_EQ(trials.any(), open != 0);
      for (const RungTrial& trial : {trials.hugetlb, trials.advice, trials.collapse})
        EXPECT_EQ(trial.why.empty(), trial.got == true) << open << trial.why;
    }
  }
}

TEST(Machine, ARungThatGaveNothingSaysWhy) {
  World world;
  world.tree.pool("2048kB", 9, 1, 0);  // one page too few
  world.mappings.by_hugetlb = true;
  const Machine machine = world.look();
  EXPECT_THAT(machine.huge_private.hugetlb.why, HasSubstr("has 1 free pages of 2 MiB"));
  EXPECT_THAT(machine.huge_shared.hugetlb.why, HasSubstr("has 1 free pages of 2 MiB"));
  EXPECT_THAT(machine.huge_private.advice.why, HasSubstr("transparent_hugepage/enabled"));
  EXPECT_THAT(machine.huge_shared.advice.why, HasSubstr("transparent_hugepage/shmem_enabled"));
  EXPECT_EQ(machine.huge_shared.collapse.why, "Invalid argument");
}

TEST(Machine, WhereAllPagesAreHugeCollapseIsNotNeeded) {
  World world;
  world.mappings.always_huge = true;
  const RungTrials trials = world.look().huge_private;
  EXPECT_EQ(trials.advice.got, true);
  EXPECT_EQ(trials.collapse.got, std::nullopt);
  EXPECT_THAT(trials.collapse.why, HasSubstr("not needed"));
}

TEST(Machine, PagesThatCannotBeCountedAreNotKnown) {
  World world;
  world.mappings.count_errno = EACCES;
  const RungTrials trials = world.look().huge_shared;
  EXPECT_EQ(trials.advice.got, std::nullopt);
  EXPECT_EQ(trials.collapse.got, std::nullopt);
  EXPECT_THAT(trials.advice.why, HasSubstr("Permission denied"));
}

TEST(Machine, PoolsAreThoseOfTheKernel) {
  World world;
  world.tree.pool("2048kB", 7, 5, 3);
  const Machine machine = world.look();
  ASSERT_TRUE(machine.pool_2mib);
  EXPECT_EQ(machine.pool_2mib->total_pages, 7U);
  EXPECT_EQ(machine.pool_2mib->free_pages, 5U);
  EXPECT_EQ(machine.pool_2mib->reserved_pages, 3U);
  EXPECT_FALSE(machine.pool_1gib);
  world.tree.pool("1048576kB", 2, 1, 0);
  EXPECT_EQ(world.look().pool_1gib.value_or(HugePool{}).total_pages, 2U);
}

TEST(Machine, TheSettingIsTheOneThatDecides) {
  World world;
  EXPECT_EQ(world.look().thp_private.word, "");
  world.tree.setting("enabled", "always [madvise] never\n")
      .setting("shmem_enabled", "always advise [never] deny\n");
  EXPECT_EQ(world.look().thp_private.word, "madvise");
  EXPECT_EQ(world.look().thp_shared.word, "never");
  EXPECT_EQ(world.look().thp_private.file, "/sys/kernel/mm/transparent_hugepage/enabled");

  world.tree.setting("hugepages-2048kB/enabled", "always [inherit] madvise never\n");
  EXPECT_EQ(world.look().thp_private.word, "madvise");
  world.tree.setting("hugepages-2048kB/enabled", "always inherit madvise [never]\n");
  EXPECT_EQ(world.look().thp_private.word, "never");
  EXPECT_EQ(world.look().thp_private.file, "/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled");

  world.tree.setting("hugepages-2048kB/shmem_enabled", "[always] inherit within_size advise never\n");
  EXPECT_EQ(world.look().thp_shared.word, "always");
  world.tree.setting("shmem_enabled", "always advise never [deny] force\n");
  EXPECT_EQ(world.look().thp_shared.word, "deny");
  EXPECT_EQ(world.look().thp_shared.file, "/sys/kernel/mm/transparent_hugepage/shmem_enabled");
}

TEST(Machine, AMemfdThatCannotBeMadeOrSealedIsSeen) {
  World world;
  EXPECT_TRUE(world.look().memfd.ok());
  world.mappings.seal_errno = EPERM;
  EXPECT_STREQ(world.look().memfd.failed_call, "giving it a size and sealing it");
  EXPECT_EQ(world.look().memfd.failure, EPERM);
  world.mappings.file_errno = ENOSYS;
  const Machine machine = world.look();
  EXPECT_STREQ(machine.memfd.failed_call, "memfd_create");
  EXPECT_EQ(machine.memfd.failure, ENOSYS);
  EXPECT_TRUE(machine.mapped_private.ok());
  EXPECT_EQ(machine.mapped_shared.code, Code::kResourceExhausted);
}

TEST(Machine, MemoryIsWhatTheLimitsLeave) {
  World world;
  world.tree.file("/proc/meminfo",
                  fmt::format("MemTotal: {} kB\nMemAvailable: {} kB\n", 8 * kGiB / 1024, 3 * kGiB / 1024));
  Machine machine = world.look();
  EXPECT_EQ(machine.memory_total_bytes, 8 * kGiB);
  EXPECT_EQ(machine.memory_available_bytes, 3 * kGiB);
  ASSERT_TRUE(machine.room);
  EXPECT_EQ(machine.room->bytes, 3 * kGiB);
  EXPECT_TRUE(machine.mapped_private.ok());

  world.tree.file("/proc/meminfo", "MemTotal: 99999 kB\nMemAvailable: 1024 kB\n");
  machine = world.look();
  EXPECT_EQ(machine.mapped_private.code, Code::kResourceExhausted);
  EXPECT_EQ(machine.mapped_shared.code, Code::kResourceExhausted);
  EXPECT_EQ(machine.huge_private.advice.got, std::nullopt);
  EXPECT_THAT(machine.huge_shared.collapse.why, HasSubstr("not tried"));

  world.tree.file("/proc/meminfo", "MemAvailable: plenty\n");
  EXPECT_EQ(world.look().room.error().code, Code::kIoError);
}

TEST(Machine, OnePageBeyondTheLimitIsTriedWhereThatIsCheap) {
  World world;
  world.calls.limit = LockLimit{8 * kMiB + 1, 9 * kMiB};
  world.calls.lock_errno = ENOMEM;
  EXPECT_EQ(world.look().beyond_lock_limit, ENOMEM);
  EXPECT_EQ(world.calls.locked_bytes, 8 * kMiB + kSmallPageBytes);
  world.calls.locked_bytes = 0;
  for (const std::uint64_t limit : {UINT64_MAX, 64 * kMiB + 1}) {
    world.calls.limit = LockLimit{limit, limit};
    EXPECT_EQ(world.look().beyond_lock_limit, std::nullopt);
  }
  world.calls.limit = tl::unexpected(EPERM);
  EXPECT_EQ(world.look().beyond_lock_limit, std::nullopt);
  EXPECT_EQ(world.calls.locked_bytes, 0U);
}

TEST(Machine, WhatRefusesIoUringIsRead) {
  World world;
  world.calls.io_uring_errno = EPERM;
  EXPECT_EQ(world.look().io_uring_disabled, "");
  EXPECT_FALSE(world.look().seccomp_filter);
  world.tree.file("/proc/sys/kernel/io_uring_disabled", "1\n")
      .file("/proc/self/status", "Name:\tx\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n");
  const Machine machine = world.look();
  EXPECT_EQ(machine.io_uring_failure, EPERM);
  EXPECT_EQ(machine.io_uring_disabled, "1");
  EXPECT_TRUE(machine.seccomp_filter);
  world.tree.file("/proc/self/status", "Seccomp:\t0\nSeccomp_filters:\t2\n");
  EXPECT_FALSE(world.look().seccomp_filter);
}

TEST(Machine, NodesThatHaveMemoryAreListed) {
  World world;
  EXPECT_THAT(world.look().numa, IsEmpty());
  world.tree.file("/sys/devices/system/node/online", "0-2\n")
      .file("/sys/devices/system/node/has_memory", "0,2\n")
      .file("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:  2048 kB\nNode 0 MemFree:  1024 kB\n")
      .file("/sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:  4096 kB\nNode 2 MemFree:  16 kB\n");
  const auto nodes = world.look().numa;
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].total_bytes, 2 * kMiB);
  EXPECT_EQ(nodes[0].free_bytes, kMiB);
  EXPECT_EQ(nodes[1].id, 2U);
  EXPECT_EQ(nodes[1].total_bytes, 4 * kMiB);
}

TEST(Machine, ListsOfIdsAreReadOrRefused) {
  EXPECT_THAT(ids_in("0"), ElementsAre(0U));
  EXPECT_THAT(ids_in("0-2,5,7-8"), ElementsAre(0U, 1U, 2U, 5U, 7U, 8U));
  EXPECT_EQ(ids_in("0-4095").size(), 4096U);
  for (const char* bad : {"", "x", "1-", "-1", "2-1", "0,,1", "0-4096", "0-18446744073709551615", "0-1-2"})
    EXPECT_THAT(ids_in(bad), IsEmpty()) << bad;
}

TEST(Machine, WhatTheSystemSaysIsHandedOn) {
  World world;
  world.calls.pidfd_errno = ENOSYS;
  world.tree.file("/proc/cpuinfo", "processor\t: 0\nmodel name\t: A processor of ours\nprocessor\t: 1\n")
      .file("/proc/sys/kernel/osrelease", "9.9.9\n");
  const Machine machine = world.look();
  EXPECT_EQ(world.calls.asked, "/dev/shm the folder the folder ");
  EXPECT_EQ(machine.kernel, "9.9.9");
  EXPECT_EQ(machine.processor, "A processor of ours");
  EXPECT_GE(machine.processors, 1U);
  EXPECT_EQ(machine.user, ::geteuid());
  EXPECT_EQ(machine.pidfd_failure, ENOSYS);
  EXPECT_EQ(machine.direct_folder, "the folder");
  EXPECT_EQ(machine.direct.alignment_bytes, 512U);
  EXPECT_EQ(machine.direct_file_system->total_bytes, 3U);
  EXPECT_EQ(machine.dev_shm->free_bytes, 2U);
  EXPECT_TRUE(machine.cpu.avx2);
  EXPECT_EQ(machine.cuda.devices, 5U);
}

TEST(Machine, ALookAtTheRealOneLeavesNothingBehind) {
  const Tree folder;
  const std::string before = open_files();
  const LinuxMachineCalls calls;
  const LinuxMappingCalls mappings;
  const Machine machine = look_at_machine({{}, calls, mappings}, folder.root());
  EXPECT_TRUE(std::filesystem::is_empty(folder.root()));
  const bool driver = machine.cuda.load_failure.empty();  // keeps its devices open
  EXPECT_TRUE(driver || open_files() == before) << before << "now\n" << open_files();
  EXPECT_TRUE(machine.memfd.ok());
  EXPECT_TRUE(machine.mapped_private.ok()) << machine.mapped_private.message;
  EXPECT_FALSE(machine.kernel.empty());
  EXPECT_TRUE(machine.lock_limit);
  // Not every file system has O_DIRECT; whichever it is, it is said.
  EXPECT_TRUE(machine.direct_file_system);
  EXPECT_EQ(machine.direct.ok(), machine.direct.alignment_bytes != 0) << machine.direct.failed_call;
  const std::uint64_t told = std::max(machine.direct.told_offset_bytes, machine.direct.told_memory_bytes);
  // A file system that tells the alignment has direct access.
  EXPECT_TRUE(told == 0 || (machine.direct.ok() && machine.direct.alignment_bytes <= told));
}

TEST(Machine, AFolderThatIsNoneIsAnErrorOfTheTrial) {
  const Tree tree;
  const LinuxMachineCalls calls;
  EXPECT_EQ(calls.try_direct(tree.root() + "/nowhere").failure, ENOENT);
  EXPECT_EQ(calls.file_system(tree.root() + "/nowhere").error(), ENOENT);
}

TEST(Machine, FileSystemsHaveNames) {
  EXPECT_EQ(file_system_name(0xEF53), "ext4");
  EXPECT_EQ(file_system_name(0x01021994), "tmpfs");
  EXPECT_EQ(file_system_name(0xABCDEF), "type 0xabcdef");
  const auto proc = LinuxMachineCalls().file_system("/proc");
  ASSERT_TRUE(proc);
  EXPECT_EQ(proc->type, 0x9FA0U);
}

}  // namespace
}  // namespace tiercel
