// A block device on plain system calls of a few threads: for kernels and containers without io_uring.
//
// Threads: as BlockDevice; more of its own.
#pragma once

#include "os/block_uring.h"

namespace tiercel {

inline constexpr std::size_t kBlockThreads = 4;

// As open_block_uring(); memory is not made known to anybody. Errors: resource_exhausted.
Result<BlockEngineDevice> open_block_threads(BlockFile& file, const BlockEngineOptions& options,
                                             const BlockCalls& calls = linux_block_calls());

}  // namespace tiercel
