// The system calls of a block device, of which a test refuses some, cuts some short and lies about others.
//
// Threads: set before the device is opened; what is counted is atomic.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "os/block_calls.h"

namespace tiercel {

class StagedBlockCalls final : public BlockCalls {
 public:
  std::function<int(const std::string& path)> open_refused;  // an errno
  std::optional<std::uint64_t> free;                         // bytes of the file system
  std::optional<int> lock_refused, allocate_refused;         // an errno
  std::optional<std::uint64_t> room;                         // bytes that can be written as zeros
  std::set<BlockFeature> absent;                             // refused with EINVAL
  std::function<std::uint64_t(const BlockCall&)> allow;      // of an attempt; empty: all
  std::function<int(const BlockCall&, int result)> turn;     // a result into another; empty: as it is

  SystemResult<int> open(const std::string& path, int flags, unsigned mode) const override {
    if (const int number = open_refused ? open_refused(path) : 0; number != 0) return tl::unexpected(number);
    return linux_.open(path, flags, mode);
  }
  int lock(int fd, bool exclusive) const override {
    return lock_refused ? *lock_refused : linux_.lock(fd, exclusive);
  }
  int allocate(int fd, std::uint64_t bytes) const override {
    return allocate_refused ? *allocate_refused : linux_.allocate(fd, bytes);
  }
  SystemResult<std::uint64_t> write_zeros(int fd, std::uint64_t offset, std::uint64_t length) const override {
    if (room && offset >= *room) return tl::unexpected(ENOSPC);
    return linux_.write_zeros(fd, offset, room ? std::min(length, *room - offset) : length);
  }
  SystemResult<std::uint64_t> free_bytes(int fd) const override {
    return free ? SystemResult<std::uint64_t>(*free) : linux_.free_bytes(fd);
  }
  int refused(BlockFeature feature) const override { return absent.contains(feature) ? EINVAL : 0; }
  std::uint64_t allowed(const BlockCall& call) const override { return allow ? allow(call) : call.length; }
  int result(const BlockCall& call, int result) const override { return turn ? turn(call, result) : result; }

 private:
  LinuxBlockCalls linux_;
};

}  // namespace tiercel
