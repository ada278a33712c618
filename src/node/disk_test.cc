// The node over a disk: what goes down comes back whole, and only as what it was; what does not come back in
// time, or not at all, is missed for its own reason.

#include <gtest/gtest.h>

#include "node/test_disk_bed.h"

namespace tiercel {
namespace {

TEST(NodeDisk, WhatWasDurableIsFoundByTheNextNodeByteForByte) {
  DiskBed bed(hybrid_model());
  bed.open();
  const std::vector<Key> keys = bed.world->keys(6);
  bed.world->store_pages(keys, {{3, 6}, true, {}});
  bed.make_durable();
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 0);
  const TicketId ticket = bed.promoted(keys);
  const TicketView view = bed.world->view(ticket);
  EXPECT_EQ(view.length, 6);
  EXPECT_TRUE(view.missed.empty());
  EXPECT_EQ(bed.world->load(ticket, 6).length, 6);
  EXPECT_EQ(bed.world->wrong_bytes(keys, 6), "");
  // From now on the host tier has it.
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 6);
}

TEST(NodeDisk, AMatchThatMayNotWaitSaysThatThePagesCameTooLate) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  const TicketView view = bed.world->view(bed.world->match(keys));
  EXPECT_EQ(view.length, 0);
  EXPECT_EQ(view.on_disk[0], 4);
  EXPECT_EQ(missed_for(view, Reason::kTooLate), 4);
  EXPECT_TRUE(bed.world->node().exists(bed.world->ns(), ClassId(0), keys[3]));
}

TEST(NodeDisk, AnotherNamespaceOnTheSameDriveFindsNothingAndTakesNothingAway) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  MatchQuery other = bed.query(keys);
  other.ns = bed.world->open("weights-2");
  const TicketId none = bed.world->node().match(other).value();
  bed.settle();
  EXPECT_EQ(bed.world->view(none).length, 0);
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 4);
}

TEST(NodeDisk, ARemovedPageAndWhatIsBelowItNeverComesBack) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(5);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();  // the host tier knows nothing of them
  ASSERT_TRUE(bed.world->node().remove(bed.world->ns(), std::span(&keys[2], 1)).ok());
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 2);
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 2);
  // Stored again: it is found again, what is below it is not.
  bed.world->store(keys, 2, ClassId(0));
  bed.make_durable();
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 3);
}

// The pages that wait for their turn are below the one that goes, and nothing of them is in the host tier
// yet.
TEST(NodeDisk, WhatAPromotionHasNotBegunToReadIsNotBroughtUpAfterARemovalAboveIt) {
  for (const bool required : {true, false}) {
    TestModel model;
    model.full = required;
    model.window_pages = required ? 0 : 4;
    DiskBed bed(model);
    bed.log_options.reads_in_flight = 1;
    bed.open();
    const std::vector<Key> keys = bed.world->keys(4);
    bed.world->store_pages(keys, {});
    bed.make_durable();
    bed.reopen();
    bed.hold_reads_after(0);
    const TicketId ticket = bed.world->node().match(bed.query(keys)).value();
    bed.world->node().poll();
    ASSERT_TRUE(bed.world->view(ticket).pending);
    ASSERT_TRUE(bed.world->node().remove(bed.world->ns(), std::span(keys.data(), 1)).ok());
    bed.hold_no_more();
    bed.settle();
    EXPECT_EQ(bed.world->view(ticket).length, 0);
    EXPECT_TRUE(bed.world->node().audit().residences.empty()) << "required " << required;
    EXPECT_EQ(bed.log->stats().reads, 1);
  }
}

// One of its required class-sets is on the disk, the other is the engine's: what lacks is the snapshot.
TEST(NodeDisk, APageInPartOnTheDiskAndInPartTheEnginesIsNotMissedForItself) {
  TestModel model;
  model.index_keys = true;
  model.state = true;
  DiskBed bed(model);
  bed.open();
  const std::vector<Key> keys = bed.world->keys(2);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  for (const Key& key : keys) bed.log->drop({DiskSpaceId(1), key, ClassId(0)});
  MatchQuery query = bed.query(keys);
  std::vector<std::uint64_t> held(bed.world->form().classes.size());
  held[0] = 2;
  query.held = held;
  const TicketView view = bed.world->view(bed.world->node().match(query).value());
  EXPECT_EQ(missed_for(view, Reason::kStateMissing), 2);
}

