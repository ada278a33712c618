// Eviction policies behind one small interface: what is told to a policy, and the one question it answers —
// what goes next?
//
// A policy orders *candidates*: pages, resume points (snapshots and the window records that only they need)
// and, where every page keeps its windows, window records. It holds no bytes and evicts nothing itself. Under
// `lru`, the baseline, only pages are ever told.
//
// A page may be evicted only while it is a leaf (no resident child in a required class): the node says so
// with set_evictable; a candidate keeps the position that its own history gives while it may not go.
//
// Threads: one thread. Cost: stated per implementation in entries visited per call; counted by visited().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "base/ids.h"
#include "index/visit_ages.h"
#include "model/key_chain.h"
#include "os/clock.h"

namespace tiercel {

class ReuseModel;

// The node's own name for a candidate: number of its page × 64 + tag, where tag 0 is the page, 1 its resume
// point and 2 + class its window record of that class. Page numbers are dense, below 2^32 - 1, and used again
// once nothing resident has one or names it as its page or parent: policies keep arrays as long as the
// largest number told.
using CandidateId = Id<struct CandidateTag, std::uint64_t>;

constexpr std::uint64_t kCandidateTags = 64;
constexpr std::uint64_t page_number(CandidateId id) { return id.value() / kCandidateTags; }
constexpr std::uint64_t candidate_tag(CandidateId id) { return id.value() % kCandidateTags; }
constexpr CandidateId candidate_id(std::uint64_t page, std::uint64_t tag = 0) {
  return CandidateId{page * kCandidateTags + tag};
}

enum class CandidateKind : std::uint8_t { kPage, kPoint, kWindow };

struct Candidate {
  CandidateId id;
  CandidateKind kind = CandidateKind::kPage;
  Key key;                   // of its page: what ghost lists remember
  std::uint64_t bytes = 0;   // payload that goes when it goes (a page: its required and optional records; a
                             // point: snapshot and the windows only it needs)
  std::uint64_t length = 0;  // pages of the prefix that ends with this page (1 = first page)
  CandidateId page;          // of a point or window: the page it hangs on; of a page: itself
  std::optional<CandidateId> parent;  // of a page: its resident parent page
  std::uint64_t page_tokens = 1;      // what computing one of its pages again costs
  bool by_points = false;             // of a page: its model resumes only where a point is
};

// One request's (or call's) use of a page. `sequence` grows by one per request; all pages of a request share
// it, so "the first page is the most recent of all" follows from (sequence, shorter length first).
struct Access {
  std::uint64_t sequence = 0;
  Time now{0};
};

enum class Departure : std::uint8_t {
  kEvicted,
  kRemoved
};  // evicted: remembered by ghosts; removed: never was

struct PolicyOptions {
  std::uint64_t capacity =
      0;  // in units; 0 = unlimited (victim() is then only asked when something else bounds the node)
  bool capacity_in_bytes = true;  // unit: payload bytes, or one per page
  std::uint64_t seed = 1;
  // For `value`; both may be absent, and outlive the policy where they are not.
  const ReuseModel* reuse = nullptr;
  std::function<std::uint64_t(CandidateId)> bytes_now;  // of a point: what would leave with it
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual std::string_view name() const = 0;
  virtual bool pages_only()
      const = 0;  // lru: class-sets leave with their page, points and windows are not told
  virtual void stored(const Candidate& candidate,
                      const Access& access) = 0;  // became resident; not evictable until said
  virtual void touched(CandidateId id, const Access& access) = 0;  // served to, or seen again by, a request
  // What a reuse model says of it from now on. Of a point: it was made or used just now.
  virtual void expect(CandidateId, const Prospect&) {}
  virtual void resized(CandidateId id, std::uint64_t bytes) = 0;
  virtual void set_evictable(CandidateId id, bool evictable) = 0;
  virtual void departed(CandidateId id, Departure how) = 0;  // left; the id is forgotten
  // The next victim among evictable candidates that `eligible` accepts (not leased, pinned, quota …); nothing
  // when there is none. Passing over one changes no order. Does not remove it: the node evicts and calls
  // departed().
  using Eligible = std::function<bool(CandidateId)>;
  virtual std::optional<CandidateId> victim(const Access& access, const Eligible& eligible) = 0;
  // Tokens saved per request that a byte must bring to stay; 0 while nothing has to go, or nobody knows.
  virtual double going_rate() const { return 0; }
  // Entries looked at by victim() so far, those that `eligible` refused not counted: for tests of the stated
  // bound.
  virtual std::uint64_t visited() const = 0;
  // Nominal memory of one candidate; what its header adds to that is not in it.
  virtual std::uint64_t bytes_per_candidate() const = 0;
};

enum class PolicyKind : std::uint8_t { kLru, kS3Fifo, kTinyLfu, kValue };
std::string_view policy_name(PolicyKind kind);  // "lru", "s3fifo", "tinylfu", "value"
std::optional<PolicyKind> policy_from_name(std::string_view name);
std::unique_ptr<EvictionPolicy> make_policy(PolicyKind kind, const PolicyOptions& options);

}  // namespace tiercel
