// What other calls need of the remote tier.
//
// Threads: pure functions.
#pragma once

#include <tiercel/remote.h>

#include "capi/answer.h"
#include "capi/core.h"

namespace tiercel::capi {

// NULL: what the environment's TIERCEL_REMOTE names, if anything.
Answer read_remote_options(const tiercel_remote_options* options, CoreOptions& core);

}  // namespace tiercel::capi
