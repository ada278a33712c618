// Where a class's pages lie in engine memory: the table itself (DevicePool, device.h) built for any layout,
// and checked when somebody made it by hand.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "device/device.h"
#include "model/pool_layout.h"
#include "model/storage_form.h"

namespace tiercel {

// Layer first, the layout of engines that allocate one tensor per layer and component: at `base`, layer after
// layer and component after component, an array of `slots` pages each, everything dense.
// Errors: invalid_argument when the addresses pass 2^63 - 1 or the class has no such shard.
Result<DevicePool> layer_first_pool(const ClassForm& cls, ShardId shard, std::uint64_t base,
                                    std::uint64_t slots);

// A pool in whatever layout the engine has: buffer b of it begins at buffers[b].
struct LaidOutPool {
  const PoolLayout* layout = nullptr;
  std::span<const std::uint64_t> buffers;
};

// The table of a class whose groups lie in these pools, one of each group. Errors: invalid_argument when a
// group has no pool or two, when pools have different numbers of pages, addresses are not one per buffer, and
// what record_runs says; validate(). Cost: O(runs), which is one per token and head where the layout puts
// those outside of what a record keeps together.
Result<DevicePool> device_pool_of(const ClassForm& cls, ShardId shard, std::span<const LaidOutPool> pools);

// One past the highest address that `pool` uses; 0 without slots. Requires: validate(pool, its class) is ok.
std::uint64_t end_address(const DevicePool& pool);

// Checks a pool made by hand: class and shard exist, runs ascend and are together exactly the payload, pages
// of one run do not overlap, no address wraps or passes `device_bytes`. Runs may overlay each other's bytes.
// Errors: invalid_argument naming class, run and field.
Status validate(const DevicePool& pool, const ClassForm& cls, std::uint64_t device_bytes);

}  // namespace tiercel
