#include "memory/host_pool_plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/prng.h"
#include "memory/host_pool_sizes.h"
#include "memory/test_host_pools.h"
#include "os/mapping_calls.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;

HostPoolPlanOptions pages(std::uint64_t count, MemoryKind kind = MemoryKind::kShared) {
  return {kind, PagesCapacity{count}};
}

HostPoolPlan planned(const std::vector<HostPoolRequest>& requests, const HostPoolPlanOptions& options) {
  const auto plan = plan_host_pools(requests, options);
  EXPECT_TRUE(plan) << (plan ? "" : plan.error().message);
  return plan.value_or(HostPoolPlan{});
}

std::string refusal(const std::vector<HostPoolRequest>& requests, const HostPoolPlanOptions& options) {
  const auto plan = plan_host_pools(requests, options);
  EXPECT_FALSE(plan);
  if (plan) return {};
  EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
  EXPECT_EQ(plan.error().message.find('\n'), std::string::npos);
  return plan.error().message;
}

std::vector<HostPoolRequest> stack(const StorageForm& form, std::string_view layout = "page_first_direct",
                                   Stage stage = {}) {
  const auto requests = stack_of(form, {.layout = named_layout(layout), .stage = stage});
  EXPECT_TRUE(requests) << (requests ? "" : requests.error().message);
  return requests.value_or(std::vector<HostPoolRequest>{});
}

// ---- bytes required and mapped ----

TEST(HostPoolBytes, MainPool128AndSidePool64And32Are224) {
  const HostPoolPlan plan = planned({raw_pool("main", 16, {128}), raw_pool("side", 0, {64, 32})}, pages(1));
  EXPECT_EQ(required_bytes(plan), 224U);
  EXPECT_EQ(mapped_bytes(plan), 2 * kMiB);
  EXPECT_EQ(plan.allocations.size(), 1U);
}

TEST(HostPoolBytes, ABufferThatIsListedTwiceCountsOnce) {
  HostPoolRequest again = raw_pool("again", 0, {32, 128});
  again.buffers = {SameBufferAs{"side", 1}, SameBufferAs{"main", 0}};
  const HostPoolPlan plan =
      planned({raw_pool("main", 16, {128}), raw_pool("side", 0, {64, 32}), again}, pages(1));
  EXPECT_EQ(required_bytes(plan), 224U);
  EXPECT_EQ(plan.pools[2].buffers[0], plan.pools[1].buffers[1]);
  EXPECT_EQ(plan.pools[2].buffers[1], plan.pools[0].buffers[0]);
}

TEST(HostPoolBytes, OverlappingRangesCountTheirUnion) {
  HostPoolRequest side = raw_pool("side", 0, {64, 48, 16});
  side.buffers = {SameBufferAs{"main", 0, 64}, SameBufferAs{"main", 0, 32}, OwnBuffer{}};
  const HostPoolPlan plan = planned({raw_pool("main", 16, {128}), side}, pages(1));
  EXPECT_EQ(required_bytes(plan), 128U + 16U);
  EXPECT_EQ(plan.pools[1].buffers[0], (BufferPlace{0, 64, 64}));
  EXPECT_EQ(plan.pools[1].buffers[1], (BufferPlace{0, 32, 48}));
}

TEST(HostPoolBytes, APoolWithoutBytesOnlySidePoolsAndNoSidePoolAreOrdinary) {
  HostPoolRequest logical = raw_pool("logical", 16, {});
  HostPoolRequest side = raw_pool("side", 16, {64, 0, 32});
  side.slots_of = "logical";
  const HostPoolPlan only_sides = planned({logical, side}, pages(1));
  EXPECT_EQ(required_bytes(only_sides), 96U);
  EXPECT_EQ(only_sides.pools[0].pages(), 1U);
  EXPECT_TRUE(only_sides.pools[0].buffers.empty() || only_sides.pools[0].buffers[0].bytes == 0);
  EXPECT_EQ(required_bytes(planned({raw_pool("main", 16, {128})}, pages(1))), 128U);
  const HostPoolPlan nothing = planned({logical}, pages(7));
  EXPECT_EQ(required_bytes(nothing), 0U);
  EXPECT_EQ(mapped_bytes(nothing), 0U);
  EXPECT_TRUE(nothing.allocations.empty());
}

