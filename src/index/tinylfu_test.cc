#include "index/tinylfu.h"

#include <algorithm>
#include <list>
#include <map>

#include <gtest/gtest.h>

#include "index/test_flat.h"

namespace tiercel {
namespace {

// The publication's cache for items of one unit, front = oldest, with exact counts in place of the sketch.
class NaiveTinyLfu final {
 public:
  explicit NaiveTinyLfu(std::size_t capacity)
      : capacity_(capacity), window_max_(std::max<std::size_t>(capacity / 100, 1)) {}

  std::optional<std::uint64_t> use(std::uint64_t item) {
    const bool in_window = contains(window_, item);
    const bool in_main = contains(probation_, item) || contains(protected_, item);
    if (in_window) {
      window_.remove(item);
      window_.push_back(item);
    }
    if (in_main) {
      probation_.remove(item);
      protected_.remove(item);
      protected_.push_back(item);
      if (protected_.size() > (capacity_ - window_max_) * 4 / 5) move_front(protected_, probation_);
    }
    std::optional<std::uint64_t> gone;
    if (!in_window && !in_main) gone = insert(item);
    count(item);
    return gone;
  }

 private:
  using Lru = std::list<std::uint64_t>;

  static bool contains(const Lru& lru, std::uint64_t item) {
    return std::find(lru.begin(), lru.end(), item) != lru.end();
  }
  static void move_front(Lru& from, Lru& to) {
    to.push_back(from.front());
    from.pop_front();
  }

  // New into the window; what the window drops enters the main cache or competes with its victim.
  std::optional<std::uint64_t> insert(std::uint64_t item) {
    window_.push_back(item);
    if (window_.size() <= window_max_) return trim();
    if (probation_.size() + protected_.size() < capacity_ - window_max_) {
      move_front(window_, probation_);
      return std::nullopt;
    }
    Lru& main = probation_.empty() ? protected_ : probation_;
    const std::uint64_t newcomer = window_.front();
    window_.pop_front();
    if (counts_[newcomer] <= counts_[main.front()]) return newcomer;
    const std::uint64_t gone = main.front();
    main.pop_front();
    probation_.push_back(newcomer);
    return gone;
  }

  std::optional<std::uint64_t> trim() {
    if (window_.size() + probation_.size() + protected_.size() <= capacity_) return std::nullopt;
    Lru& main = probation_.empty() ? protected_ : probation_;
    const std::uint64_t gone = main.front();
    main.pop_front();
    return gone;
  }

  void count(std::uint64_t item) {
    counts_[item] = std::min(counts_[item] + 1, 15u);
    if (++additions_ < 10 * capacity_) return;
    additions_ /= 2;
    for (auto& each : counts_) each.second /= 2;
  }

  std::size_t capacity_;
  std::size_t window_max_;
  Lru window_;
  Lru probation_;
  Lru protected_;
  std::map<std::uint64_t, unsigned> counts_;
  std::uint64_t additions_ = 0;
};

TEST(TinyLfu, GivesTheSameVictimsAsThePublicationOnFlatWorkloads) {
  std::uint64_t evictions = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Prng prng(seed);
    // Few items beside the sketch's 4,096 counters a row: its counts are exact.
    const std::uint64_t capacity = seed % 10 == 0 ? prng.between(200, 300) : prng.between(3, 60);
    const std::uint64_t items = capacity + (seed % 10 == 0 ? 40 : 60);
    TinyLfuPolicy policy({capacity, false, seed});
    FlatCache cache(policy, capacity);
    NaiveTinyLfu naive(capacity);
    for (int i = 0; i < 4000; ++i) {
      // The start is hot: what is counted while the cache fills must not fade by a smaller period.
      const std::uint64_t item = i < 25 ? prng.below(2) : skewed(prng, items);
      ASSERT_EQ(cache.use(item), naive.use(item)) << "seed " << seed << " use " << i;
    }
    evictions += cache.evictions();
    EXPECT_LE(policy.visited(), 2 * cache.evictions());
  }
  EXPECT_GT(evictions, 40'000u);
}

TEST(TinyLfu, AdmitsNothingOfAScanOverWhatIsUsedMore) {
  constexpr std::uint64_t kCapacity = 100;
  TinyLfuPolicy policy({kCapacity, false, 1});
  FlatCache cache(policy, kCapacity);
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t item = 0; item < 99; ++item) cache.use(item);
  }
  for (std::uint64_t item = 1000; item < 1400; ++item) cache.use(item);
  const std::uint64_t before = cache.hits();
  for (std::uint64_t item = 0; item < 98; ++item) cache.use(item);
  EXPECT_EQ(cache.hits() - before, 98u);
}

