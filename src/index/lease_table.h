// Leases: what readers are reading, written down by the readers themselves. Each client has a block of shared
// memory that only it writes: lease words that name runs of cells of index strips, and a ring of touches.
// The owner reads the lease words once for each batch of pages that it wants to evict, and gives up those
// that somebody reads. No reader writes a word that another reader writes, so a client that dies leaves
// nothing to repair: its block is cleared. Orders of memory and why they suffice: docs/decisions/0007.
//
//   header, 4 KiB · block of client 0 · block of client 1 …
//   block: owner's line, client's line, lease words, ring of touches; whole pages of 4 KiB, so that a client
//   may be given its own block alone to write to
//
// Threads: LeaseTable, one thread (the node's). LeaseClient, as its functions say. Every word that two sides
// share is an atomic.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "os/clock.h"

namespace tiercel {

inline constexpr std::uint8_t kLeaseCellsMax = 16;  // of an index strip

// The cells first … last, both included, of an index strip.
struct LeaseName {
  std::uint32_t strip = 0;
  std::uint8_t first = 0, last = 0;  // first ≤ last < kLeaseCellsMax
  friend bool operator==(const LeaseName&, const LeaseName&) = default;
};

// A client's block, and which of its successive tenants is meant.
struct ClientPlace {
  std::uint32_t place = 0, epoch = 0;
  friend bool operator==(const ClientPlace&, const ClientPlace&) = default;
};

// A matched prefix: its last page, how many pages it has, and when.
struct Touch {
  std::uint32_t page = 0, length = 0;
  Time time{0};
  friend bool operator==(const Touch&, const Touch&) = default;
};

struct LeaseTableShape {
  std::uint32_t clients_max = 64;           // 1 … 4096
  std::uint32_t words_per_client = 1024;    // leases at a time; a multiple of 8, 8 … 65536
  std::uint32_t touches_per_client = 2048;  // a power of two, 2 … 2^20
  std::uint32_t first_epoch = 1;            // ≠ 0; another one after each format of the same memory
};

// Words of a lease table as they lie in shared memory.
namespace lease_layout {
struct alignas(64) OwnerLine {                     // written by the owner alone
  std::atomic<std::uint32_t> epoch, pid, drained;  // epoch 0: nobody's
};
struct alignas(64) ClientLine {  // written by the client alone
  std::atomic<std::uint32_t> words_high, touched;
  std::atomic<std::uint64_t> touches_lost;
};
using Word = std::atomic<std::uint64_t>;
struct Entry {
  std::atomic<std::uint64_t> what, when;
};
static_assert(sizeof(OwnerLine) == 64 && sizeof(ClientLine) == 64 && sizeof(Word) == 8 &&
              sizeof(Entry) == 16);
static_assert(Word::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

// One client's block; `words` and `entries` have the lengths of the shape.
struct Block {
  OwnerLine* owner = nullptr;
  ClientLine* client = nullptr;
  Word* words = nullptr;
  Entry* entries = nullptr;
};
}  // namespace lease_layout

class LeaseTable final {
 public:
  struct Counts {
    std::uint64_t scans = 0, words_read = 0, victims = 0, victims_named = 0;
    std::uint64_t touches = 0, touches_lost = 0;
  };
  struct Held {
    LeaseName name;
    std::uint32_t version_low = 0;  // the lowest 24 bits of the version that was leased; bit 0 is not kept
  };

  // Errors: invalid_argument, a size out of its range.
  static Result<std::uint64_t> bytes(const LeaseTableShape& shape);
  // The region is an empty table.
  // Errors: invalid_argument, as `bytes`, or a region too small or not aligned to 64.
  // Lives: the region outlives the table. Requires: nobody uses what stood there.
  static Result<LeaseTable> format(MutableByteView region, const LeaseTableShape& shape);

  // Errors: resource_exhausted, every place is taken.
  Result<ClientPlace> add_client(std::uint32_t pid);
  // All of its leases have ended, its place is free. Nothing happens when it was removed before.
  // Requires: the process has exited, or gives up the place itself and uses it no more. Cost: O(its words).
  void remove_client(ClientPlace client);

