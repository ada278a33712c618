// For tests of policies: feeds a policy anything that its interface allows, and keeps beside it what is
// resident and what may go. Two crowds of one seed tell the same story as long as their policies answer
// alike.
//
// Threads: one thread. Requires: the policy outlives the crowd.
#pragma once

#include <algorithm>
#include <map>
#include <set>

#include "base/prng.h"
#include "index/policy.h"

namespace tiercel {

class Crowd final {
 public:
  Crowd(EvictionPolicy& policy, std::uint64_t seed) : policy_(policy), prng_(seed) {}

  struct Known {
    CandidateKind kind;
    bool evictable;
    CandidateId page;
  };

  void step() {
    if (prng_.chance(0.7)) ++access_.sequence;
    const std::uint64_t roll = prng_.below(10);
    if (known_.empty() || roll < 3) return store();
    const CandidateId id = any();
    if (roll < 6) {
      policy_.touched(id, access_);
      ++uses_;
    } else if (roll == 6) {
      policy_.resized(id, prng_.below(1000));
    } else if (roll == 7) {
      known_.at(id).evictable = coin();
      policy_.set_evictable(id, known_.at(id).evictable);
    } else if (roll == 8) {
      depart(id, coin() ? Departure::kEvicted : Departure::kRemoved);
    } else {
      refused_.clear();
      for (std::uint64_t i = prng_.below(4); i > 0; --i) refused_.insert(any());
    }
  }

  std::optional<CandidateId> ask() {
    ++calls_;
    return policy_.victim(access_, [this](CandidateId id) {
      asked_strangers_ = asked_strangers_ || !known_.contains(id);
      return !refused_.contains(id);
    });
  }

  void depart(CandidateId id, Departure how) {
    policy_.departed(id, how);
    known_.erase(id);
  }

  bool acceptable(CandidateId id) const {
    const auto found = known_.find(id);
    return found != known_.end() && found->second.evictable && !refused_.contains(id);
  }
  bool any_acceptable() const {
    return std::any_of(known_.begin(), known_.end(),
                       [this](const auto& each) { return acceptable(each.first); });
  }
  bool asked_strangers() const { return asked_strangers_; }
  const std::map<CandidateId, Known>& known() const { return known_; }
  std::uint64_t calls() const { return calls_; }
  std::uint64_t uses() const { return uses_; }  // stored and touched

 private:
  bool coin() { return prng_.below(2) == 0; }

  CandidateId any() {
    auto at = known_.lower_bound(candidate_id(prng_.below(last_page_) + 1));
    if (at == known_.end()) at = known_.begin();
    return at->first;
  }

  void store() {
    Candidate candidate{CandidateId{},     CandidateKind::kPage, Key{{mix64(prng_.below(60)), 1}},
                        prng_.below(1000), 1 + prng_.below(5),   CandidateId{},
                        std::nullopt};
    hang(candidate);
    if (candidate.kind == CandidateKind::kPage) candidate.id = candidate.page = new_page();
    policy_.stored(candidate, access_);
    ++uses_;
    const bool evictable = prng_.chance(0.8);
    if (evictable) policy_.set_evictable(candidate.id, true);
    known_.emplace(candidate.id, Known{candidate.kind, evictable, candidate.page});
  }

  // Below another page, or on one, resident or not.
  void hang(Candidate& candidate) {
    if (known_.empty()) return;
    const CandidateId other = known_.at(any()).page;
    if (!policy_.pages_only() && coin()) {
      const std::uint64_t tag = 1 + prng_.below(3);
      candidate.id = candidate_id(page_number(other), tag);
      if (known_.contains(candidate.id)) return;
      candidate.kind = tag == 1 ? CandidateKind::kPoint : CandidateKind::kWindow;
      candidate.page = other;
    } else if (known_.contains(other)) {
      candidate.parent = other;
    }
  }

  // A number that nothing resident has, a used one as often as not.
  CandidateId new_page() {
    if (coin()) {
      const CandidateId used = candidate_id(prng_.below(last_page_ + 1));
      const auto next = known_.lower_bound(used);
      if (next == known_.end() || page_number(next->first) != page_number(used)) return used;
    }
    return candidate_id(++last_page_);
  }

  EvictionPolicy& policy_;
  Prng prng_;
  Access access_;
  std::map<CandidateId, Known> known_;
  std::set<CandidateId> refused_;
  std::uint64_t last_page_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t uses_ = 0;
  bool asked_strangers_ = false;
};

}  // namespace tiercel
