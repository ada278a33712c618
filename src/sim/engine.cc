#include "sim/engine.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/content.h"

namespace tiercel::sim {
namespace {

// Layer first, each component of each layer an array of slots with a gap behind every page's bytes.
DevicePool lay_out(const ClassForm& cls, ShardId shard, std::uint64_t base, std::uint64_t slots,
                   std::uint64_t gap) {
  DevicePool pool{cls.id, shard, slots, {}};
  for (const LayerRun& layer : cls.layers)
    for (const ComponentRun& run : layer.components) {
      pool.runs.push_back({run.offset, run.length, base, run.length + gap});
      base += slots * (run.length + gap);
    }
  return pool;
}

std::uint64_t bytes_of(const DevicePool& pool) {
  std::uint64_t bytes = 0;
  for (const DeviceRun& run : pool.runs) bytes += pool.slots * run.stride;
  return bytes;
}

constexpr std::uint64_t kGap[2] = {0, 8};

}  // namespace

std::uint64_t Engine::bytes_needed(const StorageForm& form) {
  std::uint64_t bytes = 0;
  for (const ClassForm& cls : form.classes)
    for (const std::uint64_t gap : kGap)
      bytes += cls.shards * bytes_of(lay_out(cls, ShardId(0), 0, kSlots, gap));
  return bytes;
}

void Engine::add_form(FormId id, const StorageForm& form) {
  const std::uint64_t first = next_address_;
  for (const ClassForm& cls : form.classes)
    for (std::uint16_t shard = 0; shard < cls.shards; ++shard) {
      Place fresh;
      fresh.payload_bytes = cls.record_bytes;
      fresh.taken.resize(kSlots);
      for (std::size_t i = 0; i < 2; ++i) {
        fresh.pool[i] = lay_out(cls, ShardId(shard), next_address_, kSlots, kGap[i]);
        next_address_ += bytes_of(fresh.pool[i]);
      }
      TIERCEL_CHECK(next_address_ <= device_.size_bytes());
      places_.emplace(Name{id, cls.id, ShardId(shard)}, std::move(fresh));
    }
  const MutableByteView made = device_.bytes().subspan(first, next_address_ - first);
  std::fill(made.begin(), made.end(), kUntouched);
}

DevicePool Engine::pool(FormId form, ClassId cls, ShardId shard) const {
  const Place& found = places_.at({form, cls, shard});
  return found.pool[found.at];
}

std::vector<std::pair<ClassId, ShardId>> Engine::pools_of(FormId form) const {
  std::vector<std::pair<ClassId, ShardId>> names;
  for (const auto& [name, made] : places_)
    if (std::get<0>(name) == form) names.emplace_back(std::get<1>(name), std::get<2>(name));
  return names;
}

void Engine::relocate(FormId form, ClassId cls, ShardId shard) {
  TIERCEL_CHECK(idle(form, cls, shard));
  places_.at({form, cls, shard}).at ^= 1;
}

bool Engine::idle(FormId form, ClassId cls, ShardId shard) const {
  const auto& taken = places_.at({form, cls, shard}).taken;
  return std::none_of(taken.begin(), taken.end(), [](bool each) { return each; });
}

std::optional<EngineSlot> Engine::take(FormId form, ClassId cls, ShardId shard) {
  Place& found = places_.at({form, cls, shard});
  for (std::uint64_t i = 0; i < kSlots; ++i) {
    const std::uint64_t slot = found.next;
    found.next = (found.next + 1) % kSlots;
    if (found.taken[slot]) continue;
    found.taken[slot] = true;
    ++taken_;
    return EngineSlot{form, cls, shard, slot};
  }
  return std::nullopt;
}

void Engine::give_back(const EngineSlot& slot) {
  Place& found = place(slot);
  TIERCEL_CHECK(found.taken[slot.slot]);
  const std::vector<std::byte> blank(found.payload_bytes, kUntouched);
  write(slot, blank);
  found.taken[slot.slot] = false;
  --taken_;
}

void Engine::write(const EngineSlot& slot, ByteView payload) {
  const Place& found = place(slot);
  for (const DeviceRun& run : found.pool[found.at].runs)
    std::copy_n(payload.begin() + static_cast<std::ptrdiff_t>(run.payload_offset), run.length,
                device_.bytes().begin() + static_cast<std::ptrdiff_t>(run.base + slot.slot * run.stride));
}

std::vector<std::byte> Engine::read_from(const Place& place, std::uint64_t slot, MutableByteView memory) {
  std::vector<std::byte> payload(place.payload_bytes);
  for (const DeviceRun& run : place.pool[place.at].runs)
    std::copy_n(memory.begin() + static_cast<std::ptrdiff_t>(run.base + slot * run.stride), run.length,
                payload.begin() + static_cast<std::ptrdiff_t>(run.payload_offset));
  return payload;
}

std::vector<std::byte> Engine::read(const EngineSlot& slot) const {
  return read_from(place(slot), slot.slot, device_.bytes());
}

std::optional<std::string> Engine::stray_write() const {
  for (const auto& [name, found] : places_)
    for (std::uint64_t slot = 0; slot < kSlots; ++slot)
      if (!found.taken[slot] && !untouched(read_from(found, slot, device_.bytes())))
        return fmt::format("free engine slot {} of class {} shard {} was written to", slot,
                           std::get<1>(name).value(), std::get<2>(name).value());
  return std::nullopt;
}

}  // namespace tiercel::sim
