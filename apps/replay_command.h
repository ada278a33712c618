// `tiercel replay`: a request trace through the cache, bytes moved and verified, a reason for every missed
// page.
//
// Threads: main thread only.
#pragma once

#include "command.h"

namespace tiercel::apps {

// Its status is 1, with the report printed all the same, when a page came back wrong or the sums do not add
// up.
Command replay_command(CLI::App& parent);

}  // namespace tiercel::apps
