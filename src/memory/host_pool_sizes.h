// How many pages each pool of a group gets: a number of pages, a total of bytes or a ratio, worked out for
// index domains (a pool with slots of its own, and every pool that uses them).
//
// Threads: pure values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/host_pool_plan.h"

namespace tiercel {

// One index domain.
struct SlotDomain {
  std::string pool;         // whose slots they are
  std::uint64_t share = 1;  // pages that a resume point needs; not 0
  std::uint64_t device_pages = 0;
};

// A buffer that the group allocates: bytes for each page of its domain, at a multiple of `alignment`.
struct OwnedBuffer {
  std::uint32_t domain = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t alignment = 1;
};

// The buffers one behind the other, each aligned; nothing when that passes 2^63 - 1.
std::optional<std::uint64_t> laid_out_bytes(const std::vector<OwnedBuffer>& buffers,
                                            const std::vector<std::uint64_t>& pages);

// Pages of each domain. `rounding`: the total counts in multiples of it. Errors: invalid_argument, as
// plan_host_pools() says.
Result<std::vector<std::uint64_t>> pages_of(const std::vector<SlotDomain>& domains,
                                            const std::vector<OwnedBuffer>& buffers, const Capacity& capacity,
                                            std::uint64_t rounding);

}  // namespace tiercel
