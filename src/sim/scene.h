// Everything a run is made of: the world, the node in it, the clients and what they have under way, and the
// simulator's own knowledge. The actions change it, the checkers only look.
//
// Threads: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "index/test_compared_index.h"
#include "node/node.h"
#include "os/clock.h"
#include "sim/book.h"
#include "sim/coverage.h"
#include "sim/engine.h"
#include "sim/readers.h"
#include "sim/scenario.h"
#include "sim/world.h"
#include "sim/writers.h"

namespace tiercel::sim {

// A page of the tree of prompts: what comes after its parent's tokens.
struct Prompt {
  std::size_t ns = 0;                 // index into Scene::spaces
  std::optional<std::size_t> parent;  // index into Scene::prompts
  Key key;
  KeyChain chain;
  std::uint64_t length = 0;      // pages of the prefix that ends here
  std::optional<Probe> probe;    // of a first page
  std::uint64_t token_seed = 0;  // the same tokens under every namespace
  std::vector<std::size_t> next;
};

struct Space {  // one namespace
  NamespaceId id;
  FormId form;
  std::uint32_t salt = 0;
  ContentIdentity identity;
  std::uint64_t root = 0;  // short_root()
  std::uint64_t bytes_min = 0;
  std::optional<std::uint64_t> bytes_max;
  bool dead = false;                     // of an old weights epoch: nothing of it may be served or stored
  std::vector<std::size_t> first_pages;  // prompts
};

struct Model {
  FormId id;
  StorageForm form;
  std::uint64_t epoch = 0;
};

struct Client {  // one session
  SessionId id;
  std::uint32_t salt = 0;
  std::string name;
  std::uint64_t bytes_max = 0;
};

struct LeaseSeen {
  std::uint32_t generation = 0;
  std::optional<Computation> computation;  // of its bytes when the lease was taken; nothing: damaged then
};

struct SimTicket {
  TicketId id;
  SessionId session;
  std::size_t space = 0;
  RequestId request;
  std::vector<Key> keys;
  std::vector<std::uint64_t> held;
  std::uint64_t first_page = 0;
  MatchQuery query;  // its spans are those of the call: use keys and held
  TicketView view;
  Time matched{0};
  std::uint64_t step = 0;
  std::map<std::pair<std::uint64_t, ClassId>, LeaseSeen> leases;  // by page and class
  bool gone = false;        // released, expired, or its request or session has ended
  std::uint32_t loads = 0;  // under way
};

struct SimOperation {
  enum class Kind : std::uint8_t { kLoad, kStore, kCommit };
  OperationId id;
  Kind kind = Kind::kStore;
  SessionId session;
  RequestId request;
  std::size_t space = 0;
  Time issued{0};
  Time deadline{0};
  std::uint64_t step = 0;
  std::uint64_t event = 0;
  bool tell_lower = false;
  bool event_fired = false;
  bool cancel_asked = false;
  bool session_closed = false;
  // Stores and commits.
  Computation computation = 0;
  std::vector<StoreItem> items;
  std::vector<StoreOutcome> first;  // as answered by the call
  std::vector<std::optional<EngineSlot>> sources;
  std::vector<bool> named, bad_sum;  // commits: items that it named; with checksums of other bytes
  bool source_free = false;
  bool visible = false;
  // Loads.
  TicketId ticket;
  LoadRequest load;
  std::vector<std::vector<std::optional<EngineSlot>>> targets;  // per target and entry; nothing: skipped
  bool loaded = false;
  LoadResult result;
  std::set<std::uint32_t> ready;   // layers whose event has come
  std::uint64_t disturbances = 0;  // Scene::disturbances when it began
  bool quiescent = false;          // nothing of it touches engine memory any more
  bool ended() const { return quiescent && (kind == Kind::kLoad ? loaded : source_free && visible); }
};

struct SimReservation {
  ReservationId id;
  SessionId session;
  RequestId request;
  std::size_t space = 0;
  Computation computation = 0;
  std::vector<StoreItem> items;
  std::vector<StoreOutcome> first;
  std::vector<std::vector<ArenaSpan>> spans;         // of accepted items, as first told
  std::vector<std::vector<std::byte>> last_written;  // what this client wrote there last
  Time made{0};
  Time deadline{0};
  std::uint64_t step = 0;
  bool quarantine_seen = false;
  std::uint32_t writer = 0;  // pid; 0: the client itself
  bool ended = false;        // committed, aborted, or its session closed
};

// An engine's request on its way: match, load, compute in chunks, end.
struct SimRequest {
  RequestId id;
  std::size_t client = 0;
  std::size_t space = 0;
  Computation computation = 0;
  std::vector<std::size_t> path;  // prompts, first page first
  bool matched = false;
  std::optional<TicketId> to_load;    // what its match found, not loaded yet
  bool urgent = false;                // goes before all others
  std::uint64_t next_page = 0;        // computed so far
  std::vector<StoreItem> to_store;    // computed, not handed over yet
  std::optional<TicketId> waits_for;  // its match waits for the disk
};

// One call and what followed from it.
struct StepView {
  enum class Phase : std::uint8_t { kRunning, kQuiet, kEnded, kEmptied };
  std::uint64_t step = 0;
  std::string action;
  std::string note;  // what it was done to, for people
  Phase phase = Phase::kRunning;
  bool polled = false;
  std::optional<TicketId> matched;     // answered in this step
  std::optional<NamespaceId> storing;  // a store or reservation for this namespace was asked for
  std::optional<AdviceQuery> advice_query;
  TicketId advice_ticket;
  std::vector<std::uint64_t> advice;
  std::vector<std::uint64_t> advice_again;  // the same question asked twice
  Audit before;
  Audit after;
  std::vector<Completion> completions;
  Events events;
};

struct SceneBelow;   // scene_below.h
struct SceneDisk;    // scene_disk.h
struct SceneRemote;  // scene_remote.h

struct Scene {
  Scene(Scenario chosen, std::uint64_t seed_value);
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // -- constant after opening --
  Scenario scenario;
  std::uint64_t seed;
  // -- the world; the node last, so that it goes first --
  mutable Prng prng;
  ManualClock clock;
  std::unique_ptr<SimDevice> device;
  std::unique_ptr<SimArena> arena;
  std::unique_ptr<SimExecutor> executor;
  std::unique_ptr<ComparedIndex> index;  // the compact one, asked beside the model
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Readers> readers;
  std::unique_ptr<Writers> writers;
  std::unique_ptr<SceneDisk> disk;      // null: none
  std::unique_ptr<SceneRemote> remote;  // null: none
  std::unique_ptr<SceneBelow> below;    // null: there is neither
  std::unique_ptr<Node> node;
  // -- clients and what they have under way --
  std::vector<Model> models;
  std::vector<Space> spaces;
  std::map<NamespaceId, std::size_t> space_of;
  std::vector<Client> clients;
  std::vector<Prompt> prompts;
  std::vector<SimRequest> requests;
  std::map<TicketId, SimTicket> tickets;
  std::map<OperationId, SimOperation> operations;
  std::map<ReservationId, SimReservation> reservations;
  std::map<PageId, Time> pins;                         // until when
  std::map<RequestId, std::set<PageId>> failed_loads;  // pages not to be offered to that request again
  std::vector<std::uint64_t> events_waiting;           // engine events not fired yet
  std::uint64_t last_event = 0;
  std::uint64_t last_request = 0;
  bool suspended = false;
  bool suspending = false;
  bool calm = false;  // no new faults of the world
  // Removals, damage and device errors so far: a load that none of them met must keep to the letter what it
  // may write to.
  std::uint64_t disturbances = 0;
  // What left as damaged: in which step, which classes.
  std::map<PageId, std::vector<std::pair<std::uint64_t, Presence>>> damage_found;
  std::array<std::uint64_t, 2> device_errors_seen{};  // reads, writes
  std::uint64_t ran_before_poll = 0;                  // tasks whose end the node has been told
  // Generations that were resident when their namespace was cleared: out of sight, slots not swept yet.
  std::set<std::uint32_t> cleared_generations;
  std::set<NamespaceId> cleared_spaces;  // ever
  // -- knowledge --
  Book book;
  Coverage coverage = Coverage::of_node();
  StepView view;

