// H07: evict while loading. The slots of A were reused during its copy; in the second run the load evicted
// its own source.
#include "node/test_world.h"

namespace tiercel {
namespace {

TEST(H07, ALoadHeldBackKeepsItsSource) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .pages_max = 4, .executor = &executor});
  const auto store = [&](const std::vector<Key>& keys) {
    std::vector<StoreOutcome> outcomes;
    for (std::uint64_t page = 0; page < keys.size(); ++page)
      outcomes.push_back(world.store(keys, page, ClassId(0)).at(0));
    return outcomes;
  };
  const auto a = world.keys(2, 1), b = world.keys(2, 2), c = world.keys(2, 3);
  store(a);
  executor.run_all();
  world.node().poll();
  const TicketId ticket = world.match(a);
  world.wipe();
  const OperationId load = world.node().load(world.load_request(ticket, 2)).value();
  ASSERT_EQ(executor.held(), 2U);
  // B fits beside A; C must make room: A is being read and B is being written, so C is refused and nothing
  // waits.
  EXPECT_EQ(store(b), (std::vector<StoreOutcome>{StoreOutcome::kAccepted, StoreOutcome::kAccepted}));
  EXPECT_EQ(store(c), (std::vector<StoreOutcome>{StoreOutcome::kNoRoom, StoreOutcome::kNoRoom}));
  for (int i = 0; i < 8; ++i) {
    executor.run_all();
    world.node().poll();
  }
  bool loaded = false;
  for (const Completion& completion : world.node().drain_completions()) {
    if (completion.operation != load || completion.kind != CompletionKind::kLoaded) continue;
    loaded = true;
    EXPECT_EQ(completion.load->length, 2U);
  }
  EXPECT_TRUE(loaded);
  EXPECT_EQ(world.view(world.match(b)).length, 2U);
  // The bytes of A were compared where B's stores did not overwrite the engine's slots: load once more.
  EXPECT_EQ(world.view(ticket).length, 2U);
}

TEST(H07, EvictionPassesOverPagesBeingRead) {
  HeldExecutor executor;
  TestWorld world({.spec = test_spec({}), .pages_max = 4, .executor = &executor});
  const auto settle = [&] {
    for (int i = 0; i < 8; ++i) {
      executor.run_all();
      world.node().poll();
    }
  };
  const auto a = world.keys(2, 1), b = world.keys(2, 2), c = world.keys(2, 3);
  for (const auto* keys : {&a, &b})
    for (std::uint64_t page = 0; page < 2; ++page) {
      world.store(*keys, page, ClassId(0));
      settle();
    }
  const TicketId ticket = world.match(a);
  world.node().touch(world.ns(), b);  // A is now the least recently used, and leased
  world.wipe();
  const OperationId load = world.node().load(world.load_request(ticket, 2)).value();
  world.node().poll();
  for (std::uint64_t page = 0; page < 2; ++page)
    EXPECT_EQ(world.node().store(world.store_request(c, page, ClassId(0))).value().outcomes.at(0),
              StoreOutcome::kAccepted);
  world.wipe();  // the stores' sources; nothing of the load was written yet
  settle();
  bool loaded = false;
  for (const Completion& completion : world.node().drain_completions())
    if (completion.operation == load && completion.kind == CompletionKind::kLoaded) {
      loaded = true;
      EXPECT_EQ(completion.load->length, 2U);
    }
  EXPECT_TRUE(loaded);
  EXPECT_EQ(world.wrong_bytes(a, 2), "");
  EXPECT_EQ(world.view(world.match(b)).length, 0U) << "B had to go";
}

}  // namespace
}  // namespace tiercel