TEST(HostPoolBytes, KAndVAsTwoViewsOfOneAllocationCountOnceAndAreRegisteredOnce) {
  std::vector<std::byte> memory(4096 + 256);
  const MutableByteView whole(memory);
  HostPoolRequest kv = raw_pool("kv", 16, {128, 128});
  kv.buffers = {BufferAt{whole.first(128)}, BufferAt{whole.subspan(128, 128)}};
  HostPoolRequest both = raw_pool("both", 16, {256});
  both.slots_of = "kv";
  both.buffers = {BufferAt{whole.first(256)}};
  HostPoolPlanOptions options = pages(1, MemoryKind::kExternal);
  options.allocations = {whole};
  const HostPoolPlan plan = planned({kv, both}, options);
  EXPECT_EQ(required_bytes(plan), 256U);
  EXPECT_THAT(plan.allocations, ElementsAre(4096 + 256));
  EXPECT_EQ(mapped_bytes(plan), 8192U);
  EXPECT_EQ(place_of(plan.pools[0], {1, 5, 7}), (SegmentPlace{0, 133}));
}

TEST(HostPoolBytes, RequiredIsTheUnionOfAllSegmentsForEveryStackAndLayout) {
  for (const Stack& each : all_stacks())
    for (const Layout& layout : named_layouts()) {
      const auto requests = stack_of(each.form, {.layout = layout});
      ASSERT_TRUE(requests);
      const auto plan = plan_host_pools(*requests, pages(3));
      if (!plan) {  // the layout says so of components with unlike axes
        EXPECT_THAT(plan.error().message, HasSubstr("stands outside of component")) << each.name;
        continue;
      }
      std::map<std::uint64_t, std::uint64_t> runs;  // end by begin
      for (const HostPool& pool : plan->pools)
        for (std::uint64_t page = 0; page < pool.pages(); ++page)
          for (const PageObject& object : page_segments(pool.layout, page))
            for (const Segment& segment : object.segments) {
              const SegmentPlace place = place_of(pool, segment);
              ASSERT_EQ(place.allocation, 0U);
              ASSERT_LE(place.offset + segment.length, plan->allocations[0]);
              ASSERT_TRUE(runs.emplace(place.offset, place.offset + segment.length).second) << each.name;
            }
      std::uint64_t sum = 0, last = 0;
      for (const auto& [begin, end] : runs) {
        ASSERT_LE(last, begin) << each.name << " " << layout.name;
        sum += end - begin;
        last = end;
      }
      EXPECT_EQ(required_bytes(*plan), sum) << each.name << " " << layout.name;
    }
}

// ---- what is refused ----

TEST(HostPoolRefusals, AnEmptyListAndAPoolWithoutAName) {
  EXPECT_THAT(refusal({}, pages(1)), HasSubstr("at least one pool"));
  EXPECT_THAT(refusal({raw_pool("", 16, {1})}, pages(1)), HasSubstr("wanted a name"));
  EXPECT_THAT(refusal({raw_pool("a", 16, {1}), raw_pool("a", 16, {1})}, pages(1)),
              HasSubstr("pool a: wanted each name once"));
}

TEST(HostPoolRefusals, LayersThatDoNotRise) {
  HostPoolRequest request = raw_pool("a", 16, {1});
  request.shape.layers = {3, 3};
  EXPECT_THAT(refusal({request}, pages(1)), HasSubstr("pool a: layers: wanted rising ids, got 3 after 3"));
}

TEST(HostPoolRefusals, SlotsOfAPoolThatIsNotThereOrHasOtherPages) {
  HostPoolRequest side = raw_pool("side", 16, {1});
  side.slots_of = "main";
  EXPECT_THAT(refusal({side, raw_pool("main", 16, {1})}, pages(1)),
              HasSubstr("wanted a pool that was added before, got 'main'"));
  EXPECT_THAT(refusal({raw_pool("main", 32, {1}), side}, pages(1)),
              HasSubstr("page tokens: wanted 32 like pool main"));
  side.slots_of = "side";
  EXPECT_THAT(refusal({side}, pages(1)), HasSubstr("added before"));
}

TEST(HostPoolRefusals, FewerOrMoreBuffersThanTheLayoutHas) {
  for (const std::size_t count : {1U, 3U}) {
    HostPoolRequest request = raw_pool("a", 16, {8, 8});
    request.buffers.assign(count, OwnBuffer{});
    EXPECT_THAT(refusal({request}, pages(1)),
                HasSubstr("pool a: buffers: layout page_first_kv_split wanted 2, got"));
  }
}

