// What stands behind the remote tier's calls.
//
// Threads: one thread; CopiesDone is pushed to by the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "os/thread_annotations.h"
#include "remote/exchange_space.h"
#include "remote/known_objects.h"
#include "remote/object_format.h"
#include "remote/remote_tier.h"

namespace tiercel {

namespace remote {

// A random number in the store, under a fixed name; see object_format.h.
struct Marker {
  std::string name;
  std::vector<std::size_t> spaces;     // whose names are made with it: into State::spaces
  std::optional<MarkerNumber> number;  // as last seen
  Time seen{0};                        // when
  bool asking = false;                 // a batch is under way
  bool make = false;                   // it was not there: the next step puts one
  // A clear: until another number than this one was seen, nothing of the marker's namespaces is used.
  std::optional<MarkerNumber> cleared;
  bool replace = false;  // the next step writes a new number
  bool clearing = false;
  bool remove = false;       // the store has no room for a new one: the old one goes
  std::uint64_t clears = 0;  // so that a write which began before a clear does not count as its
  Time not_before{0};        // what failed is tried again after a moment
};

struct TierSpace {
  RemoteSpaceId id;
  RemoteSpaceName name;
  ObjectForm objects;
  std::size_t form_marker = 0, namespace_marker = 0;  // into State::markers
  std::optional<ObjectSpace> current;                 // both markers are known, no clear is under way
};

// A run that a lookup asks for, and the page of its question that ends it.
struct AskedRun {
  RunName run;
  std::uint64_t page = 0;
};

// The next step of a lookup.
enum class LookStep : std::uint8_t {
  kMarkers,    // wait until the space can be used
  kRequired,   // what makes the prefix longer: whole runs, and pages where it ends
  kPoints,     // snapshots, from the deepest on
  kTails,      // windows before the deepest point, optional classes: whole runs
  kTailPages,  // and single pages
  kDone,
};

struct Lookup {
  RemoteLookupId id;
  RemoteSpaceId space;
  std::uint64_t first_page = 0;
  std::vector<Key> keys;
  std::vector<Presence> have;
  LookStep step = LookStep::kMarkers;
  std::size_t answers_due = 0;         // batches under way
  std::optional<std::uint64_t> reach;  // pages from the question's start that required classes cover
  std::uint64_t point = 0;        // the deepest length to resume at that is known, in pages of the question
  std::uint64_t points_from = 0;  // snapshots at pages below it have not been asked for
  Time deadline{0};
  Status status;
};

// One shard's object while it moves: its header and small records in an area of the exchange, one behind the
// other, large records where they stand.
struct ShardPlace {
  Area area;
  std::vector<RemotePiece> pieces;                      // all of the object, in order
  std::vector<std::optional<std::uint64_t>> from_area;  // per record: where in the area; nothing: not there
  std::uint64_t bytes = 0;                              // of the object
};
struct ObjectPlace {
  std::vector<ShardPlace> shards;
  std::uint64_t bytes = 0;         // of all of them
  std::uint64_t direct_bytes = 0;  // of it, in somebody's own memory
};

// One object to be read: for whom, and where it goes.
struct ObjectRead {
  RunName run;
  ObjectSpace space;
  ObjectPlace place;
  std::vector<std::pair<RemoteReadId, RemoteEntry>> entries;
  std::vector<std::uint32_t> page_of;  // per entry: in the run
};

// Class-sets of one page and bundle that wait to be written.
struct PageWrite {
  ObjectSpace space;  // under which it was given: what was cleared since is not stored
  std::vector<std::pair<RemoteAppendId, RemoteEntry>> sets;  // one for each class, as they came
  Presence classes = 0;
  Key parent;
  std::uint64_t length = 0;
  Time since{0};
  std::uint64_t bytes = 0;
};

struct ObjectWrite {
  RunName run;
  ObjectSpace space;
  std::vector<Key> keys;  // of its pages, in order
  std::vector<PageWrite> pages;
  ObjectPlace place;
  std::uint64_t bytes = 0;  // of class-sets
};

// Of one batch, about: far below what a request to a connector may have.
inline constexpr std::size_t kItemsMax = 1024, kPiecesMax = 4096;

// What moves in one direction. It must come within one deadline, and nobody knows how fast the store is.
struct Flow {
  std::uint32_t batches = 0;            // under way
  std::uint64_t bytes = 0, window = 0;  // of objects in them; the most of those, by what has been seen
};

// Ends of copies on their way back.
class CopiesDone final {
 public:
  void push(std::uint64_t copy) {
    const MutexLock lock(mutex_);
    done_.push_back(copy);
  }
  std::vector<std::uint64_t> drain() {
    const MutexLock lock(mutex_);
    return std::exchange(done_, {});
  }

