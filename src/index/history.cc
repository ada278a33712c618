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

std::uint64_t History::pack(const Packed& event) {
  constexpr std::int64_t kLast = (std::int64_t{1} << (64 - kWhenBit)) - 1;
  const auto ticks =
      static_cast<std::uint64_t>(std::clamp<std::int64_t>(event.when / kHistoryTick, 0, kLast));
  return ticks << kWhenBit | std::uint64_t{event.origin} << kOriginBit |
         std::uint64_t{event.once_stored} << kOnceStoredBit | static_cast<std::uint64_t>(event.cause);
}

History::Packed History::unpack(std::uint64_t bits) {
  return {static_cast<Cause>(bits & 15), (bits >> kOnceStoredBit & 1) != 0,
          static_cast<std::uint16_t>(bits >> kOriginBit),
          static_cast<std::int64_t>(bits >> kWhenBit) * kHistoryTick};
}

// No number has all bits of the mask, so no place that is taken looks empty.
History::History(std::uint64_t entries)
    : entries_max_(std::min(entries, kEntriesMax)),
      number_mask_(static_cast<std::uint32_t>(std::bit_ceil(entries_max_ + 1) - 1)),
      table_(static_cast<std::size_t>(2 * entries_max_), kNone),
      origins_(entries_max_),
      filter_(entries_max_, kFilterBitsPerEntry) {
  static_assert(sizeof(Entry) + 2 * sizeof(table_[0]) == kHistoryEntryBytes);
  entries_.reserve(static_cast<std::size_t>(entries_max_));
}

std::size_t History::home_of(std::uint64_t mark) const {
  return static_cast<std::size_t>((static_cast<Uint128>(mark) * table_.size()) >> 64);
}

// The place of the entry with this mark. Half of all places are empty, so the search ends soon.
std::optional<std::size_t> History::find(std::uint64_t mark) const {
  if (live_ == 0) return std::nullopt;
  const std::uint32_t low = static_cast<std::uint32_t>(mark) & ~number_mask_;
  for (std::size_t place = home_of(mark); table_[place] != kNone; place = after(place))
    if ((table_[place] & ~number_mask_) == low && entry_at(place).mark == mark) return place;
  return std::nullopt;
}

void History::append(std::uint64_t mark, const Packed& event) {
  std::uint32_t number = free_;
  if (number != kNone) {
    free_ = entries_[number].younger;
  } else {
    TIERCEL_CHECK(entries_.size() < entries_max_);  // more would not be in the books
    number = static_cast<std::uint32_t>(entries_.size());
    entries_.emplace_back();
  }
  entries_[number] = {mark, pack(event), youngest_, kNone};
  (youngest_ == kNone ? oldest_ : entries_[youngest_].younger) = number;
  youngest_ = number;
  ++live_;
  std::size_t place = home_of(mark);
  while (table_[place] != kNone) place = after(place);
  table_[place] = (static_cast<std::uint32_t>(mark) & ~number_mask_) | number;
}

void History::take_out(std::size_t place) {
  const std::uint32_t number = table_[place] & number_mask_;
  Entry& entry = entries_[number];
  (entry.older == kNone ? oldest_ : entries_[entry.older].younger) = entry.younger;
  (entry.younger == kNone ? youngest_ : entries_[entry.younger].older) = entry.older;
  origins_.release(unpack(entry.event).origin);
  entry.younger = free_;
  free_ = number;
  --live_;
  close_gap(place);
}

// What stands behind the gap moves into it unless it would then stand before its home. Differences go round
// below zero: whatever lies across the table's end counts as farthest on both sides.
void History::close_gap(std::size_t gap) {
  for (std::size_t place = after(gap); table_[place] != kNone; place = after(place)) {
    if (place - home_of(entry_at(place).mark) < place - gap) continue;
    table_[gap] = table_[place];
    gap = place;
  }
  table_[gap] = kNone;
}

std::uint32_t History::generation_of(NamespaceId ns) const {
  if (namespaces_.empty()) return 0;  // mostly; a look-up divides
  const auto found = namespaces_.find(ns);
  return found == namespaces_.end() ? 0 : found->second.generation;
}

void History::stored(NamespaceId ns, const Key& key, Time now) {
  const std::uint64_t mark = page_mark(ns, key);
  filter_.add(mark, now);
  if (const auto place = find(mark)) take_out(*place);
}

void History::left(NamespaceId ns, const Key& key, PastEvent event) {
  if (entries_max_ == 0) {
    namespaces_[ns].incomplete = true;
    ++forgotten_;
    return;
  }
  const std::uint64_t mark = page_mark(ns, key);
  bool once_stored = was_resident(event.cause);
  if (const auto place = find(mark)) {
    once_stored = once_stored || unpack(entry_at(*place).event).once_stored;
    take_out(*place);
  }
  if (live_ == entries_max_) drop_oldest(event.when);
  const Origin from{ns, event.by, generation_of(ns)};
  auto origin = origins_.take(from);
  for (; !origin; origin = origins_.take(from)) drop_oldest(event.when);
  append(mark, {event.cause, once_stored, *origin, event.when});
}

void History::drop_oldest(Time now) {
  const std::uint64_t mark = entries_[oldest_].mark;
  const Packed event = unpack(entries_[oldest_].event);
  // From here on only the filter knows the page; its half of the filter may be the next to go.
  if (event.once_stored) filter_.add(mark, now);
  const Origin& origin = origins_.at(event.origin);
  if (origin.generation == generation_of(origin.ns)) namespaces_[origin.ns].incomplete = true;
  take_out(*find(mark));
  ++forgotten_;
}

PastEvent History::why(NamespaceId ns, const Key& key) const {
  const std::uint64_t mark = page_mark(ns, key);
  if (const auto place = find(mark)) {
    const Packed event = unpack(entry_at(*place).event);
    const Origin& origin = origins_.at(event.origin);
    if (origin.generation == generation_of(ns)) return {event.cause, event.when, origin.by};
    return {Cause::kRemoved, event.when, {}};
  }
  if (namespaces_.empty()) return {Cause::kNeverStored, Time{0}, {}};
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
