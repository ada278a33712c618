// Why a page was missed: the closed list of contract §5, and the rule that gives each missed page exactly
// one.
//
// Threads: pure values and functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "index/history.h"
#include "model/resume.h"
#include "os/clock.h"

namespace tiercel {

enum class Reason : std::uint8_t {
  kLimit,
  kTail,
  kAfterGap,
  kStateMissing,
  kWindowMissing,
  kInFlight,
  kDamaged,
  kTierDown,
  kTooLate,
  kRemoved,
  kEvicted,
  kNoRoom,          // not_admitted(no_room)
  kTooLarge,        // not_admitted(too_large)
  kSecondTouch,     // not_admitted(second_touch)
  kWriteBudget,     // not_admitted(write_budget)
  kQuota,           // not_admitted(quota)
  kBelowThreshold,  // not_admitted(below_threshold)
  kRateLimited,     // not_admitted(rate_limited)
  kOtherForm,
  kOtherIdentity,
  kNeverStored,
  kUnknownPast,
};
inline constexpr std::size_t kReasonCount = static_cast<std::size_t>(Reason::kUnknownPast) + 1;
std::string_view reason_name(Reason reason);  // "not_admitted(no_room)"
Reason reason_from(Cause cause);

// A run of missed pages (or the tail's tokens) with one reason.
struct Miss {
  Reason reason = Reason::kNeverStored;
  std::uint64_t first_page = 0;
  std::uint64_t pages = 0;   // 0 for the tail
  std::uint64_t tokens = 0;  // what the run weighs
  Time when{0};              // evicted, removed: when
  NamespaceId by;            // evicted: whose store needed the room
  std::string field;         // other_form, other_identity: the field that differs
  friend bool operator==(const Miss&, const Miss&) = default;
};

// One page as the judge sees it.
struct PageView {
  Presence presence = 0;  // with the snapshots that the engine holds
  bool resident =
      false;          // its required class-sets are (or, without a required class, any of its class-sets is)
  bool held = false;  // wholly covered by what the engine holds: counts as present
  Reason own = Reason::kNeverStored;  // when not resident: its own reason
  PastEvent past;
  std::string field;
  std::optional<Reason>
      forced;  // decided before judging: below the load-back threshold, beyond the session's bound
};

struct Judgement {
  std::span<const PageView> pages;  // from first_page on
  std::uint64_t first_page = 0;
  std::uint64_t length = 0;       // L: pages below it are hits
  std::uint64_t limit_pages = 0;  // pages at or beyond it: `limit`
  std::uint64_t gap = 0;          // first page of the chain that lacks a required class (ResumeAnswer::gap)
  std::uint64_t tail_tokens = 0;  // beyond the last whole page
  bool limit_cuts_tail = false;
};

// Exactly one reason for each page ≥ L and for the tail; neighbouring pages with equal answers are merged
// into runs. Cost: O(pages × classes).
std::vector<Miss> judge(const StorageForm& form, const Judgement& input);

}  // namespace tiercel