 private:
  Mutex mutex_;
  std::vector<std::uint64_t> done_ TIERCEL_GUARDED_BY(mutex_);
};

struct MemoryCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
};

// Between a flat piece of the exchange and the first `length` bytes of `pieces`.
void add_copies(std::byte* flat, std::uint64_t length, const std::vector<BlockPiece>& pieces, bool to_pieces,
                std::vector<MemoryCopy>& copies);
// What `outcome` means for an object that was not read, or not stored.
Status outcome_status(RemoteOutcome outcome, std::string_view what);
inline Status cleared_meanwhile() {
  return {Code::kUnavailable, "remote: the namespace was cleared meanwhile"};
}

}  // namespace remote

struct RemoteTier::State {
  State(const RemoteTierOptions& tier_options, RemoteStore& tier_store, Clock& tier_clock,
        Executor& tier_executor, const Digest& seed);

  RemoteTierOptions options;
  RemoteStore& store;
  Clock& clock;
  Executor& executor;
  Digest seed;
  std::uint64_t random_drawn = 0;
  remote::ExchangeSpace exchange;
  remote::KnownObjects known;
  RemoteStats stats;
  std::vector<RemoteTierEvent> events;
  std::uint64_t last_id = 0;
  bool closed = false;

  std::vector<remote::TierSpace> spaces;  // index + 1 = RemoteSpaceId
  std::map<std::pair<Digest, Digest>, RemoteSpaceId> space_by_name;
  std::vector<remote::Marker> markers;
  std::map<std::string, std::size_t> marker_by_name;
  std::set<std::size_t> markers_due;  // those that need a step: not known, cleared, or old and wanted

  std::map<RemoteLookupId, remote::Lookup> lookups;

  std::list<remote::ObjectRead> to_read;      // wait for the exchange or a batch
  std::list<remote::ObjectRead> now_reading;  // in a batch or being copied out
  remote::Flow reads, writes;

  std::unordered_map<remote::PageBundle, remote::PageWrite, remote::HashPage> gathering;
  std::deque<remote::PageBundle> gathering_order;  // oldest first; entries that are gone are passed over
  std::list<remote::ObjectWrite> to_write;
  std::list<remote::ObjectWrite> now_writing;
  std::deque<std::list<remote::ObjectWrite>::iterator> to_put;  // of those: copied, wait for a batch
  std::uint64_t writing_bytes = 0;                              // of objects that have their place
  bool flush = false;
  std::vector<std::string> to_remove;  // objects

  // Batches under way, and what happens at their ends. `areas` stay with a batch that is not quiet.
  using Then = std::function<void(const std::vector<RemoteResult>&)>;
  struct Batch {
    Then then;
    std::vector<remote::Area> areas;  // that its end must not give back before it is quiet
    bool direct = false;              // it names memory of others: they hear of no end before it is quiet
  };
  struct Unquiet {
    std::vector<remote::Area> areas;
    Then then;  // of a direct one; else it was called
    std::vector<RemoteResult> results;
  };
  std::map<RemoteBatchId, Batch> batches;
  std::map<RemoteBatchId, Unquiet> unquiet;
  std::shared_ptr<remote::CopiesDone> copies_done;
  std::map<std::uint64_t, std::function<void()>> copies;  // under way, and what follows

  bool is_down = false, probing = false;
  bool trip_due = false;  // done by poll(), where nobody holds on to what it ends
  std::uint32_t failures = 0;
  Time retry_at{0};
  Duration retry_wait{0};

  Time now() const { return clock.now(); }
  remote::TierSpace& space_of(RemoteSpaceId id) { return spaces[id.value() - 1]; }
  const remote::TierSpace& space_of(RemoteSpaceId id) const { return spaces[id.value() - 1]; }
  std::uint64_t random();  // never 0; of no other node
  void give(RemoteTierEvent event) { events.push_back(std::move(event)); }

  // -- remote_tier.cc: batches, copies, the breaker --
  // False: not now; nothing happened. On success `areas` are the batch's: at its end they are given back, or
  // kept until it is quiet, unless `then` took them by keep_areas(). A `direct` batch ends when it is quiet.
  bool start(RemoteVerb verb, std::vector<RemoteItem> items, std::vector<remote::Area> areas, Then then,
             bool direct = false);
  std::size_t take_ends();
  void end_batch(const RemoteEvent& done);
  void end_unquiet(const Unquiet& batch);
  void judge(const std::vector<RemoteResult>& results);
  void trip();
  void recover();
  void probe();
  void copy(std::vector<remote::MemoryCopy> pieces, std::function<void()> then);
  std::size_t take_copies();
  std::byte* exchange_at(const remote::Area& area) { return store.exchange() + area.offset; }
  bool ending_quiet = false;  // of the batch whose `then` runs
  bool areas_kept = false;    // its `then` goes on using them
  void keep_areas() { areas_kept = true; }
  // -- placing.cc --
  // Whose memory a record of a shard is; nullptr: nobody's, or of several.
  using Owner = std::function<const RemoteEntry*(const remote::ObjectRecord& record)>;
  // Where a run's objects go; false: the exchange has not enough room, and nothing is taken.
  bool place(const remote::RunName& run, const Owner& owner, remote::ObjectPlace& place);
  std::uint64_t run_bytes(const remote::RunName& run) const;  // of its objects, before they have a place
  std::vector<RemotePiece> reach(const std::vector<BlockPiece>& record, std::uint64_t length) const;
  void give_back(remote::ObjectPlace& place);
  void add_items(const remote::RunName& run, const remote::ObjectSpace& space,
                 const remote::ObjectPlace& place, std::vector<RemoteItem>& items,
                 std::vector<remote::Area>& areas) const;

