// What sets `value` apart: points and the pages that die with them. What all policies share stands in
// policy_contract_test.cc.
#include "index/value_policy.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "index/test_tree.h"

namespace tiercel {
namespace {

// Pages of a model that resumes at points only, each of 100 bytes and 10 tokens; points of 1,000 bytes.
class Points {
 public:
  explicit Points(PolicyOptions options = {}) : policy_(with_bytes(std::move(options))) {}

  // A chain below the page named `below` ("" for none), pages named by their prefix.
  void chain(const std::string& below, const std::string& rest) {
    for (std::size_t i = 1; i <= rest.size(); ++i) page(below + rest.substr(0, i));
  }
  void page(const std::string& name) {
    Candidate candidate;
    candidate.id = candidate.page = page_id(name);
    candidate.key = test_key(name);
    candidate.bytes = 100;
    candidate.length = name.size();
    candidate.page_tokens = 10;
    candidate.by_points = true;
    if (name.size() > 1) candidate.parent = page_id(name.substr(0, name.size() - 1));
    policy_.stored(candidate, now());
    policy_.set_evictable(candidate.id, true);
    if (candidate.parent) policy_.set_evictable(*candidate.parent, false);
  }
  void point(const std::string& name, double chance, std::uint64_t bytes = 1000) {
    Candidate candidate;
    candidate.id = point_id(name);
    candidate.kind = CandidateKind::kPoint;
    candidate.page = page_id(name);
    candidate.key = test_key(name);
    candidate.bytes = bytes_[candidate.id] = bytes;
    candidate.length = name.size();
    candidate.page_tokens = 10;
    policy_.stored(candidate, now());
    policy_.set_evictable(candidate.id, true);
    policy_.expect(candidate.id, {0, chance});
  }
  // Names the victim, a point with an asterisk, and lets it go.
  std::string evict() {
    const auto id = policy_.victim(now(), [](CandidateId) { return true; });
    if (!id) return "";
    policy_.departed(*id, Departure::kEvicted);
    const std::string name = names_.at(*id);
    if (name.size() > 1 && name.back() != '*')
      policy_.set_evictable(page_id(name.substr(0, name.size() - 1)), true);
    return name;
  }
  void next_request() { ++sequence_; }
  Access now() const { return {sequence_, Time{0}}; }
  CandidateId page_id(const std::string& name) { return id_of(name); }
  CandidateId point_id(const std::string& name) { return id_of(name + "*"); }
  std::map<CandidateId, std::uint64_t>& bytes() { return bytes_; }
  ValuePolicy& policy() { return policy_; }

 private:
  PolicyOptions with_bytes(PolicyOptions options) {
    options.bytes_now = [this](CandidateId id) { return bytes_.at(id); };
    return options;
  }
  CandidateId id_of(const std::string& name) {
    const auto [at, fresh] = ids_.try_emplace(name, candidate_id(ids_.size() + 1));
    if (fresh) names_[at->second] = name;
    return at->second;
  }

