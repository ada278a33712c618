#include "index/lru.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "index/lru_model.h"
#include "index/test_tree.h"

namespace tiercel {
namespace {

// The definition, at the cost of a walk: a list of pages, oldest first.
class NaiveLru final {
 public:
  explicit NaiveLru(std::size_t capacity) : capacity_(capacity) {}

  std::vector<std::string> request(const std::string& path) {
    std::vector<std::string> own;  // deepest first
    std::size_t fresh = 0;
    for (std::size_t length = path.size(); length > 0; --length) {
      own.push_back(path.substr(0, length));
      const auto at = std::find(pages_.begin(), pages_.end(), own.back());
      if (at == pages_.end()) ++fresh;
      if (at != pages_.end()) pages_.erase(at);
    }
    const std::size_t known = own.size() - fresh;
    std::vector<std::string> victims;
    while (pages_.size() + own.size() > capacity_ && !pages_.empty()) {
      const auto leaf = std::find_if(pages_.begin(), pages_.end(), [&](const std::string& page) {
        const auto child = [&](const std::string& other) {
          return other.size() == page.size() + 1 && other.starts_with(page);
        };
        return std::none_of(pages_.begin(), pages_.end(), child) &&
               std::none_of(own.end() - static_cast<std::ptrdiff_t>(known), own.end(), child);
      });
      if (leaf == pages_.end()) break;
      victims.push_back(*leaf);
      pages_.erase(leaf);
    }
    while (pages_.size() + own.size() > capacity_) own.erase(own.begin());
    pages_.insert(pages_.end(), own.begin(), own.end());
    return victims;
  }

 private:
  std::size_t capacity_;
  std::vector<std::string> pages_;
};

RC_GTEST_PROP(Lru, GivesTheSameVictimsAsAListOfPages, ()) {
  const auto capacity = *rc::gen::inRange<std::size_t>(1, 12);
  const auto page = rc::gen::elementOf(std::string("abc"));
  const auto path = rc::gen::suchThat(rc::gen::resize(6, rc::gen::container<std::string>(page)),
                                      [](const std::string& name) { return !name.empty(); });
  const auto paths = *rc::gen::resize(80, rc::gen::container<std::vector<std::string>>(path));
  LruPolicy policy;
  TestTree tree(policy, capacity);
  NaiveLru naive(capacity);
  for (const std::string& each : paths) RC_ASSERT(tree.request(each) == naive.request(each));
}

Candidate page_of(std::uint64_t id, std::uint64_t length) {
  return {candidate_id(id), CandidateKind::kPage, Key{{id, 0}}, 1, length, candidate_id(id), std::nullopt};
}

std::vector<std::uint64_t> drain(EvictionPolicy& policy) {
  std::vector<std::uint64_t> order;
  while (const auto id = policy.victim({}, [](CandidateId) { return true; })) {
    order.push_back(page_number(*id));
    policy.departed(*id, Departure::kEvicted);
  }
  return order;
}

TEST(Lru, TheFirstPageOfARequestIsTheMostRecentOfAllInWhateverOrderItWasTold) {
  LruPolicy policy;
  for (const std::uint64_t id : {2u, 4u, 1u, 3u}) {
    policy.stored(page_of(id, id), {1, Time{0}});
    policy.set_evictable(candidate_id(id), true);
  }
  for (const std::uint64_t id : {1u, 2u}) policy.touched(candidate_id(id), {2, Time{0}});
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{4, 3, 2, 1}));
}

TEST(Lru, APageThatMayGoAgainHasThePlaceOfItsLastUse) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    policy.stored(page_of(id, 1), {id, Time{0}});
    if (id != 2) policy.set_evictable(candidate_id(id), true);
  }
  policy.touched(candidate_id(1), {5, Time{0}});
  policy.set_evictable(candidate_id(2), true);
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{2, 3, 4, 1}));
}

TEST(Lru, PassingOverAPageLeavesItTheNextOne) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    policy.stored(page_of(id, 1), {id, Time{0}});
    policy.set_evictable(candidate_id(id), true);
  }
  EXPECT_EQ(policy.victim({}, [](CandidateId id) { return page_number(id) == 3; }), candidate_id(3));
  EXPECT_EQ(policy.visited(), 1u);
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(Lru, ALateTouchByAnEarlierRequestTakesNothingBack) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    policy.stored(page_of(id, 1), {10 + id, Time{0}});
    policy.set_evictable(candidate_id(id), true);
  }
  policy.touched(candidate_id(2), {5, Time{0}});
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{1, 2}));
}

// Tells a policy and its definition the same story, and compares every answer.
class Twins final {
 public:
  // In what order a request's pages are told, and how late it may come.
  enum class Order { kRootFirst, kLeafFirst, kShuffled, kTwoBranches, kBatchesLeafFirst, kOrders };
  Twins(std::uint64_t seed, Order order, std::uint64_t late_most, double evictable)
      : prng_(seed), order_(order), late_most_(late_most), evictable_(evictable) {}

