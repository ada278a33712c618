// The hierarchical cache of one process: host tier under an engine's memory. A deterministic state machine:
// calls and ends of copies in, state changes and copy tasks out. It starts no thread, reads no clock of its
// own, and copies no byte between engine and arena itself.
//
// Life of a page: reserve (slots taken, seen by nobody) → copies end → class-set committed → page visible
// when all its required class-sets are → leased by tickets → evicted or removed (out of sight at once; its
// slots return when the last lease ends).
//
// Threads: one control thread makes all calls, poll() included. Copies run wherever the Executor runs them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "disk/disk_log.h"
#include "memory/record.h"
#include "model/identity.h"
#include "model/key_chain.h"
#include "model/resume.h"
#include "model/storage_form.h"
#include "node/audit.h"
#include "node/options.h"
#include "node/reasons.h"

namespace tiercel {

inline constexpr std::uint64_t kSkipSlot = UINT64_MAX;  // in a target list: this page is not wanted there

struct SessionOptions {
  std::string name;                        // for people
  std::string tenant_salt;                 // mixed into every identity of this session
  std::optional<std::uint64_t> bytes_max;  // leased plus reserved; default client_share of the arena
};

struct FormOptions {
  ModelSpec spec;
  std::uint32_t shards_held =
      0;  // how many shards this process holds; must be all of them (one process in this version)
};

struct NamespaceOptions {
  ContentIdentity identity;     // tenant_salt must be empty: it is the session's
  std::uint64_t bytes_min = 0;  // eviction never takes this namespace below it
  std::optional<std::uint64_t> bytes_max;
};

// ---- match
// ----------------------------------------------------------------------------------------------------------------------
struct MatchQuery {
  SessionId session;
  NamespaceId ns;
  RequestId request;          // 0: not part of a request
  std::span<const Key> keys;  // pages first_page, first_page + 1, …
  std::uint64_t first_page = 0;
  std::span<const std::uint64_t> held;  // per class, pages the engine holds; empty = none
  std::uint64_t limit_tokens = UINT64_MAX;
  // Whole prompt, for the tail; 0: not known. May end within the last page, which is then no whole one.
  std::uint64_t prompt_tokens = 0;
  std::optional<Probe> probe;
  bool touch = true;  // count as a use of the pages found
  // Pages that only a lower tier has are brought up first, as far as they make the answer longer, until
  // `deadline` (nothing: operation_deadline) has passed: what is there by then counts.
  bool may_promote = false;
  std::optional<Duration> deadline;
};

struct TicketView {
  // Pages are still on their way up: nothing of the rest is known. kMatched tells when it is.
  bool pending = false;
  std::uint64_t first_page = 0;
  std::vector<std::uint64_t> lengths;   // restorable, ascending; always starts with 0
  std::uint64_t length = 0;             // the longest: what is leased
  std::vector<std::uint64_t> resident;  // per class: pages of the query whose class-set is in the host tier
  // Per class: whose class-set is on the disk, in the host tier or not; or stands in the host tier for a page
  // that is on the disk only.
  std::vector<std::uint64_t> on_disk;
  std::uint64_t promoted_pages = 0;  // pages of which something was brought up for this answer
  std::uint64_t remote_pages = 0;    // of those: from the remote tier
  std::vector<Miss> missed;          // every page of the query at or beyond `length`, and the tail
  std::uint64_t hit_tokens = 0;
  std::uint64_t missed_tokens = 0;
  std::uint64_t known_pages = 0;  // longest prefix whose required class-sets are all resident (the gap)
};

struct AdviceQuery {
  std::uint64_t pages = 0;        // whole pages of the request: advice never goes beyond
  std::uint64_t multiple_of = 1;  // lengths must be a multiple (engines snapshot at chunk ends)
  std::uint64_t at_most = UINT64_MAX;
  std::uint64_t from = 0;  // lengths > from only: what the engine can still snapshot
};

// ---- load
// -----------------------------------------------------------------------------------------------------------------------
enum class LoadMode : std::uint8_t { kWhole, kLayered };

struct LoadTarget {
  ClassId cls;
  ShardId shard;
  // Page classes: one engine slot per page of the ticket from its first_page on, up to the length asked
  // (kSkipSlot: not wanted). State classes: exactly one slot, for the snapshot at whatever length is
  // delivered.
  std::vector<std::uint64_t> slots;
};

struct LoadRequest {
  TicketId ticket;
  std::uint64_t length = 0;  // one of the ticket's lengths
  std::vector<LoadTarget> targets;
  LoadMode mode = LoadMode::kWhole;
  std::vector<std::uint32_t> layers;  // layered: order of global layers; empty = ascending, all
  std::uint64_t after_event = 0;      // nothing is written before event_done() of it; 0 = at once
  std::optional<Duration> deadline;
};

enum class ItemOutcome : std::uint8_t { kNotNeeded, kSkipped, kDelivered, kMissing, kDamaged, kNotDelivered };

struct LoadResult {
  Status
      status;  // ok; deadline_exceeded, cancelled, data_corrupt (layered, after the first event), io_error, …
  std::uint64_t length = 0;  // pages really delivered: a restorable length, maybe shorter than asked
  // outcomes[i][p] belongs to targets[i].slots[p] (a state target has one entry).
  std::vector<std::vector<ItemOutcome>> outcomes;
};

// ---- store
// ----------------------------------------------------------------------------------------------------------------------
struct StoreItem {
  Key key;
  std::optional<Key> parent;  // of the page before; absent for the first page of a chain
  std::uint64_t length = 0;   // pages of the prefix that ends with this page (≥ 1)
  ClassId cls;
  ShardId shard;
  ExternalDigest
      external;  // what the engine itself calls the page: kept in the record's header, told in events
  std::uint64_t slot = 0;              // engine slot to read (store), unused by reserve
  std::optional<std::uint64_t> bytes;  // what the caller believes the record to be; another size is an error
  bool resume_point =
      false;  // models with windows and no state: the caller means to resume here, keep its windows
};

enum class StoreOutcome : std::uint8_t {
  kAccepted,        // reserved; its copy is under way
  kCommitted,       // its bytes are in the arena; visible when the rest of its page is
  kAlreadyPresent,  // resident; bytes untouched, counts as a use
  kBeingWritten,    // by somebody else, or by an earlier item of this batch
  kNoRoom,
  kTooLarge,
  kQuota,
  kRateLimited,  // too many bytes or operations in flight
  kStale,        // page removed or replaced, namespace cleared, weights updated since
  kExpired,      // its reservation's deadline passed
  kAborted,
  kFailed,      // the copy failed
  kInvalid,     // the item makes no sense (class, shard, slot, bytes, length)
  kNotArrived,  // its commit did not name it
  kDamaged,     // its bytes are not those of the writer's checksums
};
std::string_view outcome_name(StoreOutcome outcome);

struct StoreRequest {
  SessionId session;
  NamespaceId ns;
  RequestId request;
  std::vector<StoreItem> items;
  std::uint64_t after_event = 0;
  std::optional<Duration> deadline;
  bool tell_lower = false;  // kAccepted and kDurable are wanted, too
};
struct StoreAnswer {
  OperationId operation;               // 0 when no item was accepted: nothing will complete
  std::vector<StoreOutcome> outcomes;  // one per item
};
struct ReserveAnswer {
  ReservationId reservation;  // 0 when no item was accepted
  std::vector<StoreOutcome> outcomes;
};
// An item that is whole in the arena. To name it is to promise that nobody writes to it any more.
struct Arrival {
  std::size_t item = 0;
  // One CRC-32C for each layer of its class, of the layer's bytes in record order; empty: computed.
  std::vector<std::uint32_t> checksums;
};
struct CommitRequest {
  std::optional<std::vector<Arrival>> arrived;  // each item once at most; absent: all of them
  // Checksums become the header's without a look at the payload. Such records, and those of a writer in
  // another process, are verified before anything of them is delivered unverified, whatever the policy.
  bool trust_checksums = false;
};
// A process that writes into reserved slots.
struct WriterView {
  std::uint32_t pid = 0;
  std::uint64_t reservations = 0;  // neither committed nor given up
  std::uint64_t reserved_bytes = 0, quarantined_bytes = 0;
};

// ---- prefetch
// --------------------------------------------------------------------------------------------------------------------
// From the disk into the host tier, ahead of a match.
enum class PrefetchPolicy : std::uint8_t {
  kBestEffort,    // until it is cancelled or its request asks (match)
  kWaitComplete,  // until all that can be brought is
  kTimeout,       // until prefetch_base + prefetch_per_1024_tokens have passed
};
struct PrefetchRequest {
  SessionId session;
  NamespaceId ns;
  RequestId request;
  std::span<const Key> keys;  // pages first_page, …
  std::uint64_t first_page = 0;
  std::span<const std::uint64_t> held;
  PrefetchPolicy policy = PrefetchPolicy::kWaitComplete;
  std::optional<Duration> deadline;  // at most so long, whatever the policy; nothing: operation_deadline
};
struct PrefetchResult {
  // ok also when less than all came; deadline_exceeded, cancelled: what came by then is there all the same.
  Status status;
  std::uint64_t wanted_pages = 0;  // of which something had to be brought
  std::uint64_t length = 0;        // longest restorable prefix in the host tier at the end, in pages
  std::uint64_t brought_pages = 0;
  std::vector<Miss> missed;  // wanted pages that did not come, and why
};

// ---- offers
// ---------------------------------------------------------------------------------------------------------------------
enum class OfferEvent : std::uint8_t { kComputed, kHit, kLeaving };
struct OfferRequest {
  SessionId session;
  NamespaceId ns;
  RequestId request;
  std::span<const Key> keys;  // pages first_page, …
  std::uint64_t first_page = 0;
  OfferEvent event = OfferEvent::kComputed;
  std::span<const std::uint64_t>
      points;  // lengths at which resume points are meant: their windows and snapshots are wanted
};

// ---- completions and events
// -------------------------------------------------------------------------------------------------------
enum class CompletionKind : std::uint8_t {
  kLoaded,      // a load ended: `load` is its result; the targets are quiescent unless `quiescent` is false
  kLayerReady,  // layer `layer` of every page is verified and in place
  kSourceFree,  // a store's copies ended: the engine may reuse its blocks; `store` has one outcome per item
  kVisible,     // all pages of a store that will ever be visible are; exactly one per store
  kQuiescent,   // what a deadline left running has ended: targets and sources are the caller's again
  kSuspended,   // suspend(): all transfers ended, engine memory unregistered
  kMatched,     // the ticket `ticket` is pending no more
  kPrefetched,  // `prefetch` is its result
  kAccepted,    // the disk has the records of a store: they can be found there. After kVisible
  kDurable,     // they are behind a completed flush. After kAccepted
  kFlushed,     // flush(): `status` says whether everything is durable
};
struct Completion {
  CompletionKind kind = CompletionKind::kLoaded;
  OperationId operation;
  bool quiescent = true;
  std::uint32_t layer = 0;
  std::optional<LoadResult> load;
  std::vector<StoreOutcome> store;
  TicketId ticket;
  std::optional<PrefetchResult> prefetch;
  // kAccepted, kDurable: how many class-sets of the store the disk has (none, and a `status`, where it was
  // closed before); flushed: how it ended.
  std::uint64_t class_sets = 0;
  Status status;
};
// What write_down() did.
struct WriteDown {
  std::uint64_t class_sets = 0, bytes = 0;  // that were written
  std::uint64_t left_class_sets = 0;        // that were not, for want of time or because the disk refused
  Duration took{0};
  Status status;  // of closing the disk's log
};

enum class EventKind : std::uint8_t { kStored, kAttached, kDropped, kRemoved, kCleared };
struct Event {
  std::uint64_t sequence = 0;
  EventKind kind = EventKind::kStored;
  NamespaceId ns;  // cleared: 0 when a whole form was
  FormId form;     // cleared: of it
  Key key;
  std::optional<Key> parent;
  std::uint64_t length = 0;
  ExternalDigest external;
  Presence classes = 0;               // stored: visible now; attached, dropped: which
  Cause cause = Cause::kNeverStored;  // removed, dropped: why
};
struct Events {
  std::vector<Event> events;
  std::uint64_t lost = 0;  // since the last drain
};

// A mark of the index (IndexView::mark), and as it stood.
struct ReaderMark {
  std::uint32_t id = 0, value = 0;
};
// Under which space a namespace's pages stand in the index, as long as both marks have the same values: to be
// looked at after a lease was got, since a clear may come at any moment.
struct ReaderSpace {
  SpaceId space;
  ReaderMark namespace_mark, form_mark;
  std::vector<SetNumber> first_sets;  // per class: of shard 0
};

class Node {
 public:
  // Errors: invalid_argument when an option makes no sense or the arena is smaller than the grant's extents
  // (wanted, got).
  static Result<std::unique_ptr<Node>> open(NodeOptions options, World world);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // -- opening ----
  Result<SessionId> open_session(SessionOptions options);
  // As if its process had exited: every ticket, reservation, load and store of it ends; slots under running
  // copies return with them.
  Status close_session(SessionId session);
  // Errors: unsupported when the topology has more shards than this process holds.
  Result<FormId> open_form(FormOptions options);
  // O(1), no pools of its own. The same identity under the same form is the same namespace.
  Result<NamespaceId> open_namespace(SessionId session, FormId form, NamespaceOptions options);
  // Requires: form and ns are open.
  const StorageForm& form(FormId form) const;
  const StorageForm& form_of(NamespaceId ns) const;
  Digest root(NamespaceId ns) const;           // start of its key chains
  std::string describe(NamespaceId ns) const;  // identity and form, printable
  // Engine memory of one class and shard. Replaces an earlier registration of the same. Errors:
  // invalid_argument, failed_precondition while copies use the old one.
  Status register_memory(FormId form, DevicePool pool);
  Status unregister_memory(FormId form, ClassId cls, ShardId shard);

