#include "os/mapping.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/test_machine.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint64_t kMiB = 1ULL << 20;

// A machine that limits nothing and has an empty hugetlb pool, or one of so many pages.
class World {
 public:
  explicit World(std::uint64_t hugetlb_pages = 0) {
    std::string name = testing::TempDir() + "tiercel_mapping_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    const std::filesystem::path pool = root_ + "/sys/kernel/mm/hugepages/hugepages-2048kB";
    std::filesystem::create_directories(pool);
    std::FILE* file = std::fopen((pool / "free_hugepages").c_str(), "wb");
    EXPECT_NE(file, nullptr);
    if (file != nullptr) {
      fmt::print(file, "{}\n", hugetlb_pages);
      std::fclose(file);
    }
  }
  ~World() { std::filesystem::remove_all(root_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  MemoryLimits limits() const { return MemoryLimits(root_); }

 private:
  std::string root_;
};

// Linux, except for what a test lets fail or answers itself. Hugetlb memory is ordinary memory here.
class StagedCalls final : public MappingCalls {
 public:
  SystemResult<int> create_file(bool hugetlb) const override {
    if (file_errno != 0) return tl::unexpected(file_errno);
    if (hugetlb && hugetlb_file_errno != 0) return tl::unexpected(hugetlb_file_errno);
    return linux_.create_file(false);
  }
  int size_and_seal(int fd, std::uint64_t bytes) const override {
    return seal_errno != 0 ? seal_errno : linux_.size_and_seal(fd, bytes);
  }
  SystemResult<MappedRange> map(const MapRequest& request) const override {
    if (map_errno != 0) return tl::unexpected(map_errno);
    MapRequest ordinary = request;
    ordinary.hugetlb = false;
    auto range = linux_.map(ordinary);
    if (range) mapped.push_back(*range);
    return range;
  }
  int advise(std::byte* data, std::uint64_t bytes, Advice advice) const override {
    if (advice == fail_advice && advised++ >= fail_after) return advice_errno;
    if (advice == Advice::kCollapse) {
      ++collapses;
      return 0;  // "done": what huge_bytes says is what counts
    }
    return linux_.advise(data, bytes, advice);
  }
  SystemResult<std::uint64_t> huge_bytes(const std::byte* data, std::uint64_t bytes) const override {
    return huge ? huge(bytes, collapses) : linux_.huge_bytes(data, bytes);
  }
  SystemResult<std::vector<std::uint32_t>> memory_nodes() const override { return linux_.memory_nodes(); }
  int set_nodes(std::byte* data, std::uint64_t bytes, NodeRule rule,
                std::span<const std::uint32_t> nodes) const override {
    return linux_.set_nodes(data, bytes, rule, nodes);
  }
  SystemResult<std::vector<int>> page_nodes(std::span<const std::byte* const> pages) const override {
    return linux_.page_nodes(pages);
  }

  int file_errno = 0, hugetlb_file_errno = 0, seal_errno = 0, map_errno = 0;
  std::optional<Advice> fail_advice;
  int advice_errno = 0;
  int fail_after = 0;  // so many calls of that advice succeed
  std::function<SystemResult<std::uint64_t>(std::uint64_t bytes, int collapses)> huge;

  mutable std::vector<MappedRange> mapped;
  mutable std::atomic<int> advised = 0, collapses = 0;

 private:
  LinuxMappingCalls linux_;
};

bool is_mapped(const std::byte* at) {
  unsigned char resident = 0;
  const std::uintptr_t page = reinterpret_cast<std::uintptr_t>(at) / kSmallPageBytes * kSmallPageBytes;
  return ::mincore(reinterpret_cast<void*>(page), 1, &resident) == 0;  // NOLINT(performance-no-int-to-ptr)
}

SystemResult<std::uint64_t> all_huge(std::uint64_t bytes, int) { return bytes; }
SystemResult<std::uint64_t> huge_once_collapsed(std::uint64_t bytes, int collapses) {
  return collapses == 0 ? 0 : bytes;
}
SystemResult<std::uint64_t> never_huge(std::uint64_t, int) { return 0; }

Result<Mapping> open(MappingKind kind, std::uint64_t bytes, const MappingCalls& calls,
                     TouchOptions touch = {}, std::uint64_t hugetlb_pages = 0) {
  const World world(hugetlb_pages);
  return Mapping::open({kind, bytes, std::move(touch)}, world.limits(), calls);
}

class EveryKind : public testing::TestWithParam<MappingKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, EveryKind, testing::Values(MappingKind::kAnonymous, MappingKind::kShared),
                         [](const auto& param) {
                           return param.param == MappingKind::kShared ? "Shared" : "Anonymous";
                         });

TEST_P(EveryKind, IsZeroAlignedWholeHugePagesAndWritable) {
  auto mapping = open(GetParam(), 5 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(mapping->size_bytes(), 6 * kMiB);
  const MutableByteView bytes = mapping->bytes();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % kHugePageBytes, 0U);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill(bytes.begin(), bytes.end(), std::byte{0x5A});
  EXPECT_EQ(mapping->view().back(), std::byte{0x5A});
  EXPECT_EQ(mapping->fd() >= 0, GetParam() == MappingKind::kShared);
  EXPECT_LE(mapping->pages().huge_bytes, mapping->size_bytes());
  fmt::print("kind got: {}{}{}\n", page_kind_name(mapping->pages().kind),
             mapping->pages().declined.empty() ? "" : "; ", fmt::join(mapping->pages().declined, "; "));
}

TEST_P(EveryKind, TwoNeighboursAreCountedApart) {
  auto one = open(GetParam(), 4 * kMiB, LinuxMappingCalls());
  auto two = open(GetParam(), 8 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(one && two);
  const LinuxMappingCalls calls;
  for (const Mapping* each : {&*one, &*two}) {
    const auto huge = calls.huge_bytes(each->view().data(), each->size_bytes());
    ASSERT_TRUE(huge);
    EXPECT_LE(*huge, each->size_bytes());
    EXPECT_EQ(*huge, each->pages().huge_bytes);
  }
}

TEST_P(EveryKind, BothWaysToCountHugePagesAgree) {
  const auto mapping = open(GetParam(), 6 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(mapping);
  std::FILE* file = std::fopen("/proc/self/smaps", "re");
  ASSERT_NE(file, nullptr);
  std::string text;
  char chunk[4096];
  for (std::size_t got = 0; (got = std::fread(chunk, 1, sizeof chunk, file)) > 0;) text.append(chunk, got);
  std::fclose(file);
  const std::uint64_t from = reinterpret_cast<std::uintptr_t>(mapping->view().data());
  EXPECT_EQ(huge_bytes_in(text, from, from + mapping->size_bytes()), mapping->pages().huge_bytes);
}

TEST_P(EveryKind, NoLaterAccessMeetsAPageThatIsNotThere) {
  auto mapping = open(GetParam(), 70 * kMiB, LinuxMappingCalls(), {.threads = 2});
  ASSERT_TRUE(mapping) << mapping.error().message;
  std::vector<unsigned char> resident(mapping->size_bytes() / kSmallPageBytes);
  ASSERT_EQ(::mincore(mapping->bytes().data(), mapping->size_bytes(), resident.data()), 0);
  EXPECT_TRUE(
      std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

TEST(MappingLadder, HugetlbIsTakenWhereThePoolHasRoom) {
  for (const MappingKind kind : {MappingKind::kShared, MappingKind::kHugepage}) {
    StagedCalls calls;
    calls.huge = all_huge;
    const auto mapping = open(kind, 4 * kMiB, calls, {}, 2);
    ASSERT_TRUE(mapping) << mapping.error().message;
    EXPECT_EQ(mapping->pages().kind, PageKind::kHugetlb);
    EXPECT_EQ(mapping->pages().huge_bytes, 4 * kMiB);
    EXPECT_THAT(mapping->pages().declined, ElementsAre());
  }
}

TEST(MappingLadder, AdviceIsNextAndThePoolsReasonIsKept) {
  StagedCalls calls;
  calls.huge = all_huge;
  const auto mapping = open(MappingKind::kShared, 4 * kMiB, calls, {}, 1);
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(mapping->pages().kind, PageKind::kTransparent);
  EXPECT_THAT(mapping->pages().declined, ElementsAre(AllOf(StartsWith("hugetlb: "), HasSubstr("got 2 MiB"))));
  EXPECT_EQ(calls.collapses, 0);
}

TEST(MappingLadder, ARungThatFailsLateIsLeftForTheNext) {
  StagedCalls calls;
  calls.huge = all_huge;
  calls.hugetlb_file_errno = ENODEV;
  auto mapping = open(MappingKind::kShared, 4 * kMiB, calls, {}, 2);
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_THAT(mapping->pages().declined, ElementsAre(AllOf(StartsWith("hugetlb: "), HasSubstr("memfd"))));
  const int before = open_memfds();
  StagedCalls full;
  full.huge = all_huge;
  full.fail_advice = Advice::kPopulateWrite;
  full.advice_errno = EFAULT;
  EXPECT_FALSE(open(MappingKind::kShared, 4 * kMiB, full, {}, 2));
  EXPECT_EQ(full.mapped.size(), 2U) << "both rungs were tried";
  for (const MappedRange& range : full.mapped) EXPECT_FALSE(is_mapped(range.data));
  EXPECT_EQ(open_memfds(), before);
}

TEST(MappingLadder, CollapseIsNext) {
  StagedCalls calls;
  calls.huge = huge_once_collapsed;
  const auto mapping = open(MappingKind::kShared, 64 * kMiB, calls);
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(mapping->pages().kind, PageKind::kCollapsed);
  EXPECT_THAT(mapping->pages().declined, ElementsAre(StartsWith("hugetlb: "), StartsWith("advice: ")));
  EXPECT_EQ(calls.collapses, 1 + 2) << "the first huge page, then every chunk";
}

TEST(MappingLadder, SmallPagesAreLastWithAReasonForEachRung) {
  StagedCalls calls;
  calls.huge = never_huge;
  calls.fail_advice = Advice::kCollapse;
  calls.advice_errno = EINVAL;
  auto mapping = open(MappingKind::kShared, 64 * kMiB, calls);
  ASSERT_TRUE(mapping) << mapping.error().message;
  EXPECT_EQ(mapping->pages().kind, PageKind::kSmall);
  EXPECT_THAT(mapping->pages().declined,
              ElementsAre(StartsWith("hugetlb: "), StartsWith("advice: "), "collapse: Invalid argument"));
  EXPECT_EQ(calls.advised, 2) << "once it gave nothing, no other chunk pays for it";
  mapping->bytes()[64 * kMiB - 1] = std::byte{1};
}

TEST(MappingLadder, ACollapseThatShouldBeTriedAgainIs) {
  StagedCalls calls;
  calls.huge = huge_once_collapsed;
  calls.fail_advice = Advice::kCollapse;
  calls.advice_errno = EAGAIN;
  const auto mapping = open(MappingKind::kAnonymous, 2 * kMiB, calls);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(calls.advised, 6) << "three times before all pages are there, three times after";
}

TEST(MappingLadder, PartlyHugeIsSaidSo) {
  StagedCalls calls;
  calls.huge = [](std::uint64_t, int) { return 2 * kMiB; };
  const auto mapping = open(MappingKind::kAnonymous, 8 * kMiB, calls);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->pages().kind, PageKind::kMixed);
  EXPECT_EQ(mapping->pages().huge_bytes, 2 * kMiB);
  EXPECT_THAT(mapping->pages().declined,
              ElementsAre("advice: the kernel gave small pages for 6 MiB of 8 MiB"));
}

TEST(MappingLadder, WhatTheKernelDoesNotSayIsUnknown) {
  StagedCalls calls;
  calls.huge = [](std::uint64_t, int) -> SystemResult<std::uint64_t> { return tl::unexpected(EACCES); };
  const auto mapping = open(MappingKind::kAnonymous, 4 * kMiB, calls);
  ASSERT_TRUE(mapping);
  EXPECT_EQ(mapping->pages().kind, PageKind::kUnknown);
  EXPECT_THAT(mapping->pages().declined, testing::Contains(HasSubstr("counting")));
}

TEST(MappingLadder, HugepageMeansAllOfItOrOneErrorThatNamesEveryRung) {
  StagedCalls calls;
  calls.huge = [](std::uint64_t, int) { return 2 * kMiB; };
  EXPECT_FALSE(open(MappingKind::kHugepage, 4 * kMiB, calls)) << "half is not all";
  calls.huge = never_huge;
  calls.fail_advice = Advice::kCollapse;
  calls.advice_errno = ENOMEM;
  const auto mapping = open(MappingKind::kHugepage, 4 * kMiB, calls);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kResourceExhausted);
  for (const char* part :
       {"wanted 4 MiB", "got 0 B", "hugetlb: ", "advice: ", "collapse: ", "vm.nr_hugepages"})
    EXPECT_THAT(mapping.error().message, HasSubstr(part));
  EXPECT_EQ(mapping.error().message.find('\n'), std::string::npos);
  for (const MappedRange& range : calls.mapped) EXPECT_FALSE(is_mapped(range.data));
}

TEST(Mapping, EachCallThatFailsIsAnErrorAndLeavesNothingBehind) {
  const int before = open_memfds();
  for (const auto& break_it : std::vector<std::function<void(StagedCalls&)>>{
           [](StagedCalls& calls) { calls.file_errno = EMFILE; },
           [](StagedCalls& calls) { calls.seal_errno = EPERM; },
           [](StagedCalls& calls) { calls.map_errno = ENOMEM; },
           [](StagedCalls& calls) { calls.fail_advice = Advice::kDontFork, calls.advice_errno = EINVAL; },
           [](StagedCalls& calls) {
             calls.fail_advice = Advice::kPopulateWrite, calls.advice_errno = EFAULT;
           },
           [](StagedCalls& calls) {
             calls.fail_advice = Advice::kPopulateWrite, calls.advice_errno = ENOMEM, calls.fail_after = 2;
           }}) {
    StagedCalls calls;
    break_it(calls);
    const auto mapping = open(MappingKind::kShared, 70 * kMiB, calls, {.threads = 2});
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.error().code, Code::kResourceExhausted) << mapping.error().message;
    EXPECT_THAT(mapping.error().message, StartsWith("memory mapping: the kernel refused "));
    EXPECT_EQ(mapping.error().message.find('\n'), std::string::npos);
    for (const MappedRange& range : calls.mapped) EXPECT_FALSE(is_mapped(range.data));
    EXPECT_EQ(open_memfds(), before);
  }
}

TEST(Mapping, SizesThatMakeNoSenseAreRefusedBeforeAnythingIsDone) {
  for (const std::uint64_t bytes : std::initializer_list<std::uint64_t>{0, (1ULL << 46) + 1, UINT64_MAX}) {
    StagedCalls calls;
    const auto mapping = open(MappingKind::kAnonymous, bytes, calls);
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(calls.mapped.empty());
  }
}

TEST(Mapping, WhatDoesNotFitThisMachineIsRefusedBeforeAnyIsTouched) {
  StagedCalls calls;
  const auto mapping = Mapping::open({MappingKind::kShared, 1ULL << 45}, MemoryLimits(), calls);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kResourceExhausted);
  EXPECT_THAT(mapping.error().message, HasSubstr("wanted 32 TiB"));
  EXPECT_TRUE(calls.mapped.empty());
}

TEST(Mapping, KernelsThatCannotPopulateAreTouchedByHand) {
  for (const MappingKind kind : {MappingKind::kAnonymous, MappingKind::kShared}) {
    StagedCalls calls;
    calls.fail_advice = Advice::kPopulateWrite;
    calls.advice_errno = EINVAL;
    auto mapping = open(kind, 4 * kMiB, calls);
    ASSERT_TRUE(mapping) << mapping.error().message;
    std::vector<unsigned char> resident(mapping->size_bytes() / kSmallPageBytes);
    ASSERT_EQ(::mincore(mapping->bytes().data(), mapping->size_bytes(), resident.data()), 0);
    EXPECT_TRUE(
        std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1) != 0; }));
  }
}