TEST(TinyLfu, UsesByOneRequestCountOnce) {
  TinyLfuPolicy policy({3, false, 1});
  FlatCache cache(policy, 3);
  for (std::uint64_t item : {1u, 2u, 3u}) cache.use(item);  // probation 1, 2; window 3
  for (int i = 0; i < 5; ++i) policy.touched(candidate_id(3), {3, Time{0}});
  EXPECT_EQ(cache.use(4), 3u);  // a tie with 1 all the same
}

const auto kAll = [](CandidateId) { return true; };

void store(EvictionPolicy& policy, std::uint64_t id, std::uint64_t bytes, bool evictable = true) {
  policy.stored(
      {candidate_id(id), CandidateKind::kPage, Key{{id, id}}, bytes, 1, candidate_id(id), std::nullopt},
      {id, Time{0}});
  if (evictable) policy.set_evictable(candidate_id(id), true);
}

TEST(TinyLfu, WhatMayNotGoLeavesTheWindowWithoutAContest) {
  TinyLfuPolicy policy({3, false, 1});
  for (const std::uint64_t id : {1u, 2u}) store(policy, id, 1);
  store(policy, 3, 1, false);
  store(policy, 4, 1);  // main is full with 1 and 2; the window holds 3 and 4
  EXPECT_EQ(policy.victim({5, Time{0}}, kAll), candidate_id(4));
  policy.departed(candidate_id(4), Departure::kEvicted);
  policy.set_evictable(candidate_id(3), true);
  EXPECT_EQ(policy.victim({6, Time{0}}, kAll), candidate_id(1));  // 3 is behind it in probation
}

TEST(TinyLfu, CountsTheWindowInBytesWhenTheCapacityIsInBytes) {
  TinyLfuPolicy policy({1000, true, 1});
  store(policy, 1, 10);
  store(policy, 2, 990);  // main, at most 990, has room for 1 only
  EXPECT_EQ(policy.victim({3, Time{0}}, kAll), candidate_id(2));
  policy.resized(candidate_id(2), 9);  // the window's share is 10: it competes no more
  EXPECT_EQ(policy.victim({3, Time{0}}, kAll), candidate_id(1));
}

TEST(FrequencySketch, CountsExactlyAndStopsAtFifteen) {
  FrequencySketch sketch(1);
  sketch.cover(100);
  for (unsigned n = 1; n <= 40; ++n) {
    sketch.add(mix64(5));
    EXPECT_EQ(sketch.estimate(mix64(5)), std::min(n, 15u));
  }
  EXPECT_EQ(sketch.estimate(mix64(6)), 0u);
}

TEST(FrequencySketch, HalvesAfterTenUsesAnEntry) {
  FrequencySketch sketch(1);
  sketch.cover(4);
  for (int i = 0; i < 9; ++i) sketch.add(mix64(1));
  for (int i = 0; i < 30; ++i) sketch.add(mix64(2));
  EXPECT_EQ(sketch.estimate(mix64(1)), 9u);
  sketch.add(mix64(3));  // the fortieth
  EXPECT_EQ(sketch.estimate(mix64(1)), 4u);
  EXPECT_EQ(sketch.estimate(mix64(2)), 7u);
  EXPECT_EQ(sketch.estimate(mix64(3)), 0u);
  for (int i = 0; i < 19; ++i) sketch.add(mix64(4));
  EXPECT_EQ(sketch.estimate(mix64(2)), 7u);
  sketch.add(mix64(4));  // the twentieth since
  EXPECT_EQ(sketch.estimate(mix64(2)), 3u);
}

TEST(FrequencySketch, IsNeverTooLowWhileItGrowsAndSeldomTooHigh) {
  FrequencySketch sketch(3);
  Prng prng(4);
  std::map<std::uint64_t, unsigned> exact;
  std::uint64_t too_high = 0;
  for (std::uint64_t n = 1; n <= 20'000; ++n) {
    sketch.cover(n);
    const std::uint64_t item = prng.below(n);
    sketch.add(mix64(item));
    exact[item] = std::min(exact[item] + 1, 15u);
  }
  for (const auto& [item, uses] : exact) {
    ASSERT_GE(sketch.estimate(mix64(item)), uses);
    too_high += sketch.estimate(mix64(item)) > uses ? 1u : 0u;
  }
  EXPECT_LT(too_high, exact.size() / 20);
}

}  // namespace
}  // namespace tiercel
