// Calls of the ABI: copies between groups of host pools, layer by layer.
#include <algorithm>
#include <tuple>

#include "capi/core.h"
#include "capi/host_pool_handles.h"
#include "capi/options.h"
#include "model/copy_plan.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::uint64_t kRanksMax = 65535;
constexpr std::uint64_t kPartsMax = 4096;

std::vector<PoolBuffer> buffers_of(const Pools& pools, std::uint32_t pool) {
  std::vector<PoolBuffer> out;
  const HostPool& at = pools.plan().pools[pool];
  for (std::uint32_t b = 0; b < at.buffers.size(); ++b) {
    std::byte* const begin = pools.group().buffer_address(pool, b);
    if (pools.memory_device() == nullptr)
      out.push_back(host_buffer({begin, static_cast<std::size_t>(at.buffers[b].bytes)}));
    else
      out.push_back(
          {nullptr, reinterpret_cast<std::uintptr_t>(begin), at.buffers[b].bytes});  // NOLINT: a device's
  }
  return out;
}

// What tiercel_copy_start was told, checked.
struct CopyRequest {
  std::vector<std::shared_ptr<Pools>> sources;
  std::shared_ptr<Pools> target;
  std::optional<StorageForm> whole;
  Ranks ranks;
  bool sums = false;
};

Answer read_request(const tiercel_copy_options& given, CopyRequest& request) {
  std::span<const tiercel_host_pools* const> sources;
  TIERCEL_RETURN_UNLESS_OK(
      read_list("copy_start: sources", given.sources, given.source_count, sources, kRanksMax));
  if (sources.empty())
    return invalid("copy_start: sources is empty: name one group for each rank that wrote");
  for (const tiercel_host_pools* const source : sources) {
    TIERCEL_RETURN_UNLESS_OK(check(source));
    request.sources.push_back(source->pools);
  }
  for (const auto& source : request.sources)
    if (source->memory_device() != nullptr && request.sources.size() > 1)
      return unsupported(
          "copy_start: pages of several ranks on a device; copy each rank's to host memory first");
  TIERCEL_RETURN_UNLESS_OK(check(given.target));
  request.target = given.target->pools;
  TIERCEL_RETURN_UNLESS_OK(check_reserved("copy_start", given.reserved));
  request.ranks.source_ranks = static_cast<std::uint32_t>(sources.size());
  request.ranks.target_ranks = std::max<std::uint32_t>(given.target_ranks, 1);
  request.ranks.rank = given.target_rank;
  request.sums = given.sums != 0;
  if (given.whole == nullptr) {
    if (sources.size() > 1 || given.target_ranks > 1 || given.target_rank != 0)
      return invalid("copy_start: whole is NULL: pages of other ranks need the model at tp 1");
    return {};
  }
  TIERCEL_RETURN_UNLESS_OK(check(given.whole));
  auto form = make_storage_form(given.whole->spec);
  if (!form) return form.error();
  request.whole = std::move(*form);
  return {};
}

// Every rank's pool must be laid out like the first one's: one plan serves all.
Answer check_ranks(const CopyRequest& request, std::uint32_t pool) {
  const PoolLayout& first = request.sources.front()->plan().pools[pool].layout;
  for (const auto& source : request.sources)
    if (pool >= source->plan().pools.size() || !(source->plan().pools[pool].layout == first))
      return invalid(
          fmt::format("copy_start: pool {} of the sources is not laid out alike", first.shape.name));
  return {};
}

Answer make_plan(const CopyRequest& request, const tiercel_copy_part& part, CopyPlan& out) {
  const PoolLayout& source = request.sources.front()->plan().pools[part.source_pool].layout;
  const PoolLayout& target = request.target->plan().pools[part.target_pool].layout;
  const CopyUnit unit{part.granule_tokens, CopyScope::kByLayer};
  Result<CopyPlan> plan;
  if (!request.whole) {
    plan = plan_copy(source, target, unit);
  } else {
    if (source.shape.group >= request.whole->spec.groups.size())
      return invalid(fmt::format("copy_start: whole has no group {}, of pool {}", source.shape.group,
                                 source.shape.name));
    plan = plan_reshard(pool_shape(*request.whole, source.shape.group), source, target, request.ranks, unit);
  }
  if (!plan) return plan.error();
  out = std::move(*plan);
  return {};
}

