#include "memory/arena.h"

#include <algorithm>

#include "base/check.h"

namespace tiercel {

ByteArena::ByteArena(std::uint64_t bytes)
    : own_(std::make_unique<std::byte[]>(bytes)), bytes_(own_.get(), bytes) {}

ByteArena::ByteArena(MutableByteView external) : bytes_(external) {}

MutableByteView ByteArena::view(std::span<const ArenaSpan> record, std::uint64_t position,
                                std::uint64_t length) {
  for (const ArenaSpan& span : record) {
    if (position < span.length) {
      TIERCEL_CHECK(span.offset <= bytes_.size() && span.length <= bytes_.size() - span.offset);
      return bytes_.subspan(span.offset + position, std::min(length, span.length - position));
    }
    position -= span.length;
  }
  TIERCEL_CHECK(position == 0 && length == 0);  // else: beyond the record
  return {};
}

ThinArena::ThinArena(std::uint64_t size_bytes, std::uint64_t payload_bytes_max)
    : size_bytes_(size_bytes), payload_bytes_max_(payload_bytes_max) {}

std::uint64_t ThinArena::payload_kept(std::uint64_t payload_bytes) const {
  return std::min(payload_bytes, payload_bytes_max_);
}

MutableByteView ThinArena::view(std::span<const ArenaSpan> record, std::uint64_t position,
                                std::uint64_t length) {
  TIERCEL_CHECK(!record.empty());
  std::uint64_t total = 0;
  for (const ArenaSpan& span : record) {
    TIERCEL_CHECK(span.offset <= size_bytes_ && span.length <= size_bytes_ - span.offset);
    total += span.length;
  }
  TIERCEL_CHECK(position <= total && length <= total - position);
  std::vector<std::byte>& bytes = records_[record.front().offset];
  if (bytes.size() < position + length) bytes.resize(position + length);
  return MutableByteView(bytes).subspan(position, length);
}

void ThinArena::discard(std::span<const ArenaSpan> record) {
  if (!record.empty()) records_.erase(record.front().offset);
}

}  // namespace tiercel
