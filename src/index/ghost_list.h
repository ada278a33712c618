// Names of candidates that were evicted, oldest forgotten first, within a limit of units.
//
// Threads: one thread. Cost: O(1) a call, beyond the names that a smaller limit drops.
#pragma once

#include <cstdint>
#include <list>
#include <unordered_map>

#include "base/prng.h"
#include "index/policy.h"

namespace tiercel {

// What a candidate is called across residencies: its id is new each time.
struct CandidateName {
  Key key;
  CandidateKind kind = CandidateKind::kPage;
  // 64 bits that differ between the page, the point and the window of one key.
  std::uint64_t hash() const { return mix64(key.words[0] + static_cast<std::uint64_t>(kind)); }
  friend bool operator==(const CandidateName&, const CandidateName&) = default;
};
inline CandidateName name_of(const Candidate& candidate) { return {candidate.key, candidate.kind}; }

class GhostList final {
 public:
  // Afterwards the name is the youngest, and the oldest are gone until at most `limit` units are left.
  void remember(const CandidateName& name, std::uint64_t units, std::uint64_t limit);
  bool forget(const CandidateName& name);  // whether it was remembered
  std::uint64_t units() const { return units_; }

 private:
  struct Ghost {
    CandidateName name;
    std::uint64_t units;
  };
  struct NameHash {
    std::size_t operator()(const CandidateName& name) const noexcept { return name.hash(); }
  };

  std::list<Ghost> ghosts_;  // oldest first
  std::unordered_map<CandidateName, std::list<Ghost>::iterator, NameHash> by_name_;
  std::uint64_t units_ = 0;
};

}  // namespace tiercel
