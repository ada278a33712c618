// For tests: S3-FIFO as its text reads, with ordered maps and a list of ghosts. What s3fifo.h does must give
// every answer that this gives.
//
// Threads: one thread. Cost: O(log n) a call.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <unordered_map>

#include "index/ghost_list.h"
#include "index/policy.h"

namespace tiercel {

class ModelS3Fifo final : public EvictionPolicy {
 public:
  explicit ModelS3Fifo(const PolicyOptions& options) : options_(options) {}
  std::string_view name() const override { return "s3fifo"; }
  bool pages_only() const override { return false; }
  std::uint64_t visited() const override { return 0; }
  std::uint64_t bytes_per_candidate() const override { return 0; }

  void stored(const Candidate& candidate, const Access& access) override {
    const CandidateName name = name_of(candidate);
    const bool remembered = forget(name);
    const Entry entry{name, units_of(candidate.bytes), ++tick_, access.sequence, remembered};
    entries_.emplace(candidate.id, entry);
    queue_of(entry).units += entry.units;
  }

  void touched(CandidateId id, const Access& access) override {
    Entry& entry = entries_.at(id);
    if (entry.sequence == access.sequence) return;
    entry.sequence = access.sequence;
    entry.uses = std::min(entry.uses + 1, 3U);
    place(id, entry);
  }

  void resized(CandidateId id, std::uint64_t bytes) override {
    Entry& entry = entries_.at(id);
    queue_of(entry).units += units_of(bytes) - entry.units;
    entry.units = units_of(bytes);
  }

  void set_evictable(CandidateId id, bool evictable) override {
    Entry& entry = entries_.at(id);
    entry.evictable = evictable;
    place(id, entry);
  }

  void departed(CandidateId id, Departure how) override {
    const Entry& entry = entries_.at(id);
    Queue& queue = queue_of(entry);
    queue.scanned.erase(entry.tick);
    if (how == Departure::kEvicted && !entry.in_main) remember(entry.name, entry.units);
    queue.units -= entry.units;
    entries_.erase(id);
  }

  std::optional<CandidateId> victim(const Access&, const Eligible& eligible) override {
    if (const auto found = small_victim(small_share(), eligible)) return found;
    if (const auto found = main_victim(eligible)) return found;
    if (const auto found = small_victim(0, eligible)) return found;
    return main_victim(eligible);
  }

 private:
  struct Queue {
    std::map<std::uint64_t, CandidateId> scanned;
    std::uint64_t units = 0;
  };
  struct Entry {
    CandidateName name;
    std::uint64_t units;
    std::uint64_t tick;
    std::uint64_t sequence;
    bool in_main;
    bool evictable = false;
    unsigned uses = 0;
  };
  struct Ghost {
    CandidateName name;
    std::uint64_t units;
  };

  Queue& queue_of(const Entry& entry) { return entry.in_main ? main_ : small_; }
  std::uint64_t units_of(std::uint64_t bytes) const {
    return options_.capacity_in_bytes ? std::max<std::uint64_t>(bytes, 1) : 1;
  }
  std::uint64_t whole() const {
    return options_.capacity != 0 ? options_.capacity : small_.units + main_.units;
  }
  std::uint64_t small_share() const { return std::max<std::uint64_t>(whole() / 10, 1); }
  std::uint64_t main_share() const { return whole() - std::min(whole(), small_share()); }

  void place(CandidateId id, const Entry& entry) {
    if (entry.evictable || (!entry.in_main && entry.uses >= 2)) {
      queue_of(entry).scanned.emplace(entry.tick, id);
    } else {
      queue_of(entry).scanned.erase(entry.tick);
    }
  }

  bool forget(const CandidateName& name) {
    const auto is_it = [&](const Ghost& ghost) { return ghost.name == name; };
    const auto found = std::find_if(ghosts_.begin(), ghosts_.end(), is_it);
    if (found == ghosts_.end()) return false;
    ghost_units_ -= found->units;
    ghosts_.erase(found);
    return true;
  }

  void remember(const CandidateName& name, std::uint64_t units) {
    forget(name);
    ghosts_.push_back({name, units});
    for (ghost_units_ += units; ghost_units_ > main_share(); ghosts_.pop_front())
      ghost_units_ -= ghosts_.front().units;
  }

  std::optional<CandidateId> small_victim(std::uint64_t floor, const Eligible& eligible) {
    auto at = small_.scanned.begin();
    while (at != small_.scanned.end() && small_.units >= floor) {
      const CandidateId id = at->second;
      Entry& entry = entries_.at(id);
      if (entry.uses < 2 && eligible(id)) return id;
      if (entry.uses < 2) {
        ++at;
        continue;
      }
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

  std::optional<CandidateId> main_victim(const Eligible& eligible) {
    auto at = main_.scanned.begin();
    while (at != main_.scanned.end()) {
      const CandidateId id = at->second;
      if (!eligible(id)) {
        ++at;
        continue;
      }
      Entry& entry = entries_.at(id);
      if (entry.uses == 0) return id;
      --entry.uses;
      entry.tick = ++tick_;
      place(id, entry);
      at = main_.scanned.erase(at);
    }
    return std::nullopt;
  }

  PolicyOptions options_;
  std::unordered_map<CandidateId, Entry> entries_;
  Queue small_;
  Queue main_;
  std::list<Ghost> ghosts_;  // oldest first
  std::uint64_t ghost_units_ = 0;
  std::uint64_t tick_ = 0;
};

}  // namespace tiercel
