// What is on its way between the disk and the host tier: the values that the state keeps of it.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "disk/disk_log.h"
#include "model/key_chain.h"
#include "node/node.h"
#include "node/reasons.h"
#include "remote/remote_tier.h"

namespace tiercel {

// What is known of a resident class-set's copy on the disk.
enum class DiskState : std::uint8_t {
  kUnknown,  // not there, as far as is known
  kWaiting,  // to be offered (again) when there is room in the queue
  kRefused,
  kWriting,
  kThere,
};

// One class-set that a promotion wants.
struct PromotionItem {
  std::uint64_t page = 0;  // number in the chain
  ClassId cls;
  bool on_disk = false;  // the disk gives it by its chain: what was removed above it counts
};

// A match or prefetch that waits for the disk. Its ticket has keys and leases: on what was there when it
// began, and on what has come since.
struct Promotion {
  OperationId id;  // of a prefetch; 0 for a match
  TicketId ticket;
  bool prefetch = false;
  PrefetchPolicy policy = PrefetchPolicy::kWaitComplete;
  // The question, to be answered at the end (its spans are the ticket's).
  std::uint64_t limit_tokens = UINT64_MAX;
  std::uint64_t prompt_tokens = 0;
  std::optional<Probe> probe;
  bool touch = true;
  std::uint64_t sequence = 0;  // of its request: what belongs to it is no victim of it
  Time deadline{0};
  std::optional<RemoteLookupId>
      asking;                           // the remote tier is asked: nothing is planned before it has answered
  std::set<std::uint64_t> from_remote;  // pages, of those that were brought
  std::uint32_t asks = 0;               // that were made: what was lost lets a shorter prefix be asked for
  std::uint32_t attempts = 0;           // plans made: a failure makes another one, a few times
  bool failed = false;                  // something of the current plan did not come
  std::deque<PromotionItem> to_start;   // in prefix order
  std::unordered_set<std::uint64_t> waits_for;       // residences
  std::set<std::uint64_t> wanted, brought;           // pages
  std::set<std::pair<std::uint64_t, ClassId>> lost;  // that this promotion does not ask for again
  std::optional<Status> ending;                      // cancelled, timed out
  std::uint64_t removals = 0;                        // of its namespace when it was planned
  bool told = false;  // its caller knows that it is pending, and waits for a completion
};

struct Page;
struct Request;

// What an answer is made of, on the way to its reasons.
struct AnswerSoFar {
  const MatchQuery& query;
  const Request* request = nullptr;
  std::span<Page* const> found;
  std::span<const Presence> presence;  // in the host tier
  std::span<const Presence> lower;     // on the disk; empty: there is none
  std::uint64_t possible = 0;          // longest length of the host tier, before thresholds and bounds
  Reason forced = Reason::kLimit;      // of pages below it
  std::uint64_t gap = 0;               // of the host tier
  std::vector<Presence> everywhere;    // in any tier
  std::uint64_t reach = 0;             // longest length of all tiers together
};

// A store that wants to hear of the disk.
struct Descent {
  OperationId store;
  std::unordered_set<std::uint64_t> writing;  // residences
  std::uint64_t class_sets = 0;               // that the disk has
  std::uint64_t at = 0;                       // the newest of them in the log
  bool accepted = false;                      // kAccepted was given
};

struct FlushUnderWay {
  OperationId id;
  std::optional<std::uint64_t> at;  // of the log; nothing: something still waits to be offered
  std::uint64_t offers = 0;         // how many must have been taken for that
  Time deadline{0};
};

}  // namespace tiercel