  // -- markers.cc --
  std::size_t marker_named(const std::string& name);
  void refresh(remote::TierSpace& space);
  void refresh_spaces(const remote::Marker& marker);
  bool fresh(const remote::TierSpace& space) const;  // both markers were seen a moment ago
  void want_fresh(const remote::TierSpace& space);
  std::size_t pump_markers();
  // False: it could not be begun.
  bool ask_marker(std::size_t index);
  bool write_marker(std::size_t index);
  bool remove_marker(std::size_t index);
  void marker_seen(std::size_t index, const remote::MarkerNumber& number);
  void begin_clear(std::size_t index);

  // -- look_up.cc --
  std::size_t pump_lookups();
  bool advance(remote::Lookup& lookup);  // false: it waits
  void end_lookup(RemoteLookupId id, Status status);
  void ask_runs(const remote::Lookup& lookup, const remote::Bundle& bundle, std::uint64_t from,
                std::uint64_t to, std::vector<remote::AskedRun>& ask) const;
  void ask_pages(const remote::Lookup& lookup, const remote::Bundle& bundle, std::uint64_t from,
                 std::uint64_t to, std::vector<remote::AskedRun>& ask) const;
  void ask_required(const remote::Lookup& lookup, std::vector<remote::AskedRun>& ask) const;
  void ask_points(remote::Lookup& lookup, std::vector<remote::AskedRun>& ask);
  void ask_tails(const remote::Lookup& lookup, bool runs, std::vector<remote::AskedRun>& ask) const;
  Presence known_presence(RemoteSpaceId space, const Key& key) const;
  bool has(const remote::Lookup& lookup, const remote::Bundle& bundle, std::uint64_t page) const;
  std::uint64_t required_reach(const remote::Lookup& lookup, std::uint64_t from) const;
  void note_deepest_point(remote::Lookup& lookup) const;
  bool ask(remote::Lookup& lookup, const std::vector<remote::AskedRun>& runs);
  // `under`: whose names were asked for.
  void answer(RemoteLookupId id, const remote::ObjectSpace& under, const std::vector<remote::AskedRun>& runs,
              const std::vector<RemoteResult>& results);
  void note_run(const remote::Lookup& lookup, const remote::AskedRun& asked);

  // -- flow.cc --
  // Most bytes of one batch, where `in_flight` are under way together.
  std::uint64_t batch_share(const remote::Flow& flow, std::uint32_t in_flight) const;
  // Whether an object of `size` bytes may leave beside `taken` of its batch. The first of all always may.
  static bool may_leave(const remote::Flow& flow, std::uint64_t share, std::uint64_t taken,
                        std::uint64_t size);
  static void note_left(remote::Flow& flow, std::uint64_t bytes);
  void note_back(remote::Flow& flow, std::uint64_t bytes, Time since,
                 const std::vector<RemoteResult>& results) const;

  // -- reading.cc --
  std::size_t pump_reads();
  remote::ObjectRead& object_to_read(const remote::RunName& run, const remote::ObjectSpace& space);
  bool place_read(bool batch_empty, std::uint64_t& bytes, std::uint64_t& copied);
  bool start_reads(std::list<remote::ObjectRead> objects);
  void objects_read(const std::vector<std::list<remote::ObjectRead>::iterator>& objects,
                    const std::vector<RemoteResult>& results);
  Status check_object(const remote::ObjectRead& object, std::span<const RemoteResult> results);
  void copy_out(std::list<remote::ObjectRead>::iterator object);
  void end_read(const remote::ObjectRead& object, const Status& status);
  void remove_run(const remote::RunName& run, const remote::ObjectSpace& space);
  std::size_t pump_removals();

  // -- writing.cc --
  std::size_t pump_writes();
  std::size_t form_objects();
  bool whole(const remote::PageWrite& page, const remote::Bundle& bundle) const {
    return page.classes == bundle.presence;
  }
  std::vector<Key> run_ending_at(const remote::PageBundle& last) const;
  void make_object(RemoteSpaceId space, const remote::Bundle& bundle, std::vector<Key> keys);
  std::uint64_t write_room() const;
  void copy_in(std::list<remote::ObjectWrite>::iterator object);
  bool put_objects();
  void end_write(std::list<remote::ObjectWrite>::iterator object, std::span<const RemoteResult> results);
  void lose_page(const remote::PageWrite& page, const Status& status);
  void lose_all_writes(const Status& status);
};

}  // namespace tiercel
