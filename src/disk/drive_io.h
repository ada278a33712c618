// Reads and writes that wait, for opening and checking a log: nothing else is under way at the drive then.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel::disk {

// Waits in a row in which nothing ends and no time passes: the drive has lost an operation.
inline constexpr int kVainWaitsMax = 1000;

class DriveIo final {
 public:
  // An operation that takes longer than `stall_after` ends all: see gave_up().
  DriveIo(BlockDevice& drive, const Clock& clock, Duration stall_after)
      : drive_(drive), clock_(clock), stall_after_(stall_after), last_id_(first_id(clock)) {}
  // Ids from here on are none of an earlier user of the drive, whose operations may still end.
  static std::uint64_t first_id(const Clock& clock) {
    return static_cast<std::uint64_t>(clock.now().count()) << 16;
  }

  struct Range {
    std::uint64_t offset = 0;
    MutableByteView into;
    Status status;
    bool stays = false;  // the memory is there as long as this object
    std::function<void()> arrived =
        {};  // once, when it is read, while others are; it may not use this object
  };
  // Several at once; each says how it went, after a few tries. Requires: multiples of kBlockBytes, within the
  // drive.
  void read_all(std::span<Range> ranges);
  // Errors: those of the drive.
  Status read(std::uint64_t offset, MutableByteView into);
  Status write(std::uint64_t offset, ByteView bytes);
  Status flush();

  // The drive did not answer: operations may still be under way, so this object must stay for ever, and with
  // it the memory that it was told would.
  bool gave_up() const { return gave_up_; }
  // The first read that failed in every try: what stands there is not known, which is not the same as wrong.
  const Status& unreadable() const { return unreadable_; }
  std::uint64_t read_bytes() const { return read_bytes_; }
  std::uint64_t written_bytes() const { return written_bytes_; }
  BlockDevice& drive() { return drive_; }
  const Clock& clock() const { return clock_; }

 private:
  void read_once(std::span<Range*> ranges);
  Status run(BlockRequest request);
  // Ends of operations until there is at least one. Nothing: gave up.
  std::vector<BlockDone> wait_for_ends();

  BlockDevice& drive_;
  const Clock& clock_;
  Duration stall_after_;
  bool gave_up_ = false;
  Status unreadable_;
  std::vector<std::vector<std::byte>> kept_;  // of what is under way, unless its memory stays anyway
  std::uint64_t last_id_;
  std::uint64_t read_bytes_ = 0, written_bytes_ = 0;
};

}  // namespace tiercel::disk
