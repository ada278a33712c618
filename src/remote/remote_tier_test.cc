#include "remote/remote_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remote/object_format.h"
#include "remote/test_tier_world.h"

namespace tiercel {
namespace {

using testing::Each;

constexpr ClassId kFull{0};

struct Bed {
  TwinObjects objects;
  ManualClock clock;
  std::size_t objects_but_markers() const {
    return static_cast<std::size_t>(std::count_if(objects.begin(), objects.end(), [](const auto& object) {
      return object.first.find("marker") == std::string::npos;
    }));
  }
};

Presence bits(const TierNode& node, bool required) {
  Presence all = 0;
  for (const ClassForm& cls : node.form->classes)
    if (cls.required() == required) all |= Presence{1} << cls.id.value();
  return all;
}

TEST(RemoteTier, WhatOneNodeStoredAnotherFindsAndReads) {
  Bed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(40, 1);
  writer.append_pages(chain, 0, 40);
  writer.settle();
  EXPECT_EQ(writer.written, 40U);
  EXPECT_EQ(bed.objects_but_markers(), 2U + 8U);  // two runs of 16, eight single pages
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  EXPECT_THAT(reader.there(chain), Each(0U));
  ASSERT_TRUE(reader.look(chain));
  reader.settle();
  EXPECT_TRUE(reader.look_status.ok()) << reader.look_status.message;
  EXPECT_THAT(reader.there(chain), Each(1U));
  for (const Key& key : chain) EXPECT_TRUE(reader.read(key, kFull));
  reader.settle();
  reader.expect_delivered(40);
  EXPECT_EQ(reader.tier->stats().objects_read, 10U);
  EXPECT_EQ(reader.tier->stats().exchange_used_bytes, 0U);
}

TEST(RemoteTier, AllShardsAndReplicatedClassesTravel) {
  Bed bed;
  TierModel model;
  model.tp = 2;
  model.index_keys = model.window = model.state = true;
  TierNode writer(bed.objects, bed.clock, model);
  writer.settle();
  const auto chain = tier_chain(18, 1);
  for (std::uint64_t page = 0; page < 18; ++page)
    for (const ClassForm& cls : writer.form->classes)
      if (!cls.is_state() || page == 17) writer.append(chain, page, cls.id);
  writer.settle();
  EXPECT_EQ(writer.lost, 0U);
  TierNode reader(bed.objects, bed.clock, model, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  const auto there = reader.there(chain);
  const Presence all = bits(reader, true) | bits(reader, false);
  EXPECT_EQ(there[17], all);
  std::size_t asked = 0;
  for (std::uint64_t page = 0; page < 18; ++page)
    for (const ClassForm& cls : reader.form->classes)
      if ((there[page] >> cls.id.value() & 1) != 0) asked += reader.read(chain[page], cls.id);
  EXPECT_GT(asked, 36U);
  reader.settle();
  reader.expect_delivered(asked);
}

TEST(RemoteTier, ALookupOfALongPrefixIsOneBatchAndKnownAnswersCostNone) {
  Bed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(128, 1);
  writer.append_pages(chain, 0, 128);
  writer.settle();
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  reader.settle();
  const std::uint64_t before = reader.store.batches;
  ASSERT_TRUE(reader.look(chain));
  reader.settle();
  EXPECT_EQ(reader.store.batches - before, 1U);
  EXPECT_LE(reader.tier->stats().names_asked, 8U + 16U);
  EXPECT_FALSE(reader.look(chain));  // all of it is known
  const auto other = tier_chain(128, 2);
  ASSERT_TRUE(reader.look(other));
  reader.settle();
  EXPECT_THAT(reader.there(other), Each(0U));
  EXPECT_FALSE(reader.look(other));  // and so is what is not there
  bed.clock.advance(std::chrono::seconds(2));
  EXPECT_TRUE(reader.look(other));  // for a while
  reader.settle();
}

TEST(RemoteTier, WhatTheNodeHasIsNotAskedFor) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(32, 1);
  EXPECT_FALSE(node.look(chain, std::vector<Presence>(32, 1)));
  std::vector<Presence> have(32, 1);
  have[31] = 0;
  ASSERT_TRUE(node.look(chain, have));
  node.settle();
  EXPECT_EQ(node.tier->stats().names_asked, 2U);  // the second run, and the page alone
}

TEST(RemoteTier, APageWhoseOneShardIsGoneIsNotThere) {
  Bed bed;
  TierModel model;
  model.tp = 2;
  TierNode writer(bed.objects, bed.clock, model);
  writer.settle();
  const auto chain = tier_chain(3, 1);
  writer.append_pages(chain, 0, 3);
  writer.settle();
  for (auto at = bed.objects.begin(); at != bed.objects.end(); ++at)
    if (at->first.find(to_hex(chain[1])) != std::string::npos && at->first.ends_with("s1")) {
      bed.objects.erase(at);
      break;
    }
  TierNode reader(bed.objects, bed.clock, model, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  const auto there = reader.there(chain);
  EXPECT_NE(there[0], 0U);
  EXPECT_EQ(there[1], 0U);
}

// H03: it was there when it was asked for.
TEST(RemoteTier, WhatWentMeanwhileIsNotFoundAndNotPromisedAgain) {
  Bed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(3, 1);
  writer.append_pages(chain, 0, 3);
  writer.settle();
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  std::erase_if(bed.objects,
                [&](const auto& object) { return object.first.find(to_hex(chain[1])) != std::string::npos; });
  for (const Key& key : chain) EXPECT_TRUE(reader.read(key, kFull));
  reader.settle();
  reader.expect_delivered(2);
  EXPECT_EQ((reader.read_status[{chain[1], kFull}].code), Code::kNotFound);
  EXPECT_FALSE(reader.read(chain[1], kFull));
  EXPECT_EQ(reader.there(chain)[1], 0U);
}

TEST(RemoteTier, ADamagedObjectIsRemovedAndCanBeStoredAnew) {
  Bed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(1, 1);
  writer.append_pages(chain, 0, 1);
  writer.settle();
  for (auto& [name, bytes] : bed.objects)
    if (name.find("marker") == std::string::npos) bytes[50] ^= std::byte{1};
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  reader.read(chain[0], kFull);
  reader.settle();
  EXPECT_EQ((reader.read_status[{chain[0], kFull}].code), Code::kDataCorrupt);
  EXPECT_EQ(bed.objects_but_markers(), 0U);
  EXPECT_EQ(reader.append(chain, 0, kFull), RemoteVerdict::kAccepted);
  reader.settle();
  EXPECT_EQ(bed.objects_but_markers(), 1U);
}

// P1: two nodes stored the same page, and of each one shard was left.
TEST(RemoteTier, ShardsOfTwoComputationsAreNoClassSet) {
  TwinObjects both[2];
  const auto chain = tier_chain(1, 1);
  TierModel model;
  model.tp = 2;
  ManualClock clock;
  TierNode first(both[0], clock, model, {}, {}, 1);
  first.settle();
  first.append(chain, 0, kFull, 5);
  first.settle();
  both[1] = both[0];  // the same markers
  std::erase_if(both[1], [](const auto& object) { return object.first.find("marker") == std::string::npos; });
  TierNode second(both[1], clock, model, {}, {}, 2);
  second.settle();
  second.append(chain, 0, kFull, 6);
  second.settle();
  TwinObjects mixed = both[0];
  for (const auto& [name, bytes] : both[1])
    if (name.ends_with("s1")) mixed[name] = bytes;
  TierNode reader(mixed, clock, model, {}, {}, 3);
  reader.look(chain);
  reader.settle();
  ASSERT_TRUE(reader.read(chain[0], kFull));
  reader.settle();
  EXPECT_EQ((reader.read_status[{chain[0], kFull}].code), Code::kDataCorrupt);
  EXPECT_TRUE(reader.delivered.empty());
}

TEST(RemoteTier, AHungStoreKeepsNobodyBeyondItsDeadlineAndItsMemoryStaysOutOfUse) {
  Bed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(4, 1);
  writer.append_pages(chain, 0, 4);
  writer.settle();
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  reader.store.hang(true);
  const Time begun = bed.clock.now();
  for (const Key& key : chain) EXPECT_TRUE(reader.read(key, kFull));
  while (!reader.reads.empty()) {
    reader.poll();
    reader.tier->wait(std::chrono::milliseconds(5));
  }
  EXPECT_LE(bed.clock.now() - begun, std::chrono::milliseconds(1050));
  EXPECT_TRUE(reader.delivered.empty());
  EXPECT_GT(reader.tier->stats().unquiet_bytes, 0U);
  EXPECT_GT(reader.tier->stats().exchange_used_bytes, 0U);
  reader.store.hang(false);
  bed.clock.advance(std::chrono::seconds(1));
  reader.poll();
  reader.poll();
  EXPECT_EQ(reader.tier->stats().unquiet_bytes, 0U);
  EXPECT_EQ(reader.tier->stats().exchange_used_bytes, 0U);
}

// Records of 64 bytes and more, in two pieces each: of keys and values directly, of index keys by copy.
struct DirectBed : Bed {
  DirectBed() {
    nature.reaches = true;
    options.direct_bytes = 50;
  }
  TwinNature nature;
  RemoteTierOptions options;
};

TEST(RemoteTier, LargeRecordsMoveWithoutACopyAndWhoeverCopiesFindsTheSame) {
  DirectBed bed;
  const TierModel model{.tp = 2, .state = true, .index_keys = true};
  TierNode writer(bed.objects, bed.clock, model, bed.nature, bed.options);
  writer.settle();
  const auto chain = tier_chain(19, 1);
  writer.append_pages(chain, 0, 19);
  writer.append(chain, 18, ClassId(1));
  writer.settle();
  EXPECT_EQ(writer.lost, 0U);
  const std::uint64_t written = writer.tier->stats().object_bytes_written;
  EXPECT_GT(writer.tier->stats().direct_bytes, written / 2);
  EXPECT_LT(writer.tier->stats().direct_bytes, written);
  for (const bool reaches : {false, true}) {
    TwinNature nature = bed.nature;
    nature.reaches = reaches;
    TierNode reader(bed.objects, bed.clock, model, nature, bed.options, 2);
    reader.look(chain);
    reader.settle();
    std::size_t asked = 0;
    for (const Key& key : chain)
      for (const ClassForm& cls : reader.form->classes) asked += reader.read(key, cls.id) ? 1 : 0;
    // Two that want one record: it is copied to both.
    asked += reader.read(chain[3], ClassId(0)) ? 1 : 0;
    reader.settle();
    EXPECT_GT(asked, 2 * 19U);
    reader.expect_delivered(asked);
    EXPECT_EQ(reader.tier->stats().direct_bytes != 0, reaches);
    EXPECT_EQ(reader.tier->stats().exchange_used_bytes, 0U);
  }
}

TEST(RemoteTier, ALateReadIntoARecordEndsOnlyWhenTheStoreHasLetGoOfIt) {
  DirectBed bed;
  TierNode writer(bed.objects, bed.clock, {});
  writer.settle();
  const auto chain = tier_chain(4, 1);
  writer.append_pages(chain, 0, 4);
  writer.settle();
  bed.nature.tears_late = 1;
  TierNode reader(bed.objects, bed.clock, {}, bed.nature, bed.options, 2);
  reader.look(chain);
  reader.settle();
  reader.store.hang(true);
  for (const Key& key : chain) EXPECT_TRUE(reader.read(key, kFull));
  reader.poll();
  bed.clock.advance(std::chrono::seconds(3));
  reader.poll();
  EXPECT_EQ(reader.reads.size(), 4U);  // late, and their memory may still be written to
  EXPECT_EQ(reader.tier->stats().batches_late, 1U);
  EXPECT_GT(reader.tier->stats().unquiet_bytes, 0U);
  reader.store.hang(false);
  reader.poll();
  EXPECT_TRUE(reader.reads.empty());
  EXPECT_TRUE(reader.delivered.empty());
  EXPECT_EQ((reader.read_status[{chain[0], kFull}].code), Code::kDeadlineExceeded);
  EXPECT_EQ(reader.tier->stats().unquiet_bytes, 0U);
  EXPECT_EQ(reader.tier->stats().exchange_used_bytes, 0U);
  for (const Key& key : chain) EXPECT_TRUE(reader.read(key, kFull));
  reader.settle();
  reader.expect_delivered(4);
}

TEST(RemoteTier, ALateWriteHoldsItsRecordsUntilItIsQuietOrTheStoreIsClosed) {
  DirectBed bed;
  TierNode node(bed.objects, bed.clock, {}, bed.nature, bed.options);
  node.settle();
  const auto chain = tier_chain(4, 1);
  node.append_pages(chain, 0, 2);
  node.tier->flush_soon();
  node.poll();
  node.settle(std::chrono::microseconds(1));
  node.store.hang(true);
  bed.clock.advance(std::chrono::seconds(3));
  node.poll();
  EXPECT_EQ(node.lost, 0U);
  EXPECT_EQ(node.appends.size(), 2U);
  node.tier->close(std::chrono::milliseconds(10));
  node.poll();
  EXPECT_TRUE(node.appends.empty());
  EXPECT_EQ(node.tier->stats().exchange_used_bytes, 0U);
}

TEST(RemoteTier, AMarkerThatCannotBeAskedForNowIsNoProgress) {
  Bed bed;
  TwinNature nature;
  nature.batches_max = 1;
  TierNode node(bed.objects, bed.clock, {}, nature);
  node.settle();
  node.store.hang(true);
  node.tier->clear(node.space);
  node.tier->clear_form(node.form->fingerprint);
  node.tier->poll();
  EXPECT_EQ(node.tier->poll(), 0U);
}

TEST(RemoteTier, ADeadStoreIsDownUntilItAnswersAgain) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(4, 1);
  node.append_pages(chain, 0, 2);
  node.store.kill();
  node.settle();
  EXPECT_TRUE(node.tier->down());
  EXPECT_EQ(node.lost, 2U);
  EXPECT_EQ(node.append(chain, 0, kFull), RemoteVerdict::kTierDown);
  EXPECT_FALSE(node.look(chain));
  node.store.revive();
  for (int i = 0; i < 10 && node.tier->down(); ++i) {
    bed.clock.advance(std::chrono::milliseconds(500));
    node.poll();
    node.tier->wait(std::chrono::milliseconds(5));
    node.poll();
  }
  EXPECT_FALSE(node.tier->down());
  EXPECT_EQ(node.append(chain, 0, kFull), RemoteVerdict::kAccepted);
  node.settle();
  EXPECT_EQ(node.written, 1U);
}

TEST(RemoteTier, WhatWasClearedNeverComesBack) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(20, 1);
  node.append_pages(chain, 0, 20);
  node.settle();
  EXPECT_THAT(node.there(chain), Each(1U));
  node.tier->clear(node.space);
  EXPECT_THAT(node.there(chain), Each(0U));  // at once
  EXPECT_TRUE(node.tier->settle(std::chrono::seconds(5)).ok());
  node.settle();
  node.look(chain);
  node.settle();
  EXPECT_THAT(node.there(chain), Each(0U));
  // Nor for a node that begins afterwards.
  TierNode later_node(bed.objects, bed.clock, {}, {}, {}, 2);
  later_node.look(chain);
  later_node.settle();
  EXPECT_THAT(later_node.there(chain), Each(0U));
  // What is stored now is new.
  node.append_pages(chain, 0, 20);
  node.settle();
  bed.clock.advance(std::chrono::seconds(2));
  later_node.look(chain);
  later_node.settle();
  EXPECT_THAT(later_node.there(chain), Each(1U));
}

// P1: a read that waits for its turn is of what was there before a clear; one that is asked for afterwards
// does not join it.
TEST(RemoteTier, AReadAfterAClearDoesNotJoinOneThatWaitedBeforeIt) {
  Bed bed;
  RemoteTierOptions options;
  options.reads_in_flight = 1;
  TierNode node(bed.objects, bed.clock, {}, {}, options);
  node.settle();
  const auto chain = tier_chain(2, 1);
  node.append_pages(chain, 0, 2);
  node.settle();
  // The first read takes nearly its deadline, the second waits for it.
  node.store.nature().bytes_per_second = 400;
  ASSERT_TRUE(node.read(chain[0], kFull));
  node.poll();
  node.store.nature().bytes_per_second = 0;
  ASSERT_TRUE(node.read(chain[1], kFull));
  node.poll();
  ASSERT_EQ(node.reads.size(), 2U);
  node.tier->clear(node.space);
  ASSERT_TRUE(node.tier->settle(std::chrono::milliseconds(300)).ok());
  TierNode other(bed.objects, bed.clock, {}, {}, {}, 2);
  other.settle(std::chrono::milliseconds(50));
  other.append(chain, 1, kFull, 7);
  other.settle(std::chrono::milliseconds(200));
  ASSERT_EQ(other.written, 1U);
  node.look({chain[1]}, {}, 1);
  while (!node.lookups.empty()) {
    node.poll();
    node.tier->wait(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(node.reads.size(), 2U);  // both of before are still there
  ASSERT_TRUE(node.read(chain[1], kFull));
  node.settle();
  std::size_t after = 0;
  for (const TierNode::Read& read : node.delivered) {
    if (read.key != chain[1]) continue;
    EXPECT_TRUE(node.right(read.memory->shards, read.key, read.cls, 7));
    ++after;
  }
  EXPECT_EQ(after, 1U);
}

// Opening a namespace, and holding many that nobody uses, costs nothing later: 10,000 adapters are ordinary.
TEST(RemoteTier, NamespacesThatNobodyUsesAreNotAskedFor) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  RemoteSpaceName name;
  name.form = node.form;
  name.record_bytes = node.record_bytes;
  std::vector<RemoteSpaceId> spaces;
  for (int i = 0; i < 300; ++i) {
    name.root = sha256(as_byte_view("adapter " + std::to_string(i)));
    spaces.push_back(node.tier->open_space(name));
  }
  node.settle(std::chrono::minutes(2));
  const std::uint64_t opened = node.store.batches;
  EXPECT_LE(opened, 3 * 302U);  // of each marker: asked for, made, read back
  bed.clock.advance(std::chrono::minutes(10));
  node.settle(std::chrono::seconds(30));
  EXPECT_EQ(node.store.batches, opened);
  // Whoever comes back after so long asks first whether it was cleared meanwhile.
  ASSERT_TRUE(node.look(tier_chain(3, 1)));
  node.settle();
  EXPECT_EQ(node.store.batches, opened + 2 + 1);  // two markers; its runs and pages
}

TEST(RemoteTier, AnotherNodeSeesAClearWhenItLooksAgain) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {}), other(bed.objects, bed.clock, {}, {}, {}, 2);
  node.settle();
  other.settle();
  const auto chain = tier_chain(3, 1);
  node.append_pages(chain, 0, 3);
  node.settle();
  other.look(chain);
  other.settle();
  EXPECT_THAT(other.there(chain), Each(1U));
  node.tier->clear_form(node.form->fingerprint);
  node.settle();
  bed.clock.advance(std::chrono::seconds(6));
  other.settle();
  other.look(chain);
  other.settle();
  EXPECT_THAT(other.there(chain), Each(0U));
}

