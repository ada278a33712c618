// Records in an arena and engine pages of one size, copied by the very function that the node's copies run.
//
// Threads: copies of different slots may run at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/status.h"
#include "device/device.h"
#include "memory/arena.h"
#include "model/storage_form.h"
#include "os/mapping.h"
#include "transfer/record_copy.h"

namespace tiercel {

// Two mappings full of records and engine pages of one size.
class CopyWorld final {
 public:
  static constexpr std::uint64_t kLayers = 16;
  static constexpr std::uint64_t kPageTokens = 16;

  // Errors: as Mapping::open. Requires: a multiple of kLayers * kPageTokens bytes.
  static Result<std::unique_ptr<CopyWorld>> create(std::uint64_t record_bytes, std::uint64_t footprint);

  std::uint64_t slots() const { return slots_; }
  std::string_view page_kind() const { return page_kind_name(arena_memory_.pages().kind); }

  // A copy that aim() makes ready.
  RecordCopy copy(CopyKind kind, bool verify) const;
  // Between record and engine page number `slot`.
  void aim(RecordCopy& copy, std::uint64_t slot) const;
  void carry_out_now(const RecordCopy& copy);
  void memcpy_now(CopyKind kind, std::uint64_t slot);

 private:
  CopyWorld(std::uint64_t record_bytes, std::uint64_t footprint);
  void wire();
  // Records and pages that belong together do not lie alike.
  std::uint64_t mate(std::uint64_t slot) const { return slots_ - 1 - slot; }

  std::uint64_t record_bytes_;
  std::shared_ptr<const StorageForm> form_;
  std::uint64_t header_;
  std::uint64_t stride_;
  std::uint64_t slots_;
  Mapping arena_memory_;
  Mapping engine_memory_;
  std::unique_ptr<ByteArena> arena_;
  std::unique_ptr<HostDevice> device_;
  std::shared_ptr<const DevicePool> pool_;  // shared with every copy of it
};

}  // namespace tiercel
