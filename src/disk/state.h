// What stands behind the calls of DiskLog. An entry's way: append() puts it into the gathering segment;
// closed, that has its place in the open region; written, its entries can be found; behind a flush, they are
// durable. A region's content is always a chain of segments from its start: where a write fails, the region
// ends, and what was placed behind it counts as lost, too.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "base/status.h"
#include "disk/admission.h"
#include "disk/catalogue.h"
#include "disk/disk_index.h"
#include "disk/disk_log.h"
#include "disk/drive_queue.h"
#include "disk/format.h"
#include "disk/recovery.h"
#include "disk/removals.h"

namespace tiercel {
namespace disk {

// An entry on its way to the drive.
struct Queued {
  Descriptor descriptor;  // its block: once its segment is closed
  std::uint64_t at = 0;   // its place in the log's numbering; a new one each time that it is queued
  DiskAppendId append;    // none: the log's own
  bool reinserted = false;
  bool in_index = false;           // written, and it took its place there
  std::uint64_t record_bytes = 0;  // of one shard
  std::vector<std::vector<BlockPiece>> shards;
  std::shared_ptr<std::vector<std::byte>> payload;  // of the log's own
};

struct Segment {
  enum class Stage : std::uint8_t { kWaiting, kWriting, kWritten };
  Stage stage = Stage::kWaiting;
  bool doomed = false;  // a segment before it failed: lost when it ends
  bool reinserts = false;
  std::uint32_t region = 0;
  std::uint32_t block = 0, blocks = 0;  // of the region
  std::uint64_t first_at = 0;
  std::uint64_t lowest = 0;  // lowest number that is not durable before it is: removals may be written again
  std::size_t first_entry = 0;  // in its region's list
  std::uint64_t ended = 0;      // how many segments had ended then
  std::vector<Queued> entries;
  std::vector<std::byte> directory;
};

// A region that has no footer yet.
struct Filling {
  enum class Stage : std::uint8_t { kOpen, kSealed, kFlushing, kFooter };
  Stage stage = Stage::kOpen;
  std::uint32_t region = 0;
  std::uint32_t next_block = 1;
  std::vector<Descriptor> entries;  // of its closed segments
  std::size_t under_way = 0;        // segments that wait or are being written
  std::uint64_t flush = 0;          // kFlushing: the flush that it waits for
};

struct Region {
  std::uint64_t life = 0;  // 0: never used
  std::uint64_t first_at = 0, last_at = 0, last_control_at = 0;
  std::uint64_t oldest_born = UINT64_MAX;
  std::uint32_t entries = 0;  // of its footer, where known
  std::uint32_t reads = 0;    // under way
  Time opened{0};
};

// The region that will be opened next, on its way there.
struct Preparing {
  enum class Stage : std::uint8_t {
    kImage,
    kFooter,
    kReading,
    kReinsert,
    kErase,
    kSweep,
    kReads,
    kHeader,
    kWriting,
    kFlushing
  };
  Stage stage = Stage::kImage;
  std::uint32_t region = 0;
  bool evicts = false;
  std::vector<Descriptor> entries;  // of the footer
  std::size_t next = 0;             // of entries, or the bucket
  std::uint64_t reinserting = 0;    // reads under way
  std::uint64_t reinserted_bytes = 0;
  std::uint64_t barrier = 0;  // segments up to it must be durable: they took the place of entries that go
  std::uint64_t flush = 0;
};

// An image on its way.
struct Checkpoint {
  enum class Stage : std::uint8_t { kChunks, kNames, kHeader, kFlush, kSuperblock, kSuperblockFlush };
  Stage stage = Stage::kChunks;
  std::uint32_t slot = 0;
  ImageHeader header;
  std::uint64_t chunk = 0;
  std::size_t under_way = 0;
  bool failed = false;
  bool closing = false;
  std::uint64_t barrier = 0;  // the last segment of which it may name anything
  std::vector<std::byte> checksums;
  Superblock next;
  std::uint64_t flush = 0;
};

// Class-sets of one namespace and class in the index.
struct Count {
  std::uint64_t sets = 0;
  std::uint64_t blocks = 0;  // of one; 0: not known
};

struct NameHash {
  std::size_t operator()(const DiskName& name) const noexcept {
    return mix64(name.key.words[0] ^
                 mix64(name.key.words[1] + name.space.value() * 257ULL + name.cls.value()));
  }
};

std::uint64_t stride_blocks(std::uint64_t record_bytes);

}  // namespace disk

struct DiskLog::State {
  using Descriptor = disk::Descriptor;
  using Segment = disk::Segment;
  using Filling = disk::Filling;

