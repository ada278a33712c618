#include "transfer/pool_copy_check.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {

namespace {

Status wrong(std::size_t number, std::string what, Code code = Code::kInvalidArgument) {
  return {code, fmt::format("pool copy, part {}: {}", number, what)};
}

Status check_list(std::size_t number, std::string_view side, const std::vector<std::uint64_t>& granules,
                  std::uint64_t count) {
  for (std::size_t i = 0; i < granules.size(); ++i)
    if (granules[i] >= count)
      return wrong(number, fmt::format("{} granule {} (entry {}) is not below the pool's {}", side,
                                       granules[i], i, count));
  return {};
}

// The first granule that is listed twice.
std::optional<std::uint64_t> twice_listed(std::vector<std::uint64_t> granules, std::uint64_t count) {
  if (count / 64 <= 8 * granules.size()) {  // a bit for each of the pool is the faster way
    std::vector<std::uint64_t> seen(count / 64 + 1);
    for (const std::uint64_t granule : granules) {
      const std::uint64_t bit = std::uint64_t{1} << (granule % 64);
      if ((seen[granule / 64] & bit) != 0) return granule;
      seen[granule / 64] |= bit;
    }
    return std::nullopt;
  }
  std::ranges::sort(granules);
  const auto twice = std::ranges::adjacent_find(granules);
  return twice == granules.end() ? std::nullopt : std::optional(*twice);
}

Status check_once(std::size_t number, const std::vector<std::uint64_t>& granules, std::uint64_t count) {
  const auto twice = twice_listed(granules, count);
  if (!twice) return {};
  return wrong(number,
               fmt::format("target granule {} is listed twice: which bytes should it end with?", *twice));
}

// One past the last byte that the nest touches for any granule of a pool of `granules`; nothing when that
// wraps.
std::optional<std::uint64_t> end_of(const CopyNest& nest, bool source, std::uint64_t granules,
                                    std::uint64_t per_page) {
  const CopySide& side = source ? nest.source : nest.target;
  auto end = checked_add(side.offset, nest.length);
  const auto add = [&end](std::uint64_t count, std::uint64_t step) {
    if (count == 0) return;
    const auto extent = checked_mul(count - 1, step);
    end = end && extent ? checked_add(*end, *extent) : std::nullopt;
  };
  add(granules / per_page, side.page);
  add(per_page, side.granule);
  for (std::uint32_t i = 0; i < nest.loop_count; ++i)
    add(nest.loops[i].count, source ? nest.loops[i].source_step : nest.loops[i].target_step);
  return end;
}

Status check_memory(const PoolCopy& part, std::size_t number, bool source) {
  const PoolMemory& memory = source ? part.source : part.target;
  const std::string_view name = source ? "source" : "target";
  const std::uint64_t granules = source ? part.plan->source_granules : part.plan->target_granules;
  const std::uint64_t per_page = source ? part.plan->source_per_page : part.plan->target_per_page;
  if (granules == 0) return {};
  for (const LayerCopy& layer : part.plan->layers)
    for (const CopyNest& nest : layer.nests) {
      const CopySide& side = source ? nest.source : nest.target;
      if (side.shard >= memory.ranks.size())
        return wrong(number, fmt::format("the plan reads rank {} of the {}, of which {} are there",
                                         side.shard, name, memory.ranks.size()));
      const auto& buffers = memory.ranks[side.shard];
      if (side.buffer >= buffers.size())
        return wrong(number, fmt::format("the plan names buffer {} of the {}, of which {} are there",
                                         side.buffer, name, buffers.size()));
      const auto end = end_of(nest, source, granules, per_page);
      if (!end || *end > buffers[side.buffer].bytes)
        return wrong(number, fmt::format("buffer {} of the {}, rank {}, has {} bytes, and the plan needs {}: "
                                         "give the memory of the layout that it was made from",
                                         side.buffer, name, side.shard, buffers[side.buffer].bytes,
                                         end ? fmt::to_string(*end) : "more than 2^63"));
    }
  return {};
}

Status check_sums(const PoolCopy& part, std::size_t number) {
  if (part.expected_sums.empty()) return {};
  if (part.expected_sums.size() != part.plan->layers.size())
    return wrong(number, fmt::format("expected sums of {} layers, and the plan has {}",
                                     part.expected_sums.size(), part.plan->layers.size()));
  for (const auto& sums : part.expected_sums)
    if (sums.size() != part.source_granules.size())
      return wrong(number,
                   fmt::format("{} expected sums for {} granules", sums.size(), part.source_granules.size()));
  return {};
}

}  // namespace

Status check_pool_copy(const PoolCopy& part, std::size_t number) {
  TIERCEL_CHECK(part.plan != nullptr);
  if (part.source_granules.size() != part.target_granules.size())
    return wrong(number, fmt::format("{} source granules and {} target granules: give one target for each "
                                     "source",
                                     part.source_granules.size(), part.target_granules.size()));
  Status status = check_list(number, "source", part.source_granules, part.plan->source_granules);
  if (status.ok()) status = check_list(number, "target", part.target_granules, part.plan->target_granules);
  if (status.ok()) status = check_once(number, part.target_granules, part.plan->target_granules);
  if (status.ok()) status = check_sums(part, number);
  if (status.ok() && !part.source_granules.empty()) status = check_memory(part, number, true);
  if (status.ok() && !part.source_granules.empty()) status = check_memory(part, number, false);
  return status;
}

Status look_into_device(PoolCopy& part, std::size_t number, Device*& device) {
  Device* needed = nullptr;
  for (PoolMemory* memory : {&part.source, &part.target}) {
    std::vector<std::pair<PoolBuffer*, std::byte*>> seen;
    bool some_here = false;
    bool some_hidden = false;
    for (auto& buffers : memory->ranks)
      for (PoolBuffer& buffer : buffers) {
        some_here |= buffer.host != nullptr;
        if (buffer.host != nullptr || buffer.bytes == 0) continue;
        if (memory->device == nullptr)
          return wrong(number,
                       fmt::format("a buffer of {} bytes has neither memory nor a device", buffer.bytes));
        const MutableByteView view = memory->device->host_view(buffer.address, buffer.bytes);
        some_hidden |= view.size() != buffer.bytes;
        seen.emplace_back(&buffer, view.data());
      }
    if (!some_hidden) {
      for (const auto& [buffer, data] : seen) buffer->host = data;
      continue;
    }
    if (some_here)
      return wrong(number, "one side is host memory in part, and device memory in part", Code::kUnsupported);
    if (needed != nullptr)
      return wrong(number, "source and target are both device memory: copy by way of a host pool",
                   Code::kUnsupported);
    needed = memory->device;
  }
  if (needed != nullptr && device != nullptr && needed != device)
    return wrong(number, "it needs another device than the part before: copy them apart", Code::kUnsupported);
  if (needed != nullptr) device = needed;
  return {};
}

}  // namespace tiercel