struct Told {
  std::vector<std::uint64_t> done;
  TouchOptions touch(unsigned threads) {
    return {.threads = threads, .progress = [this](std::uint64_t now, std::uint64_t all) {
              done.push_back(now);
              total = all;
            }};
  }
  std::uint64_t total = 0;
  bool rises() const { return std::is_sorted(done.begin(), done.end(), std::less_equal<>{}); }
};

TEST(MappingProgress, RisesAndEndsAtTheTotal) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    Told told;
    ASSERT_TRUE(open(MappingKind::kShared, 160 * kMiB, LinuxMappingCalls(), told.touch(threads)));
    ASSERT_FALSE(told.done.empty());
    EXPECT_TRUE(told.rises()) << threads;
    EXPECT_EQ(told.done.back(), 160 * kMiB);
    EXPECT_EQ(told.total, 160 * kMiB);
  }
}

TEST(MappingProgress, NeverFallsWhenTheLadderStartsAgain) {
  StagedCalls calls;
  calls.huge = never_huge;
  calls.fail_advice = Advice::kPopulateWrite;
  calls.advice_errno = EFAULT;
  calls.fail_after = 2;  // hugetlb: two chunks, then refused; then, failing again, small pages
  Told told;
  EXPECT_FALSE(open(MappingKind::kShared, 160 * kMiB, calls, told.touch(1), 80));
  EXPECT_EQ(told.done, (std::vector<std::uint64_t>{32 * kMiB, 64 * kMiB}));
}

