#include "model/copy_plan.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/test_pools.h"

namespace tiercel {
namespace {

// Bytes of one rank's buffers. Each element of the source says who it is.
using Buffers = std::vector<std::vector<std::uint8_t>>;

Buffers filled(const PoolLayout& pool, std::uint8_t with) {
  Buffers buffers;
  for (const std::uint64_t bytes : pool.buffer_bytes) buffers.emplace_back(bytes, with);
  return buffers;
}

// Carries a plan out in the plainest way, and counts how often each byte of the target is written.
void carry_out(const CopyPlan& plan, const std::vector<Buffers>& sources, Buffers& target, Buffers& writes,
               const std::vector<std::uint64_t>& from, const std::vector<std::uint64_t>& to) {
  for (const LayerCopy& layer : plan.layers)
    for (const CopyNest& nest : layer.nests)
      for (std::size_t i = 0; i < from.size(); ++i) {
        const std::uint64_t source = nest.source.offset + from[i] / plan.source_per_page * nest.source.page +
                                     from[i] % plan.source_per_page * nest.source.granule;
        const std::uint64_t into = nest.target.offset + to[i] / plan.target_per_page * nest.target.page +
                                   to[i] % plan.target_per_page * nest.target.granule;
        for (std::uint64_t fragment = 0; fragment < nest.fragments(); ++fragment) {
          std::uint64_t s = source;
          std::uint64_t t = into;
          std::uint64_t rest = fragment;
          for (std::uint32_t loop = nest.loop_count; loop-- > 0;) {
            s += rest % nest.loops[loop].count * nest.loops[loop].source_step;
            t += rest % nest.loops[loop].count * nest.loops[loop].target_step;
            rest /= nest.loops[loop].count;
          }
          for (std::uint64_t b = 0; b < nest.length; ++b) {
            target.at(nest.target.buffer).at(t + b) =
                sources.at(nest.source.shard).at(nest.source.buffer).at(s + b);
            ++writes.at(nest.target.buffer).at(t + b);
          }
        }
      }
}

std::uint8_t pattern(std::uint64_t seed, std::uint64_t byte) {
  return static_cast<std::uint8_t>(Prng(seed * 131 + byte).next());
}

// The value of byte `byte` of an element of the whole model: page and token count over the sequence.
std::uint8_t value_of(std::uint32_t tensor, std::uint64_t layer, std::uint64_t entry, std::uint64_t head,
                      std::uint64_t dim, std::uint64_t byte) {
  return pattern((((std::uint64_t{64} * tensor + layer) * 4096 + entry) * 64 + head) * 64 + dim, byte);
}

struct Side {
  PoolLayout pool;
  std::map<Element, Place> places;
};
Side side(const PoolShape& shape, const Layout& layout, std::uint64_t pages) {
  return {lay_out(shape, layout, pages).value(), CountedOut(shape, layout, pages).places()};
}

// Fills a rank's buffers: head_of(tensor, head) is the head of the whole that stands there.
template <typename HeadOf>
Buffers fill(const Side& from, const HeadOf& head_of) {
  Buffers buffers = filled(from.pool, 0x55);
  for (const auto& [element, place] : from.places) {
    const auto [t, layer, page, token, head, dim] = element;
    const TensorShape& tensor = from.pool.shape.tensors[t];
    for (std::uint64_t b = 0; b < tensor.element_bytes; ++b)
      buffers[place.first][place.second + b] =
          value_of(t, layer, page * tensor.tokens + token, head_of(t, head), dim, b);
  }
  return buffers;
}
constexpr auto kSameHead = [](std::uint32_t, std::uint64_t head) { return head; };

// Which granule of the source each granule of the target must have; what is not named must be untouched.
using Wanted = std::map<std::uint64_t, std::uint64_t>;

template <typename HeadOf>
void expect_target(const Side& to, const CopyPlan& plan, const Buffers& target, const Buffers& writes,
                   const Wanted& wanted, const HeadOf& head_of) {
  Buffers expected = filled(to.pool, 0xEE);
  Buffers expected_writes = filled(to.pool, 0);
  for (const auto& [element, place] : to.places) {
    const auto [t, layer, page, token, head, dim] = element;
    const TensorShape& tensor = to.pool.shape.tensors[t];
    const std::uint64_t entries = tensor.tokens / plan.target_per_page;  // of a granule
    const auto from = wanted.find(page * plan.target_per_page + token / entries);
    if (from == wanted.end()) continue;
    for (std::uint64_t b = 0; b < tensor.element_bytes; ++b) {
      expected[place.first][place.second + b] =
          value_of(t, layer, from->second * entries + token % entries, head_of(t, head), dim, b);
      expected_writes[place.first][place.second + b] = 1;
    }
  }
  ASSERT_EQ(target, expected) << layout_text(to.pool.layout);
  ASSERT_EQ(writes, expected_writes) << "each element exactly once: " << layout_text(to.pool.layout);
}

std::vector<std::uint64_t> shuffled(std::uint64_t count, Prng& prng) {
  std::vector<std::uint64_t> out(count);
  std::iota(out.begin(), out.end(), 0);
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[prng.below(i)]);
  return out;
}

// `count` granules of the source to as many of the target, in a random order on both sides.
Wanted random_pairs(const CopyPlan& plan, std::size_t count, Prng& prng) {
  const auto from = shuffled(plan.source_granules, prng);
  const auto to = shuffled(plan.target_granules, prng);
  Wanted wanted;
  for (std::size_t i = 0; i < std::min({count, from.size(), to.size()}); ++i) wanted[to[i]] = from[i];
  return wanted;
}

void expect_copy(const Side& from, const Side& to, CopyUnit unit, Prng& prng) {
  const auto plan = plan_copy(from.pool, to.pool, unit);
  ASSERT_TRUE(plan) << plan.error().message;
  const Wanted wanted = random_pairs(*plan, 2, prng);
  std::vector<std::uint64_t> sources;
  std::vector<std::uint64_t> targets;
  for (const auto& [target, source] : wanted) {
    targets.push_back(target);
    sources.push_back(source);
  }
  Buffers target = filled(to.pool, 0xEE);
  Buffers writes = filled(to.pool, 0);
  carry_out(*plan, {fill(from, kSameHead)}, target, writes, sources, targets);
  expect_target(to, *plan, target, writes, wanted, kSameHead);
}

TEST(CopyPlan, EveryPairOfNamedLayoutsMovesEveryElementOnceAndNothingElse) {
  Prng prng(7);
  for (const PoolShape& shape : small_pools())
    for (const Layout& source : named_layouts()) {
      const Side from = side(shape, source, 3);
      for (const Layout& target : named_layouts()) {
        const Side to = side(shape, target, 3);
        for (const CopyScope scope : {CopyScope::kByLayer, CopyScope::kWhole}) {
          expect_copy(from, to, {0, scope}, prng);
          if (HasFatalFailure()) return;
        }
      }
    }
}

TEST(CopyPlan, TokensAndPartsOfPagesMoveByThemselves) {
  Prng prng(11);
  for (const PoolShape& shape : small_pools()) {
    if (shape.is_state() || (shape.tensors.size() > 1 && shape.tensors[1].name == "note")) continue;
    for (const Layout& source : named_layouts())
      for (const Layout& target : named_layouts()) {
        const Side from = side(shape, source, 3);
        const Side to = side(shape, target, 3);
        for (std::uint64_t granule = shape.tokens_per_entry; granule <= shape.page_tokens; granule *= 2) {
          expect_copy(from, to, {granule, CopyScope::kByLayer}, prng);
          if (HasFatalFailure()) return;
        }
      }
  }
}

PoolShape with_pages_of(PoolShape shape, std::uint64_t tokens) {
  for (TensorShape& tensor : shape.tensors) tensor.tokens = tokens / shape.tokens_per_entry;
  shape.page_tokens = tokens;
  return shape;
}

TEST(CopyPlan, PagesOfOneSizeBecomePagesOfAnother) {
  Prng prng(13);
  const PoolShape shapes[] = {small_pools()[0], small_pools()[1], small_pools()[4]};
  for (const PoolShape& shape : shapes)
    for (const Layout& source : named_layouts())
      for (const Layout& target : named_layouts())
        for (const auto& [p, q] :
             {std::pair(2U, 4U), std::pair(4U, 2U), std::pair(8U, 2U), std::pair(2U, 8U)}) {
          expect_copy(side(with_pages_of(shape, p), source, 3), side(with_pages_of(shape, q), target, 3), {},
                      prng);
          if (HasFatalFailure()) return;
        }
}

// Heads of a tensor over ranks, stated by brute force: head h of the whole is on every rank whose part has
// it.
struct Cut {
  std::vector<std::uint64_t> whole;  // sections
  bool everywhere = false;           // every rank has all of it
  std::vector<std::uint64_t> of_rank(std::uint32_t ranks) const {
    std::vector<std::uint64_t> out;
    out.reserve(whole.size());
    for (const std::uint64_t heads : whole)
      out.push_back(everywhere ? heads : std::max<std::uint64_t>(heads / ranks, 1));
    return out;
  }
  // The whole's head that stands at place `head` of rank `rank`.
  std::uint64_t head(std::uint64_t head, std::uint32_t rank, std::uint32_t ranks) const {
    std::uint64_t whole_base = 0;
    for (std::size_t s = 0; s < whole.size(); ++s) {
      const std::uint64_t here = of_rank(ranks)[s];
      if (head < here) return whole_base + head + (everywhere ? 0 : rank * whole[s] / ranks);
      head -= here;
      whole_base += whole[s];
    }
    return 0;
  }
};

PoolShape of_ranks(const std::vector<Cut>& cuts, std::uint32_t ranks, std::uint64_t page_tokens) {
  std::vector<TensorShape> tensors;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const auto sections = cuts[i].of_rank(ranks);
    const std::uint64_t tokens = page_tokens == 0 ? 1 : page_tokens;
    tensors.push_back(tensor(i == 0 ? "first" : "second", tokens,
                             std::accumulate(sections.begin(), sections.end(), std::uint64_t{0}), 2, 2));
    if (sections.size() > 1) tensors.back().sections = sections;
  }
  return pool(page_tokens, {0, 3}, tensors);
}