TEST(RemoteTier, AClearThatTheStoreDoesNotConfirmSaysSoAndNothingIsServedMeanwhile) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(3, 1);
  node.append_pages(chain, 0, 3);
  node.settle();
  node.store.hang(true);
  node.tier->clear(node.space);
  EXPECT_EQ(node.tier->settle(std::chrono::seconds(3)).code, Code::kDeadlineExceeded);
  node.store.calm();
  for (int i = 0; i < 100 && node.tier->clearing(); ++i) {
    EXPECT_THAT(node.there(chain), Each(0U));
    EXPECT_FALSE(node.read(chain[0], kFull));
    bed.clock.advance(std::chrono::milliseconds(100));
    node.poll();
  }
  EXPECT_FALSE(node.tier->clearing());
  node.look(chain);
  node.settle();
  EXPECT_THAT(node.there(chain), Each(0U));
}

// Its answer says nothing of what is there now.
TEST(RemoteTier, ALookupThatAClearHasOvertakenLearnsNothing) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {}), other(bed.objects, bed.clock, {}, {}, {}, 2);
  node.settle();
  other.settle();
  const auto chain = tier_chain(3, 1);
  other.append_pages(chain, 0, 3);
  other.settle();
  node.store.nature().latency_max = std::chrono::milliseconds(200);
  EXPECT_TRUE(node.look(chain));
  node.store.nature().latency_max = Duration{0};
  node.tier->clear(node.space);
  EXPECT_TRUE(node.tier->settle(std::chrono::seconds(5)).ok());
  EXPECT_EQ(node.store.under_way(), 1U);
  node.settle();
  EXPECT_EQ(node.look_status.code, Code::kUnavailable);
  EXPECT_THAT(node.there(chain), Each(0U));
  EXPECT_EQ(node.append(chain, 0, kFull), RemoteVerdict::kAccepted);
  node.settle();
  EXPECT_EQ(node.written, 1U);
}

