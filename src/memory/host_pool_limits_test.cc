// What this machine and its administrator allow (scenario H11, creation of host pools): each limit is met for
// real, in a child that ends afterwards. What does not fit is an error in words, at once, with nothing left
// behind; what fits is claimed when it is created, so that no later write is SIGBUS.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/host_pools.h"
#include "memory/test_host_pools.h"
#include "os/kernel_text.h"
#include "os/test_machine.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

Result<HostPoolGroup> group_of(MemoryKind kind, std::uint64_t bytes, HostRegistrar* registrar = nullptr) {
  HostPoolOptions options;
  options.plan = {kind, TotalCapacity{bytes}};
  options.registrar = registrar;
  return HostPoolGroup::build(hybrid_form(), {.layout = named_layout("layer_first")}, std::move(options));
}

// Says why a child is about to fail, since its exit status cannot.
bool said(std::string_view what) {
  fmt::print(stderr, "child: {}\n", what);
  return false;
}

bool write_all(const HostPoolGroup& group) {
  for (const MutableByteView range : group.ranges()) std::memset(range.data(), 0xA5, range.size());
  return true;
}

// Memory files and mappings of ours that are there now.
std::uint64_t left_behind() {
  const std::string maps = read_kernel_text("/proc/self/maps").value_or("");
  std::uint64_t found = static_cast<std::uint64_t>(open_memfds());
  for (std::size_t at = maps.find("memfd:tiercel"); at != std::string::npos;
       at = maps.find("memfd:tiercel", at + 1))
    ++found;
  return found;
}

// An error of that size, in words, that leaves nothing.
bool refused(MemoryKind kind, std::uint64_t bytes, std::initializer_list<std::string_view> words,
             HostRegistrar* registrar = nullptr) {
  const auto group = group_of(kind, bytes, registrar);
  if (group) return said(fmt::format("{} MiB were given", bytes / kMiB));
  const std::string& message = group.error().message;
  if (group.error().code != Code::kResourceExhausted) return said(message);
  for (const std::string_view word : words)
    if (message.find(word) == std::string::npos) return said(fmt::format("no '{}' in: {}", word, message));
  if (message.find('\n') != std::string::npos) return said("more than one line");
  return left_behind() == 0 || said(fmt::format("{} memory files or mappings are left", left_behind()));
}

bool given(MemoryKind kind, std::uint64_t bytes) {
  const auto group = group_of(kind, bytes);
  if (!group) return said(group.error().message);
  return write_all(*group);
}

void limit(decltype(RLIMIT_AS) which, std::uint64_t bytes) {
  const rlimit both{bytes, bytes};
  ::setrlimit(which, &both);
}

// A file of that size under `path`, written whole; false when there was no room.
bool put_file(const char* path, std::uint64_t bytes) {
  const int fd = ::open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return false;
  const bool whole = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0;
  ::close(fd);
  return whole;
}

TEST(H11, ATmpfsOf64MiBAtDevShmLimitsNothing) {
  const int status = in_child([] {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tiercel", "/dev/shm", "tmpfs", 0, "size=64m") != 0)
      ::_exit(77);
    // The limit is real: a file beyond it does not fit.
    if (put_file("/dev/shm/large", 65 * kMiB)) return said("the tmpfs is not limited");
    ::unlink("/dev/shm/large");
    for (const std::uint64_t mib : {63U, 64U, 65U, 128U})
      if (!given(MemoryKind::kShared, mib * kMiB)) return false;
    if (!put_file("/dev/shm/other", 40 * kMiB)) return said("40 MiB were not given");
    const auto group = group_of(MemoryKind::kShared, 64 * kMiB);
    if (!group) return said(group.error().message);
    // Another one takes the rest after the pools are there: everything can still be written.
    if (put_file("/dev/shm/rest", 25 * kMiB)) return said("the tmpfs is not full");
    if (!put_file("/dev/shm/rest", 20 * kMiB)) return said("20 MiB were not given");
    return write_all(*group);
  });
  if (status == 77)
    GTEST_SKIP() << "skipped: 1 case, no mount namespace can be made here (it takes CAP_SYS_ADMIN)";
  EXPECT_EQ(status, 0);
}

TEST(H11, ALimitOfFileSizeIsToldAndNoSignalComes) {
  EXPECT_EQ(in_child([] {
              limit(RLIMIT_FSIZE, 96 * kMiB);  // 64 MiB with page tables and reserve fit
              return given(MemoryKind::kShared, 64 * kMiB) &&
                     refused(MemoryKind::kShared, 128 * kMiB,
                             {"host pools: memory shared", "Max file size", "wanted 128 MiB", "got 96 MiB",
                              "ulimit -f", "lower it"}) &&
                     given(MemoryKind::kAnonymous, 128 * kMiB);
            }),
            0);
}

