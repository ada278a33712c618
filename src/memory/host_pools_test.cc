#include "memory/host_pools.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "memory/test_host_pools.h"
#include "os/test_machine.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;

HostPoolOptions options(MemoryKind kind, Capacity capacity) {
  HostPoolOptions made;
  made.plan = {kind, std::move(capacity)};
  return made;
}

Result<HostPoolGroup> hybrid(HostPoolOptions made, std::string_view layout = "page_first_direct") {
  return HostPoolGroup::build(hybrid_form(), {.layout = named_layout(layout)}, std::move(made));
}

std::byte content(std::uint32_t pool, std::uint64_t page, std::uint64_t object, std::uint64_t position) {
  return static_cast<std::byte>(
      mix64((std::uint64_t{pool} << 48) ^ (page << 24) ^ (object << 16) ^ position) & 0xFF);
}

// Calls visit(byte, wanted) for every byte of every page of every pool.
template <typename Visit>
void each_byte(const HostPoolGroup& group, Visit visit) {
  for (std::uint32_t pool = 0; pool < group.plan().pools.size(); ++pool)
    for (std::uint64_t page = 0; page < group.plan().pools[pool].pages(); ++page) {
      const auto objects = group.page_segments(pool, page);
      for (std::uint64_t object = 0; object < objects.size(); ++object) {
        std::uint64_t position = 0;
        for (const Segment& segment : objects[object].segments)
          for (std::byte& byte : group.bytes(pool, segment))
            visit(byte, content(pool, page, object, position++));
      }
    }
}

// ---- built in steps ----

TEST(HostPoolBuilder, ASidePoolMayComeLaterThanTheMainOneAndNothingIsThereBeforeSeal) {
  const int before = open_memfds();
  HostPoolGroupBuilder builder = HostPoolGroup::begin(options(MemoryKind::kShared, PagesCapacity{2}));
  ASSERT_TRUE(builder.add_pool(raw_pool("main", 16, {128})).ok());
  EXPECT_EQ(open_memfds(), before);
  ASSERT_TRUE(builder.add_pool(raw_pool("side", 0, {64, 32})).ok());
  EXPECT_EQ(open_memfds(), before);
  const auto plan = builder.plan();
  ASSERT_TRUE(plan);
  EXPECT_EQ(required_bytes(*plan), 448U);
  auto group = builder.seal();
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(open_memfds(), before + 1);
  EXPECT_EQ(group->plan(), *plan);
  EXPECT_EQ(group->required_bytes(), 448U);
  EXPECT_EQ(group->mapped_bytes(), 2 * kMiB);
  ASSERT_EQ(group->ranges().size(), 1U);
  EXPECT_EQ(group->ranges()[0].size(), group->mapped_bytes()) << "by allocation, as large as what is mapped";
}

TEST(HostPoolBuilder, NothingIsAddedAfterSealAndItSealsOnce) {
  HostPoolGroupBuilder builder = HostPoolGroup::begin(options(MemoryKind::kAnonymous, PagesCapacity{1}));
  ASSERT_TRUE(builder.add_pool(raw_pool("main", 16, {128})).ok());
  ASSERT_TRUE(builder.seal());
  const Status late = builder.add_pool(raw_pool("side", 0, {64}));
  EXPECT_EQ(late.code, Code::kFailedPrecondition);
  EXPECT_THAT(late.message, HasSubstr("the group is sealed: wanted every pool before seal()"));
  EXPECT_EQ(builder.add_pools(hybrid_form(), {.layout = named_layout("page_first")}).code,
            Code::kFailedPrecondition);
  const auto again = builder.seal();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kFailedPrecondition);
}

