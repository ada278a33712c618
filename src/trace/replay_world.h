// The world that a replay's node lives in: memory that keeps the first bytes of each record, an engine whose
// bytes follow from keys, copies at once, the trace's time. Sized so that nothing but the replay's own limits
// ever binds.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "disk/disk_log.h"
#include "memory/arena.h"
#include "node/node.h"
#include "os/block_device.h"
#include "os/clock.h"
#include "os/executor.h"
#include "trace/pattern_device.h"
#include "trace/replay.h"

namespace tiercel {

inline constexpr std::string_view kTraceKeyScheme = "trace-block-1";

// A drive that knows how much of its work has not ended.
class BusyDrive final : public BlockDevice {
 public:
  explicit BusyDrive(std::unique_ptr<BlockDevice> drive) : drive_(std::move(drive)) {}
  std::uint64_t size_bytes() const override { return drive_->size_bytes(); }
  bool submit(BlockRequest request) override {
    const bool taken = drive_->submit(std::move(request));
    busy_ += taken ? 1 : 0;
    return taken;
  }
  std::vector<BlockDone> drain() override {
    std::vector<BlockDone> ends = drive_->drain();
    busy_ -= ends.size();
    return ends;
  }
  void wait(Duration at_most) override { drive_->wait(at_most); }
  std::uint64_t busy() const { return busy_; }

 private:
  std::unique_ptr<BlockDevice> drive_;
  std::uint64_t busy_ = 0;
};

class ReplayWorld final {
 public:
  // Errors: what the node says; resource_exhausted when a record, or all of the trace's, take more extents
  // than a replay could get through.
  static Result<std::unique_ptr<ReplayWorld>> open(const Trace& trace, const ReplayOptions& options);

  // Everything that the node, and the drive, have to do is done when this returns.
  void settle();
  // As if the process ended and another began: what is resident is written down and forgotten. Errors: what
  // cannot be opened again.
  Result<ReplayRestart> restart();
  // Null: no disk.
  const DiskLog* disk() const { return log_.get(); }

  ManualClock& clock() { return clock_; }
  PatternDevice& device() { return *device_; }
  Node& node() { return *node_; }
  const StorageForm& form() const { return node_->form(form_); }
  SessionId session() const { return session_; }
  NamespaceId ns() const { return ns_; }

 private:
  ReplayWorld() = default;
  Status open_all();
  Status open_disk();
  Status open_node();

  ModelSpec spec_;
  NodeOptions node_options_;
  std::uint64_t page_bytes_ = 0;
  std::optional<ReplayDiskOptions> disk_options_;
  DiskLogOptions log_options_;

  ManualClock clock_;
  InlineExecutor executor_;
  std::unique_ptr<ThinArena> arena_;
  std::unique_ptr<PatternDevice> device_;
  std::unique_ptr<BusyDrive> drive_;
  std::unique_ptr<DiskLog> log_;
  std::unique_ptr<Node> node_;
  FormId form_;
  SessionId session_;
  NamespaceId ns_;
};

}  // namespace tiercel
