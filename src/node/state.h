// What stands behind the node's calls: pages, the residences that own slots, tickets, operations, and the
// steps between them.
//
// Threads: the control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "index/history.h"
#include "index/policy.h"
#include "index/reuse_model.h"
#include "index/snapshot_advice.h"
#include "memory/space.h"
#include "node/node.h"
#include "node/page.h"
#include "node/page_table.h"
#include "node/promotion.h"
#include "transfer/record_copy.h"

namespace tiercel {

struct Form {
  FormId id;
  std::shared_ptr<const StorageForm> form;
  std::vector<PoolId> pools;  // per class
  std::vector<std::uint64_t> header_bytes, slot_bytes;
  std::vector<std::uint32_t> further_sets;  // per class: set number of shard 1
  Presence required = 0, states = 0, windows = 0;
  std::map<std::pair<ClassId, ShardId>, std::shared_ptr<const DevicePool>> engine;
  std::uint64_t mark = 0;  // grows with every clear of the form
  std::uint64_t weights_epoch = 0;
  bool unrecorded = false;  // a lower tier has not taken the last clear or epoch
  std::uint64_t remote_clears = 0;
  std::uint64_t pages = 0;  // with any class-set, of the current marks
};

struct Namespace {
  NamespaceId id;
  Form* form = nullptr;
  ContentIdentity identity;
  Digest root{};
  std::uint64_t mark = 0;        // grows with every clear of the namespace
  std::uint64_t pages = 0;       // of pages_mark
  std::uint64_t pages_mark = 0;  // the combined mark that `pages` counts
  std::uint64_t bytes = 0;       // payload of residences that have not left
  std::uint64_t bytes_min = 0;
  std::optional<std::uint64_t> bytes_max;
  std::uint64_t combined_mark() const { return mark + form->mark; }
  SpaceId space;                 // under which its pages are found now
  std::uint64_t space_mark = 0;  // the combined mark of `space`
  struct OldSpace {
    SpaceId space;
    std::uint64_t entries = 0;
  };
  std::uint64_t entries = 0;  // pages under `space`, placeholders included
  DiskSpaceId disk;           // 0: it has no place on the disk
  RemoteSpaceId remote;
  std::uint64_t remote_clears = 0;
  std::uint64_t remote_mark() const { return remote_clears + form->remote_clears; }
  std::uint64_t removals = 0;  // of pages, since it was opened
  // Tops of what came up for questions in the middle of a chain, and of what is attached to pages of the
  // disk: nobody knows what is above them.
  std::vector<PageRef> unrooted;
  std::vector<OldSpace> old_spaces;  // cleared, with pages that have not been swept, oldest first
};

struct Session {
  SessionId id;
  SessionOptions options;
  std::uint64_t bytes_max = 0;
  std::uint64_t leased_bytes = 0, reserved_bytes = 0;
};

struct Request {
  RequestId id;
  SessionId session;
  std::uint64_t sequence = 0;
  std::map<PageName, Reason> failed;  // pages whose load failed for it: not offered to it again
};

struct Lease {
  std::uint64_t residence = 0;
  std::uint64_t page = 0;  // number in the chain
  ClassId cls;
  std::uint32_t generation = 0;
};

// On what terms a ticket's advice is given, and which lengths it has named.
struct AdviceTerms {
  AdvicePrice price;
  std::uint64_t left = 0;  // of the budget
  std::set<std::uint64_t> given;
};

struct Ticket {
  TicketId id;
  SessionId session;
  NamespaceId ns;
  RequestId request;
  std::vector<Key> keys;
  std::vector<std::uint64_t> held;
  TicketView view;
  std::vector<Lease> leases;  // sorted by (page, class)
  std::uint64_t leased_bytes = 0;
  std::uint32_t loads = 0;                   // under way; the ticket outlives them
  std::shared_ptr<const Forecast> forecast;  // null: its match was no use of the pages
  std::optional<AdviceTerms> advice;         // once asked
  bool released = false;
  // Pages that a lower tier has and that did not come up, and why.
  std::map<std::uint64_t, Reason> not_brought;
  std::uint64_t brought_pages = 0, remote_pages = 0;  // the latter of the former
  std::optional<Reason> unanswered;                   // the remote tier did not say what it has
  Time expires{0};
};

// One record of a load.
struct LoadItem {
  std::size_t target = 0;   // index into LoadRequest::targets
  std::uint64_t entry = 0;  // index into that target's slots
  std::uint64_t page = 0;
  std::uint64_t residence = 0;
  Status status;  // of its last copy
};

enum class LoadPhase : std::uint8_t { kVerify, kCopy, kFinished };

struct Load {
  OperationId id;
  TicketId ticket;
  LoadRequest request;
  Form* form = nullptr;
  std::vector<std::shared_ptr<const DevicePool>>
      engine;                // per target: held, so that it is not unregistered meanwhile
  std::uint64_t length = 0;  // being attempted
  LoadPhase phase = LoadPhase::kVerify;
  std::size_t layer_at = 0;  // layered: position in request.layers
  std::vector<LoadItem> items;
  std::set<std::pair<std::uint64_t, ClassId>> failed;         // (page, class) that could not be delivered
  std::set<std::pair<std::size_t, std::uint64_t>> delivered;  // (target, page)
  std::set<std::pair<std::size_t, std::uint64_t>> damaged;
  std::uint64_t outstanding = 0;  // copies submitted or queued
  std::optional<Status> ending;   // cancelled, timed out, failed: no further copies
  bool answered = false;          // its completion was given
  Time deadline{0};
};

struct Store {
  OperationId id;
  SessionId session;
  RequestId request;
  std::vector<StoreOutcome> outcomes;
  std::vector<std::uint64_t> residences;  // per item, 0 = none
  std::set<std::uint64_t> unseen;         // residences neither visible nor gone
  std::vector<ShardId> shards;            // per item
  std::uint64_t outstanding = 0;
  bool answered = false;
  bool ran_late = false;    // answered by its deadline while copies ran
  bool tell_lower = false;  // its ways down are watched (Descent)
};

struct Reservation {
  ReservationId id;
  SessionId session;
  RequestId request;
  NamespaceId ns;
  std::vector<StoreItem> items;
  std::vector<StoreOutcome> outcomes;
  std::vector<std::uint64_t> residences;  // per item: that it holds; 0: none (any more)
  bool expired = false;                   // quarantined: only to be given back
  std::shared_ptr<OutsideWriter> writer;  // null: this process writes
  bool writer_lives() const { return writer != nullptr && !writer->exited; }
};

// A copy that waits for its turn within the in-flight bytes.
struct PendingCopy {
  OperationId operation;
  std::uint64_t index = 0;
  std::uint64_t residence = 0;
  std::uint64_t bytes = 0;
  RecordCopy copy;
  std::uint64_t verifies = 0;  // the shard's bit, if its end means that the whole record was verified
};
struct RunningCopy {
  std::uint64_t residence = 0;
  std::uint64_t bytes = 0;
  CopyKind kind = CopyKind::kVerify;
  bool verify = false;
  std::uint64_t verifies = 0;
};

struct Node::State {
  State(NodeOptions node_options, World node_world, std::uint64_t extents, std::unique_ptr<PageIndex> index);