  State(const DiskLogOptions& options, BlockDevice& drive, Clock& clock, disk::Recovered& found);
  // What the last opening left, in order.
  void take_regions(disk::Recovered& found);
  void count_index(disk::Recovery& recovery);
  // So that the first append finds a region. Requires: nothing is under way.
  Status make_ready(disk::DriveIo& io);

  // -- append.cc: what is written, and when it is refused
  DiskAnswer append(const DiskEntry& entry, DiskOffer offer);
  DiskVerdict judge(const DiskEntry& entry, DiskOffer offer, std::uint64_t blocks);
  bool is_there(const DiskName& name) const;
  void enqueue(disk::Queued queued);
  void note_gathered(const disk::Queued& queued);
  // An entry that is no class-set. False: no room for it now.
  bool log_control(Descriptor descriptor, std::shared_ptr<std::vector<std::byte>> payload);
  bool log_name(DiskSpaceId space);
  std::optional<std::uint64_t> remove(DiskSpaceId space, const Key& key);
  std::optional<std::uint64_t> clear(DiskSpaceId space);
  std::optional<std::uint64_t> clear_form(const Digest& form, std::uint64_t weights_epoch);
  std::optional<std::uint64_t> log_removal(Descriptor descriptor);

  // -- segments.cc: gathering, writing, what becomes of it
  bool make_place(std::uint64_t payload_blocks, bool control);
  bool fits(std::uint64_t entries, std::uint64_t payload_blocks) const;
  void close_gathered();
  std::size_t write_segments();
  void write(std::uint64_t id, Segment& segment);
  void ended(std::uint64_t id, const Status& status);
  void publish(Segment& segment);
  void publish(Segment& segment, disk::Queued& queued);
  void lose(disk::Queued& queued, const Status& why);
  void lose(Segment& segment, const Status& why);
  // What was published and is not durable leaves again.
  void take_back(Segment& segment);
  void tell_taken_back(const DiskName& name);
  // The region ends before the segment.
  void cut(std::uint64_t id);
  void lose_unwritten(const Status& why);
  void lose_gathered(const Status& why);
  std::size_t write_again();
  Filling* filling_of(std::uint32_t region);
  bool has_open_region() const { return !fillings.empty() && fillings.back().stage == Filling::Stage::kOpen; }
  const Filling* open_region() const { return has_open_region() ? &fillings.back() : nullptr; }
  Filling* open_region() { return has_open_region() ? &fillings.back() : nullptr; }
  void forget(const disk::IndexEntry& entry, bool tell);
  void evict_entry(const disk::IndexEntry& entry);

  // -- flush.cc
  std::uint64_t ended_up_to() const;   // everything up to it is written, or was told to be lost
  std::uint64_t placed_up_to() const;  // the same by place: what was lost does not count
  std::uint64_t want_flush();          // its number
  std::size_t flush_when_due();
  void flushed(const Status& status);
  void forget_written();
  void durable_now(std::uint64_t at);

  // -- regions.cc: sealing, preparing
  bool open_next();
  void seal(Filling& filling);
  std::size_t seal_regions();
  void write_footer(Filling& filling);
  std::size_t prepare();
  bool behind_barrier();
  void choose_region();
  std::vector<std::byte> new_header(std::uint32_t region);
  void write_header();

  // -- evict.cc
  std::size_t evict();
  void read_footer(std::uint64_t bytes);
  void footer_read(const std::vector<std::byte>& bytes, const Status& status);
  void erase_some();
  void sweep_some();
  std::size_t reinsert_some();
  bool worth_reinserting(const Descriptor& descriptor) const;
  void reinsert(const Descriptor& descriptor);
  bool reinserted_are_durable();
  void drop_gathered_reinserts();
  void reinsert_read(const Descriptor& descriptor, std::shared_ptr<std::vector<std::byte>> bytes);
  std::size_t sweep_cleared();
  void forget_removals();

  // -- image.cc
  std::size_t checkpoint_step();
  void begin_checkpoint(bool closing);
  std::uint64_t unplaced_from_life() const;
  void write_chunk();
  void write_names();
  void write_image(std::uint64_t at, std::vector<std::byte> bytes);
  void write_superblock();
  void end_checkpoint();
  bool wants_checkpoint() const;
  bool image_waits() const;

