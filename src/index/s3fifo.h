// S3-FIFO (Yang, Zhang, Qiu, Yue, Vinayak: "FIFO queues are all you need for cache eviction", SOSP 2023).
// A small queue of 10 % takes what is new; what was used more than once there moves to the main queue, the
// rest goes and is remembered in a ghost list as large as the main queue; a remembered name enters the main
// queue at once. The main queue gives one more round for each use, at most three.
//
// What the paper does not have: a candidate that may not go keeps its place and its uses; one whose uses
// earned it the main queue moves there whether or not it may go, so that inner pages of a hot prefix do not
// fill the small queue. Uses by one request count once. Without a capacity the shares are of what is
// resident.
//
// Threads: one thread. Cost: O(1) amortised (queues are arrays, their entries move together when one is
// full). victim visits its answer, and otherwise only entries that it moves, each at the price of an earlier
// touch: over any run, at most one a call and one a touch; and those refused, at each call. Memory: kBytes a
// candidate and a ghost for each evicted one (ghost_list.h).
#pragma once

#include <vector>

#include "index/ghost_list.h"
#include "index/policy.h"
#include "index/policy_fifo.h"
#include "index/policy_slots.h"

namespace tiercel {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  explicit S3FifoPolicy(const PolicyOptions& options) : options_(options) {}
  std::string_view name() const override { return "s3fifo"; }
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
  using Slot = CandidateSlots::Slot;
  // Marked are the entries that a scan has to look at: those that may go, and in the small queue those that
  // have earned the main queue.
  struct Queue {
    MarkedFifo entries;
    std::uint64_t units = 0;  // of all its entries
  };
  struct Entry {
    Key key;
    std::uint64_t units = 0;
    std::uint64_t sequence = 0;  // of its last use
    CandidateId id;
    std::uint32_t place = 0;  // in its queue
    CandidateKind kind = CandidateKind::kPage;
    bool in_main = false;
    bool evictable = false;
    std::uint8_t uses = 0;
  };
  static constexpr std::uint64_t kBytes = sizeof(Entry) + MarkedFifo::kBytes + CandidateSlots::kBytes;

  Slot resident(CandidateId id) const;
  Queue& queue_of(const Entry& entry) { return entry.in_main ? main_ : small_; }
  std::uint64_t units_of(std::uint64_t bytes) const;
  std::uint64_t small_share() const;
  std::uint64_t main_share() const;
  void enter(Slot slot, bool in_main);  // behind all others
  void leave(const Entry& entry);
  void mark(const Entry& entry);  // as its state asks
  // Walks the small queue while it holds at least `floor` units.
  std::optional<CandidateId> small_victim(std::uint64_t floor, const Eligible& eligible);
  std::optional<CandidateId> main_victim(const Eligible& eligible);

  PolicyOptions options_;
  CandidateSlots slots_;
  std::vector<Entry> entries_;  // by slot
  Queue small_;
  Queue main_;
  GhostList ghosts_;
  std::uint64_t visited_ = 0;
};

}  // namespace tiercel
