#include "device/device_pool.h"

#include <algorithm>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "base/checked.h"
#include "model/record_runs.h"

namespace tiercel {

namespace {

// One past the last byte of the run's last slot; nothing when that wraps.
std::optional<std::uint64_t> run_end(const DeviceRun& run, std::uint64_t slots) {
  if (slots == 0) return 0;
  const auto span = checked_mul(run.stride, slots - 1);
  const auto last = span ? checked_add(run.base, *span) : std::nullopt;
  return last ? checked_add(*last, run.length) : std::nullopt;
}

Status wrong(const DevicePool& pool, const ClassForm& cls, std::string what) {
  return {Code::kInvalidArgument, fmt::format("device pool of class {} (\"{}\"), shard {}: {}",
                                              cls.id.value(), cls.name, pool.shard.value(), what)};
}

Status check_owner(const DevicePool& pool, const ClassForm& cls) {
  if (pool.cls != cls.id) return wrong(pool, cls, fmt::format("it was made for class {}", pool.cls.value()));
  if (pool.shard.value() >= cls.shards)
    return wrong(pool, cls, fmt::format("the class has shards 0 to {}", cls.shards - 1));
  return {};
}

}  // namespace

Result<DevicePool> layer_first_pool(const ClassForm& cls, ShardId shard, std::uint64_t base,
                                    std::uint64_t slots) {
  DevicePool pool{cls.id, shard, slots, {}};
  std::uint64_t next = base;
  for (const LayerRun& layer : cls.layers)
    for (const ComponentRun& component : layer.components) {
      pool.runs.push_back({component.offset, component.length, next, component.length});
      const auto bytes = checked_mul(component.length, slots);
      const auto end = bytes ? checked_add(next, *bytes) : std::nullopt;
      if (!end)
        return tl::unexpected(
            wrong(pool, cls, fmt::format("{} slots from address {} pass the largest address", slots, base)));
      next = *end;
    }
  TIERCEL_RETURN_IF_ERROR(validate(pool, cls, kSizeMax));
  return pool;
}

Result<DevicePool> device_pool_of(const ClassForm& cls, ShardId shard, std::span<const LaidOutPool> pools) {
  DevicePool out{cls.id, shard, pools.empty() ? 0 : pools.front().layout->pages, {}};
  std::set<std::uint32_t> groups;
  for (const LaidOutPool& pool : pools) {
    const PoolLayout& layout = *pool.layout;
    if (!groups.insert(layout.shape.group).second)
      return tl::unexpected(wrong(out, cls, fmt::format("two pools of group {}", layout.shape.group)));
    if (layout.pages != out.slots)
      return tl::unexpected(
          wrong(out, cls,
                fmt::format("pool {} has {} pages, pool {} has {}: they share their slots", layout.shape.name,
                            layout.pages, pools.front().layout->shape.name, out.slots)));
    if (pool.buffers.size() != layout.buffer_bytes.size())
      return tl::unexpected(
          wrong(out, cls,
                fmt::format("pool {} has {} buffers, {} addresses were given", layout.shape.name,
                            layout.buffer_bytes.size(), pool.buffers.size())));
    TIERCEL_ASSIGN_OR_RETURN(const std::vector<RecordRun> runs, record_runs(cls, layout));
    for (const RecordRun& run : runs) {
      const auto base = checked_add(pool.buffers[run.buffer], run.offset);
      if (!base)
        return tl::unexpected(
            wrong(out, cls, fmt::format("pool {}: its addresses pass 2^63 - 1", layout.shape.name)));
      out.runs.push_back({run.payload_offset, run.length, *base, run.page});
    }
  }
  for (const std::uint32_t group : cls.groups)
    if (!groups.contains(group))
      return tl::unexpected(
          wrong(out, cls, fmt::format("no pool of group {}: a record holds all groups of its class", group)));
  std::sort(out.runs.begin(), out.runs.end(),
            [](const DeviceRun& a, const DeviceRun& b) { return a.payload_offset < b.payload_offset; });
  if (Status status = validate(out, cls, kSizeMax); !status.ok()) return tl::unexpected(std::move(status));
  return out;
}

std::uint64_t end_address(const DevicePool& pool) {
  std::uint64_t end = 0;
  for (const DeviceRun& run : pool.runs) end = std::max(end, run_end(run, pool.slots).value_or(UINT64_MAX));
  return end;
}

Status validate(const DevicePool& pool, const ClassForm& cls, std::uint64_t device_bytes) {
  if (Status status = check_owner(pool, cls); !status.ok()) return status;
  std::uint64_t covered = 0;
  for (std::size_t i = 0; i < pool.runs.size(); ++i) {
    const DeviceRun& run = pool.runs[i];
    if (run.payload_offset != covered)
      return wrong(pool, cls,
                   fmt::format("run {}: payload_offset must be {} (where the run before ends), got {}", i,
                               covered, run.payload_offset));
    if (run.length == 0 || run.length > cls.record_bytes - covered)
      return wrong(
          pool, cls,
          fmt::format("run {}: length must be 1 to {} (what is left of the record's {} bytes), got {}", i,
                      cls.record_bytes - covered, cls.record_bytes, run.length));
    if (pool.slots > 1 && run.stride < run.length)
      return wrong(pool, cls,
                   fmt::format("run {}: stride {} is less than length {}: its pages would overlap", i,
                               run.stride, run.length));
    const auto end = run_end(run, pool.slots);
    if (!end || *end > device_bytes)
      return wrong(pool, cls,
                   fmt::format("run {}: {} slots of stride {} from base {} end beyond the device's {} bytes",
                               i, pool.slots, run.stride, run.base, device_bytes));
    covered += run.length;
  }
  if (covered != cls.record_bytes)
    return wrong(pool, cls,
                 fmt::format("its {} runs hold {} bytes of the record's {}", pool.runs.size(), covered,
                             cls.record_bytes));
  return {};
}

}  // namespace tiercel
