// Snapshots, windows and drafts that come for a page that only the disk has: found with it from then on, by
// the next node too; gone with it, whichever way it goes.

#include <gtest/gtest.h>

#include "node/test_disk_bed.h"

namespace tiercel {
namespace {

TestModel with_state() {
  TestModel model;
  model.state = true;
  return model;
}

// Pages on the disk, and a host tier that knows nothing of them.
class Below : public ::testing::Test {
 protected:
  explicit Below(const TestModel& model = with_state()) : bed(model) {}
  void put_below(std::uint64_t pages) {
    bed.open();
    keys = bed.world->keys(pages);
    bed.world->store_pages(keys, {});
    bed.make_durable();
    bed.reopen();
  }
  // What became of it, once that is known. Nothing: it waits.
  std::optional<StoreOutcome> store_snapshot(std::uint64_t length, bool tell_lower = false) {
    StoreRequest request = bed.world->store_request(keys, length - 1, state());
    request.tell_lower = tell_lower;
    operation = node().store(request).value().operation;
    if (operation == OperationId{}) return node().store(request).value().outcomes.front();
    return seen();
  }
  std::optional<StoreOutcome> seen() {
    bed.settle();
    std::optional<StoreOutcome> outcome;
    for (const Completion& completion : node().drain_completions()) {
      if (completion.operation != operation) continue;
      heard.push_back(completion.kind);
      if (completion.kind == CompletionKind::kVisible) outcome = completion.store.front();
    }
    return outcome;
  }
  void later() {  // every deadline has passed
    bed.world->clock().advance(NodeOptions{}.reservation_ttl + std::chrono::seconds(1));
    bed.settle();
  }
  std::uint64_t promoted_length() {
    const TicketId ticket = bed.promoted(keys);
    const std::uint64_t length = bed.world->view(ticket).length;
    node().release(ticket);
    return length;
  }
  std::size_t class_sets() { return node().audit().residences.size(); }
  bool sound() { return !node().audit().inconsistency; }
  ClassId state() {
    for (const ClassForm& cls : bed.world->form().classes)
      if (cls.is_state()) return cls.id;
    return {};
  }
  bool snapshot_exists(std::uint64_t length) {
    return node().exists(bed.world->ns(), state(), keys[length - 1]);
  }
  Node& node() { return bed.world->node(); }

