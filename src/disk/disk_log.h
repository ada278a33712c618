// The disk tier's log: class-sets appended, found and read back; removals that survive; recovery that never
// scans more than the end. README.md says how it works.
//
// Threads: one thread makes all calls. Calls answer at once, except open(), close() and settle(), which wait
// for the drive.
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
#include "disk/disk_options.h"
#include "disk/disk_stats.h"
#include "model/key_chain.h"
#include "model/resume.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel {

// A namespace in this log, kept over restarts: root of the content identity and fingerprint of the form.
using DiskSpaceId = Id<struct DiskSpaceTag, std::uint32_t>;  // 0: none
using DiskAppendId = Id<struct DiskAppendTag, std::uint64_t>;
using DiskReadId = Id<struct DiskReadTag, std::uint64_t>;

struct DiskSpaceName {
  Digest root{};
  Digest form{};
  std::string text;  // for people: printed identity and form; kept once, at most 16 KiB of it
  // Of each class, the lengths of a record's layer runs in their order: so that recovery and check can verify
  // any record without the model. A class that is not there: its records cannot be verified.
  std::vector<std::vector<std::uint64_t>> runs;
};

struct DiskName {
  DiskSpaceId space;
  Key key;
  ClassId cls;
  friend auto operator<=>(const DiskName&, const DiskName&) = default;
};

// One class-set to be written. The pieces of each shard are its record as it stands in the arena, header
// first; all shards have the same length. They must not change, nor go, until the append has ended.
struct DiskEntry {
  DiskName name;
  Key parent;                      // of the page before; all zero: none, or not known
  std::uint64_t length = 0;        // pages of the prefix that ends here; 0: not known
  std::uint64_t record_bytes = 0;  // of one shard, header included
  std::vector<std::vector<BlockPiece>> shards;
};

enum class DiskOffer : std::uint8_t {
  kComputed,  // new in the tier above
  kHit,       // used there again
  kLeaving,   // about to go there
  kClosing,   // the tier above ends: admission asks for no second touch
};

enum class DiskVerdict : std::uint8_t {
  kAccepted,
  kAlreadyThere,  // or being written
  kSecondTouch,   // not admitted: seen for the first time
  kWriteBudget,
  kQuota,        // no free region, and none that can be evicted
  kTooLarge,     // larger than a region
  kNoRoom,       // the index has no place for it
  kRateLimited,  // too many bytes queued, or a region is being prepared: a matter of moments
  kTierDown,
};
std::string_view disk_verdict_name(DiskVerdict verdict);

struct DiskAnswer {
  DiskVerdict verdict = DiskVerdict::kTierDown;
  DiskAppendId append;  // when accepted
};

// What became of earlier calls, in order.
struct DiskEvent {
  enum class Kind : std::uint8_t {
    kWritten,  // append: its memory is free, and it can be found
    kLost,     // append: it failed; its memory is free. `status` says why
    kDurable,  // everything up to `at` is behind a flush
    kRead,     // read: the bytes are there, unverified; or `status` says why not. Its memory is free
    // `name` has left with its region, and was not removed before; or, with a status that is not ok, what was
    // written of it was lost before it was durable, removed or not.
    kEvicted,
    kCheckpoint,  // an image up to `at` is durable
  };
  Kind kind = Kind::kWritten;
  DiskAppendId append;
  DiskReadId read;
  std::uint64_t at = 0;  // written: its sequence number
  DiskName name;
  Status status;
};

// A class-set in the log.
struct DiskFound {
  std::uint64_t born = 0;
  std::uint64_t offset = 0;  // in the drive, of shard 0; the next shard begins stride_bytes later
};

