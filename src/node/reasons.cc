#include "node/reasons.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {

std::string_view reason_name(Reason reason) {
  static constexpr std::array<std::string_view, kReasonCount> kNames = {"limit",
                                                                        "tail",
                                                                        "after_gap",
                                                                        "state_missing",
                                                                        "window_missing",
                                                                        "in_flight",
                                                                        "damaged",
                                                                        "tier_down",
                                                                        "too_late",
                                                                        "removed",
                                                                        "evicted",
                                                                        "not_admitted(no_room)",
                                                                        "not_admitted(too_large)",
                                                                        "not_admitted(second_touch)",
                                                                        "not_admitted(write_budget)",
                                                                        "not_admitted(quota)",
                                                                        "not_admitted(below_threshold)",
                                                                        "not_admitted(rate_limited)",
                                                                        "other_form",
                                                                        "other_identity",
                                                                        "never_stored",
                                                                        "unknown_past"};
  return kNames[static_cast<std::size_t>(reason)];
}

Reason reason_from(Cause cause) {
  switch (cause) {
    case Cause::kNeverStored:
      return Reason::kNeverStored;
    case Cause::kUnknownPast:
      return Reason::kUnknownPast;
    case Cause::kDamaged:
      return Reason::kDamaged;
    case Cause::kRemoved:
      return Reason::kRemoved;
    case Cause::kEvicted:
      return Reason::kEvicted;
    case Cause::kTooLate:
      return Reason::kTooLate;
    case Cause::kNoRoom:
      return Reason::kNoRoom;
    case Cause::kTooLarge:
      return Reason::kTooLarge;
    case Cause::kSecondTouch:
      return Reason::kSecondTouch;
    case Cause::kWriteBudget:
      return Reason::kWriteBudget;
    case Cause::kQuota:
      return Reason::kQuota;
    case Cause::kBelowThreshold:
      return Reason::kBelowThreshold;
    case Cause::kRateLimited:
      return Reason::kRateLimited;
  }
  TIERCEL_CHECK(false);
  return Reason::kUnknownPast;
}

namespace {

Miss one(const Judgement& input, std::uint64_t page, std::uint64_t last_snapshot) {
  const PageView& view = input.pages[page - input.first_page];
  Miss miss;
  miss.first_page = page;
  miss.pages = 1;
  if (page >= input.limit_pages) {
    miss.reason = Reason::kLimit;
  } else if (view.forced) {
    miss.reason = *view.forced;
  } else if (!view.resident && !view.held) {
    miss.reason = view.own;
    miss.field = view.field;
    if (view.own == Reason::kEvicted || view.own == Reason::kRemoved) miss.when = view.past.when;
    if (view.own == Reason::kEvicted) miss.by = view.past.by;
  } else if (page > input.gap) {
    miss.reason = Reason::kAfterGap;
  } else {
    miss.reason = last_snapshot > page ? Reason::kWindowMissing : Reason::kStateMissing;
  }
  return miss;
}

}  // namespace

std::vector<Miss> judge(const StorageForm& form, const Judgement& input) {
  const std::uint64_t end = input.first_page + input.pages.size();
  Presence states = 0;
  for (const ClassForm& cls : form.classes)
    if (cls.is_state()) states |= Presence{1} << cls.id.value();
  // The longest length up to the gap (and the limit) that has every state class's snapshot; models without a
  // state have it everywhere.
  std::uint64_t last_snapshot = states == 0 ? UINT64_MAX : 0;
  const std::uint64_t reach = std::min({input.gap, input.limit_pages, end});
  for (std::uint64_t length = reach; states != 0 && length > input.first_page; --length) {
    if ((input.pages[length - 1 - input.first_page].presence & states) != states) continue;
    last_snapshot = length;
    break;
  }
  std::vector<Miss> missed;
  for (std::uint64_t page = std::max(input.length, input.first_page); page < end; ++page) {
    Miss miss = one(input, page, last_snapshot);
    miss.tokens = form.spec.page_tokens;
    if (!missed.empty()) {
      Miss& last = missed.back();
      if (last.reason == miss.reason && last.when == miss.when && last.by == miss.by &&
          last.field == miss.field) {
        ++last.pages;
        last.tokens += miss.tokens;
        continue;
      }
    }
    missed.push_back(std::move(miss));
  }
  if (input.tail_tokens != 0) {
    Miss tail;
    tail.reason = input.limit_cuts_tail ? Reason::kLimit : Reason::kTail;
    tail.first_page = end;
    tail.tokens = input.tail_tokens;
    missed.push_back(std::move(tail));
  }
  return missed;
}

}  // namespace tiercel
