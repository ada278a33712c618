// The image of the index: copied piece by piece while the log goes on, named by a superblock when it and all
// that it names are behind a flush.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/fault.h"
#include "disk/state.h"

namespace tiercel {
namespace {

constexpr std::size_t kWritesAtOnce = 2;

std::vector<std::byte> whole_blocks(ByteView bytes) {
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  out.resize(disk::stride_blocks(out.size()) * kBlockBytes);
  return out;
}

}  // namespace

bool DiskLog::State::wants_checkpoint() const {
  const std::uint64_t every = options.checkpoint_regions != 0
                                  ? options.checkpoint_regions
                                  : std::max<std::uint64_t>(regions.size() / 8, 1);
  if (!closing) return checkpoint_wanted || regions_since_image >= every;
  // What is left to write waits for a region that waits for an image; else close() makes the last one itself.
  const bool waiting = (!gathered.empty() || !again.empty()) && !ready && open_region() == nullptr;
  return checkpoint_wanted && waiting && preparing && preparing->stage == disk::Preparing::Stage::kImage;
}

// Of the first region that may hold a number above placed_up_to().
std::uint64_t DiskLog::State::unplaced_from_life() const {
  using Stage = disk::Preparing::Stage;
  if (!going.empty()) return regions[going.begin()->second.region].life;
  if (const Filling* const open = open_region()) return regions[open->region].life;
  if (ready) return regions[*ready].life;
  const bool has_life =
      preparing && (preparing->stage == Stage::kWriting || preparing->stage == Stage::kFlushing);
  return has_life ? regions[preparing->region].life : last_life + 1;
}

void DiskLog::State::begin_checkpoint(bool for_closing) {
  disk::Checkpoint c;
  c.slot = superblock.image ? 1 - *superblock.image : 0;
  c.closing = for_closing;
  // Higher than that of any attempt before it: a superblock that was written, against what the drive said,
  // must not name this one.
  last_image = std::max(last_image, superblock.image_sequence) + 1;
  c.header.uuid = superblock.uuid;
  c.header.sequence = last_image;
  c.header.from_at = TIERCEL_FAULT(image_claims_too_much) ? last_at : placed_up_to();
  c.header.last_life = last_life;
  c.header.from_life = TIERCEL_FAULT(image_claims_too_much) ? last_life + 1 : unplaced_from_life();
  c.header.index_buckets = index.buckets();
  checkpoint_wanted = false;
  regions_since_image = 0;
  checkpoint = std::move(c);
}

std::size_t DiskLog::State::checkpoint_step() {
  using Stage = disk::Checkpoint::Stage;
  if (!checkpoint) {
    if (drive.blocks_writes() || !wants_checkpoint()) return 0;
    begin_checkpoint(false);
  }
  disk::Checkpoint& c = *checkpoint;
  const bool flush_failed = c.flush != 0 && last_bad_flush >= c.flush;
  if (c.failed || flush_failed) {
    if (c.under_way != 0) return 0;
    checkpoint.reset();
    checkpoint_wanted = true;
    return 1;
  }
  if (drive.blocks_writes()) return 0;
  const std::uint64_t chunks = disk::image_layout(geometry.index_buckets, geometry.catalogue_bytes).chunks;
  if (c.stage == Stage::kChunks && c.chunk < chunks) {
    if (c.under_way >= kWritesAtOnce) return 0;
    write_chunk();
    return 1;
  }
  if (c.under_way != 0) return 0;
  switch (c.stage) {
    case Stage::kChunks:
      write_names();
      c.stage = Stage::kNames;
      return 1;
    case Stage::kNames:
      write_image(0, disk::encode(c.header));
      c.stage = Stage::kHeader;
      return 1;
    case Stage::kHeader:
      if (image_waits()) return 0;
      c.flush = want_flush();
      c.stage = Stage::kFlush;
      return 1;
    case Stage::kFlush:
      if (last_good_flush < c.flush) return 0;
      write_superblock();
      c.stage = Stage::kSuperblock;
      return 1;
    case Stage::kSuperblock:
      c.flush = want_flush();
      c.stage = Stage::kSuperblockFlush;
      return 1;
    case Stage::kSuperblockFlush:
      if (last_good_flush < c.flush) return 0;
      end_checkpoint();
      return 1;
  }
  return 0;
}

// It names what is written. That counts only without a gap before it, and may have taken the place of
// something older that does count and that only this image could name.
bool DiskLog::State::image_waits() const {
  return checkpoint && checkpoint->stage == disk::Checkpoint::Stage::kHeader && !going.empty() &&
         going.begin()->first <= checkpoint->barrier;
}

void DiskLog::State::write_image(std::uint64_t at, std::vector<std::byte> bytes) {
  disk::Checkpoint& c = *checkpoint;
  ++c.under_way;
  stats.image_bytes += bytes.size();
  spend(bytes.size());
  const auto kept = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.background = true;
  request.offset = geometry.image_offset[c.slot] + at;
  request.pieces = {{kept->data(), kept->size()}};
  drive.start(std::move(request), [this, kept](const Status& status) {
    --checkpoint->under_way;
    checkpoint->failed = checkpoint->failed || !status.ok();
  });
}

void DiskLog::State::write_chunk() {
  disk::Checkpoint& c = *checkpoint;
  const disk::ImageLayout layout = disk::image_layout(geometry.index_buckets, geometry.catalogue_bytes);
  const std::uint64_t at = c.chunk++ * disk::kImageChunkBytes;
  const ByteView chunk = index.image(at, std::min(disk::kImageChunkBytes, layout.table_bytes - at));
  append_le(c.checksums, crc32c(chunk));
  write_image(layout.table_at + at, whole_blocks(chunk));
}

void DiskLog::State::write_names() {
  disk::Checkpoint& c = *checkpoint;
  const disk::ImageLayout layout = disk::image_layout(geometry.index_buckets, geometry.catalogue_bytes);
  std::vector<std::byte> names;
  catalogue.append_to(names);
  removals.append_to(names);
  TIERCEL_CHECK(names.size() <= layout.catalogue_bytes);
  append_le(c.checksums, crc32c(names));
  TIERCEL_CHECK(c.checksums.size() == layout.checksums_bytes);
  c.header.catalogue_used = names.size();
  c.header.to_at = last_at;
  c.barrier = last_segment;
  c.header.checksums_crc = crc32c(c.checksums);
  write_image(layout.catalogue_at, whole_blocks(names));
  write_image(layout.checksums_at, whole_blocks(c.checksums));
}

// In turn: while one is written the other one holds.
void DiskLog::State::write_superblock() {
  disk::Checkpoint& c = *checkpoint;
  c.next = superblock;
  ++c.next.sequence;
  c.next.image = c.slot;
  c.next.image_sequence = c.header.sequence;
  c.next.closed = c.closing;
  ++c.under_way;
  const auto bytes = std::make_shared<std::vector<std::byte>>(disk::encode(c.next));
  stats.header_bytes += bytes->size();
  spend(bytes->size());
  BlockRequest request;
  request.work = BlockWork::kWrite;
  request.offset = disk::superblock_place(c.next.sequence);
  request.pieces = {{bytes->data(), bytes->size()}};
  drive.start(std::move(request), [this, bytes](const Status& status) {
    --checkpoint->under_way;
    checkpoint->failed = checkpoint->failed || !status.ok();
  });
}

void DiskLog::State::end_checkpoint() {
  superblock = checkpoint->next;
  image_from_at = checkpoint->header.from_at;
  ++stats.checkpoints;
  DiskEvent event;
  event.kind = DiskEvent::Kind::kCheckpoint;
  event.at = image_from_at;
  events.push_back(std::move(event));
  checkpoint.reset();
}

}  // namespace tiercel
