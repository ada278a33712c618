#include "index/history.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/prng.h"

namespace tiercel {
namespace {

constexpr unsigned kOnceStoredBit = 4;  // behind the cause
constexpr unsigned kOriginBit = 5;
constexpr unsigned kWhenBit = 21;
static_assert(static_cast<unsigned>(Cause::kRateLimited) < 1U << kOnceStoredBit);

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

std::array<std::uint32_t, 2> History::pack(const Packed& event) {
  constexpr std::int64_t kLast = (std::int64_t{1} << (64 - kWhenBit)) - 1;
  const auto ticks =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(event.when / kHistoryTick, 0, kLast));
  const std::uint64_t bits = ticks << kWhenBit | std::uint64_t{event.origin} << kOriginBit |
                             std::uint64_t{event.once_stored} << kOnceStoredBit |
                             static_cast<std::uint64_t>(event.cause);
  return std::bit_cast<std::array<std::uint32_t, 2>>(bits);
}

History::Packed History::unpack(std::array<std::uint32_t, 2> event) {
  const auto bits = std::bit_cast<std::uint64_t>(event);
  return {static_cast<Cause>(bits & 15), (bits >> kOnceStoredBit & 1) != 0,
          static_cast<std::uint16_t>(bits >> kOriginBit),
          static_cast<std::int64_t>(bits >> kWhenBit) * kHistoryTick};
}

History::History(std::uint64_t entries)
    : entries_max_(std::min(entries, kEntriesMax)),
      heads_(static_cast<std::size_t>(entries_max_), kNone),
      origins_(entries_max_),
      filter_(entries_max_, kFilterBitsPerEntry) {
  static_assert(sizeof(Entry) + sizeof(heads_[0]) == kHistoryEntryBytes);
  entries_.reserve(static_cast<std::size_t>(entries_max_));
}

std::size_t History::chain_of(std::uint64_t mark) const {
  return static_cast<std::size_t>((static_cast<Uint128>(mark) * heads_.size()) >> 64);
}

std::uint32_t History::find(std::uint64_t mark) const {
  if (live_ == 0) return kNone;
  std::uint32_t at = heads_[chain_of(mark)];
  while (at != kNone && std::bit_cast<std::uint64_t>(entries_[at].mark) != mark) at = entries_[at].chained;
  return at;
}

void History::append(std::uint64_t mark, const Packed& event) {
  std::uint32_t at = free_;
  if (at != kNone) {
    free_ = entries_[at].chained;
  } else {
    TIERCEL_CHECK(entries_.size() < entries_max_);  // more would not be in the books
    at = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  }
  std::uint32_t& head = heads_[chain_of(mark)];
  entries_[at] = {std::bit_cast<std::array<std::uint32_t, 2>>(mark), pack(event), youngest_, kNone, head};
  head = at;
  (youngest_ == kNone ? oldest_ : entries_[youngest_].younger) = at;
  youngest_ = at;
  ++live_;
}

void History::take_out(std::uint32_t at) {
  Entry& entry = entries_[at];
  std::uint32_t* link = &heads_[chain_of(std::bit_cast<std::uint64_t>(entry.mark))];
  while (*link != at) link = &entries_[*link].chained;
  *link = entry.chained;
  (entry.older == kNone ? oldest_ : entries_[entry.older].younger) = entry.younger;
  (entry.younger == kNone ? youngest_ : entries_[entry.younger].older) = entry.older;
  origins_.release(unpack(entry.event).origin);
  entry.chained = free_;
  free_ = at;
  --live_;
}

std::uint32_t History::generation_of(NamespaceId ns) const {
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? 0 : found->second.generation;
}

void History::stored(NamespaceId ns, const Key& key, Time now) {
  const std::uint64_t mark = page_mark(ns, key);
  filter_.add(mark, now);
  if (const std::uint32_t at = find(mark); at != kNone) take_out(at);
}

void History::left(NamespaceId ns, const Key& key, PastEvent event) {
  if (entries_max_ == 0) {
    namespaces_[ns].incomplete = true;
    ++forgotten_;
    return;
  }
  const std::uint64_t mark = page_mark(ns, key);
  bool once_stored = was_resident(event.cause);
  if (const std::uint32_t at = find(mark); at != kNone) {
    once_stored = once_stored || unpack(entries_[at].event).once_stored;
    take_out(at);
  }
  if (live_ == entries_max_) drop_oldest(event.when);
  const Origin from{ns, event.by, generation_of(ns)};
  auto origin = origins_.take(from);
  for (; !origin; origin = origins_.take(from)) drop_oldest(event.when);
  append(mark, {event.cause, once_stored, *origin, event.when});
}

void History::drop_oldest(Time now) {
  const std::uint32_t at = oldest_;
  const Packed event = unpack(entries_[at].event);
  // From here on only the filter knows the page; its half of the filter may be the next to go.
  if (event.once_stored) filter_.add(std::bit_cast<std::uint64_t>(entries_[at].mark), now);
  const Origin& origin = origins_.at(event.origin);
  if (origin.generation == generation_of(origin.ns)) namespaces_[origin.ns].incomplete = true;
  take_out(at);
  ++forgotten_;
}

PastEvent History::why(NamespaceId ns, const Key& key) const {
  const std::uint64_t mark = page_mark(ns, key);
  if (const std::uint32_t at = find(mark); at != kNone) {
    const Packed event = unpack(entries_[at].event);
    const Origin& origin = origins_.at(event.origin);
    if (origin.generation == generation_of(ns)) return {event.cause, event.when, origin.by};
    return {Cause::kRemoved, event.when, {}};
  }
  const auto past = namespaces_.find(ns);
  if (past == namespaces_.end() || !filter_.contains(mark)) return {Cause::kNeverStored, Time{0}, {}};
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
  entries = std::min(entries, kEntriesMax);
  return entries * kHistoryEntryBytes + HistoryOrigins::bytes(entries) +
         KeyFilter::bytes(entries, kFilterBitsPerEntry);
}

}  // namespace tiercel