  // -- reading ----
  // The ticket leases what a resume at its longest length needs. Ready at once, unless pages are brought up.
  Result<TicketId> match(const MatchQuery& query);
  const TicketView* ticket(
      TicketId ticket) const;  // null when unknown, expired or released; valid until the next call
  // Ascending lengths at which a snapshot is expected to save more than its room is worth, from what was seen
  // before the ticket's match; the same question has the same answer. Of all tickets together at most
  // snapshot_budget lengths. None where the match was no use of the pages (touch = false).
  std::vector<std::uint64_t> snapshot_advice(TicketId ticket, const AdviceQuery& query);
  void release(TicketId ticket);
  // Errors: not_found (ticket expired), invalid_argument (length not restorable, targets),
  // resource_exhausted, failed_precondition (memory not registered, suspended).
  Result<OperationId> load(LoadRequest request);
  bool exists(NamespaceId ns, ClassId cls,
              const Key& key) const;  // class-set level, any tier; no lease, no touch
  // Completes with kPrefetched, exactly once. Errors: as match; unsupported without a disk.
  Result<OperationId> prefetch(const PrefetchRequest& request);

  // -- writing ----
  Result<StoreAnswer> store(const StoreRequest& request);
  // For writers that put bytes into the arena themselves: this process (writer_pid 0: the caller vouches for
  // it), or another one. The slots of another process that were not committed are never used again while it
  // lives: the deadline, abort and the ends of request and session quarantine them until it has exited, or
  // until writer_stopped(). Its exit brings the deadline near (writer_grace).
  // Errors: also what Processes::watch says of the writer; unsupported: the world has no processes.
  Result<ReserveAnswer> reserve(StoreRequest request, std::uint32_t writer_pid = 0);
  std::vector<ArenaSpan> reserved_spans(ReservationId reservation,
                                        std::size_t item) const;  // header first; payload at header_bytes
  // Seals and commits what has arrived; the reservation ends. A class-set of which a part has not arrived is
  // aborted whole. Errors: invalid_argument (an item is named twice or is not there, its checksums are not
  // one for each layer: the reservation stays), not_found (ended), failed_precondition (quarantined,
  // expired).
  Result<OperationId> commit(ReservationId reservation, const CommitRequest& what = {});
  void abort(ReservationId reservation);
  // The caller vouches that the other process writes nothing more to this reservation, which may have ended:
  // what is quarantined of it returns, and from now on it is as if this process wrote.
  void writer_stopped(ReservationId reservation);
  std::vector<WriterView> writers() const;  // other processes that hold slots, by pid
  // The caller gave up storing these pages after `why` (the batch before them did not fit): later misses say
  // so.
  void not_stored(NamespaceId ns, std::span<const Key> keys, StoreOutcome why);
  // One bitmap of wanted class-sets per page. A store of something not wanted is still accepted.
  std::vector<Presence> offer(const OfferRequest& request);