Answer read_part(const CopyRequest& request, const tiercel_copy_part& part, PoolCopy& out) {
  for (const std::uint64_t reserved : part.reserved)
    TIERCEL_RETURN_UNLESS_OK(check_reserved("copy_start: part", reserved));
  TIERCEL_RETURN_UNLESS_OK(request.sources.front()->check_pool("copy_start: source_pool", part.source_pool));
  TIERCEL_RETURN_UNLESS_OK(request.target->check_pool("copy_start: target_pool", part.target_pool));
  TIERCEL_RETURN_UNLESS_OK(check_ranks(request, part.source_pool));
  CopyPlan plan;
  TIERCEL_RETURN_UNLESS_OK(make_plan(request, part, plan));
  out.plan = std::make_shared<const CopyPlan>(std::move(plan));
  for (const auto& source : request.sources)
    out.source.ranks.push_back(buffers_of(*source, part.source_pool));
  out.source.device = request.sources.front()->memory_device();
  out.target.ranks.push_back(buffers_of(*request.target, part.target_pool));
  out.target.device = request.target->memory_device();
  std::span<const std::uint64_t> from;
  std::span<const std::uint64_t> to;
  TIERCEL_RETURN_UNLESS_OK(read_list("copy_start: source", part.source, part.count, from));
  TIERCEL_RETURN_UNLESS_OK(read_list("copy_start: target", part.target, part.count, to));
  out.source_granules.assign(from.begin(), from.end());
  out.target_granules.assign(to.begin(), to.end());
  return {};
}

// Tokens of a pool that a part reads or writes: [first, end), counted through all pages; of snapshots, slots.
struct Stretch {
  std::uint32_t pool = 0;
  std::uint64_t first = 0, end = 0;
  bool written = false;
  std::size_t part = 0;
};

void add_stretches(const std::vector<std::uint64_t>& granules, std::uint64_t tokens, Stretch one,
                   std::vector<Stretch>& out) {
  for (const std::uint64_t granule : granules) {
    one.first = granule * tokens;
    one.end = one.first + tokens;
    out.push_back(one);
  }
}

// Threads carry out pieces in any order: what one part writes, no part may read or write too.
Answer check_apart(const CopyRequest& request, std::span<const tiercel_copy_part> parts,
                   const std::vector<PoolCopy>& copies) {
  const bool within = std::ranges::find(request.sources, request.target) != request.sources.end();
  if (!within && parts.size() < 2) return {};
  std::vector<Stretch> all;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::uint64_t tokens = std::max<std::uint64_t>(copies[i].plan->granule_tokens, 1);
    add_stretches(copies[i].target_granules, tokens, {parts[i].target_pool, 0, 0, true, i}, all);
    if (within) add_stretches(copies[i].source_granules, tokens, {parts[i].source_pool, 0, 0, false, i}, all);
  }
  std::ranges::sort(all, {}, [](const Stretch& one) { return std::tuple(one.pool, one.first, one.end); });
  const Stretch* any = nullptr;      // of those before, the one that ends last
  const Stretch* written = nullptr;  // and of those that are written
  for (const Stretch& one : all) {
    const auto reaches = [&](const Stretch* before) {
      return before != nullptr && before->pool == one.pool && before->end > one.first;
    };
    const Stretch* const other = one.written ? any : written;
    if (reaches(other))
      return invalid(fmt::format(
          "copy_start: pool {}: what part {} {} from token or snapshot {} on, part {} {} "
          "too: copy in two steps",
          request.target->plan().pools[one.pool].name(), one.part, one.written ? "writes" : "reads",
          one.first, other->part, other->written ? "writes" : "reads"));
    if (!reaches(any) || one.end > any->end) any = &one;
    if (one.written && (!reaches(written) || one.end > written->end)) written = &one;
  }
  return {};
}

