// W-TinyLFU (Einziger, Friedman, Manes: "TinyLFU: A Highly Efficient Cache Admission Policy", ACM TOS 2017).
// What is new enters a window of 1 %, an LRU list; what falls out of it must have been used more often, by a
// sketch, than the next victim of the main cache, or goes itself. The main cache is a segmented LRU: 20 %
// probation, 80 % protected for what was used again.
//
// What the paper does not have: a candidate that may not go keeps its place; one that the window has no room
// for moves to probation without a contest. Uses by one request count once; its deepest page is its oldest.
// Without a capacity the shares are of what is resident.
//
// Threads: one thread. Cost: O(log n), in ordered sets of places; a halving of the sketch amortised. victim
// visits at most two entries, and each candidate once more in its residency, when it leaves the window
// without a contest; and those refused, at each call. Memory: kBytes a candidate that may go, a set's node
// less for one that may not.
#pragma once

#include <array>
#include <vector>

#include "index/frequency_sketch.h"
#include "index/place.h"
#include "index/policy.h"
#include "index/policy_slots.h"

namespace tiercel {

class TinyLfuPolicy final : public EvictionPolicy {
 public:
  explicit TinyLfuPolicy(const PolicyOptions& options);
  std::string_view name() const override { return "tinylfu"; }
  bool pages_only() const override { return false; }
  void stored(const Candidate& candidate, const Access& access) override;
  void touched(CandidateId id, const Access& access) override;
  void resized(CandidateId id, std::uint64_t bytes) override;
  void set_evictable(CandidateId id, bool evictable) override;
  void departed(CandidateId id, Departure how) override;
  std::optional<CandidateId> victim(const Access& access, const Eligible& eligible) override;
  std::uint64_t visited() const override { return visited_; }
  std::uint64_t bytes_per_candidate() const override { return kBytes; }

 private:
  enum class Segment : std::uint8_t { kWindow, kProbation, kProtected };
  struct Queue {
    PlaceSet all;
    PlaceSet evictable;
    std::uint64_t units = 0;
  };
  struct Entry {
    std::uint64_t hash = 0;
    std::uint64_t units = 0;
    std::uint64_t sequence = 0;  // of its last use
    Place place;
    Segment segment = Segment::kWindow;
    bool evictable = false;
  };
  static constexpr std::uint64_t kBytes =
      sizeof(Entry) + CandidateSlots::kBytes + 2 * kPlaceBytes + FrequencySketch::kEntryBytes;
  struct Shares {
    std::uint64_t window;
    std::uint64_t main;
    std::uint64_t protected_main;
  };

  Entry& resident(CandidateId id);
  Queue& queue(Segment segment) { return queues_[static_cast<std::size_t>(segment)]; }
  std::uint64_t units_of(std::uint64_t bytes) const;
  Shares shares() const;
  void enter(Entry& entry, Segment segment, std::uint64_t sequence);  // as the most recent of `sequence`
  void leave(const Entry& entry);
  // Moves what the window has no room for to probation while the main cache has room; if `uncontested`, also
  // what may not go and therefore cannot lose a contest. Returns: how many moved.
  std::uint64_t settle_window(const Access& access, bool uncontested);
  static std::optional<CandidateId> oldest(const Queue& from, const Eligible& eligible);
  std::optional<CandidateId> main_victim(const Eligible& eligible);

  PolicyOptions options_;
  FrequencySketch sketch_;
  CandidateSlots slots_;
  std::vector<Entry> entries_;  // by slot
  std::array<Queue, 3> queues_;
  std::uint64_t tick_ = 0;
  std::uint64_t visited_ = 0;
};

}  // namespace tiercel
