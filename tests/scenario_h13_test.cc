// H13: the same key twice. One of the two buffers was never written, yet reported as good; a duplicate
// crashed the server; one present key made the whole batch fail.
#include <thread>

#include "node/test_world.h"

namespace tiercel {
namespace {

TEST(H13, ALoadOfOneKeyTwiceFillsBothPlaces) {
  TestWorld world({.spec = test_spec({.window_pages = 3, .full = false})});
  auto keys = world.keys(2);
  world.store_pages(keys, {});
  const std::vector<Key> twice{keys[0], keys[1], keys[0]};
  const LoadResult result = world.load(world.match(twice), 3);
  EXPECT_EQ(result.length, 3U);
  for (const auto& outcomes : result.outcomes)
    for (const ItemOutcome outcome : outcomes) EXPECT_EQ(outcome, ItemOutcome::kDelivered);
  EXPECT_EQ(world.wrong_bytes(twice, 3), "");
}

TEST(H13, ADuplicateInABatchActsLikeTwoStoresInARow) {
  for (const bool other_bytes : {false, true}) {
    TestWorld world({.spec = test_spec({})});
    const auto keys = world.keys(1);
    StoreRequest request = world.store_request(keys, 0, ClassId(0));
    StoreItem again = request.items[0];
    if (other_bytes) again.slot = 1;  // engine memory that holds something else
    request.items.push_back(again);
    const StoreAnswer answer = world.node().store(request).value();
    EXPECT_EQ(answer.outcomes,
              (std::vector<StoreOutcome>{StoreOutcome::kAccepted, StoreOutcome::kBeingWritten}));
    world.node().poll();
    EXPECT_EQ(world.load(world.match(keys), 1).length, 1U);
    EXPECT_EQ(world.wrong_bytes(keys, 1), "") << "the first one's bytes";
    EXPECT_EQ(world.store(keys, 0, ClassId(0)).at(0), StoreOutcome::kAlreadyPresent);
  }
}

TEST(H13, OneBadOrPresentItemDoesNotAffectTheOthers) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(3);
  world.store(keys, 0, ClassId(0));
  StoreRequest request = world.store_request(keys, 1, ClassId(0));
  request.items.push_back(world.store_request(keys, 0, ClassId(0)).items[0]);
  StoreItem bad = request.items[0];
  bad.bytes = 1;
  request.items.push_back(bad);
  request.items.push_back(world.store_request(keys, 2, ClassId(0)).items[0]);
  EXPECT_EQ(world.node().store(request).value().outcomes,
            (std::vector<StoreOutcome>{StoreOutcome::kAccepted, StoreOutcome::kAlreadyPresent,
                                       StoreOutcome::kInvalid, StoreOutcome::kAccepted}));
  world.node().poll();
  EXPECT_EQ(world.load(world.match(keys), 3).length, 3U);
  EXPECT_EQ(world.wrong_bytes(keys, 3), "");
}

TEST(H13, TwoStoresOfOneKeyUnderWayAtOnceLeaveOneWholePage) {
  ThreadExecutor executor(2);
  TestWorld world({.spec = test_spec({.index_keys = true}), .executor = &executor});
  const auto keys = world.keys(8);
  const auto drained = [&] {
    while (world.node().stats().in_flight_bytes != 0) {
      world.node().poll();
      std::this_thread::yield();
    }
    world.node().poll();
  };
  for (std::uint64_t page = 0; page < 8; ++page)
    for (const ClassForm& cls : world.form().classes) {
      // One source for both: what a copy still reads may not be written again.
      StoreRequest request = world.store_request(keys, page, cls.id, RequestId(1));
      const auto first = world.node().store(request).value();
      request.request = RequestId(2);
      const auto second = world.node().store(std::move(request)).value();
      EXPECT_EQ(first.outcomes.at(0), StoreOutcome::kAccepted);
      EXPECT_EQ(second.outcomes.at(0), StoreOutcome::kBeingWritten);
    }
  drained();
  const TicketId ticket = world.match(keys);
  ASSERT_EQ(world.view(ticket).length, 8U);
  world.wipe();
  ASSERT_TRUE(world.node().load(world.load_request(ticket, 8)));
  drained();
  drained();
  EXPECT_EQ(world.wrong_bytes(keys, 8), "");
}

TEST(H13, AnEmptyBatchIsSuccess) {
  TestWorld world({.spec = test_spec({})});
  StoreRequest request;
  request.session = world.session();
  request.ns = world.ns();
  const auto answer = world.node().store(request);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->operation, OperationId{});
  EXPECT_TRUE(answer->outcomes.empty());
  EXPECT_EQ(world.view(world.match({})).length, 0U);
}

}  // namespace
}  // namespace tiercel