TEST(MappingProgress, IsToldOnTheOpeningThread) {
  const auto here = std::this_thread::get_id();
  bool elsewhere = false;
  TouchOptions touch{.threads = 4, .progress = [&](std::uint64_t, std::uint64_t) {
                       elsewhere = elsewhere || std::this_thread::get_id() != here;
                     }};
  ASSERT_TRUE(open(MappingKind::kAnonymous, 160 * kMiB, LinuxMappingCalls(), touch));
  EXPECT_FALSE(elsewhere);
}

TEST(MappingCancel, InTheMiddleLeavesNothingBehind) {
  const int before = open_memfds();
  for (const unsigned threads : {1U, 2U}) {
    StagedCalls calls;
    std::stop_source source;
    std::uint64_t last = 0;
    TouchOptions touch{.threads = threads,
                       .progress =
                           [&](std::uint64_t done, std::uint64_t) {
                             last = done;
                             source.request_stop();
                           },
                       .stop = source.get_token()};
    const auto mapping = open(MappingKind::kShared, 512 * kMiB, calls, touch);
    ASSERT_FALSE(mapping);
    EXPECT_EQ(mapping.error().code, Code::kCancelled);
    EXPECT_LT(last, 512 * kMiB);
    for (const MappedRange& range : calls.mapped) EXPECT_FALSE(is_mapped(range.data));
    EXPECT_EQ(open_memfds(), before);
  }
}