  // -- reads.cc
  bool dead(DiskSpaceId space, const Key& key, std::uint64_t born) const;  // by its own page or a clear
  bool holds(const disk::IndexEntry& entry) const;  // its region is still the one that it was put into
  std::optional<disk::IndexEntry> find(const DiskName& name, bool chain_known) const;
  bool can_read() const;
  std::optional<DiskReadId> read(const DiskEntry& into, bool chain_known);

  std::size_t poll();
  Time next_due() const;
  Status settle(std::uint64_t at, Duration at_most);
  Status close(Duration at_most);
  // Polls until `done`. Errors: as settle().
  Status run_until(const std::function<bool()>& done, Duration at_most);
  bool has_work() const;
  const DiskStats& fill_stats();

  std::uint64_t region_blocks() const { return geometry.region_bytes / kBlockBytes; }
  std::uint64_t offset_of(std::uint32_t region, std::uint64_t block) const {
    return geometry.regions_offset + region * geometry.region_bytes + block * kBlockBytes;
  }
  std::uint32_t region_of(const disk::IndexEntry& entry) const {
    return static_cast<std::uint32_t>(entry.block / region_blocks());
  }
  // Index changes go through these, which count.
  bool put(const disk::IndexEntry& entry);
  bool erase(const disk::IndexEntry& entry);
  disk::Count& count_of(std::uint32_t space, ClassId cls) {
    return counts[(std::uint64_t{space} << 16) | cls.value()];
  }
  void spend(std::uint64_t bytes) { admission.budget().spend(bytes, clock.now()); }

  DiskLogOptions options;
  Clock& clock;
  DiskStats stats;
  disk::DriveQueue drive;
  DiskGeometry geometry;
  disk::Superblock superblock;  // as it is on the drive

  disk::DiskIndex index;
  disk::Catalogue catalogue;
  disk::Removals removals;
  disk::Admission admission;
  std::unordered_map<std::uint64_t, disk::Count> counts;  // by space and class
  std::unordered_set<DiskSpaceId> name_logged;            // those with an entry of their name

  std::vector<disk::Region> regions;
  std::deque<std::uint32_t> free;    // hold nothing
  std::deque<std::uint32_t> sealed;  // oldest first
  std::deque<Filling> fillings;      // oldest first; the last may be open
  std::optional<std::uint32_t> ready;
  std::optional<disk::Preparing> preparing;
  std::uint64_t last_life = 0;
  std::uint64_t regions_since_image = 0;

  std::uint64_t last_at = 0, durable_at = 0;
  std::uint64_t image_from_at = 0;  // of the durable image
  std::vector<disk::Queued> gathered;
  std::uint64_t gathered_blocks = 0;           // without the directory
  std::uint64_t gathered_lowest = UINT64_MAX;  // as of a segment
  std::vector<disk::Queued> again;             // entries that are no class-sets, to be written again
  std::map<std::uint64_t, Segment> going;      // waiting or being written, oldest first
  std::map<std::uint64_t, Segment> written;    // not durable yet, or behind one of its region that is not
  std::uint64_t last_segment = 0, segments_ended = 0;
  std::size_t writing = 0;
  std::uint64_t queued_bytes = 0;
  std::unordered_map<DiskName, std::uint64_t, disk::NameHash> queued;  // by name: its number

  bool flushing = false;
  std::uint64_t flushes_begun = 0, flush_wanted = 0, last_good_flush = 0, last_bad_flush = 0;
  std::uint64_t flush_covers_at = 0, flush_covers_ended = 0;
  std::uint64_t soon_at = 0;  // everything up to it is to be flushed
  std::uint64_t unflushed_bytes = 0;
  std::optional<Time> unflushed_since;

  std::optional<disk::Checkpoint> checkpoint;
  bool checkpoint_wanted = false;
  std::uint64_t last_image = 0;             // highest sequence that was tried
  std::optional<std::uint64_t> sweep_from;  // bucket: what a clear killed leaves the index

  bool was_down = false;
  bool was_blocked = false;  // the last poll() could begin no write
  bool went_on = false;      // it did something: there may be more
  bool closing = false;      // for good: nothing is accepted
  bool closed = false;       // nothing is begun
  std::uint64_t last_append = 0, last_read = 0;
  std::vector<DiskEvent> events;
};

}  // namespace tiercel