class DiskLog {
 public:
  // Recovers what the drive holds, or makes a new log where it holds nothing but zeros. `drive` and `clock`
  // outlive it; `new_uuid` is used for a new log. Errors: failed_precondition: the drive holds something
  // else, or a log of another version or geometry (untouched; the message names what was found);
  // invalid_argument (options; too small); io_error. After an error whose message says that the drive does
  // not answer, operations may be under way for ever: that BlockDevice is not opened again. Requires: no
  // operation of an earlier user is under way at `drive`. Cost: image bytes + footers and tail since that
  // image.
  static Result<std::unique_ptr<DiskLog>> open(const DiskLogOptions& options, BlockDevice& drive,
                                               Clock& clock, const Digest& new_uuid);
  // Whether what is on that drive, read once more, is this log as it stands, and nobody has opened it for
  // writing since. Errors: failed_precondition: somebody has; io_error. Cost: one read.
  Status still_ours(BlockDevice& drive) const;
  // Writes nothing more. To lose nothing: settle() first, or close().
  ~DiskLog();
  DiskLog(const DiskLog&) = delete;
  DiskLog& operator=(const DiskLog&) = delete;

  const DiskGeometry& geometry() const;

  // -- namespaces ----
  // The same name has the same number for ever. Errors: resource_exhausted (the catalogue is full, or 2^32
  // names); unavailable (read_only and unknown).
  Result<DiskSpaceId> open_space(const DiskSpaceName& name);
  // Every one in the log, open or not.
  struct SpaceView {
    DiskSpaceId id;
    DiskSpaceName name;
    std::uint64_t class_sets = 0, bytes = 0;  // that can be found; counted by a walk through the index
  };
  std::vector<SpaceView> spaces() const;
  // What set_weights_epoch last said of the form; 0: nothing.
  std::uint64_t weights_epoch(const Digest& form) const;

  // -- writing ----
  DiskAnswer append(const DiskEntry& entry, DiskOffer offer);
  // A removal of the page and of everything below it that was born before. In effect at once; durable once
  // kDurable has reached the number returned. nothing: the tier is down or full of removals that it could not
  // write; the removal holds until this log is closed, and `unrecorded` of the stats counts it.
  std::optional<std::uint64_t> remove(DiskSpaceId space, const Key& key);
  std::optional<std::uint64_t> clear(DiskSpaceId space);
  std::optional<std::uint64_t> clear_form(const Digest& form, std::uint64_t weights_epoch);
  // A damaged class-set: it is found no more. Not recorded: whoever finds it again sees the damage again.
  void drop(const DiskName& name);

  // -- reading ----
  // presence[i]: classes of keys[i] that are there (whether or not the tier is down), keys being pages
  // first_page, first_page + 1, … of one chain from its start (first_page 0) or from an unknown middle. Cost:
  // two cache misses a key; no allocation.
  void find_chain(DiskSpaceId space, std::uint64_t first_page, std::span<const Key> keys,
                  std::span<Presence> presence) const;
  // One class-set. `chain_known`: the caller found it by find_chain from page 0; else as from the middle.
  std::optional<DiskFound> find(const DiskName& name, bool chain_known) const;
  // Reads all shards of a class-set into memory given as for append. nothing: not there, tier down, or too
  // many reads under way (ask again). `at` a number of the log at which what is read was found.
  std::optional<DiskReadId> read(const DiskEntry& into, bool chain_known);
  // Whether a read would be taken now.
  bool can_read() const;
  // Counts as a use: for re-insertion.
  void touch(const DiskName& name);

  // -- running ----
  bool down() const;  // the drive stalls or fails: nothing is read or written until it is back
  // Everything accepted so far, and every removal, will be written and flushed; kDurable tells.
  void flush_soon();
  std::uint64_t last_at() const;     // number of the newest entry
  std::uint64_t durable_at() const;  // everything up to it is behind a flush
  // Handles ends of the drive's work, flushes, evictions, checkpoints; a bounded amount. Returns how many
  // things it did.
  std::size_t poll();
  std::vector<DiskEvent> drain_events();
  // When something is due at the latest, if the drive tells nothing before.
  Time next_due() const;
  // Until the drive has something to tell, something is due, or `at_most` has passed.
  void wait(Duration at_most);
  // Waits until durable_at() ≥ `at`. Errors: deadline_exceeded, unavailable (down), resource_exhausted.
  Status settle(std::uint64_t at, Duration at_most);
  // An image of all that is durable, so that the next opening reads nothing else; then nothing more is
  // written. Errors: as settle(). The log is closed either way.
  Status close(Duration at_most);

  const DiskStats& stats() const;

 private:
  struct State;
  explicit DiskLog(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tiercel