void expect_reshard(const std::vector<Cut>& cuts, std::uint32_t a, std::uint32_t b, std::uint64_t p,
                    std::uint64_t q, const Layout& source, const Layout& target, Prng& prng) {
  const Side from = side(of_ranks(cuts, a, p), source, 3);
  const Side to = side(of_ranks(cuts, b, q), target, 3);
  std::vector<Buffers> sources;
  for (std::uint32_t rank = 0; rank < a; ++rank)
    sources.push_back(
        fill(from, [&](std::uint32_t t, std::uint64_t head) { return cuts[t].head(head, rank, a); }));
  for (std::uint32_t rank = 0; rank < b; ++rank) {
    const auto plan = plan_reshard(of_ranks(cuts, 1, p), from.pool, to.pool, {a, b, rank});
    ASSERT_TRUE(plan) << plan.error().message;
    const Wanted wanted = random_pairs(*plan, 2, prng);
    std::vector<std::uint64_t> from_index;
    std::vector<std::uint64_t> to_index;
    for (const auto& [target_index, source_index] : wanted) {
      to_index.push_back(target_index);
      from_index.push_back(source_index);
    }
    Buffers out = filled(to.pool, 0xEE);
    Buffers writes = filled(to.pool, 0);
    carry_out(*plan, sources, out, writes, from_index, to_index);
    expect_target(to, *plan, out, writes, wanted,
                  [&](std::uint32_t t, std::uint64_t head) { return cuts[t].head(head, rank, b); });
    for (const LayerCopy& layer : plan->layers)
      for (const CopyNest& nest : layer.nests) {
        if (cuts[nest.source.buffer % cuts.size()].everywhere && cuts.size() == 1) {
          ASSERT_EQ(nest.source.shard, 0U);
        }
      }
  }
}

