#include "index/lru.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {

LruPolicy::Number LruPolicy::resident(CandidateId id) const {
  const std::uint64_t number = page_number(id);
  TIERCEL_CHECK(candidate_tag(id) == 0 && number < pages_.size() && pages_[number].resident);
  return static_cast<Number>(number);
}

// ---- sequences in 32 bits ----

std::uint32_t LruPolicy::relative(std::uint64_t sequence) {
  if (sequence < base_) return 0;
  if (sequence - base_ > UINT32_MAX) rebase(sequence);
  return static_cast<std::uint32_t>(sequence - base_);
}

// Once in 2^31 requests: what is older than that becomes equally old, and keeps its order in the list.
void LruPolicy::rebase(std::uint64_t sequence) {
  const std::uint64_t middle = UINT32_MAX / 2;
  const std::uint64_t base = (sequence - middle) / kRequests * kRequests;  // runs keep their places
  const auto moved = [shift = base - base_](std::uint32_t old) {
    return static_cast<std::uint32_t>(old - std::min<std::uint64_t>(old, shift));
  };
  returned_.clear();
  for (Number number = 0; number < pages_.size(); ++number) {
    Page& page = pages_[number];
    page.sequence = moved(page.sequence);
    if (page.aside && page.evictable) returned_.insert(returned(number));
  }
  for (Run& run : runs_) {
    run.sequence = moved(run.sequence);
    if (run.sequence == 0) run = Run{};
  }
  newest_ = moved(newest_);
  base_ = base;
}

// ---- the list ----

bool LruPolicy::fits(std::uint64_t rank, Number older, Number younger) const {
  return (older == kNone || pages_[older].rank() <= rank) &&
         (younger == kNone || pages_[younger].rank() > rank);
}

// From both ends of a stretch that the place is in. Returns: the page before which it is; kNone: behind all.
LruPolicy::Number LruPolicy::walk(std::uint64_t wanted, Number older, Number younger) {
  while (older != kNone && younger != kNone) {
    ++walked_;
    if (rank(older) > wanted) return older;
    if (rank(younger) <= wanted) return pages_[younger].younger;
    older = pages_[older].younger;
    younger = pages_[younger].older;
  }
  return older;
}

// Of one of the latest requests, without pages in the list. Returns: the oldest page of the next one that has
// some.
LruPolicy::Number LruPolicy::younger_neighbour(std::uint32_t sequence) {
  // None of these requests has lost its run to a later one.
  for (std::uint32_t next = sequence; next < newest_;) {
    const Run& run = run_of(++next);
    ++walked_;
    if (run.sequence == next && !run.empty()) return run.oldest;
  }
  return kNone;
}

void LruPolicy::link_before(Number number, Number younger) {
  Page& page = pages_[number];
  page.younger = younger;
  page.older = younger == kNone ? youngest_ : pages_[younger].older;
  (page.older == kNone ? oldest_ : pages_[page.older].younger) = number;
  (younger == kNone ? youngest_ : pages_[younger].older) = number;
}

void LruPolicy::enter(Number number) {
  const std::uint32_t sequence = pages_[number].sequence;
  const std::uint64_t wanted = rank(number);
  Run& run = run_of(sequence);
  if (run.sequence == sequence && !run.empty()) {
    const Page& last = pages_[run.last];
    if (fits(wanted, last.older, run.last)) {
      link_before(number, run.last);
    } else if (fits(wanted, run.last, last.younger)) {
      link_before(number, last.younger);
    } else {
      link_before(number, walk(wanted, run.oldest, run.youngest));
    }
    if (wanted < rank(run.oldest)) run.oldest = number;
    if (wanted >= rank(run.youngest)) run.youngest = number;
    run.last = number;
    return;
  }
  // So late a request may have pages in the list and no run.
  const bool known = sequence >= newest_ || newest_ - sequence < kRequests;
  link_before(number, known ? younger_neighbour(sequence) : walk(wanted, oldest_, youngest_));
  newest_ = std::max(newest_, sequence);
  if (run.sequence <= sequence) run = {sequence, number, number, number};
}