TEST(H11, ALimitOfAddressSpaceIsTold) {
  EXPECT_EQ(in_child([] {
              const auto kib =
                  decimal(word_after(read_kernel_text("/proc/self/status").value_or(""), "VmSize"));
              if (!kib) return said("no VmSize");
              limit(RLIMIT_AS, *kib * 1024 + 128 * kMiB);
              for (const MemoryKind kind : {MemoryKind::kShared, MemoryKind::kAnonymous})
                if (!refused(kind, 256 * kMiB, {"Max address space", "wanted 256 MiB", "ulimit -v"}) ||
                    !given(kind, 64 * kMiB))
                  return false;
              return true;
            }),
            0);
}

TEST(H11, ALimitOfTheMemoryCgroupIsToldAndNobodyIsKilled) {
  const OwnCgroup group;
  if (!group.why().empty())
    GTEST_SKIP() << "skipped: 1 case, no memory cgroup can be made here: " << group.why();
  EXPECT_EQ(in_child([&] {
              if (!group.put("cgroup.procs", fmt::format("{}", ::getpid()))) return said("not in the group");
              for (const MemoryKind kind : {MemoryKind::kShared, MemoryKind::kAnonymous})
                if (!refused(kind, 128 * kMiB, {group.path(), "wanted 128 MiB", "raise that limit"}) ||
                    !given(kind, 48 * kMiB))
                  return false;
              return true;
            }),
            0);
}

// Registers by locking memory, which a plain user may do within RLIMIT_MEMLOCK only.
class LockingRegistrar final : public HostRegistrar {
 public:
  Status register_range(MutableByteView range) override {
    // The call itself: sanitizers make mlock() do nothing.
    if (::syscall(SYS_mlock, range.data(), range.size()) == 0) return {};
    return {Code::kResourceExhausted,
            fmt::format("mlock: {}; raise ulimit -l", std::generic_category().message(errno))};
  }
  void unregister_range(MutableByteView range) override {
    ::syscall(SYS_munlock, range.data(), range.size());
  }
};

TEST(H11, PinnedMemoryOfAPlainUserBeyondMemlockIsToldAndNothingStaysLocked) {
  const int status = in_child([] {
    limit(RLIMIT_MEMLOCK, 64ULL << 10);
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(77);
    LockingRegistrar registrar;
    if (!refused(MemoryKind::kPinned, 4 * kMiB,
                 {"host pools: memory pinned: registering range 1 of 1 (4 MiB): mlock: ", "ulimit -l"},
                 &registrar))
      return false;
    const std::string text = read_kernel_text("/proc/self/status").value_or("");
    return word_after(text, "VmLck") == "0" || said(word_after(text, "VmLck"));
  });
  if (status == 77) GTEST_SKIP() << "skipped: 1 case, this process cannot become a plain user";
  EXPECT_EQ(status, 0);
}

// Linux without huge pages of any sort.
class NoHugePages final : public MappingCalls {
 public:
  SystemResult<int> create_file(bool hugetlb) const override {
    return hugetlb ? SystemResult<int>(tl::unexpected(ENOMEM)) : linux_.create_file(false);
  }
  int size_and_seal(int fd, std::uint64_t bytes) const override { return linux_.size_and_seal(fd, bytes); }
  SystemResult<MappedRange> map(const MapRequest& request) const override {
    return request.hugetlb ? SystemResult<MappedRange>(tl::unexpected(ENOMEM)) : linux_.map(request);
  }
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override {
    if (advice == Advice::kHugePages || advice == Advice::kCollapse) return EINVAL;
    return linux_.advise(data, bytes, advice);
  }
  SystemResult<std::uint64_t> huge_bytes(const std::byte*, std::uint64_t) const override { return 0; }
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override { return linux_.memory_nodes(); }
  int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override {
    return linux_.set_nodes(data, bytes, rule, nodes);
  }
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
    return linux_.page_nodes(pages);
  }

 private:
  LinuxMappingCalls linux_;
};

TEST(H11, NoHugePagesIsAnErrorForThatKindAndSmallPagesForTheOthers) {
  const std::uint64_t before = left_behind();
  const NoHugePages calls;
  const auto open = [&](MemoryKind kind) {
    HostPoolOptions options;
    options.plan = {kind, TotalCapacity{4 * kMiB}};
    return HostPoolGroup::build(hybrid_form(), {.layout = named_layout("page_first")}, std::move(options),
                                MemoryLimits(), calls);
  };
  const auto none = open(MemoryKind::kHugepage);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kResourceExhausted);
  for (const char* part :
       {"host pools: memory hugepage", "wanted 4 MiB on huge pages, got 0 B", "vm.nr_hugepages"})
    EXPECT_THAT(none.error().message, testing::HasSubstr(part));
  EXPECT_EQ(left_behind(), before);
  for (const MemoryKind kind : {MemoryKind::kShared, MemoryKind::kAnonymous}) {
    const auto group = open(kind);
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(group->page_report().kind, PageKind::kSmall);
    EXPECT_TRUE(write_all(*group));
  }
}

}  // namespace
}  // namespace tiercel
