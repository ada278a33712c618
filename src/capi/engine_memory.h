// The engine's memory behind the ABI: registered memory by its own addresses, and memory that a single
// operation brings along, which gets a slot of a virtual pool for as long as the operation may touch it.
//
// Threads: read() and write() on copy threads; the rest under the node's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "os/thread_annotations.h"

namespace tiercel::capi {

// Bytes of a record's payload from `offset` on. The pieces of a record ascend and are together its payload.
struct Piece {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::byte* data = nullptr;
};
using Pieces = std::vector<Piece>;

// A slot of a virtual pool.
struct BroughtSlot {
  std::uint32_t pool = 0;
  std::uint64_t slot = 0;
};

class EngineMemory final : public Device {
 public:
  // Addresses below are the process's own; from here on they name brought memory.
  static constexpr std::uint64_t kBroughtBase = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kBroughtSlotsMax = std::uint64_t{1} << 16;

  Status read(std::uint64_t address, MutableByteView into) override;
  Status write(std::uint64_t address, ByteView from) override;
  std::uint64_t size_bytes() const override;
  MutableByteView host_view(std::uint64_t address, std::uint64_t length) override;

  // A pool for records of so many bytes; never given back. Returns: its number; nothing when there are
  // 65,536, or records are too large for the address space.
  std::optional<std::uint32_t> add_pool(std::uint64_t record_bytes);
  // What register_memory is to be told of it.
  DevicePool device_pool(std::uint32_t pool, ClassId cls, ShardId shard) const;
  // Returns: nothing when every slot of the pool is taken. Requires: pieces are together the payload.
  std::optional<std::uint64_t> take(std::uint32_t pool, Pieces pieces);
  // Requires: no copy uses it any more.
  void give_back(const BroughtSlot& slot);

 private:
  struct Pool {
    std::uint64_t record_bytes = 0;
    std::uint64_t slots_max = 0;
    std::vector<std::shared_ptr<const Pieces>> slots;  // null: free
    std::vector<std::uint64_t> free;
  };
  struct Place {
    std::shared_ptr<const Pieces> pieces;
    std::uint64_t offset = 0;
  };
  Place place_of(std::uint64_t address) const TIERCEL_EXCLUDES(mutex_);
  template <typename Step>
  Status for_each_part(std::uint64_t address, std::uint64_t length, const Step& step) const;

  mutable Mutex mutex_;
  std::vector<Pool> pools_ TIERCEL_GUARDED_BY(mutex_);
};

}  // namespace tiercel::capi
