#include "index/value_policy.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace tiercel {
namespace {

// Without a model: a first visit after a store is less likely than one more after a visit.
constexpr Prospect kOnceStored{0, 0.3};
constexpr Prospect kOnceUsed{1, 0.6};
// The going rate follows this quantile of what victims were worth, in steps of this size.
constexpr double kRateQuantile = 0.5;
constexpr double kRateStep = 0.05;

}  // namespace

ValuePolicy::ValuePolicy(const PolicyOptions& options)
    : model_(options.reuse),
      own_ages_({VisitAges::kLeansOnNone, VisitAges::kLeansOnNone}),
      ages_(model_ != nullptr ? model_->ages() : own_ages_),
      bytes_now_(options.bytes_now),
      prng_(options.seed) {}

// ---- what it is told ----

ValuePolicy::Slot ValuePolicy::resident(CandidateId id) const {
  const Slot slot = slots_.find(id);
  TIERCEL_CHECK(slot != kNoSlot && entries_[slot].resident);
  return slot;
}

ValuePolicy::Slot ValuePolicy::entry_of(CandidateId id) {
  if (const Slot known = slots_.find(id); known != kNoSlot) return known;
  const Slot slot = slots_.add(id);
  if (slot == entries_.size()) {
    entries_.emplace_back();
    may_go_.grow(entries_.capacity());
  }
  entries_[slot] = Entry{};
  entries_[slot].id = id;
  entries_[slot].page = slot;
  return slot;
}

void ValuePolicy::forget_if_unused(Slot slot) {
  while (slot != kNoSlot) {
    const Entry& entry = entries_[slot];
    if (entry.resident || entry.children != 0 || entry.hangers != 0) return;
    const Slot parent = entry.parent;
    slots_.remove(entry.id);
    if (parent != kNoSlot) --entries_[parent].children;
    slot = parent;
  }
}

// Requests, where a model counts them: calls that belong to no request have sequence numbers of their own.
std::uint64_t ValuePolicy::clock(std::uint64_t sequence) const {
  return model_ != nullptr ? model_->requests() : sequence;
}

void ValuePolicy::use(Entry& entry, const Access& access) {
  last_sequence_ = std::max(last_sequence_, access.sequence);
  entry.sequence = access.sequence;
  entry.used = clock(access.sequence);
}

void ValuePolicy::stored(const Candidate& candidate, const Access& access) {
  const Slot slot = entry_of(candidate.id);
  TIERCEL_CHECK(!entries_[slot].resident);
  if (candidate.kind == CandidateKind::kPage) {
    if (candidate.parent && entries_[slot].parent == kNoSlot) {
      const Slot parent = entry_of(*candidate.parent);
      entries_[slot].parent = parent;
      ++entries_[parent].children;
    }
  } else {
    const Slot page = entry_of(candidate.page);
    entries_[slot].page = page;
    ++entries_[page].hangers;
    if (candidate.kind == CandidateKind::kPoint) entries_[page].point = slot;
    place(page);
  }
  Entry& entry = entries_[slot];
  entry.kind = candidate.kind;
  entry.resident = true;
  entry.evictable = false;
  entry.by_points = candidate.by_points;
  entry.bytes = candidate.bytes;
  entry.page_tokens = candidate.page_tokens;
  entry.prospect = kOnceStored;
  use(entry, access);
  measure(entry);
}

void ValuePolicy::touched(CandidateId id, const Access& access) {
  Entry& entry = entries_[resident(id)];
  if (entry.kind == CandidateKind::kPoint || access.sequence <= entry.sequence) return;
  if (entry.prospect.shape == kOnceStored.shape) entry.prospect = kOnceUsed;
  use(entry, access);
}

void ValuePolicy::expect(CandidateId id, const Prospect& prospect) {
  Entry& entry = entries_[resident(id)];
  entry.prospect = prospect;
  entry.used = clock(last_sequence_);
}

void ValuePolicy::resized(CandidateId id, std::uint64_t bytes) { entries_[resident(id)].bytes = bytes; }

void ValuePolicy::set_evictable(CandidateId id, bool evictable) {
  const Slot slot = resident(id);
  entries_[slot].evictable = evictable;
  if (evictable) {
    may_go_.insert(slot);
  } else {
    may_go_.erase(slot);
  }
  place(slot);
}

void ValuePolicy::departed(CandidateId id, Departure) {
  const Slot slot = resident(id);
  Entry& entry = entries_[slot];
  unlist(entry);
  may_go_.erase(slot);
  entry.resident = false;
  const Slot page = entry.page;
  if (page != slot) {
    --entries_[page].hangers;
    if (entries_[page].point == slot) {
      inherit(entry);
      entries_[page].point = kNoSlot;
    }
    place(page);
    slots_.remove(id);
    forget_if_unused(page);
    return;
  }
  forget_if_unused(slot);
}

// ---- lists ----

void ValuePolicy::place(Slot slot) {
  Entry& entry = entries_[slot];
  List wanted = List::kNone;
  if (entry.resident && entry.evictable) {
    wanted = List::kValued;
    if (entry.by_points && entry.kind == CandidateKind::kPage)
      wanted = entry.point == kNoSlot ? List::kWorthless : List::kNone;
  }
  if (wanted == entry.list) return;
  unlist(entry);
  if (wanted == List::kNone) return;
  std::vector<Slot>& list = wanted == List::kValued ? valued_ : worthless_;
  entry.list = wanted;
  entry.list_at = static_cast<std::uint32_t>(list.size());
  list.push_back(slot);
}

