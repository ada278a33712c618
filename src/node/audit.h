// The node's state laid open as plain values: counters for people, and everything for checkers.
//
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "memory/space.h"
#include "model/key_chain.h"
#include "node/reasons.h"

namespace tiercel {

struct Stats {
  // Bytes now.
  std::uint64_t host_bytes_granted = 0;
  std::uint64_t arena_bytes = 0;        // extents granted × extent size
  std::uint64_t arena_bytes_owned = 0;  // extents that hold records
  std::uint64_t payload_bytes =
      0;  // of resident, staged and reserved records and of those that wait for a lease to end
  std::uint64_t resident_bytes = 0;  // payload of visible class-sets
  std::uint64_t resident_bytes_peak = 0;
  std::uint64_t fragmentation_bytes = 0;
  std::uint64_t index_bytes = 0;    // nominal
  std::uint64_t history_bytes = 0;  // nominal
  std::uint64_t advice_bytes = 0;   // nominal
  std::uint64_t in_flight_bytes = 0;
  std::uint64_t leased_bytes = 0;
  std::uint64_t reserved_bytes = 0;
  std::uint64_t quarantined_bytes = 0;
  std::uint64_t pinned_pages = 0;
  // Counts since open.
  std::uint64_t matches = 0, hit_tokens = 0, missed_tokens = 0;
  std::array<std::uint64_t, kReasonCount> missed_pages{};
  std::uint64_t tail_tokens = 0;
  std::uint64_t pages_visible = 0;  // now
  std::uint64_t pages_stored = 0, pages_evicted = 0, pages_removed = 0;
  std::uint64_t snapshots_stored = 0, snapshots_evicted = 0, snapshots_resident = 0;
  std::uint64_t windows_dropped = 0;
  std::uint64_t stores_refused = 0;
  std::uint64_t stale_commits = 0;  // ended because of a removal, a clear or a weight update
  std::uint64_t expired_reservations = 0;
  std::uint64_t quarantines = 0;
  std::uint64_t damaged_records = 0;
  std::uint64_t verified_bytes = 0, unverified_bytes = 0;  // delivered to engines
  std::uint64_t loads = 0, loads_shortened = 0, loads_failed = 0, loads_cancelled = 0, loads_timed_out = 0;
  std::uint64_t records_moved = 0, bytes_moved = 0;
  std::uint64_t records_copied_in = 0;         // by stores
  std::uint64_t records_written_in_place = 0;  // committed where their writer had put them
  std::uint64_t events_lost = 0;
  // The disk tier.
  std::uint64_t disk_reading_bytes = 0;  // now: slots under reads and their verification
  std::uint64_t disk_writing_bytes = 0;  // now: slots that the disk still writes from
  std::uint64_t prefetch_bytes = 0;      // now: of prefetches under way
  std::uint64_t disk_matches = 0;        // matches that had to wait for the disk
  std::uint64_t disk_hit_tokens = 0;     // hit tokens of pages of which something came from the disk
  std::uint64_t promoted = 0, promoted_bytes = 0;  // class-sets that came up whole
  std::uint64_t promotions_failed = 0;             // that did not, for whatever reason
  std::uint64_t promotions_joined = 0;             // waited for a read that somebody else had begun
  std::uint64_t demoted = 0, demoted_bytes = 0;    // class-sets that were written down
  std::uint64_t demotions_refused = 0;             // that the disk's admission refused (DiskStats has why)
  std::uint64_t prefetches = 0, prefetched_pages = 0;
  // The remote tier.
  std::uint64_t remote_reading_bytes = 0, remote_writing_bytes = 0;  // now
  std::uint64_t remote_matches = 0;     // matches that had to wait for what it has
  std::uint64_t remote_hit_tokens = 0;  // of pages of which something came from there
  std::uint64_t remote_promoted = 0, remote_promoted_bytes = 0;  // class-sets; they are in `promoted`, too
  std::uint64_t remote_demoted = 0, remote_demoted_bytes = 0;    // class-sets that were stored there
  std::uint64_t remote_refused = 0;                              // too large for the exchange
};

enum class ResidenceState : std::uint8_t { kWriting, kStaged, kResident, kHidden, kQuarantined };

// One class-set that owns slots.
struct AuditResidence {
  NamespaceId ns;
  Key key;
  ClassId cls;
  ResidenceState state = ResidenceState::kWriting;
  std::uint32_t generation = 0;
  PoolId pool;
  std::vector<SlotId> slots;  // per shard
  std::vector<std::vector<ArenaSpan>> spans;
  std::uint64_t payload_bytes = 0;
  std::uint32_t leases = 0;  // by tickets
  std::uint32_t copies = 0;  // queued or running, that use its slots
  SessionId session;         // who is charged while it is written or quarantined
  bool page_visible = false;
  bool page_below = false;   // staged, and found with its page, which the disk has and the host tier has not
  bool from_disk = false;    // its bytes come from there
  bool reading = false;      // now
  bool from_remote = false;  // what was or is read came from the remote tier
  bool writing = false;      // the disk still writes from it
  bool storing = false;      // the remote tier does
};
struct AuditTicket {
  TicketId ticket;
  SessionId session;
  std::uint64_t leased_bytes = 0;
  std::vector<std::pair<ClassId, std::uint32_t>> leases;  // class, generation
};
struct AuditOperation {
  OperationId operation;
  bool load = false;
  bool promotion = false;           // of a match or prefetch: no copies of its own
  bool finished = false;            // its completion was given, copies still run
  std::uint64_t copies = 0;         // queued or running
  std::uint64_t running_bytes = 0;  // of the running ones: their sum is Stats::in_flight_bytes
  Time deadline{0};
};
struct Audit {
  Stats stats;
  std::vector<AuditResidence> residences;
  std::vector<AuditTicket> tickets;
  std::vector<AuditOperation> operations;
  std::vector<std::pair<PoolId, SlotId>> slots_in_use;
  std::uint64_t extents_total = 0, extents_free = 0, extent_bytes = 0;
  std::uint64_t session_bytes = 0;           // charged to all sessions
  std::uint64_t index_entries = 0;           // pages, placeholders of lost ancestors included
  std::optional<std::string> inconsistency;  // what the node's own books find wrong
};

}  // namespace tiercel
