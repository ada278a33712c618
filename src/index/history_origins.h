// Whose a past event was, as a number of 16 bits: pairs of namespaces, each kept while an event uses it.
//
// Threads: one thread. Cost: O(1) a call. Everything is allocated at construction.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace tiercel {

struct Origin {
  NamespaceId ns;                // whose page it was
  NamespaceId by;                // who needed its room; 0 when nobody
  std::uint32_t generation = 0;  // of `ns` at the event
  friend bool operator==(const Origin&, const Origin&) = default;
};

class HistoryOrigins final {
 public:
  static constexpr std::uint64_t kMost = 65'535;

  // For so many events at once: at most as many origins, and at most kMost.
  explicit HistoryOrigins(std::uint64_t events);
  // One more event is of this origin. Nothing when no further origin fits: release events first.
  std::optional<std::uint16_t> take(const Origin& origin);
  // One event fewer; after the last one the number may stand for another origin.
  void release(std::uint16_t number);
  const Origin& at(std::uint16_t number) const { return rows_[number].origin; }
  static std::uint64_t bytes(std::uint64_t events);

 private:
  struct Row {
    Origin origin;
    std::uint32_t events = 0;
    std::uint16_t chained = kNone;  // next of the same hash, or next free one
  };
  static constexpr std::uint16_t kNone = 65'535;

  std::size_t chain_of(const Origin& origin) const;

  std::uint64_t most_;
  std::vector<Row> rows_;
  std::vector<std::uint16_t> heads_;  // of chains
  std::uint16_t free_ = kNone;
  std::uint16_t last_ = kNone;  // taken last: events come in runs
};

}  // namespace tiercel
