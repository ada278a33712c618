#include "memory/space.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/prng.h"
#include "memory/index_set.h"

namespace tiercel {
namespace {

constexpr auto kAnyMoves = [](PoolId, SlotId) { return true; };

Space space_of(std::uint64_t extents, std::uint64_t extent_bytes = 4096, std::uint64_t take_back = 0) {
  return Space({extent_bytes, extents, take_back});
}

SlotId take(Space& space, PoolId pool) {
  const std::optional<SlotId> slot = space.allocate(pool);
  TIERCEL_CHECK(slot.has_value());
  return *slot;
}
std::vector<SlotId> take_many(Space& space, PoolId pool, std::size_t count) {
  std::vector<SlotId> slots(count);
  for (SlotId& slot : slots) slot = take(space, pool);
  return slots;
}
// The plan's moves; none when there is no plan.
std::vector<Move> plan(Space& space, PoolId wanted_by, std::uint64_t bytes_max,
                       const Space::Movable& movable) {
  return space.plan_compaction(wanted_by, bytes_max, movable).value_or(std::vector<Move>{});
}

TEST(IndexSet, AgreesWithAnOrderedSet) {
  Prng prng(3);
  IndexSet set;
  std::set<std::uint32_t> model;
  for (int i = 0; i < 20'000; ++i) {
    const auto index = static_cast<std::uint32_t>(prng.below(i % 3 == 0 ? 100 : 300'000));
    if (prng.chance(0.5)) {
      set.insert(index);
      model.insert(index);
    } else {
      const auto victim = model.lower_bound(index);
      const std::uint32_t gone = victim == model.end() ? index : *victim;
      set.erase(gone);
      model.erase(gone);
    }
    ASSERT_EQ(set.first(), model.empty() ? std::nullopt : std::optional(*model.begin()));
    ASSERT_EQ(set.last(), model.empty() ? std::nullopt : std::optional(*model.rbegin()));
    const auto from = model.lower_bound(index);
    ASSERT_EQ(set.first_from(index), from == model.end() ? std::nullopt : std::optional(*from));
    ASSERT_EQ(set.contains(index), model.contains(index));
  }
  set.insert(100'000'000);
  EXPECT_EQ(set.last(), 100'000'000U);
  EXPECT_EQ(set.first_from(300'000), 100'000'000U);
}

TEST(Space, SmallRecordsShareAnExtentAndItIsFreeWhenTheLastLeaves) {
  Space space = space_of(3);
  const PoolId pool = space.add_pool({1000, 0});  // four to an extent, 96 bytes lost
  const std::vector<SlotId> slots = take_many(space, pool, 5);
  EXPECT_EQ(space.spans(pool, slots[0]), (std::vector<ArenaSpan>{{0, 1000}}));
  EXPECT_EQ(space.spans(pool, slots[3]), (std::vector<ArenaSpan>{{3000, 1000}}));
  EXPECT_EQ(space.spans(pool, slots[4]), (std::vector<ArenaSpan>{{4096, 1000}}));
  EXPECT_EQ(space.extents_free(), 1U);
  EXPECT_EQ(space.use(pool).slots_used, 5U);
  EXPECT_EQ(space.use(pool).bytes_used, 5000U);
  EXPECT_EQ(space.use(pool).fragmentation_bytes, 2 * 4096 - 5000U);
  EXPECT_EQ(space.fragmentation_bytes(), 2 * 4096 - 5000U);
  EXPECT_EQ(space.bytes_owned(), 2 * 4096U);
  space.release(pool, slots[4]);
  EXPECT_EQ(space.extents_free(), 2U);
  for (int i = 0; i < 4; ++i) space.release(pool, slots[static_cast<std::size_t>(i)]);
  EXPECT_EQ(space.extents_free(), 3U);
  EXPECT_EQ(space.fragmentation_bytes(), 0U);
  space.remove_pool(pool);
  EXPECT_EQ(space.inconsistency(), std::nullopt);
}

TEST(Space, ALargeRecordTakesSeveralExtentsNotNecessarilyAdjacent) {
  Space space = space_of(6);
  const PoolId large = space.add_pool({10'000, 0});  // three extents
  const PoolId small = space.add_pool({4096, 0});
  const std::vector<SlotId> fill = take_many(space, small, 6);
  EXPECT_EQ(space.extents_missing(large), 3U);
  for (const std::size_t i : {1U, 2U, 4U}) space.release(small, fill[i]);
  EXPECT_EQ(space.extents_missing(large), 0U);
  const SlotId slot = take(space, large);
  EXPECT_EQ(space.spans(large, slot), (std::vector<ArenaSpan>{{4096, 8192}, {16384, 10'000 - 8192}}));
  EXPECT_EQ(space.use(large).extents_owned, 3U);
  EXPECT_EQ(space.use(large).fragmentation_bytes, 3 * 4096 - 10'000U);
  EXPECT_EQ(space.allocate(large), std::nullopt);
  EXPECT_EQ(space.allocate(small), std::nullopt);
  space.release(large, slot);
  EXPECT_EQ(space.extents_free(), 3U);
  EXPECT_EQ(space.inconsistency(), std::nullopt);
}

TEST(Space, SaysWhatARecordTakesAloneAndWhetherItEverFits) {
  Space space = space_of(3);
  EXPECT_EQ(space.bytes_alone(1), 4096U);
  EXPECT_EQ(space.bytes_alone(4096), 4096U);
  EXPECT_EQ(space.bytes_alone(4097), 8192U);
  EXPECT_TRUE(space.fits_alone(space.add_pool({12'288, 0})));
  const PoolId too_large = space.add_pool({12'289, 0});
  EXPECT_FALSE(space.fits_alone(too_large));
  EXPECT_EQ(space.extents_missing(too_large), 1U);
  EXPECT_EQ(space.allocate(too_large), std::nullopt);
  const PoolId absurd = space.add_pool({1ULL << 62, 0});
  EXPECT_FALSE(space.fits_alone(absurd));
  EXPECT_EQ(space.allocate(absurd), std::nullopt);
}

TEST(Space, TakesTheFullestExtentSoThatEmptierOnesDrain) {
  Space space = space_of(3);
  const PoolId pool = space.add_pool({1024, 0});
  const std::vector<SlotId> slots = take_many(space, pool, 12);
  for (const std::size_t i : {0U, 1U, 2U, 4U, 8U, 9U}) space.release(pool, slots[i]);  // 1, 3 and 2 of 4 used
  EXPECT_EQ(space.spans(pool, take(space, pool)).front().offset, 4096U);
  EXPECT_EQ(space.spans(pool, take(space, pool)).front().offset / 4096, 2U);
  EXPECT_EQ(space.spans(pool, take(space, pool)).front().offset / 4096, 2U);
  EXPECT_EQ(space.spans(pool, take(space, pool)).front().offset / 4096, 0U);
}

// Three extents of four slots with 1, 3 and 2 used.
struct Sparse {
  Space space = space_of(3);
  PoolId owner = space.add_pool({1024, 0});
  PoolId taker = space.add_pool({4096, 0});
  std::vector<SlotId> slots = take_many(space, owner, 12);
  Sparse() {
    for (const std::size_t i : {0U, 1U, 2U, 4U, 8U, 9U}) space.release(owner, slots[i]);
  }
};

TEST(Space, CompactionEmptiesTheExtentWithTheFewestBytesToMove) {
  Sparse sparse;
  const auto moves = plan(sparse.space, sparse.taker, 1024, kAnyMoves);
  ASSERT_EQ(moves.size(), 1U);
  EXPECT_EQ(moves[0].from, sparse.slots[3]);
  EXPECT_EQ(moves[0].to, sparse.slots[4]) << "the free slot of the fullest other extent";
  EXPECT_EQ(sparse.space.use(sparse.owner).slots_used, 7U)
      << "source and target both count until one is released";
  EXPECT_EQ(sparse.space.extents_missing(sparse.taker), 1U);
  sparse.space.release(sparse.owner, moves[0].from);
  EXPECT_EQ(sparse.space.extents_missing(sparse.taker), 0U);
  EXPECT_EQ(sparse.space.inconsistency(), std::nullopt);
}

TEST(Space, CompactionPassesOverWhatMayNotMoveAndWhatIsTooMuch) {
  Sparse sparse;
  const auto but_the_emptiest = [&](PoolId, SlotId slot) { return slot != sparse.slots[3]; };
  EXPECT_EQ(sparse.space.plan_compaction(sparse.taker, 1023, kAnyMoves), std::nullopt);
  EXPECT_EQ(sparse.space.plan_compaction(sparse.taker, 1024, but_the_emptiest), std::nullopt);
  const auto moves = plan(sparse.space, sparse.taker, 4096, but_the_emptiest);
  ASSERT_EQ(moves.size(), 2U) << "the extent with two records";
  for (const Move& move : moves) sparse.space.release(move.pool, move.to);  // give up
  EXPECT_EQ(sparse.space.use(sparse.owner).slots_used, 6U);
  EXPECT_EQ(sparse.space.inconsistency(), std::nullopt);
  EXPECT_EQ(sparse.space.plan_compaction(sparse.owner, 4096, kAnyMoves), std::nullopt)
      << "its own free slots serve a pool better than another extent";
}

TEST(Space, CompactionLooksForTheFewestBytesOverAllPools) {
  for (const bool cheap_first : {true, false}) {
    Space space = space_of(4);
    const std::vector<std::uint64_t> slot_bytes =
        cheap_first ? std::vector<std::uint64_t>{512, 1024} : std::vector<std::uint64_t>{1024, 512};
    std::vector<PoolId> owners;
    for (const std::uint64_t bytes : slot_bytes) {  // two extents each, one record left in either
      owners.push_back(space.add_pool({bytes, 0}));
      const std::vector<SlotId> slots = take_many(space, owners.back(), 8192 / bytes);
      for (std::size_t i = 0; i < slots.size(); ++i)
        if (i != 0 && i != slots.size() / 2) space.release(owners.back(), slots[i]);
    }
    const PoolId taker = space.add_pool({4096, 0});
    const auto moves = plan(space, taker, 4096, kAnyMoves);
    ASSERT_EQ(moves.size(), 1U);
    EXPECT_EQ(moves[0].pool, owners[cheap_first ? 0 : 1]) << "512 bytes are fewer than 1024";
  }
}

TEST(Space, CompactionNeedsAWholeExtentOfFreeSlots) {
  Space space = space_of(2);
  const PoolId owner = space.add_pool({1024, 0});
  const PoolId taker = space.add_pool({4096, 0});
  const std::vector<SlotId> slots = take_many(space, owner, 8);
  for (const std::size_t i : {0U, 1U, 4U}) space.release(owner, slots[i]);
  EXPECT_EQ(space.plan_compaction(taker, 4096, kAnyMoves), std::nullopt);
  space.release(owner, slots[2]);
  EXPECT_EQ(plan(space, taker, 4096, kAnyMoves).size(), 1U);
}

TEST(Space, AFloorIsKeptUntilTheLastResort) {
  Space space = space_of(4);
  const PoolId shared = space.add_pool({1024, 5});  // needs two extents for its floor
  const PoolId whole = space.add_pool({8192, 1});
  const PoolId taker = space.add_pool({4096, 0});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(space.allocate(shared));
  ASSERT_TRUE(space.allocate(whole));
  EXPECT_FALSE(space.may_take(taker, shared, false)) << "two extents hold its floor, one does not";
  EXPECT_FALSE(space.may_take(taker, whole, false));
  EXPECT_TRUE(space.may_take(taker, shared, true));
  EXPECT_TRUE(space.may_take(shared, shared, false)) << "its own are always its own";
  EXPECT_FALSE(space.may_take(taker, taker, false) && space.may_take(shared, taker, false))
      << "a pool without extents has none to give";
}

TEST(Space, CompactionKeepsFloorsUntilTheLastResort) {
  Space space = space_of(2);
  const PoolId owner = space.add_pool({1024, 5});
  const PoolId taker = space.add_pool({4096, 0});
  const std::vector<SlotId> slots = take_many(space, owner, 8);
  for (const std::size_t i : {0U, 1U, 2U, 4U}) space.release(owner, slots[i]);
  EXPECT_EQ(space.plan_compaction(taker, 4096, kAnyMoves), std::nullopt);
  EXPECT_TRUE(space.plan_compaction(taker, 4096, kAnyMoves, true));
}

TEST(Space, APoolThatLostAnExtentMayNotTakeOneBackForAWhile) {
  Space space = space_of(4, 4096, 3);
  const PoolId loser = space.add_pool({4096, 1});
  const PoolId winner = space.add_pool({4096, 0});
  const std::vector<SlotId> slots = take_many(space, loser, 3);
  ASSERT_TRUE(space.allocate(winner));
  space.release(loser, slots[0]);
  ASSERT_EQ(space.allocate(loser), slots[0]);
  EXPECT_TRUE(space.may_take(loser, winner, false)) << "its own extent used again is no loss";
  space.release(loser, slots[0]);
  const SlotId taken = take(space, winner);
  EXPECT_FALSE(space.may_take(loser, winner, false));
  EXPECT_TRUE(space.may_take(loser, winner, true));
  EXPECT_TRUE(space.may_take(winner, loser, false)) << "the rule binds only who lost";
  for (int i = 0; i < 2; ++i) {
    space.release(winner, taken);
    ASSERT_TRUE(space.allocate(winner));
    EXPECT_FALSE(space.may_take(loser, winner, false));
  }
  space.release(winner, taken);
  ASSERT_TRUE(space.allocate(winner));
  EXPECT_TRUE(space.may_take(loser, winner, false)) << "three allocations later";
}

TEST(Space, BelowItsFloorAPoolMayTakeBackAtOnce) {
  Space space = space_of(2, 4096, 1000);
  const PoolId loser = space.add_pool({4096, 1});
  const PoolId winner = space.add_pool({4096, 0});
  const SlotId slot = take(space, loser);
  ASSERT_TRUE(space.allocate(winner));
  space.release(loser, slot);
  ASSERT_TRUE(space.allocate(winner));
  EXPECT_TRUE(space.may_take(loser, winner, false));
}

TEST(Space, CostsNothingForExtentsNeverTouchedAndReachesPastFourGiB) {
  Space space(SpaceOptions{2ULL << 20, 3'000'000'000ULL, 64});  // 6 PB
  const PoolId page = space.add_pool({12'583'040, 0});          // 12 MiB and a header: seven extents
  EXPECT_EQ(space.extents_free(), 3'000'000'000ULL);
  const std::vector<SlotId> slots = take_many(space, page, 1000);
  const auto spans = space.spans(page, slots.back());
  ASSERT_EQ(spans.size(), 1U) << "fresh extents are adjacent";
  EXPECT_EQ(spans[0].offset, 999ULL * 7 * (2 << 20));
  EXPECT_GT(spans[0].offset, 1ULL << 32);
  EXPECT_EQ(spans[0].length, 12'583'040U);
  for (const SlotId slot : slots) space.release(page, slot);
  EXPECT_EQ(space.bytes_owned(), 0U);
}

TEST(Space, AMillionExtentsInUseAreFine) {
  constexpr std::uint64_t kRecords = 160'000;
  Space space(SpaceOptions{2ULL << 20, kRecords * 7 + 1, 64});
  const PoolId page = space.add_pool({12'583'040, 0});
  const PoolId snapshot = space.add_pool({300ULL << 20, 1});
  for (std::uint64_t i = 0; i < kRecords; ++i) ASSERT_TRUE(space.allocate(page));
  EXPECT_EQ(space.allocate(page), std::nullopt);
  EXPECT_EQ(space.extents_missing(snapshot), 149U);
  for (std::uint32_t i = 0; i < 22; ++i) space.release(page, SlotId(i * 7001));
  const auto slot = take(space, snapshot);
  EXPECT_EQ(space.spans(snapshot, slot).size(), 22U);
  EXPECT_EQ(space.inconsistency(), std::nullopt);
}

// Everything that is stored, by where it lies: overlaps show at once.
class Model {
 public:
  struct Record {
    PoolId pool;
    SlotId slot;
    std::vector<ArenaSpan> spans;
    bool leased = false;
  };

  void add(const Space& space, PoolId pool, SlotId slot, std::uint64_t slot_bytes,
           std::uint64_t arena_bytes) {
    Record record{pool, slot, space.spans(pool, slot), false};
    std::uint64_t total = 0;
    for (const ArenaSpan& span : record.spans) {
      total += span.length;
      ASSERT_LE(span.offset + span.length, arena_bytes);
      const auto after = taken_.lower_bound(span.offset);
      ASSERT_TRUE(after == taken_.end() || span.offset + span.length <= after->first) << "overlap";
      ASSERT_TRUE(after == taken_.begin() ||
                  std::prev(after)->first + std::prev(after)->second <= span.offset)
          << "overlap";
      taken_.emplace(span.offset, span.length);
    }
    ASSERT_EQ(total, slot_bytes);
    bytes_ += total;
    ASSERT_TRUE(records_.emplace(std::pair(pool, slot), record).second) << "slot handed out twice";
  }
  void remove(PoolId pool, SlotId slot) {
    const auto found = records_.find({pool, slot});
    ASSERT_NE(found, records_.end());
    for (const ArenaSpan& span : found->second.spans) {
      taken_.erase(span.offset);
      bytes_ -= span.length;
    }
    records_.erase(found);
  }
  bool leased(PoolId pool, SlotId slot) const { return records_.at({pool, slot}).leased; }
  // Agrees with `space` in everything that both know.
  void check(const Space& space, std::uint64_t extent_bytes) const {
    ASSERT_EQ(space.inconsistency(), std::nullopt);
    std::set<std::uint64_t> extents;
    for (const auto& [offset, length] : taken_)
      for (std::uint64_t e = offset / extent_bytes; e <= (offset + length - 1) / extent_bytes; ++e)
        extents.insert(e);
    ASSERT_EQ(space.bytes_owned(), extents.size() * extent_bytes);
    ASSERT_EQ(space.extents_free(), space.extents_total() - extents.size());
    ASSERT_EQ(space.fragmentation_bytes(), extents.size() * extent_bytes - bytes_);
    const auto used = space.slots_in_use();
    ASSERT_EQ(used.size(), records_.size());
    for (const auto& slot : used) ASSERT_TRUE(records_.contains(slot));
  }
  std::map<std::pair<PoolId, SlotId>, Record>& records() { return records_; }

 private:
  std::map<std::pair<PoolId, SlotId>, Record> records_;
  std::map<std::uint64_t, std::uint64_t> taken_;
  std::uint64_t bytes_ = 0;
};

// The owner's loop of space.h with random victims.
class Driver {
 public:
  explicit Driver(std::uint64_t seed) : prng_(seed) {
    const std::uint64_t pools = 1 + prng_.below(4);
    for (std::uint64_t i = 0; i < pools; ++i) {
      const std::uint64_t slot_bytes =
          prng_.chance(0.4) ? 1 + prng_.below(5 * kExtentBytes) : 1 + prng_.below(kExtentBytes / 2);
      pools_.push_back(space_.add_pool({slot_bytes, prng_.below(4)}));
      slot_bytes_.push_back(slot_bytes);
    }
  }
  void step(bool with_leases) {
    const std::uint64_t i = prng_.below(pools_.size());
    if (prng_.chance(0.2) && !model_.records().empty()) {
      if (auto* record = pick([](const Model::Record& r) { return !r.leased; })) evict(*record);
    } else if (prng_.chance(0.1) && with_leases && !model_.records().empty()) {
      auto* record = pick([](const Model::Record&) { return true; });
      record->leased = !record->leased;
    } else {
      store(i, with_leases);
    }
    model_.check(space_, kExtentBytes);
  }
  void release_all() {
    while (!model_.records().empty()) evict(model_.records().begin()->second);
    EXPECT_EQ(space_.extents_free(), space_.extents_total());
    EXPECT_EQ(space_.fragmentation_bytes(), 0U);
    for (const PoolId pool : pools_) space_.remove_pool(pool);
    EXPECT_EQ(space_.inconsistency(), std::nullopt);
  }
  std::uint64_t stored = 0, evicted = 0, moved = 0, refused = 0, last_resorts = 0;

 private:
  static constexpr std::uint64_t kExtentBytes = 256;

  void store(std::uint64_t i, bool with_leases) {
    const PoolId pool = pools_[i];
    if (!space_.fits_alone(pool)) {
      ASSERT_EQ(space_.allocate(pool), std::nullopt);
      return;
    }
    make_room(pool);
    const bool expected = space_.extents_missing(pool) == 0;
    const std::optional<SlotId> slot = space_.allocate(pool);
    ASSERT_EQ(slot.has_value(), expected);
    if (!slot) {
      ASSERT_TRUE(with_leases) << "without leases every record that fits alone can be stored";
      ++refused;
      return;
    }
    ++stored;
    model_.add(space_, pool, *slot, slot_bytes_[i], space_.extents_total() * kExtentBytes);
  }
  void make_room(PoolId pool) {
    for (const bool last_resort : {false, true})
      while (space_.extents_missing(pool) > 0) {
        if (compact(pool, last_resort)) continue;
        const auto* victim = pick(
            [&](const Model::Record& r) { return !r.leased && space_.may_take(pool, r.pool, last_resort); });
        if (victim == nullptr) break;
        evict(*victim);
        last_resorts += last_resort ? 1 : 0;
      }
  }
  bool compact(PoolId pool, bool last_resort) {
    const std::uint64_t free_before = space_.extents_free();
    const auto moves = space_.plan_compaction(
        pool, kExtentBytes, [&](PoolId p, SlotId s) { return !model_.leased(p, s); }, last_resort);
    if (!moves) return false;
    for (const Move& move : *moves) {
      EXPECT_NE(move.pool, pool);
      EXPECT_FALSE(model_.leased(move.pool, move.from)) << "a leased record stays where it is";
      model_.add(space_, move.pool, move.to, slot_bytes_[move.pool.value()],
                 space_.extents_total() * kExtentBytes);
    }
    EXPECT_EQ(space_.extents_free(), free_before) << "targets come from the pool's own free slots";
    for (const Move& move : *moves) {
      model_.remove(move.pool, move.from);
      space_.release(move.pool, move.from);
      ++moved;
    }
    EXPECT_EQ(space_.extents_free(), free_before + 1) << "a plan really empties an extent";
    return true;
  }
  void evict(const Model::Record& record) {
    const auto [pool, slot] = std::pair(record.pool, record.slot);
    model_.remove(pool, slot);
    space_.release(pool, slot);
    ++evicted;
  }
  template <typename Wanted>
  Model::Record* pick(const Wanted& wanted) {
    auto& records = model_.records();
    if (records.empty()) return nullptr;
    auto from = std::next(records.begin(), static_cast<std::ptrdiff_t>(prng_.below(records.size())));
    for (std::size_t i = 0; i < records.size(); ++i, ++from) {
      if (from == records.end()) from = records.begin();
      if (wanted(from->second)) return &from->second;
    }
    return nullptr;
  }

  Prng prng_;
  Space space_{SpaceOptions{kExtentBytes, 1 + prng_.below(12), prng_.below(20)}};
  Model model_;
  std::vector<PoolId> pools_;
  std::vector<std::uint64_t> slot_bytes_;
};

TEST(Space, WithoutLeasesEveryRecordThatFitsAloneCanAlwaysBeStored) {
  std::uint64_t stored = 0, moved = 0, last_resorts = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Driver driver(seed);
    for (int i = 0; i < 150 && !testing::Test::HasFatalFailure(); ++i) driver.step(false);
    driver.release_all();
    stored += driver.stored;
    moved += driver.moved;
    last_resorts += driver.last_resorts;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(stored, 10'000U);
  EXPECT_GT(moved, 1'000U) << "compaction was reached";
  EXPECT_GT(last_resorts, 100U) << "the last resort was reached";
}

TEST(Space, WithLeasesNothingLeasedMovesAndAccountsStayExact) {
  std::uint64_t refused = 0, moved = 0;
  for (std::uint64_t seed = 1000; seed < 1300; ++seed) {
    SCOPED_TRACE(seed);
    Driver driver(seed);
    for (int i = 0; i < 150 && !testing::Test::HasFatalFailure(); ++i) driver.step(true);
    driver.release_all();
    refused += driver.refused;
    moved += driver.moved;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(refused, 100U);
  EXPECT_GT(moved, 100U);
}

}  // namespace
}  // namespace tiercel
