// The engine's side of a node: memory per form, class and shard, and which of its slots are in whose hands.
// A free slot holds only kUntouched bytes, so that a late or stray write shows when it is taken again.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/ids.h"
#include "device/device.h"
#include "model/storage_form.h"
#include "sim/world.h"

namespace tiercel::sim {

struct EngineSlot {
  FormId form;
  ClassId cls;
  ShardId shard;
  std::uint64_t slot = 0;
  friend auto operator<=>(const EngineSlot&, const EngineSlot&) = default;
};

class Engine final {
 public:
  explicit Engine(SimDevice& device) : device_(device) {}

  // Lays out memory for every class and shard of the form, twice (the second place is for relocate()).
  // Requires: the device is large enough for bytes_needed().
  void add_form(FormId id, const StorageForm& form);
  static std::uint64_t bytes_needed(const StorageForm& form);

  DevicePool pool(FormId form, ClassId cls, ShardId shard) const;  // to be registered
  std::vector<std::pair<ClassId, ShardId>> pools_of(FormId form) const;
  // Its other place from now on. Requires: idle().
  void relocate(FormId form, ClassId cls, ShardId shard);
  bool idle(FormId form, ClassId cls, ShardId shard) const;

  // A free slot; nothing when all are taken.
  std::optional<EngineSlot> take(FormId form, ClassId cls, ShardId shard);
  void give_back(const EngineSlot& slot);  // its bytes become kUntouched
  void write(const EngineSlot& slot, ByteView payload);
  std::vector<std::byte> read(const EngineSlot& slot) const;
  std::uint64_t taken() const { return taken_; }
  // The first free slot somebody wrote to, printable. Cost: O(memory).
  std::optional<std::string> stray_write() const;

 private:
  static constexpr std::uint64_t kSlots = 96;
  struct Place {
    DevicePool pool[2];
    std::uint64_t payload_bytes = 0;
    std::uint32_t at = 0;  // which of the two is registered
    std::vector<bool> taken;
    std::uint64_t next = 0;
  };
  using Name = std::tuple<FormId, ClassId, ShardId>;
  Place& place(const EngineSlot& slot) { return places_.at({slot.form, slot.cls, slot.shard}); }
  const Place& place(const EngineSlot& slot) const { return places_.at({slot.form, slot.cls, slot.shard}); }
  static std::vector<std::byte> read_from(const Place& place, std::uint64_t slot, MutableByteView memory);

  SimDevice& device_;
  std::map<Name, Place> places_;
  std::uint64_t next_address_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace tiercel::sim