void LruPolicy::leave(Number number) {
  Page& page = pages_[number];
  if (page.aside) {
    if (page.evictable) returned_.erase(returned(number));
    page.aside = 0;
    return;
  }
  Run& run = run_of(page.sequence);
  if (run.sequence == page.sequence && !run.empty()) {
    if (run.oldest == run.youngest) {
      run = Run{run.sequence, kNone, kNone, kNone};
    } else {
      if (run.last == number) run.last = run.oldest == number ? page.younger : page.older;
      if (run.oldest == number) run.oldest = page.younger;
      if (run.youngest == number) run.youngest = page.older;
    }
  }
  (page.older == kNone ? oldest_ : pages_[page.older].younger) = page.younger;
  (page.younger == kNone ? youngest_ : pages_[page.younger].older) = page.older;
}

// Not where it would be ahead of an equal one that stays: its turn would tell the wrong order.
void LruPolicy::set_aside(Number number) {
  Page& page = pages_[number];
  if (page.older != kNone && rank(page.older) == page.rank()) return;
  leave(number);
  const std::uint64_t turn = ++turns_;
  page.older = static_cast<std::uint32_t>(turn >> 32);
  page.younger = static_cast<std::uint32_t>(turn);
  page.aside = 1;
}

// ---- what it is told ----

void LruPolicy::stored(const Candidate& candidate, const Access& access) {
  const std::uint64_t number = page_number(candidate.id);
  TIERCEL_CHECK(candidate.kind == CandidateKind::kPage && candidate_tag(candidate.id) == 0);
  TIERCEL_CHECK(number < kNone && candidate.length <= kLengthMost);
  if (number >= pages_.size()) pages_.resize(number + 1);
  const std::uint32_t sequence = relative(access.sequence);
  Page& page = pages_[number];
  TIERCEL_CHECK(!page.resident);
  page.sequence = sequence;
  page.shallowness = (kLengthMost - candidate.length) & kLengthMost;
  page.resident = 1;
  page.evictable = page.aside = 0;
  enter(static_cast<Number>(number));
}

void LruPolicy::touched(CandidateId id, const Access& access) {
  const Number number = resident(id);
  const std::uint32_t sequence = relative(access.sequence);
  Page& page = pages_[number];
  if (sequence < page.sequence) return;
  if (sequence == page.sequence && !page.aside &&
      (page.younger == kNone || rank(page.younger) != page.rank()))
    return;  // the youngest of its equals already
  leave(number);
  page.sequence = sequence;
  enter(number);
}

void LruPolicy::resized(CandidateId id, std::uint64_t) { resident(id); }

void LruPolicy::set_evictable(CandidateId id, bool evictable) {
  const Number number = resident(id);
  Page& page = pages_[number];
  if ((page.evictable != 0) == evictable) return;
  page.evictable = evictable ? 1 : 0;
  if (!page.aside) return;
  if (evictable) {
    returned_.insert(returned(number));
  } else {
    returned_.erase(returned(number));
  }
}

void LruPolicy::departed(CandidateId id, Departure) {
  const Number number = resident(id);
  leave(number);
  pages_[number].resident = 0;
}

// ---- the question ----

std::optional<CandidateId> LruPolicy::victim(const Access&, const Eligible& eligible) {
  auto back = returned_.begin();
  for (Number at = oldest_;;) {
    // An equal one that was set aside left the list first: it is older.
    if (back != returned_.end() && (at == kNone || back->rank <= rank(at))) {
      const CandidateId id = candidate_id(back->page);
      ++back;
      if (!eligible(id)) continue;
      ++visited_;
      return id;
    }
    if (at == kNone) return std::nullopt;
    const Number next = pages_[at].younger;
    if (next != kNone) __builtin_prefetch(&pages_[next]);
    if (!pages_[at].evictable) {
      ++visited_;
      set_aside(at);
    } else if (const CandidateId id = candidate_id(at); eligible(id)) {
      ++visited_;
      return id;
    }
    at = next;
  }
}

}  // namespace tiercel
