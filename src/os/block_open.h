// The one way to a drive: its file claimed, and the best engine that this system has for it.
//
// Threads: one opens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "os/block_threads.h"
#include "os/block_uring.h"

namespace tiercel {

enum class BlockEngine : std::uint8_t {
  kBest,   // io_uring where there is one, else threads
  kUring,  // or an error
  kThreads,
};
std::string_view block_engine_name(BlockEngine engine);  // "io_uring"

struct BlockDeviceOptions {
  BlockFileOptions file;
  BlockEngine engine = BlockEngine::kBest;
  BlockEngineOptions tuning;
};

struct OpenedBlockDevice {
  std::unique_ptr<BlockDevice> device;
  BlockEngine engine = BlockEngine::kUring;  // that it came to be
  bool direct = false;                       // past the page cache
  bool created = false;                      // the file is new
  int end_fd = -1;                           // readable while an end waits to be drained; the device's
  std::uint64_t host_bytes = 0;              // of memory, its own
  std::vector<std::string> notes;            // what is not as well as it could be, one line each
};

// Errors: as BlockFile::open() and the engines.
Result<OpenedBlockDevice> open_block_device(const BlockDeviceOptions& options,
                                            const BlockCalls& calls = linux_block_calls());

}  // namespace tiercel
