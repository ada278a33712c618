#include "index/lru.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

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
  return {CandidateId{id}, CandidateKind::kPage, Key{{id, 0}}, 1, length, CandidateId{id}, std::nullopt};
}

std::vector<std::uint64_t> drain(EvictionPolicy& policy) {
  std::vector<std::uint64_t> order;
  while (const auto id = policy.victim({}, [](CandidateId) { return true; })) {
    order.push_back(id->value());
    policy.departed(*id, Departure::kEvicted);
  }
  return order;
}

TEST(Lru, TheFirstPageOfARequestIsTheMostRecentOfAllInWhateverOrderItWasTold) {
  LruPolicy policy;
  for (const std::uint64_t id : {2u, 4u, 1u, 3u}) {
    policy.stored(page_of(id, id), {1, Time{0}});
    policy.set_evictable(CandidateId{id}, true);
  }
  for (const std::uint64_t id : {1u, 2u}) policy.touched(CandidateId{id}, {2, Time{0}});
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{4, 3, 2, 1}));
}

TEST(Lru, APageThatMayGoAgainHasThePlaceOfItsLastUse) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    policy.stored(page_of(id, 1), {id, Time{0}});
    if (id != 2) policy.set_evictable(CandidateId{id}, true);
  }
  policy.touched(CandidateId{1}, {5, Time{0}});
  policy.set_evictable(CandidateId{2}, true);
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{2, 3, 4, 1}));
}

TEST(Lru, PassingOverAPageLeavesItTheNextOne) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    policy.stored(page_of(id, 1), {id, Time{0}});
    policy.set_evictable(CandidateId{id}, true);
  }
  EXPECT_EQ(policy.victim({}, [](CandidateId id) { return id.value() == 3; }), CandidateId{3});
  EXPECT_EQ(policy.visited(), 1u);
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST(Lru, ALateTouchByAnEarlierRequestTakesNothingBack) {
  LruPolicy policy;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    policy.stored(page_of(id, 1), {10 + id, Time{0}});
    policy.set_evictable(CandidateId{id}, true);
  }
  policy.touched(CandidateId{2}, {5, Time{0}});
  EXPECT_EQ(drain(policy), (std::vector<std::uint64_t>{1, 2}));
}

}  // namespace
}  // namespace tiercel
