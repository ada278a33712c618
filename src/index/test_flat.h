// For tests of policies: a flat cache of items of one unit, as the publications describe theirs, fed with a
// skewed stream. Threads: one thread.
#pragma once

#include <optional>
#include <unordered_map>

#include "base/prng.h"
#include "index/policy.h"

namespace tiercel {

class FlatCache final {
 public:
  FlatCache(EvictionPolicy& policy, std::uint64_t capacity) : policy_(policy), capacity_(capacity) {}

  // Returns: the item that made room, if one did.
  std::optional<std::uint64_t> use(std::uint64_t item) {
    const Access access{++sequence_, Time{0}};
    if (const auto found = ids_.find(item); found != ids_.end()) {
      policy_.touched(found->second, access);
      ++hits_;
      return std::nullopt;
    }
    std::optional<std::uint64_t> gone;
    if (ids_.size() == capacity_) {
      ++evictions_;
      const auto id = policy_.victim(access, [](CandidateId) { return true; });
      gone = items_.at(id.value());
      policy_.departed(*id, Departure::kEvicted);
      items_.erase(*id);
      ids_.erase(*gone);
    }
    const CandidateId id = candidate_id(sequence_);
    policy_.stored({id, CandidateKind::kPage, Key{{mix64(item + 1), item}}, 1, 1, id, std::nullopt}, access);
    policy_.set_evictable(id, true);
    ids_.emplace(item, id);
    items_.emplace(id, item);
    return gone;
  }

  std::uint64_t uses() const { return sequence_; }
  std::uint64_t hits() const { return hits_; }
  std::uint64_t evictions() const { return evictions_; }

 private:
  EvictionPolicy& policy_;
  std::uint64_t capacity_;
  std::unordered_map<std::uint64_t, CandidateId> ids_;
  std::unordered_map<CandidateId, std::uint64_t> items_;
  std::uint64_t sequence_ = 0;
  std::uint64_t hits_ = 0;
  std::uint64_t evictions_ = 0;
};

// An item of [0, items): small numbers are much more likely.
inline std::uint64_t skewed(Prng& prng, std::uint64_t items) {
  const double u = prng.unit();
  return static_cast<std::uint64_t>(u * u * u * static_cast<double>(items));
}

}  // namespace tiercel