std::vector<std::uint32_t> layers_of(const CopyPlan& plan) {
  std::vector<std::uint32_t> layers;
  layers.reserve(plan.layers.size());
  for (const LayerCopy& layer : plan.layers) layers.push_back(layer.layer);
  return layers;
}

Time deadline_of(std::uint64_t deadline_ns) { return later(SteadyClock().now(), duration_of(deadline_ns)); }

}  // namespace

tiercel_status tiercel_copy_start(const tiercel_copy_options* options, tiercel_copy** copy,
                                  tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("copy_start: copy", copy));
    tiercel_copy_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("copy_start", options, given));
    CopyRequest request;
    TIERCEL_RETURN_UNLESS_OK(read_request(given, request));
    std::span<const tiercel_copy_part> parts;
    TIERCEL_RETURN_UNLESS_OK(read_list("copy_start: parts", given.parts, given.part_count, parts, kPartsMax));
    auto handle = std::make_unique<tiercel_copy>();
    std::vector<PoolCopy> copies(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      TIERCEL_RETURN_UNLESS_OK(read_part(request, parts[i], copies[i]));
      handle->layers.push_back(layers_of(*copies[i].plan));
    }
    TIERCEL_RETURN_UNLESS_OK(check_apart(request, parts, copies));
    handle->pools = request.sources;
    handle->pools.push_back(request.target);
    handle->sums = request.sums;
    LayeredCopyOptions how;
    how.workers = request.target->copy_threads();
    if (request.sums) how.sums = PlanSide::kSource;
    auto started = LayeredCopy::start(std::move(copies), how, &request.target->executor());
    if (!started) return started.error();
    handle->copy.emplace(std::move(*started));
    *copy = handle.release();
    return {};
  });
}

tiercel_status tiercel_copy_wait_layer(tiercel_copy* copy, uint32_t layer, uint64_t deadline_ns,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(copy));
    return copy->copy->wait_layer(layer, deadline_of(deadline_ns));
  });
}

tiercel_status tiercel_copy_wait(tiercel_copy* copy, uint64_t deadline_ns, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(copy));
    return copy->copy->wait(deadline_of(deadline_ns));
  });
}

tiercel_status tiercel_copy_cancel(tiercel_copy* copy, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(copy));
    copy->copy->cancel();
    return {};
  });
}

tiercel_status tiercel_copy_layers(const tiercel_copy* copy, uint32_t* layers, uint64_t capacity,
                                   uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(copy));
    return write_list<std::uint32_t>("copy_layers", copy->copy->whole_layers(), layers, capacity, count);
  });
}

tiercel_status tiercel_copy_sums(const tiercel_copy* copy, uint64_t part, uint32_t layer, uint32_t* sums,
                                 uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(copy));
    if (part >= copy->layers.size())
      return invalid(fmt::format("copy_sums: part {} of {}", part, copy->layers.size()));
    if (!copy->sums)
      return {TIERCEL_FAILED_PRECONDITION, "copy_sums: the copy makes none; start it with sums"};
    const auto& layers = copy->layers[part];
    const auto at = std::lower_bound(layers.begin(), layers.end(), layer);
    if (at == layers.end() || *at != layer)
      return {TIERCEL_NOT_FOUND, fmt::format("copy_sums: part {} has no layer {}", part, layer)};
    if (!copy->copy->layer_ready(layer))
      return {TIERCEL_FAILED_PRECONDITION,
              fmt::format("copy_sums: layer {} is not whole; wait for it", layer)};
    return write_list<std::uint32_t>("copy_sums",
                                     copy->copy->sums(part, static_cast<std::size_t>(at - layers.begin())),
                                     sums, capacity, count);
  });
}

void tiercel_copy_release(tiercel_copy* copy) { free_handle(copy); }
