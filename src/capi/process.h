// Which process this is: a handle made before a fork must not be used in the child, where the threads and the
// state behind locks are gone.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace tiercel::capi {

// Counts the forks between the first process that asked and this one. The first call starts the counting.
// Cost: one load.
std::uint64_t fork_generation();

}  // namespace tiercel::capi
