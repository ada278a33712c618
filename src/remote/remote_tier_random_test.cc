// Several nodes over one store that fails in every way: each call ends once, nothing is stuck, nothing wrong
// or cleared is delivered.

#include <gtest/gtest.h>

#include "remote/test_tier_world.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kChains = 6, kPages = 40;

TwinNature random_nature(Prng& prng) {
  TwinNature nature;
  nature.exchange_bytes = 16384U << prng.below(6);
  nature.batches_max = static_cast<std::uint32_t>(1 + prng.below(8));
  if (prng.chance(0.5)) nature.slow = 0.1;
  if (prng.chance(0.5)) nature.item_failed = 0.05;
  if (prng.chance(0.4)) nature.batch_down = 0.1;
  if (prng.chance(0.5)) nature.forgets = 0.05;
  if (prng.chance(0.5)) nature.sizes_unknown = 0.5;
  if (prng.chance(0.3)) nature.objects_bytes_max = 20000 + prng.below(100000);
  nature.tears_late = 0.5;
  nature.reaches = prng.chance(0.5);
  return nature;
}

// Contents tell who stored them and how often that node had cleared before.
constexpr std::uint64_t kEpochs = 1000;

// Whole, and not of this node from before its last clear. What the other one has is its own affair.
bool allowed(const TierNode::Read& read, const TierNode& node, std::uint64_t own,
             const std::vector<std::unique_ptr<TierNode>>& nodes) {
  for (std::uint64_t each = 0; each < nodes.size(); ++each)
    for (std::uint64_t epoch = each == own ? read.clears : 0; epoch <= nodes[each]->clears; ++epoch)
      if (node.right(read.memory->shards, read.key, read.cls, each * kEpochs + epoch)) return true;
  return false;
}

void clear(TierNode& node, Prng& prng) {
  ++node.clears;
  if (prng.chance(0.7))
    node.tier->clear(node.space);
  else
    node.tier->clear_form(node.form->fingerprint);
}

struct Counted {
  std::uint64_t delivered = 0, direct_bytes = 0;
};

// One thing that happens to a node, or to its store.
void act(TierNode& node, std::uint64_t own, ManualClock& clock, Prng& prng) {
  const auto chain = tier_chain(kPages, prng.below(kChains));
  switch (prng.below(12)) {
    case 0:
    case 1:
    case 2: {
      const std::uint64_t to = 1 + prng.below(kPages);
      for (std::uint64_t page = prng.below(to); page < to; ++page)
        for (const ClassForm& cls : node.form->classes)
          if (!cls.is_state() || prng.chance(0.2))
            node.append(chain, page, cls.id, own * kEpochs + node.clears);
      break;
    }
    case 3:
    case 4: {
      const std::uint64_t first = prng.chance(0.7) ? 0 : prng.below(kPages);
      const std::vector<Key> keys(chain.begin() + static_cast<std::ptrdiff_t>(first), chain.end());
      node.look(keys, {}, first);
      break;
    }
    case 5:
    case 6:
    case 7:
      for (const Key& key : chain)
        for (const ClassForm& cls : node.form->classes) node.read(key, cls.id);
      break;
    case 8:
      if (prng.chance(0.1)) node.store.hang(true);
      if (prng.chance(0.3)) node.store.hang(false);
      break;
    case 9:
      if (prng.chance(0.2)) node.store.kill();
      if (prng.chance(0.5)) node.store.revive();
      break;
    case 10:
      if (prng.chance(0.15)) clear(node, prng);
      break;
    case 11:
      clock.advance(std::chrono::milliseconds(prng.below(400)));
      break;
  }
}

void run(std::uint64_t seed, Counted& counted) {
  SCOPED_TRACE(seed);
  Prng prng(seed);
  TwinObjects objects;
  ManualClock clock;
  TierModel model;
  model.tp = static_cast<std::uint16_t>(1 + prng.below(2));
  model.state = prng.chance(0.5);
  model.window = prng.chance(0.5);
  model.index_keys = prng.chance(0.5);
  std::vector<std::unique_ptr<TierNode>> nodes;
  for (std::uint64_t i = 0; i < 2; ++i) {
    RemoteTierOptions options;
    options.direct_bytes = prng.chance(0.5) ? 1 : 80;  // all records; some
    nodes.push_back(
        std::make_unique<TierNode>(objects, clock, model, random_nature(prng), options, seed * 2 + i));
  }
  for (int step = 0; step < 400; ++step) {
    const std::uint64_t own = prng.below(nodes.size());
    TierNode& node = *nodes[own];
    act(node, own, clock, prng);
    node.poll();
    if (prng.chance(0.5)) node.tier->wait(std::chrono::milliseconds(1 + prng.below(20)));
  }
  for (std::uint64_t own = 0; own < nodes.size(); ++own) {
    const auto& node = nodes[own];
    node->store.calm();
    node->settle(std::chrono::minutes(5));
    node->settle(std::chrono::seconds(30));
    EXPECT_TRUE(node->appends.empty() && node->reads.empty() && node->lookups.empty());
    EXPECT_FALSE(node->tier->clearing());
    EXPECT_EQ(node->tier->stats().exchange_used_bytes, 0U);
    EXPECT_EQ(node->tier->stats().queued_bytes, 0U);
    EXPECT_EQ(node->tier->stats().unquiet_bytes, 0U);
    for (const TierNode::Read& read : node->delivered) ASSERT_TRUE(allowed(read, *node, own, nodes));
    counted.delivered += node->delivered.size();
    counted.direct_bytes += node->tier->stats().direct_bytes;
  }
}

TEST(RemoteTierRandom, EverythingEndsAndNothingWrongIsDelivered) {
  Counted counted;
  for (std::uint64_t seed = 1; seed <= 250 && !testing::Test::HasFailure(); ++seed) run(seed, counted);
  EXPECT_GT(counted.delivered, 20000U);
  EXPECT_GT(counted.direct_bytes, 1U << 20);
}

}  // namespace
}  // namespace tiercel
