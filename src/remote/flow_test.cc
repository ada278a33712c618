// How much moves at a time.

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "remote/test_tier_world.h"

namespace tiercel {
namespace {

// A page is an object.
struct PageBed {
  PageBed() { options.runs.pages_max = 1; }
  TwinObjects objects;
  ManualClock clock;
  RemoteTierOptions options;
};

TEST(Flow, ManyObjectsOfManyShardsGoInRequestsThatAConnectorTakes) {
  PageBed bed;
  TwinNature nature;
  nature.exchange_bytes = 64U << 20;
  bed.options.batch_bytes_max = 1ULL << 30;  // no other bound
  TierNode node(bed.objects, bed.clock, {.tp = 8}, nature, bed.options);
  node.settle();
  constexpr std::uint64_t kPages = 800;  // 6,400 objects
  const auto chain = tier_chain(kPages, 1);
  node.append_pages(chain, 0, kPages);
  node.settle();
  EXPECT_EQ(node.written, kPages);
  for (const Key& key : chain) EXPECT_TRUE(node.read(key, ClassId(0)));
  node.settle();
  node.expect_delivered(kPages);
}

TEST(Flow, ObjectsThatWereCopiedMeanwhileLeaveInOneBatch) {
  PageBed bed;
  TierNode node(bed.objects, bed.clock, {.tp = 2}, {}, bed.options);
  node.settle();
  const std::uint64_t before = node.store.batches;
  node.append_pages(tier_chain(200, 1), 0, 200);
  node.settle();
  EXPECT_EQ(node.written, 200U);
  EXPECT_EQ(node.tier->stats().objects_written, 200U);
  EXPECT_LT(node.store.batches - before, 20U);
}

TEST(Flow, OnePollBeginsABoundedNumberOfCopies) {
  PageBed bed;
  TwinNature nature;
  nature.exchange_bytes = 64U << 20;
  TierNode node(bed.objects, bed.clock, {}, nature, bed.options);
  node.settle();
  node.append_pages(tier_chain(3000, 1), 0, 3000);
  node.tier->poll();
  EXPECT_EQ(node.executor.waiting(), 1024U);
  node.settle();
  EXPECT_EQ(node.written, 3000U);
}

TEST(Flow, EachObjectOfABatchHasItsOwnEnd) {
  PageBed bed;
  TierNode node(bed.objects, bed.clock, {.tp = 2}, {}, bed.options);
  node.settle();
  node.store.nature().item_failed = 0.3;
  const auto chain = tier_chain(200, 1);
  node.append_pages(chain, 0, 200);
  node.settle();
  EXPECT_GT(node.lost, 50U);
  EXPECT_EQ(node.written + node.lost, 200U);
  std::uint64_t whole = 0;
  for (const Key& key : chain)
    whole += std::count_if(bed.objects.begin(), bed.objects.end(), [&](const auto& object) {
               return object.first.find(to_hex(key)) != std::string::npos;
             }) == 2;
  EXPECT_EQ(node.written, whole);
}

// The first batch is all that waits, and late. Those after it are halved until they come in time.
TEST(Flow, BatchesOfWritesAreAsLargeAsTheStoreIsFast) {
  PageBed bed;
  TierNode probe(bed.objects, bed.clock, {}, {}, bed.options);
  probe.settle();
  probe.append_pages(tier_chain(1, 1), 0, 1);
  probe.settle();
  TwinNature nature;
  nature.bytes_per_second = 10 * probe.tier->stats().object_bytes_written;
  TierNode node(bed.objects, bed.clock, {}, nature, bed.options, 2);
  node.settle();
  node.append_pages(tier_chain(40, 2), 0, 40);
  node.settle();
  EXPECT_GT(node.lost, 0U);
  for (std::uint64_t round = 0; round < 3; ++round) {
    node.append_pages(tier_chain(10, 3 + round), 0, 10);
    node.settle();
  }
  const std::uint64_t lost = node.lost, written = node.written;
  node.append_pages(tier_chain(40, 9), 0, 40);
  node.settle();
  EXPECT_EQ(node.lost, lost);
  EXPECT_EQ(node.written, written + 40);
}

}  // namespace
}  // namespace tiercel