TEST(MappingCancel, BeforeTheStartTouchesNothing) {
  StagedCalls calls;
  calls.fail_advice = Advice::kPopulateWrite;
  std::stop_source source;
  source.request_stop();
  const auto mapping = open(MappingKind::kAnonymous, 4 * kMiB, calls, {.stop = source.get_token()});
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kCancelled);
  EXPECT_EQ(calls.advised, 0);
}

TEST(Mapping, MovesAsAValue) {
  StagedCalls calls;
  auto opened = open(MappingKind::kShared, 2 * kMiB, calls);
  ASSERT_TRUE(opened);
  Mapping one = std::move(*opened);
  EXPECT_EQ(opened->size_bytes(), 0U);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(opened->fd(), -1);
  const std::byte* data = one.view().data();
  Mapping two;
  two = std::move(one);
  EXPECT_EQ(two.view().data(), data);
  EXPECT_TRUE(is_mapped(data));
  two = Mapping();
  EXPECT_FALSE(is_mapped(data));
}

TEST(MappingAttach, AnotherProcessReadsWhatWasWrittenAndTheOwnerWhatThatOneWrites) {
  auto owner = open(MappingKind::kShared, 4 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner);
  for (std::size_t i = 0; i < owner->size_bytes(); ++i) owner->bytes()[i] = static_cast<std::byte>(i % 251);
  EXPECT_EQ(in_child([&] {
              auto reader = Mapping::attach(owner->fd(), {.bytes = 4 * kMiB});
              if (!reader || reader->access() != MappingAccess::kReadOnly) return false;
              for (std::size_t i = 0; i < reader->size_bytes(); ++i)
                if (reader->view()[i] != static_cast<std::byte>(i % 251)) return false;
              auto writer =
                  Mapping::attach(owner->fd(), {.bytes = 4 * kMiB, .access = MappingAccess::kReadWrite});
              if (!writer) return false;
              writer->bytes()[3 * kMiB] = std::byte{0xEE};
              return reader->view()[3 * kMiB] == std::byte{0xEE};
            }),
            0);
  EXPECT_EQ(owner->view()[3 * kMiB], std::byte{0xEE});
}