  NodeOptions options;
  World world;
  Space space;
  History history;
  ReuseModel reuse;
  // Of requests under way, by their sequence.
  struct RequestForecast {
    std::shared_ptr<const Forecast> forecast;
    PageRef longest_point;  // page of the longest point that it made
    // The point that it resumed from, and the shortest that it made beyond.
    PageRef resumed;
    std::uint64_t resumed_length = 0;
    std::uint64_t shortest_point = 0;  // length; 0: none
    Prospect resumed_again;            // as the past alone has it
  };
  std::unordered_map<std::uint64_t, RequestForecast> forecasts;
  std::uint64_t snapshots_advised = 0;
  std::unique_ptr<EvictionPolicy> policy;
  Stats stats;
  std::uint64_t last_id = 0;  // sessions, tickets, operations, residences, pages: one counter, never reused
  std::uint32_t last_generation = 0;
  std::uint64_t last_sequence = 0;
  bool suspended = false;
  bool suspending = false;
  bool resume_when_quiet = false;  // resume() came before the suspension was complete
  mutable std::uint32_t last_space = 0;
  std::uint32_t last_small_id = 0;  // forms, namespaces, sessions: their own counter, it must never wrap

  std::map<FormId, std::unique_ptr<Form>> forms;
  std::unordered_map<NamespaceId, std::unique_ptr<Namespace>> namespaces;
  std::map<std::pair<Digest, FormId>, NamespaceId> namespace_by_content;
  std::map<SessionId, Session> sessions;
  std::map<RequestId, Request> requests;
  std::unique_ptr<PageIndex> own_index;  // null where the world brought one
  PageTable pages;
  std::uint64_t sets_promised = 0;  // of records under way, that the index will have to take
  std::unordered_map<std::uint64_t, std::unique_ptr<Residence>> residences;
  std::map<TicketId, Ticket> tickets;
  std::map<OperationId, Load> loads;
  std::map<OperationId, Store> stores;
  std::map<ReservationId, Reservation> reservations;
  std::map<ReservationId, Reservation> left_behind;  // given up, while their writers may still write
  std::map<std::uint32_t, std::shared_ptr<OutsideWriter>> outside_writers;  // by pid; not exited