TEST(HostPoolRefusals, BuffersOfTheCallerThatAreNullOutsideOrTooShort) {
  std::vector<std::byte> memory(256), other(256);
  HostPoolPlanOptions options = pages(1, MemoryKind::kExternal);
  options.allocations = {memory};
  HostPoolRequest request = raw_pool("a", 16, {128});
  const auto with = [&](const BufferSource& source) {
    request.buffers = {source};
    return request;
  };
  EXPECT_THAT(refusal({with(BufferAt{})}, options),
              HasSubstr("pool a: buffer 0: wanted 128 bytes, got null"));
  EXPECT_THAT(refusal({with(OwnBuffer{})}, options), HasSubstr("wanted memory of the caller"));
  EXPECT_THAT(refusal({with(BufferAt{MutableByteView(memory).first(127)})}, options),
              HasSubstr("wanted 128 bytes, got 127"));
  EXPECT_THAT(refusal({with(BufferAt{other})}, options), HasSubstr("inside one of the 1 allocations"));
  EXPECT_THAT(refusal({with(BufferAt{{memory.data() + 129, 128}})}, options),
              HasSubstr("inside one of the 1 allocations"));
  EXPECT_THAT(refusal({with(SameBufferAs{"b", 0})}, options),
              HasSubstr("added before, got buffer 0 of pool 'b'"));
  EXPECT_THAT(refusal({with(SameBufferAs{"a", 0})}, options), HasSubstr("added before")) << "itself";
  EXPECT_TRUE(plan_host_pools({with(BufferAt{{memory.data() + 128, 128}})}, options));
  // A buffer of no bytes may be absent.
  EXPECT_EQ(required_bytes(planned({raw_pool("b", 16, {0})}, options)), 0U);
}

TEST(HostPoolRefusals, AllocationsThatOverlapOrAreNull) {
  std::vector<std::byte> memory(256);
  HostPoolPlanOptions options = pages(1, MemoryKind::kExternal);
  options.allocations = {memory, MutableByteView(memory).subspan(255)};
  EXPECT_THAT(refusal({raw_pool("a", 16, {0})}, options), HasSubstr("allocations 0 and 1 overlap"));
  options.allocations = {MutableByteView{}};
  EXPECT_THAT(refusal({raw_pool("a", 16, {0})}, options), HasSubstr("allocation 0: wanted an address"));
}

TEST(HostPoolRefusals, APoolHasNoMemoryOfAnotherKind) {
  std::vector<std::byte> memory(256);
  HostPoolRequest side = raw_pool("side", 16, {128});
  side.buffers = {BufferAt{memory}};
  EXPECT_THAT(refusal({raw_pool("main", 16, {1}), side}, pages(1)),
              HasSubstr("wanted memory of kind shared like the whole group"));
  HostPoolPlanOptions options = pages(1);
  options.allocations = {memory};
  EXPECT_THAT(refusal({raw_pool("main", 16, {1})}, options), HasSubstr("is the group's own"));
}

TEST(HostPoolRefusals, AViewThatReachesBeyondItsBuffer) {
  HostPoolRequest side = raw_pool("side", 16, {100});
  for (const std::uint64_t offset : std::initializer_list<std::uint64_t>{29, 128, 129, UINT64_MAX}) {
    side.buffers = {SameBufferAs{"main", 0, offset}};
    EXPECT_THAT(refusal({raw_pool("main", 16, {128}), side}, pages(1)), HasSubstr("which has 128"));
  }
  side.buffers = {SameBufferAs{"main", 0, 28}};
  EXPECT_TRUE(plan_host_pools({raw_pool("main", 16, {128}), side}, pages(1)));
}

// ---- capacities ----

TEST(HostPoolPages, AreGivenToEveryPoolWithSlotsOrByName) {
  const auto requests = stack(hybrid_form());
  const HostPoolPlan plan =
      planned(requests, {MemoryKind::kShared, PagesCapacity{10, {{"state", 3}, {"window64", 20}}}});
  EXPECT_EQ(plan.pools[*plan.find("full")].pages(), 10U);
  EXPECT_EQ(plan.pools[*plan.find("window64")].pages(), 20U);
  EXPECT_EQ(plan.pools[*plan.find("state")].pages(), 3U);
  EXPECT_THAT(refusal(requests, {MemoryKind::kShared, PagesCapacity{0}}),
              HasSubstr("pages of pool full: wanted 1 to"));
  EXPECT_THAT(refusal(requests, {MemoryKind::kShared, PagesCapacity{1, {{"mamba", 3}}}}),
              HasSubstr("got 'mamba'"));
}

