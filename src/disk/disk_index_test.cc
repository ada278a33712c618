#include "disk/disk_index.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/prng.h"

namespace tiercel::disk {
namespace {

Key key_of(std::uint64_t number) {
  Prng random(number);
  return {{random.next(), random.next()}};
}

IndexEntry entry_of(std::uint64_t number, std::uint64_t cls = 0, std::uint64_t space = 1) {
  IndexEntry entry;
  entry.key = key_of(number);
  entry.space = static_cast<std::uint32_t>(space);
  entry.cls = ClassId(static_cast<std::uint16_t>(cls));
  entry.block = static_cast<std::uint32_t>(number * 3);
  entry.born = number + 1;
  entry.life = static_cast<std::uint8_t>(number);
  return entry;
}

std::optional<IndexEntry> find(const DiskIndex& index, const IndexEntry& entry) {
  return index.find(DiskSpaceId(entry.space), entry.key, entry.cls);
}
bool erase(DiskIndex& index, const IndexEntry& entry) {
  return index.erase(DiskSpaceId(entry.space), entry.key, entry.cls);
}

std::vector<IndexEntry> all(const DiskIndex& index) {
  std::vector<IndexEntry> entries;
  index.for_each([&](const IndexEntry& entry) { entries.push_back(entry); });
  return entries;
}

TEST(DiskIndex, WhatIsPutIsFoundWithEveryField) {
  DiskIndex index = DiskIndex::create(16).value();
  IndexEntry entry = entry_of(1, 255, UINT32_MAX);
  entry.block = UINT32_MAX;
  entry.born = (1ULL << 40) - 1;
  entry.uses = 255;
  entry.life = 255;
  EXPECT_TRUE(index.put(entry));
  EXPECT_EQ(find(index, entry), entry);
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(index.capacity(), 128U);
}

TEST(DiskIndex, AnotherNamespaceKeyOrClassIsNotFound) {
  DiskIndex index = DiskIndex::create(16).value();
  ASSERT_TRUE(index.put(entry_of(1, 2, 3)));
  EXPECT_FALSE(find(index, entry_of(1, 2, 4)));
  EXPECT_FALSE(find(index, entry_of(1, 3, 3)));
  EXPECT_FALSE(find(index, entry_of(2, 2, 3)));
  IndexEntry half = entry_of(1, 2, 3);
  half.key.words[1] ^= 1;
  EXPECT_FALSE(find(index, half)) << "keys are compared whole";
}

TEST(DiskIndex, AnEntryIsReplacedInItsPlace) {
  DiskIndex index = DiskIndex::create(16).value();
  IndexEntry entry = entry_of(1);
  ASSERT_TRUE(index.put(entry));
  entry.block = 99;
  ASSERT_TRUE(index.put(entry));
  EXPECT_EQ(find(index, entry), entry);
  EXPECT_EQ(index.size(), 1U);
  EXPECT_EQ(all(index).size(), 1U);
}

TEST(DiskIndex, AllClassesOfAPageAreFoundTogether) {
  DiskIndex index = DiskIndex::create(64).value();
  for (const std::uint64_t cls : {0U, 3U, 200U}) ASSERT_TRUE(index.put(entry_of(5, cls)));
  ASSERT_TRUE(index.put(entry_of(5, 1, 2)));
  ASSERT_TRUE(index.put(entry_of(6, 1)));
  const DiskIndex::Hits hits = index.find_all(DiskSpaceId(1), key_of(5));
  ASSERT_EQ(hits.count, 3U);
  std::vector<std::uint16_t> classes;
  for (std::size_t i = 0; i < hits.count; ++i) classes.push_back(hits.entries[i].cls.value());
  std::sort(classes.begin(), classes.end());
  EXPECT_EQ(classes, (std::vector<std::uint16_t>{0, 3, 200}));
}

TEST(DiskIndex, APageHasTwoBucketsAndThenNoMoreRoom) {
  for (const std::uint64_t buckets : {2U, 3U, 1000U}) {
    DiskIndex index = DiskIndex::create(buckets).value();
    for (std::uint16_t cls = 0; cls < 16; ++cls) EXPECT_TRUE(index.put(entry_of(7, cls))) << cls;
    EXPECT_FALSE(index.put(entry_of(7, 16))) << "its buckets differ, and both are full";
    EXPECT_EQ(index.size(), 16U);
    EXPECT_EQ(index.find_all(DiskSpaceId(1), key_of(7)).count, 16U);
    EXPECT_TRUE(erase(index, entry_of(7, 3)));
    EXPECT_TRUE(index.put(entry_of(7, 16)));
  }
}

TEST(DiskIndex, UsesStopAtTheirLimit) {
  DiskIndex index = DiskIndex::create(2).value();
  const IndexEntry entry = entry_of(1);
  index.use(DiskSpaceId(1), entry.key, entry.cls);  // not there: nothing
  ASSERT_TRUE(index.put(entry));
  for (int i = 0; i < 300; ++i) {
    index.use(DiskSpaceId(1), entry.key, entry.cls);
    ASSERT_EQ(find(index, entry)->uses, std::min(i + 1, 255));
  }
  EXPECT_EQ(find(index, entry)->born, entry.born) << "neighbouring fields stay";
  EXPECT_EQ(find(index, entry)->life, entry.life);
}

TEST(DiskIndex, ASweepErasesWhatIsNotKept) {
  DiskIndex index = DiskIndex::create(100).value();
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(index.put(entry_of(i)));
  const auto even = [](const IndexEntry& entry) { return entry.life % 2 == 0; };
  std::uint64_t erased = 0;
  for (std::uint64_t first = 0; first < 100; first += 30)
    erased += index.sweep(first, std::min<std::uint64_t>(30, 100 - first), even);
  EXPECT_EQ(erased, 150U);
  EXPECT_EQ(index.size(), 150U);
  for (std::uint64_t i = 0; i < 300; ++i) EXPECT_EQ(find(index, entry_of(i)).has_value(), i % 2 == 0) << i;
}

DiskIndex loaded_from(const DiskIndex& index, std::uint64_t chunk) {
  DiskIndex copy = DiskIndex::create(index.buckets()).value();
  const std::uint64_t bytes = index.buckets() * kBucketBytes;
  for (std::uint64_t at = 0; at < bytes; at += chunk) {
    const std::uint64_t length = std::min(chunk, bytes - at);
    const ByteView from = index.image(at, length);
    std::copy(from.begin(), from.end(), copy.image_for_load(at, length).begin());
  }
  copy.take(0, copy.buckets(), [](const IndexEntry&) { return true; });
  return copy;
}

TEST(DiskIndex, AnImageIsTheTableByteForByte) {
  DiskIndex index = DiskIndex::create(100).value();
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(index.put(entry_of(i, i % 5, 1 + i % 3)));
  const DiskIndex copy = loaded_from(index, 1000);
  EXPECT_EQ(copy.size(), 300U);
  EXPECT_EQ(all(copy), all(index));
  for (std::uint64_t i = 0; i < 300; ++i)
    EXPECT_EQ(find(copy, entry_of(i, i % 5, 1 + i % 3)), entry_of(i, i % 5, 1 + i % 3));
}

TEST(DiskIndex, TheFirstEntryOfABucketStandsAsTheDocumentSays) {
  DiskIndex index = DiskIndex::create(2).value();
  IndexEntry entry;
  entry.key.words = {0x0807060504030201, 0x100F0E0D0C0B0A09};
  entry.block = 0x14131211;
  entry.space = 0x18171615;
  entry.born = 0x1D1C1B1A19;
  entry.cls = ClassId(0x1E);
  entry.uses = 0x1F;
  entry.life = 0x20;
  ASSERT_TRUE(index.put(entry));
  const ByteView table = index.image(0, 512);
  const std::size_t at = table[0] == std::byte{1} ? 0 : 256;
  for (std::size_t i = 0; i < 512; ++i)
    EXPECT_EQ(std::to_integer<std::size_t>(table[i]), i >= at && i < at + 32 ? i - at + 1 : 0) << i;
}

TEST(DiskIndex, WhatMakesNoSenseInAnImageIsNone) {
  DiskIndex index = DiskIndex::create(100).value();
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(index.put(entry_of(i)));
  DiskIndex copy = DiskIndex::create(100).value();
  Prng random(3);
  for (std::byte& b : copy.image_for_load(0, 100 * kBucketBytes)) b = static_cast<std::byte>(random.next());
  copy.take(0, copy.buckets(), [](const IndexEntry&) { return true; });
  EXPECT_EQ(copy.size(), all(copy).size());
  EXPECT_LT(copy.size(), 60U) << "two buckets of a hundred are a key's own";
  for (const IndexEntry& entry : all(copy)) EXPECT_EQ(find(copy, entry), entry);
  // Namespace 0 with other bytes: free, and taken for the next entry.
  DiskIndex unnamed = DiskIndex::create(100).value();
  MutableByteView bytes = unnamed.image_for_load(0, 100 * kBucketBytes);
  std::fill(bytes.begin(), bytes.end(), std::byte{0xFF});
  for (std::size_t at = 20; at < bytes.size(); at += 32) store_le(&bytes[at], std::uint32_t{0});
  unnamed.take(0, unnamed.buckets(), [](const IndexEntry&) { return true; });
  EXPECT_EQ(unnamed.size(), 0U);
  EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST(DiskIndex, OfAnImageOnlyWhatIsKeptIsThere) {
  DiskIndex index = DiskIndex::create(100).value();
  for (std::uint64_t i = 0; i < 300; ++i) ASSERT_TRUE(index.put(entry_of(i)));
  DiskIndex copy = DiskIndex::create(100).value();
  const ByteView from = index.image(0, 100 * kBucketBytes);
  std::copy(from.begin(), from.end(), copy.image_for_load(0, 100 * kBucketBytes).begin());
  const auto even = [](const IndexEntry& entry) { return entry.key.words[0] % 2 == 0; };
  copy.take(0, 60, even);
  copy.take(60, 40, even);
  const std::vector<IndexEntry> before = all(index);
  EXPECT_EQ(copy.size(), static_cast<std::uint64_t>(std::count_if(before.begin(), before.end(), even)));
  for (const IndexEntry& entry : all(copy)) EXPECT_TRUE(even(entry));
}

// What had its place one by one has it in any other order, too.
TEST(DiskIndex, MovesMakeRoomWhereBothBucketsAreFull) {
  constexpr std::uint64_t kBuckets = 4000;
  DiskIndex index = DiskIndex::create(kBuckets).value();
  DiskIndex moved = DiskIndex::create(kBuckets).value();
  std::uint64_t refused = 0;
  for (std::uint64_t i = 0; i < index.capacity() * 9 / 10; ++i) {
    if (!index.put(entry_of(i))) ++refused;
    ASSERT_TRUE(moved.put_with_moves(entry_of(i))) << i;
  }
  EXPECT_GT(refused, 0U);
  for (std::uint64_t i = 0; i < index.capacity() * 9 / 10; ++i)
    ASSERT_EQ(find(moved, entry_of(i)), entry_of(i));
  // As an opening does it: what was put one by one, in another order.
  std::vector<IndexEntry> there = all(index);
  Prng random(11);
  for (std::size_t i = there.size(); i > 1; --i) std::swap(there[i - 1], there[random.below(i)]);
  DiskIndex again = DiskIndex::create(kBuckets).value();
  for (const IndexEntry& entry : there) ASSERT_TRUE(again.put_with_moves(entry));
}

// A piece of the image is copied, the entry goes and comes back in its other bucket, that piece is copied.
TEST(DiskIndex, AnEntryThatAnImageHasTwiceIsOneAfterItsNextPut) {
  for (const bool erased : {false, true}) {
    DiskIndex before = DiskIndex::create(2).value();
    const IndexEntry entry = entry_of(1);
    ASSERT_TRUE(before.put(entry));
    const ByteView there = before.image(0, 2 * kBucketBytes);
    const bool in_first = std::any_of(there.begin(), there.begin() + kBucketBytes,
                                      [](std::byte b) { return b != std::byte{0}; });
    const ByteView own = there.subspan(in_first ? 0 : kBucketBytes, kBucketBytes);
    DiskIndex index = DiskIndex::create(2).value();
    MutableByteView bytes = index.image_for_load(0, 2 * kBucketBytes);
    for (const std::ptrdiff_t at : {0, static_cast<int>(kBucketBytes)})
      std::copy(own.begin(), own.end(), bytes.begin() + at);
    index.take(0, index.buckets(), [](const IndexEntry&) { return true; });
    ASSERT_EQ(index.size(), 2U);
    if (erased) {
      EXPECT_TRUE(erase(index, entry));
      EXPECT_EQ(index.size(), 0U);
      EXPECT_FALSE(find(index, entry));
    } else {
      IndexEntry newer = entry;
      newer.block = 4711;
      EXPECT_TRUE(index.put(newer));
      EXPECT_EQ(index.size(), 1U);
      EXPECT_EQ(all(index), std::vector<IndexEntry>{newer});
    }
  }
}

TEST(DiskIndex, TooFewOrTooManyBucketsAreRefused) {
  for (const std::uint64_t buckets : {std::uint64_t{0}, std::uint64_t{1}, UINT64_MAX})
    EXPECT_EQ(DiskIndex::create(buckets).error().code, Code::kInvalidArgument) << buckets;
  EXPECT_FALSE(DiskIndex::create(1ULL << 50));
}

// How many random keys find a place: what plan_geometry() counts on.
TEST(DiskIndex, FillsFarBeforeItRefuses) {
  constexpr std::uint64_t kBuckets = 40000;
  DiskIndex index = DiskIndex::create(kBuckets).value();
  const double capacity = static_cast<double>(index.capacity());
  std::uint64_t first_refusal = 0, refused_75 = 0, refused = 0, asked = 0;
  while (static_cast<double>(asked) < 0.95 * capacity) {
    if (!index.put(entry_of(++asked))) {
      ++refused;
      if (first_refusal == 0) first_refusal = asked;
    }
    if (asked == index.capacity() * 3 / 4) refused_75 = refused;
  }
  std::printf(
      "first refusal at %.1f %% of the table; refused of those up to 75 %%: %.4f %%, up to 95 %%: %.3f %%\n",
      100.0 * static_cast<double>(first_refusal) / capacity,
      100.0 * static_cast<double>(refused_75) / (0.75 * capacity),
      100.0 * static_cast<double>(refused) / static_cast<double>(asked));
  EXPECT_GE(static_cast<double>(first_refusal), 0.45 * capacity);
  EXPECT_LT(static_cast<double>(refused_75), 0.01 * 0.75 * capacity);
  EXPECT_EQ(index.size() + refused, asked);
}

TEST(DiskIndex, KeysWithLittleInThemSpreadAsWell) {
  DiskIndex index = DiskIndex::create(10000).value();
  for (std::uint64_t i = 0; i < 50000; ++i) {
    IndexEntry entry = entry_of(1);
    entry.key.words = {i % 224, i / 224};
    ASSERT_TRUE(index.put(entry)) << i;
  }
}

RC_GTEST_PROP(DiskIndex, BehavesLikeAMap, ()) {
  DiskIndex index = DiskIndex::create(*rc::gen::inRange<std::uint64_t>(2, 6)).value();
  using Name = std::tuple<std::uint32_t, Key, ClassId>;
  std::map<Name, IndexEntry> model;
  const auto steps = *rc::gen::container<std::vector<std::tuple<int, int, int, int>>>(rc::gen::tuple(
      rc::gen::inRange(0, 10), rc::gen::inRange(0, 12), rc::gen::inRange(0, 3), rc::gen::inRange(1, 3)));
  std::uint32_t block = 0;
  for (const auto& [what, number, cls, space] : steps) {
    IndexEntry entry = entry_of(static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(cls),
                                static_cast<std::uint64_t>(space));
    const Name name{entry.space, entry.key, entry.cls};
    const auto known = model.find(name);
    if (what < 6) {
      entry.block = ++block;
      const bool put = index.put(entry);
      RC_ASSERT(put || known == model.end());
      if (put) model[name] = entry;
    } else if (what < 8) {
      RC_ASSERT(erase(index, entry) == (model.erase(name) == 1));
    } else if (known != model.end()) {
      index.use(DiskSpaceId(entry.space), entry.key, entry.cls);
      ++known->second.uses;
    }
    RC_ASSERT(index.size() == model.size());
  }
  for (const auto& [name, entry] : model) RC_ASSERT(find(index, entry) == std::optional(entry));
  for (std::uint64_t number = 0; number < 12; ++number)
    for (std::uint32_t space = 1; space < 3; ++space)
      RC_ASSERT(index.find_all(DiskSpaceId(space), key_of(number)).count ==
                static_cast<std::size_t>(std::count_if(model.begin(), model.end(), [&](const auto& each) {
                  return each.second.space == space && each.second.key == key_of(number);
                })));
  RC_ASSERT(all(index).size() == model.size());
}

}  // namespace
}  // namespace tiercel::disk
