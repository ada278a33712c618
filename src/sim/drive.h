// A simulated drive: blocks in memory whose operations end late and in any order, fail, stall, vanish and
// come back, and whose power can fail at any moment. What a power failure leaves is every write that a flush
// covered, and of each other one all, nothing, or any of its sectors. A lying drive does worse: it says that
// it wrote what it did not, writes to the wrong place, and lets bytes rot.
//
// Threads: one thread; time is the clock's that is given, and wait() moves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/prng.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel::sim {

// What one drive is like. Shares are of operations.
struct DriveNature {
  std::uint32_t depth = 32;  // operations under way at most
  Duration latency_max = std::chrono::microseconds(800);
  double late = 0.1;
  Duration late_max = std::chrono::milliseconds(60);
  double read_error = 0, write_error = 0, flush_error = 0, no_space = 0;
  double stall = 0;
  Duration stall_max = std::chrono::seconds(20);
  // Lies: acknowledged and not written; written elsewhere; read from elsewhere; bytes that change by
  // themselves.
  double lost = 0, misdirected = 0, misread = 0, rot = 0;
  double flip = 0;  // a bit of what was read changes on its way
  bool lies() const { return lost + misdirected + misread + rot + flip > 0; }
};

struct DriveCounts {
  std::uint64_t reads = 0, writes = 0, flushes = 0;  // submitted
  std::uint64_t written_bytes = 0;                   // submitted
  std::uint64_t written_ok_bytes = 0;                // ended well
  std::uint64_t failed = 0, stalled = 0, lies = 0;
  std::uint64_t torn = 0;  // writes of which a power failure left a part
};

// A write that no flush has covered yet.
struct UnflushedWrite {
  std::uint64_t id = 0;  // in order of ends
  std::uint64_t offset = 0;
  std::vector<std::byte> before, after;
};

// What a drive has, for the next one that stands for it.
struct DriveContent {
  std::vector<std::byte> bytes;
  std::vector<UnflushedWrite> unflushed;  // in bytes, and still to be lost
};

class SimDrive final : public BlockDevice {
 public:
  SimDrive(DriveContent content, ManualClock& clock, DriveNature nature, std::uint64_t seed);

  std::uint64_t size_bytes() const override { return content_.size(); }
  bool submit(BlockRequest request) override;
  std::vector<BlockDone> drain() override;
  // Nothing under way: a little time passes, as it does for whoever asks again and again.
  void wait(Duration at_most) override;

  // -- trouble ----
  enum class Trouble : std::uint8_t { kReadErrors, kWriteErrors, kFlushErrors, kNoSpace, kStall, kGone };
  // From now until `until`. Gone: what is under way fails at once; what ended before is kept.
  void trouble(Trouble kind, Time until);
  // No trouble, no single errors, no stalls from now on; what stalls ends soon. Lies stay.
  void calm();
  void restless() { calm_ = false; }
  // The power fails at the end of the n-th operation from now (0: now). All that is under way ends
  // `unavailable` then, and so does everything after.
  void power_fails_in(std::uint64_t operations);
  // So many operations after the next write below `offset` (of superblocks and images) or the next write of
  // one block (of a region's header) was submitted.
  void power_fails_after_write(std::uint64_t offset, bool one_block, std::uint64_t operations) {
    trap_ = Trap{offset, one_block, operations};
  }
  bool power_is_off() const { return power_off_; }
  // Nothing is lost but what is under way: the process dies, the drive does not. What no flush has covered
  // may still be lost, if the power fails under the next process.
  void process_dies();

  // -- looking ----
  std::size_t under_way() const { return operations_.size(); }
  std::optional<Time> next_end() const;
  const DriveCounts& counts() const { return counts_; }
  // What its user did that no user may: out of bounds, changed the memory of a write under way, let
  // operations overlap. The first one.
  const std::optional<std::string>& misuse() const { return misuse_; }
  // Whether every write and flush from now on is misuse.
  void forbid_writes(bool forbid) { writes_forbidden_ = forbid; }

  // What a new drive starts with: after power_fails_in() or process_dies(), or whatever is there. This one is
  // empty after it. Requires: nothing under way.
  DriveContent take_content();

 private:
  struct Operation {
    BlockRequest request;
    Time ends{0};
    Status fails;                  // how it will end
    std::vector<std::byte> bytes;  // of a write, as submitted
    std::uint64_t covers = 0;      // a flush: writes drained before it was submitted
    bool cut = false;              // the power failed under it: its end changes nothing
  };
  struct Trap {
    std::uint64_t offset = 0;
    bool one_block = false;
    std::uint64_t operations = 0;
  };
  void choose_end(Operation& operation);
  Status error_of(BlockWork work);
  BlockDone end(Operation& operation);
  void end_read(const Operation& operation);
  void end_write(const Operation& operation);
  void put(std::uint64_t offset, ByteView bytes);
  // What is left of `bytes` over `before` when the write of them was cut: all, nothing, or any sectors.
  std::vector<std::byte> part_of(ByteView before, ByteView bytes);
  std::uint64_t random_offset(std::uint64_t length);
  void rot();
  void cut_all(bool keep_ended);
  void note_misuse(std::string text);
  void check_overlap(const BlockRequest& request);
  bool troubled(Trouble kind) const { return clock_.now() < trouble_until_[static_cast<std::size_t>(kind)]; }

  std::vector<std::byte> content_;
  ManualClock& clock_;
  DriveNature nature_;
  Prng prng_;
  std::vector<Operation> operations_;
  std::vector<UnflushedWrite> unflushed_;
  std::uint64_t ended_writes_ = 0;
  Time trouble_until_[6] = {};
  std::optional<std::uint64_t> power_fails_in_;
  std::optional<Trap> trap_;
  bool power_off_ = false;
  bool calm_ = false;
  bool writes_forbidden_ = false;
  DriveCounts counts_;
  std::optional<std::string> misuse_;
};

}  // namespace tiercel::sim
