// The log's operations on its drive: each with what happens when it ends, none for longer than the drive is
// trusted. When operations fail in a row or one takes too long the tier is down, until a look at the
// superblock succeeds; a full drive refuses writes for a while and can still be read.
//
// Threads: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "disk/disk_options.h"
#include "disk/disk_stats.h"
#include "os/block_device.h"
#include "os/clock.h"

namespace tiercel::disk {

class DriveQueue final {
 public:
  using Then = std::function<void(const Status&)>;  // called once, by poll()

  DriveQueue(BlockDevice& drive, const Clock& clock, const DiskLogOptions& options, DiskStats& stats);

  // Goes to the drive as soon as that takes it. `then` gets unavailable where the tier went down before.
  // Memory of pieces is the operation's until then.
  void start(BlockRequest request, Then then);
  // Now or never. False: nothing happened.
  bool try_start(BlockRequest request, Then then);

  bool down() const { return down_; }
  bool blocks_writes() const { return down_ || no_space_until_ > clock_.now(); }
  bool idle() const { return ops_.empty() && waiting_.empty(); }
  std::size_t under_way() const { return ops_.size(); }
  // Ends, stalls, what waits, the look at a drive that is down. Returns how many things it did.
  std::size_t poll();
  Time next_due() const;
  void wait(Duration at_most) { drive_.wait(at_most); }

 private:
  struct Op {
    BlockWork work = BlockWork::kRead;
    Time since{0};
    Then then;
    bool stalled = false;  // counted
  };
  struct Waiting {
    BlockRequest request;
    Then then;
  };
  bool submit(BlockRequest& request, Then& then);
  void end(const BlockDone& done);
  void judge(BlockWork work, const Status& status);
  void trip(std::optional<BlockWork> by);
  bool stalls(Time now);
  void look();
  void looked(const Status& status);

  BlockDevice& drive_;
  const Clock& clock_;
  const DiskLogOptions& options_;
  DiskStats& stats_;
  std::uint64_t last_id_;
  std::map<std::uint64_t, Op> ops_;  // ascending: the oldest first
  std::deque<Waiting> waiting_;
  std::array<std::uint32_t, 3> failures_{};  // in a row, by work
  bool down_ = false, looking_ = false;
  std::optional<BlockWork> tripped_by_;  // nothing: a stall
  Time retry_at_{0};
  Duration retry_wait_;
  Time no_space_until_{0};
  Duration no_space_wait_;
  std::vector<std::byte> looked_at_;  // one block
};

}  // namespace tiercel::disk
