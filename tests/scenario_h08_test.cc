// H08 (for loads): a thousand loads, left in every way there is. One exit forgot to give the budget back;
// after enough aborts the feature was silently off for good.
#include <set>

#include "node/test_world.h"

namespace tiercel {
namespace {

TEST(H08, AThousandLoadsLeftInEveryWayGiveEverythingBack) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({.window_pages = 2, .state = true}),
                   .executor = &executor,
                   .adjust = [](NodeOptions& o) { o.in_flight_bytes_max = 1024; }});
  Node& node = world.node();
  const auto settle = [&] {
    for (int i = 0; i < 64 && (executor.held() != 0 || i < 4); ++i) {
      executor.run_all();
      node.poll();
    }
  };
  const auto keys = world.keys(4);
  for (std::uint64_t page = 0; page < 4; ++page)
    for (const ClassForm& cls : world.form().classes)
      if (!cls.is_state() || page == 3) {
        world.store(keys, page, cls.id);
        settle();
      }
  const TicketId before = world.match(keys);
  ASSERT_EQ(world.view(before).length, 4U);
  node.release(before);
  node.drain_completions();
  Prng prng(8);
  std::set<std::uint64_t> ways;
  for (int round = 0; round < 1000; ++round) {
    const SessionId session = node.open_session({"round", "salt", {}}).value();
    MatchQuery query;
    query.session = session;
    query.ns = world.ns();
    query.keys = keys;
    query.request = RequestId(static_cast<std::uint64_t>(round) + 1);
    const TicketId ticket = node.match(query).value();
    ASSERT_EQ(world.view(ticket).length, 4U) << "round " << round;
    const OperationId load = node.load(world.load_request(ticket, 4)).value();
    const std::uint64_t way = prng.below(6);
    ways.insert(way);
    if (way != 0 && executor.held() != 0) executor.run_one();  // reading
    if (way == 0 || way == 1) node.cancel(load);               // before it starts, while reading
    if (way == 2) settle();                                    // finished, never used
    if (way == 3) {                                            // error
      world.device().write_fails = [](std::uint64_t) { return true; };
      settle();
      world.device().write_fails = nullptr;
    }
    if (way == 4) {  // out of time
      world.clock().advance(std::chrono::seconds(31));
      node.poll();
    }
    if (way == 5) {
      EXPECT_TRUE(node.close_session(session).ok());
    }  // its owner has gone
    settle();
    std::size_t answers = 0;
    for (const Completion& completion : node.drain_completions())
      answers += completion.operation == load && completion.kind == CompletionKind::kLoaded;
    ASSERT_EQ(answers, 1U) << "round " << round << " way " << way;
    node.request_end(query.request);
    if (way != 5) {
      EXPECT_TRUE(node.close_session(session).ok());
    }
    const Stats& stats = node.stats();
    ASSERT_EQ(stats.in_flight_bytes, 0U) << "round " << round << " way " << way;
    ASSERT_EQ(stats.reserved_bytes, 0U);
    node.release(ticket);
    for (const AuditResidence& set : node.audit().residences) {
      ASSERT_EQ(set.copies, 0U);
      ASSERT_EQ(set.leases, 0U) << "round " << round << " way " << way;
    }
  }
  EXPECT_EQ(ways.size(), 6U);
  const TicketId ticket = world.match(keys);
  world.wipe();
  node.load(world.load_request(ticket, 4)).value();
  settle();
  EXPECT_EQ(world.wrong_bytes(keys, 4), "");
}

}  // namespace
}  // namespace tiercel
