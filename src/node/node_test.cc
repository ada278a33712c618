#include "node/node.h"

#include <memory>

#include <gtest/gtest.h>

#include "device/device_pool.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

TEST(Node, StoredPagesComeBackToTheByte) {
  TestWorld world({.spec = test_spec({.window_pages = 2, .state = true})});
  const auto keys = world.keys(6);
  world.store_pages(keys, {.snapshots = {4, 6}});
  const TicketId ticket = world.match(keys);
  EXPECT_EQ(world.view(ticket).length, 6U);
  EXPECT_EQ(world.view(ticket).lengths, (std::vector<std::uint64_t>{0, 4, 6}));
  const LoadResult result = world.load(ticket, 6);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.length, 6U);
  EXPECT_EQ(world.wrong_bytes(keys, 6), "");
}

TEST(Node, AShorterLengthOfTheTicketLoadsToo) {
  TestWorld world({.spec = test_spec({.window_pages = 2, .state = true})});
  const auto keys = world.keys(6);
  world.store_pages(keys, {.snapshots = {4, 6}});
  const TicketId ticket = world.match(keys);
  EXPECT_EQ(world.load(ticket, 4).length, 4U);
  EXPECT_EQ(world.wrong_bytes(keys, 4), "");
}

TEST(Node, NothingIsVisibleBeforeAllRequiredClassesAre) {
  TestWorld world({.spec = test_spec({.index_keys = true})});
  const auto keys = world.keys(1);
  world.store(keys, 0, ClassId(0));
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
  EXPECT_EQ(world.view(world.match(keys)).missed.at(0).reason, Reason::kInFlight);
  world.store(keys, 0, ClassId(1));
  EXPECT_EQ(world.view(world.match(keys)).length, 1U);
}

TEST(Node, MoreShardsThanThisProcessHoldsAreRefused) {
  TestWorld world({.spec = test_spec({})});
  ModelSpec spec = test_spec({});
  spec.topology = Topology{2, 1, 1};
  const auto form = world.node().open_form({spec, 1});
  ASSERT_FALSE(form);
  EXPECT_EQ(form.error().code, Code::kUnsupported);
}

TEST(Node, RemovalTakesDescendantsOutOfSight) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  EXPECT_TRUE(world.node().remove(world.ns(), {&keys[1], 1}).ok());
  const TicketView view = world.view(world.match(keys));
  EXPECT_EQ(view.length, 1U);
  ASSERT_EQ(view.missed.size(), 1U);
  EXPECT_EQ(view.missed[0].reason, Reason::kRemoved);
  EXPECT_EQ(view.missed[0].pages, 3U);
}

TEST(Node, ALeaseKeepsRemovedBytesInPlaceAndTheLoadIsShorter) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  const TicketId ticket = world.match(keys);
  const std::uint64_t before = world.node().stats().payload_bytes;
  EXPECT_TRUE(world.node().remove(world.ns(), {&keys[2], 1}).ok());
  EXPECT_EQ(world.node().stats().payload_bytes, before);
  EXPECT_EQ(world.load(ticket, 4).length, 2U);
  world.node().release(ticket);
  EXPECT_LT(world.node().stats().payload_bytes, before);
}

TEST(Node, EvictionMakesRoomAndIsTheReason) {
  TestWorld world({.spec = test_spec({}), .pages_max = 4});
  world.store_pages(world.keys(3, 1), {});
  world.store_pages(world.keys(3, 2), {});
  const TicketView view = world.view(world.match(world.keys(3, 1)));
  EXPECT_EQ(view.length, 1U) << "the tail goes first";
  EXPECT_EQ(view.missed.at(0).reason, Reason::kEvicted);
  EXPECT_EQ(world.node().stats().pages_evicted, 2U);
}

TEST(Node, ClearIsSeenAtOnceAndReturnsTheSpace) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  EXPECT_TRUE(world.node().clear(world.ns()).ok());
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
  world.node().poll();
  EXPECT_EQ(world.node().stats().payload_bytes, 0U);
  world.store_pages(keys, {});
  EXPECT_EQ(world.view(world.match(keys)).length, 4U);
}

}  // namespace
}  // namespace tiercel