TEST(RemoteTier, AStoreThatTakesNoMoreQuestionsHasNotAnswered) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  node.store.nature().batches_max = 1;
  EXPECT_TRUE(node.look(tier_chain(3, 1)));
  EXPECT_TRUE(node.look(tier_chain(3, 2)));
  node.poll();
  EXPECT_EQ(node.lookups.size(), 1U);
  EXPECT_EQ(node.look_status.code, Code::kUnavailable);
  EXPECT_EQ(node.tier->stats().lookups_failed, 1U);
  EXPECT_FALSE(node.tier->down());
  node.settle();
  EXPECT_TRUE(node.lookups.empty());
}

// Whichever byte it is: another node makes it good.
TEST(RemoteTier, ADamagedMarkerIsMadeAnew) {
  for (std::size_t at = 0; at < remote::kMarkerBytes; ++at) {
    Bed bed;
    TierNode node(bed.objects, bed.clock, {});
    node.settle();
    for (auto& [name, bytes] : bed.objects) bytes[at] ^= std::byte{4};
    TierNode other(bed.objects, bed.clock, {}, {}, {}, 2);
    other.settle();
    bed.clock.advance(std::chrono::seconds(1));
    other.settle();
    EXPECT_EQ(other.append(tier_chain(1, 1), 0, kFull), RemoteVerdict::kAccepted) << at;
    other.settle();
    EXPECT_EQ(other.written, 1U);
  }
}

