// A remote store as the node sees it: objects by name, moved in batches that end later. Implemented in this
// process (posix_store.h), by a process at arm's length (connector_process.h), and by a simulation.
//
// Meaning, for every implementation (test_store_contract.h holds them to it):
//   - An object is found whole or not at all. Put leaves an object that is there as it is and says `ok`;
//     replace gives it the new bytes, in one step.
//   - Each item has its own status; one bad item does not touch the others. The same name twice in a batch
//     acts as two items in a row: each position has its own bytes.
//   - A get names the object's exact size (the sum of its pieces): another size is `wrong_size`, and the
//     memory's content is then nothing to rely on.
//   - A batch ends exactly once, by its deadline and a small grace, whatever the store does: what was not
//     done by then is `late`. Memory of a late batch may still be written to until kQuiet was told of it:
//     then, and only then, it is the caller's again. A batch that ended in time is quiet at its end.
//   - Nothing is promised about order between batches, nor that what was put stays: a store may forget.
//
// Threads: one thread submits, cancels and drains; the memory of pieces is touched by others meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "os/clock.h"

namespace tiercel {

using RemoteBatchId = Id<struct RemoteBatchTag, std::uint64_t>;  // never used twice; 0: none

enum class RemoteVerb : std::uint8_t { kExists, kGet, kPut, kReplace, kRemove };

// Shared memory that a store can reach: 0 is its exchange, 1 the arena's extents where it was given them.
struct RemotePiece {
  std::uint32_t region = 0;
  std::uint64_t offset = 0, length = 0;  // length is not 0
  friend bool operator==(const RemotePiece&, const RemotePiece&) = default;
};

// What a connector is given of the arena: `bytes` of a shared mapping's fd, from `offset` on, which this
// process has at `data`. No fd: nothing.
struct ArenaGrant {
  int fd = -1;
  std::uint64_t offset = 0, bytes = 0;
  const std::byte* data = nullptr;
};

struct RemoteItem {
  std::string name;                 // 1 to 120 bytes of [0-9A-Za-z._-]
  std::vector<RemotePiece> pieces;  // exists, remove: none; get, put, replace: at least one
};

enum class RemoteOutcome : std::uint8_t {
  kOk,
  kAbsent,
  kWrongSize,
  kNoRoom,
  kTooLarge,
  kInvalid,
  kFailed,  // this item, or the peer that has it
  kDown,    // the store as a whole
  kLate,
  kCancelled,
};
std::string_view remote_outcome_name(RemoteOutcome outcome);  // "wrong_size"

struct RemoteResult {
  RemoteOutcome outcome = RemoteOutcome::kDown;
  std::uint64_t bytes = 0;  // exists: the object's size, 0: not known; get: what was written
  friend bool operator==(const RemoteResult&, const RemoteResult&) = default;
};

struct RemoteBatch {
  RemoteVerb verb = RemoteVerb::kExists;
  std::vector<RemoteItem> items;
  Time deadline{0};
};

struct RemoteEvent {
  enum class Kind : std::uint8_t {
    kDone,   // of a batch, once: one result for each item
    kQuiet,  // of a batch that was done before with `quiet` false, once: its memory is the caller's again
  };
  Kind kind = Kind::kDone;
  RemoteBatchId batch;
  bool quiet = true;
  std::vector<RemoteResult> results;
};

struct RemoteHealth {
  bool ready = false;                   // batches are taken
  std::string why_not;                  // not ready: in words, with what to do
  std::uint64_t starts = 0, kills = 0;  // of the process behind it, if there is one
  std::uint32_t pid = 0;                // of it; 0: none
  std::uint64_t batches_in_flight = 0, unquiet_batches = 0, unquiet_bytes = 0;
};

class RemoteStore {
 public:
  virtual ~RemoteStore() = default;
  // Takes a batch: it will end with one kDone. An empty batch ends at once, well. Errors, with nothing
  // touched: invalid_argument (a name, a piece outside its region, pieces where none belong or none where
  // some do; which item, wanted, got), resource_exhausted (as many batches or bytes as can be are under
  // way: a matter of moments), unavailable (not ready; health() says why).
  virtual Result<RemoteBatchId> submit(RemoteBatch batch) = 0;
  // A request: what has not been done yet need not be. The batch still ends by its own kDone.
  virtual void cancel(RemoteBatchId batch) = 0;
  // Ends of batches since the last time, each once; deadlines are looked at here, too, and what has to be
  // started, killed or asked is. Returns at once.
  virtual std::vector<RemoteEvent> drain() = 0;
  // Until an end may be drained or `at_most` has passed.
  virtual void wait(Duration at_most) = 0;
  // Readable when something may have ended, until the next drain(); -1: there is no such descriptor. A death
  // of what is behind the store is not told by it: next_due(), or a look now and then.
  virtual int end_fd() const { return -1; }
  // When drain() has something to do at the latest, if nothing ends before.
  virtual Time next_due() const = 0;
  virtual RemoteHealth health() const = 0;
  // Memory that batches may name: the bytes of region 0 for this process to fill and read.
  virtual std::byte* exchange() = 0;
  virtual std::uint64_t exchange_bytes() const = 0;
  // The piece of region 1 that is this memory of the node; nothing: the store does not reach it.
  virtual std::optional<RemotePiece> reach(const std::byte* data, std::uint64_t length) const {
    static_cast<void>(data), static_cast<void>(length);
    return std::nullopt;
  }
  // Stops taking batches, ends those under way as cancelled, waits at most so long for quiet; afterwards
  // nothing touches any memory (a process is killed for that). Idempotent.
  virtual void close(Duration at_most) = 0;
};

}  // namespace tiercel
