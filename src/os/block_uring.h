// A block device on io_uring, without a thread of its own: the submitter hands work to the kernel and takes
// ends from it, one system call each, and no call waits for the drive: the kernel passes on to threads of its
// own whatever would. Attempts beyond what may be under way, and what is left of short ones, go on when ends
// are drained.
//
// Threads: as BlockDevice.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "os/block_device.h"
#include "os/block_file.h"

namespace tiercel {

struct BlockEngineOptions {
  // Memory that most pieces will lie in, as a host arena: made known to the kernel and pinned once.
  std::vector<MutableByteView> memory;
  std::uint64_t attempt_bytes = 1U << 20;  // of one system call
  std::size_t operations_max = 256;        // accepted and not yet drained
  std::size_t attempts_max = 64;           // under way in the system; of threads: their number
};

// A device that works, and what should be known about it.
struct BlockEngineDevice {
  std::unique_ptr<BlockDevice> device;
  int end_fd = -1;               // readable while an end waits to be drained; the device's
  std::uint64_t host_bytes = 0;  // of memory, its own
  std::vector<std::string> notes;
};

// Takes `file`; it stays as it was when this fails. Memory and `calls` outlive the device, whose destructor
// waits for what the system has under way, since that goes on in the submitter's memory; the rest is dropped
// and has no end. Errors: unsupported where the kernel or a container has no io_uring; resource_exhausted.
Result<BlockEngineDevice> open_block_uring(BlockFile& file, const BlockEngineOptions& options,
                                           const BlockCalls& calls = linux_block_calls());

}  // namespace tiercel
