#include "memory/host_sequence.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/host_pools.h"
#include "memory/test_host_pools.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// MLA with index keys and a draft: three pools that share slots; a state pool that does not.
StorageForm sparse_attention_form() {
  return form_of({group(FullKind{}, Need::kRequired, {0, 1, 2}, latent(), true),
                  group(StateKind{}, Need::kSparse, {5}, snapshot()),
                  group(FollowerKind{0}, Need::kRequired, {1, 2}, index_keys(), true), draft_of(0, {90})},
                 1, {}, {90});
}

HostPoolGroup group_of(const StorageForm& form, std::string_view layout, std::uint64_t pages) {
  auto group =
      HostPoolGroup::build(form, {.layout = named_layout(layout)},
                           {.plan = {MemoryKind::kAnonymous, PagesCapacity{pages}}, .numa = {}, .touch = {}});
  EXPECT_TRUE(group) << (group ? "" : group.error().message);
  return std::move(*group);
}

std::byte content(std::uint32_t sequence, std::uint64_t token, std::uint64_t place) {
  return static_cast<std::byte>((std::uint64_t{sequence} * 131 + token * 17 + place) % 251);
}

// Calls `visit(bytes, place)` for every run of one token in every pool that shares the slots.
template <typename Visit>
void each_run(const HostPoolGroup& group, const HostSequence& sequence, std::uint64_t token, Visit visit) {
  std::uint64_t place = 0;
  const HostPoolPlan& plan = group.plan();
  for (std::uint32_t p = 0; p < plan.pools.size(); ++p) {
    const HostPool& pool = plan.pools[p];
    if (pool.slots_of != 0) continue;
    for (std::uint32_t t = 0; t < pool.layout.shape.tensors.size(); ++t)
      for (std::uint32_t l = 0; l < pool.layout.shape.layers.size(); ++l)
        for (const Segment& run : sequence.entry_of(pool, t, l, token)) visit(group.bytes(p, run), place++);
  }
}

TEST(HostSequence, WhatWasAppendedStaysWhereItIsInEveryPoolThatSharesTheSlots) {
  const StorageForm form = sparse_attention_form();
  for (const char* layout :
       {"layer_first", "page_first", "page_first_direct", "page_first_kv_split", "vllm_block_nhd"}) {
    const HostPoolGroup group = group_of(form, layout, 12);
    auto slots = GroupSlots::make(group.plan());
    ASSERT_TRUE(slots);
    std::vector<HostSequence> sequences;
    for (int i = 0; i < 3; ++i) {
      auto made = HostSequence::make(group.plan(), *slots, *group.plan().find("index_k"));
      ASSERT_TRUE(made) << made.error().message;
      sequences.push_back(std::move(*made));
    }
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<const std::byte*>> addresses;
    std::set<const std::byte*> taken;
    const auto check_all = [&] {
      for (std::uint32_t s = 0; s < sequences.size(); ++s)
        for (std::uint64_t token = 0; token < sequences[s].tokens(); ++token)
          each_run(group, sequences[s], token, [&](MutableByteView bytes, std::uint64_t place) {
            ASSERT_EQ(addresses.at({s, token}).at(place), bytes.data());
            for (const std::byte byte : bytes) ASSERT_EQ(byte, content(s, token, place)) << layout;
          });
    };
    for (const std::uint64_t count : {1U, 15U, 1U, 0U, 20U, 3U}) {
      for (std::uint32_t s = 0; s < sequences.size(); ++s) {
        const auto added = sequences[s].append(count);
        ASSERT_TRUE(added) << added.error().message;
        for (std::uint64_t i = 0; i < added->count; ++i) {
          const std::uint64_t token = added->first + i;
          each_run(group, sequences[s], token, [&](MutableByteView bytes, std::uint64_t place) {
            addresses[{s, token}].push_back(bytes.data());
            for (std::byte& byte : bytes) {
              ASSERT_TRUE(taken.insert(&byte).second) << layout << ": a byte of two tokens";
              byte = content(s, token, place);
            }
          });
        }
      }
      check_all();
    }
    EXPECT_EQ(sequences[0].tokens(), 40U);
    EXPECT_EQ(sequences[0].pages().size(), 3U);
    EXPECT_EQ(slots->slots_of(0).free_slots(), 12U - 9U);
    EXPECT_EQ(slots->slots_of(*group.plan().find("state")).free_slots(), 12U)
        << "snapshots are not its business";
  }
}

