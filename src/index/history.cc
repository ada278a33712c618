#include "index/history.h"

#include "base/prng.h"

namespace tiercel {
namespace {

// Whether a page with this cause had been here: a refusal alone does not make a key a stored one.
bool was_resident(Cause cause) {
  switch (cause) {
    case Cause::kDamaged:
    case Cause::kRemoved:
    case Cause::kEvicted:
      return true;
    case Cause::kNeverStored:
    case Cause::kUnknownPast:
    case Cause::kTooLate:
    case Cause::kNoRoom:
    case Cause::kTooLarge:
    case Cause::kSecondTouch:
    case Cause::kWriteBudget:
    case Cause::kQuota:
    case Cause::kBelowThreshold:
    case Cause::kRateLimited:
      return false;
  }
  return false;
}

}  // namespace

std::size_t History::PageNameHash::operator()(const PageName& page) const noexcept {
  return page.key.words[0] ^ mix64(page.ns.value());
}

History::History(std::uint64_t entries) : entries_max_(entries), filter_(entries, kFilterBitsPerEntry) {}

std::uint64_t History::generation_of(NamespaceId ns) const {
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? 0 : found->second.generation;
}

void History::stored(NamespaceId ns, const Key& key, Time now) {
  filter_.add(ns, key, now);
  const auto found = entries_.find({ns, key});
  if (found == entries_.end()) return;
  order_.erase(found->second.order);
  entries_.erase(found);
}

void History::left(NamespaceId ns, const Key& key, PastEvent event) {
  if (entries_max_ == 0) {
    namespaces_[ns].incomplete = true;
    ++forgotten_;
    return;
  }
  const PageName page{ns, key};
  bool once_stored = was_resident(event.cause);
  if (const auto found = entries_.find(page); found != entries_.end()) {
    once_stored = once_stored || found->second.once_stored;
    order_.erase(found->second.order);
    entries_.erase(found);
  }
  if (entries_.size() == entries_max_) drop_oldest(event.when);
  order_.push_back(page);
  entries_.emplace(page, Entry{event, generation_of(ns), once_stored, std::prev(order_.end())});
}

void History::drop_oldest(Time now) {
  const auto found = entries_.find(order_.front());
  const PageName page = found->first;
  // From here on only the filter knows the key; its half of the filter may be the next to go.
  if (found->second.once_stored) filter_.add(page.ns, page.key, now);
  if (found->second.generation == generation_of(page.ns)) namespaces_[page.ns].incomplete = true;
  entries_.erase(found);
  order_.pop_front();
  ++forgotten_;
}

PastEvent History::why(NamespaceId ns, const Key& key) const {
  if (const auto found = entries_.find({ns, key}); found != entries_.end()) {
    const Entry& entry = found->second;
    if (entry.generation == generation_of(ns)) return entry.event;
    return {Cause::kRemoved, entry.event.when, {}};
  }
  const auto past = namespaces_.find(ns);
  if (past == namespaces_.end() || !filter_.contains(ns, key)) return {Cause::kNeverStored, Time{0}, {}};
  // Nothing since the namespace was emptied has been forgotten: the key was here before that.
  if (!past->second.incomplete) return {Cause::kRemoved, Time{0}, {}};
  return {Cause::kUnknownPast, Time{0}, {}};
}

void History::forget_namespace(NamespaceId ns) {
  Namespace& past = namespaces_[ns];
  ++past.generation;
  past.incomplete = false;
}

std::uint64_t History::nominal_bytes(std::uint64_t entries) {
  return entries * kHistoryEntryBytes + KeyFilter::bytes(entries, kFilterBitsPerEntry);
}

}  // namespace tiercel
