// A store on a folder of a shared file system, in this process: one file for each object, published whole and
// in one step, checked when it is read. Nothing is listed, ever. A file system that hangs holds threads of
// this store and nothing else: bytes pass through a buffer of the thread's own, so that a batch which has
// ended for whatever reason is quiet, and its memory is never touched again.
//
// A file ends with a trailer (docs/format.md): length, checksums of bytes and name. What does not agree with
// it is removed when it is met, and absent; so nothing is waited for to be on the device: a crash of the
// machine that has the device may tear files, which is seen.
//
// Threads: as RemoteStore; workers of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/mapping.h"
#include "remote/posix_calls.h"
#include "remote/remote_store.h"

namespace tiercel {

struct PosixStoreOptions {
  std::string folder;  // made if it is not there; the folder above it must be
  unsigned threads = 4;
  std::uint64_t exchange_bytes = 64U << 20;
  std::size_t batches_max = 256;  // under way at once
  MutableByteView arena;          // region 1; outlives the store
};

class PosixStore final : public RemoteStore {
 public:
  // Removes what killed processes left unfinished. Errors: invalid_argument: options that make no sense, a
  // folder of something else; unavailable: it may not be written to, or cannot be reached;
  // resource_exhausted: memory, threads. Blocks: on the file system. Lives: `clock` and `calls` outlive the
  // store, and a thread of it that hangs.
  static Result<std::unique_ptr<PosixStore>> open(const PosixStoreOptions& options, const Clock& clock,
                                                  const PosixCalls& calls = linux_posix_calls());
  ~PosixStore() override;

  Result<RemoteBatchId> submit(RemoteBatch batch) override;
  void cancel(RemoteBatchId batch) override;
  std::vector<RemoteEvent> drain() override;
  void wait(Duration at_most) override;
  Time next_due() const override;
  int end_fd() const override;
  RemoteHealth health() const override;
  std::byte* exchange() override;
  std::uint64_t exchange_bytes() const override { return options_.exchange_bytes; }
  void close(Duration at_most) override;

 private:
  struct Batch;
  struct Shared;
  PosixStore(const PosixStoreOptions& options, const Clock& clock, std::shared_ptr<Shared> shared);
  void finish(std::uint64_t id, Batch& batch, RemoteOutcome rest);

  const PosixStoreOptions options_;
  const Clock& clock_;
  const std::shared_ptr<Shared> shared_;  // of this store and its workers, one of which may hang for ever
  std::uint64_t last_id_ = 0;
  std::vector<RemoteEvent> events_;
  bool closed_ = false;
};

}  // namespace tiercel
