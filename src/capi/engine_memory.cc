#include "capi/engine_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel::capi {

namespace {
constexpr unsigned kPoolBits = 46;  // of addresses inside a pool; 16 bits above name it, bit 62 says brought
constexpr std::uint64_t kPoolBytes = std::uint64_t{1} << kPoolBits;
constexpr std::size_t kPoolsMax = std::size_t{1} << 16;

std::byte* own(std::uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of the caller's
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

// The piece in which the record's byte at `offset` lies.
Pieces::const_iterator piece_at(const Pieces& pieces, std::uint64_t offset) {
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), offset,
                                      [](std::uint64_t at, const Piece& piece) { return at < piece.offset; });
  TIERCEL_CHECK(after != pieces.begin());
  return std::prev(after);
}
}  // namespace

std::uint64_t EngineMemory::size_bytes() const { return kSizeMax; }

EngineMemory::Place EngineMemory::place_of(std::uint64_t address) const {
  const std::uint64_t inside = address - kBroughtBase;
  const MutexLock lock(mutex_);
  TIERCEL_CHECK(inside >> kPoolBits < pools_.size());
  const Pool& pool = pools_[inside >> kPoolBits];
  const std::uint64_t at = inside & (kPoolBytes - 1);
  const std::uint64_t slot = at / pool.record_bytes;
  TIERCEL_CHECK(slot < pool.slots.size() && pool.slots[slot] != nullptr);
  return {pool.slots[slot], at % pool.record_bytes};
}

// Calls step(memory, how many bytes of the range came before, their number) for each piece of the range.
template <typename Step>
Status EngineMemory::for_each_part(std::uint64_t address, std::uint64_t length, const Step& step) const {
  if (address < kBroughtBase) {
    step(own(address), 0, length);
    return {};
  }
  const Place place = place_of(address);
  const Pieces& pieces = *place.pieces;
  std::uint64_t done = 0;
  for (auto piece = piece_at(pieces, place.offset); done < length; ++piece) {
    TIERCEL_CHECK(piece != pieces.end());
    const std::uint64_t inside = place.offset + done - piece->offset;
    const std::uint64_t part = std::min(length - done, piece->size - inside);
    step(piece->data + inside, done, part);
    done += part;
  }
  return {};
}

Status EngineMemory::read(std::uint64_t address, MutableByteView into) {
  return for_each_part(address, into.size(),
                       [&](const std::byte* from, std::uint64_t at, std::uint64_t length) {
                         std::memcpy(into.data() + at, from, length);
                       });
}

Status EngineMemory::write(std::uint64_t address, ByteView from) {
  return for_each_part(address, from.size(), [&](std::byte* into, std::uint64_t at, std::uint64_t length) {
    std::memcpy(into, from.data() + at, length);
  });
}

MutableByteView EngineMemory::host_view(std::uint64_t address, std::uint64_t length) {
  if (address < kBroughtBase) return {own(address), length};
  const Place place = place_of(address);
  const auto piece = piece_at(*place.pieces, place.offset);
  const std::uint64_t inside = place.offset - piece->offset;
  return {piece->data + inside, std::min(length, piece->size - inside)};
}

std::optional<std::uint32_t> EngineMemory::add_pool(std::uint64_t record_bytes) {
  const MutexLock lock(mutex_);
  if (pools_.size() >= kPoolsMax || record_bytes == 0 || record_bytes > kPoolBytes) return std::nullopt;
  Pool pool;
  pool.record_bytes = record_bytes;
  pool.slots_max = std::min(kBroughtSlotsMax, kPoolBytes / record_bytes);
  pools_.push_back(std::move(pool));
  return static_cast<std::uint32_t>(pools_.size() - 1);
}

DevicePool EngineMemory::device_pool(std::uint32_t pool, ClassId cls, ShardId shard) const {
  const MutexLock lock(mutex_);
  const Pool& at = pools_.at(pool);
  const std::uint64_t base = kBroughtBase + (std::uint64_t{pool} << kPoolBits);
  return {cls, shard, at.slots_max, {DeviceRun{0, at.record_bytes, base, at.record_bytes}}};
}

std::optional<std::uint64_t> EngineMemory::take(std::uint32_t pool, Pieces pieces) {
  auto shared = std::make_shared<const Pieces>(std::move(pieces));
  const MutexLock lock(mutex_);
  Pool& at = pools_.at(pool);
  std::uint64_t slot = at.slots.size();
  if (!at.free.empty()) {
    slot = at.free.back();
    at.free.pop_back();
    at.slots[slot] = std::move(shared);
    return slot;
  }
  if (slot >= at.slots_max) return std::nullopt;
  at.slots.push_back(std::move(shared));
  return slot;
}

void EngineMemory::give_back(const BroughtSlot& slot) {
  const MutexLock lock(mutex_);
  Pool& at = pools_.at(slot.pool);
  TIERCEL_CHECK(slot.slot < at.slots.size() && at.slots[slot.slot] != nullptr);
  at.slots[slot.slot] = nullptr;
  at.free.push_back(slot.slot);
}

}  // namespace tiercel::capi