TEST(HostPoolBuilder, ARefusedPoolIsNotInAndTheOthersAre) {
  HostPoolGroupBuilder builder =
      HostPoolGroup::begin(options(MemoryKind::kAnonymous, TotalCapacity{2 * kMiB}));
  EXPECT_FALSE(builder.seal()) << "no pool at all";
  ASSERT_TRUE(builder.add_pool(raw_pool("main", 16, {128})).ok());
  EXPECT_FALSE(builder.add_pool(raw_pool("main", 16, {128})).ok());
  EXPECT_FALSE(builder.add_pool(HostPoolRequest{}).ok()) << "a null pool";
  const auto group = builder.seal();
  ASSERT_TRUE(group) << "a seal that failed before did not spend it";
  EXPECT_EQ(group->plan().pools.size(), 1U);
}

// ---- every kind, really allocated ----

TEST(HostPoolMemory, FullWindowAndStateWithBackendDynamicAndAllocatorShmAreAllInTheOneSharedMapping) {
  const auto kind = resolve_memory_kind({.allocator = "shm", .backend = "dynamic"});
  ASSERT_TRUE(kind);
  const auto group = hybrid(options(*kind, TotalCapacity{8 * kMiB}));
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->kind(), MemoryKind::kShared);
  ASSERT_GE(group->fd(), 0);
  each_byte(*group, [](std::byte& byte, std::byte wanted) { byte = wanted; });
  // Read through a mapping of the fd, and through nothing that the group hands out but places.
  const auto second = Mapping::attach(group->fd(), {.bytes = group->mapped_bytes(), .touch = {}});
  ASSERT_TRUE(second) << second.error().message;
  std::map<std::string, std::uint64_t> read;
  for (std::uint32_t p = 0; p < group->plan().pools.size(); ++p) {
    const HostPool& pool = group->plan().pools[p];
    for (std::uint64_t page = 0; page < pool.pages(); ++page) {
      const auto objects = page_segments(pool.layout, page);
      for (std::uint64_t object = 0; object < objects.size(); ++object) {
        std::uint64_t position = 0;
        for (const Segment& segment : objects[object].segments)
          for (std::uint64_t i = 0; i < segment.length; ++i, ++read[pool.name()])
            ASSERT_EQ(second->view()[place_of(pool, segment).offset + i],
                      content(p, page, object, position++));
      }
    }
  }
  EXPECT_EQ(read.size(), 3U);
  std::uint64_t all = 0;
  for (const auto& [name, bytes] : read) all += bytes;
  EXPECT_EQ(all, group->required_bytes());
}

TEST(HostPoolMemory, EveryLayoutOfEveryStackKeepsEveryByteOfEveryPoolApart) {
  for (const Stack& each : all_stacks())
    for (const Layout& layout : named_layouts()) {
      auto made = HostPoolGroup::build(each.form, {.layout = layout},
                                       options(MemoryKind::kAnonymous, PagesCapacity{2}));
      if (!made) {
        EXPECT_THAT(made.error().message, HasSubstr("stands outside of component")) << each.name;
        continue;
      }
      each_byte(*made, [](std::byte& byte, std::byte wanted) { byte = wanted; });
      std::uint64_t read = 0;
      each_byte(*made, [&](std::byte& byte, std::byte wanted) {
        ASSERT_EQ(byte, wanted);
        ++read;
      });
      EXPECT_EQ(read, made->required_bytes()) << each.name << " " << layout.name;
    }
}

TEST(HostPoolMemory, BuffersAreListedPerPoolAndRangesPerAllocation) {
  HostPoolGroupBuilder builder = HostPoolGroup::begin(options(MemoryKind::kShared, PagesCapacity{1}));
  ASSERT_TRUE(builder.add_pool(raw_pool("logical", 16, {})).ok());
  ASSERT_TRUE(builder.add_pool(raw_pool("main", 16, {128, 0})).ok());
  HostPoolRequest again = raw_pool("again", 16, {128});
  again.slots_of = "main";
  again.buffers = {SameBufferAs{"main", 0}};
  ASSERT_TRUE(builder.add_pool(again).ok());
  const auto group = builder.seal();
  ASSERT_TRUE(group);
  const auto& pools = group->plan().pools;
  EXPECT_EQ(pools[1].buffers[0], pools[2].buffers[0]);
  EXPECT_EQ(group->buffer_address(1, 0), group->buffer_address(2, 0));
  EXPECT_EQ(group->buffer_address(1, 1), nullptr) << "a buffer of no bytes";
  EXPECT_EQ(group->ranges().size(), 1U);
  EXPECT_EQ(group->required_bytes(), 128U);
}