TEST(MappingAttach, ASecondMappingKeepsTheHugePages) {
  auto owner = open(MappingKind::kShared, 8 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner);
  const auto second = Mapping::attach(owner->fd(), {.bytes = 8 * kMiB});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(second->view().data(), owner->view().data());
  EXPECT_EQ(second->pages().huge_bytes, owner->pages().huge_bytes);
}

TEST(MappingAttach, LivesOnWhenTheOwnerIsGone) {
  auto owner = open(MappingKind::kShared, 2 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner);
  owner->bytes()[7] = std::byte{7};
  const auto second = Mapping::attach(owner->fd(), {.bytes = 2 * kMiB});
  ASSERT_TRUE(second);
  *owner = Mapping();
  EXPECT_EQ(second->view()[7], std::byte{7});
}

TEST(MappingAttach, NobodyCanTruncateItUnderAReader) {
  auto owner = open(MappingKind::kShared, 4 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner);
  EXPECT_EQ(in_child([&] {
              const bool shrinks = ::ftruncate(owner->fd(), 0) == 0 || errno != EPERM;
              const bool grows = ::ftruncate(owner->fd(), 8 << 20) == 0 || errno != EPERM;
              const bool seals = ::fcntl(owner->fd(), F_ADD_SEALS, F_SEAL_WRITE) == 0 || errno != EPERM;
              return !shrinks && !grows && !seals;
            }),
            0);
  EXPECT_EQ(owner->view().back(), std::byte{0});
}