TestModel state_only_model() {
  TestModel model;
  model.full = false;
  model.state = true;
  return model;
}

void store_snapshot(TestWorld& world, const std::vector<Key>& keys, std::uint64_t length) {
  for (const ClassForm& cls : world.form().classes)
    EXPECT_EQ(world.store(keys, length - 1, cls.id)[0], StoreOutcome::kAccepted);
  world.node().drain_completions();
}

// Of a chain of which nothing but snapshots was ever stored, the pages above have no entries in the index.
TEST(NodeDisk, ASnapshotFarDownAChainComesUpWhereTheIndexIsSmall) {
  DiskBed bed(state_only_model());
  bed.options.adjust = [](NodeOptions& options) { options.index_pages_max = 128; };
  bed.open();
  const std::vector<Key> keys = bed.world->keys(96);
  for (const std::uint64_t length : {44U, 45U, 91U}) store_snapshot(*bed.world, keys, length);
  bed.make_durable();
  bed.reopen();
  const TicketId ticket = bed.promoted(keys);
  EXPECT_EQ(bed.world->view(ticket).length, 91);
  EXPECT_EQ(bed.world->load(ticket, 91).length, 91);
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted({keys.begin(), keys.begin() + 90})).length, 45);
}

TEST(NodeDisk, WhatCameUpFarDownAChainGoesWithAnyPageAboveIt) {
  DiskBed bed(state_only_model());
  bed.open();
  const std::vector<Key> keys = bed.world->keys(60);
  store_snapshot(*bed.world, keys, 50);
  bed.make_durable();
  bed.reopen();
  // These two and the page before them are linked, and nothing links them to the beginning.
  store_snapshot(*bed.world, keys, 44);
  store_snapshot(*bed.world, keys, 45);
  ASSERT_EQ(bed.world->view(bed.promoted(keys)).length, 50);
  ASSERT_TRUE(bed.world->node().remove(bed.world->ns(), std::span(&keys[10], 1)).ok());
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 0);
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 0);
}

// A question in the middle of a chain: what is above it is not known, so any removal may be of a page there.
TEST(NodeDisk, WhatCameUpForAQuestionInTheMiddleOfAChainGoesWithAnyRemoval) {
  DiskBed bed(state_only_model());
  bed.open();
  const std::vector<Key> keys = bed.world->keys(20);
  store_snapshot(*bed.world, keys, 13);
  bed.make_durable();
  bed.reopen();
  store_snapshot(*bed.world, keys, 11);  // leaves an entry for page 9, which is above the question
  const std::vector<Key> lower(keys.begin() + 10, keys.end());
  MatchQuery middle = bed.query(lower);
  middle.first_page = 10;
  const TicketId ticket = bed.world->node().match(middle).value();
  bed.settle();
  ASSERT_EQ(bed.world->view(ticket).length, 13);
  bed.world->node().release(ticket);
  ASSERT_TRUE(bed.world->node().remove(bed.world->ns(), std::span(&keys[3], 1)).ok());
  middle.may_promote = false;
  EXPECT_EQ(bed.world->view(bed.world->node().match(middle).value()).length, 0);
}

TEST(NodeDisk, ClearsAndWeightEpochsHoldAfterARestart) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(3);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  ASSERT_TRUE(bed.world->node().clear(bed.world->ns()).ok());
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 0);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  ASSERT_TRUE(bed.world->node().set_weights_epoch(bed.world->form_id(), 3).ok());
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 0);
  EXPECT_EQ(bed.world->store(keys, 0, ClassId(0)).front(), StoreOutcome::kStale) << "of an older epoch";
}

TEST(NodeDisk, WhoAsksForWhatIsOnItsWayWaitsForTheSameRead) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  bed.hold_reads_after(0);
  const TicketId first = bed.world->node().match(bed.query(keys)).value();
  const TicketId second = bed.world->node().match(bed.query(keys)).value();
  bed.world->node().poll();
  EXPECT_TRUE(bed.world->view(first).pending);
  bed.hold_no_more();
  bed.settle();
  EXPECT_EQ(bed.world->view(first).length, 4);
  EXPECT_EQ(bed.world->view(second).length, 4);
  EXPECT_EQ(bed.log->stats().reads, 4);
  EXPECT_EQ(bed.world->node().stats().promotions_joined, 4);
}

