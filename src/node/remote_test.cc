// The node over a remote tier: what one stored another serves, whole and checked; and what becomes of a store
// that hangs, dies, forgets, fills up or was cleared.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "node/test_remote_bed.h"

namespace tiercel {
namespace {

TEST(NodeRemote, WhatOneMachineStoredAnotherServesByteForByte) {
  RemoteBed bed(hybrid_model());
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(20);
  first.world->store_pages(keys, {{20}});
  bed.settle(first);
  EXPECT_GT(first.node().stats().remote_demoted, 40U);
  auto& second = bed.machine();
  bed.expect_served(second, keys, 20);
  const Stats& stats = second.node().stats();
  EXPECT_EQ(stats.remote_hit_tokens, 20 * 16);
  EXPECT_EQ(stats.disk_hit_tokens, 0U);
  EXPECT_EQ(stats.remote_reading_bytes, 0U);
  EXPECT_EQ(stats.remote_matches, 1U);
  // It is here now: no further question.
  const std::uint64_t batches = second.store->batches;
  bed.expect_served(second, keys, 20);
  EXPECT_EQ(second.store->batches, batches);
}

TEST(NodeRemote, AMatchThatMayNotWaitAsksNobody) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  const std::uint64_t batches = second.store->batches;
  const TicketView view = second.world->view(second.world->match(keys));
  EXPECT_EQ(view.length, 0U);
  EXPECT_EQ(missed_for(view, Reason::kNeverStored), 4U);
  EXPECT_EQ(second.store->batches, batches);
}

// H04: other weights, same sizes.
TEST(NodeRemote, AnotherModelFindsNothing) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  const NamespaceId other = second.world->open("weights-2");
  MatchQuery query = bed.query(second, keys);
  query.ns = other;
  const TicketId ticket = second.node().match(query).value();
  bed.settle(second);
  EXPECT_FALSE(second.world->view(ticket).pending);
  EXPECT_EQ(second.world->view(ticket).length, 0U);
}

// H03: each class as the loser, at the first, a middle and the last page.
TEST(NodeRemote, WhatGoesBetweenLookupAndReadShortensThePrefix) {
  for (const std::uint64_t lost : {0U, 5U, 7U}) {
    RemoteBed bed([] {
      TestModel model;
      model.index_keys = true;
      return model;
    }());
    auto& first = bed.machine();
    const std::vector<Key> keys = first.world->keys(8);
    first.world->store_pages(keys, {});
    bed.settle(first);
    auto& second = bed.machine();
    second.store->nature().latency_max = Duration{0};
    const TicketId ticket = second.node().match(bed.query(second, keys)).value();
    // The answer of the lookup is there, the read is not yet.
    while (second.tier->stats().reads == 0) {
      second.tier->wait(std::chrono::microseconds(10));
      second.node().poll();
      if (second.store->gets > 2) break;
      if (second.tier->stats().lookups == 1 && second.store->under_way() == 0) bed.lose(keys[lost]);
    }
    bed.lose(keys[lost]);
    bed.settle(second);
    const TicketView view = second.world->view(ticket);
    EXPECT_FALSE(view.pending);
    EXPECT_LE(view.length, 8U);
    if (view.length == 8) continue;  // it was quicker
    EXPECT_EQ(view.length, lost);
    const LoadResult result = second.world->load(ticket, view.length);
    EXPECT_EQ(result.length, lost);
    EXPECT_EQ(second.world->wrong_bytes(keys, lost), "");
    EXPECT_TRUE(second.world->untouched_from(lost, 8));
  }
}

TEST(NodeRemote, ADamagedRecordIsAMissAndGoesFromTheStore) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(3);
  first.world->store_pages(keys, {});
  bed.settle(first);
  for (auto& [name, bytes] : bed.objects)
    if (name.find(to_hex(keys[1])) != std::string::npos) bytes.back() ^= std::byte{4};
  auto& second = bed.machine();
  bed.expect_served(second, keys, 1);
  EXPECT_EQ(second.node().stats().damaged_records, 1U);
  bed.settle(second);
  for (const auto& [name, bytes] : bed.objects) EXPECT_EQ(name.find(to_hex(keys[1])), std::string::npos);
}

