#include "memory/slot_pool.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "model/json_text.h"

namespace tiercel {

Result<SlotPool> SlotPool::make(std::uint64_t slots) {
  if (slots >= 1ULL << 32)
    return error(Code::kInvalidArgument,
                 fmt::format("slots: wanted fewer than 2^32 in a pool, got {}", slots));
  return SlotPool(slots);
}

bool SlotPool::in_use(std::uint64_t slot) const {
  return slot < fresh_ && !freed_.contains(static_cast<std::uint32_t>(slot));
}

Result<std::vector<std::uint64_t>> SlotPool::allocate(std::uint64_t count) {
  if (count > free_slots())
    return error(Code::kResourceExhausted, fmt::format("slots: wanted {}, got {} free of {}; free some first",
                                                       count, free_slots(), slots_));
  std::vector<std::uint64_t> taken;
  taken.reserve(count);
  while (taken.size() < count) {
    const auto again = freed_.first();
    if (!again) break;
    freed_.erase(*again);
    taken.push_back(*again);
  }
  while (taken.size() < count) taken.push_back(fresh_++);
  used_ += count;
  return taken;
}

Status SlotPool::check(std::span<const std::uint64_t> slots) const {
  std::vector<std::uint64_t> sorted(slots.begin(), slots.end());
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (sorted[i] >= slots_)
      return {Code::kInvalidArgument, fmt::format("slots: wanted one below {}, got {}", slots_, sorted[i])};
    if (i > 0 && sorted[i] == sorted[i - 1])
      return {Code::kInvalidArgument, fmt::format("slots: slot {} is twice in the list", sorted[i])};
    if (!in_use(sorted[i]))
      return {Code::kFailedPrecondition, fmt::format("slots: slot {} is free already", sorted[i])};
  }
  return {};
}

Status SlotPool::free(std::span<const std::uint64_t> slots) {
  if (Status ok = check(slots); !ok.ok()) return ok;
  for (const std::uint64_t slot : slots) freed_.insert(static_cast<std::uint32_t>(slot));
  used_ -= slots.size();
  return {};
}

Result<GroupSlots> GroupSlots::make(const HostPoolPlan& plan) {
  GroupSlots made;
  for (std::uint32_t i = 0; i < plan.pools.size(); ++i) {
    const HostPool& pool = plan.pools[i];
    made.names_.push_back(printable(pool.name()));
    made.roots_.push_back(pool.slots_of);
    Result<SlotPool> slots = SlotPool::make(pool.slots_of == i ? pool.pages() : 0);
    if (!slots)
      return error(slots.error().code, fmt::format("pool {}: {}", made.names_.back(), slots.error().message));
    made.pools_.push_back(std::move(*slots));
    made.held_.emplace_back();
  }
  return made;
}

Status GroupSlots::check_own(std::uint32_t pool) const {
  if (pool >= pools_.size())
    return {Code::kInvalidArgument,
            fmt::format("slots: wanted a pool below {}, got {}", pools_.size(), pool)};
  if (roots_[pool] != pool)
    return {Code::kInvalidArgument, fmt::format("slots: pool {} uses the slots of {}: wanted those of {}",
                                                names_[pool], names_[roots_[pool]], names_[roots_[pool]])};
  return {};
}

Result<std::vector<GroupSlots::Grant>> GroupSlots::allocate(std::span<const Want> wants) {
  std::map<std::uint32_t, std::uint64_t> left;
  for (const Want& want : wants) {
    TIERCEL_RETURN_IF_ERROR(check_own(want.pool));
    const auto at = left.emplace(want.pool, pools_[want.pool].free_slots()).first;
    if (want.slots > at->second)
      return error(Code::kResourceExhausted,
                   fmt::format("slots of pool {}: wanted {}, got {} free of {}; free some first",
                               names_[want.pool], want.slots, at->second, pools_[want.pool].slots()));
    at->second -= want.slots;
  }
  std::vector<Grant> grants;
  for (const Want& want : wants) {
    auto slots = pools_[want.pool].allocate(want.slots);
    TIERCEL_CHECK(slots.has_value());
    grants.push_back({want.pool, std::move(*slots)});
  }
  return grants;
}

Status GroupSlots::check_free(std::uint32_t pool, std::span<const std::uint64_t> slots) const {
  if (Status ok = pools_[pool].check(slots); !ok.ok()) return ok;
  for (const std::uint64_t slot : slots)
    if (held_[pool].contains(static_cast<std::uint32_t>(slot)))
      return {Code::kFailedPrecondition,
              fmt::format("slots: slot {} belongs to a sequence, which gives it back at its end", slot)};
  return {};
}

void GroupSlots::hold(const Grant& grant) {
  for (const std::uint64_t slot : grant.slots) held_[grant.pool].insert(static_cast<std::uint32_t>(slot));
}

void GroupSlots::let_go(const Grant& grant) {
  for (const std::uint64_t slot : grant.slots) held_[grant.pool].erase(static_cast<std::uint32_t>(slot));
}

Status GroupSlots::free(std::span<const Grant> grants) {
  std::map<std::uint32_t, std::vector<std::uint64_t>> all;
  for (const Grant& grant : grants) {
    if (Status own = check_own(grant.pool); !own.ok()) return own;
    std::vector<std::uint64_t>& slots = all[grant.pool];
    slots.insert(slots.end(), grant.slots.begin(), grant.slots.end());
  }
  for (const auto& [pool, slots] : all)
    if (Status ok = check_free(pool, slots); !ok.ok())
      return {ok.code, fmt::format("pool {}: {}", names_[pool], ok.message)};
  for (const auto& [pool, slots] : all) {
    const Status freed = pools_[pool].free(slots);
    TIERCEL_CHECK(freed.ok());
  }
  return {};
}

}  // namespace tiercel