  void cancel(OperationId operation);    // a request; the completion after it says that all is quiescent
  void event_done(std::uint64_t event);  // an engine's event has fired: copies that waited for it may start

  // -- requests ----
  Status request_begin(SessionId session, RequestId request);
  void request_end(RequestId request);    // releases its tickets
  void request_abort(RequestId request);  // ends all its tickets, loads, stores and reservations; idempotent

  // -- lifetime of pages ----
  void pin(NamespaceId ns, std::span<const Key> keys,
           Duration ttl);  // not evicted until then; removal still removes
  void unpin(NamespaceId ns, std::span<const Key> keys);
  void touch(NamespaceId ns, std::span<const Key> keys, RequestId request = {});
  // These four hold in every tier at once, also when they fail; with a disk they return when they are durable
  // there, too (one flush each), and fail with unavailable when the drive did not take them within
  // `record_deadline`: then what is cleared may come back after a crash, until the call is repeated.
  // The pages and all their descendants are out of sight when this returns.
  Status remove(NamespaceId ns, std::span<const Key> keys);
  Status clear(NamespaceId ns);  // O(1), all of a namespace
  Status clear(FormId form);     // O(1), all namespaces of a form
  Status invalidate(NamespaceId ns) { return clear(ns); }
  // Namespaces of the form whose identity has an older weights epoch miss and refuse from now on, also after
  // a restart. O(1). All pages of the form are cleared.
  Status set_weights_epoch(FormId form, std::uint64_t epoch);
  // -- the disk ----
  // Completes with kFlushed when everything that the disk has accepted by now is durable, or at the deadline.
  // Errors: unsupported without a disk.
  Result<OperationId> flush(std::optional<Duration> deadline = {});
  // What is resident and not on the disk goes there, the most recently used first, as far as `at_most`
  // allows; then the disk's log is closed and the node has no disk any more. Waits.
  WriteDown write_down(Duration at_most);
  const DiskLog* disk() const;  // null: none
  // -- the remote tier ----
  // What is being stored there ends, or is given up; then the store is closed, and everything there is
  // `tier_down`. Waits, `at_most` and a moment more.
  void close_remote(Duration at_most);
  const RemoteTier* remote() const;  // null: none
  bool storing_remotely() const;     // something is on its way there, or waits for its turn
  // Ends transfers and forgets engine memory; cached bytes stay. kSuspended follows when all is quiescent.
  void suspend();
  void resume();

  // -- running ----
  // Handles ends of copies, deadlines and a bounded amount of sweeping. Returns how many things it did.
  std::size_t poll();
  std::vector<Completion> drain_completions();
  Events drain_events();

  const Stats& stats() const;
  // What a reader of the page index needs beside its memory; to be asked again when a mark has changed.
  // Requires: ns is open.
  ReaderSpace reader_space(NamespaceId ns) const;
  // What is known of one page: resident class-sets, or why not.
  PageView why(NamespaceId ns, const Key& key) const;
  Audit audit() const;  // O(everything): for checkers and doctors

 private:
  struct State;
  explicit Node(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tiercel