TEST(NodeRemote, AHungStoreIsAMissByTheDeadlineAndItsReason) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  second.store->hang(true);
  MatchQuery query = bed.query(second, keys);
  query.deadline = std::chrono::milliseconds(300);
  const Time begun = bed.clock.now();
  const TicketId ticket = second.node().match(query).value();
  while (second.world->view(ticket).pending && bed.clock.now() < begun + std::chrono::seconds(3)) {
    second.node().poll();
    second.tier->wait(std::chrono::milliseconds(1));
  }
  EXPECT_LE(bed.clock.now() - begun, std::chrono::milliseconds(350));
  EXPECT_EQ(missed_for(second.world->view(ticket), Reason::kTooLate), 4U);
  second.node().release(ticket);
  // When it goes on, so do we.
  second.store->hang(false);
  bed.settle(second, std::chrono::seconds(5));
  bed.expect_served(second, keys, 4);
}

// The pages were found, and of the snapshot that makes them a hit the store said nothing: it is not missing.
TEST(NodeRemote, WhatHangsAfterItsFirstAnswersIsTooLateNotMissing) {
  RemoteBed bed(hybrid_model());
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {{4}});
  bed.settle(first);
  auto& second = bed.machine();
  MatchQuery query = bed.query(second, keys);
  query.deadline = std::chrono::milliseconds(300);
  const std::uint64_t batches = second.tier->stats().batches;
  const TicketId ticket = second.node().match(query).value();
  while (second.tier->stats().batches < batches + 2) {
    second.node().poll();
    second.tier->wait(std::chrono::microseconds(10));
  }
  second.store->hang(true);
  bed.settle(second, std::chrono::seconds(1));
  ASSERT_FALSE(second.world->view(ticket).pending);
  EXPECT_EQ(missed_for(second.world->view(ticket), Reason::kTooLate), 4U);
  EXPECT_EQ(missed_for(second.world->view(ticket), Reason::kStateMissing), 0U);
}

TEST(NodeRemote, ADeadStoreIsTierDownAtOnceAndHealsByItself) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  auto& second = bed.machine();
  second.store->kill();
  bed.settle(second);
  const TicketId ticket = bed.promoted(second, keys);
  EXPECT_EQ(missed_for(second.world->view(ticket), Reason::kTierDown), 4U);
  const Time begun = bed.clock.now();
  const TicketId again = bed.promoted(second, keys);
  EXPECT_EQ(missed_for(second.world->view(again), Reason::kTierDown), 4U);
  EXPECT_LE(bed.clock.now() - begun, std::chrono::milliseconds(1));
  second.node().release(ticket);
  second.node().release(again);
  second.store->revive();
  bed.settle(second, std::chrono::seconds(3));
  bed.expect_served(second, keys, 4);
}

TEST(NodeRemote, WhatWasClearedOrRemovedIsNotServedAgain) {
  for (const int how : {0, 1, 2}) {
    RemoteBed bed;
    auto& first = bed.machine();
    const std::vector<Key> keys = first.world->keys(4);
    first.world->store_pages(keys, {});
    bed.settle(first);
    Status status;
    if (how == 0) status = first.node().clear(first.world->ns());
    if (how == 1) status = first.node().remove(first.world->ns(), std::span(keys.data(), 1));
    if (how == 2) status = first.node().clear(first.world->form_id());
    EXPECT_TRUE(status.ok()) << status.to_string();
    bed.settle(first);
    const TicketId ticket = bed.promoted(first, keys);
    EXPECT_EQ(first.world->view(ticket).length, 0U) << how;
    auto& second = bed.machine();
    EXPECT_EQ(second.world->view(bed.promoted(second, keys)).length, 0U) << how;
    // What is stored from now on is.
    first.node().release(ticket);
    first.world->store_pages(keys, {});
    bed.settle(first);
    bed.clock.advance(std::chrono::seconds(2));
    bed.expect_served(second, keys, 4);
  }
}

TEST(NodeRemote, AClearThatIsNotConfirmedSaysSo) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  first.store->hang(true);
  EXPECT_EQ(first.node().clear(first.world->ns()).code, Code::kUnavailable);
  EXPECT_EQ(first.world->view(first.world->match(keys)).length, 0U);
}

