// Where a class's pages lie in engine memory: the table itself (DevicePool, device.h) built for the plain
// layout, and checked when somebody made it by hand.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/status.h"
#include "device/device.h"
#include "model/storage_form.h"

namespace tiercel {

// Layer first, the layout of engines that allocate one tensor per layer and component: at `base`, layer after
// layer and component after component, an array of `slots` pages each, everything dense.
// Errors: invalid_argument when the addresses pass 2^63 - 1 or the class has no such shard.
Result<DevicePool> layer_first_pool(const ClassForm& cls, ShardId shard, std::uint64_t base,
                                    std::uint64_t slots);

// One past the highest address that `pool` uses; 0 without slots. Requires: validate(pool, its class) is ok.
std::uint64_t end_address(const DevicePool& pool);

// Checks a pool made by hand: class and shard exist, runs ascend and are together exactly the payload, pages
// of one run do not overlap, no address wraps or passes `device_bytes`. Runs may overlay each other's bytes.
// Errors: invalid_argument naming class, run and field.
Status validate(const DevicePool& pool, const ClassForm& cls, std::uint64_t device_bytes);

}  // namespace tiercel