  std::shared_ptr<CopyDoneQueue> copies_done;
  std::deque<PendingCopy> pending_copies;
  std::map<std::pair<OperationId, std::uint64_t>, RunningCopy> running_copies;
  std::map<std::uint64_t, std::vector<PendingCopy>> waiting_for_event;
  std::unordered_set<std::uint64_t> events_fired;
  std::deque<std::uint64_t> events_fired_order;

  std::multimap<Time, std::uint64_t> residence_deadlines;
  std::multimap<Time, TicketId> ticket_deadlines;
  std::multimap<Time, OperationId> operation_deadlines;

  std::vector<std::uint64_t> held_by_readers;  // residences that go when no reader names them any more
  std::deque<std::uint64_t> dead_windows;  // residences of window records that no point needed when they came
  std::deque<PageRef> first_victims;       // pages below a lost one
  std::uint64_t occupied_pages = 0;        // with any class-set
  std::uint64_t stale_pages = 0;           // cleared, not swept yet
  std::set<std::pair<Time, PageName>> pins;

  // Probes of first pages, for other_identity: bounded, oldest out first.
  struct ProbeEntry {
    NamespaceId ns;
    Key key;
  };
  std::map<std::pair<std::string, Probe>, std::vector<ProbeEntry>> probes;  // by (tenant salt, probe)
  std::deque<std::pair<std::string, Probe>> probe_order;

  // Different requests that asked for a page not stored: write_through_selective.
  struct Sighting {
    RequestId last;
    std::uint32_t requests = 0;
  };
  std::map<PageName, Sighting> sightings;
  std::deque<PageName> sighting_order;

  // The disk.
  std::map<TicketId, Promotion> promotions;
  std::multimap<Time, TicketId> promotion_deadlines;
  std::unordered_map<DiskAppendId, std::uint64_t> appends;  // residences that are being written down
  std::unordered_map<DiskReadId, std::uint64_t> reads;      // residences that are being filled
  std::unordered_map<DiskSpaceId, NamespaceId> by_disk_space;
  std::uint64_t offers_taken = 0;          // of to_offer, ever
  std::deque<std::uint64_t> to_offer;      // residences that wait for room in the disk's queue
  std::deque<std::uint64_t> unwritten;     // kWriteBack: residences in the order in which they came
  std::uint64_t leaving_bytes = 0;         // of hidden residences that are still being written down
  std::set<std::uint64_t> attached_below;  // residences whose page is below, oldest first
  std::map<OperationId, Descent> descents;
  // The remote tier.
  std::unordered_map<RemoteAppendId, std::uint64_t> remote_appends;  // residences that are being stored there
  std::unordered_map<RemoteReadId, std::uint64_t> remote_reads;      // residences that are being filled
  std::deque<std::uint64_t> to_offer_remote;                         // residences that wait for room there
  std::deque<FlushUnderWay> flushes;

