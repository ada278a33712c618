// H02: a side pool through every tier (here: engine memory and host memory). KV came back, the second record
// did not, and the hit was reported all the same.
#include "node/test_world.h"

namespace tiercel {
namespace {

TEST(H02, EveryRecordOfAPageComesBackFromTheHostTier) {
  for (const TestModel model :
       {TestModel{.index_keys = true}, TestModel{.window_pages = 2, .index_keys = true},
        TestModel{.window_pages = 3, .state = true, .index_keys = true, .draft = true}}) {
    TestWorld world({.spec = test_spec(model)});
    const auto keys = world.keys(4);
    world.store_pages(keys, {.snapshots = {4}});
    const LoadResult result =
        world.load(world.match(keys), 4);  // engine memory is overwritten with 0xEE first
    EXPECT_EQ(result.length, 4U);
    EXPECT_EQ(world.wrong_bytes(keys, 4), "");
    for (std::size_t t = 0; t < result.outcomes.size(); ++t)
      for (std::size_t page = 0; page < result.outcomes[t].size(); ++page)
        EXPECT_TRUE(result.outcomes[t][page] == ItemOutcome::kDelivered ||
                    result.outcomes[t][page] == ItemOutcome::kNotNeeded)
            << "target " << t << " page " << page;
  }
}

TEST(H02, EntriesWrittenWithoutTheSecondRecordAreAMissThatNamesTheClass) {
  TestWorld world({.spec = test_spec({})});
  const auto keys = world.keys(4);
  world.store_pages(keys, {});
  const FormId with_index = world.node().open_form({test_spec({.index_keys = true}), 1}).value();
  ContentIdentity identity;
  identity.model = "test";
  identity.weights = "weights-1";
  identity.dtype = "bf16";
  identity.page_tokens = 16;
  const NamespaceId other =
      world.node().open_namespace(world.session(), with_index, {identity, 0, {}}).value();
  MatchQuery query;
  query.session = world.session();
  query.ns = other;
  query.keys = keys;
  const TicketView view = world.view(world.node().match(query).value());
  EXPECT_EQ(view.length, 0U) << "never served in part";
  ASSERT_EQ(view.missed.size(), 1U);
  EXPECT_EQ(view.missed[0].reason, Reason::kOtherForm);
  EXPECT_NE(view.missed[0].field.find("class"), std::string::npos) << view.missed[0].field;
  EXPECT_EQ(world.view(world.match(keys)).length, 4U) << "the old entries stay";
}

TEST(H02, APageWithoutItsSecondRecordIsNotVisible) {
  TestWorld world({.spec = test_spec({.index_keys = true})});
  const auto keys = world.keys(2);
  world.store(keys, 0, ClassId(0));
  world.store(keys, 1, ClassId(0));
  EXPECT_EQ(world.view(world.match(keys)).length, 0U);
}

}  // namespace
}  // namespace tiercel
