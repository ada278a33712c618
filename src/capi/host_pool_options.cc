// Options of host pools: what a caller wrote, as values.
#include <cmath>
#include <optional>

#include "capi/host_pool_handles.h"
#include "capi/options.h"
#include "os/text_file.h"

namespace tiercel::capi {

namespace {

constexpr std::uint64_t kAllocationsMax = 1U << 16;

Answer take_text(std::string_view name, const char* text, std::optional<std::string>& out) {
  if (text == nullptr) return {};
  out.emplace();
  return read_text(name, text, *out);
}

Answer read_kind(const tiercel_host_pools_options& given, MemoryKind& kind) {
  MemoryKindOptions wanted;
  TIERCEL_RETURN_UNLESS_OK(take_text("host_pools: memory", given.memory, wanted.memory));
  TIERCEL_RETURN_UNLESS_OK(take_text("host_pools: allocator", given.allocator, wanted.allocator));
  TIERCEL_RETURN_UNLESS_OK(take_text("host_pools: backend", given.backend, wanted.backend));
  TIERCEL_RETURN_UNLESS_OK(take_text("host_pools: extra_config", given.extra_config, wanted.extra_config));
  const auto resolved =
      resolve_memory_kind(wanted, [](const std::string& path) { return read_config_file(path); });
  if (!resolved) return resolved.error();
  kind = *resolved;
  return {};
}

Answer read_capacity(const tiercel_host_pools_options& given, Capacity& capacity) {
  const bool ratio = given.device_ratio < 0 || given.device_ratio > 0 || std::isnan(given.device_ratio);
  if ((given.pages != 0) + (given.total_bytes != 0) + (ratio ? 1 : 0) != 1)
    return invalid(
        fmt::format("host_pools: pages {}, total_bytes {}, device_ratio {}: give exactly one of them",
                    given.pages, given.total_bytes, given.device_ratio));
  if (given.pages != 0)
    capacity = PagesCapacity{given.pages};
  else if (given.total_bytes != 0)
    capacity = TotalCapacity{given.total_bytes};
  else
    capacity = RatioCapacity{given.device_ratio};
  return {};
}

Answer read_device_pools(const tiercel_host_pools_options& given, PoolsOptions& out) {
  std::span<const tiercel_pool_pages> pages;
  TIERCEL_RETURN_UNLESS_OK(read_list("host_pools: device_pools", given.device_pools, given.device_pool_count,
                                     pages, kMaxLayerIds));
  for (const tiercel_pool_pages& each : pages) {
    std::string name;
    TIERCEL_RETURN_UNLESS_OK(read_text("host_pools: device_pools: pool", each.pool, name));
    out.device_pages.emplace_back(std::move(name), each.pages);
  }
  return {};
}

Answer read_stage(const tiercel_host_pools_options& given, Stage& stage) {
  if (given.first_layer == 0 && given.end_layer == 0) return {};
  if (given.first_layer >= given.end_layer || given.end_layer > kMaxLayerIds)
    return invalid(fmt::format("host_pools: layers [{}, {}): wanted at least one, below {}",
                               given.first_layer, given.end_layer, kMaxLayerIds));
  stage = {given.first_layer, given.end_layer};
  return {};
}

Answer read_numa(const tiercel_host_pools_options& given, NumaPlacement& numa) {
  if (given.numa == nullptr) return {};
  std::string text;
  TIERCEL_RETURN_UNLESS_OK(read_text("host_pools: numa", given.numa, text));
  const auto placement = numa_from_text(text, given.shard, given.shards == 0 ? 1 : given.shards);
  if (!placement) return placement.error();
  numa = *placement;
  return {};
}

Answer read_allocations(const tiercel_host_pools_options& given, std::vector<MutableByteView>& out) {
  std::span<const tiercel_segment> allocations;
  TIERCEL_RETURN_UNLESS_OK(read_list("host_pools: allocations", given.allocations, given.allocation_count,
                                     allocations, kAllocationsMax));
  for (const tiercel_segment& each : allocations) {
    if (each.data == nullptr || each.size == 0)
      return invalid(fmt::format("host_pools: allocation {} is NULL or empty", out.size()));
    out.emplace_back(static_cast<std::byte*>(each.data), static_cast<std::size_t>(each.size));
  }
  return {};
}

}  // namespace

Answer read_pools_options(const tiercel_host_pools_options* options, PoolsOptions& out) {
  tiercel_host_pools_options given{};
  TIERCEL_RETURN_UNLESS_OK(read_options("host_pools", options, given));
  if (given.layout == nullptr)
    return invalid("host_pools: layout is NULL: name one, such as \"page_first\" or an order of axes");
  std::string layout;
  TIERCEL_RETURN_UNLESS_OK(read_text("host_pools: layout", given.layout, layout));
  auto parsed = layout_from_text(layout);
  if (!parsed) return parsed.error();
  out.layout = std::move(*parsed);
  TIERCEL_RETURN_UNLESS_OK(read_kind(given, out.group.plan.kind));
  TIERCEL_RETURN_UNLESS_OK(read_capacity(given, out.group.plan.capacity));
  TIERCEL_RETURN_UNLESS_OK(read_device_pools(given, out));
  TIERCEL_RETURN_UNLESS_OK(read_stage(given, out.stage));
  TIERCEL_RETURN_UNLESS_OK(read_numa(given, out.group.numa));
  TIERCEL_RETURN_UNLESS_OK(read_allocations(given, out.group.plan.allocations));
  if (given.full_pages_per_resume_point != 0)
    out.full_pages_per_resume_point = given.full_pages_per_resume_point;
  out.on_device = given.on_device != 0;
  if (out.on_device && out.group.plan.kind != MemoryKind::kExternal)
    return invalid("host_pools: on_device: only external memory can be a device's own");
  constexpr std::uint32_t kDevicesMax = 1024;
  if (given.device >= kDevicesMax)
    return invalid(fmt::format("host_pools: device {}: there are fewer", given.device));
  out.device = static_cast<int>(given.device);
  out.group.touch.threads = given.touch_threads;
  out.progress = given.progress;
  out.progress_context = given.progress_context;
  constexpr std::uint32_t kCopyThreads = 2;
  constexpr std::uint32_t kCopyThreadsMax = 256;
  out.copy_threads = given.copy_threads == 0 ? kCopyThreads : given.copy_threads;
  if (out.copy_threads > kCopyThreadsMax)
    return invalid(
        fmt::format("host_pools: copy_threads {}: at most {}", given.copy_threads, kCopyThreadsMax));
  return {};
}

}  // namespace tiercel::capi
