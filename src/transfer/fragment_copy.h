// Carries out one nest of a copy plan (model/copy_plan.h) for lists of granules, in memory that this
// processor reaches: runs that lie together on both sides are copied as one, and what will be copied next is
// asked for while this is copied.
//
// Threads: pure functions, on ranges that do not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/copy.h"
#include "model/copy_plan.h"

namespace tiercel {

// The i-th granule of one list goes to the i-th of the other.
struct GranuleLists {
  std::span<const std::uint64_t> source, target;
};

// The buffers that a nest names, from their first bytes on.
struct NestMemory {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
};

// Copies the nest's bytes of every listed granule. WritePath::kPastCache: copy_fence() before anybody is
// told. Requires: lists of one length, of granules that plan and buffers have; no target granule twice.
void copy_fragments(const CopyPlan& plan, const CopyNest& nest, NestMemory memory, GranuleLists granules,
                    WritePath path);

enum class PlanSide : std::uint8_t { kSource, kTarget };

// The same, and continues each granule's CRC-32C: sums[i] becomes that of what it was of, and of the bytes of
// this nest by ascending address on the side `order`: a store sums in the order of what it reads, and the
// load of the same bytes in the order of what it writes. Requires: as many sums as granules. Cost:
// copy_fragments() and about a fifth.
void copy_fragments(const CopyPlan& plan, const CopyNest& nest, NestMemory memory, GranuleLists granules,
                    WritePath path, PlanSide order, std::span<std::uint32_t> sums);

// Continues the same sums from the bytes as they lie on one side, `side` (from the first byte of its buffer
// on), without copying.
void sum_fragments(const CopyPlan& plan, const CopyNest& nest, PlanSide side, const std::byte* memory,
                   GranuleLists granules, PlanSide order, std::span<std::uint32_t> sums);

// A run of bytes between two buffers.
struct Fragment {
  std::uint64_t source_offset = 0;
  std::uint64_t target_offset = 0;
  std::uint64_t length = 0;
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// Appends what copy_fragments() would copy, neighbours merged: for memory that somebody else must copy.
// Requires: as for copy_fragments().
void append_fragments(const CopyPlan& plan, const CopyNest& nest, GranuleLists granules,
                      std::vector<Fragment>& fragments);

namespace detail {
// Requires: copy_has(body).
void copy_fragments_by(CopyBody body, const CopyPlan& plan, const CopyNest& nest, NestMemory memory,
                       GranuleLists granules, WritePath path);
}  // namespace detail

}  // namespace tiercel
