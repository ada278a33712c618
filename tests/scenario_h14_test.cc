// H14 (for loads): a load that cannot finish. Under 'wait' it blocked its request for ever, a hanging side
// pool disabled the time limit, and 'nothing planned yet' counted as complete.
#include "node/test_world.h"

namespace tiercel {
namespace {

constexpr Duration kLimit = std::chrono::milliseconds(200);

struct Ended {
  std::size_t answers = 0;
  LoadResult result;
  bool quiescent = false;
  std::size_t quiescent_later = 0;
};

void collect(Node& node, OperationId load, Ended& ended) {
  for (Completion& completion : node.drain_completions()) {
    if (completion.operation != load) continue;
    if (completion.kind == CompletionKind::kQuiescent) ++ended.quiescent_later;
    if (completion.kind != CompletionKind::kLoaded) continue;
    ++ended.answers;
    ended.quiescent = completion.quiescent;
    ended.result = std::move(*completion.load);
  }
}

struct Case {
  HeldExecutor executor;
  TestWorld world{{.spec = test_spec({.window_pages = 2, .index_keys = true}), .executor = &executor}};
  std::vector<Key> keys = world.keys(8);
  Case() {
    for (std::uint64_t page = 0; page < 8; ++page)
      for (const ClassForm& cls : world.form().classes) {
        world.store(keys, page, cls.id);
        settle();
      }
    world.node().drain_completions();
    world.wipe();
  }
  void settle() {
    for (int i = 0; i < 64 && (i < 4 || executor.held() != 0); ++i) {
      executor.run_all();
      world.node().poll();
    }
  }
  OperationId start(TicketId ticket, std::optional<Duration> limit) {
    LoadRequest request = world.load_request(ticket, world.view(ticket).length);
    request.deadline = limit;
    return world.node().load(std::move(request)).value();
  }
};

TEST(H14, AnUnreadablePageShortensTheLoadUnderEveryPatience) {
  for (const std::optional<Duration> limit : {std::optional<Duration>{}, std::optional(kLimit)}) {
    Case c;
    c.world.damage(c.keys[3], ClassId(0));
    const TicketId ticket = c.world.match(c.keys);
    const OperationId load = c.start(ticket, limit);
    c.settle();
    Ended ended;
    collect(c.world.node(), load, ended);
    EXPECT_EQ(ended.answers, 1U);
    EXPECT_TRUE(ended.result.status.ok());
    EXPECT_EQ(ended.result.length, 3U);
    EXPECT_EQ(c.world.wrong_bytes(c.keys, 3), "");
    EXPECT_TRUE(c.world.untouched_from(3, 8));
  }
}

TEST(H14, NothingStoredIsALoadOfNothingThatEndsAtOnce) {
  Case c;
  const TicketId ticket = c.world.match(c.world.keys(4, 99));
  const OperationId load = c.start(ticket, kLimit);
  Ended ended;
  collect(c.world.node(), load, ended);
  EXPECT_EQ(ended.answers, 1U);
  EXPECT_EQ(ended.result.length, 0U);
}

TEST(H14, FewerTokensThanTheThresholdAreNotOffered) {
  TestWorld world({.spec = test_spec({.page_tokens = 1}),
                   .adjust = [](NodeOptions& o) { o.load_back_threshold_tokens = 10; }});
  const auto keys = world.keys(9);
  world.store_pages(keys, {});
  const TicketView view = world.view(world.match(keys));
  EXPECT_EQ(view.length, 0U);
  ASSERT_EQ(view.missed.size(), 1U);
  EXPECT_EQ(view.missed[0].reason, Reason::kBelowThreshold);
  const auto more = world.keys(10);
  world.store_pages(more, {});
  EXPECT_EQ(world.view(world.match(more)).length, 10U);
}

TEST(H14, ACopyThatSleepsForEverDoesNotOutliveTheLimit) {
  Case c;
  const TicketId ticket = c.world.match(c.keys);
  const OperationId load = c.start(ticket, kLimit);
  c.world.node().poll();
  Ended ended;
  collect(c.world.node(), load, ended);
  EXPECT_EQ(ended.answers, 0U) << "not started is never done";
  c.world.clock().advance(kLimit);
  c.world.node().poll();
  collect(c.world.node(), load, ended);
  EXPECT_EQ(ended.answers, 1U) << "no later than its limit plus one poll";
  EXPECT_EQ(ended.result.status.code, Code::kDeadlineExceeded);
  EXPECT_EQ(ended.result.length, 0U);
  EXPECT_FALSE(ended.quiescent) << "the copies still run: the targets are not the caller's yet";
  EXPECT_GT(c.world.node().stats().in_flight_bytes, 0U);
  c.settle();
  collect(c.world.node(), load, ended);
  EXPECT_EQ(ended.answers, 1U);
  EXPECT_EQ(ended.quiescent_later, 1U);
  EXPECT_EQ(c.world.node().stats().in_flight_bytes, 0U);
  c.world.node().release(ticket);
  EXPECT_EQ(c.world.node().stats().leased_bytes, 0U);
}

TEST(H14, WhatTimedOutIsTooLateForThatRequest) {
  Case c;
  const RequestId request(5);
  c.start(c.world.match(c.keys, request), kLimit);
  c.world.clock().advance(kLimit);
  c.world.node().poll();
  c.settle();
  const TicketView view = c.world.view(c.world.match(c.keys, request));
  EXPECT_EQ(view.length, 0U);
  EXPECT_EQ(view.missed.at(0).reason, Reason::kTooLate);
}

}  // namespace
}  // namespace tiercel
