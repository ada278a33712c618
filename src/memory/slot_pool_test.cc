#include "memory/slot_pool.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "memory/test_host_pools.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Slots = std::vector<std::uint64_t>;

SlotPool pool_of(std::uint64_t slots) {
  auto pool = SlotPool::make(slots);
  EXPECT_TRUE(pool);
  return std::move(*pool);
}

TEST(SlotPool, TheLowestFreeSlotGoesFirst) {
  SlotPool pool = pool_of(8);
  EXPECT_THAT(*pool.allocate(3), ElementsAre(0, 1, 2));
  EXPECT_THAT(*pool.allocate(2), ElementsAre(3, 4));
  EXPECT_TRUE(pool.free(Slots{4, 1}).ok());
  EXPECT_THAT(*pool.allocate(3), ElementsAre(1, 4, 5));
  EXPECT_EQ(pool.free_slots(), 2U);
  EXPECT_THAT(*pool.allocate(0), ElementsAre());
}

TEST(SlotPool, TooManyTakesNone) {
  SlotPool pool = pool_of(4);
  ASSERT_TRUE(pool.allocate(1));
  const auto more = pool.allocate(4);
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().code, Code::kResourceExhausted);
  EXPECT_THAT(more.error().message, HasSubstr("wanted 4, got 3 free of 4"));
  EXPECT_EQ(pool.free_slots(), 3U);
  EXPECT_FALSE(pool.allocate(UINT64_MAX));
  EXPECT_THAT(*pool.allocate(3), ElementsAre(1, 2, 3));
}

TEST(SlotPool, DoubleForeignAndRepeatedFreesFreeNothing) {
  SlotPool pool = pool_of(4);
  ASSERT_TRUE(pool.allocate(3));
  ASSERT_TRUE(pool.free(Slots{1}).ok());
  EXPECT_EQ(pool.free(Slots{0, 1}).code, Code::kFailedPrecondition);
  EXPECT_EQ(pool.free(Slots{0, 3}).code, Code::kFailedPrecondition) << "never handed out";
  EXPECT_EQ(pool.free(Slots{0, 4}).code, Code::kInvalidArgument);
  EXPECT_EQ(pool.free(Slots{0, UINT64_MAX}).code, Code::kInvalidArgument);
  EXPECT_EQ(pool.free(Slots{0, 2, 0}).code, Code::kInvalidArgument);
  EXPECT_TRUE(pool.in_use(0));
  EXPECT_TRUE(pool.in_use(2));
  EXPECT_EQ(pool.free_slots(), 2U);
  EXPECT_TRUE(pool.free({}).ok());
}

TEST(SlotPool, MoreThan32BitsOfSlotsAreRefused) {
  EXPECT_FALSE(SlotPool::make(1ULL << 32));
  SlotPool pool = pool_of((1ULL << 32) - 1);
  EXPECT_THAT(*pool.allocate(2), ElementsAre(0, 1));
}

TEST(SlotPool, AgreesWithASetForRandomCalls) {
  Prng prng(11);
  for (int round = 0; round < 50; ++round) {
    const std::uint64_t size = prng.between(1, 200);
    SlotPool pool = pool_of(size);
    std::set<std::uint64_t> free, used;
    for (std::uint64_t i = 0; i < size; ++i) free.insert(i);
    for (int step = 0; step < 100; ++step) {
      if (prng.chance(0.5)) {
        const std::uint64_t count = prng.below(size / 2 + 2);
        const auto got = pool.allocate(count);
        ASSERT_EQ(got.has_value(), count <= free.size());
        if (!got) continue;
        const Slots wanted(free.begin(), std::next(free.begin(), static_cast<std::ptrdiff_t>(count)));
        ASSERT_EQ(*got, wanted);
        used.insert(wanted.begin(), wanted.end());
        for (const std::uint64_t slot : wanted) free.erase(slot);
      } else {
        Slots back;
        for (const std::uint64_t slot : used)
          if (prng.chance(0.4)) back.push_back(slot);
        const bool bad = prng.chance(0.3);
        if (bad) back.push_back(prng.below(size + 2));
        const bool valid =
            std::set<std::uint64_t>(back.begin(), back.end()).size() == back.size() &&
            std::all_of(back.begin(), back.end(), [&](std::uint64_t slot) { return used.contains(slot); });
        ASSERT_EQ(pool.free(back).ok(), valid);
        if (!valid) continue;
        for (const std::uint64_t slot : back) used.erase(slot), free.insert(slot);
      }
      ASSERT_EQ(pool.free_slots(), free.size());
      for (std::uint64_t slot = 0; slot < size + 2; ++slot) ASSERT_EQ(pool.in_use(slot), used.contains(slot));
    }
  }
}

