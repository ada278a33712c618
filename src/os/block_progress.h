// One operation of a drive, made in several attempts: what a system call's result means. The only place where
// a short, empty or negative result becomes "go on here", "whole" or "failed"; no attempt's result is ever
// added to another's.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "os/block_device.h"

namespace tiercel {

// Bytes [from, to) of an operation, both multiples of kBlockBytes. Of a flush: [0, 0).
struct BlockRange {
  std::uint64_t from = 0, to = 0;
  std::uint64_t length() const { return to - from; }
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

class BlockProgress final {
 public:
  // Attempts at the same bytes, one after the other, that moved nothing until the operation has failed. So
  // nothing that goes on for ever is waited for for ever.
  static constexpr std::uint32_t kFruitlessMax = 64;

  BlockProgress(BlockWork work, std::uint64_t offset, std::uint64_t bytes);

  // What to attempt next, all of it or a beginning; nothing: all is under way, done, or it has failed.
  std::optional<BlockRange> next() const;
  // Requires: a beginning of next(), of at least a block.
  void started(BlockRange range);
  // In any order. `result`: bytes, or minus an errno. Of what was moved, a block that is not whole is
  // attempted again. Requires: started.
  void ended(BlockRange range, int result);
  // Nothing is under way and nothing will be: the memory is free, the end can be told.
  bool over() const { return under_way_.empty() && (failed() || done_ == bytes_); }
  bool failed() const { return !status_.ok(); }
  // Errors: io_error; resource_exhausted (no room); unavailable (the device is gone). The first that was
  // seen.
  const Status& status() const { return status_; }

 private:
  struct Try {
    BlockRange range;
    std::uint32_t fruitless = 0;  // attempts at it before
  };
  void fail(BlockRange range, int number);
  void fruitless(Try attempt, int result);
  std::string what(BlockRange range) const;

  BlockWork work_;
  std::uint64_t offset_;
  std::uint64_t bytes_;      // 1 for a flush, which is one thing to do
  std::uint64_t fresh_ = 0;  // never attempted from here on
  std::uint64_t done_ = 0;   // bytes that are whole
  std::vector<Try> again_;   // attempted and not done
  std::vector<Try> under_way_;
  Status status_;
};

}  // namespace tiercel