void ValuePolicy::unlist(Entry& entry) {
  if (entry.list == List::kNone) return;
  std::vector<Slot>& list = entry.list == List::kValued ? valued_ : worthless_;
  list[entry.list_at] = list.back();
  entries_[list.back()].list_at = entry.list_at;
  list.pop_back();
  entry.list = List::kNone;
}

// ---- values ----

double ValuePolicy::rate(const Entry& entry) const {
  return ages_.rate(entry.prospect, static_cast<double>(clock(last_sequence_) - entry.used));
}

// Tokens saved per request and byte.
double ValuePolicy::worth(const Entry& entry) const {
  const double bytes = static_cast<double>(std::max<std::uint64_t>(1, entry.bytes + entry.bytes_with_it));
  return rate(entry) * entry.saved_tokens / bytes;
}

void ValuePolicy::measure(Entry& entry) {
  entry.saved_tokens = static_cast<double>(entry.page_tokens);
  entry.bytes_with_it = 0;
  if (entry.kind != CandidateKind::kPoint) return;
  const Entry* at = &entries_[entry.page];
  bool dies = at->children == 0;
  std::uint64_t pages = 0;
  while (pages < kChainMost) {
    dies = dies && (pages == 0 || at->children <= 1);
    if (dies) entry.bytes_with_it += at->bytes;
    ++pages;
    if (at->parent == kNoSlot) break;
    at = &entries_[at->parent];
    if (at->point != kNoSlot) break;
  }
  entry.saved_tokens *= static_cast<double>(pages);
}

// Where something earns less, room goes to what earns at least this.
void ValuePolicy::take_rate(double worth) {
  if (going_rate_ == 0) going_rate_ = worth;
  going_rate_ *= worth > going_rate_ ? 1 + kRateStep * kRateQuantile : 1 - kRateStep * (1 - kRateQuantile);
}

// Who would have resumed at a point resumes at the next shorter one.
void ValuePolicy::inherit(const Entry& gone) {
  Slot at = entries_[gone.page].parent;
  for (std::size_t i = 0; i < kChainMost && at != kNoSlot && entries_[at].point == kNoSlot; ++i)
    at = entries_[at].parent;
  if (at == kNoSlot || entries_[at].point == kNoSlot) return;
  Entry& heir = entries_[entries_[at].point];
  if (rate(gone) <= rate(heir)) return;
  heir.prospect = gone.prospect;
  heir.used = gone.used;
}

// ---- the question ----

std::optional<CandidateId> ValuePolicy::victim(const Access& access, const Eligible& eligible) {
  last_sequence_ = std::max(last_sequence_, access.sequence);
  if (const auto id = worthless_victim(eligible)) return id;
  if (const auto id = valued_victim(eligible)) return id;
  for (std::uint64_t slot = may_go_.next(0); slot != NumberSet::kNone; slot = may_go_.next(slot + 1)) {
    if (!eligible(entries_[slot].id)) continue;
    ++visited_;
    return entries_[slot].id;
  }
  return std::nullopt;
}

// The latest first: chains fall from their end.
std::optional<CandidateId> ValuePolicy::worthless_victim(const Eligible& eligible) {
  for (std::size_t i = worthless_.size(); i-- > 0;) {
    const CandidateId id = entries_[worthless_[i]].id;
    if (!eligible(id)) continue;
    ++visited_;
    return id;
  }
  return std::nullopt;
}

std::optional<CandidateId> ValuePolicy::valued_victim(const Eligible& eligible) {
  struct Drawn {
    double worth;
    Slot slot;
  };
  std::array<Drawn, kSample> drawn;
  const bool all = valued_.size() <= kSample;
  const std::size_t draws = std::min(valued_.size(), kSample);
  for (std::size_t i = 0; i < draws; ++i) {
    drawn[i].slot = valued_[all ? i : prng_.below(valued_.size())];
    const char* const entry = reinterpret_cast<const char*>(&entries_[drawn[i].slot]);
    __builtin_prefetch(entry);
    __builtin_prefetch(entry + sizeof(Entry) - 1);
  }
  std::size_t count = 0;
  for (std::size_t i = 0; i < draws; ++i) {
    const Entry& entry = entries_[drawn[i].slot];
    if (!eligible(entry.id)) continue;
    ++visited_;
    drawn[count++] = {worth(entry), drawn[i].slot};
  }
  if (count == 0) return std::nullopt;
  const auto least = [&]() -> Drawn& {
    return *std::min_element(drawn.begin(), drawn.begin() + static_cast<std::ptrdiff_t>(count),
                             [](const Drawn& a, const Drawn& b) { return a.worth < b.worth; });
  };
  // What was measured before its neighbours came or went may be out of date: the one to go is measured again.
  for (std::size_t i = 0; i < kRechecks; ++i) {
    Drawn& first = least();
    Entry& entry = entries_[first.slot];
    if (entry.kind == CandidateKind::kPoint && bytes_now_) entry.bytes = bytes_now_(entry.id);
    ++visited_;
    measure(entry);
    const double before = first.worth;
    first.worth = worth(entry);
    if (first.worth <= before) break;
  }
  const Drawn& victim = least();
  take_rate(victim.worth);
  return entries_[victim.slot].id;
}

}  // namespace tiercel
