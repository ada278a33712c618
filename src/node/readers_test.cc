// What readers of the page index in other processes cost the others: nothing goes because somebody might
// read.

#include <cstdlib>
#include <set>

#include "index/compact_index.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

// A lease table with one client.
class OneReader {
 public:
  OneReader() : memory_(std::aligned_alloc(4096, *LeaseTable::bytes(kShape)), std::free) {
    table_ =
        *LeaseTable::format({static_cast<std::byte*>(memory_.get()), *LeaseTable::bytes(kShape)}, kShape);
    const auto place = table_->add_client(7);
    EXPECT_TRUE(place.has_value());
    client_ =
        *LeaseClient::attach({static_cast<std::byte*>(memory_.get()), *LeaseTable::bytes(kShape)}, *place);
  }
  LeaseClient& client() { return *client_; }
  LeaseTable* table() { return &*table_; }

 private:
  static constexpr LeaseTableShape kShape{1, 16, 2, 1};
  std::unique_ptr<void, void (*)(void*)> memory_;
  std::optional<LeaseTable> table_;
  std::optional<LeaseClient> client_;
};

std::vector<Key> store_first_pages(TestWorld& world, NamespaceId ns, std::uint32_t first,
                                   std::uint32_t count) {
  std::vector<Key> keys;
  for (std::uint32_t i = 0; i < count; ++i) {
    keys.push_back(world.keys(1, first + i)[0]);
    StoreRequest request = world.store_request({keys.back()}, 0, ClassId(0));
    request.ns = ns;
    EXPECT_EQ(world.node().store(request).value().outcomes.at(0), StoreOutcome::kAccepted);
    world.node().poll();
  }
  world.node().drain_completions();
  return keys;
}

void many_first_pages(NodeOptions& options) { options.index_pages_max = options.index_strips_max = 2048; }

std::uint64_t there(TestWorld& world, NamespaceId ns, const std::vector<Key>& keys) {
  std::uint64_t count = 0;
  for (const Key& key : keys) count += world.node().exists(ns, ClassId(0), key) ? 1U : 0U;
  return count;
}

TEST(Readers, ANamespaceAtItsMaximumLosesNoMoreThanItNeedsHoweverManyPagesOthersHave) {
  OneReader reader;
  TestWorld world(
      {.spec = test_spec({}), .host_bytes = 16 << 20, .readers = reader.table(), .adjust = many_first_pages});
  store_first_pages(world, world.ns(), 1000, 1500);
  const std::uint64_t page = world.form().classes[0].record_bytes;
  const NamespaceId small = world.open("weights-2");
  ContentIdentity identity;
  identity.model = "test";
  identity.weights = "weights-2";
  identity.dtype = "bf16";
  identity.page_tokens = 16;
  ASSERT_EQ(world.node().open_namespace(world.session(), world.form_id(), {identity, 0, 20 * page}).value(),
            small);
  ASSERT_GE(world.node().stats().pages_visible, 128U);  // or batches are of one
  const auto keys = store_first_pages(world, small, 1, 21);
  EXPECT_EQ(there(world, small, keys), 20U);
}

TEST(Readers, WhatWasClearedIsTakenBeforeAnythingThatStillServes) {
  OneReader reader;
  TestWorld world({.spec = test_spec({}),
                   .host_bytes = 16 << 20,
                   .readers = reader.table(),
                   .adjust = [](NodeOptions& options) {
                     many_first_pages(options);
                     options.record_bytes_max = 300 * 16;
                   }});
  ASSERT_EQ(world.form().classes[0].record_bytes, 16U);
  const NamespaceId cleared = world.open("weights-2");
  const auto keys = store_first_pages(world, world.ns(), 1000, 200);
  store_first_pages(world, cleared, 1, 100);
  EXPECT_TRUE(world.node().clear(cleared).ok());
  const StoreRequest request = world.store_request({world.keys(1, 5000)[0]}, 0, ClassId(0));
  EXPECT_EQ(world.node().store(request).value().outcomes.at(0), StoreOutcome::kAccepted);
  EXPECT_EQ(there(world, world.ns(), keys), 200U);
}

TEST(Readers, ARecordThatIsReadKeepsItsExtentButNotTheOthersFromBeingEmptied) {
  OneReader reader;
  const auto index = CompactIndex::create(compact::Sizes{2048, 2048, 2048, 512}, 1);
  TestWorld world({.spec = test_spec({.state = true, .snapshot_bytes = 4000}),
                   .host_bytes = 1216 << 10,
                   .readers = reader.table(),
                   .index = index->get(),
                   .adjust = [](NodeOptions& options) {
                     options.index_pages_max = options.index_strips_max = 2048;
                     options.history_entries = options.advice_entries = 64;
                   }});
  std::vector<Key> keys;
  while (world.node().stats().pages_evicted == 0) {
    const auto more = store_first_pages(world, world.ns(), 1 + static_cast<std::uint32_t>(keys.size()), 1);
    keys.push_back(more[0]);
  }
  for (std::size_t i = 0; i + 1 < keys.size(); ++i)
    if (i % 3 != 0) {
      EXPECT_TRUE(world.node().remove(world.ns(), {&keys[i], 1}).ok());
    }
  world.node().poll();
  // One record in each of the first extents is read.
  std::set<std::uint64_t> read;
  const SpaceId space = world.node().reader_space(world.ns()).space;
  for (const AuditResidence& set : world.node().audit().residences) {
    if (read.size() == 8 || !read.insert(set.spans[0][0].offset / (16 << 10)).second) continue;
    const PageNumber page = (*index)->find(space, set.key).value();
    const auto& generation = (*index)->view().generation(page);
    ASSERT_TRUE(reader.client().lease((*index)->lease_name(page), generation, generation.load()));
  }
  ASSERT_EQ(read.size(), 8U);
  const std::uint64_t evicted = world.node().stats().pages_evicted;
  EXPECT_EQ(world.store({keys.back()}, 0, ClassId(1)).at(0), StoreOutcome::kAccepted);
  EXPECT_EQ(world.node().stats().pages_evicted, evicted);
  EXPECT_GT(world.node().stats().records_moved, 0U);
}

}  // namespace
}  // namespace tiercel