  std::vector<Completion> completions;
  std::deque<Event> events;
  std::uint64_t event_sequence = 0;
  std::uint64_t events_lost = 0;

  Time now() const { return world.clock.now(); }
  std::uint64_t next_id() { return ++last_id; }
  std::optional<std::uint32_t> next_small_id() {
    if (last_small_id == UINT32_MAX) return std::nullopt;
    return ++last_small_id;
  }
  void cancel_operation(OperationId id);
  Namespace& space_of(NamespaceId ns) { return *namespaces.at(ns); }
  const Namespace& space_of(NamespaceId ns) const { return *namespaces.at(ns); }
  bool knows(NamespaceId ns) const { return namespaces.contains(ns); }

  // -- pages.cc: what may be found, and how it leaves --
  bool current(const Page& page) const;        // not cleared since it came
  Page* find(NamespaceId ns, const Key& key);  // current entries only, placeholders included
  const Page* find(NamespaceId ns, const Key& key) const;
  SpaceId current_space(Namespace& ns) const;
  Page* find_any(NamespaceId ns, const Key& key) const;  // cleared and not yet swept, too
  // Makes a placeholder. `length` (0: unknown) and `parent` say where it stands in its chain.
  Page& entry(NamespaceId ns, const Key& key, std::uint64_t length, const Page* parent);
  void show_set(const Residence& set);  // to readers of the index, or its new place
  void conceal_set(const Residence& set);
  std::uint64_t sets_in_index(const Form& form, ClassId cls) const;  // of one class-set, beside set 0
  SetNumber set_number(const Form& form, ClassId cls, std::size_t shard) const;
  void move_to_current_space(Page& page);  // not visible, no set of it in the index
  void leave_space(const Page& page);      // its space has one entry less
  void link_parent(Page& page, const std::optional<Key>& parent);
  void prune(Page* page);  // drops the entry, and lost ancestors, when nothing hangs on it
  void occupy(Page& page);
  void vacate(Page& page);
  void publish(Page& page, Residence& staged);
  void become_visible(Page& page);
  void set_resident(Page& page, Residence& set);
  void hide_set(Page& page, ClassId cls, Ending ending);  // the residence leaves its page
  void out_of_sight(Page& page, const PastEvent& event);
  // All class-sets leave; `event` is remembered as the page's past.
  void hide_page(Page& page, const PastEvent& event, Ending ending);
  void drop_set(Page& page, ClassId cls, Cause cause, Ending ending);  // a sparse or optional one alone
  void damaged(Residence& residence);
  void lose_descendants_first(Page& lost);
  void make_point(Page& page);
  void drop_point(Page& page, Cause cause);
  void drop_if_unneeded(Residence& set);
  void note_dead(const Residence& window);
  std::uint64_t page_payload(const Page& page) const;
  std::uint64_t point_payload(const Page& page) const;
  void free_if_unused(Residence& residence);
  bool readers_there() const { return world.readers != nullptr && world.readers->clients() != 0; }
  // Frees what no reader names any more. Returns how many residences went. Cost: one scan of all lease words.
  std::size_t ask_readers();
  std::size_t use_touches();  // of readers
  void tell_waiters(Residence& residence);
  void remove_tree(Page& page);
  void unpin_page(Page& page);
  std::size_t sweep(std::size_t visits_max);
  CandidateId candidate(const Page& page, CandidateKind kind, ClassId cls = ClassId{}) const;
  Page& page_of(CandidateId id) const {
    return pages.at(PageNumber(static_cast<std::uint32_t>(id.value() / 64)));
  }
  void push_event(EventKind kind, const Page& page, Presence classes, Cause cause = Cause::kNeverStored);
  void queue_event(Event event);
  void push_cleared(FormId form, NamespaceId ns);
  void charge(Residence& residence);
  void uncharge(Residence& residence);

