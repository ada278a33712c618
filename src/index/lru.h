// The baseline: one recency list of pages (contract §9). After a request all of its pages are the most
// recent, the first page the most recent of all.
//
// One list holds all pages in exact order, those that may not go too; the order between calls is (sequence,
// deeper first, tick). The pages of one request are neighbours, so a page finds its place beside the last one
// of its request; a ring of the latest kRequests requests knows where those are. A page that may not go and
// that victim() meets is set aside and met no more; when it may go it waits in an ordered set for its turn.
//
// Threads: one thread. Cost: O(1) with at most four other entries looked at, where the pages of a request
// come root first or leaf first, also of several requests at once; any other order looks at up to half the
// pages of that request, and a request that is late by n others at n entries of the ring, or, late by
// kRequests or more, at up to half of all pages: walked() counts them. victim looks at its answer, at those
// refused, and once per store or touch at a page that may not go (beside one of the same request and length
// that was refused: at each call). O(log n) for pages that were set aside. Memory: kPageBytes a page number,
// and 96 KiB; 64 bytes for a page that may go again after it was set aside.
#pragma once

#include <array>
#include <set>
#include <vector>

#include "index/policy.h"

namespace tiercel {

class LruPolicy final : public EvictionPolicy {
 public:
  static constexpr std::uint64_t kPageBytes = 16;
  static constexpr std::uint32_t kRequests = 4096;

  LruPolicy() : runs_(kRequests) {}
  std::string_view name() const override { return "lru"; }
  bool pages_only() const override { return true; }
  // A store that is 2^31 requests late counts as just that late.
  void stored(const Candidate& candidate, const Access& access) override;
  // A touch by an earlier request than the last one changes nothing: recency never goes back.
  void touched(CandidateId id, const Access& access) override;
  void resized(CandidateId id, std::uint64_t bytes) override;
  void set_evictable(CandidateId id, bool evictable) override;
  void departed(CandidateId id, Departure how) override;
  std::optional<CandidateId> victim(const Access& access, const Eligible& eligible) override;
  std::uint64_t visited() const override { return visited_; }
  std::uint64_t bytes_per_candidate() const override { return kPageBytes; }
  // Entries passed by so far to find places: for tests of the stated bound.
  std::uint64_t walked() const { return walked_; }

 private:
  using Number = std::uint32_t;  // of a page
  static constexpr Number kNone = UINT32_MAX;
  static constexpr std::uint32_t kLengthMost = (1U << 29) - 1;

  struct Page {
    Number older = kNone, younger = kNone;  // neighbours; of a page set aside: halves of its turn
    std::uint32_t sequence = 0;             // of its last use, from base_
    std::uint32_t shallowness : 29 = 0;     // kLengthMost - length
    std::uint32_t resident : 1 = 0, evictable : 1 = 0, aside : 1 = 0;
    // Equal ranks stand in the order of their ticks: the list itself keeps those.
    std::uint64_t rank() const { return std::uint64_t{sequence} << 32 | shallowness; }
    std::uint64_t turn() const { return std::uint64_t{older} << 32 | younger; }
  };
  static_assert(sizeof(Page) == kPageBytes);
  // The pages of one request that are in the list, neighbours there.
  struct Run {
    std::uint32_t sequence = 0;
    Number oldest = kNone, youngest = kNone;
    Number last = kNone;  // entered last
    bool empty() const { return oldest == kNone; }
  };
  // A page set aside that may go again. A page leaves the list after all that are older, so turns order
  // equals.
  struct Returned {
    std::uint64_t rank, turn;
    Number page;
    friend auto operator<=>(const Returned&, const Returned&) = default;
  };

  Number resident(CandidateId id) const;
  std::uint32_t relative(std::uint64_t sequence);
  void rebase(std::uint64_t sequence);
  Run& run_of(std::uint32_t sequence) { return runs_[sequence % kRequests]; }
  std::uint64_t rank(Number page) const { return pages_[page].rank(); }
  bool fits(std::uint64_t rank, Number older, Number younger) const;
  void enter(Number page);  // youngest of its equals
  Number younger_neighbour(std::uint32_t sequence);
  Number walk(std::uint64_t rank, Number older, Number younger);
  void link_before(Number page, Number younger);
  void leave(Number page);
  void set_aside(Number page);
  Returned returned(Number page) const { return {rank(page), pages_[page].turn(), page}; }

  std::vector<Page> pages_;
  std::vector<Run> runs_;
  std::set<Returned> returned_;
  Number oldest_ = kNone, youngest_ = kNone;
  std::uint64_t base_ = 0;
  std::uint32_t newest_ = 0;  // largest sequence entered, from base_
  std::uint64_t turns_ = 0;
  std::uint64_t visited_ = 0, walked_ = 0;
};

}  // namespace tiercel
