// Items of stores and reservations as they cross the ABI.
//
// Threads: pure functions.
#pragma once

#include <span>
#include <string_view>

#include <tiercel/types.h>
#include <tiercel/writers.h>

#include "capi/answer.h"
#include "capi/handles.h"
#include "node/node.h"

namespace tiercel::capi {

// The caller's options and items, whatever needs no lock checked. Errors: invalid_argument for the whole
// call.
Answer read_store(std::string_view name, const tiercel_store_options* options, tiercel_store_options& given,
                  std::span<const tiercel_store_item>& items);

// Errors: unsupported: tell_lower, and the node has no disk.
Answer check_tell_lower(std::string_view name, const Core& core, const tiercel_store_options& given);

StoreRequest request_of(const tiercel_namespace& ns, RequestId request,
                        std::span<const tiercel_store_item> items);

// `to` may be null.
void write_outcomes(std::span<const StoreOutcome> from, tiercel_outcome* to);

}  // namespace tiercel::capi