TEST(NodeRemote, AFullStoreRefusesAndTheNodeGoesOn) {
  RemoteBed bed;
  bed.nature.objects_bytes_max = 2000;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(20);
  first.world->store_pages(keys, {});
  bed.settle(first);
  EXPECT_EQ(first.world->view(first.world->match(keys)).length, 20U);
  EXPECT_EQ(first.node().stats().remote_writing_bytes, 0U);
  for (const AuditResidence& set : first.node().audit().residences) EXPECT_EQ(set.copies, 0U);
}

// H08: whatever became of a prefetch, budget and slots return.
TEST(NodeRemote, AThousandPrefetchesThatEndInEveryWayLeaveNothingBehind) {
  RemoteBed bed;
  bed.options.adjust = [](NodeOptions& options) { options.disk.prefetch_threshold_tokens = 1; };
  auto& first = bed.machine();
  std::vector<std::vector<Key>> chains;
  for (std::uint32_t branch = 0; branch < 16; ++branch) {
    chains.push_back(first.world->keys(4, branch));
    first.world->store_pages(chains.back(), {});
  }
  bed.settle(first);
  bed.options.pages_max = 40;
  auto& second = bed.machine();
  second.store->nature().slow = 0.05;
  second.store->nature().item_failed = 0.05;
  Prng prng(7);
  for (int i = 0; i < 1000; ++i) {
    PrefetchRequest request;
    request.session = second.world->session();
    request.ns = second.world->ns();
    request.keys = chains[prng.below(chains.size())];
    request.policy = static_cast<PrefetchPolicy>(prng.below(3));
    request.deadline = std::chrono::milliseconds(prng.below(40));
    const OperationId id = second.node().prefetch(request).value();
    for (std::uint64_t turn = prng.below(4); turn != 0; --turn) {
      second.node().poll();
      second.tier->wait(std::chrono::milliseconds(1));
    }
    if (prng.chance(0.3)) second.node().cancel(id);
    if (prng.chance(0.02)) second.store->hang(true);
    if (prng.chance(0.1)) second.store->hang(false);
    if (i % 50 == 0) second.node().drain_completions();
  }
  second.store->calm();
  bed.settle(second, std::chrono::seconds(60));
  EXPECT_EQ(second.node().stats().prefetch_bytes, 0U);
  EXPECT_EQ(second.node().stats().remote_reading_bytes, 0U);
  EXPECT_EQ(second.tier->stats().exchange_used_bytes, 0U);
  for (const AuditResidence& set : second.node().audit().residences) {
    EXPECT_EQ(set.copies, 0U);
    EXPECT_EQ(set.state, ResidenceState::kResident);
  }
  bed.expect_served(second, chains[3], 4);
}

