// What a ticket says about snapshots: from the past only, within what was asked and within the budget.
#include <algorithm>

#include <gtest/gtest.h>

#include "index/reuse_model.h"
#include "node/node.h"
#include "node/test_world.h"

namespace tiercel {
namespace {

using Lengths = std::vector<std::uint64_t>;

TestOptions small(std::function<void(NodeOptions&)> adjust = {}) {
  TestOptions options;
  options.spec = test_spec({.state = true});
  options.host_bytes = 16 << 20;
  options.adjust = std::move(adjust);
  return options;
}

// Keys of `pages` pages of which the first `shared` are those of conversation `name`.
std::vector<Key> conversation(TestWorld& world, std::uint64_t pages, std::uint32_t name,
                              std::uint64_t shared = 0, std::uint32_t other = 0) {
  std::vector<std::uint32_t> tokens(pages * world.form().spec.page_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool own = i < shared * world.form().spec.page_tokens || other == 0;
    tokens[i] = (own ? name : other) * 1'000'003 + static_cast<std::uint32_t>(i);
  }
  KeyChain chain = start_chain(world.node().root(world.ns()));
  return extend_chain(chain, world.form().spec.page_tokens, tokens).value();
}

Lengths advice(TestWorld& world, TicketId ticket, AdviceQuery query) {
  return world.node().snapshot_advice(ticket, query);
}

TEST(Advice, OfAFirstRequestIsItsEnd) {
  TestWorld world(small());
  const TicketId ticket = world.match(conversation(world, 12, 1), RequestId(1));
  EXPECT_EQ(advice(world, ticket, {12}), Lengths{12});
}

TEST(Advice, HonoursWhatIsAsked) {
  TestWorld world(small());
  const TicketId ticket = world.match(conversation(world, 13, 1), RequestId(1));
  EXPECT_EQ(advice(world, ticket, {13, 4}), Lengths{12});
  EXPECT_EQ(advice(world, ticket, {11}), Lengths{11});
  EXPECT_EQ(advice(world, ticket, {13, 1, 0}), Lengths{});
  EXPECT_EQ(advice(world, ticket, {13, 4, 9, 12}), Lengths{});
  EXPECT_EQ(advice(world, ticket, {13, 1, 9, 12}), Lengths{13});
  EXPECT_EQ(advice(world, ticket, {13, 0}), Lengths{});
}

TEST(Advice, IsTheSameWhenAskedAgainWhateverCameBetween) {
  TestWorld world(small());
  const auto keys = conversation(world, 12, 1);
  const TicketId ticket = world.match(keys, RequestId(1));
  const Lengths first = advice(world, ticket, {12});
  for (std::uint32_t i = 2; i < 400; ++i)
    world.node().release(world.match(conversation(world, 9, i), RequestId(i)));
  EXPECT_EQ(advice(world, world.match(keys, RequestId(1)), {12}), first);  // the same request: nothing learnt
  world.store_pages(keys, {.snapshots = {12}, .request = RequestId(1)});
  EXPECT_EQ(advice(world, ticket, {12}), first);
}

TEST(Advice, FallsSilentWhereNothingIsEverContinuedAndSpeaksWhereItIs) {
  TestWorld world(small());
  const auto see = [&](const std::vector<Key>& keys, std::uint64_t request) {
    const TicketId ticket = world.match(keys, RequestId(request));
    Lengths lengths = advice(world, ticket, {keys.size()});
    world.node().release(ticket);
    world.node().request_end(RequestId(request));
    return lengths;
  };
  for (std::uint32_t i = 1; i < 1500; ++i) see(conversation(world, 12, i), i);
  EXPECT_EQ(see(conversation(world, 12, 2000), 2000), Lengths{});
  // From now on every conversation is edited three pages before its end.
  for (std::uint32_t i = 3000; i < 4500; ++i) {
    see(conversation(world, 12, i), i);
    see(conversation(world, 14, i, 9, 100'000 + i), 10'000 + i);
  }
  const Lengths lengths = see(conversation(world, 12, 5000), 20'000);
  ASSERT_EQ(lengths.size(), 1U);
  EXPECT_TRUE(lengths[0] == 8 || lengths[0] == 9) << lengths[0];
}

TEST(Advice, NeverAsksForMoreThanTheBudgetOverAllTickets) {
  for (const std::uint64_t budget : {0U, 1U, 7U}) {
    TestWorld world(small([&](NodeOptions& options) { options.snapshot_budget = budget; }));
    std::uint64_t asked = 0;
    for (std::uint32_t i = 1; i < 300; ++i) {
      const TicketId ticket = world.match(conversation(world, 30, i), RequestId(i));
      const Lengths lengths = advice(world, ticket, {30});
      EXPECT_EQ(advice(world, ticket, {30}), lengths);
      asked += lengths.size();
    }
    EXPECT_LE(asked, budget);
    EXPECT_EQ(asked == 0, budget == 0);
  }
}

TEST(Advice, WorksWithoutRequestsAndStartsInTheMiddle) {
  TestWorld world(small());
  const auto keys = conversation(world, 10, 1);
  EXPECT_EQ(advice(world, world.match(keys), {10}), Lengths{10});
  MatchQuery query;
  query.session = world.session();
  query.ns = world.ns();
  query.keys = std::span(keys).subspan(4);
  query.first_page = 4;
  const TicketId ticket = world.node().match(query).value();
  for (const std::uint64_t length : advice(world, ticket, {10})) EXPECT_GT(length, 4U);
  query.touch = false;
  EXPECT_EQ(advice(world, world.node().match(query).value(), {10}), Lengths{});
}

TEST(Advice, GoesBeyondWhatIsRestorableOnly) {
  TestWorld world(small());
  const auto keys = conversation(world, 12, 1);
  world.store_pages(keys, {.snapshots = {12}});
  const TicketId ticket = world.match(keys, RequestId(1));
  ASSERT_EQ(world.view(ticket).length, 12U);
  EXPECT_EQ(advice(world, ticket, {12}), Lengths{});
}

TEST(Advice, APromptMayEndWithinItsLastPage) {
  TestWorld world(small());
  const auto keys = conversation(world, 3, 1);
  MatchQuery query;
  query.session = world.session();
  query.ns = world.ns();
  query.keys = keys;
  query.prompt_tokens = 33;
  EXPECT_EQ(advice(world, world.node().match(query).value(), {3}), Lengths{2});
  query.prompt_tokens = 32;  // then there would be two pages
  EXPECT_FALSE(world.node().match(query).has_value());
}

TEST(Advice, ItsNotesAreInTheGrant) {
  TestWorld world(small([](NodeOptions& options) { options.advice_entries = 4096; }));
  EXPECT_EQ(world.node().stats().advice_bytes, 4096 * ReuseModel::kNoteBytes);
  EXPECT_LE(world.node().stats().arena_bytes + world.node().stats().advice_bytes, 16U << 20);
}

}  // namespace
}  // namespace tiercel