  // -- room.cc: what must go so that a record may come --
  struct Need {
    NamespaceId ns;
    Form* form = nullptr;
    ClassId cls;
    Key key;  // of the page that is stored: never a victim of it
    std::optional<Key> parent;
    bool new_page = false;
    Access access;
    bool last_resort = false;  // floors and take-back rules no longer hold
    bool own_only = false;     // the namespace is at its maximum: only its own pages may go
    bool space_bound = false;  // extents are what is missing
    PoolId pool() const { return form->pools[cls.value()]; }
    std::uint64_t bytes() const { return form->form->classes[cls.value()].set_bytes(); }
  };
  // One slot per shard of the class-set, or why there is no room. Evicts, sweeps and moves as needed.
  StoreOutcome make_room(Need need, std::vector<SlotId>& slots);
  bool within_limits(Need& need);
  bool never_fits(const Need& need) const;
  bool compact(const Need& need, std::uint64_t& budget_bytes);
  bool evict_one(const Need& need);
  bool evict_some(const Need& need);
  std::optional<std::vector<PageNumber>> freeze_for(const std::vector<Move>& moves,
                                                    std::unordered_set<std::uint64_t>& being_read);
  bool evict_dead_weight(const Need& need);
  bool evictable(CandidateId id, const Need& need);
  bool may_shrink(NamespaceId id, std::uint64_t bytes, const Need& need) const;
  void evict(CandidateId id, const Need& need);
  bool take_slots(const Need& need, std::vector<SlotId>& slots);
  std::unordered_map<std::uint64_t, std::pair<std::uint64_t, ShardId>> slot_owner;  // by slot_name
  static std::uint64_t slot_name(PoolId pool, SlotId slot) {
    return static_cast<std::uint64_t>(pool.value()) << 32 | slot.value();
  }
  Residence* residence(std::uint64_t id) {
    const auto at = residences.find(id);
    return at != residences.end() ? at->second.get() : nullptr;
  }

  // -- match.cc --
  Access access_of(RequestId request, SessionId session);
  Request* request_of(RequestId request, SessionId session);  // begins it when new; null for 0
  Status check_match(std::string_view call, const MatchQuery& query) const;
  Ticket& new_ticket(const MatchQuery& query);
  Presence visible_presence(const MatchQuery& query, const Request* request, const Key& key,
                            const Page* page) const;
  Presence held_required(const Ticket& ticket, std::uint64_t page) const;
  std::vector<PageView> missed_views(const Ticket& ticket, const AnswerSoFar& so_far) const;
  void look_below(PageView& at, std::uint64_t page, const Ticket& ticket, const AnswerSoFar& so_far) const;
  void finish_match(Ticket& ticket, const MatchQuery& query);
  // Longest restorable length whose records fit the session's bound; fills the ticket's view and leases.
  void answer(Ticket& ticket, const MatchQuery& query, const Request* request);
  // Takes out of `rule` the lengths that are not offered, leases the longest that is left; why they are not.
  Reason lease_offered(Ticket& ticket, const MatchQuery& query, std::span<Page* const> found,
                       ResumeAnswer& rule);
  // `lower`: its classes on the disk.
  PageView page_view(NamespaceId ns, const Key& key, const Page* page, const Request* request,
                     Presence lower) const;
  void explain_elsewhere(const MatchQuery& query, std::uint64_t page, PageView& view) const;
  void remember_probe(const MatchQuery& query);
  void remember_sightings(const MatchQuery& query);
  void touch_page(Page& page, const Access& access);
  // Leases every record that a resume at `length` needs and the engine does not hold; false (and nothing
  // leased) when the session's bound does not allow it.
  std::uint64_t lease_for(Ticket& ticket, std::span<Page* const> found, std::uint64_t length);
  bool within_bound(SessionId session, std::uint64_t bytes) const;
  void add_lease(Ticket& ticket, Residence& set, std::uint64_t page);
  const Lease* lease_of(const Ticket& ticket, std::uint64_t page, ClassId cls) const;
  void end_leases(Ticket& ticket);
  void drop_ticket(TicketId id);

  // -- advice.cc --
  void forget_request(RequestId request);
  bool by_points(const Form& form) const;
  void foresee(Ticket& ticket, const MatchQuery& query, std::uint64_t sequence, std::uint64_t there);
  // A use of the pages found, and of the point that the ticket resumes at.
  void use_found(const Ticket& ticket, const MatchQuery& query, const Access& access,
                 std::span<Page* const> found, std::span<const Presence> presence);
  void expect_page(const Page& page);
  void expect_point(const Page& page);
  AdvicePrice price_now(const Form& form) const;
  void expect_resumed(const RequestForecast& request, std::uint64_t sequence);