// full (with index keys) and state.
HostPoolPlan small_plan() {
  const StorageForm form = form_of({group(FullKind{}, Need::kRequired, {0}, kv()),
                                    group(StateKind{}, Need::kSparse, {1}, snapshot()),
                                    group(FollowerKind{0}, Need::kRequired, {0}, index_keys())});
  const auto requests = stack_of(form, {.layout = named_layout("page_first_direct")});
  auto plan = plan_host_pools(*requests, {MemoryKind::kAnonymous, PagesCapacity{4, {{"state", 2}}}});
  EXPECT_TRUE(plan);
  return plan.value_or(HostPoolPlan{});
}

TEST(GroupSlots, AllOrNothingOverSeveralPools) {
  auto slots = GroupSlots::make(small_plan());
  ASSERT_TRUE(slots);
  const std::vector<GroupSlots::Want> wants = {{0, 3}, {1, 1}};
  const auto grants = slots->allocate(wants);
  ASSERT_TRUE(grants);
  EXPECT_THAT((*grants)[0].slots, ElementsAre(0, 1, 2));
  EXPECT_THAT((*grants)[1].slots, ElementsAre(0));
  const auto short_of_one = slots->allocate(std::vector<GroupSlots::Want>{{1, 1}, {0, 2}});
  ASSERT_FALSE(short_of_one);
  EXPECT_EQ(short_of_one.error().code, Code::kResourceExhausted);
  EXPECT_THAT(short_of_one.error().message, HasSubstr("slots of pool full: wanted 2, got 1 free of 4"));
  EXPECT_EQ(slots->slots_of(1).free_slots(), 1U) << "nothing was taken from the state pool";
  EXPECT_FALSE(slots->allocate(std::vector<GroupSlots::Want>{{0, 1}, {0, 1}}))
      << "two wants are two calls in a row";
  EXPECT_EQ(slots->slots_of(0).free_slots(), 1U);
  EXPECT_TRUE(slots->free(*grants).ok());
  EXPECT_EQ(slots->slots_of(0).free_slots(), 4U);
  EXPECT_TRUE(slots->allocate({}));
}

TEST(GroupSlots, APoolWithoutSlotsOfItsOwnHandsOutNone) {
  const HostPoolPlan plan = small_plan();
  auto slots = GroupSlots::make(plan);
  const std::uint32_t keys = *plan.find("index_k");
  const auto keys_alone = slots->allocate(std::vector<GroupSlots::Want>{{keys, 1}});
  ASSERT_FALSE(keys_alone);
  EXPECT_EQ(keys_alone.error().code, Code::kInvalidArgument);
  EXPECT_THAT(keys_alone.error().message, HasSubstr("pool index_k uses the slots of full"));
  EXPECT_FALSE(slots->allocate(std::vector<GroupSlots::Want>{{3, 1}})) << "a pool that is not there";
  ASSERT_TRUE(slots->allocate(std::vector<GroupSlots::Want>{{0, 1}}));
  EXPECT_EQ(slots->slots_of(keys).free_slots(), 3U) << "its slots are the anchor's";
}

TEST(GroupSlots, AWrongFreeInOnePoolFreesNothingInAny) {
  auto slots = GroupSlots::make(small_plan());
  const auto grants = slots->allocate(std::vector<GroupSlots::Want>{{0, 2}, {1, 1}});
  ASSERT_TRUE(grants);
  std::vector<GroupSlots::Grant> wrong = *grants;
  wrong[1].slots = {1};
  const Status status = slots->free(wrong);
  EXPECT_EQ(status.code, Code::kFailedPrecondition);
  EXPECT_THAT(status.message, HasSubstr("pool state: slots: slot 1 is free already"));
  EXPECT_EQ(slots->slots_of(0).free_slots(), 2U);
  wrong = *grants;
  wrong.push_back({0, {0}});
  EXPECT_EQ(slots->free(wrong).code, Code::kInvalidArgument) << "twice over two grants";
  EXPECT_TRUE(slots->free(*grants).ok());
  EXPECT_EQ(slots->free(*grants).code, Code::kFailedPrecondition);
}

}  // namespace
}  // namespace tiercel
