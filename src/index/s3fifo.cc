#include "index/s3fifo.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {
namespace {

constexpr unsigned kUsesMax = 3;
constexpr unsigned kUsesForMain = 2;  // "accessed more than once"
constexpr std::uint64_t kSmallDivisor = 10;

}  // namespace

S3FifoPolicy::Entry& S3FifoPolicy::resident(CandidateId id) {
  const auto found = entries_.find(id);
  TIERCEL_CHECK(found != entries_.end());
  return found->second;
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

void S3FifoPolicy::place(CandidateId id, const Entry& entry) {
  Queue& queue = queue_of(entry);
  if (entry.evictable || (!entry.in_main && entry.uses >= kUsesForMain)) {
    queue.scanned.try_emplace(queue.scanned.end(), entry.tick, id);
  } else {
    queue.scanned.erase(entry.tick);
  }
}

void S3FifoPolicy::stored(const Candidate& candidate, const Access& access) {
  const CandidateName name = name_of(candidate);
  const bool remembered = ghosts_.forget(name);
  const Entry entry{name, units_of(candidate.bytes), ++tick_, access.sequence, remembered};
  const bool added = entries_.try_emplace(candidate.id, entry).second;
  TIERCEL_CHECK(added);
  queue_of(entry).units += entry.units;
}

void S3FifoPolicy::touched(CandidateId id, const Access& access) {
  Entry& entry = resident(id);
  if (entry.sequence == access.sequence) return;
  entry.sequence = access.sequence;
  if (entry.uses == kUsesMax) return;
  ++entry.uses;
  if (entry.uses == kUsesForMain) place(id, entry);
}

void S3FifoPolicy::resized(CandidateId id, std::uint64_t bytes) {
  Entry& entry = resident(id);
  Queue& queue = queue_of(entry);
  queue.units -= entry.units;
  entry.units = units_of(bytes);
  queue.units += entry.units;
}

void S3FifoPolicy::set_evictable(CandidateId id, bool evictable) {
  Entry& entry = resident(id);
  if (entry.evictable == evictable) return;
  entry.evictable = evictable;
  place(id, entry);
}

void S3FifoPolicy::departed(CandidateId id, Departure how) {
  const Entry& entry = resident(id);
  Queue& queue = queue_of(entry);
  queue.scanned.erase(entry.tick);
  // The share is taken while the one that goes still counts: alone in the cache it is remembered too.
  if (how == Departure::kEvicted && !entry.in_main) ghosts_.remember(entry.name, entry.units, main_share());
  queue.units -= entry.units;
  entries_.erase(id);
}

std::optional<CandidateId> S3FifoPolicy::small_victim(std::uint64_t floor, const Eligible& eligible) {
  auto at = small_.scanned.begin();
  while (at != small_.scanned.end() && small_.units >= floor) {
    const CandidateId id = at->second;
    Entry& entry = resident(id);
    if (entry.uses < kUsesForMain) {
      if (eligible(id)) {
        ++visited_;
        return id;
      }
      ++at;
      continue;
    }
    ++visited_;
    at = small_.scanned.erase(at);
    small_.units -= entry.units;
    main_.units += entry.units;
    entry.in_main = true;
    entry.uses = 0;
    entry.tick = ++tick_;
    place(id, entry);
  }
  return std::nullopt;
}

std::optional<CandidateId> S3FifoPolicy::main_victim(const Eligible& eligible) {
  auto at = main_.scanned.begin();
  while (at != main_.scanned.end()) {
    const CandidateId id = at->second;
    if (!eligible(id)) {
      ++at;
      continue;
    }
    ++visited_;
    Entry& entry = resident(id);
    if (entry.uses == 0) return id;
    --entry.uses;
    entry.tick = ++tick_;
    place(id, entry);  // behind all others: this walk may come to it again
    at = main_.scanned.erase(at);
  }
  return std::nullopt;
}

std::optional<CandidateId> S3FifoPolicy::victim(const Access&, const Eligible& eligible) {
  if (const auto found = small_victim(small_share(), eligible)) return found;
  if (const auto found = main_victim(eligible)) return found;
  if (const auto found = small_victim(0, eligible)) return found;
  return main_victim(eligible);  // what the line above moved there
}

}  // namespace tiercel