  // Touches and stores up to `pages` pages with lengths from 1 on. Returns: how many.
  std::uint64_t request(std::uint64_t pages) {
    sequence_ += 1 + prng_.below(3);
    std::uint64_t late = prng_.chance(0.3) ? prng_.below(std::min(late_most_, sequence_) + 1) : 0;
    // Two requests that the ring has one place for.
    if (late > LruPolicy::kRequests && prng_.chance(0.5)) late = LruPolicy::kRequests;
    const Access access{sequence_ - late, Time{0}};
    std::vector<std::uint64_t> numbers = chain(prng_.below(kChains), pages);
    arrange(numbers);
    for (const std::uint64_t number : numbers) use(number, access);
    for (std::uint64_t again = prng_.below(4); again > 0; --again)
      use(numbers[prng_.below(numbers.size())], access);
    return numbers.size();
  }

  void use(std::uint64_t number, const Access& access) {
    ++operations_;
    if (resident_.size() <= number) resident_.resize(number + 1);
    if (resident_[number]) {
      lru_.touched(candidate_id(number), access);
      model_.touched(candidate_id(number), access);
      return;
    }
    resident_[number] = true;
    const Candidate page = page_of(number, 1 + number % kLengths);
    lru_.stored(page, access);
    model_.stored(page, access);
    if (prng_.chance(evictable_)) say(number, true);
  }

  void say(std::uint64_t number, bool evictable) {
    ++operations_;
    lru_.set_evictable(candidate_id(number), evictable);
    model_.set_evictable(candidate_id(number), evictable);
  }

  void change_some() {
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t number = prng_.below(resident_.size());
      if (!resident_[number]) continue;
      if (prng_.chance(0.2)) {
        depart(candidate_id(number));
      } else {
        say(number, prng_.chance(evictable_));
      }
    }
  }

  void depart(CandidateId id) {
    ++operations_;
    resident_[page_number(id)] = false;
    lru_.departed(id, Departure::kEvicted);
    model_.departed(id, Departure::kEvicted);
  }

  // One in `refuse_of` is refused, the same ones by both. False: the answers differ.
  bool ask(bool takes, std::uint64_t refuse_of) {
    ++operations_;
    const std::uint64_t salt = prng_.next();
    const auto eligible = [&](CandidateId id) {
      return refuse_of == 0 || mix64(id.value() ^ salt) % refuse_of != 0;
    };
    const auto answer = lru_.victim({}, eligible);
    if (answer != model_.victim({}, eligible)) return false;
    if (answer && takes) depart(*answer);
    return true;
  }

  bool drain() {
    while (const auto answer = lru_.victim({}, [](CandidateId) { return true; })) {
      if (answer != model_.victim({}, [](CandidateId) { return true; })) return false;
      depart(*answer);
    }
    return !model_.victim({}, [](CandidateId) { return true; });
  }

  void skip(std::uint64_t requests) { sequence_ += requests; }
  std::uint64_t resident() const {
    return static_cast<std::uint64_t>(std::count(resident_.begin(), resident_.end(), true));
  }
  std::uint64_t operations() const { return operations_; }
  LruPolicy& lru() { return lru_; }

 private:
  static constexpr std::uint64_t kChains = 40, kLengths = 64;

  // Pages of a chain that shares its first half with its neighbour.
  std::vector<std::uint64_t> chain(std::uint64_t which, std::uint64_t pages) {
    std::vector<std::uint64_t> numbers;
    for (std::uint64_t i = 0; i < std::min(pages, kLengths); ++i)
      numbers.push_back((i < kLengths / 2 ? which / 2 * 2 : which) * kLengths + i);
    return numbers;
  }

  void arrange(std::vector<std::uint64_t>& numbers) {
    if (order_ == Order::kLeafFirst) std::reverse(numbers.begin(), numbers.end());
    if (order_ == Order::kShuffled) {
      for (std::size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[prng_.below(i)]);
    }
    if (order_ == Order::kTwoBranches) {
      const std::vector<std::uint64_t> other = chain(prng_.below(kChains), numbers.size());
      const std::vector<std::uint64_t> one = std::exchange(numbers, {});
      for (std::size_t i = 0; i < one.size(); ++i) {
        numbers.push_back(one[i]);
        numbers.push_back(other[i]);
      }
    }
    if (order_ == Order::kBatchesLeafFirst) {
      for (auto end = numbers.end(); end - numbers.begin() > 8; end -= 8)
        std::rotate(numbers.begin(), end - 8, end);
    }
  }

  Prng prng_;
  Order order_;
  std::uint64_t late_most_;
  double evictable_;
  LruPolicy lru_;
  ModelLru model_;
  std::vector<bool> resident_;
  std::uint64_t sequence_ = 0;
  std::uint64_t operations_ = 0;
};

