// The memory of one attempt of a drive's operation: pieces where they stand, as far as the drive can take
// them so; for blocks that it cannot, room elsewhere and what is copied there or back.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <vector>

#include <sys/uio.h>

#include "os/block_device.h"
#include "os/block_progress.h"

namespace tiercel {

// The pieces of an operation, none empty, neighbours in memory joined, found by position.
class BlockMemory final {
 public:
  explicit BlockMemory(const std::vector<BlockPiece>& pieces);
  std::uint64_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  // From `at` on as far as one piece goes. Requires: at < bytes().
  BlockPiece from(std::uint64_t at) const;
  // [at, at + length) copied from or to its pieces; what has no memory is left out.
  void copy_out(std::uint64_t at, std::uint64_t length, std::byte* to) const;
  void copy_in(std::uint64_t at, std::uint64_t length, const std::byte* from) const;

 private:
  template <typename Body>
  void each(std::uint64_t at, std::uint64_t length, Body body) const;
  std::vector<BlockPiece> pieces_;
  std::vector<std::uint64_t> ends_;  // of each piece in the operation
};

struct BlockVectorLimits {
  std::uint64_t alignment = 1;       // that memory must have to be used where it stands
  std::uint64_t bytes = 1U << 20;    // of an attempt
  std::uint64_t bounced = 1U << 18;  // of those, elsewhere
  std::uint64_t blank = 1U << 18;    // room for what has no memory; at least a block
  std::size_t vectors = 128;
};

// One attempt's memory, planned; real once placed.
class BlockVectors final {
 public:
  // A beginning of `range`: as much as the limits allow; nothing when its first block would have to bounce
  // and may not.
  BlockVectors(const BlockMemory& memory, BlockRange range, const BlockVectorLimits& limits);

  BlockRange range() const { return range_; }
  std::uint64_t bounced() const { return bounced_; }
  // `bounce`: bounced() bytes for this attempt alone. `blank`:
  // limits.blank bytes: zeros for a write; thrown away for a read.
  void place(std::byte* bounce, std::byte* blank);
  // The beginning of `length` bytes only.
  void cut(std::uint64_t length);
  const std::vector<iovec>& vectors() const { return vectors_; }
  // Of what bounces: before a write, after a read of so many bytes. Requires: placed.
  void gather(const BlockMemory& memory) const;
  void scatter(const BlockMemory& memory, std::uint64_t length) const;

 private:
  enum class Kind : std::uint8_t { kMemory, kBounce, kBlank };
  void append(Kind kind, std::byte* data, std::uint64_t length);

  BlockRange range_;
  std::vector<iovec> vectors_;
  std::vector<Kind> kinds_;
  std::uint64_t bounced_ = 0;
};

}  // namespace tiercel