  DiskBed bed;
  std::vector<Key> keys;
  OperationId operation;
  std::vector<CompletionKind> heard;  // of stores
};

TEST_F(Below, ASnapshotIsFoundWithItsPageAtOnceAndByTheNextNode) {
  put_below(5);
  EXPECT_EQ(promoted_length(), 0);
  bed.reopen();
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  EXPECT_TRUE(snapshot_exists(4));
  EXPECT_EQ(missed_for(bed.world->view(bed.world->match(keys)), Reason::kTooLate), 4);
  EXPECT_TRUE(sound());
  const TicketId ticket = bed.promoted(keys);
  ASSERT_EQ(bed.world->view(ticket).length, 4);
  EXPECT_EQ(bed.world->load(ticket, 4).length, 4);
  EXPECT_EQ(bed.world->wrong_bytes(keys, 4), "");
  EXPECT_EQ(bed.log->stats().reads, 4) << "the snapshot was there";
  EXPECT_TRUE(sound());
  bed.make_durable();
  bed.reopen();
  EXPECT_EQ(promoted_length(), 4);
}

TEST_F(Below, ItGoesDownAlthoughItsPageNeverComesUp) {
  put_below(4);
  EXPECT_EQ(store_snapshot(4, true), StoreOutcome::kCommitted);
  bed.make_durable();
  seen();
  EXPECT_EQ(heard, (std::vector{CompletionKind::kSourceFree, CompletionKind::kVisible,
                                CompletionKind::kAccepted, CompletionKind::kDurable}));
  bed.reopen();
  EXPECT_EQ(promoted_length(), 4);
}

TEST_F(Below, ItHasNoDeadlineAndIsStoredOnce) {
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.write_policy = WritePolicy::kWriteThroughSelective;
  };
  bed.open();
  keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  node().write_down(std::chrono::seconds(10));
  bed.reopen();
  EXPECT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  later();
  EXPECT_EQ(bed.log->stats().class_sets, 4) << "the policy writes nothing at the first touch";
  EXPECT_EQ(store_snapshot(4), StoreOutcome::kAlreadyPresent);
  EXPECT_EQ(node().audit().stats.reserved_bytes, 0);
  EXPECT_EQ(promoted_length(), 4);
  EXPECT_EQ(node().stats().expired_reservations, 0);
  bed.reopen();
  EXPECT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  EXPECT_EQ(node().write_down(std::chrono::seconds(10)).class_sets, 1);
  bed.reopen();
  EXPECT_EQ(promoted_length(), 4);
}

TEST_F(Below, WithoutAPageInAnyTierItWaitsAndExpires) {
  put_below(4);
  const std::vector<Key> there = std::exchange(keys, bed.world->keys(4, 1));
  EXPECT_EQ(store_snapshot(4), std::nullopt);
  EXPECT_FALSE(snapshot_exists(4));
  later();
  EXPECT_EQ(seen(), StoreOutcome::kExpired);
  EXPECT_EQ(node().stats().expired_reservations, 1);
  EXPECT_EQ(class_sets(), 0);
}

TEST_F(Below, ItLeavesWithTheRegionThatItsPageWasIn) {
  put_below(4);
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  ASSERT_EQ(class_sets(), 1);
  std::uint64_t stored = 0;
  for (std::uint32_t branch = 1; branch < 400 && bed.log->stats().regions_evicted == 0; ++branch) {
    const std::vector<Key> others = bed.world->keys(32, branch);
    bed.world->store_pages(others, {});
    bed.settle();
    stored += others.size();
  }
  ASSERT_NE(bed.log->stats().regions_evicted, 0) << stored << " pages did not fill it";
  bed.settle();
  EXPECT_FALSE(node().exists(bed.world->ns(), ClassId(0), keys[3]));
  EXPECT_FALSE(snapshot_exists(4));
  for (const AuditResidence& each : node().audit().residences) EXPECT_FALSE(each.page_below);
  EXPECT_TRUE(sound());
}

TEST_F(Below, ItLeavesWithDamageOfItsPage) {
  put_below(4);
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  const auto found = bed.log->find({DiskSpaceId(1), keys[3], ClassId(0)}, false);
  ASSERT_TRUE(found);
  bed.drive.damage(found->offset + header_bytes(bed.world->form().classes[0]));
  EXPECT_EQ(promoted_length(), 0);
  for (const AuditResidence& each : node().audit().residences) EXPECT_FALSE(each.page_below);
  EXPECT_TRUE(sound());
}

// Of its chain the host tier knows two pages; the removal is of one that only the disk knows.
TEST_F(Below, AnyRemovalAboveItTakesIt) {
  put_below(8);
  ASSERT_EQ(store_snapshot(8), StoreOutcome::kCommitted);
  ASSERT_TRUE(node().remove(bed.world->ns(), std::span(&keys[2], 1)).ok());
  EXPECT_FALSE(snapshot_exists(8));
  EXPECT_EQ(class_sets(), 0);
  EXPECT_EQ(node().audit().index_entries, 0);
  // The same pages again: what was stored before the removal is not of them.
  bed.world->store_pages(keys, {});
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 0);
}

TEST_F(Below, ARemovalWhileItIsOnItsWayTakesIt) {
  put_below(4);
  StoreRequest request = bed.world->store_request(keys, 3, state());
  const ReserveAnswer reserved = node().reserve(request).value();
  ASSERT_TRUE(node().remove(bed.world->ns(), std::span(&keys[3], 1)).ok());
  operation = node().commit(reserved.reservation).value();
  EXPECT_EQ(seen(), StoreOutcome::kStale);
  EXPECT_EQ(class_sets(), 0);
}

