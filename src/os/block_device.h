// Blocks of a drive, a file or a simulation of one: reads, writes and flushes that end later, in any order.
// What an operation means when a system call does half of it is settled below this line: an operation is
// whole or has failed.
//
// Threads: one thread submits, drains and waits; the memory of pieces is touched by others until the
// operation's end was drained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "os/clock.h"

namespace tiercel {

// Offsets and lengths of operations are multiples of it, whatever the drive itself asks for.
inline constexpr std::uint64_t kBlockBytes = 4096;

enum class BlockWork : std::uint8_t { kRead, kWrite, kFlush };

// Memory of an operation. No `data`: zeros are written, what is read is thrown away.
struct BlockPiece {
  std::byte* data = nullptr;
  std::uint64_t length = 0;  // any; those of an operation together are a multiple of kBlockBytes
};

struct BlockRequest {
  std::uint64_t id = 0;  // the submitter's own, told back
  BlockWork work = BlockWork::kRead;
  bool background = false;   // a write-back or a tidying read: others go first
  std::uint64_t offset = 0;  // a flush has neither offset nor pieces
  std::vector<BlockPiece> pieces;
  std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const BlockPiece& piece : pieces) sum += piece.length;
    return sum;
  }
};

struct BlockDone {
  std::uint64_t id = 0;
  // io_error; resource_exhausted (no space); unavailable (the device is gone). A failed write may have
  // changed any part of its range; a failed read any part of its memory.
  Status status;
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;
  virtual std::uint64_t size_bytes() const = 0;
  // False: as many as can be are under way; nothing happened, ask again after an end. Any order is kept
  // between no two operations: whoever needs one waits for ends. A flush covers the writes whose ends were
  // drained before it was submitted. Requires: within size_bytes(), multiples of kBlockBytes.
  virtual bool submit(BlockRequest request) = 0;
  // Ends since the last time, each once.
  virtual std::vector<BlockDone> drain() = 0;
  // Until an end may be drained, or `at_most` has passed; at once when nothing is under way.
  virtual void wait(Duration at_most) = 0;
};

}  // namespace tiercel
