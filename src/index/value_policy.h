// What goes is what saves least per byte: recompute saved × chance of reuse ÷ bytes.
//
// A page of a model that resumes at points only is worth nothing by itself: once it is a leaf without a point
// it goes first. A point is worth the tokens from the next shorter point on, and costs its own bytes and
// those of the pages that would then be such leaves; when it goes, who would have resumed at it resumes at
// the shorter one. Any other page, and a window record, is worth itself. Chances and their ages come from a
// reuse model; without one, from how often and how long ago.
//
// Threads: one thread. Cost: victim looks at kSample random candidates and measures kRechecks of them again;
// beyond that it looks only at those refused: of pages worth nothing the latest until one is taken, and,
// where all drawn are refused, the others in the order of their slots until one is taken. Measuring follows
// at most kChainMost pages. The rest is O(1). Memory: kBytes a candidate, and as much for a page that is not
// resident while something resident hangs on it.
#pragma once

#include <optional>
#include <vector>

#include "base/prng.h"
#include "index/policy.h"
#include "index/policy_slots.h"
#include "index/reuse_model.h"

namespace tiercel {

class ValuePolicy final : public EvictionPolicy {
 public:
  static constexpr std::size_t kSample = 64;
  static constexpr std::size_t kRechecks = 8;
  static constexpr std::size_t kChainMost = 1024;

  explicit ValuePolicy(const PolicyOptions& options);
  std::string_view name() const override { return "value"; }
  bool pages_only() const override { return false; }
  void stored(const Candidate& candidate, const Access& access) override;
  // A point is used only where a request resumes at it, which expect() tells; passing by changes nothing.
  void touched(CandidateId id, const Access& access) override;
  void expect(CandidateId id, const Prospect& prospect) override;
  void resized(CandidateId id, std::uint64_t bytes) override;
  void set_evictable(CandidateId id, bool evictable) override;
  void departed(CandidateId id, Departure how) override;
  std::optional<CandidateId> victim(const Access& access, const Eligible& eligible) override;
  double going_rate() const override { return going_rate_; }
  std::uint64_t visited() const override { return visited_; }
  std::uint64_t bytes_per_candidate() const override { return kBytes; }

 private:
  using Slot = CandidateSlots::Slot;
  static constexpr Slot kNoSlot = CandidateSlots::kNone;
  enum class List : std::uint8_t { kNone, kWorthless, kValued };
  // A candidate; or a page that is not resident, which something resident hangs on.
  struct Entry {
    CandidateId id;
    CandidateKind kind = CandidateKind::kPage;
    bool resident = false, evictable = false, by_points = false;
    List list = List::kNone;
    std::uint32_t list_at = 0;
    Slot page = kNoSlot;                      // of a point or window: what it hangs on; of a page: itself
    Slot parent = kNoSlot;                    // of a page
    Slot point = kNoSlot;                     // on a page, at most one
    std::uint32_t children = 0, hangers = 0;  // of a page; hangers: its point and windows
    std::uint64_t bytes = 0, page_tokens = 1;
    Prospect prospect;
    std::uint64_t used = 0;           // the clock when it was stored or last used
    std::uint64_t sequence = 0;       // of that use
    double saved_tokens = 0;          // by a visit, as last measured
    std::uint64_t bytes_with_it = 0;  // of pages that would be worthless without it, as last measured
  };

  static constexpr std::uint64_t kBytes = sizeof(Entry) + CandidateSlots::kBytes + sizeof(Slot);

  Slot resident(CandidateId id) const;
  Slot entry_of(CandidateId id);  // makes one that is not resident
  void forget_if_unused(Slot slot);
  void place(Slot slot);  // into the list where it belongs
  void unlist(Entry& entry);
  void use(Entry& entry, const Access& access);
  std::uint64_t clock(std::uint64_t sequence) const;
  double rate(const Entry& entry) const;
  double worth(const Entry& entry) const;
  void measure(Entry& entry);
  std::optional<CandidateId> worthless_victim(const Eligible& eligible);
  std::optional<CandidateId> valued_victim(const Eligible& eligible);
  void take_rate(double worth);
  void inherit(const Entry& gone);

  const ReuseModel* model_;
  VisitAges own_ages_;  // where there is no model
  const VisitAges& ages_;
  std::function<std::uint64_t(CandidateId)> bytes_now_;
  Prng prng_;
  CandidateSlots slots_;
  std::vector<Entry> entries_;            // by slot
  NumberSet may_go_;                      // slots
  std::vector<Slot> worthless_, valued_;  // of those that may go
  double going_rate_ = 0;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t visited_ = 0;
};

}  // namespace tiercel
