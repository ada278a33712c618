// For tests: the history by its definition, a map of names and a list of their order; times, keys and
// generations whole. What history.h does must give every answer that this gives, times rounded down.
//
// Threads: one thread. Cost: O(1) a call, several allocations.
#pragma once

#include <list>
#include <unordered_map>

#include "base/prng.h"
#include "index/history.h"

namespace tiercel {

class HistoryModel final {
 public:
  explicit HistoryModel(std::uint64_t entries)
      : entries_max_(entries), filter_(entries, kFilterBitsPerEntry) {}

  void stored(NamespaceId ns, const Key& key, Time now) {
    filter_.add(page_mark(ns, key), now);
    take_out({ns, key});
  }

  void left(NamespaceId ns, const Key& key, PastEvent event) {
    if (entries_max_ == 0) {
      namespaces_[ns].incomplete = true;
      ++forgotten_;
      return;
    }
    const PageName page{ns, key};
    bool once_stored =
        event.cause == Cause::kDamaged || event.cause == Cause::kRemoved || event.cause == Cause::kEvicted;
    if (const auto found = entries_.find(page); found != entries_.end())
      once_stored = once_stored || found->second.once_stored;
    take_out(page);
    if (entries_.size() == entries_max_) drop_oldest(event.when);
    order_.push_back(page);
    entries_.emplace(page, Entry{event, generation_of(ns), once_stored, std::prev(order_.end())});
  }

  PastEvent why(NamespaceId ns, const Key& key) const {
    if (const auto found = entries_.find({ns, key}); found != entries_.end()) {
      const Entry& entry = found->second;
      if (entry.generation == generation_of(ns)) return entry.event;
      return {Cause::kRemoved, entry.event.when, {}};
    }
    const auto past = namespaces_.find(ns);
    if (past == namespaces_.end() || !filter_.contains(page_mark(ns, key)))
      return {Cause::kNeverStored, Time{0}, {}};
    return {past->second.incomplete ? Cause::kUnknownPast : Cause::kRemoved, Time{0}, {}};
  }

  void forget_namespace(NamespaceId ns) {
    Namespace& past = namespaces_[ns];
    ++past.generation;
    past.incomplete = false;
  }

  Time filter_since() const { return filter_.since(); }
  std::uint64_t forgotten() const { return forgotten_; }

 private:
  struct PageName {
    NamespaceId ns;
    Key key;
    friend bool operator==(const PageName&, const PageName&) = default;
  };
  struct PageNameHash {
    std::size_t operator()(const PageName& page) const noexcept {
      return page.key.words[0] ^ mix64(page.ns.value());
    }
  };
  struct Entry {
    PastEvent event;
    std::uint64_t generation;  // of the namespace at the event
    bool once_stored;          // not only refused
    std::list<PageName>::iterator order;
  };
  struct Namespace {
    std::uint64_t generation = 0;
    bool incomplete = false;
  };

  std::uint64_t generation_of(NamespaceId ns) const {
    const auto found = namespaces_.find(ns);
    return found == namespaces_.end() ? 0 : found->second.generation;
  }

  void take_out(const PageName& page) {
    const auto found = entries_.find(page);
    if (found == entries_.end()) return;
    order_.erase(found->second.order);
    entries_.erase(found);
  }

  void drop_oldest(Time now) {
    const PageName page = order_.front();
    const Entry& entry = entries_.at(page);
    if (entry.once_stored) filter_.add(page_mark(page.ns, page.key), now);
    if (entry.generation == generation_of(page.ns)) namespaces_[page.ns].incomplete = true;
    take_out(page);
    ++forgotten_;
  }

  std::uint64_t entries_max_;
  std::unordered_map<PageName, Entry, PageNameHash> entries_;
  std::list<PageName> order_;  // oldest event first
  std::unordered_map<NamespaceId, Namespace> namespaces_;
  KeyFilter filter_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace tiercel
