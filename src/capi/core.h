// A node and everything that it is wired to, behind one lock. Handles of the ABI share it: it goes with the
// last of them; closing only empties it.
//
// Threads: all calls from any thread. Lock order: this lock, then a completion queue's.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "capi/answer.h"
#include "capi/engine_memory.h"
#include "capi/executors.h"
#include "capi/late_drive.h"
#include "capi/live.h"
#include "disk/disk_log.h"
#include "index/compact_index.h"
#include "index/lease_table.h"
#include "memory/mapped_arena.h"
#include "node/node.h"
#include "os/child_process.h"
#include "os/clock.h"
#include "os/processes.h"
#include "os/thread_annotations.h"
#include "remote/open_store.h"
#include "remote/remote_tier.h"

namespace tiercel::capi {

// Of the ABI's nanoseconds; what is beyond the end of time counts as it.
Duration duration_of(std::uint64_t nanoseconds);

// A disk tier below the node.
struct CoreDisk {
  std::string path;
  std::uint64_t bytes = 0;  // of the file or drive; 0: as many as it has
  DiskLogOptions log;
  Duration close_write_down = std::chrono::seconds(10);
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // while room is claimed
};

// A remote tier below it.
struct CoreRemote {
  StoreAddress address;
  RemoteTierOptions tier;
  Duration close_deadline = std::chrono::seconds(5);
  Duration wait_ready{0};
};

struct CoreOptions {
  NodeOptions node;
  std::optional<CoreDisk> disk;
  std::optional<CoreRemote> remote;
  std::uint64_t seed = 0;      // 0: a random one
  bool caller_drives = false;  // no control thread
  unsigned copy_threads = 0;   // 0: copies run inside drive()
  MappingKind memory = MappingKind::kAnonymous;
  unsigned touch_threads = 0;  // 0: as os/mapping.h has it
  // On the opening thread; true: give up.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress;
};

class Core final {
 public:
  // Errors: those of Node::open, of MappedArena::open and of what the disk needs.
  static Result<std::shared_ptr<Core>> open(const CoreOptions& options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Ends all that is under way, then the threads, then the node. Idempotent.
  void close() TIERCEL_EXCLUDES(mutex_);

  // body(Live&) under the lock, then the completions that it brought are given out. An answer of
  // failed_precondition, and body is not called, once the node is closing.
  template <typename Body>
  Answer locked(const Body& body) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (live_.closing) return closed();
    Answer answer = body(live_);
    settle(live_);
    return answer;
  }
  // body(Live&) under the lock, also when the node is closed.
  template <typename Body>
  void peek(const Body& body) TIERCEL_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    body(live_);
  }
  // Until ready(Live&) gives an Answer. Errors: deadline_exceeded; cancelled: closed meanwhile.
  template <typename Ready>
  Answer wait(std::uint64_t deadline_ns, const Ready& ready) TIERCEL_EXCLUDES(mutex_) {
    const Time end = later(clock_.now(), duration_of(deadline_ns));
    for (;;) {
      bool idle = !caller_drives_;
      {
        const MutexLock lock(mutex_);
        if (std::optional<Answer> answer = ready(live_)) return std::move(*answer);
        if (live_.node == nullptr) return {TIERCEL_CANCELLED, "the node was closed meanwhile"};
        const Time now = clock_.now();
        if (now >= end) return {TIERCEL_DEADLINE_EXCEEDED, "the deadline passed; wait again"};
        if (idle) changed_.wait_for(mutex_, std::min<Duration>(end - now, kTick));
      }
      if (!idle && drive(kTurn) == 0) wait_a_turn();
    }
  }
  // Copies, where no thread runs them, and the node's own work, for so long, one step at least. Returns: how
  // many things it did.
  std::uint64_t drive(Duration budget) TIERCEL_EXCLUDES(mutex_);
  // A deadline that may come before the control thread would look again.
  void expect(std::uint64_t deadline_ns, Live& live);
  // Work for the drive was begun: the control thread is to look at it now.
  void look_now() { wake_.raise(); }
  bool disk_open(const Live& live) const;                      // not switched off, not written down already
  const std::string& disk_text() const { return disk_text_; }  // of the drive, for people
  // Null: no disk, or switched off. Requires: the lock is held, the node is not closed.
  const DiskStats* disk_stats() const { return log_ != nullptr ? &log_->stats() : nullptr; }
  // Ends the disk tier. Requires: disk_open().
  WriteDown write_down(Live& live, Duration at_most);

  Time now() const { return clock_.now(); }
  bool off() const { return off_; }
  bool has_disk() const { return has_disk_; }  // was opened with one, also when it is switched off
  bool has_remote() const { return has_remote_; }
  // Null: no remote tier, or switched off. Requires: the lock is held, the node is not closed.
  const RemoteTier* remote() const { return remote_.get(); }
  const std::string& remote_text() const { return remote_text_; }  // its address, for people
  EngineMemory& memory() { return memory_; }
  // Requires: the node is not closed.
  MappedArena& arena() { return *arena_; }
  MappingKind memory_kind() const { return memory_kind_; }
  PageKind page_kind() const { return page_kind_; }

 private:
  static constexpr Duration kTick = std::chrono::milliseconds(50);
  static constexpr Duration kTurn = std::chrono::milliseconds(1);

  explicit Core(const CoreOptions& options);
  Status open_all(const CoreOptions& options);
  Status open_disk(const CoreDisk& wanted);
  Status reopen_disk(const CoreDisk& wanted);
  Status open_remote(const CoreRemote& wanted);
  Status watch_ends();
  Status open_arena(const CoreOptions& options, const Grant& grant);
  Status open_index(const Grant& grant, std::uint64_t seed);
  static Answer closed();
  std::size_t settle(Live& live);
  std::size_t step() TIERCEL_EXCLUDES(mutex_);
  bool close_begins() TIERCEL_EXCLUDES(mutex_);
  void control_loop() TIERCEL_EXCLUDES(mutex_);
  void wait_a_turn() TIERCEL_EXCLUDES(mutex_);

  // Constant after open.
  SteadyClock clock_;
  LinuxProcesses processes_;
  EngineMemory memory_;
  Wake wake_;
  const bool caller_drives_;
  const bool off_;
  const bool has_disk_;
  const bool has_remote_;
  const Duration close_write_down_, close_remote_;
  const MappingKind memory_kind_;
  PageKind page_kind_ = PageKind::kUnknown;
  std::optional<MappedArena> arena_;
  std::unique_ptr<LateDrive> drive_;  // of the log; reads and writes the arena where it stands
  std::unique_ptr<DiskLog> log_;
  bool disk_created_ = false;
  std::string disk_text_;
  LinuxChildProcesses children_;
  std::unique_ptr<RemoteStore> store_;
  std::unique_ptr<RemoteTier> remote_;
  std::string remote_text_;
  int disk_end_fd_ = -1;                 // of the drive
  int ends_fd_ = -1;                     // an epoll over that and the store's: readable while either is
  std::unique_ptr<CompactIndex> index_;  // in the arena, as the lease table is
  std::optional<LeaseTable> readers_;
  std::unique_ptr<Executor> executor_;
  CallerExecutor* own_copies_ = nullptr;  // executor_, when drive() runs the copies
  std::thread control_;

  Mutex mutex_;
  std::condition_variable_any changed_;  // completions were given out, or the node was closed
  Live live_ TIERCEL_GUARDED_BY(mutex_);
  bool stopping_ TIERCEL_GUARDED_BY(mutex_) = false;
};

}  // namespace tiercel::capi
