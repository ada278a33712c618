// How pages go from one pool's layout to another's: a pure value, made once for a pair of layouts, carried
// out for any list of pages (src/transfer). No address is computed anywhere else.
//
// The unit is a granule of tokens: a page, a part of a page, or one token. Granule i lies in page i /
// per_page of its side, at token (i % per_page) × granule: so that lists of pages, lists of token slots, and
// pools of different page sizes are the same thing.
//
// Threads: pure values and functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/pool_layout.h"

namespace tiercel {

// Repeats what is inside it.
struct CopyLoop {
  std::uint64_t count = 1;
  std::uint64_t source_step = 0, target_step = 0;  // bytes
  friend bool operator==(const CopyLoop&, const CopyLoop&) = default;
};

// Where granule i begins on one side: offset + (i / per_page) × page + (i % per_page) × granule.
struct CopySide {
  std::uint32_t shard = 0;  // which rank's buffers: sources of other shardings have several, targets one
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
  std::uint64_t page = 0, granule = 0;  // strides in bytes
  friend bool operator==(const CopySide&, const CopySide&) = default;
};

// Bytes of one tensor of one layer: for each granule, `loops` (outermost first) around a run of `length`
// bytes that is contiguous on both sides. The runs of one granule do not overlap on the target.
struct CopyNest {
  CopySide source, target;
  std::uint64_t length = 0;
  std::array<CopyLoop, 4> loops;
  std::uint32_t loop_count = 0;
  std::uint64_t fragments() const;  // runs of one granule
  std::uint64_t bytes() const { return fragments() * length; }
  friend bool operator==(const CopyNest&, const CopyNest&) = default;
};

// How a plan is cut: by layer, so that each can have its event; or whole, which merges runs across layers.
enum class CopyScope : std::uint8_t { kByLayer, kWhole };
inline constexpr std::uint32_t kAllLayers = UINT32_MAX;

struct LayerCopy {
  std::uint32_t layer = 0;      // global id; kAllLayers: the one entry of a plan that is not cut by layer
  std::vector<CopyNest> nests;  // never of length 0
};

struct CopyPlan {
  std::uint64_t granule_tokens = 0;                        // 0: a granule is a snapshot
  std::uint64_t source_per_page = 1, target_per_page = 1;  // granules in a page
  std::uint64_t source_granules = 0, target_granules = 0;  // every index is below these
  std::vector<LayerCopy> layers;                           // ascending
  std::uint64_t granule_bytes() const;                     // all layers
};

struct CopyUnit {
  std::uint64_t granule_tokens = 0;
  CopyScope scope = CopyScope::kByLayer;
};

// Granules of `unit.granule_tokens` (0: the smaller of the two page sizes; a snapshot for states), all layers
// of both pools, which must be the same. Errors: invalid_argument when tensors or layers differ (naming the
// first), when neither page size divides the other, when the granule does not divide both or cuts an entry of
// a compressed group or an opaque page. Cost: O(layers × tensors).
Result<CopyPlan> plan_copy(const PoolLayout& source, const PoolLayout& target, CopyUnit unit = {});

// The same when the source was written by `source_ranks` ranks, each with a pool laid out as `source`, and
// the target is rank `rank` of `target_ranks`: heads are cut or merged, sections each by itself, and what
// every rank holds alike is read once, from the first rank that has it. `whole` is the pool of a model that
// is not sharded (tp 1). Errors: also when a shape is not what cutting `whole` gives.
struct Ranks {
  std::uint32_t source_ranks = 1;
  std::uint32_t target_ranks = 1;
  std::uint32_t rank = 0;  // of the target
};
Result<CopyPlan> plan_reshard(const PoolShape& whole, const PoolLayout& source, const PoolLayout& target,
                              Ranks ranks, CopyUnit unit = {});

}  // namespace tiercel
