// The host pools of one engine rank as a pure value: which pools there are, how each is laid out, whose slots
// it uses, how many pages it has, and where each of its buffers lies. Everything else (bytes required and
// mapped, ranges to register, segments of a page) follows from it, so that a second process that makes the
// same plan finds the same bytes.
//
// A group has one kind of memory. A pool has no say in it.
//
// Threads: pure values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/sha256.h"
#include "base/status.h"
#include "memory/memory_kind.h"
#include "model/pool_layout.h"

namespace tiercel {

// ---- what is asked for ----

// Where one buffer of a pool is to lie.
struct OwnBuffer {};   // in memory of the group's own
struct SameBufferAs {  // in bytes of a buffer of this pool or of one added before, from `offset` on
  std::string pool;
  std::uint32_t buffer = 0;
  std::uint64_t offset = 0;
};
struct BufferAt {  // in the caller's memory, inside one of its allocations; empty: absent
  MutableByteView bytes;
};
using BufferSource = std::variant<OwnBuffer, SameBufferAs, BufferAt>;

struct HostPoolRequest {
  PoolShape shape;  // its name is unique in the group
  Layout layout;
  // The pool, added before, whose slot indices this one uses: index keys and draft KV use their anchor's.
  // Empty: it has slots of its own.
  std::string slots_of;
  // Pages (or snapshots) that one resume point needs: how total bytes are split. Of pools with slots of their
  // own.
  std::uint64_t pages_per_resume_point = 1;
  std::uint64_t device_pages = 0;     // of the device pool, for a capacity by ratio
  bool replicated = false;            // every rank holds the same bytes
  std::vector<BufferSource> buffers;  // one for each of the layout's; empty: all own
};

// A number of pages (or snapshots) for every pool with slots of its own, and of the named ones another.
struct PagesCapacity {
  std::uint64_t pages = 0;
  std::vector<std::pair<std::string, std::uint64_t>> pools = {};
};
// At most so many bytes mapped, side pools and rounding included, split by what a resume point costs.
struct TotalCapacity {
  std::uint64_t bytes = 0;
};
// So many times the pages of the device pools, rounded up.
struct RatioCapacity {
  double ratio = 0;
};
using Capacity = std::variant<PagesCapacity, TotalCapacity, RatioCapacity>;

struct HostPoolPlanOptions {
  MemoryKind kind = MemoryKind::kAnonymous;
  Capacity capacity;
  std::vector<MutableByteView> allocations = {};  // of kExternal: what the caller allocated, whole
};

// The pools of all groups of a model, one rank and one pipeline stage: required groups share the first one's
// slots, windows of one length and states too; followers use those of the group that they follow. Stages that
// are split by bytes or a ratio may come to unlike numbers of pages: plan each, and give all of them the
// smallest as PagesCapacity.
struct StackOptions {
  Layout layout;
  std::vector<std::pair<std::string, Layout>> layouts = {};  // of single pools, by name
  Stage stage = {};
  // Pages of full groups for each resume point, that is for each snapshot and each window: as far apart as
  // resume points are meant to be.
  std::uint64_t full_pages_per_resume_point = 1;
  std::vector<std::pair<std::string, std::uint64_t>> device_pages =
      {};  // by name of a pool with slots of its own
};
// One of them: its shape, whether it is replicated, and what a resume point needs of it. Requires: the group
// is there.
HostPoolRequest request_of(const StorageForm& form, std::uint32_t group, Stage stage,
                           std::uint64_t full_pages_per_resume_point);
// All of them. Errors: invalid_argument for a name that no pool has, or one that is given twice.
Result<std::vector<HostPoolRequest>> stack_of(const StorageForm& form, const StackOptions& options);

// ---- what there is ----

// Of one buffer. Without bytes: allocation 0, offset 0.
struct BufferPlace {
  std::uint32_t allocation = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const BufferPlace&, const BufferPlace&) = default;
};

struct HostPool {
  PoolLayout layout;
  std::uint32_t slots_of = 0;  // index of the pool with the slots, which may be this one
  bool replicated = false;
  std::vector<BufferPlace> buffers;  // as layout.buffer_bytes

  const std::string& name() const { return layout.shape.name; }
  std::uint64_t pages() const { return layout.pages; }
  // The place of a global layer id among this pool's layers; nothing: the pool skips it.
  std::optional<std::uint32_t> layer_index(std::uint32_t layer) const;
  friend bool operator==(const HostPool&, const HostPool&) = default;
};

struct HostPoolPlan {
  MemoryKind kind = MemoryKind::kAnonymous;
  std::vector<HostPool> pools;             // in the order in which they were added
  std::vector<std::uint64_t> allocations;  // bytes of each, as far as buffers reach (external: whole)

  std::optional<std::uint32_t> find(std::string_view name) const;
  // How many layers a load counts: 1 + the largest id of any pool, not their number, so that holes are layers
  // that every pool skips.
  std::uint32_t layer_end() const;
  friend bool operator==(const HostPoolPlan&, const HostPoolPlan&) = default;
};

// Allocates nothing. Errors: invalid_argument, naming the pool: a name that is empty or there twice; layers
// that do not rise; slots of a pool that is not there or has pages of another size; a layout that does not
// fit the shape; fewer or more buffers than the layout has; a buffer that is null, outside of every
// allocation, or longer than what it is to lie in; memory of a caller in a group that is not external, and
// the other way round; no pool at all; a capacity of nothing, or too small for a page or snapshot of every
// pool (it says which would do); sizes beyond 2^63 - 1.
Result<HostPoolPlan> plan_host_pools(const std::vector<HostPoolRequest>& requests,
                                     const HostPoolPlanOptions& options);

// Bytes in use: the union of all buffers of all pools, so that what two of them name counts once.
std::uint64_t required_bytes(const HostPoolPlan& plan);

// What is claimed for that: each allocation in whole pages, of 2 MiB where the group allocates and of 4 KiB
// where the caller does.
std::uint64_t mapped_bytes(const HostPoolPlan& plan);

// Where a segment of a pool's page lies.
struct SegmentPlace {
  std::uint32_t allocation = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const SegmentPlace&, const SegmentPlace&) = default;
};
// Requires: a segment of page_segments() of that pool.
SegmentPlace place_of(const HostPool& pool, const Segment& segment);

// Where an allocation is cut to be registered piece by piece: offsets of the pieces' ends, the last one its
// mapped length; each piece at most `piece_bytes` long, at borders of 4 KiB, and no run of any page lies in
// two pieces. Errors: invalid_argument when a single run is too long for that, naming its pool.
Result<std::vector<std::uint64_t>> registration_cuts(const HostPoolPlan& plan, std::uint32_t allocation,
                                                     std::uint64_t piece_bytes);

// All of it as text, one fact a line; equal text = equal plan.
std::string plan_text(const HostPoolPlan& plan);
Digest plan_fingerprint(const HostPoolPlan& plan);  // SHA-256 of it

}  // namespace tiercel