TEST(NodeDisk, AfterItsDeadlineAMatchHasWhatIsThereAndLateReadsStillCount) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  MatchQuery query = bed.query(keys);
  query.deadline = std::chrono::milliseconds(100);
  bed.hold_reads_after(1);
  const TicketId ticket = bed.world->node().match(query).value();
  bed.settle();
  EXPECT_TRUE(bed.world->view(ticket).pending);
  bed.world->clock().advance(std::chrono::milliseconds(101));
  bed.world->node().poll();
  const TicketView view = bed.world->view(ticket);
  EXPECT_FALSE(view.pending);
  EXPECT_EQ(view.length, 1);
  EXPECT_EQ(missed_for(view, Reason::kTooLate), 3);
  bed.hold_no_more();
  bed.settle();
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 4);
  EXPECT_EQ(bed.world->node().stats().disk_reading_bytes, 0);
}

TEST(NodeDisk, DamageOnTheDriveIsAMissOfThatPageAndShortensThePrefix) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  const DiskName name{DiskSpaceId(1), keys[2], ClassId(0)};
  const auto found = bed.log->find(name, false);
  ASSERT_TRUE(found);
  bed.drive.damage(found->offset + header_bytes(bed.world->form().classes[0]));
  const TicketId ticket = bed.promoted(keys);
  const TicketView view = bed.world->view(ticket);
  EXPECT_EQ(view.length, 2);
  EXPECT_EQ(missed_for(view, Reason::kDamaged), 1);
  EXPECT_FALSE(bed.log->find(name, false)) << "it would only be found again";
  EXPECT_EQ(bed.world->load(ticket, 2).length, 2);
  EXPECT_EQ(bed.world->wrong_bytes(keys, 2), "");
}

TEST(NodeDisk, AFailingDriveIsAMissOfItsOwnAndAnsweredOnce) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  bed.drive.failure = [](const BlockRequest& request) {
    return request.work == BlockWork::kRead ? Status{Code::kIoError, "the test's drive does not read"}
                                            : Status{};
  };
  const TicketView view = bed.world->view(bed.promoted(keys));
  EXPECT_EQ(view.length, 0);
  EXPECT_EQ(missed_for(view, Reason::kTierDown) + missed_for(view, Reason::kTooLate), 4);
  EXPECT_GE(missed_for(view, Reason::kTierDown), 1);
}

TEST(NodeDisk, ADriveThatFallsSilentIsAnsweredForWhenTheTierIsDownAndComesBackByItself) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  bed.hold_reads_after(0);
  const TicketId ticket = bed.world->node().match(bed.query(keys)).value();
  bed.settle();
  EXPECT_TRUE(bed.world->view(ticket).pending);
  bed.clock.advance(bed.log_options.stall_after + std::chrono::milliseconds(1));  // the log's, not the node's
  bed.settle();
  const TicketView view = bed.world->view(ticket);
  EXPECT_FALSE(view.pending);
  EXPECT_EQ(missed_for(view, Reason::kTierDown), 4);
  EXPECT_NE(bed.world->node().stats().disk_reading_bytes, 0) << "the drive may still write there";
  bed.hold_no_more();
  for (int i = 0; i < 8; ++i) {
    bed.clock.advance(bed.log_options.retry_after_max);
    bed.settle();
  }
  EXPECT_FALSE(bed.log->down());
  EXPECT_EQ(bed.world->node().stats().disk_reading_bytes, 0);
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 4);
}

TEST(NodeDisk, UnderWriteBackPagesGoDownBeforeTheyAreForgotten) {
  DiskBed bed;
  bed.options.host_bytes = 2 << 20;
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.write_policy = WritePolicy::kWriteBack;
    options.index_pages_max = options.history_entries = options.advice_entries = 512;
    options.record_bytes_max = 40 * 16;  // forty pages
  };
  bed.open();
  std::vector<std::vector<Key>> chains;
  for (std::uint32_t branch = 0; branch < 12; ++branch) {
    chains.push_back(bed.world->keys(10, branch));
    for (std::uint64_t page = 0; page < 10; ++page) {
      EXPECT_EQ(bed.world->store(chains.back(), page, ClassId(0)).front(), StoreOutcome::kAccepted);
      bed.settle();
    }
  }
  EXPECT_GE(bed.world->node().stats().pages_evicted, 80);
  std::uint64_t there = 0;
  for (const std::vector<Key>& keys : chains) {
    const TicketId ticket = bed.promoted(keys);
    there += bed.world->view(ticket).length;
    bed.world->node().release(ticket);
  }
  EXPECT_EQ(there, 120);
}

