#include "memory/host_pools.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/sizes.h"

namespace tiercel {
namespace {

Status sealed() {
  return {Code::kFailedPrecondition,
          "host pools: the group is sealed: wanted every pool before seal(), since sizes and sharing follow "
          "from all "
          "of them; begin another group"};
}

// Closed: a kind that allocates itself has a mapping of its kind.
std::optional<MappingKind> mapping_kind(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kAnonymous:
    case MemoryKind::kPinned:
      return MappingKind::kAnonymous;
    case MemoryKind::kHugepage:
      return MappingKind::kHugepage;
    case MemoryKind::kShared:
      return MappingKind::kShared;
    case MemoryKind::kExternal:
      return std::nullopt;
  }
  return std::nullopt;
}

std::string capacity_option(const Capacity& capacity) {
  if (std::holds_alternative<PagesCapacity>(capacity)) return "pages";
  if (std::holds_alternative<TotalCapacity>(capacity)) return "total bytes";
  return "ratio";
}

}  // namespace

Status HostPoolGroupBuilder::try_pools(const std::vector<HostPoolRequest>& requests) const {
  if (sealed_) return sealed();
  // A page of each is enough to see what is wrong with a pool; the caller's own memory is looked at with its
  // real number of pages, where that is known already.
  HostPoolPlanOptions one = options_.plan;
  if (one.kind != MemoryKind::kExternal) one.capacity = PagesCapacity{1};
  if (auto* pages = std::get_if<PagesCapacity>(&one.capacity))  // may name pools that are still to come
    std::erase_if(pages->pools, [&](const auto& named) {
      return std::none_of(requests.begin(), requests.end(),
                          [&](const HostPoolRequest& each) { return each.shape.name == named.first; });
    });
  const Result<HostPoolPlan> plan = plan_host_pools(requests, one);
  return plan ? Status{} : plan.error();
}

Status HostPoolGroupBuilder::add_pool(HostPoolRequest request) {
  std::vector<HostPoolRequest> all = requests_;
  all.push_back(std::move(request));
  Status status = try_pools(all);
  if (status.ok()) requests_ = std::move(all);
  return status;
}

Status HostPoolGroupBuilder::add_pools(const StorageForm& form, const StackOptions& options) {
  Result<std::vector<HostPoolRequest>> stack = stack_of(form, options);
  if (!stack) return stack.error();
  std::vector<HostPoolRequest> all = requests_;
  for (HostPoolRequest& request : *stack) all.push_back(std::move(request));
  Status status = try_pools(all);
  if (status.ok()) requests_ = std::move(all);
  return status;
}

Result<HostPoolPlan> HostPoolGroupBuilder::plan() const { return plan_host_pools(requests_, options_.plan); }

Result<HostPoolGroup> HostPoolGroupBuilder::seal(const MemoryLimits& limits, const MappingCalls& calls) {
  if (sealed_) return tl::unexpected(sealed());
  TIERCEL_ASSIGN_OR_RETURN(HostPoolPlan made, plan());
  Result<HostPoolGroup> group = HostPoolGroup::make(std::move(made), options_, limits, calls);
  sealed_ = group.has_value();
  return group;
}

Result<HostPoolGroup> HostPoolGroup::build(const StorageForm& form, const StackOptions& stack,
                                           HostPoolOptions options, const MemoryLimits& limits,
                                           const MappingCalls& calls) {
  HostPoolGroupBuilder builder = begin(std::move(options));
  TIERCEL_RETURN_IF_ERROR(builder.add_pools(form, stack));
  return builder.seal(limits, calls);
}

Result<HostPoolGroup> HostPoolGroup::make(HostPoolPlan plan, const HostPoolOptions& options,
                                          const MemoryLimits& limits, const MappingCalls& calls) {
  if (plan.kind == MemoryKind::kPinned && options.registrar == nullptr)
    return error(
        Code::kUnsupported,
        "host pools: memory: pinned: wanted a device to register it with, got none; take 'anonymous', "
        "'hugepage' or 'shared'");
  HostPoolGroup group;
  group.plan_ = std::move(plan);
  group.external_ = options.plan.allocations;
  const std::uint64_t bytes = group.mapped_bytes();
  const std::optional<MappingKind> kind = mapping_kind(group.kind());
  if (kind && bytes > 0) {
    Result<Mapping> mapping = Mapping::open({*kind, bytes, options.touch, options.numa}, limits, calls);
    if (!mapping) {
      const bool short_of_memory = mapping.error().code == Code::kResourceExhausted;
      return error(
          mapping.error().code,
          fmt::format("host pools: memory {}: {}{}", memory_kind_name(group.kind()), mapping.error().message,
                      short_of_memory
                          ? fmt::format("; {} for all {} pools follow from the capacity ({}): lower it",
                                        format_size(bytes), group.plan_.pools.size(),
                                        capacity_option(options.plan.capacity))
                          : std::string{}));
    }
    group.mapping_ = std::move(*mapping);
  }
  if (group.kind() == MemoryKind::kPinned) TIERCEL_RETURN_IF_ERROR(group.pin(options));
  return group;
}