TEST_F(Below, ClearsAndEpochsTakeIt) {
  put_below(4);
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  ASSERT_TRUE(node().clear(bed.world->ns()).ok());
  EXPECT_FALSE(snapshot_exists(4));
  bed.settle();
  EXPECT_EQ(class_sets(), 0);
  EXPECT_TRUE(sound());
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  ASSERT_TRUE(node().set_weights_epoch(bed.world->form_id(), 2).ok());
  EXPECT_FALSE(snapshot_exists(4));
  bed.settle();
  EXPECT_EQ(class_sets(), 0);
}

TEST_F(Below, ItMakesRoomFirstAndIsOnTheDiskThen) {
  bed.options.adjust = [](NodeOptions& options) { options.record_bytes_max = 300; };
  put_below(4);
  ASSERT_EQ(store_snapshot(4), StoreOutcome::kCommitted);
  bed.make_durable();
  const std::vector<Key> others = bed.world->keys(12, 1);
  bed.world->store_pages(others, {});
  for (const AuditResidence& each : node().audit().residences)
    EXPECT_FALSE(each.page_below) << each.payload_bytes << " of " << node().audit().stats.payload_bytes
                                  << " stored " << node().stats().pages_stored << " refused "
                                  << node().stats().stores_refused << " evicted "
                                  << node().stats().pages_evicted;
  EXPECT_TRUE(snapshot_exists(4));
  bed.make_durable();
  EXPECT_EQ(promoted_length(), 4);
}

// Its page is neither here nor there at that moment.
TEST_F(Below, ItMayComeWhileItsPageIsBeingWrittenDown) {
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.write_policy = WritePolicy::kWriteBack;
    options.pages_max = 1;
  };
  bed.open();
  keys = bed.world->keys(1);
  const std::vector<Key> other = bed.world->keys(1, 1);
  bed.world->store(keys, 0, ClassId(0));
  bed.drive.held = [](const BlockRequest&) { return true; };
  bed.world->store(other, 0, ClassId(0));  // the page must go
  ASSERT_EQ(bed.world->view(bed.world->match(keys)).length, 0);
  ASSERT_EQ(node().stats().pages_evicted, 1);
  bed.options.adjust = {};
  node().drain_completions();
  EXPECT_EQ(store_snapshot(1), std::nullopt);
  bed.hold_no_more();
  bed.make_durable();
  EXPECT_EQ(seen(), StoreOutcome::kCommitted);
  EXPECT_TRUE(snapshot_exists(1));
}

TEST_F(Below, WhatIsLinkedFurtherUpLaterStillGoesWithAnyRemoval) {
  put_below(8);
  ASSERT_EQ(store_snapshot(8), StoreOutcome::kCommitted);
  // Links the top of what is known to one more page, and to no first one.
  bed.world->store(keys, 6, ClassId(0));
  ASSERT_TRUE(node().remove(bed.world->ns(), std::span(&keys[2], 1)).ok());
  EXPECT_FALSE(snapshot_exists(8));
  EXPECT_EQ(class_sets(), 0);
}

class BelowHybrid : public Below {
 protected:
  BelowHybrid() : Below(hybrid_model()) {}
};

TEST_F(BelowHybrid, WindowsAndDraftsComeTheSameWay) {
  bed.open();
  keys = bed.world->keys(6);
  bed.world->store_pages(keys, {{}, false, {}});
  bed.make_durable();
  bed.reopen();
  EXPECT_EQ(promoted_length(), 0);
  bed.reopen();
  ASSERT_EQ(store_snapshot(6), StoreOutcome::kCommitted);
  EXPECT_EQ(promoted_length(), 0) << "its window is still missing";
  ASSERT_EQ(store_snapshot(6), StoreOutcome::kAlreadyPresent);
  for (const ClassForm& cls : bed.world->form().classes)
    if (cls.is_window())
      for (std::uint64_t page = 3; page < 6; ++page) bed.world->store(keys, page, cls.id);
  const TicketId ticket = bed.promoted(keys);
  ASSERT_EQ(bed.world->view(ticket).length, 6);
  EXPECT_EQ(bed.world->load(ticket, 6).length, 6);
  EXPECT_EQ(bed.world->wrong_bytes(keys, 6), "");
  EXPECT_TRUE(sound());
}

}  // namespace
}  // namespace tiercel
