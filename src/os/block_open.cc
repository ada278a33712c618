#include "os/block_open.h"

#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tiercel {

std::string_view block_engine_name(BlockEngine engine) {
  switch (engine) {
    case BlockEngine::kBest:
      return "best";
    case BlockEngine::kUring:
      return "io_uring";
    case BlockEngine::kThreads:
      return "threads";
  }
  return "unknown";
}

Result<OpenedBlockDevice> open_block_device(const BlockDeviceOptions& options, const BlockCalls& calls) {
  TIERCEL_ASSIGN_OR_RETURN(BlockFile file, BlockFile::open(options.file, calls));
  OpenedBlockDevice opened{.direct = file.direct(), .created = file.created(), .notes = file.notes()};
  Result<BlockEngineDevice> engine = error(Code::kUnsupported, "");
  if (options.engine != BlockEngine::kThreads) {
    engine = open_block_uring(file, options.tuning, calls);
    if (!engine && options.engine == BlockEngine::kUring) return tl::unexpected(std::move(engine.error()));
    if (!engine) opened.notes.push_back(fmt::format("{}: threads are used instead", engine.error().message));
  }
  if (!engine) {
    opened.engine = BlockEngine::kThreads;
    engine = open_block_threads(file, options.tuning, calls);
    if (!engine) return tl::unexpected(std::move(engine.error()));
  }
  opened.device = std::move(engine->device);
  opened.end_fd = engine->end_fd;
  opened.host_bytes = engine->host_bytes;
  std::move(engine->notes.begin(), engine->notes.end(), std::back_inserter(opened.notes));
  return opened;
}

}  // namespace tiercel
