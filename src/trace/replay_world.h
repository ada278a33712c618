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
#include "os/child_process.h"
#include "os/clock.h"
#include "os/executor.h"
#include "remote/remote_tier.h"
#include "trace/pattern_device.h"
#include "trace/replay.h"

namespace tiercel {

inline constexpr std::string_view kTraceKeyScheme = "trace-block-1";

// A drive that ends everything under way at once, and only when it is told to: what a replay finds must not
// depend on how fast the drive is.
class TurnDrive final : public BlockDevice {
 public:
  explicit TurnDrive(std::unique_ptr<BlockDevice> drive) : drive_(std::move(drive)) {}
  std::uint64_t size_bytes() const override { return drive_->size_bytes(); }
  bool submit(BlockRequest request) override {
    const bool taken = drive_->submit(std::move(request));
    under_way_ += taken ? 1 : 0;
    return taken;
  }
  std::vector<BlockDone> drain() override { return std::exchange(ended_, {}); }
  // For callers that know nothing of turns: opening and closing a log.
  void wait(Duration) override { end_turn(); }
  // Waits until all has ended. False: nothing was under way.
  bool end_turn();

 private:
  std::unique_ptr<BlockDevice> drive_;
  std::uint64_t under_way_ = 0;
  std::vector<BlockDone> ended_;
};

class ReplayWorld final {
 public:
  // Errors: what the node says; resource_exhausted when a record, or all of the trace's, take more extents
  // than a replay could get through.
  static Result<std::unique_ptr<ReplayWorld>> open(const Trace& trace, const ReplayOptions& options);

  // Everything that the node has to do is done when this returns, as far as it needs no drive and no store.
  void settle();
  // The same with the drive, and what is stored remotely.
  void settle_all();
  // Until a match is answered. False: it is not, in a time that is beyond any deadline of a store.
  bool settle_match(TicketId ticket);
  // As if the process ended and another began: what is resident is written down and forgotten. Errors: what
  // cannot be opened again.
  Result<ReplayRestart> restart();
  // What is on its way to the store is there, then it is closed.
  void close_remote();
  // Null: no disk, no remote store.
  const DiskLog* disk() const { return log_.get(); }
  const RemoteTier* remote() const { return remote_.get(); }

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
  Status open_remote();
  Status open_node();
  bool storing() const;

  ModelSpec spec_;
  NodeOptions node_options_;
  std::uint64_t page_bytes_ = 0;
  std::optional<ReplayDiskOptions> disk_options_;
  DiskLogOptions log_options_;
  std::optional<ReplayRemoteOptions> remote_options_;

  ManualClock clock_;
  InlineExecutor executor_;
  std::unique_ptr<ThinArena> arena_;
  std::unique_ptr<PatternDevice> device_;
  std::unique_ptr<TurnDrive> drive_;
  std::unique_ptr<DiskLog> log_;
  SteadyClock store_clock_;
  LinuxChildProcesses children_;
  std::unique_ptr<RemoteStore> store_;
  std::unique_ptr<RemoteTier> remote_;
  std::unique_ptr<Node> node_;
  FormId form_;
  SessionId session_;
  NamespaceId ns_;
};

}  // namespace tiercel