  // named[i] = 1 when some lease names a cell of victims[i], else 0: then nobody reads it, nor will, and what
  // was read of it was read before.
  // Requires: the version of each victim's strip was stored by `kLeaseOrders.hide` before; as many answers
  // as victims. Cost: O(words ever used by the clients there are + victims), whatever the victims.
  void scan(std::span<const LeaseName> victims, std::span<std::uint8_t> named);

  // Calls visit(ClientPlace, Touch) for what each client has appended since, its oldest first. Page and
  // length are the client's word: nothing about them is certain. Cost: at most touches_per_client calls per
  // client.
  template <typename Visit>
  void drain_touches(Visit visit) {
    for (const std::uint32_t place : active_)
      for (std::uint32_t rest = pending_touches(place); rest != 0; --rest)
        visit(ClientPlace{place, places_[place].epoch}, next_touch(place));
  }

  // What a client holds at this moment: for `status`, budgets and checkers. Nothing of one that was removed.
  std::vector<Held> leases(ClientPlace client) const;
  std::uint32_t clients() const { return static_cast<std::uint32_t>(active_.size()); }
  const Counts& counts() const { return counts_; }

 private:
  struct Place {
    lease_layout::Block block;
    std::uint32_t epoch = 0;    // of the tenant, or of the last one
    std::uint32_t drained = 0;  // touches read so far, modulo 2^32
    std::uint64_t lost = 0;     // as counted by the tenant when last looked at
    bool active = false;
  };
  // Open addressing: the victims' strips, and which of their cells somebody names.
  struct Wanted {
    std::uint32_t strip = 0;
    std::uint16_t cells = 0;
    bool used = false;
  };

  LeaseTable(const LeaseTableShape& shape, std::vector<Place> places);
  bool current(ClientPlace client) const;
  Wanted& wanted(std::uint32_t strip);
  void note_words(const Place& place);
  std::uint32_t words_in_use(const Place& place) const;
  std::uint32_t pending_touches(std::uint32_t place);
  Touch next_touch(std::uint32_t place);

  LeaseTableShape shape_;
  std::vector<Place> places_;
  std::vector<std::uint32_t> active_;
  std::vector<Wanted> wanted_;  // a power of two, at least twice the batch
  Counts counts_;
};

// A client's end.
// Threads: lease and release from any thread; touch from one at a time.
class LeaseClient final {
 public:
  // Errors: invalid_argument, the region is no lease table of this format or smaller than it says, or has no
  // such place; failed_precondition, the place belongs to somebody else by now. Lives: the region outlives
  // the client. Cost: words_per_client / 8 bytes here.
  static Result<LeaseClient> attach(MutableByteView region, ClientPlace place);

  // The cells stay where they are, bytes and all, until `release`: the version was still `expected` after the
  // lease could be seen.
  // Returns: the slot to release; nothing when the version differs, is odd or 0, or all slots are in use.
  // Requires: what was read of the strip was read by `kLeaseOrders.look` and `.read` at version `expected`.
  // Cost: one locked store to the client's block, another when more leases are held than ever before, and one
  // to bits of this process.
  std::optional<std::uint32_t> lease(const LeaseName& name, const std::atomic<std::uint32_t>& version,
                                     std::uint32_t expected);
  // Requires: `slot` came from lease and was not released since.
  void release(std::uint32_t slot);
  // Appends to the ring; when the owner is a whole ring behind, the touch is lost and counted.
  void touch(const Touch& touch);

  std::uint32_t slots() const { return words_; }

 private:
  LeaseClient(lease_layout::Block block, std::uint32_t words, std::uint32_t touches);
  std::optional<std::uint32_t> take_slot();
  void give_slot(std::uint32_t slot);
  void raise_high(std::uint32_t slot);

  lease_layout::Block block_;
  std::uint32_t words_;
  std::uint32_t touches_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> taken_;  // bit per slot, in this process alone
};

}  // namespace tiercel
