// What must hold before a copy between pools touches a byte.
//
// Threads: pure functions.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "transfer/pool_copy.h"

namespace tiercel {

// Lists, sums and buffers fit the plan. Errors: invalid_argument naming part number `number`.
Status check_pool_copy(const PoolCopy& part, std::size_t number);

// Finds the host memory of buffers on devices that show theirs. `device`: set to the device whose streams the
// part needs. Errors: unsupported when source and target both need one, or two parts different ones;
// invalid_argument for a buffer that is nowhere.
Status look_into_device(PoolCopy& part, std::size_t number, Device*& device);

}  // namespace tiercel
