#include "memory/mapped_arena.h"

#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"

namespace tiercel {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::uint64_t kExtent = 64ULL << 10;
MappedArenaOptions small() {
  return {.sizes = {.index_bytes = 5000, .leases_bytes = 4096, .extent_bytes = kExtent, .extents = 20},
          .epoch = 0xABCD};
}
constexpr std::uint64_t kSmallBytes = (2 + 2 + 2) * kMiB;

// Runs `body` in a forked child; its exit status. 0 = it returned true.
int in_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body() ? 0 : 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(MappedArena, OpensWithEmptySectionsAndAHeader) {
  auto arena = MappedArena::open(small());
  ASSERT_TRUE(arena) << arena.error().message;
  EXPECT_EQ(arena->layout().total_bytes, kSmallBytes);
  EXPECT_EQ(arena->mapping().size_bytes(), kSmallBytes);
  EXPECT_EQ(arena->view(arena->layout().index).size(), 5000U);
  EXPECT_EQ(arena->view(arena->layout().leases).size(), 4096U);
  for (const ArenaSection& section : {arena->layout().index, arena->layout().leases, arena->layout().extents})
    for (const std::byte b : arena->view(section)) ASSERT_EQ(b, std::byte{0});
  const auto header = decode_arena_header(arena->view(arena->layout().header), kSmallBytes);
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->epoch, 0xABCDU);
  EXPECT_EQ(header->sizes, small().sizes);
}

TEST(MappedArena, ItsExtentsAreAnArena) {
  auto opened = MappedArena::open(small());
  ASSERT_TRUE(opened);
  MappedArena arena = std::move(*opened);  // as a value it may go anywhere
  EXPECT_EQ(arena.extents().size_bytes(), 20 * kExtent);
  const std::vector<ArenaSpan> record = {{19 * kExtent, kExtent}, {0, 100}};
  arena.extents().view(record, kExtent - 1, 1)[0] = std::byte{1};
  arena.extents().view(record, kExtent + 99, 1)[0] = std::byte{2};
  const ByteView extents = arena.view(arena.layout().extents);
  EXPECT_EQ(extents.back(), std::byte{1});
  EXPECT_EQ(extents[99], std::byte{2});
  for (const std::byte b : arena.view(arena.layout().leases)) ASSERT_EQ(b, std::byte{0});
}

TEST(MappedArena, SizesAndEpochsThatMakeNoSenseAreRefused) {
  MappedArenaOptions options = small();
  options.epoch = 0;
  EXPECT_EQ(MappedArena::open(options).error().code, Code::kInvalidArgument);
  options = small();
  options.sizes.extents = 0;
  EXPECT_EQ(MappedArena::open(options).error().code, Code::kInvalidArgument);
  options.sizes.extents = UINT64_MAX;
  EXPECT_EQ(MappedArena::open(options).error().code, Code::kInvalidArgument);
  options.sizes.extents = 1ULL << 24;
  options.sizes.extent_bytes = 1ULL << 20;
  EXPECT_EQ(MappedArena::open(options).error().code, Code::kResourceExhausted) << "16 TiB on this machine";
}

TEST(MappedArenaAttach, AnotherProcessFindsTheSameSections) {
  auto owner = MappedArena::open(small());
  ASSERT_TRUE(owner);
  owner->bytes(owner->layout().index)[4999] = std::byte{11};
  const std::vector<ArenaSpan> record = {{3 * kExtent, 1000}};
  owner->extents().view(record, 999, 1)[0] = std::byte{22};
  EXPECT_EQ(in_child([&] {
              auto reader = MappedArena::attach(owner->mapping().fd(), {.bytes = kSmallBytes});
              if (!reader || reader->epoch() != 0xABCD || reader->layout() != owner->layout()) return false;
              if (reader->view(reader->layout().index)[4999] != std::byte{11}) return false;
              const auto bytes = reader->read(record[0]);
              if (!bytes || bytes->back() != std::byte{22}) return false;
              auto writer = MappedArena::attach(owner->mapping().fd(),
                                                {.bytes = kSmallBytes, .access = MappingAccess::kReadWrite});
              if (!writer) return false;
              writer->bytes(writer->layout().leases)[0] = std::byte{33};
              writer->extents().view(record, 0, 1)[0] = std::byte{44};
              return true;
            }),
            0);
  EXPECT_EQ(owner->view(owner->layout().leases)[0], std::byte{33});
  EXPECT_EQ(owner->extents().view(record, 0, 1)[0], std::byte{44});
}

TEST(MappedArenaAttach, SpansFromElsewhereAreNeverTrusted) {
  auto owner = MappedArena::open(small());
  ASSERT_TRUE(owner);
  const std::uint64_t all = 20 * kExtent;
  EXPECT_TRUE(owner->read({0, all}));
  EXPECT_TRUE(owner->read({all, 0}));
  for (const ArenaSpan& span :
       {ArenaSpan{0, all + 1}, ArenaSpan{all, 1}, ArenaSpan{all + 1, 0}, ArenaSpan{1, all},
        ArenaSpan{UINT64_MAX, 1}, ArenaSpan{1, UINT64_MAX}, ArenaSpan{UINT64_MAX, UINT64_MAX}})
    EXPECT_FALSE(owner->read(span)) << span.offset << " + " << span.length;
}

TEST(MappedArenaAttach, MemoryWithoutAHeaderOrWithADamagedOneIsRefused) {
  const auto bare = Mapping::open({MappingKind::kShared, kSmallBytes, {}});
  ASSERT_TRUE(bare);
  auto refused = MappedArena::attach(bare->fd(), {.bytes = kSmallBytes});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDataCorrupt);
  EXPECT_THAT(refused.error().message, HasSubstr("magic"));

  auto owner = MappedArena::open(small());
  ASSERT_TRUE(owner);
  const MutableByteView header = owner->bytes(owner->layout().header);
  for (std::size_t at = 0; at < header.size(); ++at) {
    header[at] ^= std::byte{0x40};
    EXPECT_FALSE(MappedArena::attach(owner->mapping().fd(), {.bytes = kSmallBytes})) << at;
    header[at] ^= std::byte{0x40};
  }
  EXPECT_TRUE(MappedArena::attach(owner->mapping().fd(), {.bytes = kSmallBytes}));
  store_le(&header[8], std::uint32_t{2});
  refused = MappedArena::attach(owner->mapping().fd(), {.bytes = kSmallBytes});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
}

TEST(MappedArenaDeathTest, AReadOnlyOneHasNoExtentsToWriteTo) {
  auto owner = MappedArena::open(small());
  ASSERT_TRUE(owner);
  auto reader = MappedArena::attach(owner->mapping().fd(), {.bytes = kSmallBytes});
  ASSERT_TRUE(reader);
  EXPECT_DEATH(reader->extents(), "extents_");
  EXPECT_DEATH(reader->bytes(reader->layout().leases), "access_");
  EXPECT_DEATH(static_cast<void>(reader->view(ArenaSection{ArenaOffset(UINT64_MAX), 1})), "section");
}

}  // namespace
}  // namespace tiercel
