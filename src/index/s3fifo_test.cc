#include "index/s3fifo.h"

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "index/policy_crowd.h"
#include "index/s3fifo_model.h"
#include "index/test_flat.h"

namespace tiercel {
namespace {

// The publication's algorithm as it stands there, for items of one unit: front = tail of the queue.
class NaiveS3Fifo final {
 public:
  explicit NaiveS3Fifo(std::size_t capacity)
      : capacity_(capacity), small_share_(std::max<std::size_t>(capacity / 10, 1)) {}

  std::optional<std::uint64_t> use(std::uint64_t item) {
    if (const auto found = uses_.find(item); found != uses_.end()) {
      found->second = std::min(found->second + 1, 3);
      return std::nullopt;
    }
    std::optional<std::uint64_t> gone;
    if (small_.size() + main_.size() == capacity_) gone = evict();
    const auto ghost = std::find(ghosts_.begin(), ghosts_.end(), item);
    (ghost == ghosts_.end() ? small_ : main_).push_back(item);
    if (ghost != ghosts_.end()) ghosts_.erase(ghost);
    uses_[item] = 0;
    return gone;
  }

 private:
  std::uint64_t evict() {
    while (small_.size() >= small_share_) {
      const std::uint64_t tail = small_.front();
      small_.pop_front();
      if (uses_.at(tail) > 1) {
        uses_.at(tail) = 0;
        main_.push_back(tail);
        if (main_.size() > capacity_ - small_share_) break;
        continue;
      }
      ghosts_.push_back(tail);
      if (ghosts_.size() > capacity_ - small_share_) ghosts_.pop_front();
      uses_.erase(tail);
      return tail;
    }
    while (uses_.at(main_.front()) > 0) {
      --uses_.at(main_.front());
      main_.push_back(main_.front());
      main_.pop_front();
    }
    const std::uint64_t tail = main_.front();
    main_.pop_front();
    uses_.erase(tail);
    return tail;
  }

  std::size_t capacity_;
  std::size_t small_share_;
  std::deque<std::uint64_t> small_;
  std::deque<std::uint64_t> main_;
  std::deque<std::uint64_t> ghosts_;
  std::map<std::uint64_t, int> uses_;
};

TEST(S3Fifo, GivesTheSameVictimsAsThePublicationOnFlatWorkloads) {
  std::uint64_t evictions = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Prng prng(seed);
    const std::uint64_t capacity = prng.between(2, 80);
    const std::uint64_t items = capacity * prng.between(2, 6);
    S3FifoPolicy policy({capacity, false, seed});
    FlatCache cache(policy, capacity);
    NaiveS3Fifo naive(capacity);
    for (int i = 0; i < 4000; ++i) {
      const std::uint64_t item = skewed(prng, items);
      ASSERT_EQ(cache.use(item), naive.use(item)) << "seed " << seed << " use " << i;
    }
    evictions += cache.evictions();
    EXPECT_LE(policy.visited(), cache.evictions() + cache.hits()) << "an answer, or paid for by a hit";
  }
  EXPECT_GT(evictions, 50'000u);
}

TEST(S3Fifo, IgnoresAScanThatLruWouldFollow) {
  constexpr std::uint64_t kCapacity = 100;
  S3FifoPolicy policy({kCapacity, false, 1});
  FlatCache cache(policy, kCapacity);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t item = 0; item < 50; ++item) cache.use(item);
  }
  for (std::uint64_t item = 1000; item < 2000; ++item) cache.use(item);
  const std::uint64_t before = cache.hits();
  for (std::uint64_t item = 0; item < 50; ++item) cache.use(item);
  EXPECT_EQ(cache.hits() - before, 50u);
}

const auto kAll = [](CandidateId) { return true; };

void store(EvictionPolicy& policy, std::uint64_t id, CandidateKind kind, std::uint64_t key,
           std::uint64_t bytes, bool evictable = true) {
  policy.stored({candidate_id(id), kind, Key{{key, key}}, bytes, 1, candidate_id(id), std::nullopt},
                {id, Time{0}});
  if (evictable) policy.set_evictable(candidate_id(id), true);
}

