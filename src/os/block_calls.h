// What a block device asks of the system, so that a test can refuse any of it, cut any attempt short or turn
// its result into another; and what it does on Linux.
//
// Threads: const calls from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "os/block_device.h"
#include "os/mapping_calls.h"

namespace tiercel {

// What a kernel, a file system or a container may not allow.
enum class BlockFeature : std::uint8_t {
  kDirect,          // reads and writes past the page cache
  kRing,            // io_uring
  kCalmRing,        // a ring that interrupts nobody
  kRegisterFile,    // a file known to the ring
  kRegisterMemory,  // memory known to the ring, pinned once
};

// One system call's share of an operation. A flush has no length.
struct BlockCall {
  BlockWork work = BlockWork::kRead;
  std::uint64_t offset = 0, length = 0;
};

class BlockCalls {
 public:
  virtual ~BlockCalls() = default;
  // The caller closes it.
  virtual SystemResult<int> open(const std::string& path, int flags, unsigned mode) const = 0;
  // Advisory, of the whole file, held by this opening of it; at once or EWOULDBLOCK.
  virtual int lock(int fd, bool exclusive) const = 0;
  // Room for [0, bytes), which become the size of a smaller file; what is there stays.
  virtual int allocate(int fd, std::uint64_t bytes) const = 0;
  // Bytes written, which may be fewer.
  virtual SystemResult<std::uint64_t> write_zeros(int fd, std::uint64_t offset,
                                                  std::uint64_t length) const = 0;
  // Bytes that the file system of this file has free for this process.
  virtual SystemResult<std::uint64_t> free_bytes(int fd) const = 0;
  // 0, or the errno with which it is refused without having been asked for.
  virtual int refused(BlockFeature feature) const = 0;
  // So many bytes of the attempt are made, from its start on; 0: it is not made, and its result is 0.
  virtual std::uint64_t allowed(const BlockCall& call) const = 0;
  // What the engine hears, given what the kernel said: bytes, or minus an errno.
  virtual int result(const BlockCall& call, int result) const = 0;
};

class LinuxBlockCalls final : public BlockCalls {
 public:
  SystemResult<int> open(const std::string& path, int flags, unsigned mode) const override;
  int lock(int fd, bool exclusive) const override;
  int allocate(int fd, std::uint64_t bytes) const override;
  SystemResult<std::uint64_t> write_zeros(int fd, std::uint64_t offset, std::uint64_t length) const override;
  SystemResult<std::uint64_t> free_bytes(int fd) const override;
  int refused(BlockFeature) const override { return 0; }
  std::uint64_t allowed(const BlockCall& call) const override { return call.length; }
  int result(const BlockCall&, int result) const override { return result; }
};
const BlockCalls& linux_block_calls();

}  // namespace tiercel
