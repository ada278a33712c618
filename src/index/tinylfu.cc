#include "index/tinylfu.h"

#include <algorithm>

#include "base/check.h"
#include "index/ghost_list.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kWindowDivisor = 100;

}  // namespace

TinyLfuPolicy::TinyLfuPolicy(const PolicyOptions& options) : options_(options), sketch_(options.seed) {
  if (!options.capacity_in_bytes) sketch_.cover(options.capacity);
}

TinyLfuPolicy::Entry& TinyLfuPolicy::resident(CandidateId id) {
  const CandidateSlots::Slot slot = slots_.find(id);
  TIERCEL_CHECK(slot != CandidateSlots::kNone);
  return entries_[slot];
}

std::uint64_t TinyLfuPolicy::units_of(std::uint64_t bytes) const {
  return options_.capacity_in_bytes ? std::max<std::uint64_t>(bytes, 1) : 1;
}

TinyLfuPolicy::Shares TinyLfuPolicy::shares() const {
  std::uint64_t whole = options_.capacity;
  if (whole == 0) {
    for (const Queue& each : queues_) whole += each.units;
  }
  const std::uint64_t window = std::max<std::uint64_t>(whole / kWindowDivisor, 1);
  const std::uint64_t main = whole - std::min(whole, window);
  return {window, main, main / 5 * 4 + main % 5 * 4 / 5};
}

void TinyLfuPolicy::enter(Entry& entry, Segment segment, std::uint64_t sequence) {
  entry.segment = segment;
  entry.place.sequence = sequence;
  entry.place.tick = ++tick_;
  Queue& to = queue(segment);
  to.all.insert(to.all.end(), entry.place);
  if (entry.evictable) to.evictable.insert(to.evictable.end(), entry.place);
  to.units += entry.units;
}

void TinyLfuPolicy::leave(const Entry& entry) {
  Queue& from = queue(entry.segment);
  from.all.erase(entry.place);
  if (entry.evictable) from.evictable.erase(entry.place);
  from.units -= entry.units;
}

std::uint64_t TinyLfuPolicy::settle_window(const Access& access, bool uncontested) {
  Queue& window = queue(Segment::kWindow);
  std::uint64_t moved = 0;
  for (const Shares share = shares(); window.units > share.window; ++moved) {
    Entry& entry = resident(window.all.begin()->id);
    const std::uint64_t main = queue(Segment::kProbation).units + queue(Segment::kProtected).units;
    const bool room = main + entry.units <= share.main;
    if (!room && !(uncontested && !entry.evictable)) break;
    leave(entry);
    enter(entry, Segment::kProbation, access.sequence);
  }
  return moved;
}

void TinyLfuPolicy::stored(const Candidate& candidate, const Access& access) {
  const CandidateSlots::Slot slot = slots_.add(candidate.id);
  if (slot == entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[slot];
  entry = Entry{};
  entry.hash = name_of(candidate).hash();
  entry.units = units_of(candidate.bytes);
  entry.sequence = access.sequence;
  entry.place.shallowness = ~candidate.length;
  entry.place.id = candidate.id;
  sketch_.cover(slots_.size());
  sketch_.add(entry.hash);
  enter(entry, Segment::kWindow, access.sequence);
  // Whether the new one may go is not said yet: only into free room.
  settle_window(access, false);
}

void TinyLfuPolicy::touched(CandidateId id, const Access& access) {
  Entry& entry = resident(id);
  if (entry.sequence == access.sequence) return;
  entry.sequence = access.sequence;
  sketch_.add(entry.hash);
  leave(entry);
  enter(entry, entry.segment == Segment::kWindow ? Segment::kWindow : Segment::kProtected, access.sequence);
  Queue& kept = queue(Segment::kProtected);
  for (const std::uint64_t share = shares().protected_main; kept.units > share;) {
    Entry& demoted = resident(kept.all.begin()->id);
    leave(demoted);
    enter(demoted, Segment::kProbation, access.sequence);
  }
}

void TinyLfuPolicy::resized(CandidateId id, std::uint64_t bytes) {
  Entry& entry = resident(id);
  Queue& in = queue(entry.segment);
  in.units -= entry.units;
  entry.units = units_of(bytes);
  in.units += entry.units;
}

void TinyLfuPolicy::set_evictable(CandidateId id, bool evictable) {
  Entry& entry = resident(id);
  if (entry.evictable == evictable) return;
  entry.evictable = evictable;
  Queue& in = queue(entry.segment);
  if (evictable) {
    in.evictable.insert(entry.place);
  } else {
    in.evictable.erase(entry.place);
  }
}

void TinyLfuPolicy::departed(CandidateId id, Departure) {
  leave(resident(id));
  slots_.remove(id);
}

std::optional<CandidateId> TinyLfuPolicy::oldest(const Queue& from, const Eligible& eligible) {
  for (const Place& place : from.evictable) {
    if (eligible(place.id)) return place.id;
  }
  return std::nullopt;
}

std::optional<CandidateId> TinyLfuPolicy::main_victim(const Eligible& eligible) {
  auto found = oldest(queue(Segment::kProbation), eligible);
  if (!found) found = oldest(queue(Segment::kProtected), eligible);
  visited_ += found ? 1 : 0;
  return found;
}

std::optional<CandidateId> TinyLfuPolicy::victim(const Access& access, const Eligible& eligible) {
  visited_ += settle_window(access, true);
  const Queue& window = queue(Segment::kWindow);
  const bool window_full = window.units >= shares().window;
  const auto resident_victim = main_victim(eligible);
  if (resident_victim && !window_full) return resident_victim;
  const auto newcomer = oldest(window, eligible);
  if (!newcomer) return resident_victim;
  ++visited_;
  if (!resident_victim) return newcomer;
  Entry& contender = resident(*newcomer);
  if (sketch_.estimate(contender.hash) <= sketch_.estimate(resident(*resident_victim).hash)) return newcomer;
  leave(contender);
  enter(contender, Segment::kProbation, access.sequence);
  return resident_victim;
}

}  // namespace tiercel