TEST(S3Fifo, APointAndAPageOfOneKeyAreRememberedApart) {
  S3FifoPolicy policy({10, false, 1});
  store(policy, 1, CandidateKind::kPage, 77, 1);
  policy.departed(candidate_id(1), Departure::kEvicted);
  store(policy, 2, CandidateKind::kPoint, 77, 1);  // not remembered: small queue
  store(policy, 3, CandidateKind::kPage, 77, 1);   // remembered: main queue
  EXPECT_EQ(policy.victim({9, Time{0}}, kAll), candidate_id(2));
}

TEST(S3Fifo, WhatWasRemovedIsNotRemembered) {
  S3FifoPolicy policy({10, false, 1});
  store(policy, 1, CandidateKind::kPage, 77, 1);
  policy.departed(candidate_id(1), Departure::kRemoved);
  store(policy, 2, CandidateKind::kPage, 77, 1);
  store(policy, 3, CandidateKind::kPage, 78, 1);
  EXPECT_EQ(policy.victim({9, Time{0}}, kAll), candidate_id(2));
}

TEST(S3Fifo, UsesByOneRequestCountOnce) {
  S3FifoPolicy policy({10, false, 1});
  store(policy, 1, CandidateKind::kPage, 1, 1);
  store(policy, 2, CandidateKind::kPage, 2, 1);
  for (int i = 0; i < 5; ++i) policy.touched(candidate_id(1), {7, Time{0}});
  EXPECT_EQ(policy.victim({9, Time{0}}, kAll), candidate_id(1));
  policy.touched(candidate_id(1), {8, Time{0}});
  EXPECT_EQ(policy.victim({9, Time{0}}, kAll), candidate_id(2));
}

TEST(S3Fifo, CountsTheSmallQueueInBytesWhenTheCapacityIsInBytes) {
  S3FifoPolicy policy({1000, true, 1});
  // A main queue of one: used twice while it was in the small one.
  store(policy, 1, CandidateKind::kPage, 1, 900);
  policy.touched(candidate_id(1), {2, Time{0}});
  policy.touched(candidate_id(1), {3, Time{0}});
  store(policy, 4, CandidateKind::kPage, 4, 99);
  EXPECT_EQ(policy.victim({5, Time{0}}, kAll), candidate_id(1));  // small holds 99 of its 100 bytes
  policy.resized(candidate_id(4), 100);
  EXPECT_EQ(policy.victim({5, Time{0}}, kAll), candidate_id(4));
}

TEST(S3Fifo, AnInnerPageThatEarnedTheMainQueueLeavesTheSmallOneAlthoughItMayNotGo) {
  S3FifoPolicy policy({20, false, 1});
  store(policy, 1, CandidateKind::kPage, 9, 1);
  policy.departed(candidate_id(1), Departure::kEvicted);
  store(policy, 2, CandidateKind::kPage, 9, 1);  // remembered: in main
  store(policy, 3, CandidateKind::kPage, 3, 1, false);
  store(policy, 4, CandidateKind::kPage, 4, 1);
  EXPECT_EQ(policy.victim({5, Time{0}}, kAll), candidate_id(4));  // small holds its share of two
  policy.touched(candidate_id(3), {6, Time{0}});
  policy.touched(candidate_id(3), {7, Time{0}});
  EXPECT_EQ(policy.victim({8, Time{0}}, kAll), candidate_id(2));  // 3 has left it
  policy.set_evictable(candidate_id(3), true);
  policy.departed(candidate_id(2), Departure::kEvicted);
  EXPECT_EQ(policy.victim({9, Time{0}}, kAll), candidate_id(3));
}

TEST(S3Fifo, GivesEveryAnswerOfOrderedMapsWhateverItIsTold) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    // Unlimited, one, a few, many units; pages and bytes.
    const std::uint64_t capacity = std::vector<std::uint64_t>{0, 1, 20, 500, 100'000}[seed % 5];
    S3FifoPolicy policy({capacity, seed % 3 == 0, seed});
    ModelS3Fifo model({capacity, seed % 3 == 0, seed});
    Crowd one(policy, seed);
    Crowd two(model, seed);
    for (int i = 0; i < 10'000; ++i) {
      one.step();
      two.step();
      const auto id = one.ask();
      ASSERT_EQ(id, two.ask()) << "seed " << seed << " step " << i;
      if (!id || i % 8 != 0) continue;
      one.depart(*id, Departure::kEvicted);
      two.depart(*id, Departure::kEvicted);
    }
  }
}