TEST(Lru, GivesEveryAnswerOfAnOrderedSetWhateverItIsToldInWhateverOrder) {
  std::uint64_t operations = 0;
  std::uint64_t seed = 0;
  const auto orders = static_cast<int>(Twins::Order::kOrders);
  for (int order = 0; order < orders; ++order) {
    for (const std::uint64_t late : {0U, 5U, 100U, 2 * LruPolicy::kRequests}) {
      for (const double evictable : {0.05, 0.5, 0.95}) {
        Twins twins(++seed, static_cast<Twins::Order>(order), late, evictable);
        Prng prng(seed);
        for (int i = 0; i < 700; ++i) {
          twins.request(1 + prng.below(64));
          if (prng.chance(0.1)) twins.skip(prng.below(LruPolicy::kRequests));
          twins.change_some();
          for (std::uint64_t asks = prng.below(24); asks > 0; --asks) {
            const std::uint64_t refuse_of = std::array<std::uint64_t, 4>{0, 2, 10, 1}[prng.below(4)];
            ASSERT_TRUE(twins.ask(prng.chance(0.9), refuse_of)) << "seed " << seed << " request " << i;
          }
        }
        ASSERT_TRUE(twins.drain()) << "seed " << seed;
        operations += twins.operations();
      }
    }
  }
  EXPECT_GT(operations, 2'000'000u);
}

TEST(Lru, StaysExactWhenSequencesLeave32Bits) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    Twins twins(seed, seed % 2 == 0 ? Twins::Order::kRootFirst : Twins::Order::kTwoBranches, 4, 0.5);
    Prng prng(seed);
    // Nothing is ever 2^31 requests old. The third round goes over the edge.
    const std::uint64_t half = std::uint64_t{1} << 31;
    for (const std::uint64_t skip : {half + 100, half - 700, std::uint64_t{0}, std::uint64_t{0}}) {
      twins.skip(skip);
      for (int i = 0; i < 100; ++i) {
        twins.request(1 + prng.below(64));
        twins.change_some();
        for (int asks = 0; asks < 10; ++asks) ASSERT_TRUE(twins.ask(prng.chance(0.5), 1 + prng.below(3)));
      }
    }
    EXPECT_TRUE(twins.drain());
  }
}

TEST(Lru, PagesThatAreAllTooOldToTellKeepTheirOrder) {
  LruPolicy policy;
  const std::vector<std::uint64_t> lengths = {0, 6, 5, 1, 3, 4, 2};
  for (std::uint64_t number = 1; number <= 6; ++number) {
    policy.stored(page_of(number, lengths[number]), {number, Time{0}});
    policy.set_evictable(candidate_id(number), number != 2);
  }
  EXPECT_EQ(policy.victim({}, [](CandidateId id) { return id == candidate_id(3); }), candidate_id(3));
  constexpr std::uint64_t kNow = std::uint64_t{1} << 40;
  policy.stored(page_of(7, 1), {kNow, Time{0}});
  policy.set_evictable(candidate_id(7), true);
  policy.touched(candidate_id(4), {9, Time{0}});  // later than its last use, and too late to say
  policy.set_evictable(candidate_id(2), true);    // it was set aside
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{1, 2, 3, 4, 5, 6, 7}));
  for (const std::uint64_t number : {1u, 2u, 3u}) {
    policy.stored(page_of(number, number), {number == 3 ? kNow + 1 : 4 - number, Time{0}});
    policy.set_evictable(candidate_id(number), true);
  }
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{2, 1, 3}));  // equally late: the deeper one first
}

// Stores the pages of one request with lengths from `first` to `last`, numbered by request and length.
void store_chain(LruPolicy& policy, std::uint64_t request, std::uint64_t sequence, std::uint64_t first,
                 std::uint64_t last) {
  for (std::uint64_t length = first; length <= last; ++length) {
    policy.stored(page_of(request * 100 + length, length), {sequence, Time{0}});
    policy.set_evictable(candidate_id(request * 100 + length), true);
  }
}

std::vector<std::uint64_t> deepest_first(std::uint64_t request, std::uint64_t length) {
  std::vector<std::uint64_t> order;
  for (; length > 0; --length) order.push_back(request * 100 + length);
  return order;
}

TEST(Lru, ARequestGoesOnWhereItsPagesAreWhenSequencesHaveLeft32Bits) {
  LruPolicy policy;
  const std::uint64_t edge = std::uint64_t{1} << 32;
  store_chain(policy, 1, edge - 1, 1, 10);
  store_chain(policy, 2, edge + 1, 1, 10);
  store_chain(policy, 1, edge - 1, 11, 20);
  EXPECT_EQ(policy.walked(), 0u);
  std::vector<std::uint64_t> order = deepest_first(1, 20);
  for (const std::uint64_t number : deepest_first(2, 10)) order.push_back(number);
  EXPECT_EQ(drain(policy), order);
}

