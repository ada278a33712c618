// The most pages that any eviction could have hit: Belady's rule with the whole trace known, full attention
// alone. Beside a hybrid model it is the bound of its full-attention pages and no more.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "trace/trace.h"

namespace tiercel {

// Pages hit by the best possible cache of `capacity_pages` (nothing: unlimited), which may keep, after each
// request, any of the pages that it had and that the request brought. Victim: the page whose next use is
// furthest away, the deepest of equal ones; a new page that would be that victim is not kept at all. A
// request holds no page twice. Cost: O(references × log capacity).
std::uint64_t bound_hit_pages(std::span<const TraceRequest> requests,
                              std::optional<std::uint64_t> capacity_pages);

}  // namespace tiercel
