// H03: shorter than promised. The lookup says 8 pages; before the load a record disappears. The whole prefix
// was published together with an outdated side record, and the loss was only logged.
#include "node/test_world.h"

namespace tiercel {
namespace {

enum class Loss { kDamaged, kRemoved };

// The longest length ≤ 8 that can still be had when `page` of class `cls` is gone and snapshots stand at
// every length.
std::uint64_t expected_length(const ClassForm& cls, std::uint64_t page, Loss loss) {
  if (loss == Loss::kRemoved || cls.required()) return page;
  if (cls.is_state()) return page == 7 ? 7 : 8;      // the snapshot at length page + 1
  return page + cls.window_pages() >= 8 ? page : 8;  // only a window near the end needs it
}

TEST(H03, TheLoadReturnsTheLongestPrefixOfWhichEveryRecordWasRead) {
  for (const Loss loss : {Loss::kDamaged, Loss::kRemoved})
    for (std::uint16_t c = 0; c < 4; ++c)
      for (const std::uint64_t page : {0U, 5U, 7U}) {
        TestWorld world({.spec = test_spec({.window_pages = 3, .state = true, .index_keys = true})});
        const auto keys = world.keys(8);
        world.store_pages(keys, {.snapshots = {1, 2, 3, 4, 5, 6, 7, 8}});
        const TicketId ticket = world.match(keys);
        ASSERT_EQ(world.view(ticket).length, 8U);
        if (loss == Loss::kDamaged)
          world.damage(keys[page], ClassId(c));
        else
          ASSERT_TRUE(world.node().remove(world.ns(), {&keys[page], 1}).ok());
        const ClassForm& cls = world.form().classes[c];
        const std::uint64_t expected = expected_length(cls, page, loss);
        const LoadResult result = world.load(ticket, 8);
        EXPECT_EQ(result.length, expected) << cls.name << " page " << page;
        EXPECT_EQ(world.wrong_bytes(keys, expected), "") << cls.name << " page " << page;
        EXPECT_TRUE(world.untouched_from(expected, 8)) << cls.name << " page " << page;
        world.node().release(ticket);
        EXPECT_EQ(world.node().stats().leased_bytes, 0U);
        const TicketView after = world.view(world.match(keys));
        EXPECT_EQ(after.length, expected) << "what was lost is no hit any more";
      }
}

TEST(H03, TwoPoolsThatLoseDifferentPages) {
  TestWorld world({.spec = test_spec({.index_keys = true})});
  const auto keys = world.keys(8);
  world.store_pages(keys, {});
  const TicketId ticket = world.match(keys);
  world.damage(keys[5], ClassId(0));
  world.damage(keys[3], ClassId(1));
  const std::uint64_t before = world.node().stats().payload_bytes;
  EXPECT_EQ(world.load(ticket, 8).length, 3U);
  EXPECT_EQ(world.wrong_bytes(keys, 3), "");
  EXPECT_TRUE(world.untouched_from(3, 8));
  world.node().release(ticket);
  EXPECT_LT(world.node().stats().payload_bytes, before) << "the lost pages' slots are free again";
  const TicketView view = world.view(world.match(keys));
  EXPECT_EQ(view.length, 3U);
  EXPECT_EQ(view.missed.at(0).reason, Reason::kDamaged);
}

TEST(H03, APageWhoseLoadFailedIsNotOfferedToThatRequestAgain) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  const std::uint64_t bad_slot_base = world.pools()[0].runs[0].base + 2 * world.pools()[0].runs[0].stride;
  world.device().write_fails = [&](std::uint64_t address) { return address == bad_slot_base; };
  const RequestId request(7);
  EXPECT_EQ(world.load(world.match(keys, request), 4).length, 2U);
  EXPECT_EQ(world.view(world.match(keys, request)).length, 2U);
  EXPECT_EQ(world.view(world.match(keys, RequestId(8))).length, 4U) << "other requests may try";
}

}  // namespace
}  // namespace tiercel
