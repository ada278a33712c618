#include "index/lru.h"

#include "base/check.h"

namespace tiercel {

LruPolicy::Page& LruPolicy::resident(CandidateId id) {
  const auto found = pages_.find(id);
  TIERCEL_CHECK(found != pages_.end());
  return found->second;
}

void LruPolicy::stored(const Candidate& candidate, const Access& access) {
  TIERCEL_CHECK(candidate.kind == CandidateKind::kPage);
  const Place place{access.sequence, ~candidate.length, ++tick_, candidate.id};
  const bool added = pages_.try_emplace(candidate.id, Page{place, false}).second;
  TIERCEL_CHECK(added);
}

void LruPolicy::touched(CandidateId id, const Access& access) {
  Page& page = resident(id);
  if (access.sequence < page.place.sequence) return;
  const Place place{access.sequence, page.place.shallowness, ++tick_, id};
  if (page.evictable) {
    auto node = evictable_.extract(page.place);
    node.value() = place;
    evictable_.insert(std::move(node));
  }
  page.place = place;
}

void LruPolicy::resized(CandidateId id, std::uint64_t) { resident(id); }

void LruPolicy::set_evictable(CandidateId id, bool evictable) {
  Page& page = resident(id);
  if (page.evictable == evictable) return;
  page.evictable = evictable;
  if (evictable) {
    evictable_.insert(page.place);
  } else {
    evictable_.erase(page.place);
  }
}

void LruPolicy::departed(CandidateId id, Departure) {
  const Page& page = resident(id);
  if (page.evictable) evictable_.erase(page.place);
  pages_.erase(id);
}

std::optional<CandidateId> LruPolicy::victim(const Access&, const Eligible& eligible) {
  for (const Place& place : evictable_) {
    if (!eligible(place.id)) continue;
    ++visited_;
    return place.id;
  }
  return std::nullopt;
}

}  // namespace tiercel
