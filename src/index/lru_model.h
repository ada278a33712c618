// For tests: `lru` by its definition, an ordered set of places. What lru.h does must give every answer that
// this gives.
//
// Threads: one thread. Cost: O(log n) a call.
#pragma once

#include <unordered_map>

#include "base/check.h"
#include "index/place.h"
#include "index/policy.h"

namespace tiercel {

class ModelLru final : public EvictionPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  bool pages_only() const override { return true; }
  std::uint64_t visited() const override { return 0; }
  std::uint64_t bytes_per_candidate() const override { return 0; }

  void stored(const Candidate& candidate, const Access& access) override {
    const Place place{access.sequence, ~candidate.length, ++tick_, candidate.id};
    TIERCEL_CHECK(pages_.try_emplace(candidate.id, Page{place, false}).second);
  }

  void touched(CandidateId id, const Access& access) override {
    Page& page = pages_.at(id);
    if (access.sequence < page.place.sequence) return;
    if (page.evictable) evictable_.erase(page.place);
    page.place = Place{access.sequence, page.place.shallowness, ++tick_, id};
    if (page.evictable) evictable_.insert(page.place);
  }

  void resized(CandidateId, std::uint64_t) override {}

  void set_evictable(CandidateId id, bool evictable) override {
    Page& page = pages_.at(id);
    page.evictable = evictable;
    if (evictable) {
      evictable_.insert(page.place);
    } else {
      evictable_.erase(page.place);
    }
  }

  void departed(CandidateId id, Departure) override {
    evictable_.erase(pages_.at(id).place);
    pages_.erase(id);
  }

  std::optional<CandidateId> victim(const Access&, const Eligible& eligible) override {
    for (const Place& place : evictable_) {
      if (eligible(place.id)) return place.id;
    }
    return std::nullopt;
  }

 private:
  struct Page {
    Place place;
    bool evictable = false;
  };

  std::unordered_map<CandidateId, Page> pages_;
  PlaceSet evictable_;
  std::uint64_t tick_ = 0;
};

}  // namespace tiercel
