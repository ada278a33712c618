// On which memory nodes (NUMA) a mapping is to lie, and where it came to lie. The rule is given to the kernel
// before any page is touched, and afterwards the kernel is asked where the pages are: a rule that was set is
// no proof that it was followed (pages that another process had touched before stay where they are).
//
// Threads: pure values and functions; verify_placement() only asks the kernel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "os/mapping_calls.h"

namespace tiercel {

enum class NumaMode : unsigned char {
  kSystem,      // wherever the kernel puts it: the node of whoever touches a page first
  kInterleave,  // page by page over all nodes
  kBind,        // one node and no other
  kPerShard,    // one node, which follows from the shard: neighbouring shards share a node
};

struct NumaPlacement {
  NumaMode mode = NumaMode::kSystem;
  std::uint32_t node = 0;               // of kBind
  std::uint32_t shard = 0, shards = 1;  // of kPerShard
  friend bool operator==(const NumaPlacement&, const NumaPlacement&) = default;
};

// "system", "interleave", "bind 1", "per_shard" (of this shard). Errors: invalid_argument with the accepted
// forms.
Result<NumaPlacement> numa_from_text(std::string_view text, std::uint32_t shard = 0,
                                     std::uint32_t shards = 1);
std::string numa_text(const NumaPlacement& placement);

// The nodes out of `available` (ascending) that pages may lie on; of kSystem all. Shard s of n lies on node
// number s × nodes / n, so that neighbours share one. Errors: invalid_argument for a node that is not there,
// for a shard that is not below `shards`, and when no node is available.
Result<std::vector<std::uint32_t>> nodes_of(const NumaPlacement& placement,
                                            std::span<const std::uint32_t> available);

struct NumaReport {
  NumaPlacement wanted;
  std::vector<std::uint32_t> nodes;  // that were allowed
  struct Share {
    std::uint32_t node = 0;
    std::uint64_t pages = 0;  // of those looked at
    friend bool operator==(const Share&, const Share&) = default;
  };
  std::vector<Share> found;      // ascending by node
  std::uint64_t looked_at = 0;   // small pages: all of them, or a sample
  std::uint64_t misplaced = 0;   // of those, on a node that was not allowed
  std::uint64_t unanswered = 0;  // of those, the kernel did not say
  std::string declined;          // why nothing was looked at
  bool as_wanted() const { return looked_at > 0 && misplaced == 0 && unanswered == 0; }
  friend bool operator==(const NumaReport&, const NumaReport&) = default;
};

// One line for people: "interleave over 0,1: 512 pages on 0, 512 on 1".
std::string numa_report_text(const NumaReport& report);

// Asks the kernel where the pages of `bytes` lie, at most 2^18 of them, spread evenly (by an odd step, so
// that taking turns between nodes does not look like one node). Requires: every page has been touched. Cost:
// about 0.2 µs a page.
NumaReport verify_placement(ByteView bytes, const NumaPlacement& placement,
                            std::span<const std::uint32_t> nodes, const MappingCalls& calls);

}  // namespace tiercel