// A memfd made by somebody else.
class Foreign {
 public:
  Foreign(std::uint64_t bytes, int seals, bool claimed) : fd_(::memfd_create("foreign", MFD_ALLOW_SEALING)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(bytes)), 0);
    if (claimed) {
      EXPECT_EQ(::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)), 0);
    }
    EXPECT_EQ(::fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~Foreign() { ::close(fd_); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

void expect_refused(int fd, std::uint64_t bytes, const char* part) {
  const auto mapping = Mapping::attach(fd, {.bytes = bytes});
  ASSERT_FALSE(mapping) << part;
  EXPECT_EQ(mapping.error().code, Code::kInvalidArgument);
  EXPECT_THAT(mapping.error().message, AllOf(StartsWith("attach: "), HasSubstr(part)));
}

TEST(MappingAttach, RefusesWhatIsNotASealedWholeMapping) {
  constexpr int kBoth = F_SEAL_SHRINK | F_SEAL_GROW;
  const Foreign right(4 * kMiB, kBoth, true);
  EXPECT_TRUE(Mapping::attach(right.fd(), {.bytes = 4 * kMiB}));
  expect_refused(-1, 4 * kMiB, "file descriptor");
  expect_refused(0x7FFFFFFF, 4 * kMiB, "file descriptor");
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  expect_refused(ends[0], 4 * kMiB, "memfd");
  ::close(ends[0]);
  ::close(ends[1]);
  expect_refused(Foreign(4 * kMiB, F_SEAL_GROW, true).fd(), 4 * kMiB, "seals");
  expect_refused(Foreign(4 * kMiB, F_SEAL_SHRINK, true).fd(), 4 * kMiB, "seals");
  expect_refused(Foreign(4 * kMiB, kBoth, false).fd(), 4 * kMiB, "claimed");
  for (const std::uint64_t bytes : std::initializer_list<std::uint64_t>{
           0, 1, 2 * kMiB, 6 * kMiB, 4 * kMiB - 1, UINT64_MAX, UINT64_MAX - kHugePageBytes + 1, 1ULL << 63})
    expect_refused(right.fd(), bytes, "size");
}

TEST(MappingAttach, AnFdThatMayOnlyReadGivesNoWriteAccess) {
  auto owner = open(MappingKind::kShared, 2 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner);
  const int reading = ::open(fmt::format("/proc/self/fd/{}", owner->fd()).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(reading, 0);
  EXPECT_TRUE(Mapping::attach(reading, {.bytes = 2 * kMiB}));
  const auto writer = Mapping::attach(reading, {.bytes = 2 * kMiB, .access = MappingAccess::kReadWrite});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().code, Code::kFailedPrecondition);
  ::close(reading);
}

TEST(MappingAttach, ADescriptorThatCannotBeMappedForWritingIsRefusedInWordsAndNotAsAShortageOfMemory) {
  const auto owner = open(MappingKind::kShared, 2 * kMiB, LinuxMappingCalls());
  ASSERT_TRUE(owner) << owner.error().message;
  const int writing = ::open(fmt::format("/proc/self/fd/{}", owner->fd()).c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(writing, 0);
  for (const MappingAccess access : {MappingAccess::kReadOnly, MappingAccess::kReadWrite}) {
    const auto refused = Mapping::attach(writing, {.bytes = kHugePageBytes, .access = access, .touch = {}});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition) << refused.error().message;
  }
  ::close(writing);
  const Foreign sealed(2 * kMiB, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, true);
  const auto refused = Mapping::attach(
      sealed.fd(), {.bytes = kHugePageBytes, .access = MappingAccess::kReadWrite, .touch = {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition) << refused.error().message;
  EXPECT_TRUE(Mapping::attach(sealed.fd(),
                              {.bytes = kHugePageBytes, .access = MappingAccess::kReadOnly, .touch = {}}))
      << "it can still be read";
}

TEST(MappingDeathTest, WritingToAReadOnlyMappingIsOurMistake) {
  const Foreign file(2 * kMiB, F_SEAL_SHRINK | F_SEAL_GROW, true);
  const auto reader = Mapping::attach(file.fd(), {.bytes = 2 * kMiB});
  ASSERT_TRUE(reader);
  EXPECT_DEATH(static_cast<void>(reader->bytes()), "access_");
}

TEST(MappingFork, AChildHasNoPartOfItAndUnmapsNothing) {
  for (const MappingKind kind : {MappingKind::kAnonymous, MappingKind::kShared}) {
    auto mapping = open(kind, 2 * kMiB, LinuxMappingCalls());
    ASSERT_TRUE(mapping);
    EXPECT_EQ(in_child([&] {
                auto* at = const_cast<std::byte*>(mapping->view().data());
                if (is_mapped(at)) return false;
                void* own = ::mmap(at, kSmallPageBytes, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
                if (own != at) return false;
                *mapping = Mapping();
                return is_mapped(at);
              }),
              0);
    EXPECT_TRUE(is_mapped(mapping->view().data()));
  }
}

TEST(HugeBytesIn, CountsTheMappingsInsideARange) {
  const std::string text =
      "7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \n"
      "Rss:                2048 kB\nAnonHugePages:      2048 kB\nVmFlags: rd wr\n"
      "7f0000200000-7f0000600000 rw-s 00000000 00:01 9   /memfd:tiercel (deleted)\n"
      "ShmemPmdMapped:     4096 kB\nFilePmdMapped:         0 kB\nShared_Hugetlb:        0 kB\n"
      "7f0000600000-7f0000800000 rw-s 00000000 00:01 9   /anon_hugepage (deleted)\n"
      "Private_Hugetlb:    2048 kB\n"
      "7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 \nAnonHugePages:      2048 kB\n";
  EXPECT_EQ(huge_bytes_in(text, 0x7f0000000000, 0x7f0000800000), 8 * kMiB);
  EXPECT_EQ(huge_bytes_in(text, 0x7f0000200000, 0x7f0000600000), 4 * kMiB);
  EXPECT_EQ(huge_bytes_in(text, 0x7f0000100000, 0x7f0000700000), 4 * kMiB) << "whole mappings only";
  EXPECT_EQ(huge_bytes_in(text, 0, 0x1000), 0U);
}

TEST(HugeBytesIn, TakesAnyText) {
  for (const char* text :
       {"", "\n", "-", "0-", "0-0", "zz", "0-10 \nAnonHugePages:", "0-10 \nAnonHugePages: x kB",
        "0-10 \nAnonHugePages: 99999999999999999999 kB", "0-10 \nShmemPmdMapped:   "})
    EXPECT_EQ(huge_bytes_in(text, 0, UINT64_MAX), 0U) << text;
}

TEST(MappingInACgroup, TooMuchIsRefusedNamingTheGroupAndWhatFitsIsGiven) {
  const OwnCgroup group;
  if (!group.why().empty())
    GTEST_SKIP() << "skipped: 1 case, no memory cgroup can be made here: " << group.why();
  EXPECT_EQ(
      in_child([&] {
        if (!group.put("cgroup.procs", fmt::format("{}", ::getpid()))) return false;
        for (const MappingKind kind : {MappingKind::kAnonymous, MappingKind::kShared}) {
          const auto refused = Mapping::open({kind, 128 * kMiB});
          if (refused || refused.error().code != Code::kResourceExhausted) return false;
          if (refused.error().message.find(group.path() + "/memory.limit_in_bytes") == std::string::npos)
            return false;
          if (!Mapping::open({kind, 48 * kMiB})) return false;
        }
        return true;
      }),
      0);
}

}  // namespace
}  // namespace tiercel
