// Names of candidates that were evicted, oldest forgotten first, within a limit of units.
//
// Threads: one thread. Cost: O(1) a call, beyond the names that a smaller limit drops. Memory: kGhostBytes
// for each of the most names that it has held.
#pragma once

#include <cstdint>
#include <vector>

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
  static constexpr std::uint64_t kGhostBytes = 56;  // 40 and a table at least a quarter full

  GhostList() : table_(16, kNone) {}
  // Afterwards the name is the youngest, and the oldest are gone until at most `limit` units are left.
  void remember(const CandidateName& name, std::uint64_t units, std::uint64_t limit);
  bool forget(const CandidateName& name);  // whether it was remembered
  std::uint64_t units() const { return units_; }
  std::uint64_t looked_at() const { return looked_at_; }  // places of the table, so far

 private:
  using Number = std::uint32_t;  // of a ghost
  static constexpr Number kNone = UINT32_MAX;
  struct Ghost {
    CandidateName name;
    Number older = kNone, younger = kNone;  // younger: of one that is free, the next free one
    std::uint64_t units = 0;
  };

  std::size_t home(Number ghost) const { return ghosts_[ghost].name.hash() & (table_.size() - 1); }
  std::size_t after(std::size_t place) const { return (place + 1) & (table_.size() - 1); }
  // The place of the table where the name is, or is to be.
  std::size_t find(const CandidateName& name);
  void grow();
  void erase(std::size_t place);

  std::vector<Ghost> ghosts_;
  std::vector<Number> table_;  // linear probing; a power of two, at most half full
  Number oldest_ = kNone, youngest_ = kNone, free_ = kNone;
  std::uint64_t held_ = 0;
  std::uint64_t units_ = 0;
  std::uint64_t looked_at_ = 0;
};

}  // namespace tiercel