TEST(HostPoolMemory, AGroupWithoutBytesHasNoMemory) {
  const int before = open_memfds();
  HostPoolGroupBuilder builder = HostPoolGroup::begin(options(MemoryKind::kShared, PagesCapacity{5}));
  ASSERT_TRUE(builder.add_pool(raw_pool("logical", 16, {})).ok());
  const auto group = builder.seal();
  ASSERT_TRUE(group);
  EXPECT_EQ(open_memfds(), before);
  EXPECT_TRUE(group->ranges().empty());
  EXPECT_EQ(group->fd(), -1);
  EXPECT_TRUE(HostPoolGroup::attach(group->plan(), -1, MappingAccess::kReadOnly));
}

TEST(HostPoolMemory, ExternalIsTheCallersAndStaysThere) {
  std::vector<std::byte> one(512), two(64);
  HostPoolOptions made = options(MemoryKind::kExternal, PagesCapacity{2});
  made.plan.allocations = {one, two};
  HostPoolGroupBuilder builder = HostPoolGroup::begin(made);
  HostPoolRequest kv = raw_pool("kv", 16, {64, 64});
  kv.buffers = {BufferAt{MutableByteView(one).first(128)}, BufferAt{MutableByteView(one).subspan(128, 128)}};
  HostPoolRequest state = raw_pool("state", 0, {32});
  state.buffers = {BufferAt{two}};
  ASSERT_TRUE(builder.add_pool(kv).ok());
  ASSERT_TRUE(builder.add_pool(state).ok());
  {
    const auto group = builder.seal();
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_EQ(group->required_bytes(), 256U + 64U);
    ASSERT_EQ(group->ranges().size(), 2U) << "two allocations, three buffers";
    EXPECT_EQ(group->ranges()[0].data(), one.data());
    EXPECT_EQ(group->ranges()[0].size(), 512U);
    EXPECT_EQ(group->fd(), -1);
    each_byte(*group, [](std::byte& byte, std::byte wanted) { byte = wanted; });
    EXPECT_EQ(group->bytes(0, {1, 64, 64}).data(), one.data() + 192);
  }
  EXPECT_EQ(one[0], content(0, 0, 0, 0));
  EXPECT_EQ(one[128 + 64], content(0, 1, 1, 0));
  EXPECT_EQ(two[32], content(1, 1, 0, 0));
}

TEST(HostPoolMemory, MovesAsAValue) {
  auto one = hybrid(options(MemoryKind::kShared, PagesCapacity{2}));
  auto two = hybrid(options(MemoryKind::kShared, PagesCapacity{3}));
  ASSERT_TRUE(one && two);
  each_byte(*two, [](std::byte& byte, std::byte wanted) { byte = wanted; });
  const std::byte* at = two->ranges()[0].data();
  const int before = open_memfds();
  *one = std::move(*two);
  EXPECT_EQ(open_memfds(), before - 1);
  EXPECT_EQ(one->ranges()[0].data(), at);
  each_byte(*one, [](std::byte& byte, std::byte wanted) { ASSERT_EQ(byte, wanted); });
}

// ---- pinned ----

// A device that registers ranges, until it does not.
class Registrar final : public HostRegistrar {
 public:
  Status register_range(MutableByteView range) override {
    if (left-- == 0) return {Code::kResourceExhausted, "out of mappings"};
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.data()) % 4096, 0U);
    EXPECT_EQ(range.size() % 4096, 0U);
    EXPECT_TRUE(registered.emplace(range.data(), range.size()).second);
    return {};
  }
  void unregister_range(MutableByteView range) override {
    EXPECT_EQ(registered.count(range.data()), 1U);
    EXPECT_EQ(registered[range.data()], range.size());
    // While the memory is still there.
    EXPECT_EQ(range.front(), range.front());
    registered.erase(range.data());
  }
  int left = -1;
  std::map<const std::byte*, std::size_t> registered;
};

