#include "index/s3fifo.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {
namespace {

constexpr std::uint8_t kUsesMax = 3;
constexpr std::uint8_t kUsesForMain = 2;  // "accessed more than once"
constexpr std::uint64_t kSmallDivisor = 10;

}  // namespace

S3FifoPolicy::Slot S3FifoPolicy::resident(CandidateId id) const {
  const Slot slot = slots_.find(id);
  TIERCEL_CHECK(slot != CandidateSlots::kNone);
  return slot;
}

std::uint64_t S3FifoPolicy::units_of(std::uint64_t bytes) const {
  return options_.capacity_in_bytes ? std::max<std::uint64_t>(bytes, 1) : 1;
}

std::uint64_t S3FifoPolicy::small_share() const {
  const std::uint64_t whole = options_.capacity != 0 ? options_.capacity : small_.units + main_.units;
  return std::max<std::uint64_t>(whole / kSmallDivisor, 1);
}

std::uint64_t S3FifoPolicy::main_share() const {
  const std::uint64_t whole = options_.capacity != 0 ? options_.capacity : small_.units + main_.units;
  return whole - std::min(whole, small_share());
}

void S3FifoPolicy::enter(Slot slot, bool in_main) {
  Entry& entry = entries_[slot];
  entry.in_main = in_main;
  Queue& queue = queue_of(entry);
  entry.place =
      queue.entries.push(slot, [this](Slot moved, std::uint32_t place) { entries_[moved].place = place; });
  queue.units += entry.units;
  mark(entry);
}

void S3FifoPolicy::leave(const Entry& entry) {
  Queue& queue = queue_of(entry);
  queue.entries.remove(entry.place);
  queue.units -= entry.units;
}

void S3FifoPolicy::mark(const Entry& entry) {
  const bool earned_main = !entry.in_main && entry.uses >= kUsesForMain;
  queue_of(entry).entries.mark(entry.place, entry.evictable || earned_main);
}

void S3FifoPolicy::stored(const Candidate& candidate, const Access& access) {
  const Slot slot = slots_.add(candidate.id);
  if (slot == entries_.size()) entries_.emplace_back();
  Entry& entry = entries_[slot];
  entry = Entry{};
  entry.id = candidate.id;
  entry.key = candidate.key;
  entry.kind = candidate.kind;
  entry.units = units_of(candidate.bytes);
  entry.sequence = access.sequence;
  const bool remembered = ghosts_.forget(name_of(candidate));
  enter(slot, remembered);
}

void S3FifoPolicy::touched(CandidateId id, const Access& access) {
  Entry& entry = entries_[resident(id)];
  if (entry.sequence == access.sequence) return;
  entry.sequence = access.sequence;
  if (entry.uses == kUsesMax) return;
  ++entry.uses;
  if (entry.uses == kUsesForMain) mark(entry);
}

void S3FifoPolicy::resized(CandidateId id, std::uint64_t bytes) {
  Entry& entry = entries_[resident(id)];
  Queue& queue = queue_of(entry);
  queue.units -= entry.units;
  entry.units = units_of(bytes);
  queue.units += entry.units;
}

void S3FifoPolicy::set_evictable(CandidateId id, bool evictable) {
  Entry& entry = entries_[resident(id)];
  if (entry.evictable == evictable) return;
  entry.evictable = evictable;
  mark(entry);
}

void S3FifoPolicy::departed(CandidateId id, Departure how) {
  const Entry& entry = entries_[resident(id)];
  // The share is taken while the one that goes still counts: alone in the cache it is remembered too.
  if (how == Departure::kEvicted && !entry.in_main)
    ghosts_.remember({entry.key, entry.kind}, entry.units, main_share());
  leave(entry);
  slots_.remove(id);
}

std::optional<CandidateId> S3FifoPolicy::small_victim(std::uint64_t floor, const Eligible& eligible) {
  std::uint64_t at = small_.entries.next(0);
  for (; at != MarkedFifo::kNone && small_.units >= floor; at = small_.entries.next(at + 1)) {
    const Slot slot = small_.entries.at(at);
    Entry& entry = entries_[slot];
    if (entry.uses < kUsesForMain) {
      if (!eligible(entry.id)) continue;
      ++visited_;
      return entry.id;
    }
    ++visited_;
    leave(entry);
    entry.uses = 0;
    enter(slot, true);
  }
  return std::nullopt;
}

std::optional<CandidateId> S3FifoPolicy::main_victim(const Eligible& eligible) {
  Slot refused = CandidateSlots::kNone;  // the last one: what moves behind it may move it too
  for (;;) {
    const std::uint64_t from =
        refused == CandidateSlots::kNone ? 0 : entries_[refused].place + std::uint64_t{1};
    const std::uint64_t at = main_.entries.next(from);
    if (at == MarkedFifo::kNone) return std::nullopt;
    const Slot slot = main_.entries.at(at);
    Entry& entry = entries_[slot];
    if (!eligible(entry.id)) {
      refused = slot;
      continue;
    }
    ++visited_;
    if (entry.uses == 0) return entry.id;
    --entry.uses;
    leave(entry);
    enter(slot, true);  // behind all others: this walk may come to it again
  }
}

std::optional<CandidateId> S3FifoPolicy::victim(const Access&, const Eligible& eligible) {
  if (const auto found = small_victim(small_share(), eligible)) return found;
  if (const auto found = main_victim(eligible)) return found;
  if (const auto found = small_victim(0, eligible)) return found;
  return main_victim(eligible);  // what the line above moved there
}

}  // namespace tiercel
