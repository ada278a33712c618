// The remote tier for a node: class-sets looked up, read and written as objects of a store (remote_store.h).
// What it does not know it says is not there; what it reads comes unverified into the caller's memory, and
// the caller checks each record. object_format.h says what lies where.
//
// All payload goes through the store's exchange (one copy, on the executor): memory that a late store may
// still write to is only ever the exchange's, and stays out of use until the store is quiet.
//
// Threads: one thread makes all calls. Calls answer at once, except settle() and close(). Copies run on the
// executor; they touch the exchange and the memory of entries.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sha256.h"
#include "base/status.h"
#include "model/key_chain.h"
#include "model/resume.h"
#include "model/storage_form.h"
#include "os/block_device.h"
#include "os/clock.h"
#include "os/executor.h"
#include "remote/known_objects.h"
#include "remote/remote_options.h"
#include "remote/remote_stats.h"
#include "remote/remote_store.h"

namespace tiercel {

using RemoteLookupId = Id<struct RemoteLookupTag, std::uint64_t>;
using RemoteReadId = Id<struct RemoteReadTag, std::uint64_t>;
using RemoteAppendId = Id<struct RemoteAppendTag, std::uint64_t>;

struct RemoteSpaceName {
  Digest root{};  // of the content identity
  std::shared_ptr<const StorageForm> form;
  std::vector<std::uint64_t> record_bytes;  // per class: a record as it stands in the arena, header included
};

struct RemoteName {
  RemoteSpaceId space;
  Key key;
  ClassId cls;
};

// One class-set. The pieces of each shard are its record as it stands in the arena, header first. They must
// not change, nor go, until the append or read has ended.
struct RemoteEntry {
  RemoteName name;
  Key parent;                // of the page before; all zero: none, or not known
  std::uint64_t length = 0;  // pages of the prefix that ends here; 0: not known
  std::vector<std::vector<BlockPiece>> shards;
};

// Pages first_page, first_page + 1, … of one chain.
struct RemoteQuestion {
  RemoteSpaceId space;
  std::uint64_t first_page = 0;
  std::span<const Key> keys;
  std::span<const Presence> have;  // per key: in tiers above, not asked for; empty: nothing
};

enum class RemoteVerdict : std::uint8_t {
  kAccepted,
  kAlreadyThere,  // as far as is known, or being written
  kTooLarge,      // for the exchange
  kRateLimited,   // too many bytes queued, or the namespace's markers are not known yet: a matter of moments
  kTierDown,
};
std::string_view remote_verdict_name(RemoteVerdict verdict);

struct RemoteAnswer {
  RemoteVerdict verdict = RemoteVerdict::kTierDown;
  RemoteAppendId append;  // when accepted
};

// What became of earlier calls.
struct RemoteTierEvent {
  enum class Kind : std::uint8_t {
    kLookedUp,  // find_chain() knows what could be learnt; a status that is not ok says why that is not all
    kRead,      // the bytes are there, unverified; or `status` says why not. Its memory is free
    kWritten,   // an append: its memory is free, and others can find it
    kLost,      // an append that failed: its memory is free; `status` says why
  };
  Kind kind = Kind::kLookedUp;
  RemoteLookupId lookup;
  RemoteReadId read;
  RemoteAppendId append;
  Status status;
};

class RemoteTier {
 public:
  // `store`, `clock` and `executor` outlive it, and the executor has finished its tasks before the store
  // goes. `seed`: of random numbers that no other node has (markers, computations). Errors:
  // invalid_argument (an option makes no sense; which, wanted, got).
  static Result<std::unique_ptr<RemoteTier>> open(const RemoteTierOptions& options, RemoteStore& store,
                                                  Clock& clock, Executor& executor, const Digest& seed);
  ~RemoteTier();
  RemoteTier(const RemoteTier&) = delete;
  RemoteTier& operator=(const RemoteTier&) = delete;

  // The same name has the same number. Asks the store for its markers at once.
  RemoteSpaceId open_space(const RemoteSpaceName& name);

  // -- reading ----
  // What is known to be there, without asking: presence[i] gets the classes of keys[i] that are.
  void find_chain(RemoteSpaceId space, std::span<const Key> keys, std::span<Presence> presence) const;
  // Asks for what can make a prefix longer and is neither known nor had: whole runs first, then single pages
  // of those that are not there, snapshots from the deepest on, windows before it. kLookedUp ends it, by
  // `at_most` rounds of the batch deadline each. nothing: there is nothing to ask, or the tier is down.
  std::optional<RemoteLookupId> look_up(const RemoteQuestion& question);
  // Reads all shards of a class-set. nothing: not known to be there, or the tier is down.
  std::optional<RemoteReadId> read(RemoteEntry into);
  // A class-set that was read and is damaged: its objects are removed, so that it can be stored anew.
  void drop(const RemoteName& name);

  // -- writing ----
  RemoteAnswer append(RemoteEntry entry);
  // Everything stored of the namespace (of every namespace of the form) before is found no more: here at
  // once, elsewhere when it is settled and the others have looked. Until then nothing of it is read or
  // written here.
  void clear(RemoteSpaceId space);
  void clear_form(const Digest& form);
  bool clearing() const;
  // Waits until no clear is under way. Errors: deadline_exceeded: the store has not confirmed it; what is
  // cleared may come back when this process has ended, unless the call is repeated.
  Status settle(Duration at_most);

  // -- running ----
  bool down() const;
  bool usable(RemoteSpaceId space) const;  // not down, and the namespace's markers are known
  // Handles ends of batches and copies, starts what can be; a bounded amount. Returns how many things it did.
  std::size_t poll();
  std::vector<RemoteTierEvent> drain_events();
  Time next_due() const;
  int end_fd() const;  // of the store
  void wait(Duration at_most);
  // Pages stop waiting for the rest of their runs.
  void flush_soon();
  bool writing() const;  // appends have not ended
  const RemoteStats& stats() const;
  RemoteHealth health() const;
  // Ends everything: appends and reads not done by then are lost. Then the store is closed. Idempotent.
  void close(Duration at_most);

 private:
  struct State;
  explicit RemoteTier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tiercel