TEST(NodeDisk, AStoreHearsOfTheDiskInOrder) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(1);
  StoreRequest request = bed.world->store_request(keys, 0, ClassId(0));
  request.tell_lower = true;
  ASSERT_TRUE(bed.world->node().store(request));
  std::vector<CompletionKind> kinds;
  for (int i = 0; i < 32; ++i) {
    bed.world->node().poll();
    for (const Completion& completion : bed.world->node().drain_completions())
      kinds.push_back(completion.kind);
  }
  EXPECT_EQ(kinds, (std::vector{CompletionKind::kSourceFree, CompletionKind::kVisible,
                                CompletionKind::kAccepted, CompletionKind::kDurable}));
}

TEST(NodeDisk, ClosingWritesDownWhatTheDiskHasNotGot) {
  DiskBed bed;
  bed.options.adjust = [](NodeOptions& options) {
    options.disk.write_policy = WritePolicy::kWriteThroughSelective;
  };
  bed.open();
  const std::vector<Key> keys = bed.world->keys(5);
  bed.world->store_pages(keys, {});
  bed.settle();
  EXPECT_EQ(bed.log->stats().class_sets, 0);
  const WriteDown report = bed.world->node().write_down(std::chrono::seconds(10));
  EXPECT_TRUE(report.status.ok()) << report.status.to_string();
  EXPECT_EQ(report.class_sets, 5);
  EXPECT_EQ(report.left_class_sets, 0);
  bed.reopen();
  EXPECT_EQ(bed.world->view(bed.promoted(keys)).length, 5);
}

TEST(NodeDisk, WhatAdmissionRefusedIsTheReasonOfTheLaterMiss) {
  DiskBed bed;
  bed.log_options.admission = DiskAdmission::kSecondTouch;
  bed.options.pages_max = 4;
  bed.open();
  const std::vector<Key> first = bed.world->keys(4, 1), second = bed.world->keys(4, 2);
  bed.world->store_pages(first, {});
  bed.settle();
  bed.world->store_pages(second, {});
  bed.settle();
  const TicketView view = bed.world->view(bed.promoted(first));
  EXPECT_EQ(missed_for(view, Reason::kSecondTouch), 4);
}

TEST(NodeDisk, ASecondUseBringsARefusedPageDown) {
  DiskBed bed;
  bed.log_options.admission = DiskAdmission::kSecondTouch;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(4);
  bed.world->store_pages(keys, {});
  bed.settle();
  EXPECT_EQ(bed.log->stats().class_sets, 0);
  bed.world->match(keys, RequestId(9));
  bed.settle();
  EXPECT_EQ(bed.log->stats().class_sets, 4);
}

TEST(NodeDisk, APrefetchBringsPagesUpAndTellsHowManyCame) {
  DiskBed bed;
  bed.open();
  const std::vector<Key> keys = bed.world->keys(20);
  bed.world->store_pages(keys, {});
  bed.make_durable();
  bed.reopen();
  PrefetchRequest request;
  request.session = bed.world->session();
  request.ns = bed.world->ns();
  request.keys = keys;
  const OperationId id = bed.world->node().prefetch(request).value();
  EXPECT_TRUE(bed.world->node().drain_completions().empty()) << "nothing has come yet";
  bed.settle();
  const std::vector<Completion> completions = bed.world->node().drain_completions();
  ASSERT_EQ(completions.size(), 1);
  EXPECT_EQ(completions[0].operation, id);
  EXPECT_EQ(completions[0].prefetch->length, 20);
  EXPECT_EQ(completions[0].prefetch->brought_pages, 20);
  EXPECT_TRUE(completions[0].prefetch->missed.empty());
  EXPECT_EQ(bed.world->view(bed.world->match(keys)).length, 20);
  EXPECT_EQ(bed.world->node().stats().prefetch_bytes, 0);
}

}  // namespace
}  // namespace tiercel