TEST(CopyPlan, AnyShardingBecomesAnyOther) {
  Prng prng(17);
  const std::vector<std::vector<Cut>> models = {
      {{{8}}, {{8}}},         // K and V
      {{{4}}, {{4}}},         // fewer heads than ranks: some are held twice
      {{{1}, true}},          // a latent, the same everywhere
      {{{8, 8, 16}}, {{8}}},  // q, k, v channels of a convolution; temporal
      {{{16, 3, 3}}},  // parts that are cut beside parts of 3 that 1, 2, 4, 8 do not divide: refused below
  };
  for (std::size_t m = 0; m + 1 < models.size(); ++m)
    for (const std::uint32_t a : {1U, 2U, 4U, 8U})
      for (const std::uint32_t b : {1U, 2U, 4U, 8U})
        for (const auto& [p, q] : {std::pair(2U, 2U), std::pair(2U, 4U), std::pair(4U, 2U)})
          for (const char* source : {"layer_first", "page_first", "page_head", "vllm_hnd"})
            for (const char* target : {"layer_first", "page_head", "record"}) {
              expect_reshard(models[m], a, b, p, q, layout_from_text(source).value(),
                             layout_from_text(target).value(), prng);
              if (HasFatalFailure()) return;
            }
  const auto from = lay_out(of_ranks(models[4], 2, 2), layout_from_text("record").value(), 1);
  const auto to = lay_out(of_ranks(models[4], 1, 2), layout_from_text("record").value(), 1);
  const auto refused = plan_reshard(of_ranks(models[4], 1, 2), *from, *to, {2, 1, 0});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("are no cuts of"), std::string::npos) << refused.error().message;
}