TEST(HostPoolPinned, WithoutADeviceItIsRefusedInWords) {
  const auto group = hybrid(options(MemoryKind::kPinned, PagesCapacity{2}));
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kUnsupported);
  EXPECT_THAT(group.error().message,
              HasSubstr("pinned: wanted a device to register it with, got none; take 'anonymous'"));
}

TEST(HostPoolPinned, EveryByteIsRegisteredInPiecesAndForgottenBeforeTheMemoryGoes) {
  Registrar device;
  HostPoolOptions made = options(MemoryKind::kPinned, TotalCapacity{8 * kMiB});
  made.registrar = &device;
  made.registration_bytes = kMiB;
  {
    auto group = hybrid(made);
    ASSERT_TRUE(group) << group.error().message;
    EXPECT_GE(group->registered().size(), 8U);
    EXPECT_EQ(device.registered.size(), group->registered().size());
    const std::byte* next = group->ranges()[0].data();
    for (const MutableByteView piece : group->registered()) {
      EXPECT_EQ(piece.data(), next);
      EXPECT_LE(piece.size(), kMiB);
      next += piece.size();
    }
    EXPECT_EQ(next, group->ranges()[0].data() + group->mapped_bytes());
    auto other = hybrid(made);
    ASSERT_TRUE(other);
    *group = std::move(*other);
    EXPECT_EQ(device.registered.size(), group->registered().size());
  }
  EXPECT_TRUE(device.registered.empty());
}

TEST(HostPoolPinned, ARangeThatIsRefusedTakesBackTheOthers) {
  Registrar device;
  device.left = 3;
  HostPoolOptions made = options(MemoryKind::kPinned, TotalCapacity{8 * kMiB});
  made.registrar = &device;
  made.registration_bytes = kMiB;
  const auto group = hybrid(made);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().code, Code::kResourceExhausted);
  EXPECT_THAT(group.error().message, HasSubstr("host pools: memory pinned: registering range 4 of"));
  EXPECT_THAT(group.error().message, HasSubstr("out of mappings"));
  EXPECT_TRUE(device.registered.empty());
}

// ---- what this machine cannot give ----

TEST(HostPoolGuard, WantedAvailableAndTheOptionToChangeAreToldBeforeAnyIsTouched) {
  for (const auto& [capacity, option] : std::vector<std::pair<Capacity, std::string>>{
           {TotalCapacity{1ULL << 45}, "total bytes"}, {PagesCapacity{1ULL << 33}, "pages"}}) {
    const int before = open_memfds();
    const auto group = hybrid(options(MemoryKind::kShared, capacity));
    ASSERT_FALSE(group);
    EXPECT_EQ(group.error().code, Code::kResourceExhausted);
    for (const std::string& part : {std::string("host pools: memory shared: "), std::string("wanted "),
                                    std::string("got "), "the capacity (" + option + "): lower it"})
      EXPECT_THAT(group.error().message, HasSubstr(part));
    EXPECT_EQ(group.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(open_memfds(), before);
  }
}

TEST(HostPoolNuma, PlacementIsReported) {
  HostPoolOptions made = options(MemoryKind::kShared, TotalCapacity{4 * kMiB});
  made.numa = {.mode = NumaMode::kInterleave};
  const auto group = hybrid(made);
  if (!group && group.error().code == Code::kUnsupported)
    GTEST_SKIP() << "skipped: 1 case, this kernel has no memory nodes: " << group.error().message;
  ASSERT_TRUE(group) << group.error().message;
  EXPECT_EQ(group->numa_report().wanted, made.numa);
  fmt::print("numa: {}\n", numa_report_text(group->numa_report()));
  made.numa = {.mode = NumaMode::kBind, .node = 1023};
  const auto absent = hybrid(made);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kInvalidArgument);
  EXPECT_THAT(absent.error().message, HasSubstr("numa: bind: wanted one of the nodes"));
}

}  // namespace
}  // namespace tiercel
