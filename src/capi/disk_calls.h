// What opening a node has to do with its disk.
//
// Threads: pure functions.
#pragma once

#include <tiercel/disk.h>

#include "capi/answer.h"
#include "capi/core.h"

namespace tiercel::capi {

// Into core.disk and core.node.disk; `given` may be null: no disk. Errors: invalid_argument.
Answer read_disk_options(const tiercel_disk_options* given, CoreOptions& core);

}  // namespace tiercel::capi
