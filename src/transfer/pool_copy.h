// Pages between two pools, whatever their layouts, layer by layer: each layer has an event, so that a forward
// pass waits for the layer that it is about to read and for no later one. Between memory that this processor
// reaches, worker threads copy; to and from a device that it cannot look into, the device's own streams do.
//
// Threads: a LayeredCopy is started, stepped and destroyed by one thread; waited for, asked and cancelled by
// any.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "device/device.h"
#include "model/copy_plan.h"
#include "os/clock.h"
#include "os/executor.h"
#include "transfer/fragment_copy.h"

namespace tiercel {

// A buffer of a pool: in memory that this processor reaches (`host`), or at an address of the pool's device.
struct PoolBuffer {
  std::byte* host = nullptr;
  std::uint64_t address = 0;  // without `host`
  std::uint64_t bytes = 0;
};
PoolBuffer host_buffer(MutableByteView bytes);

// Where the bytes of a pool are: buffers as its layout numbers them, for each rank whose pool it is (targets
// have one). A device that shows its memory (Device::host_view) is copied as host memory.
struct PoolMemory {
  Device* device = nullptr;  // needed where a buffer has no `host`; outlives the copy
  std::vector<std::vector<PoolBuffer>> ranks;
};

// Granules between one pair of pools: source_granules[i] goes to target_granules[i].
struct PoolCopy {
  std::shared_ptr<const CopyPlan> plan;  // with other copies between the two pools
  PoolMemory source, target;
  std::vector<std::uint64_t> source_granules, target_granules;
  // What the bytes of each of plan->layers and of each granule must sum to, as LayeredCopy::sums() has it;
  // empty: not compared.
  std::vector<std::vector<std::uint32_t>> expected_sums;
};

struct LayeredCopyOptions {
  // At most so many tasks on the executor; a copy with a device's streams takes one. 0: none, the owner calls
  // step().
  unsigned workers = 2;
  // Work is cut, at granules, into pieces of about so many bytes: between two of them a copy can be
  // cancelled.
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  // Makes sums() known; also set by expected sums, kSource unless said otherwise.
  std::optional<PlanSide> sums;
  // The stream to use, so that copies follow what the engine put there; null: one is opened. Outlives the
  // copy, which alone uses it meanwhile.
  DeviceStream* stream = nullptr;
  // How much may be on its way in a stream: what a cancel waits for.
  std::uint64_t in_flight_bytes = std::uint64_t{64} << 20;
};

enum class LayeredCopyState : std::uint8_t { kRunning, kDone, kCancelled, kFailed };

class LayeredCopy final {
 public:
  // Begins. Parts are different pools of one model: a layer's event is that of all of them. A plan without
  // cuts (kAllLayers) makes every layer wait for all of it. `executor` may be null when options.workers is 0.
  // Errors, before any byte is written: invalid_argument for lists of different lengths, an index beyond its
  // pool, a target twice, buffers that the plan does not fit; unsupported from device to device; what the
  // device says when it opens no stream. Lives: memory, device and stream until the copy is destroyed.
  // Requires: nobody reads a target, or writes a source, before the layer's event; sources and targets do not
  // overlap. Cost: O(granules log granules).
  static Result<LayeredCopy> start(std::vector<PoolCopy> parts, const LayeredCopyOptions& options,
                                   Executor* executor);
  LayeredCopy(LayeredCopy&&) noexcept;
  LayeredCopy& operator=(LayeredCopy&&) = delete;
  ~LayeredCopy();  // cancels, and blocks until no byte of source or target is touched any more

  // Blocks until the bytes of that layer of every part are there: at once for a layer that no pool has.
  // Errors: deadline_exceeded; cancelled or the failure that ended the copy before this layer was whole.
  // `deadline` is of SteadyClock.
  Status wait_layer(std::uint32_t layer, Time deadline = Time::max());
  bool layer_ready(std::uint32_t layer) const;
  // All that this copy has and whose events were given; whatever ended the copy, their bytes stay whole, and
  // those of other layers are unspecified.
  std::vector<std::uint32_t> whole_layers() const;

  LayeredCopyState state() const;  // kRunning until source and target are the caller's again
  // Blocks until state() is not kRunning. Errors: deadline_exceeded; cancelled; the copy's failure.
  Status wait(Time deadline = Time::max());
  // No event is given from now on; what is on its way ends at a granule. wait() says when it has.
  void cancel();

  // Carries out one piece on this thread, or gives the next to the device; never blocks on a device. False:
  // there is nothing more to do. Requires: options.workers was 0.
  bool step();

  // CRC-32C of each granule of part `part` in plan->layers[layer]: nests in the plan's order, and in each its
  // bytes by ascending address on the side that options.sums names. Requires: sums or expected sums were
  // asked for, and that layer is ready.
  std::span<const std::uint32_t> sums(std::size_t part, std::size_t layer) const;

 private:
  class Work;
  class Runner;
  class RunnerTask;
  LayeredCopy(std::shared_ptr<Work> work, std::unique_ptr<Runner> stepped);
  std::shared_ptr<Work> work_;  // with the tasks of the executor
  std::unique_ptr<Runner> stepped_;
};

}  // namespace tiercel