  // -- load.cc --
  Status check_load(const LoadRequest& request, const Ticket& ticket) const;
  Status check_target(const LoadTarget& target, const LoadRequest& request, const Ticket& ticket) const;
  Status check_layers(LoadRequest& request, const Ticket& ticket) const;
  bool verification_due(const Load& load, const Residence& set, ShardId shard) const;
  bool servable(const Lease& lease);  // what was leased is still what its page would give
  Presence load_presence(const Load& load, const Ticket& ticket, std::uint64_t page);
  void attempt(Load& load,
               std::uint64_t at_most);  // the longest length that can still be had, and its copies
  bool gather(Load& load, Ticket& ticket);
  bool gather_item(Load& load, Ticket& ticket, std::size_t target, std::uint64_t page);
  std::optional<LayerRange> layers_of(const Load& load, const ClassForm& cls) const;
  void start_verify(Load& load);
  void start_copy(Load& load);
  void load_step(Load& load);  // its copies have all ended
  bool take_failures(Load& load);
  bool still_current(const Load& load);
  bool after_copy(Load& load);
  void give_layer(const Load& load);
  LoadResult load_result(const Load& load, Status status, std::uint64_t length);
  ItemOutcome item_outcome(const Load& load, const Ticket& ticket, std::size_t target, std::uint64_t entry,
                           std::uint64_t length);
  void answer_load(Load& load, Status status, std::uint64_t length);
  void end_load(Load& load);  // nothing of it runs any more; `load` is gone afterwards
  void refuse_again(const Load& load, std::uint64_t page, Reason reason);

  // -- demotion.cc: from the host tier to the disk, and what is durable there --
  bool on_disk(DiskSpaceId id) const { return world.disk != nullptr && id != DiskSpaceId{}; }
  std::uint64_t slot_of(const ClassForm& cls) const;
  static DiskName disk_name(const Namespace& ns, const Key& key, ClassId cls) { return {ns.disk, key, cls}; }
  void open_on_disk(Namespace& ns);
  DiskEntry disk_entry(const Residence& set);
  // Where the first `bytes` of each shard's record lie.
  std::vector<std::vector<BlockPiece>> record_pieces(const Residence& set, std::uint64_t bytes);
  void offer_down(Residence& set, DiskOffer offer);
  void offer_to_log(Residence& set, DiskOffer offer);
  void became_resident(Residence& set);            // the write policy's `computed`
  void used_again(Page& page, RequestId request);  // its `hit`
  void leaves(Residence& set);                     // its `leaving`; before it is hidden
  // The page's reason, when it is evicted: why the disk has not got it, if it refused.
  PastEvent past_of_evicted(const Page& page, NamespaceId by) const;
  std::uint64_t write_room() const;            // bytes that may be under way to the disk
  bool may_leave(const Residence& set) const;  // not while too much is being written down
  void clean_ahead();
  void offer_waiting();
  // It stands at number `at`; nothing: it was lost on the way.
  void offer_ended(Residence& set, std::optional<std::uint64_t> at);
  void settle_descent(const Residence& set);
  void watch_descent(const Store& store);
  std::size_t disk_events();
  void disk_evicted(const DiskName& name);
  std::size_t tell_durable();
  bool note_record(std::optional<std::uint64_t> at, std::uint64_t& newest);
  Status settle_record(std::string_view call, std::uint64_t at, bool recorded);
  Status clear_form(std::string_view call, Form& form);
  std::vector<std::uint64_t> hottest_unwritten();
  void tell_no_disk();
  void forget_disk();

  // -- attached_below.cc: sparse and optional class-sets of pages that only the disk has --
  Presence lower_presence(const Page& page) const;  // of one page, its chain known as far as it is linked
  bool is_below(const Page& page) const;            // the disk has all that the page requires
  Presence attached_presence(const Page& page) const;
  void attach_below(Page& page);            // what is whole of it, if the disk has the page
  bool detach_below(Residence& set);        // whether it was attached; whoever calls knows what becomes of it
  void settle_below(const PageName& name);  // is the page there still? Else it leaves with all of it
  void drop_below(Residence& set, Ending ending);
  bool evict_below(const Need& need);  // one of them
  void forget_below();                 // there is no disk any more

