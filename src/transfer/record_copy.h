// Moving records between engine memory and the arena: pure plans (which record, which slot, which layers) and
// the functions that carry them out. Checksums are made when a record is written and checked when it is read;
// the control plane never touches payload bytes itself.
//
// Threads: carry_out() works on any thread; a copy owns everything it needs or shares it read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "device/device.h"
#include "memory/arena.h"
#include "memory/record.h"
#include "model/storage_form.h"
#include "os/executor.h"
#include "os/thread_annotations.h"

namespace tiercel {

// A record in the arena: where it lies and what its header must say.
struct RecordPlace {
  std::shared_ptr<const StorageForm> form;  // shared by the node's form table and the copies under way
  ClassId cls;
  std::vector<ArenaSpan> spans;
  RecordLabel label;  // memory/record.h: namespace, key, class, shard, generation
};

struct LayerRange {  // indices into ClassForm::layers, [first, last)
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

enum class CopyKind : std::uint8_t {
  kStore,   // engine → arena, then header with checksums
  kSeal,    // the payload was written in place: header with checksums
  kVerify,  // arena only: header and the layers' checksums
  kAdopt,   // as kVerify, of a record that came from a lower tier; then its header gets `generation`
  kLoad,    // arena → engine, the layers only; verifies what it copied when `verify`
};

struct RecordCopy {
  CopyKind kind = CopyKind::kVerify;
  RecordPlace place;
  std::shared_ptr<const DevicePool>
      engine;              // not for kSeal, kVerify; shared by the registration and the copies under way
  std::uint64_t slot = 0;  // of `engine`
  LayerRange layers;       // ignored by kStore and kSeal: all
  bool verify = true;      // kLoad
  // kSeal: what the writer says each layer's checksum is; empty: it says nothing.
  std::vector<std::uint32_t> checksums;
  bool trusted = false;          // kSeal: they become the header's, unread
  std::uint32_t generation = 0;  // kAdopt: of the class-set that it becomes; not 0
};

// Carries out one copy now. A load checks the header first, with or without `verify`, and copies nothing when
// it is wrong. A verifying load checksums the very bytes that it hands to the device, layer by layer, and
// stops at the first damaged layer: what it wrote of that one is not to be used. A store leaves no valid
// header behind when it fails: the old one is destroyed first. In a thin arena only the kept bytes are copied
// and checked. A seal whose checksums are given compares them with those of the bytes that it finds, unless
// they are trusted: then it reads no payload, and what is wrong shows at the first verifying read. An
// adoption leaves no valid header behind when it fails. Requires: label.cls = cls; an engine pool of that
// class that validate() accepts, and a slot of it; layers within the class. Errors: data_corrupt naming
// header field or layer; whatever the device says.
Status carry_out(const RecordCopy& copy, Arena& arena, Device& device);

// Copies the first `kept_bytes` of a record, header included, inside the arena. Requires: both records have
// so many, and share none.
void move_record(std::span<const ArenaSpan> from, std::span<const ArenaSpan> to, std::uint64_t kept_bytes,
                 Arena& arena);

struct CopyDone {
  OperationId operation;
  std::uint64_t index = 0;  // the submitter's own number of the copy
  Status status;
};

// Ends of copies on their way back to the control thread, in the order in which they were pushed.
// Threads: push from any thread, drain from one.
class CopyDoneQueue final {
 public:
  void push(CopyDone done);
  std::vector<CopyDone> drain();  // all so far, each once

 private:
  Mutex mutex_;
  std::vector<CopyDone> done_ TIERCEL_GUARDED_BY(mutex_);
};

// Runs the copy on the executor, then pushes its end. `arena`, `device` and `queue` must outlive the task.
std::unique_ptr<Task> make_copy_task(OperationId operation, std::uint64_t index, RecordCopy copy,
                                     Arena& arena, Device& device, std::shared_ptr<CopyDoneQueue> queue);

}  // namespace tiercel
