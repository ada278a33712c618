#include "disk/tail_scan.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "base/fault.h"

namespace tiercel::disk {
namespace {

// Of a segment, read at once: as large as one gets unless a single entry is larger.
constexpr std::uint64_t kReadAtOnce = 16ULL << 20;

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
  const bool mark = is_mark(head);
  for (const Descriptor& d : directory.entries)
    if ((d.kind == EntryKind::kLeftOut) != mark && !TIERCEL_FAULT(epoch_ignored_in_tail))
      return tl::unexpected(differs("entries", mark ? "what an opening left out" : "no such", "others"));
  return directory;
}

// An opening that goes on in a region begins with one.
bool TailScan::is_mark(const SegmentHead& head) const {
  return !chain_.empty() && head.epoch != epoch_ && !TIERCEL_FAULT(epoch_ignored_in_tail);
}

// Whether an entry counts: what stands in the directory does, records and names if they are whole.
bool TailScan::counts(const Descriptor& d, bool verify, const Recovery::BlocksRead& payload) const {
  if (d.kind == EntryKind::kName) return recovery_.learn_name(region_, d).ok();
  if (d.kind != EntryKind::kClassSet || !verify || TIERCEL_FAULT(tail_segment_not_verified)) return true;
  const DiskSpaceName* const name = recovery_.name_of(DiskSpaceId(d.space));
  // Without the lengths of its runs nothing but headers could be looked at, and it was never durable.
  const std::size_t cls = d.cls.value();
  if (name == nullptr || cls >= name->runs.size() || name->runs[cls].empty()) return false;
  return recovery_.verify(region_, d, payload).ok();
}

// Whether its records are those that it was written with: a directory may be whole over what stood there
// before.
bool TailScan::same_records(const Directory& directory, const Recovery::BlocksRead& payload) const {
  std::uint32_t crc = 0;
  std::vector<std::byte> memory;
  for (const Descriptor& d : directory.entries) {
    if (d.kind != EntryKind::kClassSet) continue;
    const std::uint64_t stride = d.blocks / d.shards;
    for (std::uint64_t shard = 0; shard < d.shards; ++shard) {
      const auto first = recovery_.blocks(region_, d.block + shard * stride, 1, payload, memory);
      if (!first) return false;
      crc = crc32c(*first, crc);
    }
  }
  return crc == directory.head.records_crc;
}

Recovery::BlocksRead TailScan::read_payload(const Directory& directory) const {
  const SegmentHead& head = directory.head;
  const std::uint64_t before = directory_bytes(head.entries) / kBlockBytes;
  const std::uint64_t bytes = (head.blocks - before) * kBlockBytes;
  Recovery::BlocksRead payload;
  payload.first = head.block + before;
  if (bytes == 0 || bytes > kReadAtOnce) return payload;  // removals alone; record by record
  payload.bytes.resize(bytes);
  const std::uint64_t at = recovery_.region_offset(region_) + payload.first * kBlockBytes;
  if (!recovery_.io_.read(at, payload.bytes).ok()) payload.bytes = {};  // perhaps some of them alone
  return payload;
}

void TailScan::read() {
  for (std::uint64_t block = 1; block < recovery_.region_blocks();) {
    auto directory = directory_at(static_cast<std::uint32_t>(block));
    if (!directory) {
      end_ = directory.error().message;
      return;
    }
    block += directory->head.blocks;
    take(std::move(*directory));
  }
}

void TailScan::take(Directory directory) {
  const SegmentHead& head = directory.head;
  if (is_mark(head)) {
    for (const Descriptor& d : directory.entries) left_out_.insert(static_cast<std::uint32_t>(d.length));
    settled_ = chain_.size() + 1;
    durable_at_ = 0;
  }
  epoch_ = head.epoch;
  next_at_ = head.first_at + head.entries;
  durable_at_ = std::max(durable_at_, head.durable_at);
  recovery_.found_.last_at = std::max(recovery_.found_.last_at, next_at_);
  chain_.push_back(std::move(directory));
}

// By a mark, or one itself.
bool TailScan::is_left_out(const Descriptor& d) const {
  return d.kind == EntryKind::kLeftOut || (d.blocks != 0 && left_out_.contains(d.block));
}

TailFound TailScan::place() const {
  TailFound tail;
  tail.region = region_;
  if (!end_.empty()) tail.refused = end_;
  if (!chain_.empty()) tail.next_block = chain_.back().head.block + chain_.back().head.blocks;
  return tail;
}

TailFound TailScan::as_it_stands() const {
  TailFound tail = place();
  for (const Directory& directory : chain_)
    std::copy_if(directory.entries.begin(), directory.entries.end(), std::back_inserter(tail.entries),
                 [&](const Descriptor& d) { return !is_left_out(d); });
  return tail;
}

TailFound TailScan::accept() {
  TailFound tail = place();
  RegionFound& region = recovery_.found_.regions[region_];
  for (std::size_t i = 0; i < chain_.size(); ++i) {
    const Directory& directory = chain_[i];
    const std::uint64_t end_at = directory.head.first_at + directory.head.entries;  // behind its last entry
    region.last_at = std::max(region.last_at, end_at - 1);
    const bool verify = i >= settled_ && end_at > durable_at_ + 1;
    const Recovery::BlocksRead payload = verify ? read_payload(directory) : Recovery::BlocksRead{};
    const bool same = !verify || TIERCEL_FAULT(tail_segment_not_verified) || same_records(directory, payload);
    const std::size_t before = tail.left_out.size();
    for (const Descriptor& d : directory.entries) {
      if (is_left_out(d)) continue;
      const bool whole = (same || d.kind != EntryKind::kClassSet) && counts(d, verify, payload);
      (whole ? tail.entries : tail.left_out).push_back(d);
    }
    if (tail.left_out.size() > before) ++recovery_.found_.counts.segments_refused;
  }
  return tail;
}

}  // namespace tiercel::disk
