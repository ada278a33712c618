// Pages, and the residences that own the slots of their class-sets.
//
// A *residence* is one class-set that owns slots: from reservation to the last lease's end. A page points at
// the residences that may be found; a residence that has left its page (hidden) keeps its slots until nobody
// reads or writes them.
//
// Threads: the control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "index/lease_table.h"
#include "index/page_index.h"
#include "memory/space.h"
#include "node/node.h"
#include "node/promotion.h"

namespace tiercel {

struct Page;
struct Form;

// Another process that writes into slots.
struct OutsideWriter {
  std::uint32_t pid = 0;
  std::unique_ptr<WatchedProcess> process;
  bool exited = false;  // as last looked
};

// How a residence came to leave, as its writer will be told.
enum class Ending : std::uint8_t { kNone, kStale, kExpired, kAborted, kFailed, kEvicted };

struct Residence {
  std::uint64_t id = 0;
  NamespaceId ns;
  Key key;
  ClassId cls;
  PoolId pool;
  std::uint32_t generation = 0;  // never 0; in the record's header, compared by every load
  std::vector<SlotId> slots;     // one per shard
  std::uint64_t payload_bytes = 0;
  ResidenceState state = ResidenceState::kWriting;
  Page* page = nullptr;  // null once it has left its page
  Ending ending = Ending::kNone;
  // While it is written:
  SessionId session;
  std::uint64_t computation = 0;  // one computation per class-set: shards never come from different ones
  std::uint64_t shards_claimed = 0, shards_written = 0;  // bit per shard
  std::vector<std::pair<OperationId, std::size_t>>
      waiters;  // items of stores to be told when it becomes visible or leaves
  Time deadline{0};
  std::vector<ReservationId> holders;  // reservations whose clients may still write
  bool charged = false;                // to `session`, as reserved
  std::uint32_t client_holds = 0;      // items of reservations whose client may still write to the slots
  // While it is read:
  std::uint32_t leases = 0;
  std::uint32_t copies = 0;    // tasks under way that use its slots
  std::uint64_t verified = 0;  // bit per shard: whole, once in this residency
  bool prove_first = false;    // not delivered unverified before it was verified once
  // Other processes that wrote it, and might still; shared by all that they wrote or hold.
  std::vector<std::shared_ptr<const OutsideWriter>> written_by;
  bool writer_lives() const {
    for (const auto& writer : written_by)
      if (!writer->exited) return true;
    return false;
  }
  // On the disk, and on its way from and to it:
  DiskState disk = DiskState::kUnknown;
  DiskVerdict disk_verdict = DiskVerdict::kAccepted;  // kRefused: why
  std::uint64_t disk_at = 0;          // kThere: its number in the log, if it was written by this node
  bool prefetched = false;            // reading: charged to the prefetches' budget
  bool from_disk = false;             // it was, or is, read from a lower tier
  bool reading = false;               // its bytes come from the disk
  Reason lost_by = Reason::kEvicted;  // reading: why they did not come
  std::vector<std::pair<TicketId, std::uint64_t>> promotions;  // that wait for it, with their page's number
  // In the remote tier, and on its way from and to it:
  DiskState remote = DiskState::kUnknown;
  std::uint64_t remote_mark = 0;  // kThere: of its namespace then; another one: it was cleared since
  bool from_remote = false;       // what is read comes from there
  bool unneeded = false;          // a window record whose last resume point has gone
  bool page_below = false;  // staged, and found with its page, which the disk has and the host tier has not
  // Readers of the index may hold leases on the cell in which it was shown: to be asked before its slots
  // return.
  bool ask_readers = false;
  LeaseName shown_as;
};

struct PageName {
  NamespaceId ns;
  Key key;
  friend auto operator<=>(const PageName&, const PageName&) = default;
};

struct Page {
  PageName name;
  Form* form = nullptr;
  Page* parent = nullptr;  // known from stores; its entry stays while it has children here, resident or not
  std::vector<Page*> children;
  std::size_t child_at = 0;      // its place in the parent's list
  std::uint64_t uid = 0;         // never used again, as its number is
  PageNumber number;             // in the index
  SpaceId space;                 // under which it is found
  std::uint64_t chain_page = 0;  // its number in its chain, as far as it was known when it came
  Page* older = nullptr;         // in the order in which pages came
  Page* newer = nullptr;
  std::uint64_t birth = 0;      // the namespace's mark when it came; older than the mark = cleared
  ExternalDigest external;      // the engine's own name of it
  std::uint64_t length = 0;     // pages of the prefix that ends here; 0 unknown
  bool rooted = false;          // every page above it is linked, up to the first of its chain
  bool noted_unrooted = false;  // in its namespace's list of those whose ancestors nobody knows
  bool held = false;            // stays for the moment, whatever it has
  bool visible = false;
  Presence presence = 0;         // classes that may be found
  std::vector<Residence*> sets;  // per class; writing, staged or resident
  std::uint32_t visible_children = 0;
  std::uint64_t last_sequence = 0;         // of the last request that stored or used it
  std::vector<std::uint32_t> window_refs;  // per class: resident resume points whose window covers this page
  bool point = false;                      // a resume point hangs here
  bool point_wanted = false;               // asked for (models with windows and no state)
  std::uint64_t point_reach = 0;           // ancestors (itself included) that its references were given to
  std::uint64_t point_sequence = 0;        // of the request that made it
  std::uint32_t hits = 0;                  // matches that found it, of different requests
  RequestId last_hit_by;
  Time pinned_until{0};
  bool any_set() const {
    for (const Residence* set : sets)
      if (set != nullptr) return true;
    return false;
  }
};

}  // namespace tiercel
