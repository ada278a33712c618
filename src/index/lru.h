// The baseline: one recency list of pages (contract §9). After a request all of its pages are the most
// recent, the first page the most recent of all.
//
// Threads: one thread. Cost: touched O(1) for a page that may not go, else O(log n), as stored, set_evictable
// and departed; victim visits one entry beyond those refused.
#pragma once

#include <unordered_map>

#include "index/place.h"
#include "index/policy.h"

namespace tiercel {

class LruPolicy final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  bool pages_only() const override { return true; }
  void stored(const Candidate& candidate, const Access& access) override;
  // A touch by an earlier request than the last one changes nothing: recency never goes back.
  void touched(CandidateId id, const Access& access) override;
  void resized(CandidateId id, std::uint64_t bytes) override;
  void set_evictable(CandidateId id, bool evictable) override;
  void departed(CandidateId id, Departure how) override;
  std::optional<CandidateId> victim(const Access& access, const Eligible& eligible) override;
  std::uint64_t visited() const override { return visited_; }

 private:
  struct Page {
    Place place;
    bool evictable = false;
  };

  Page& resident(CandidateId id);

  std::unordered_map<CandidateId, Page> pages_;
  PlaceSet evictable_;  // pages that may go; the others' places wait in pages_
  std::uint64_t tick_ = 0;
  std::uint64_t visited_ = 0;
};

}  // namespace tiercel
