// Removals, clears, weights epochs: what is dead stays dead, whatever happens.
#include <gtest/gtest.h>

#include "disk/test_log.h"

namespace tiercel {
namespace {

class RemovalTest : public LogTest {
 protected:
  RemovalTest() : LogTest(8 * kMiB) {}
  void write(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t i = first; i <= last; ++i) ASSERT_EQ(append(i).verdict, DiskVerdict::kAccepted) << i;
    ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
    take_events();
  }
  void write_to(DiskSpaceId id, const DiskSpaceName& whose, std::uint64_t number) {
    auto set = test_set(id, whose, number);
    const DiskAnswer answer = log->append(set->entry, DiskOffer::kComputed);
    ASSERT_EQ(answer.verdict, DiskVerdict::kAccepted);
    memory[answer.append] = std::move(set);
    ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
    take_events();
  }
  void durably(std::optional<std::uint64_t> at) {
    ASSERT_TRUE(at.has_value());
    ASSERT_TRUE(log->settle(*at, kLong).ok());
  }
  // Of pages first, first + 1, … of the chain 1, 2, 3, ….
  std::vector<Presence> chain(std::uint64_t first, std::uint64_t last) {
    std::vector<Key> keys;
    for (std::uint64_t i = first; i <= last; ++i) keys.push_back(test_key(i));
    std::vector<Presence> presence(keys.size());
    log->find_chain(space, first - 1, keys, presence);
    return presence;
  }
  using Bits = std::vector<Presence>;
};

TEST_F(RemovalTest, ARemovedPageTakesAllBelowItAlong) {
  open();
  write(1, 4);
  EXPECT_EQ(chain(1, 4), (Bits{1, 1, 1, 1}));
  durably(log->remove(space, test_key(2)));
  EXPECT_EQ(chain(1, 4), (Bits{1, 0, 0, 0}));
  lose_power();
  EXPECT_EQ(chain(1, 4), (Bits{1, 0, 0, 0}));
  // Written again they are there again, and what was not is not.
  EXPECT_EQ(append(3).verdict, DiskVerdict::kAccepted) << "dead: so it is no duplicate";
  ASSERT_TRUE(log->settle(log->last_at(), kLong).ok());
  EXPECT_EQ(chain(1, 4), (Bits{1, 0, 1, 0}));
  ASSERT_TRUE(log->close(kLong).ok());
  reopen();
  EXPECT_EQ(chain(1, 4), (Bits{1, 0, 1, 0}));
}

TEST_F(RemovalTest, InMidChainOnlyWhatIsYoungerThanAnyRemovalIsFound) {
  open();
  write(1, 4);
  EXPECT_EQ(chain(3, 4), (Bits{1, 1}));
  durably(log->remove(space, test_key(1)));
  EXPECT_EQ(chain(3, 4), (Bits{0, 0})) << "their unknown ancestor may be what was removed";
  EXPECT_FALSE(log->find(name_of(3), false).has_value());
  write(4, 4);
  EXPECT_EQ(chain(3, 4), (Bits{0, 1}));
  lose_power();
  EXPECT_EQ(chain(3, 4), (Bits{0, 1}));
  EXPECT_TRUE(log->find(name_of(4), false).has_value());
}

TEST_F(RemovalTest, ARemovalReachesWhatIsOnItsWayToTheDrive) {
  open();
  ASSERT_EQ(append(1).verdict, DiskVerdict::kAccepted);
  durably(log->remove(space, test_key(1)));
  take_events();
  ASSERT_EQ(count(DiskEvent::Kind::kLost), 1U);
  EXPECT_EQ(events.front().status.code, Code::kCancelled);
  EXPECT_FALSE(found(1));
  lose_power();
  EXPECT_FALSE(found(1));
}

TEST_F(RemovalTest, ARemovalThatIsNotDurableMayBeForgotten) {
  open();
  write(1, 2);
  const auto at = log->remove(space, test_key(1));
  ASSERT_TRUE(at.has_value());
  EXPECT_FALSE(found(1)) << "in effect at once";
  EXPECT_LT(log->durable_at(), *at);
  lose_power();
  EXPECT_TRUE(found(2));
}

TEST_F(RemovalTest, AClearedNamespaceIsEmptyAndTakesNewPages) {
  open();
  const auto other = log->open_space(test_space(2));
  ASSERT_TRUE(other.has_value());
  write(1, 3);
  write_to(*other, test_space(2), 1);
  durably(log->clear(space));
  write(4, 4);
  for (int opening = 0; opening < 3; ++opening) {
    EXPECT_EQ(chain(1, 4), (Bits{0, 0, 0, 1})) << opening;
    EXPECT_TRUE(log->find({*other, test_key(1), ClassId(0)}, true)) << "another namespace stays";
    if (opening == 1) {
      ASSERT_TRUE(log->close(kLong).ok());
    }
    log.reset();
    drive->cut_power();
    open();
  }
}

TEST_F(RemovalTest, ANewWeightsEpochEndsAllNamespacesOfTheForm) {
  open();
  DiskSpaceName apart = test_space(3);
  apart.form = test_digest(78);
  const auto other_form = log->open_space(apart);
  ASSERT_TRUE(other_form.has_value());
  write(1, 2);
  const auto set = test_set(*other_form, apart, 1);
  ASSERT_EQ(log->append(set->entry, DiskOffer::kComputed).verdict, DiskVerdict::kAccepted);
  EXPECT_EQ(log->weights_epoch(name.form), 0U);
  durably(log->clear_form(name.form, 7));
  for (int opening = 0; opening < 3; ++opening) {
    EXPECT_EQ(log->weights_epoch(name.form), 7U) << opening;
    EXPECT_EQ(log->weights_epoch(apart.form), 0U);
    EXPECT_EQ(chain(1, 2), (Bits{0, 0}));
    EXPECT_TRUE(log->find({*other_form, test_key(1), ClassId(0)}, true));
    if (opening == 1) {
      ASSERT_TRUE(log->close(kLong).ok());
    }
    log.reset();
    drive->cut_power();
    open();
  }
}

TEST_F(RemovalTest, ADroppedClassSetIsGoneUntilTheLogIsOpenedAgain) {
  open();
  write(1, 1);
  log->drop(name_of(1));
  EXPECT_FALSE(found(1));
  reopen();
  EXPECT_TRUE(found(1));
}

TEST_F(RemovalTest, RemovalsOutliveTheRegionInWhichTheyStand) {
  options.checkpoint_regions = 1000;  // only what eviction asks for
  open();
  write(1, 3);
  durably(log->remove(space, test_key(2)));
  for (std::uint64_t i = 1000; i < 2000; ++i) {
    append(i);
    poll_all();
  }
  ASSERT_GT(log->stats().regions_evicted, 0U);
  EXPECT_GT(log->stats().checkpoints, 0U) << "an image has them before their region goes";
  reopen();
  EXPECT_EQ(chain(1, 3), (Bits{0, 0, 0}));
}

TEST_F(RemovalTest, TheDownTierStillForgets) {
  open();
  write(1, 1);
  drive->held = [](const BlockRequest&) { return true; };
  append(2);
  log->poll();
  clock.advance(options.stall_after);
  log->poll();
  ASSERT_TRUE(log->down());
  EXPECT_FALSE(log->remove(space, test_key(1)).has_value()) << "nobody is told that it will be written";
  EXPECT_EQ(log->stats().unrecorded, 1U);
  drive->held = {};
  clock.advance(options.retry_after_max);
  for (int i = 0; i < 5; ++i) poll_all();
  ASSERT_FALSE(log->down());
  EXPECT_FALSE(found(1));
}

}  // namespace
}  // namespace tiercel