// A link on which all of it takes forty times the batch deadline, and a hundred times what one window of a
// fast one would bring: each batch comes in time, and the prefetch ends by its own limit with what came.
TEST(NodeRemote, AHealthySlowLinkDeliversAPrefixAndNotNothing) {
  RemoteBed bed;
  bed.tier_options.runs.pages_max = 1;
  bed.nature.exchange_bytes = 1 << 20;
  bed.options.adjust = [](NodeOptions& options) { options.disk.prefetch_threshold_tokens = 1; };
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(800);
  first.world->store_pages(keys, {});
  bed.settle(first, std::chrono::seconds(2));
  std::uint64_t bytes = 0;
  for (const auto& [name, object] : bed.objects) bytes += object.size();
  bed.tier_options.batch_bytes_max = bytes / 4;
  auto& second = bed.machine();
  second.store->nature().bytes_per_second = bytes / 40;
  PrefetchRequest request;
  request.session = second.world->session();
  request.ns = second.world->ns();
  request.keys = keys;
  request.policy = PrefetchPolicy::kWaitComplete;
  request.deadline = std::chrono::seconds(20);
  const OperationId id = second.node().prefetch(request).value();
  std::optional<PrefetchResult> result;
  const Time begun = bed.clock.now();
  while (!result && bed.clock.now() < begun + std::chrono::seconds(60)) {
    second.node().poll();
    for (Completion& completion : second.node().drain_completions())
      if (completion.operation == id) result = completion.prefetch;
    second.tier->wait(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(result);
  EXPECT_EQ(result->status.code, Code::kDeadlineExceeded);
  EXPECT_GT(result->length, 100U);  // about half of them in twenty of forty seconds, less what came late
  EXPECT_LT(result->length, 500U);
  EXPECT_FALSE(second.tier->down());
}

TEST(NodeRemote, WriteBackStoresWhatLeavesAndNothingBefore) {
  RemoteBed bed;
  bed.options.pages_max = 4;
  bed.options.adjust = [](NodeOptions& options) { options.remote.write_policy = WritePolicy::kWriteBack; };
  auto& first = bed.machine();
  const std::vector<Key> one = first.world->keys(4, 1), two = first.world->keys(4, 2);
  first.world->store_pages(one, {});
  bed.settle(first);
  EXPECT_EQ(first.node().stats().remote_demoted, 0U);
  first.world->store_pages(two, {});
  bed.settle(first);
  EXPECT_EQ(first.node().stats().remote_demoted, 4U);
  bed.expect_served(first, one, 4);
}

TEST(NodeRemote, SelectiveStoresWhatTwoRequestsWanted) {
  RemoteBed bed;
  bed.options.adjust = [](NodeOptions& options) {
    options.remote.write_policy = WritePolicy::kWriteThroughSelective;
  };
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  EXPECT_EQ(first.node().stats().remote_demoted, 0U);
  for (std::uint64_t request = 1; request <= 2; ++request) {
    ASSERT_TRUE(first.node().request_begin(first.world->session(), RequestId(request)).ok());
    first.node().release(first.world->match(keys, RequestId(request)));
  }
  bed.settle(first);
  EXPECT_EQ(first.node().stats().remote_demoted, 4U);
}

// The disk is nearer: what it has is not asked for, and what came from afar goes there.
TEST(NodeRemote, ADiskBesideIt) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(6);
  first.world->store_pages(keys, {});
  bed.settle(first);
  TestBlockDevice drive(32 << 20, bed.clock);
  std::unique_ptr<DiskLog> log = DiskLog::open(small_log(), drive, bed.clock, Digest{std::byte{3}}).value();
  auto& second = bed.machine(log.get());
  bed.expect_served(second, keys, 6);
  bed.settle(second);
  EXPECT_EQ(second.node().stats().demoted, 6U);
  const std::uint64_t asked = second.store->names_asked;
  second.world.reset();
  second.tier.reset();
  log.reset();
  log = DiskLog::open(small_log(), drive, bed.clock, Digest{std::byte{3}}).value();
  auto& third = bed.machine(log.get());
  bed.expect_served(third, keys, 6);
  EXPECT_EQ(third.node().stats().remote_hit_tokens, 0U);
  EXPECT_EQ(third.node().stats().disk_hit_tokens, 6 * 16);
  EXPECT_EQ(third.store->names_asked, 0U);
  EXPECT_GT(asked, 0U);
}

// What the disk has of a page was removed with a page above it; what the store has came later.
TEST(NodeRemote, ThePageOfTheStoreIsNotReadFromTheDiskWhereItWasRemoved) {
  RemoteBed bed;
  TestBlockDevice drive(32 << 20, bed.clock);
  std::unique_ptr<DiskLog> log = DiskLog::open(small_log(), drive, bed.clock, Digest{std::byte{3}}).value();
  auto& first = bed.machine(log.get());
  const std::vector<Key> keys = first.world->keys(4);
  first.world->store_pages(keys, {});
  bed.settle(first);
  EXPECT_EQ(first.node().stats().demoted, 4U);
  ASSERT_TRUE(first.node().remove(first.world->ns(), std::span(keys.data(), 1)).ok());
  auto& second = bed.machine();
  second.world->store_pages(keys, {});
  bed.settle(second);
  bed.clock.advance(std::chrono::seconds(2));
  bed.expect_served(first, keys, 4);
  EXPECT_EQ(first.node().stats().remote_hit_tokens, 4 * 16U);
  EXPECT_EQ(first.node().stats().disk_hit_tokens, 0U);
}

TEST(NodeRemote, ClosingStoresWhatIsOnItsWayAndEverythingElseMisses) {
  RemoteBed bed;
  auto& first = bed.machine();
  const std::vector<Key> keys = first.world->keys(5);
  first.world->store_pages(keys, {});
  first.node().close_remote(std::chrono::seconds(2));
  EXPECT_EQ(first.node().stats().remote_demoted, 5U);
  EXPECT_EQ(first.world->view(first.world->match(keys)).length, 5U);
  auto& second = bed.machine();
  bed.expect_served(second, keys, 5);
}

}  // namespace
}  // namespace tiercel