// A marker that the store has forgotten takes what was stored under it with it.
TEST(RemoteTier, ALostMarkerIsAClear) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(3, 1);
  node.append_pages(chain, 0, 3);
  node.settle();
  std::erase_if(bed.objects,
                [](const auto& object) { return object.first.find("marker") != std::string::npos; });
  TierNode reader(bed.objects, bed.clock, {}, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  EXPECT_THAT(reader.there(chain), Each(0U));
}

TEST(RemoteTier, WhereAStoreHasLostItsMarkersANodeMissesOnlyUntilItLooksForThemAgain) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  bed.clock.advance(std::chrono::seconds(3));
  TierNode other(bed.objects, bed.clock, {}, {}, {}, 2);  // has seen them later
  other.settle();
  bed.objects.clear();
  bed.clock.advance(std::chrono::seconds(3));
  const auto before = tier_chain(1, 1), chain = tier_chain(1, 2);
  node.append_pages(before, 0, 1);  // by which it looks for them
  node.settle();
  node.append_pages(chain, 0, 1);
  node.settle();
  other.look(chain);
  other.settle();
  EXPECT_THAT(other.there(chain), Each(0U));
  bed.clock.advance(std::chrono::seconds(3));
  other.look(chain);
  other.settle();
  other.look(chain);
  other.settle();
  EXPECT_THAT(other.there(chain), Each(1U));
}