  std::map<std::string, CandidateId> ids_;
  std::map<CandidateId, std::string> names_;
  std::map<CandidateId, std::uint64_t> bytes_;
  std::uint64_t sequence_ = 1;
  ValuePolicy policy_;
};

TEST(ValuePolicy, TakesPagesThatNoPointNeedsBeforeAnyPoint) {
  Points points;
  points.chain("", "abcde");
  points.point("abc", 0.01);
  EXPECT_EQ(points.evict(), "abcde");
  EXPECT_EQ(points.evict(), "abcd");
  EXPECT_EQ(points.evict(), "abc*");
  EXPECT_EQ(points.evict(), "abc");
  EXPECT_EQ(points.evict(), "ab");
  EXPECT_EQ(points.evict(), "a");
  EXPECT_EQ(points.evict(), "");
}

TEST(ValuePolicy, KeepsThePointThatSavesMore) {
  Points points;
  points.chain("", "abcdefgh");
  points.point("abc", 0.5);       // saves 3 pages
  points.point("abcdefgh", 0.5);  // saves 5, and takes 5 pages along when it goes
  points.chain("", "zyxwvu");
  points.point("zyxwvu", 0.45);  // saves 6
  // 0.5 × 30/1,000, 0.5 × 50/1,500, 0.45 × 60/1,600.
  EXPECT_EQ(points.evict(), "abc*");
  // Now the long one saves all 8 pages, and would take them along: 80/1,800.
  EXPECT_EQ(points.evict(), "zyxwvu*");
}

TEST(ValuePolicy, WhoWouldHaveResumedAtAPointThatWentResumesAtTheOneAbove) {
  Points points;
  points.chain("", "abcdefgh");
  points.point("abc", 0.05);
  points.point("abcdefgh", 0.5, 100'000);
  points.chain("", "xyz");
  points.point("xyz", 0.2);
  EXPECT_EQ(points.evict(), "abcdefgh*");
  for (const char* name : {"abcdefgh", "abcdefg", "abcdef", "abcde", "abcd"}) EXPECT_EQ(points.evict(), name);
  EXPECT_EQ(points.evict(), "xyz*");
}

TEST(ValuePolicy, APointThatIsLikelierItselfInheritsNothing) {
  Points points;
  points.chain("", "abcdefgh");
  points.point("abc", 0.3);
  points.point("abcdefgh", 0.2, 100'000);
  points.chain("", "xyz");
  points.point("xyz", 0.25);
  EXPECT_EQ(points.evict(), "abcdefgh*");
  for (const char* name : {"abcdefgh", "abcdefg", "abcdef", "abcde", "abcd"}) EXPECT_EQ(points.evict(), name);
  EXPECT_EQ(points.evict(), "xyz*");
}

TEST(ValuePolicy, ChanceAndTimeDecideWhereSavingsAreEqual) {
  Points points;
  points.chain("", "ab");
  points.point("ab", 0.5);
  points.chain("", "cd");
  points.point("cd", 0.2);
  points.chain("", "ef");
  points.point("ef", 0.5);
  for (int i = 0; i < 200; ++i) points.next_request();
  points.policy().touched(points.point_id("cd"), points.now());     // passed by
  points.policy().expect(points.point_id("ef"), Prospect{0, 0.5});  // resumed at
  EXPECT_EQ(points.evict(), "cd*");
  EXPECT_EQ(points.evict(), "cd");
  EXPECT_EQ(points.evict(), "c");
  EXPECT_EQ(points.evict(), "ab*");
}

TEST(ValuePolicy, AsksWhatWouldLeaveWithAPointNow) {
  Points points;
  points.chain("", "ab");
  points.point("ab", 0.5, 1000);
  points.chain("", "cd");
  points.point("cd", 0.5, 1001);
  // A neighbour came to share its windows.
  points.bytes()[points.point_id("cd")] = 10;
  EXPECT_EQ(points.evict(), "ab*");
}

TEST(ValuePolicy, ComparesPointsWithPagesOfOtherModels) {
  Points points;
  points.chain("", "abcdef");
  points.point("abcdef", 0.3);
  Candidate page;
  page.id = page.page = candidate_id(1000);
  page.length = 1;
  page.bytes = 100;
  page.page_tokens = 10;
  points.policy().stored(page, points.now());
  points.policy().set_evictable(page.id, true);
  points.policy().expect(page.id, {0, 0.3});
  // 60 tokens per 1,600 bytes against 10 per 100.
  EXPECT_EQ(points.evict(), "abcdef*");
}

TEST(ValuePolicy, TellsWhatAByteHasToEarn) {
  Points points;
  EXPECT_EQ(points.policy().going_rate(), 0);
  std::string name = "a";
  for (int i = 0; i < 60; ++i, name[0] = static_cast<char>(name[0] + 1)) {
    points.page(name);
    points.point(name, 0.01 + 0.01 * i);
  }
  points.evict();
  const double first = points.policy().going_rate();
  EXPECT_GT(first, 0);
  for (int i = 0; i < 100; ++i) points.evict();
  EXPECT_GT(points.policy().going_rate(), 2 * first);
}

TEST(ValuePolicy, FindsTheOnlyOneThatMayGoAmongMany) {
  Points points;
  CandidateId last;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    Candidate page;
    page.id = page.page = last = candidate_id(1'000'000 + i);
    page.length = 1;
    points.policy().stored(page, points.now());
    points.policy().set_evictable(page.id, true);
  }
  const auto id = points.policy().victim(points.now(), [&](CandidateId each) { return each == last; });
  EXPECT_EQ(id, last);
  EXPECT_LE(points.policy().visited(), ValuePolicy::kSample + ValuePolicy::kRechecks);
}

TEST(ValuePolicy, KnowsAPageAgainThatWasLostAboveOthers) {
  Points points;
  points.chain("", "abc");
  points.point("abc", 0.5);
  points.policy().departed(points.page_id("ab"), Departure::kRemoved);
  Candidate again;
  again.id = again.page = points.page_id("ab");
  again.bytes = 100;
  again.length = 2;
  again.page_tokens = 10;
  again.by_points = true;
  again.parent = points.page_id("a");
  points.policy().stored(again, points.now());
  // Its child still hangs on it: the point reaches up to the first page.
  points.chain("", "xy");
  points.point("xy", 0.5);
  EXPECT_EQ(points.evict(), "xy*");  // 20/1,200 against 30/1,300
}

TEST(ValuePolicy, APointAtTheEndOfItsChainCostsThePagesThatDieWithIt) {
  Points points;
  points.chain("", "abcdefgh");
  points.chain("abcdefgh", "i");
  points.point("abcdefgh", 0.5);
  points.point("abcdefghi", 0.9, 1);  // so that it stays, and the pages above with it
  points.chain("", "stuvwxyz");
  points.point("stuvwxyz", 0.5);
  EXPECT_EQ(points.evict(), "stuvwxyz*");  // 80 for 1,800 bytes against 80 for 1,000
}

TEST(ValuePolicy, APointSavesOnlyWhatTheNextShorterOneDoesNot) {
  Points points;
  points.chain("", "abcdefgh");
  points.chain("abcdefgh", "i");
  points.point("abcdefg", 0.5, 1);
  points.point("abcdefgh", 0.5);  // one page more
  points.point("abcdefghi", 0.9, 1);
  points.chain("", "xyz");
  points.point("xyz", 0.5);
  EXPECT_EQ(points.evict(), "abcdefgh*");
}

}  // namespace
}  // namespace tiercel