// Parts of one section count that some ranks share and some cut: a group of B and C copied to every rank
// beside channels that are cut (Mamba 2 with one group).
TEST(CopyPlan, SectionsThatEveryRankHoldsAreReadOnce) {
  PoolShape whole = pool(0, {0}, {tensor("conv", 1, 8 + 2 + 2, 3, 2)});
  whole.tensors[0].sections = {8, 2, 2};
  PoolShape half = pool(0, {0}, {tensor("conv", 1, 4 + 2 + 2, 3, 2)});
  half.tensors[0].sections = {4, 2, 2};
  const Layout record = layout_from_text("record").value();
  const auto plan =
      plan_reshard(whole, lay_out(half, record, 2).value(), lay_out(whole, record, 2).value(), {2, 1, 0});
  ASSERT_TRUE(plan) << plan.error().message;
  const auto& nests = plan->layers.at(0).nests;
  ASSERT_EQ(nests.size(), 3U);  // channels of rank 0, of rank 1, and B and C of rank 0
  EXPECT_EQ(nests[0].source.shard, 0U);
  EXPECT_EQ(nests[1].source.shard, 1U);
  EXPECT_EQ(nests[2].source.shard, 0U);
  EXPECT_EQ(nests[2].length, (2 + 2) * 3 * 2U);
  EXPECT_EQ(nests[2].target.offset, 8 * 3 * 2U);
}