TEST(RemoteTier, SnapshotsAreLookedForFromTheDeepestOnAndWindowsBeforeIt) {
  Bed bed;
  TierModel model;
  model.state = model.window = true;
  TierNode writer(bed.objects, bed.clock, model);
  writer.settle();
  const auto chain = tier_chain(96, 1);
  writer.append_pages(chain, 0, 96);
  ClassId state, window;
  for (const ClassForm& cls : writer.form->classes) {
    if (cls.is_state()) state = cls.id;
    if (cls.is_window()) window = cls.id;
  }
  writer.append(chain, 15, state);
  writer.append(chain, 79, state);
  for (std::uint64_t page = 0; page < 96; ++page) writer.append(chain, page, window);
  writer.settle();
  TierNode reader(bed.objects, bed.clock, model, {}, {}, 2);
  reader.look(chain);
  reader.settle();
  const auto there = reader.there(chain);
  EXPECT_NE(there[79] >> state.value() & 1, 0U);
  EXPECT_EQ(there[15] >> state.value() & 1, 0U);  // not asked for: a longer one is there
  for (std::uint64_t page = 80 - reader.form->classes[window.value()].window_pages(); page < 80; ++page)
    EXPECT_NE(there[page] >> window.value() & 1, 0U) << page;
  EXPECT_EQ(there[0] >> window.value() & 1, 0U);
}