Status HostPoolGroup::pin(const HostPoolOptions& options) {
  std::vector<MutableByteView> pieces;
  for (std::uint32_t i = 0; i < plan_.allocations.size(); ++i) {
    const auto cuts = registration_cuts(plan_, i, options.registration_bytes);
    if (!cuts) return cuts.error();
    std::uint64_t begin = 0;
    for (const std::uint64_t cut : *cuts) {
      pieces.push_back(mapping_.bytes().subspan(begin, cut - begin));
      begin = cut;
    }
  }
  Result<RegisteredRanges> made = RegisteredRanges::make(*options.registrar, pieces);
  if (!made) return {made.error().code, fmt::format("host pools: memory pinned: {}", made.error().message)};
  registration_ = std::move(*made);
  return {};
}

Result<HostPoolGroup> HostPoolGroup::attach(HostPoolPlan plan, int fd, MappingAccess access,
                                            const MappingCalls& calls) {
  if (plan.kind != MemoryKind::kShared)
    return error(
        Code::kInvalidArgument,
        fmt::format("host pools: attach: wanted memory of kind shared, got {}", memory_kind_name(plan.kind)));
  HostPoolGroup group;
  group.plan_ = std::move(plan);
  if (const std::uint64_t bytes = group.mapped_bytes(); bytes > 0) {
    TIERCEL_ASSIGN_OR_RETURN(group.mapping_,
                             Mapping::attach(fd, {.bytes = bytes, .access = access, .touch = {}}, calls));
  }
  return group;
}

HostPoolGroup& HostPoolGroup::operator=(HostPoolGroup&& other) noexcept {
  registration_ = {};  // while the memory that it names is still there
  plan_ = std::move(other.plan_);
  mapping_ = std::move(other.mapping_);
  external_ = std::move(other.external_);
  registration_ = std::move(other.registration_);
  return *this;
}

std::vector<MutableByteView> HostPoolGroup::ranges() const {
  if (kind() == MemoryKind::kExternal) return external_;
  if (mapping_.size_bytes() == 0) return {};
  return {mapping_.bytes()};
}

std::vector<PageObject> HostPoolGroup::page_segments(std::uint32_t pool, std::uint64_t page) const {
  TIERCEL_CHECK(pool < plan_.pools.size());
  return tiercel::page_segments(plan_.pools[pool].layout, page);
}

ByteView HostPoolGroup::allocation(std::uint32_t index) const {
  if (kind() != MemoryKind::kExternal) return mapping_.view();
  TIERCEL_CHECK(index < external_.size());
  return external_[index];
}

ByteView HostPoolGroup::view(std::uint32_t pool, const Segment& segment) const {
  TIERCEL_CHECK(pool < plan_.pools.size());
  const SegmentPlace place = place_of(plan_.pools[pool], segment);
  return allocation(place.allocation).subspan(place.offset, segment.length);
}

MutableByteView HostPoolGroup::bytes(std::uint32_t pool, const Segment& segment) const {
  TIERCEL_CHECK(pool < plan_.pools.size());
  const SegmentPlace place = place_of(plan_.pools[pool], segment);
  const MutableByteView whole =
      kind() == MemoryKind::kExternal ? external_[place.allocation] : mapping_.bytes();
  return whole.subspan(place.offset, segment.length);
}

std::byte* HostPoolGroup::buffer_address(std::uint32_t pool, std::uint32_t buffer) const {
  TIERCEL_CHECK(pool < plan_.pools.size() && buffer < plan_.pools[pool].buffers.size());
  const BufferPlace& place = plan_.pools[pool].buffers[buffer];
  return place.bytes == 0 ? nullptr : bytes(pool, {buffer, 0, place.bytes}).data();
}

}  // namespace tiercel
