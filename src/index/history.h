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
#include <vector>

#include "base/ids.h"
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
  void stored(NamespaceId ns, const Key& key, Time now);  // resident again: its past no longer matters
  void left(NamespaceId ns, const Key& key,
            PastEvent event);  // gone, or refused; the oldest entry makes room
  // While nothing has ever been forgotten, absence is `never_stored`, certain. Afterwards the filter decides
  // between `never_stored` (not in the filter: certain since filter_since()) and `unknown_past`.
  PastEvent why(NamespaceId ns, const Key& key) const;
  void forget_namespace(NamespaceId ns);  // O(1): older events of the namespace answer `removed`
  Time filter_since() const;
  std::uint64_t forgotten() const;  // entries dropped for room
  std::uint64_t nominal_bytes() const;
};

}  // namespace tiercel