TEST(HostSequence, GrowsByPagesOnlyWhenTheLastOneIsFull) {
  const HostPoolGroup group = group_of(hybrid_form(), "page_first_direct", 4);
  auto slots = GroupSlots::make(group.plan());
  auto one = HostSequence::make(group.plan(), *slots, 0);
  auto other = HostSequence::make(group.plan(), *slots, 0);
  ASSERT_TRUE(one && other);
  ASSERT_TRUE(one->append(16));
  ASSERT_TRUE(other->append(1));
  ASSERT_TRUE(one->append(1));
  EXPECT_THAT(one->pages(), ElementsAre(0, 2));
  EXPECT_THAT(other->pages(), ElementsAre(1));
  EXPECT_EQ(one->token_slot(0), 0U);
  EXPECT_EQ(one->token_slot(15), 15U);
  EXPECT_EQ(one->token_slot(16), 32U);
  EXPECT_THAT(one->token_slots({14, 3}), ElementsAre(14, 15, 32));
  ASSERT_TRUE(one->append(15));
  EXPECT_EQ(one->pages().size(), 2U);
  EXPECT_EQ(slots->slots_of(0).free_slots(), 1U);
}

TEST(HostSequence, AFullPoolRefusesAndChangesNothing) {
  const HostPoolGroup group = group_of(hybrid_form(), "layer_first", 2);
  auto slots = GroupSlots::make(group.plan());
  auto sequence = HostSequence::make(group.plan(), *slots, 0);
  ASSERT_TRUE(sequence);
  ASSERT_TRUE(sequence->append(17));
  const auto more = sequence->append(16);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  EXPECT_THAT(more.error().message,
              HasSubstr("host sequence: 16 more tokens: slots of pool full: wanted 1, got 0"));
  EXPECT_EQ(sequence->tokens(), 17U);
  EXPECT_TRUE(sequence->append(15));
  EXPECT_FALSE(sequence->append(UINT64_MAX));
  EXPECT_EQ(sequence->tokens(), 32U);
}

TEST(HostSequence, IsReleasedAsAWholeOnceAndByWhoeverHasItLast) {
  const HostPoolGroup group = group_of(hybrid_form(), "page_first", 4);
  auto slots = GroupSlots::make(group.plan());
  std::optional<HostSequence> kept;
  {
    auto sequence = HostSequence::make(group.plan(), *slots, 0);
    ASSERT_TRUE(sequence && sequence->append(40));
    kept.emplace(std::move(*sequence));
  }
  EXPECT_EQ(slots->slots_of(0).free_slots(), 1U) << "it moved";
  kept->release();
  kept->release();
  EXPECT_EQ(slots->slots_of(0).free_slots(), 4U);
  EXPECT_EQ(kept->tokens(), 0U);
  ASSERT_TRUE(kept->append(1));
  kept.reset();
  EXPECT_EQ(slots->slots_of(0).free_slots(), 4U);
}