TEST(Lru, ARequestThatIsVeryLateTakesNoOtherOnesPlaceInTheRing) {
  LruPolicy policy;
  store_chain(policy, 2, 5 + LruPolicy::kRequests, 1, 10);
  store_chain(policy, 1, 5, 1, 1);
  store_chain(policy, 2, 5 + LruPolicy::kRequests, 11, 20);
  store_chain(policy, 1, 5, 2, 10);
  std::vector<std::uint64_t> order = deepest_first(1, 10);
  for (const std::uint64_t number : deepest_first(2, 20)) order.push_back(number);
  EXPECT_EQ(drain(policy), order);
}

// ---- the bounds that the header states ----

TEST(Lru, FindsAPlaceAtOnceWhereARequestsPagesComeInEitherOrderAlsoManyRequestsAtOnce) {
  for (const bool root_first : {true, false}) {
    LruPolicy policy;
    constexpr std::uint64_t kAtOnce = 500, kPages = 200;
    for (std::uint64_t i = 0; i < kPages; ++i) {
      const std::uint64_t length = root_first ? i + 1 : kPages - i;
      for (std::uint64_t request = 1; request <= kAtOnce; ++request)
        policy.stored(page_of(request * kPages + length, length), {request, Time{0}});
    }
    EXPECT_EQ(policy.walked(), 0u);
    // Each again, the last first: a request looks for its place once among the others.
    for (std::uint64_t request = kAtOnce; request >= 1; --request) {
      for (std::uint64_t length = 1; length <= kPages; ++length)
        policy.touched(candidate_id(request * kPages + length), {kAtOnce + request, Time{0}});
    }
    EXPECT_LE(policy.walked(), kAtOnce * kAtOnce);
  }
}

TEST(Lru, FindsAPlaceOutOfOrderWithinHalfOfTheRequestsPages) {
  Prng prng(3);
  LruPolicy policy;
  constexpr std::uint64_t kPages = 1000;
  for (std::uint64_t i = 0; i < 100 * kPages; ++i) {
    const std::uint64_t before = policy.walked();
    policy.stored(page_of(i, 1 + prng.below(1 << 20)), {1 + i / kPages, Time{0}});
    ASSERT_LE(policy.walked() - before, i % kPages / 2 + 1);
  }
}

TEST(Lru, MeetsAPageThatMayNotGoOnceEvenBehindOneThatIsRefused) {
  LruPolicy policy;
  constexpr std::uint64_t kPages = 10'000;
  for (std::uint64_t length = 1; length <= kPages; ++length) {
    policy.stored(page_of(length, length), {1, Time{0}});
    policy.set_evictable(candidate_id(length), length == kPages);
  }
  policy.stored(page_of(kPages + 1, 1), {2, Time{0}});
  policy.set_evictable(candidate_id(kPages + 1), true);
  std::uint64_t refused = 0;
  for (int i = 0; i < 100; ++i) {
    const auto eligible = [&](CandidateId id) { return id != candidate_id(kPages) || ++refused == 0; };
    EXPECT_EQ(policy.victim({}, eligible), candidate_id(kPages + 1));
  }
  EXPECT_EQ(policy.visited(), kPages - 1 + 100);
  EXPECT_EQ(refused, 100u);
  // The leaf goes; then its parents one by one, each from the pages set aside.
  for (std::uint64_t length = kPages; length >= 1; --length) {
    const auto leaf = policy.victim({}, [](CandidateId) { return true; });
    ASSERT_EQ(leaf, candidate_id(length));
    policy.departed(*leaf, Departure::kEvicted);
    if (length > 1) policy.set_evictable(candidate_id(length - 1), true);
  }
  EXPECT_EQ(policy.visited(), kPages - 1 + 100 + kPages);
}

TEST(Lru, AMillionPagesInAndOutVisitOneEntryEach) {
  LruPolicy policy;
  constexpr std::uint64_t kCapacity = 10'000, kPages = 64;
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    std::uint64_t number = i;
    if (i >= kCapacity) {
      const auto victim = policy.victim({}, [](CandidateId) { return true; });
      policy.departed(*victim, Departure::kEvicted);
      number = page_number(*victim);
    }
    policy.stored(page_of(number, 1 + i % kPages), {1 + i / kPages, Time{0}});
    policy.set_evictable(candidate_id(number), true);
  }
  EXPECT_EQ(policy.visited(), 1'000'000 - kCapacity);
  EXPECT_EQ(policy.walked(), 0u);
}

}  // namespace
}  // namespace tiercel
