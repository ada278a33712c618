// H02 and H04 with the third tier: what a page has besides its KV comes back from the disk, too, or the page
// is a miss; and no page is ever another model's.
#include "disk/test_block_device.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

// Nodes on one drive, one after the other.
class Cabinet {
 public:
  TestWorld& open(const TestModel& model) {
    world.reset();
    log.reset();
    DiskLogOptions options;
    options.region_bytes = 1 << 20;
    options.index_entries = 8192;
    options.admission = DiskAdmission::kAll;
    auto opened = DiskLog::open(options, drive, clock, Digest{std::byte{1}});
    EXPECT_TRUE(opened) << opened.error().to_string();
    log = std::move(*opened);
    TestOptions test;
    test.spec = test_spec(model);
    test.disk = log.get();
    test.adjust = [](NodeOptions& node) { node.load_back_threshold_tokens = 1; };
    world = std::make_unique<TestWorld>(test);
    return *world;
  }
  // Everything is durable and the process ends.
  void close() {
    EXPECT_TRUE(world->node().write_down(std::chrono::seconds(10)).status.ok());
    world.reset();
    log.reset();
  }
  TicketId promoted(NamespaceId ns, const std::vector<Key>& keys) {
    MatchQuery query;
    query.session = world->session();
    query.ns = ns;
    query.keys = keys;
    query.may_promote = true;
    const TicketId ticket = world->node().match(query).value();
    for (int i = 0; i < 64; ++i) world->node().poll();
    EXPECT_FALSE(world->view(ticket).pending);
    return ticket;
  }
  TicketId promoted(const std::vector<Key>& keys) { return promoted(world->ns(), keys); }
  NamespaceId open_identity(const std::string& model, const std::string& weights, const std::string& dtype) {
    ContentIdentity identity;
    identity.model = model;
    identity.weights = weights;
    identity.dtype = dtype;
    identity.page_tokens = world->form().spec.page_tokens;
    return world->node().open_namespace(world->session(), world->form_id(), {identity, 0, {}}).value();
  }

  ManualClock clock;
  TestBlockDevice drive{32 << 20, clock};
  std::unique_ptr<DiskLog> log;
  std::unique_ptr<TestWorld> world;
};

constexpr TestModel kModels[] = {
    {.index_keys = true},
    {.window_pages = 2, .index_keys = true},
    {.window_pages = 3, .state = true, .index_keys = true, .draft = true},
};

TEST(H02Disk, EveryRecordOfAPageComesBackFromTheLowestTierAlone) {
  for (const TestModel& model : kModels) {
    Cabinet cabinet;
    const std::vector<Key> keys = cabinet.open(model).keys(4);
    cabinet.world->store_pages(keys, {.snapshots = {4}});
    cabinet.close();
    cabinet.open(model);  // a host tier of zeros, and engine memory of 0xEE
    const TicketId ticket = cabinet.promoted(keys);
    ASSERT_EQ(cabinet.world->view(ticket).length, 4U);
    const LoadResult result = cabinet.world->load(ticket, 4);
    EXPECT_EQ(result.length, 4U);
    EXPECT_EQ(cabinet.world->wrong_bytes(keys, 4), "");
    for (const auto& target : result.outcomes)
      for (const ItemOutcome outcome : target)
        EXPECT_TRUE(outcome == ItemOutcome::kDelivered || outcome == ItemOutcome::kNotNeeded);
  }
}

TEST(H02Disk, WhatAnOlderConfigurationWroteWithoutTheSecondRecordIsAMissAndStays) {
  Cabinet cabinet;
  const std::vector<Key> keys = cabinet.open({}).keys(4);
  cabinet.world->store_pages(keys, {});
  cabinet.close();
  cabinet.open({.index_keys = true});
  EXPECT_EQ(cabinet.world->view(cabinet.promoted(keys)).length, 0U) << "never served in part";
  cabinet.world->store_pages(keys, {});
  EXPECT_EQ(cabinet.world->view(cabinet.promoted(keys)).length, 4U);
  cabinet.close();
  cabinet.open({});
  const TicketId ticket = cabinet.promoted(keys);
  EXPECT_EQ(cabinet.world->view(ticket).length, 4U) << "the older one's are where they were";
  EXPECT_EQ(cabinet.world->load(ticket, 4).length, 4U);
  EXPECT_EQ(cabinet.world->wrong_bytes(keys, 4), "");
}

TEST(H02Disk, APageWhoseSecondRecordDidNotReachTheDiskIsAMissThere) {
  Cabinet cabinet;
  const std::vector<Key> keys = cabinet.open({.index_keys = true}).keys(4);
  cabinet.world->store_pages(keys, {});
  cabinet.close();
  cabinet.open({.index_keys = true});
  const DiskSpaceId space = cabinet.log->spaces().at(0).id;
  cabinet.log->drop({space, keys[2], ClassId(1)});
  const TicketId ticket = cabinet.promoted(keys);
  EXPECT_EQ(cabinet.world->view(ticket).length, 2U);
  EXPECT_EQ(cabinet.world->load(ticket, 2).length, 2U);
  EXPECT_EQ(cabinet.world->wrong_bytes(keys, 2), "");
  EXPECT_TRUE(cabinet.world->untouched_from(2, 4));
}

TEST(H04Disk, TheSameModelWithAnotherTypeOfKvFindsNothingAndTheFirstIsHitAgain) {
  struct Other {
    std::string model, weights, dtype;
  };
  const std::vector<Other> others = {
      {"test", "weights-1", "fp8"}, {"test", "weights-2", "bf16"}, {"somebody/test", "weights-1", "bf16"}};
  Cabinet cabinet;
  const std::vector<Key> keys = cabinet.open({}).keys(4);
  cabinet.world->store_pages(keys, {});
  cabinet.close();
  for (const Other& other : others) {
    cabinet.open({});  // the same geometry: as many bytes a page
    const NamespaceId ns = cabinet.open_identity(other.model, other.weights, other.dtype);
    EXPECT_EQ(cabinet.world->view(cabinet.promoted(ns, keys)).length, 0U)
        << other.model << " " << other.weights << " " << other.dtype;
    EXPECT_NE(cabinet.world->node().describe(ns), cabinet.world->node().describe(cabinet.world->ns()));
    cabinet.close();
  }
  cabinet.open({});
  const TicketId ticket = cabinet.promoted(keys);
  EXPECT_EQ(cabinet.world->view(ticket).length, 4U);
  EXPECT_EQ(cabinet.world->load(ticket, 4).length, 4U);
  EXPECT_EQ(cabinet.world->wrong_bytes(keys, 4), "");
}

}  // namespace
}  // namespace tiercel