  // -- remote_side.cc: host tier and remote tier --
  void open_on_remote(Namespace& ns);
  RemoteEntry remote_entry(const Residence& set);
  bool lower_down() const;  // no lower tier answers now
  // As lower_presence, of the disk and what is known of the remote tier; empty: there is neither.
  // `disk`: lower_presence of the same.
  std::vector<Presence> below_presence(NamespaceId ns, std::vector<Presence> disk, std::span<const Key> keys,
                                       const Request* request) const;
  bool remote_has(const Namespace& ns, const Key& key, ClassId cls) const;
  bool ask_remote(Ticket& ticket, Promotion& promotion);
  void looked_up(RemoteLookupId lookup, const Status& status);
  bool remote_there(const Residence& set) const;
  void offer_remote(Residence& set);
  void wait_for_remote(Residence& set);
  void offer_waiting_remote();
  void remote_offer_ended(Residence& set, bool written);
  std::size_t remote_events();
  void clear_remote(Namespace& ns);
  void clear_remote(Form& form);
  Status settle_remote(std::string_view call);

  // -- promotion.cc: from lower tiers into the host tier --
  // Per key, its classes on the disk that may be offered to this request; empty without a disk.
  std::vector<Presence> lower_presence(NamespaceId ns, std::uint64_t first_page, std::span<const Key> keys,
                                       const Request* request) const;
  Presence lower_presence(NamespaceId ns, const Key& key) const;  // of one page, its chain unknown
  bool begin_promotion(Ticket& ticket, const MatchQuery& query, Promotion& promotion);
  bool plan_promotion(Ticket& ticket, Promotion& promotion);
  MatchQuery query_of(const Ticket& ticket, const Promotion& promotion) const;
  void lose_removed(Ticket& ticket, Promotion& promotion);  // what waits for its turn
  void pump_promotions();
  enum class Start : std::uint8_t { kDone, kLost, kLater };
  enum class Source : std::uint8_t { kNone, kDisk, kRemote, kLater, kDown };
  Source source_of(const Namespace& ns, const Key& key, const PromotionItem& item, bool chain_known) const;
  bool submit_read(Residence& set, Source source, bool chain_known);
  bool waits_for_disk(const Promotion& promotion) const;
  Start start_item(Ticket& ticket, Promotion& promotion, const PromotionItem& item);
  bool make_index_room(const Need& need, std::uint64_t entries);
  Start start_read(Ticket& ticket, Promotion& promotion, const PromotionItem& item);
  // A page that stays although it has neither records nor children yet; one at a time.
  class HeldPage {
   public:
    explicit HeldPage(State& state) : state_(&state) {}
    HeldPage(HeldPage&& other) noexcept : state_(other.state_), page_(std::exchange(other.page_, nullptr)) {}
    HeldPage& operator=(HeldPage&&) = delete;
    ~HeldPage() { hold(nullptr); }
    void hold(Page* page);  // instead of the one before
    Page* page() const { return page_; }

   private:
    State* state_;
    Page* page_ = nullptr;
  };
  std::optional<HeldPage> make_chain(const Ticket& ticket, const Need& need, std::uint64_t number);
  void settle_root(const Ticket& ticket, Page& page, std::uint64_t number);
  static Page& top_of(Page& page);  // as far up as it is linked
  void note_unrooted(Page& page);
  Page* unrooted(const PageRef& ref) const;
  void remove_unrooted(Namespace& ns);
  void lose_item(Ticket& ticket, Promotion& promotion, const PromotionItem& item, Reason why);
  void read_done(Residence& set, const Status& status, Reason why);
  void adopt_done(Residence& set, ShardId shard, const Status& status, std::uint64_t verifies);
  void lose_read(Residence& set, Reason why, Ending ending);
  void end_reading(Residence& set);
  std::optional<std::uint32_t> generation_read(const Residence& set);  // nothing: its shards disagree
  void tell_promotions(Residence& set);                                // it is resident, or has left
  std::size_t settle_promotions();
  void finish_promotion(TicketId id, bool answered = true);
  PrefetchResult prefetch_result(const Ticket& ticket, const Promotion& promotion);
  void end_prefetches_of(RequestId request);
  // `answered`: somebody still wants to know what is there.
  void give_up_promotion(TicketId id, Status why, bool answered = true);

