#include "disk/tail_scan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/fault.h"

namespace tiercel::disk {
namespace {

Status differs(std::string_view field, const auto& wanted, const auto& got) {
  return {Code::kDataCorrupt, fmt::format("segment: {}: wanted {}, got {}", field, wanted, got)};
}

}  // namespace

TailScan::TailScan(Recovery& recovery, std::uint32_t region)
    : recovery_(recovery),
      region_(region),
      life_(recovery.found_.regions[region].life),
      next_at_(recovery.found_.regions[region].first_at) {}

// Numbers may leave gaps (of entries that were lost), never go back; neither do openings.
Status TailScan::in_order(const SegmentHead& head, std::uint32_t block) const {
  const Superblock& superblock = recovery_.found_.superblock;
  if (head.uuid != superblock.uuid) return differs("log", "this one", "another");
  if (head.life != life_) return differs("life of its region", life_, head.life);
  if (head.block != block) return differs("place", block, head.block);
  if (head.blocks > recovery_.region_blocks() - block)
    return differs("blocks", fmt::format("at most {}", recovery_.region_blocks() - block), head.blocks);
  if (!TIERCEL_FAULT(epoch_ignored_in_tail) && (head.epoch < epoch_ || head.epoch > superblock.epoch))
    return differs("opening", fmt::format("{} to {}", epoch_, superblock.epoch), head.epoch);
  if (head.first_at < next_at_)
    return differs("first number", fmt::format("{} or more", next_at_), head.first_at);
  return {};
}

Result<Directory> TailScan::directory_at(std::uint32_t block) {
  const std::uint64_t offset = recovery_.region_offset(region_) + block * kBlockBytes;
  std::vector<std::byte> bytes(kBlockBytes);
  TIERCEL_RETURN_IF_ERROR(recovery_.io_.read(offset, bytes));
  TIERCEL_ASSIGN_OR_RETURN(const SegmentHead head, parse_segment_head(bytes));
  TIERCEL_RETURN_IF_ERROR(in_order(head, block));
  const std::uint64_t size = directory_bytes(head.entries);
  if (size > kBlockBytes) {
    bytes.resize(size);
    TIERCEL_RETURN_IF_ERROR(recovery_.io_.read(offset, bytes));
  }
  TIERCEL_ASSIGN_OR_RETURN(Directory directory, parse_directory(bytes));
  if (directory.head != head) return error(Code::kDataCorrupt, "segment: it changed while it was read");
  return directory;
}

// Whether an entry counts: what stands in the directory does, records and names if they are whole.
bool TailScan::counts(const Descriptor& d, bool verify) const {
  if (d.kind == EntryKind::kName) return recovery_.learn_name(region_, d).ok();
  if (d.kind != EntryKind::kClassSet || !verify || TIERCEL_FAULT(tail_segment_not_verified)) return true;
  return recovery_.name_of(DiskSpaceId(d.space)) != nullptr && recovery_.verify(region_, d).ok();
}

// Whether its records are those that it was written with: a directory may be whole over what stood there
// before.
bool TailScan::same_records(const Directory& directory) const {
  std::uint32_t crc = 0;
  std::vector<std::byte> block(kBlockBytes);
  for (const Descriptor& d : directory.entries) {
    if (d.kind != EntryKind::kClassSet) continue;
    const std::uint64_t stride = d.blocks / d.shards;
    for (std::uint64_t shard = 0; shard < d.shards; ++shard) {
      const std::uint64_t at = recovery_.region_offset(region_) + (d.block + shard * stride) * kBlockBytes;
      if (!recovery_.io_.read(at, block).ok()) return false;
      crc = crc32c(block, crc);
    }
  }
  return crc == directory.head.records_crc;
}

void TailScan::read() {
  for (std::uint64_t block = 1; block < recovery_.region_blocks();) {
    auto directory = directory_at(static_cast<std::uint32_t>(block));
    if (!directory) {
      end_ = directory.error().message;
      return;
    }
    const SegmentHead& head = directory->head;
    epoch_ = head.epoch;
    next_at_ = head.first_at + head.entries;
    // An opening's mark says nothing of what an earlier one left here and it did not take: that may stand
    // where its own first segment was lost.
    std::uint64_t& durable_at = durable_at_[head.epoch];
    durable_at = std::max(durable_at, head.durable_at);
    block += head.blocks;
    recovery_.found_.last_at = std::max(recovery_.found_.last_at, head.first_at + head.entries);
    chain_.push_back(std::move(*directory));
  }
}

TailFound TailScan::as_it_stands() const {
  TailFound tail;
  tail.region = region_;
  if (!end_.empty()) tail.refused = {end_};
  for (const Directory& directory : chain_) {
    tail.next_block = directory.head.block + directory.head.blocks;
    tail.epoch = directory.head.epoch;
    tail.entries.insert(tail.entries.end(), directory.entries.begin(), directory.entries.end());
  }
  return tail;
}

TailFound TailScan::accept() {
  TailFound tail = as_it_stands();
  tail.entries.clear();
  RegionFound& region = recovery_.found_.regions[region_];
  for (const Directory& directory : chain_) {
    const SegmentHead& head = directory.head;
    const std::uint64_t end_at = head.first_at + head.entries;  // behind its last entry
    const bool verify = end_at > durable_at_[head.epoch] + 1;
    const bool same = !verify || TIERCEL_FAULT(tail_segment_not_verified) || same_records(directory);
    const std::size_t before = tail.entries.size();
    for (const Descriptor& d : directory.entries)
      if ((same || d.kind != EntryKind::kClassSet) && counts(d, verify)) tail.entries.push_back(d);
    if (tail.entries.size() - before < directory.entries.size()) ++recovery_.found_.counts.segments_refused;
    region.last_at = std::max(region.last_at, end_at - 1);
  }
  return tail;
}

}  // namespace tiercel::disk