// ---- what it stands on ----

TEST(GhostList, KeepsTheYoungestNamesWithinItsLimit) {
  GhostList ghosts;
  std::list<std::pair<std::uint64_t, std::uint64_t>> naive;  // name, units
  std::uint64_t units = 0;
  Prng prng(5);
  const auto name = [](std::uint64_t n) {
    return CandidateName{Key{{n / 3, n}}, n % 3 == 0 ? CandidateKind::kPage : CandidateKind::kPoint};
  };
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t n = prng.below(3000);
    const auto known =
        std::find_if(naive.begin(), naive.end(), [&](const auto& each) { return each.first == n; });
    const bool is_known = known != naive.end();
    if (is_known) {
      units -= known->second;
      naive.erase(known);
    }
    if (prng.chance(0.4)) {
      ASSERT_EQ(ghosts.forget(name(n)), is_known);
    } else {
      const std::uint64_t own = 1 + prng.below(9);
      const std::uint64_t limit = i / 1000 % 2 == 0 ? 2000 : 200;
      ghosts.remember(name(n), own, limit);
      naive.emplace_back(n, own);
      for (units += own; units > limit; naive.pop_front()) units -= naive.front().second;
    }
    ASSERT_EQ(ghosts.units(), units);
  }
  EXPECT_LT(ghosts.looked_at(), 10 * 200'000u) << "places of its table";
}

TEST(NumberSet, FindsTheNextOneAsAnOrderedSetDoes) {
  Prng prng(6);
  for (const std::uint64_t size : {1U, 64U, 65U, 4096U, 4097U, 300'000U}) {
    NumberSet numbers;
    numbers.reset(size / 2 + 1);
    std::set<std::uint64_t> naive;
    for (int i = 0; i < 20'000; ++i) {
      if (i == 10'000) numbers.grow(size);
      const std::uint64_t number = prng.below(i < 10'000 ? size / 2 + 1 : size);
      if (prng.chance(i / 1000 % 2 == 0 ? 0.9 : 0.1)) {
        numbers.insert(number);
        naive.insert(number);
      } else {
        numbers.erase(number);
        naive.erase(number);
      }
      const std::uint64_t from = prng.below(size + 2);
      const auto next = naive.lower_bound(from);
      ASSERT_EQ(numbers.next(from), next == naive.end() ? NumberSet::kNone : *next) << size << " " << from;
      ASSERT_EQ(numbers.contains(number), naive.contains(number));
    }
  }
}

TEST(MarkedFifo, MovesAtMostOneEntryACallAndKeepsTheirOrder) {
  MarkedFifo queue;
  std::vector<std::uint32_t> places(1000);
  std::list<CandidateSlots::Slot> naive;
  Prng prng(7);
  std::uint64_t moved = 0;
  std::uint64_t pushed = 0;
  const auto push = [&](CandidateSlots::Slot slot) {
    places[slot] = queue.push(slot, [&](CandidateSlots::Slot each, std::uint32_t place) {
      places[each] = place;
      ++moved;
    });
    queue.mark(places[slot], slot % 2 == 0);
    naive.push_back(slot);
    ++pushed;
  };
  for (CandidateSlots::Slot slot = 0; slot < 1000; ++slot) push(slot);
  for (int i = 0; i < 100'000; ++i) {
    const auto slot = static_cast<CandidateSlots::Slot>(i < 50'000 ? prng.below(1000) : naive.front());
    queue.remove(places[slot]);
    naive.remove(slot);
    push(slot);
  }
  EXPECT_LE(moved, pushed);
  std::uint64_t at = queue.next(0);
  for (const CandidateSlots::Slot slot : naive) {
    if (slot % 2 != 0) continue;
    ASSERT_EQ(queue.at(at), slot);
    at = queue.next(at + 1);
  }
  EXPECT_EQ(at, MarkedFifo::kNone);
}

}  // namespace
}  // namespace tiercel