  // -- copies.cc --
  RecordPlace place_of(const Residence& residence, ShardId shard) const;
  // Counts as outstanding of its operation from here on.
  void queue_copy(PendingCopy copy, std::uint64_t after_event);
  void pump();                                        // submits what the in-flight bytes allow
  std::uint64_t drop_pending(OperationId operation);  // copies not submitted yet; returns how many
  std::size_t finish_copies();

  // -- store.cc --
  // Who stores: one computation for a request or for one call, and how it counts as a use.
  struct Writer {
    std::uint64_t computation = 0;
    Access access;
    bool client_writes = false;
  };
  Writer writer_of(const StoreRequest& request, std::uint64_t call, bool client_writes);
  bool fits_chain(const StoreRequest& request, const StoreItem& item) const;
  Status check_session(std::string_view call, SessionId session, NamespaceId ns, RequestId request) const;
  struct Admission {
    StoreOutcome outcome = StoreOutcome::kInvalid;
    std::uint64_t residence = 0;
  };
  Status check_store(const StoreRequest& request) const;
  bool valid(const StoreRequest& request, const StoreItem& item, bool client_writes) const;
  void expect_items(const StoreRequest& request);  // their places in the index are fetched
  Admission admit(const StoreRequest& request, const StoreItem& item, const Writer& writer);
  Admission join(Residence& set, const StoreItem& item, const Writer& writer);
  StoreOutcome refused(const StoreRequest& request, const StoreItem& item, StoreOutcome why);
  Residence& new_residence(const StoreRequest& request, const StoreItem& item, std::vector<SlotId> slots);
  // What a commit says of the records that it seals.
  struct Sealing {
    std::vector<const Arrival*> arrivals;  // per item; null: nothing is said
    bool trusted = false;
  };
  void add_store(OperationId id, const StoreRequest& request, std::vector<StoreOutcome> outcomes,
                 std::vector<std::uint64_t> members, CopyKind kind, const Sealing* sealing = nullptr);
  void store_copy_done(Store& store, std::uint64_t index, const Status& status);
  void shard_written(Residence& residence, ShardId shard);
  bool reattach(Residence& residence);
  void answer_store(Store& store);
  void end_store_if_done(OperationId id);
  void abort_residence(std::uint64_t id, Ending ending);
  StoreOutcome outcome_of(const Residence& residence, StoreOutcome so_far) const;
  Presence wanted(const OfferRequest& request, const Form& form, std::uint64_t number,
                  const Page* page) const;

  // -- reservations.cc --
  Result<std::shared_ptr<OutsideWriter>> outside_writer(std::uint32_t pid);
  Result<Sealing> sealing_of(const Reservation& reservation, const CommitRequest& what) const;
  void part_with_missing(Reservation& reservation, const Sealing& sealing);
  void note_written(const Reservation& reservation, const Sealing& sealing);
  void give_up(Reservation reservation, Ending ending);     // its slots return, or wait for the writer's exit
  void give_back(Reservation& reservation, Ending ending);  // nobody will write there any more
  void let_go(Reservation& reservation, std::size_t item);
  void quarantine(Residence& residence);
  void expire_holders(std::uint64_t residence);
  void writer_exited(const OutsideWriter& writer);
  std::size_t watch_writers();

  // -- lifetime.cc --
  std::size_t expire();
  std::size_t expire_residences();
  std::size_t expire_tickets();
  void operation_timed_out(OperationId id);
  void cancel_load(Load& load, Status why);
  void cancel_store(Store& store, Ending why);
  void finish_suspension();
  void give(Completion completion);
  void give_quiescent(OperationId operation);
  bool retired(const Namespace& ns) const { return ns.identity.weights_epoch < ns.form->weights_epoch; }
};

}  // namespace tiercel
