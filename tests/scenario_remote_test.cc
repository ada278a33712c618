// Faults that users met elsewhere, through the remote tier: H02, H03, H04, H08, H14. (H01 is in
// connectors_owned.py, H05 in remote_test, H13 in the contract of stores.)

#include <gtest/gtest.h>

#include "node/test_remote_bed.h"

namespace tiercel {
namespace {

TestModel with_index_keys() {
  TestModel model;
  model.index_keys = true;
  return model;
}

// A model keeps a second record for each page: it comes from the lowest tier, too.
TEST(H02Remote, EveryRecordOfAPageComesBack) {
  RemoteBed bed(with_index_keys());
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  bed.expect_served(second, keys, 4);
}

// What an older configuration wrote without the second record is another form, and a miss.
TEST(H02Remote, AnEntryWithoutTheSecondRecordIsAMiss) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  bed.options.spec = test_spec(with_index_keys());
  auto& second = bed.machine();
  const TicketId ticket = bed.promoted(second, second.world->keys(4));
  EXPECT_EQ(second.world->view(ticket).length, 0U);
  EXPECT_EQ(second.tier->stats().reads, 0U);
}

// Each class as the loser, at page 0, 5 and 7, between the lookup's answer and the read. (Runs are of one
// page here, so that one page's objects can go alone.)
TEST(H03Remote, LoadReturnsThePrefixForWhichEveryRecordWasReallyRead) {
  for (const std::uint64_t lost : {0U, 5U, 7U}) {
    RemoteBed bed(hybrid_model());
    bed.tier_options.runs.pages_max = 1;
    auto& first = bed.machine();
    const std::vector<Key> keys = first.world->keys(8);
    first.world->store_pages(keys, {{1, 2, 3, 4, 5, 6, 7, 8}});
    bed.settle(first);
    auto& second = bed.machine();
    // Known to be there, and gone when it is read.
    std::vector<Presence> have(keys.size());
    const RemoteSpaceId space(1);
    ASSERT_TRUE(second.tier->look_up({space, 0, keys, have}));
    bed.settle(second);
    std::vector<Presence> there(keys.size());
    second.tier->find_chain(space, keys, there);
    EXPECT_NE(there[lost], 0U);
    bed.lose(keys[lost]);
    const TicketId ticket = bed.promoted(second, keys);
    const TicketView view = second.world->view(ticket);
    ASSERT_EQ(view.length, lost);
    const LoadResult result = second.world->load(ticket, view.length);
    EXPECT_EQ(result.length, lost);
    EXPECT_EQ(second.world->wrong_bytes(keys, lost), "");
    EXPECT_TRUE(second.world->untouched_from(lost, 8));
    second.node().release(ticket);
    bed.settle(second);
    for (const AuditResidence& set : second.node().audit().residences) {
      EXPECT_EQ(set.copies, 0U);
      EXPECT_EQ(set.leases, 0U);
    }
  }
}

// Other weights or another type under the same name, bytes of the same size: nothing is served, and what was
// there stays.
TEST(H04Remote, SameSizesAreNotTheSame) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  for (const char* weights : {"weights-2", "weights-1-fp8"}) {
    MatchQuery query = bed.query(second, keys);
    query.ns = second.world->open(weights);
    const TicketId ticket = second.node().match(query).value();
    bed.settle(second);
    EXPECT_EQ(second.world->view(ticket).length, 0U) << weights;
    second.node().release(ticket);
  }
  bed.expect_served(second, keys, 4);
}