TEST(HostSequence, NobodyElseGivesItsPagesBack) {
  const HostPoolGroup group = group_of(sparse_attention_form(), "page_first", 8);
  auto slots = GroupSlots::make(group.plan());
  ASSERT_TRUE(slots);
  const auto taken = slots->allocate(std::array{GroupSlots::Want{0, 2}});
  ASSERT_TRUE(taken);
  {
    auto sequence = HostSequence::make(group.plan(), *slots, 0);
    ASSERT_TRUE(sequence);
    ASSERT_TRUE(sequence->append(1));
    const std::uint64_t page = sequence->page_of(0);
    const Status refused = slots->free(std::array{GroupSlots::Grant{0, {0, page}}});
    EXPECT_EQ(refused.code, Code::kFailedPrecondition);
    EXPECT_THAT(refused.message, HasSubstr("slot 2 belongs to a sequence"));
    EXPECT_TRUE(slots->slots_of(0).in_use(0)) << "nothing of the list is free";
  }
  EXPECT_EQ(slots->slots_of(0).free_slots(), 6U) << "its end gives it back";
  EXPECT_TRUE(slots->free(*taken).ok());
  const auto again = slots->allocate(std::array{GroupSlots::Want{0, 3}});
  ASSERT_TRUE(again);
  EXPECT_TRUE(slots->free(*again).ok()) << "a slot that was once a sequence's is like any other";
}

TEST(HostSequence, SnapshotsAndPoolsThatAreNotThereAreRefused) {
  const HostPoolGroup group = group_of(hybrid_form(), "page_first", 4);
  auto slots = GroupSlots::make(group.plan());
  const auto state = HostSequence::make(group.plan(), *slots, *group.plan().find("state"));
  ASSERT_FALSE(state);
  EXPECT_THAT(state.error().message, HasSubstr("pool state: wanted pages of tokens, got snapshots"));
  EXPECT_FALSE(HostSequence::make(group.plan(), *slots, 3));
}

TEST(HostSequence, TokensOfACompressedGroupShareAnEntry) {
  Group by4 = group(FullKind{}, Need::kRequired, {1}, latent());
  by4.tokens_per_entry = 4;
  const StorageForm form = form_of({group(FullKind{}, Need::kRequired, {0}, latent()), by4});
  const HostPoolGroup group = group_of(form, "page_first", 2);
  auto slots = GroupSlots::make(group.plan());
  auto sequence = HostSequence::make(group.plan(), *slots, 0);
  ASSERT_TRUE(sequence && sequence->append(20));
  const HostPool& compressed = group.plan().pools[1];
  EXPECT_EQ(sequence->entry_of(compressed, 0, 0, 4), sequence->entry_of(compressed, 0, 0, 7));
  EXPECT_NE(sequence->entry_of(compressed, 0, 0, 7), sequence->entry_of(compressed, 0, 0, 8));
  EXPECT_THAT(sequence->entry_of(compressed, 0, 0, 17), ElementsAre(Segment{0, 192, 48}));
}

TEST(EntrySegments, AllEntriesOfAPageAreThePageForEveryLayout) {
  for (const Stack& each : all_stacks())
    for (const Layout& layout : named_layouts())
      for (const PoolShape& shape : pool_shapes(each.form)) {
        const auto laid = lay_out(shape, layout, 3);
        if (!laid) continue;
        const auto objects = page_segments(*laid, 1);
        for (std::uint32_t t = 0; t < objects.size(); ++t) {
          std::set<std::pair<std::uint32_t, std::uint64_t>> page, entries;
          for (const Segment& segment : objects[t].segments)
            for (std::uint64_t i = 0; i < segment.length; ++i)
              page.emplace(segment.buffer, segment.offset + i);
          for (std::uint32_t l = 0; l < shape.layers.size(); ++l)
            for (std::uint64_t entry = 0; entry < shape.tensors[t].tokens; ++entry)
              for (const Segment& segment : entry_segments(*laid, t, l, 1, entry))
                for (std::uint64_t i = 0; i < segment.length; ++i)
                  ASSERT_TRUE(entries.emplace(segment.buffer, segment.offset + i).second);
          EXPECT_EQ(entries, page) << each.name << " " << layout.name << " " << shape.name;
        }
      }
}

}  // namespace
}  // namespace tiercel
