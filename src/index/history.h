// Why a page is not here: a bounded history of causes, and beside it a filter of all keys stored since a
// stated moment (contract §5).
//
// An event takes 16 bytes: the page's mark of 64 bits, cause, origin (history_origins.h) and time. Another 16
// keep the order of events and find them: older, younger, and two places in a table by mark, half of which is
// empty; a place has the entry's number and as many bits of its mark as there is room for, so that a page
// that is not in the history is told by one cache line. So an entry is kHistoryEntryBytes, a filter's entry
// twice kFilterBitsPerEntry, an origin 22 bytes; all of it is allocated at construction (what was never used
// is not touched) and is what nominal_bytes() says. Not in it: some 60 bytes for each namespace that ever
// lost a page for good.
//
// A page is known by its mark alone: among n entries it is taken for another one with chance n × 2^-64, at a
// million entries and a thousand million calls a day once in 50 years. Its reason is then the other page's,
// or the other page's event is lost; no byte of any page depends on it.
//
// Threads: one thread. Cost: O(1) a call, beside the filter's rotations.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "index/history_origins.h"
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
  Time when{0};    // of the eviction, removal, …; as the history answers it, a multiple of kHistoryTick
  NamespaceId by;  // evicted: whose store needed the room; 0 when nobody's
};

// Times are kept to this, rounded down, for 27 years from the clock's start.
inline constexpr Duration kHistoryTick = std::chrono::microseconds(100);
inline constexpr std::uint64_t kHistoryEntryBytes = 32;   // 16 of the event, 16 to find it and to keep order
inline constexpr std::uint64_t kFilterBitsPerEntry = 14;  // of each half

class History final {
 public:
  static constexpr std::uint64_t kEntriesMax = UINT32_MAX - 1;

  // `entries` = 0: remembers nothing. Above kEntriesMax it is kEntriesMax. The filter covers at least
  // `entries` keys per half; two halves rotate.
  explicit History(std::uint64_t entries);
  // Resident again: its past no longer matters.
  void stored(NamespaceId ns, const Key& key, Time now);
  // Gone, or refused; the last event of a key counts. The oldest entry makes room: for an entry more than
  // fit, and when events of more than HistoryOrigins::kMost different origins would be remembered.
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
  // Of a history of so many entries; nothing is allocated.
  static std::uint64_t nominal_bytes(std::uint64_t entries);

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Packed {  // 64 bits in an entry
    Cause cause;
    bool once_stored;  // not only refused
    std::uint16_t origin;
    Time when;
  };
  struct Entry {
    std::uint64_t mark;
    std::uint64_t event;
    std::uint32_t older;
    std::uint32_t younger;  // of a free entry: the next free one
  };
  // Only of namespaces that lost something; the others' absent keys were never stored.
  struct Namespace {
    std::uint32_t generation = 0;  // grows with forget_namespace
    bool incomplete = false;       // an entry of this generation was dropped for room
  };

  static std::uint64_t pack(const Packed& event);
  static Packed unpack(std::uint64_t event);
  std::size_t home_of(std::uint64_t mark) const;
  std::size_t after(std::size_t place) const { return place + 1 == table_.size() ? 0 : place + 1; }
  Entry& entry_at(std::size_t place) { return entries_[table_[place] & number_mask_]; }
  const Entry& entry_at(std::size_t place) const { return entries_[table_[place] & number_mask_]; }
  std::optional<std::size_t> find(std::uint64_t mark) const;
  void append(std::uint64_t mark, const Packed& event);
  void take_out(std::size_t place);
  void close_gap(std::size_t gap);
  std::uint32_t generation_of(NamespaceId ns) const;
  void drop_oldest(Time now);

  std::uint64_t entries_max_;
  std::vector<Entry> entries_;
  std::uint32_t number_mask_;         // of an entry's number in a place; the rest is of its mark
  std::vector<std::uint32_t> table_;  // linear probing; kNone: empty
  std::uint64_t live_ = 0;
  std::uint32_t oldest_ = kNone;
  std::uint32_t youngest_ = kNone;
  std::uint32_t free_ = kNone;
  HistoryOrigins origins_;
  std::unordered_map<NamespaceId, Namespace> namespaces_;
  KeyFilter filter_;
  std::uint64_t forgotten_ = 0;
};

}  // namespace tiercel
