#include "index/s3fifo.h"

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tiercel