TEST(HostPoolRatio, CountsDevicePagesRoundedUp) {
  auto requests = stack_of(hybrid_form(), {.layout = named_layout("page_first"),
                                           .device_pages = {{"full", 10}, {"window64", 3}, {"state", 1}}});
  ASSERT_TRUE(requests);
  const HostPoolPlan plan = planned(*requests, {MemoryKind::kShared, RatioCapacity{1.5}});
  EXPECT_EQ(plan.pools[0].pages(), 15U);
  EXPECT_EQ(plan.pools[1].pages(), 5U);
  EXPECT_EQ(plan.pools[2].pages(), 2U);
  EXPECT_EQ(planned(*requests, {MemoryKind::kShared, RatioCapacity{1e-9}}).pools[0].pages(), 1U);
  for (const double ratio :
       {0.0, -1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refusal(*requests, {MemoryKind::kShared, RatioCapacity{ratio}}),
                HasSubstr("ratio: wanted a number above 0"));
  EXPECT_THAT(refusal(*requests, {MemoryKind::kShared, RatioCapacity{1e18}}), HasSubstr("2^63 - 1"));
  EXPECT_THAT(refusal(stack(hybrid_form()), {MemoryKind::kShared, RatioCapacity{2}}),
              HasSubstr("device pool of full, got 0"));
}

TEST(HostPoolTotal, SplitsByWhatOneResumePointCosts) {
  // One resume point: 1 full page of 2048 bytes, ceil(63 / 16) = 4 window pages of 1024, 1 snapshot of 784.
  const auto requests = stack(hybrid_form());
  const HostPoolPlan plan = planned(requests, {MemoryKind::kShared, TotalCapacity{64 * kMiB}});
  const std::uint64_t full = plan.pools[0].pages(), window = plan.pools[1].pages(),
                      state = plan.pools[2].pages();
  EXPECT_EQ(plan.pools[0].layout.shape.page_bytes(), 2048U);
  const std::uint64_t point = plan.pools[0].layout.shape.page_bytes() +
                              4 * plan.pools[1].layout.shape.page_bytes() +
                              plan.pools[2].layout.shape.page_bytes();
  const std::uint64_t points = 64 * kMiB / point;
  EXPECT_NEAR(static_cast<double>(full), static_cast<double>(points), 4);
  EXPECT_NEAR(static_cast<double>(window), static_cast<double>(4 * points), 16);
  EXPECT_NEAR(static_cast<double>(state), static_cast<double>(points), 8);
  EXPECT_EQ(mapped_bytes(plan), 64 * kMiB);
  EXPECT_GT(required_bytes(plan), 64 * kMiB - 784);
}

TEST(HostPoolTotal, CountsWhatSharesTheSlotsOfAPool) {
  const auto stacks = all_stacks();
  const auto dsa =
      std::find_if(stacks.begin(), stacks.end(), [](const Stack& each) { return each.name == "dsa_draft"; });
  ASSERT_NE(dsa, stacks.end());
  const HostPoolPlan plan = planned(stack(dsa->form), {MemoryKind::kShared, TotalCapacity{8 * kMiB}});
  ASSERT_EQ(plan.pools.size(), 3U);
  std::uint64_t page = 0;
  for (const HostPool& pool : plan.pools) {
    EXPECT_EQ(pool.pages(), plan.pools[0].pages());
    EXPECT_EQ(pool.slots_of, 0U);
    page += pool.layout.shape.page_bytes();
  }
  EXPECT_LE(required_bytes(plan), 8 * kMiB);
  EXPECT_GT(required_bytes(plan) + page + 3ULL * 4096, 8 * kMiB);
}

TEST(HostPoolTotal, TooSmallSaysTheSmallestThatWorksAndThatOneDoes) {
  for (const Stack& each : all_stacks()) {
    const auto requests = stack(each.form, "layer_first");
    const HostPoolPlan least = planned(requests, pages(1));
    EXPECT_TRUE(plan_host_pools(requests, {MemoryKind::kShared, TotalCapacity{mapped_bytes(least)}}))
        << each.name;
    for (const std::uint64_t bytes : {mapped_bytes(least) - 1, std::uint64_t{0}})
      EXPECT_THAT(
          refusal(requests, {MemoryKind::kShared, TotalCapacity{bytes}}),
          HasSubstr("total bytes: wanted at least " + std::to_string(mapped_bytes(least)) + " (2 MiB)"));
  }
  EXPECT_THAT(refusal({raw_pool("a", 16, {0})}, {MemoryKind::kShared, TotalCapacity{kMiB * 2}}),
              HasSubstr("say a number of pages"));
  std::vector<std::byte> memory(1);
  HostPoolPlanOptions external{MemoryKind::kExternal, TotalCapacity{kMiB}, {memory}};
  EXPECT_THAT(refusal({raw_pool("a", 16, {0})}, external), HasSubstr("external memory is as large as it is"));
}

TEST(HostPoolTotal, ResumePointsBeyondAnyMachineAreSharedOutOrRefused) {
  auto requests = stack(hybrid_form());
  requests[0].pages_per_resume_point = kSizeMax;
  EXPECT_TRUE(plan_host_pools(requests, {MemoryKind::kShared, TotalCapacity{64 * kMiB}}));
  requests[0].pages_per_resume_point = kSizeMax + 1;
  EXPECT_THAT(refusal(requests, {MemoryKind::kShared, TotalCapacity{64 * kMiB}}),
              HasSubstr("pool full: pages per resume point: wanted at most 9223372036854775807"));
}

TEST(HostPoolTotal, IsNeverExceededAndNotOnePageMoreWouldFit) {
  Prng prng(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<SlotDomain> domains;
    std::vector<OwnedBuffer> buffers;
    const std::uint64_t count = prng.between(1, 4);
    for (std::uint64_t i = 0; i < count; ++i) {
      domains.push_back({"p" + std::to_string(i), prng.chance(0.5) ? 1 : prng.between(1, 40), 0});
      for (std::uint64_t b = prng.between(1, 3); b > 0; --b)
        buffers.push_back({static_cast<std::uint32_t>(i),
                           prng.chance(0.1) ? 0 : prng.below(1ULL << prng.between(1, 24)),
                           1ULL << prng.between(0, 13)});
    }
    const std::uint64_t rounding = prng.chance(0.5) ? 1 : kHugePageBytes;
    const std::uint64_t total = prng.below(1ULL << prng.between(10, 40));
    const auto pages = pages_of(domains, buffers, TotalCapacity{total}, rounding);
    const auto rounded = [&](const std::vector<std::uint64_t>& counts) {
      const auto bytes = laid_out_bytes(buffers, counts);
      return bytes ? (*bytes + rounding - 1) / rounding * rounding : UINT64_MAX;
    };
    std::vector<std::uint64_t> floor(domains.size(), 1);
    std::uint64_t all = 0;
    for (const OwnedBuffer& buffer : buffers) all += buffer.page_bytes;
    if (!pages) {
      EXPECT_TRUE(rounded(floor) > total || all == 0) << round;
      continue;
    }
    EXPECT_LE(rounded(*pages), total) << round;
    for (std::size_t i = 0; i < domains.size(); ++i) {
      EXPECT_GE((*pages)[i], 1U);
      const bool costs = std::any_of(buffers.begin(), buffers.end(), [&](const OwnedBuffer& buffer) {
        return buffer.domain == i && buffer.page_bytes > 0;
      });
      if (!costs) continue;
      std::vector<std::uint64_t> more = *pages;
      ++more[i];
      EXPECT_GT(rounded(more), total) << "round " << round << ": a page of " << i << " more would fit";
    }
    // Whole resume points first: nothing was given to one pool that another one lacked for a resume point.
    std::uint64_t fewest = UINT64_MAX;
    for (std::size_t i = 0; i < domains.size(); ++i)
      fewest = std::min(fewest, (*pages)[i] / domains[i].share);
    std::vector<std::uint64_t> next;
    next.reserve(domains.size());
    for (const SlotDomain& domain : domains) next.push_back((fewest + 1) * domain.share);
    EXPECT_GT(rounded(next), total) << round;
  }
}

TEST(HostPoolSizes, ABufferOfNPagesIsNTimesThatOfOne) {
  // What the split by bytes rests on.
  for (const Stack& each : all_stacks())
    for (const Layout& layout : named_layouts())
      for (const PoolShape& shape : pool_shapes(each.form)) {
        const auto one = lay_out(shape, layout, 1);
        if (!one) continue;
        for (const std::uint64_t count : {2U, 7U}) {
          const auto many = lay_out(shape, layout, count);
          ASSERT_TRUE(many);
          ASSERT_EQ(many->buffer_bytes.size(), one->buffer_bytes.size());
          for (std::size_t i = 0; i < one->buffer_bytes.size(); ++i)
            EXPECT_EQ(many->buffer_bytes[i], count * one->buffer_bytes[i]) << layout.name;
        }
      }
}

// ---- H12: sizes and offsets beyond 2 and 4 GiB ----

TEST(H12, SizesAndOffsetsBeyond32BitsAreExact) {
  for (const std::uint64_t bytes :
       {(1ULL << 31) - 1, 1ULL << 31, (1ULL << 31) + 1, (1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 4096}) {
    const HostPoolPlan plan =
        planned({raw_pool("before", 16, {bytes}), raw_pool("side", 0, {96}), raw_pool("after", 16, {bytes})},
                pages(3));
    EXPECT_EQ(required_bytes(plan), 6 * bytes + 3ULL * 96);
    const std::uint64_t side = (3 * bytes + 4095) / 4096 * 4096;
    EXPECT_EQ(plan.pools[1].buffers[0], (BufferPlace{0, side, 288}));
    const std::uint64_t after = side + 4096;
    EXPECT_EQ(plan.pools[2].buffers[0], (BufferPlace{0, after, 3 * bytes}));
    const auto last = page_segments(plan.pools[2].layout, 2);
    ASSERT_EQ(last.size(), 1U);
    ASSERT_EQ(last[0].segments.size(), 1U);
    EXPECT_EQ(last[0].segments[0], (Segment{0, 2 * bytes, bytes}));
    EXPECT_EQ(place_of(plan.pools[2], last[0].segments[0]), (SegmentPlace{0, after + 2 * bytes}));
    EXPECT_EQ(mapped_bytes(plan), (after + 3 * bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
  }
}

TEST(H12, ManyPagesOfAFewBytesAreExactToo) {
  for (const std::uint64_t count :
       {(1ULL << 31) - 1, 1ULL << 31, (1ULL << 31) + 1, (1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 4096}) {
    const HostPoolPlan plan = planned({raw_pool("a", 16, {24}), raw_pool("b", 16, {8})}, pages(count));
    EXPECT_EQ(required_bytes(plan), 32 * count);
    const auto last = page_segments(plan.pools[0].layout, count - 1);
    EXPECT_EQ(last[0].segments[0], (Segment{0, 24 * (count - 1), 24}));
    const auto total = plan_host_pools({raw_pool("a", 16, {24}), raw_pool("b", 16, {8})},
                                       {MemoryKind::kShared, TotalCapacity{mapped_bytes(plan)}});
    ASSERT_TRUE(total);
    EXPECT_GE(total->pools[0].pages(), count);
    EXPECT_LE(mapped_bytes(*total), mapped_bytes(plan));
  }
}

TEST(H12, WhatPasses2To63IsAnErrorAndNotASmallNumber) {
  constexpr std::uint64_t kHuge = 1ULL << 63;
  EXPECT_THAT(refusal({raw_pool("a", 16, {kHuge})}, pages(1)), HasSubstr("2^63 - 1"));
  EXPECT_THAT(refusal({raw_pool("a", 16, {kHuge - 1}), raw_pool("b", 16, {kHuge - 1})}, pages(1)),
              HasSubstr("2^63 - 1"));
  EXPECT_THAT(refusal({raw_pool("a", 16, {1ULL << 32})}, pages(1ULL << 31)), HasSubstr("2^63 - 1"));
  EXPECT_THAT(refusal({raw_pool("a", 16, {1})}, pages(kHuge)), HasSubstr("pages of pool a"));
  EXPECT_THAT(refusal({raw_pool("a", 16, {kHuge - 1})}, pages(1)), HasSubstr("2^63 - 1"))
      << "rounded up to 2 MiB";
  EXPECT_THAT(refusal({raw_pool("a", 16, {kHuge - 1}), raw_pool("b", 16, {1})},
                      {MemoryKind::kShared, TotalCapacity{kHuge - 1}}),
              HasSubstr("wanted at least"));
  HostPoolRequest many = raw_pool("a", 16, {1ULL << 40});
  many.shape.layers.resize(1U << 10);
  for (std::uint32_t i = 0; i < many.shape.layers.size(); ++i) many.shape.layers[i] = i;
  EXPECT_TRUE(plan_host_pools({many}, pages(1)));
  many.shape.tensors[0].tokens = 1ULL << 13;
  EXPECT_THAT(refusal({many}, pages(1)), HasSubstr("pass 2^63 - 1"));
}

// ---- registration in pieces ----

// Borders of 4 KiB that no run of any page lies across, found by looking at each run.
std::vector<std::uint64_t> borders_between_runs(const HostPoolPlan& plan) {
  std::vector<bool> across(mapped_bytes(plan) / 4096 + 1, false);
  for (const HostPool& pool : plan.pools)
    for (std::uint64_t page = 0; page < pool.pages(); ++page)
      for (const PageObject& object : page_segments(pool.layout, page))
        for (const Segment& segment : object.segments) {
          const std::uint64_t at = place_of(pool, segment).offset;
          for (std::uint64_t border = at / 4096 + 1; border * 4096 < at + segment.length; ++border)
            across[border] = true;
        }
  std::vector<std::uint64_t> borders;
  for (std::uint64_t border = 0; border < across.size(); ++border)
    if (!across[border]) borders.push_back(border * 4096);
  return borders;
}

TEST(HostPoolRegistration, PiecesAreAsLongAsTheyMayBeAndNoRunOfAnyPageLiesInTwo) {
  std::size_t cut_plans = 0, refused_plans = 0;
  for (const Stack& each : all_stacks())
    for (const Layout& layout : named_layouts()) {
      const auto requests = stack_of(each.form, {.layout = layout});
      const auto plan = plan_host_pools(*requests, pages(300));
      if (!plan) continue;
      const std::vector<std::uint64_t> borders = borders_between_runs(*plan);
      for (const std::uint64_t piece : {64ULL << 10, 1ULL << 20, 3ULL << 19}) {
        std::vector<std::uint64_t> wanted;
        std::uint64_t begin = 0;
        while (begin < borders.back()) {
          const std::uint64_t furthest =
              *(std::upper_bound(borders.begin(), borders.end(), begin + piece) - 1);
          if (furthest == begin) break;
          wanted.push_back(begin = furthest);
        }
        const auto cuts = registration_cuts(*plan, 0, piece);
        ASSERT_EQ(cuts.has_value(), begin == borders.back())
            << each.name << " " << layout.name << " " << piece;
        if (cuts) {
          ASSERT_EQ(*cuts, wanted) << each.name << " " << layout.name << " " << piece;
        }
        (cuts ? cut_plans : refused_plans) += 1;
      }
    }
  EXPECT_GT(cut_plans, 200U);
  EXPECT_GT(refused_plans, 0U);
}

TEST(HostPoolRegistration, ARunThatIsLongerThanAPieceIsRefusedByName) {
  const HostPoolPlan plan =
      planned({raw_pool("small", 16, {100}), raw_pool("large", 16, {3 << 20})}, pages(2));
  const auto cuts = registration_cuts(plan, 0, 2 * kMiB);
  ASSERT_FALSE(cuts);
  EXPECT_THAT(cuts.error().message, HasSubstr("a run of 3145728 bytes of pool large lies across"));
  EXPECT_THAT(*registration_cuts(plan, 0, 1ULL << 40), ElementsAre(8 * kMiB));
}

// ---- the stacks that users run ----

TEST(HostPoolStacks, EveryGroupOfEveryModelHasItsPoolAndItsSlots) {
  const std::map<std::string, std::vector<std::string>> slots = {
      {"full", {"full"}},
      {"mla", {"full"}},
      {"full_window", {"full", "window40"}},
      {"full_state", {"full", "state"}},
      {"full_window_state", {"full", "window64", "state"}},
      {"dsa", {"full", "full"}},
      {"sparse_keys", {"full", "full"}},
      {"compressed", {"full", "full", "full", "window32"}},
  };
  for (const Stack& each : all_stacks()) {
    const bool draft = each.name.ends_with("_draft");
    std::vector<std::string> wanted = slots.at(draft ? each.name.substr(0, each.name.size() - 6) : each.name);
    if (draft) wanted.emplace_back("full");
    const HostPoolPlan plan = planned(stack(each.form), {MemoryKind::kAnonymous, TotalCapacity{16 * kMiB}});
    ASSERT_EQ(plan.pools.size(), wanted.size()) << each.name;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const HostPool& pool = plan.pools[i];
      EXPECT_EQ(plan.pools[pool.slots_of].name(), wanted[i]) << each.name;
      EXPECT_EQ(pool.pages(), plan.pools[pool.slots_of].pages());
      EXPECT_EQ(pool.replicated, each.form.spec.groups[pool.layout.shape.group].replicated);
    }
  }
}

TEST(HostPoolStacks, DraftFollowersArePerRankAlthoughTheTargetIsReplicated) {
  const auto stacks = all_stacks();
  const auto mla =
      std::find_if(stacks.begin(), stacks.end(), [](const Stack& each) { return each.name == "mla_draft"; });
  const HostPoolPlan plan = planned(stack(mla->form), pages(4));
  const HostPool& target = plan.pools[*plan.find("full")];
  const HostPool& draft = plan.pools[*plan.find("draft")];
  EXPECT_TRUE(target.replicated);
  EXPECT_FALSE(draft.replicated);
  EXPECT_EQ(draft.slots_of, *plan.find("full"));
  EXPECT_EQ(mla->form.classes[draft.layout.shape.cls.value()].shards, 2U);
  EXPECT_EQ(mla->form.classes[target.layout.shape.cls.value()].shards, 1U);
  EXPECT_EQ(plan.layer_end(), 91U);
}

TEST(HostPoolStacks, SparseIndexKeysBeginAtLayer7HaveHolesAndTwoPipelineStages) {
  std::vector<std::uint32_t> layers;
  for (std::uint32_t i = 0; i < 24; ++i) layers.push_back(i);
  const StorageForm form =
      form_of({group(FullKind{}, Need::kRequired, layers, kv()),
               group(FollowerKind{0}, Need::kRequired, {7, 9, 10, 14, 20}, index_keys())});
  const HostPoolPlan first = planned(stack(form, "layer_first", {0, 12}), pages(5));
  const HostPoolPlan second = planned(stack(form, "layer_first", {12, 24}), pages(5));
  const std::uint32_t keys = *first.find("index_k");
  EXPECT_THAT(first.pools[keys].layout.shape.layers, ElementsAre(7, 9, 10));
  EXPECT_THAT(second.pools[keys].layout.shape.layers, ElementsAre(14, 20));
  EXPECT_EQ(first.layer_end(), 12U);
  EXPECT_EQ(second.layer_end(), 24U);
  EXPECT_EQ(first.pools[keys].layer_index(7), 0U);
  EXPECT_EQ(first.pools[keys].layer_index(10), 2U);
  for (const std::uint32_t absent : {0U, 6U, 8U, 11U, 14U, 23U, 1000U})
    EXPECT_EQ(first.pools[keys].layer_index(absent), std::nullopt) << absent;
  EXPECT_EQ(second.pools[keys].layer_index(20), 1U);
  EXPECT_EQ(first.pools[keys].pages(), 5U);
  // A stage without any of the keys' layers has the pool, its slots, and no bytes of it.
  const HostPoolPlan none = planned(stack(form, "layer_first", {0, 7}), pages(5));
  EXPECT_EQ(none.pools[keys].pages(), 5U);
  EXPECT_EQ(required_bytes(none), 5 * none.pools[0].layout.shape.page_bytes());
}

TEST(HostPoolStacks, LayerMapsWhoseUnionHasHoles) {
  const StorageForm form = form_of({group(FullKind{}, Need::kRequired, {2, 9}, kv()),
                                    group(WindowKind{64}, Need::kSparse, {4}, kv(1)),
                                    group(StateKind{}, Need::kSparse, {5, 12}, snapshot())});
  const HostPoolPlan plan = planned(stack(form), pages(2));
  EXPECT_EQ(plan.layer_end(), 13U) << "1 + the largest id, not the five layers there are";
  std::set<std::uint32_t> served;
  for (std::uint32_t layer = 0; layer < plan.layer_end(); ++layer)
    for (const HostPool& pool : plan.pools)
      if (pool.layer_index(layer)) {
        EXPECT_TRUE(served.insert(layer).second);
      }
  EXPECT_THAT(served, ElementsAre(2, 4, 5, 9, 12));
}

TEST(HostPoolStacks, AnchorWithoutBytesInThisStage) {
  const StorageForm form = form_of({group(FullKind{}, Need::kRequired, {0, 1}, kv()),
                                    group(StateKind{}, Need::kSparse, {2, 3}, snapshot())});
  const HostPoolPlan plan = planned(stack(form, "page_first_direct", {2, 4}), pages(6));
  EXPECT_EQ(plan.pools[0].pages(), 6U);
  EXPECT_EQ(required_bytes(plan), 6 * plan.pools[1].layout.shape.page_bytes());
  // A total is split over what has bytes; the anchor's slots follow the resume points.
  const HostPoolPlan total =
      planned(stack(form, "page_first_direct", {2, 4}), {MemoryKind::kShared, TotalCapacity{4 * kMiB}});
  EXPECT_EQ(total.pools[0].pages(), total.pools[1].pages());
}

TEST(HostPoolStacks, NamesInOptionsMustBeThere) {
  const StorageForm form = hybrid_form();
  const Layout layout = named_layout("page_first");
  const auto other = stack_of(form, {.layout = layout, .layouts = {{"state", named_layout("layer_first")}}});
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)[2].layout.name, "layer_first");
  EXPECT_EQ((*other)[0].layout.name, "page_first");
  EXPECT_THAT(stack_of(form, {.layout = layout, .layouts = {{"mamba", layout}}}).error().message,
              HasSubstr("layouts: the model has no pool 'mamba'"));
  EXPECT_THAT(stack_of(form, {.layout = layout, .device_pages = {{"x", 1}}}).error().message,
              HasSubstr("device pages"));
  EXPECT_THAT(stack_of(form, {.layout = layout, .device_pages = {{"full", 1}, {"full", 2}}}).error().message,
              HasSubstr("twice"));
}

// ---- the same plan elsewhere ----

TEST(HostPoolPlanText, DiffersWhereverAByteCouldLieElsewhere) {
  const StorageForm form = hybrid_form();
  const HostPoolPlan plan = planned(stack(form), pages(4));
  EXPECT_EQ(plan, planned(stack(form), pages(4)));
  std::set<std::string> texts = {plan_text(plan)};
  EXPECT_TRUE(texts.insert(plan_text(planned(stack(form), pages(5)))).second);
  EXPECT_TRUE(texts.insert(plan_text(planned(stack(form), pages(4, MemoryKind::kAnonymous)))).second);
  EXPECT_TRUE(texts.insert(plan_text(planned(stack(form, "layer_first"), pages(4)))).second);
  EXPECT_TRUE(texts.insert(plan_text(planned(stack(form, "page_first_direct", {0, 7}), pages(4)))).second);
  auto requests = stack(form);
  std::swap(requests[0], requests[2]);
  EXPECT_TRUE(texts.insert(plan_text(planned(requests, pages(4)))).second);
  requests = stack(form);
  requests[1].shape.tensors[0].heads = 2;
  requests[1].shape.tensors[0].dim /= 2;
  EXPECT_TRUE(texts.insert(plan_text(planned(requests, pages(4)))).second);
  EXPECT_EQ(plan_fingerprint(plan), plan_fingerprint(planned(stack(form), pages(4))));
}

}  // namespace
}  // namespace tiercel
