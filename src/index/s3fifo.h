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
// Threads: one thread. Cost: touched O(1), else O(log n). victim visits its answer, and otherwise only
// entries that it moves, each at the price of an earlier touch: over any run, at most one a call and one a
// touch.
#pragma once

#include <map>
#include <unordered_map>

#include "index/ghost_list.h"
#include "index/policy.h"

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
  std::uint64_t bytes_per_candidate() const override { return sizeof(Entry); }

 private:
  // The entries a scan has to look at, oldest first: those that may go, and in the small queue those that
  // have earned the main queue.
  struct Queue {
    std::map<std::uint64_t, CandidateId> scanned;
    std::uint64_t units = 0;  // of all its entries
  };
  struct Entry {
    CandidateName name;
    std::uint64_t units;
    std::uint64_t tick;  // its place in its queue
    std::uint64_t sequence;
    bool in_main;
    bool evictable = false;
    unsigned uses = 0;
  };

  Entry& resident(CandidateId id);
  Queue& queue_of(const Entry& entry) { return entry.in_main ? main_ : small_; }
  std::uint64_t units_of(std::uint64_t bytes) const;
  std::uint64_t small_share() const;
  std::uint64_t main_share() const;
  // Enters or leaves `scanned` as its state asks.
  void place(CandidateId id, const Entry& entry);
  // Walks the small queue while it holds at least `floor` units.
  std::optional<CandidateId> small_victim(std::uint64_t floor, const Eligible& eligible);
  std::optional<CandidateId> main_victim(const Eligible& eligible);

  PolicyOptions options_;
  std::unordered_map<CandidateId, Entry> entries_;
  Queue small_;
  Queue main_;
  GhostList ghosts_;
  std::uint64_t tick_ = 0;
  std::uint64_t visited_ = 0;
};

}  // namespace tiercel
