// What every block device on real system calls shares: operations that were accepted, in which order their
// attempts are made, and their ends on the way back to the submitter.
//
// Threads: submit(), drain() and wait() from one; the rest from those of the engine. Everything is guarded by
// one lock, which is never held over a system call that touches the drive.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/block_calls.h"
#include "os/block_device.h"
#include "os/block_progress.h"
#include "os/block_vectors.h"
#include "os/fd.h"
#include "os/thread_annotations.h"

namespace tiercel {

struct BlockQueueOptions {
  std::string name;              // of the drive, for errors
  std::uint64_t size_bytes = 0;  // of the drive
  // Written to the page cache: what a failed flush leaves there may be lost without another word, so no later
  // flush can be believed.
  bool cached = false;
  bool event = false;                // end_fd() is wanted
  std::size_t operations_max = 256;  // accepted and not drained
  std::size_t attempts_max = 64;     // under way in the system
  BlockVectorLimits limits;
};

class BlockQueue final {
 public:
  // Errors: unavailable: no file descriptor to be had.
  static Result<std::unique_ptr<BlockQueue>> create(BlockQueueOptions options);
  ~BlockQueue();
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;

  // ---- The submitter's side: as BlockDevice says ----
  bool submit(BlockRequest request) TIERCEL_EXCLUDES(mutex_);
  std::vector<BlockDone> drain() TIERCEL_EXCLUDES(mutex_);
  void wait(Duration at_most) TIERCEL_EXCLUDES(mutex_);
  // Something could be drained; or nothing is under way, so that nothing ever will be.
  bool nothing_to_wait_for() TIERCEL_EXCLUDES(mutex_);
  bool end_waits() TIERCEL_EXCLUDES(mutex_);
  // Readable while an end waits to be drained: an eventfd, for poll(); −1 unless wanted. Stays the queue's.
  int end_fd() const { return end_fd_.get(); }
  const BlockQueueOptions& options() const { return options_; }

  // ---- The engine's side ----
  struct Operation;
  struct Attempt {
    Operation* operation = nullptr;
    BlockCall call;
    BlockVectors vectors;
    const BlockMemory& memory() const;
  };
  // The next attempt: of the foreground before the background, which keeps a small share; with at most so
  // many bytes that bounce. Nothing: none at the moment.
  std::optional<Attempt> take(std::uint64_t bounce) TIERCEL_EXCLUDES(mutex_);
  // The same, waiting for one. Nothing: stop() was called.
  std::optional<Attempt> wait_and_take() TIERCEL_EXCLUDES(mutex_);
  void ended(const Attempt& attempt, int result) TIERCEL_EXCLUDES(mutex_);
  // From here on nothing is taken: what has not been started never will be.
  void stop() TIERCEL_EXCLUDES(mutex_);

 private:
  BlockQueue(BlockQueueOptions options, int end_fd);
  std::optional<Attempt> next(std::uint64_t bounce) TIERCEL_REQUIRES(mutex_);
  std::optional<Attempt> next_of(std::deque<Operation*>& ready, std::uint64_t bounce)
      TIERCEL_REQUIRES(mutex_);
  void tell(std::uint64_t id, Status status) TIERCEL_REQUIRES(mutex_);
  void remove(Operation* operation) TIERCEL_REQUIRES(mutex_);

  const BlockQueueOptions options_;
  const Fd end_fd_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<std::unique_ptr<Operation>> operations_ TIERCEL_GUARDED_BY(mutex_);
  std::deque<Operation*> foreground_ TIERCEL_GUARDED_BY(mutex_), background_ TIERCEL_GUARDED_BY(mutex_);
  std::size_t foreground_attempts_ TIERCEL_GUARDED_BY(mutex_) = 0;
  std::size_t background_attempts_ TIERCEL_GUARDED_BY(mutex_) = 0;
  std::vector<BlockDone> ends_ TIERCEL_GUARDED_BY(mutex_);
  Status flush_lost_ TIERCEL_GUARDED_BY(mutex_);
  bool stopping_ TIERCEL_GUARDED_BY(mutex_) = false;
};

}  // namespace tiercel