TEST(RemoteTier, ARecordThatNeverFitsTheExchangeIsRefused) {
  Bed bed;
  TwinNature nature;
  nature.exchange_bytes = 4096;
  TierNode node(bed.objects, bed.clock, {}, nature);
  node.settle();
  EXPECT_EQ(node.append(tier_chain(1, 1), 0, kFull), RemoteVerdict::kTooLarge);
}

TEST(RemoteTier, AFullStoreLosesWritesAndNothingElse) {
  Bed bed;
  TwinNature nature;
  nature.objects_bytes_max = 3000;
  TierNode node(bed.objects, bed.clock, {}, nature);
  node.settle();
  const auto chain = tier_chain(64, 1);
  node.append_pages(chain, 0, 64);
  node.settle();
  EXPECT_GT(node.lost, 0U);
  EXPECT_EQ(node.lost_status.code, Code::kResourceExhausted);
  EXPECT_FALSE(node.tier->down());
  EXPECT_EQ(node.tier->stats().exchange_used_bytes, 0U);
  EXPECT_EQ(node.tier->stats().queued_bytes, 0U);
}

TEST(RemoteTier, CloseEndsEverything) {
  Bed bed;
  TierNode node(bed.objects, bed.clock, {});
  node.settle();
  const auto chain = tier_chain(5, 1);
  node.append_pages(chain, 0, 5);
  bed.clock.advance(std::chrono::milliseconds(20));
  for (int i = 0; i < 20; ++i) node.poll();
  node.tier->close(std::chrono::seconds(2));
  node.settle(std::chrono::seconds(1));
  EXPECT_TRUE(node.appends.empty());
  EXPECT_EQ(node.written + node.lost, 5U);
  EXPECT_EQ(node.append(chain, 0, kFull), RemoteVerdict::kTierDown);
}

TEST(RemoteTier, OptionsThatMakeNoSenseAreNamed) {
  Bed bed;
  StoreTwin store(bed.objects, bed.clock, {}, 1);
  InlineExecutor executor;
  RemoteTierOptions options;
  options.runs.pages_max = 12;
  const auto opened = RemoteTier::open(options, store, bed.clock, executor, {});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("pages of an object"), std::string::npos);
}

}  // namespace
}  // namespace tiercel
