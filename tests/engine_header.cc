// What tiercel.hpp adds to the ABI: values, lists, handles that give themselves back, and what errors become.
#include "engine_world.h"

namespace engines {
namespace {

constexpr const char* kSpec =
    R"({"tiercel_spec": 1, "model_type": "small", "page_tokens": 4, "topology": {"tp": 1},
  "groups": [{"kind": "full", "layers": [[0, 1]], "components": [{"name": "kv", "shape": [16], "dtype": "bf16"}]},
             {"kind": "state", "layers": [2], "components": [{"name": "s", "shape": [8], "dtype": "f32"}]}]})";

struct World {
  tiercel::Node node = open_node(8 << 20);
  tiercel::Session session = must(node.open_session());
  tiercel::Form form = must(node.open_form(must(tiercel::Spec::from_json(kSpec)), tiercel::one_rank()));
  tiercel::Namespace ns = open();

  tiercel::Namespace open() {
    auto identity = sized<tiercel_identity>();
    identity.weights = "revision";
    identity.dtype = "bf16";
    return must(session.open_namespace(form, identity));
  }
  std::vector<tiercel_key> keys(std::uint64_t pages) const {
    std::vector<std::uint32_t> tokens(pages * 4 + 3, 5);
    tiercel_key_chain chain = must(ns.start_chain());
    return must(ns.keys_from_tokens(chain, tokens));
  }
  // Pages written in place.
  void store(const std::vector<tiercel_key>& keys) {
    std::vector<tiercel_store_item> items(keys.size());
    for (std::size_t page = 0; page < keys.size(); ++page) {
      items[page].key = keys[page];
      if (page > 0) items[page].parent = keys[page - 1];
      items[page].length = page + 1;
    }
    tiercel::Reserved reserved = must(ns.reserve(items));
    must(must(reserved.reservation.commit()).wait(TIERCEL_COMPLETION_VISIBLE, kLong));
  }
};

TEST(HeaderDeathTest, TheValueOfAFailedCallEndsTheProgramWithItsMessage) {
  EXPECT_DEATH(static_cast<void>(*tiercel::Spec::from_json("{")), "failed call was used: invalid_argument: ");
}

TEST(Header, AFailedCallSaysWhyAndAMovedFromHandleIsEmpty) {
  const tiercel::Result<tiercel::Node> none = tiercel::Node::open(sized<tiercel_node_options>());
  EXPECT_FALSE(none);
  EXPECT_EQ(none.status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(none.status().message.find("host_bytes"), std::string::npos) << none.status().to_string();

  World world;
  tiercel::Namespace moved = std::move(world.ns);
  EXPECT_TRUE(moved);
  EXPECT_FALSE(world.ns);  // NOLINT(bugprone-use-after-move): that is what is looked at
  EXPECT_EQ(world.ns.invalidate().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel::CompletionQueue().fd(), -1);
}

TEST(Header, HandlesMayOutliveTheNode) {
  World world;
  tiercel::Ticket ticket = must(world.ns.match(world.keys(2), TIERCEL_NO_LIMIT));
  must(world.node.close());
  EXPECT_FALSE(world.node);
  EXPECT_EQ(world.ns.match(world.keys(1), TIERCEL_NO_LIMIT).status().code, TIERCEL_FAILED_PRECONDITION);
}

TEST(Header, ListsComeWhole) {
  World world;
  EXPECT_EQ(must(world.form.runs(0)).size(), 2U);
  const std::string text = must(must(tiercel::Spec::from_json(kSpec)).to_json());
  EXPECT_EQ(must(must(tiercel::Spec::from_json(text)).to_json()), text);
  EXPECT_NE(must(world.ns.describe()).find("revision"), std::string::npos);

  const std::vector<tiercel_key> keys = world.keys(6);
  ASSERT_EQ(keys.size(), 6U);
  world.store({keys.begin(), keys.begin() + 4});
  tiercel::Ticket ticket = must(world.ns.match(keys, TIERCEL_NO_LIMIT));
  EXPECT_EQ(must(ticket.lengths()), std::vector<std::uint64_t>{0}) << "no snapshot was stored";
  EXPECT_EQ(must(ticket.resident(TIERCEL_TIER_HOST)), (std::vector<std::uint64_t>{4, 0}));
  const std::vector<tiercel_miss> misses = must(ticket.reasons());
  ASSERT_EQ(misses.size(), 2U);
  EXPECT_EQ(misses[0].reason, TIERCEL_REASON_STATE_MISSING);
  EXPECT_EQ(misses[1].reason, TIERCEL_REASON_NEVER_STORED);
  EXPECT_EQ(must(must(world.session.import_ticket(must(ticket.export_bytes()))).summary()).known_pages, 4U);

  std::vector<tiercel_cache_event> events(8);
  std::uint64_t lost = 1;
  const auto got = must(world.node.drain_events(events, &lost));
  ASSERT_EQ(got.size(), 4U);
  EXPECT_EQ(lost, 0U);
  // Copies end in any order, and so do pages appear.
  for (std::size_t page = 0; page < 4; ++page) {
    const tiercel_key& key = keys[page];
    std::size_t told = 0;
    for (const tiercel_cache_event& event : got)
      told += std::memcmp(&event.key, &key, sizeof key) == 0 ? 1 : 0;
    EXPECT_EQ(told, 1U);
  }
  EXPECT_EQ(must(world.node.drain_events(events)).size(), 0U);
}

TEST(Header, CallsAboutPagesReachThem) {
  World world;
  const std::vector<tiercel_key> keys = world.keys(3);
  world.store(keys);
  must(world.ns.pin(keys, kSecond));
  EXPECT_EQ(must(world.node.stats()).pinned_pages, 3U);
  must(world.ns.unpin(keys));
  must(world.ns.touch(keys));
  must(world.ns.remove({&keys[1], 1}));
  EXPECT_EQ(must(world.ns.exists(0, keys)),
            (std::vector<tiercel_status>{TIERCEL_OK, TIERCEL_NOT_FOUND, TIERCEL_NOT_FOUND}));
  EXPECT_EQ(must(world.ns.why(keys[2])).reason, TIERCEL_REASON_REMOVED);
  EXPECT_EQ(must(world.ns.offer(keys, TIERCEL_OFFER_COMPUTED)), (std::vector<std::uint64_t>{0, 1, 3}));
  EXPECT_EQ(world.ns.prefetch(keys, TIERCEL_PREFETCH_BEST_EFFORT).status().code, TIERCEL_UNSUPPORTED);
  must(world.ns.clear());
  EXPECT_EQ(must(world.ns.exists(0, {keys.data(), 1}))[0], TIERCEL_NOT_FOUND);
}

}  // namespace
}  // namespace engines