// A thousand prefetches that end in every way, then one that works at full size.
TEST(H08Remote, AThousandPrefetchesLeaveTheBudgetWhole) {
  RemoteBed bed;
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.prefetch_threshold_tokens = 1;
    options.disk.prefetch_share = 0.5;
  };
  auto& first = bed.machine();
  std::vector<std::vector<Key>> chains;
  for (std::uint32_t branch = 0; branch < 16; ++branch) {
    chains.push_back(first.world->keys(4, branch));
    first.world->store_pages(chains.back(), {});
  }
  bed.settle(first);
  bed.options.pages_max = 40;
  auto& second = bed.machine();
  const std::uint64_t free = second.node().stats().arena_bytes;
  Prng prng(11);
  for (int i = 0; i < 1000; ++i) {
    second.store->nature().item_failed = prng.chance(0.2) ? 0.5 : 0;
    PrefetchRequest request;
    request.session = second.world->session();
    request.ns = second.world->ns();
    request.keys = chains[prng.below(chains.size())];
    request.policy = static_cast<PrefetchPolicy>(prng.below(3));
    const OperationId id = second.node().prefetch(request).value();
    switch (prng.below(4)) {
      case 0:  // before it starts
        second.node().cancel(id);
        break;
      case 1:  // while it reads
        second.node().poll();
        second.node().cancel(id);
        break;
      case 2:  // time-out
        second.store->hang(true);
        bed.clock.advance(std::chrono::seconds(2));
        second.node().poll();
        second.store->hang(false);
        break;
      default:  // finishes, and is never used
        bed.settle(second, std::chrono::milliseconds(20));
    }
    second.node().drain_completions();
  }
  second.store->calm();
  bed.settle(second, std::chrono::seconds(30));
  EXPECT_EQ(second.node().stats().prefetch_bytes, 0U);
  EXPECT_EQ(second.node().stats().arena_bytes, free);
  EXPECT_EQ(second.tier->stats().exchange_used_bytes, 0U);
  bed.expect_served(second, chains[5], 4);
}

// Policies by situations: each ends, by its limit, with what is really there.
TEST(H14Remote, EveryPrefetchEndsByItsLimit) {
  enum Situation {
    kReadError,
    kNothingStored,
    kBelowThreshold,
    kSleepsForEver,
    kPolledBeforeItBegan,
    kSituations
  };
  for (int policy = 0; policy < 3; ++policy)
    for (int situation = 0; situation < kSituations; ++situation) {
      SCOPED_TRACE(std::to_string(policy) + " " + std::to_string(situation));
      RemoteBed bed;
      bed.tier_options.runs.pages_max = 1;
      bed.options.adjust = [&](NodeOptions& options) {
        options.disk.prefetch_threshold_tokens = situation == kBelowThreshold ? 1024 : 1;
        options.disk.prefetch_base = std::chrono::milliseconds(200);
        options.disk.prefetch_per_1024_tokens = Duration(0);
      };
      auto& first = bed.machine();
      const std::vector<Key> keys = first.world->keys(8);
      if (situation != kNothingStored) first.world->store_pages(keys, {});
      bed.settle(first);
      for (auto& [name, bytes] : bed.objects)
        if (situation == kReadError && name.find(to_hex(keys[3])) != std::string::npos)
          bytes.back() ^= std::byte{1};
      auto& second = bed.machine();
      if (situation == kSleepsForEver) second.store->hang(true);
      PrefetchRequest request;
      request.session = second.world->session();
      request.ns = second.world->ns();
      request.keys = keys;
      request.policy = static_cast<PrefetchPolicy>(policy);
      request.deadline = std::chrono::seconds(3);
      const Time begun = bed.clock.now();
      const OperationId id = second.node().prefetch(request).value();
      if (situation == kPolledBeforeItBegan) {
        EXPECT_TRUE(second.node().drain_completions().empty());
      }
      std::optional<PrefetchResult> result;
      while (!result && bed.clock.now() < begun + std::chrono::seconds(30)) {
        second.node().poll();
        for (Completion& completion : second.node().drain_completions())
          if (completion.operation == id) result = completion.prefetch;
        second.tier->wait(std::chrono::milliseconds(1));
      }
      ASSERT_TRUE(result);
      const bool timed = static_cast<PrefetchPolicy>(policy) == PrefetchPolicy::kTimeout;
      const Duration limit = timed ? std::chrono::milliseconds(200) : std::chrono::seconds(3);
      EXPECT_LE(bed.clock.now() - begun, limit + std::chrono::milliseconds(20));
      const std::uint64_t there = situation == kReadError                                       ? 3
                                  : situation == kNothingStored || situation == kBelowThreshold ? 0
                                  : situation == kSleepsForEver                                 ? 0
                                                                                                : 8;
      EXPECT_EQ(result->length, there);
      EXPECT_EQ(second.node().stats().prefetch_bytes, 0U);
    }
}

}  // namespace
}  // namespace tiercel