TEST(CopyPlan, EqualLayoutsMoveInOnePiece) {
  const PoolShape shape = pool(64, {0, 1, 2}, {tensor("k", 64, 8, 128, 2), tensor("v", 64, 8, 128, 2)});
  for (const char* name : {"page_first", "page_first_direct", "page_head"}) {
    const PoolLayout layout = lay_out(shape, layout_from_text(name).value(), 4).value();
    const auto plan = plan_copy(layout, layout, {0, CopyScope::kWhole}).value();
    ASSERT_EQ(plan.layers.size(), 1U);
    EXPECT_EQ(plan.layers[0].layer, kAllLayers);
    ASSERT_EQ(plan.layers[0].nests.size(), 2U);
    EXPECT_EQ(plan.layers[0].nests[0].loop_count, 0U);
    EXPECT_EQ(plan.layers[0].nests[0].length, shape.page_bytes() / 2);
    EXPECT_EQ(plan.granule_bytes(), shape.page_bytes());
  }
  // One layer of layer-first pages is one run in page_first_direct, and one run a token in page_first.
  const PoolLayout layer_first = lay_out(shape, layout_from_text("layer_first").value(), 4).value();
  const auto direct =
      plan_copy(layer_first, lay_out(shape, layout_from_text("page_first_direct").value(), 4).value())
          .value();
  EXPECT_EQ(direct.layers[1].nests[0].length, 64 * 8 * 128 * 2U);
  const auto tokens =
      plan_copy(layer_first, lay_out(shape, layout_from_text("page_first").value(), 4).value()).value();
  EXPECT_EQ(tokens.layers[1].nests[0].length, 8 * 128 * 2U);
  EXPECT_EQ(tokens.layers[1].nests[0].fragments(), 64U);
}

TEST(CopyPlan, PoolsThatHoldOtherThingsAreRefusedInWords) {
  const Layout layout = layout_from_text("layer_first").value();
  const auto laid = [&](const PoolShape& shape) { return lay_out(shape, layout, 2).value(); };
  const PoolShape base = pool(4, {0, 1}, {tensor("k", 4, 2, 4, 2), tensor("v", 4, 2, 4, 2)});
  const auto refused = [&](const PoolShape& source, const PoolShape& target, CopyUnit unit,
                           const char* words) {
    const auto plan = plan_copy(laid(source), laid(target), unit);
    ASSERT_FALSE(plan) << words;
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
    EXPECT_NE(plan.error().message.find(words), std::string::npos) << plan.error().message;
  };
  refused(base, pool(4, {0, 2}, base.tensors), {}, "their layers differ: 0,1 and 0,2");
  refused(base, pool(4, {0, 1}, {base.tensors[0]}), {}, "they have 2 and 1 components");
  refused(base, pool(4, {0, 1}, {base.tensors[1], base.tensors[0]}), {},
          "component k: it is v on the other side");
  refused(base, pool(4, {0, 1}, {tensor("k", 4, 2, 8, 1), tensor("v", 4, 2, 4, 2)}), {},
          "heads of 4 elements of 2 bytes");
  refused(base, pool(4, {0, 1}, {tensor("k", 4, 4, 4, 2), tensor("v", 4, 2, 4, 2)}), {},
          "component k: 2 heads of 1 ranks");
  refused(base, with_pages_of(base, 6), {}, "pages of 4 and 6 tokens: one must divide the other");
  refused(base, base, {3, CopyScope::kByLayer}, "a granule of 3 tokens does not divide");
  refused(pool(4, {0}, {tensor("c", 2, 1, 4, 2)}, 2), pool(4, {0}, {tensor("c", 2, 1, 4, 2)}, 2),
          {1, CopyScope::kByLayer}, "cuts an entry of 2 tokens");
  refused(pool(4, {0}, {tensor("c", 2, 1, 4, 2)}, 2), pool(4, {0}, {tensor("c", 4, 1, 4, 2)}), {},
          "tokens_per_entry 2 and 1");
  refused(small_pools()[7], small_pools()[7], {1, CopyScope::kByLayer}, "opaque and cannot be cut");
  refused(small_pools()[5], small_pools()[5], {1, CopyScope::kByLayer}, "a snapshot is moved whole");
  const auto plan = plan_reshard(base, laid(base), laid(base), {1, 2, 2});
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("rank 2 of 2"), std::string::npos);
}

}  // namespace
}  // namespace tiercel
