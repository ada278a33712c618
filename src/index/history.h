// Why a page is not here: a bounded history of causes, and beside it a filter of all keys stored since a
// stated moment (contract §5).
//
// Threads: one thread. Cost: O(1) a call. Charged at kHistoryEntryBytes an entry and the filter's bits,
// whatever the containers take.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "base/ids.h"
#include "index/key_filter.h"
#include "model/key_chain.h"
#include "os/clock.h"

namespace tiercel {

enum class Cause : std::uint8_t {
  kNeverStored,
  kUnknownPast,
  kDamaged,
  kRemoved,
  kEvicted,
  kTooLate,
  kNoRoom,
  kTooLarge,
  kSecondTouch,
  kWriteBudget,
  kQuota,
  kBelowThreshold,
  kRateLimited,  // not_admitted(…)
};

struct PastEvent {
  Cause cause = Cause::kNeverStored;
  Time when{0};    // of the eviction, removal, …
  NamespaceId by;  // evicted: whose store needed the room; 0 when nobody's
};

inline constexpr std::uint64_t kHistoryEntryBytes = 16;
inline constexpr std::uint64_t kFilterBitsPerEntry = 12;

class History final {
 public:
  // `entries` = 0: remembers nothing. The filter covers at least `entries` keys per half; two halves rotate.
  explicit History(std::uint64_t entries);
  // Resident again: its past no longer matters.
  void stored(NamespaceId ns, const Key& key, Time now);
  // Gone, or refused; the last event of a key counts. The oldest entry makes room.
  void left(NamespaceId ns, const Key& key, PastEvent event);
  // Requires: the page is not resident. While no event of the namespace has ever been forgotten, absence is
  // `never_stored`, certain. Afterwards the filter decides between `never_stored` (not in the filter: certain
  // since filter_since()) and `unknown_past`.
  PastEvent why(NamespaceId ns, const Key& key) const;
  // Older events of the namespace answer `removed`, and so does a page that was resident: it need not be told
  // as left. Cost: O(1).
  void forget_namespace(NamespaceId ns);
  Time filter_since() const { return filter_.since(); }
  std::uint64_t forgotten() const { return forgotten_; }  // entries dropped for room
  std::uint64_t nominal_bytes() const { return nominal_bytes(entries_max_); }
  // Of a history of so many entries; nothing is allocated. Requires: entries ≤ 2^36.
  static std::uint64_t nominal_bytes(std::uint64_t entries);

 private:
  struct PageName {
    NamespaceId ns;
    Key key;
    friend bool operator==(const PageName&, const PageName&) = default;
  };
  struct PageNameHash {
    std::size_t operator()(const PageName& page) const noexcept;
  };
  struct Entry {
    PastEvent event;
    std::uint64_t generation;  // of the namespace at the event
    bool once_stored;          // not only refused
    std::list<PageName>::iterator order;
  };
  // Only of namespaces that lost something; the others' absent keys were never stored.
  struct Namespace {
    std::uint64_t generation = 0;  // grows with forget_namespace
    bool incomplete = false;       // an entry of this generation was dropped for room
  };

  std::uint64_t generation_of(NamespaceId ns) const;
  void drop_oldest(Time now);

  std::uint64_t entries_max_;
  std::unordered_map<PageName, Entry, PageNameHash> entries_;
  std::list<PageName> order_;  // oldest event first
  std::unordered_map<NamespaceId, Namespace> namespaces_;
  KeyFilter filter_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace tiercel