  const Model& model_of(const Space& space) const;
  const StorageForm& form_of(const Space& space) const { return model_of(space).form; }
  RecordName record_name(const Space& space, const Key& key, ClassId cls, ShardId shard) const {
    return {space.root, key, cls, shard};
  }
  // The computation whose bytes stand in the arena for one shard; nothing when they are nobody's whole
  // record.
  std::optional<Computation> stored_computation(const Space& space, const AuditResidence& residence,
                                                ShardId shard) const;
  // Of all shards; nothing when they disagree.
  std::optional<Computation> stored_computation(const Space& space, const AuditResidence& residence) const;
  std::uint64_t disturbed() const { return disturbances + device->read_errors() + device->write_errors(); }
};

// The child number `branch` of `parent` (of the root without one), made when it is new.
std::size_t prompt_below(Scene& scene, std::size_t space, std::optional<std::size_t> parent,
                         std::size_t branch);
// Opens the node, sessions, forms and namespaces of the scenario.
Status open_scene(Scene& scene);
// The same once more, after everything but the drive was lost. Ids are new.
Status reopen_scene(Scene& scene);
// A namespace of `model` for tenant `salt`; its index.
Result<std::size_t> open_space(Scene& scene, std::size_t model, std::uint32_t salt, std::uint32_t adapter);
SessionOptions session_options(const Scene& scene, std::uint32_t salt, const std::string& name);

}  // namespace tiercel::sim
