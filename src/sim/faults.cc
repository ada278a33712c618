#include "sim/faults.h"

#include <algorithm>

#include "base/fault.h"

namespace tiercel::sim {
namespace {

constexpr Fault kFaults[] = {
    {"publish_before_all_classes", "mixture", 1, 1000, "full_window"},
    {"publish_before_all_shards", "mixture", 9, 1000, "window_state"},
    {"skip_generation_check", "stale", 38, 1000, "big_snapshot"},
    {"evict_under_lease", "leases", 35, 1000, "state"},
    {"forget_budget_return", "budget", 25, 1000, "state"},
    {"serve_neighbour_page", "bytes", 17, 1000, "adapters"},
    {"count_damaged_as_hit", "delivered", 25, 1000, "state"},
    {"drop_a_reason", "reasons", 1, 1000, "full_window"},
    {"reuse_slot_of_cancelled_load", "leases", 20, 1000, "full"},
    {"attach_to_replaced_page", "mixture", 62, 1000, "full_state"},
    {"old_epoch_publishes", "stale", 9, 1000, "window_state"},
    {"remove_misses_descendants", "stale", 1, 1000, "full_window"},
    {"forget_session_charge", "budget", 1, 1000, "full_window"},
    {"leak_expired_reservation", "liveness", 8, 1000, "big_snapshot"},
    {"lose_completion", "completions", 1, 1000, "full_window"},
    {"complete_twice", "completions", 1, 1000, "full_window"},
    {"move_under_lease", "leases", 261, 1000, "full_window"},
    {"index_keeps_evicted_set", "index", 1, 1000, "full_window"},
    {"resume_ignores_window", "resume", 4, 1000, "window"},
    {"drop_event", "events", 1, 1000, "full_window"},
    {"mixed_shards", "mixture", 19, 1000, "window_state"},
    {"ignore_limit", "resume", 4, 1000, "window"},
    {"cleared_page_served", "stale", 9, 1000, "window_state"},
    {"layer_event_before_verify", "delivered", 85, 1000, "state"},
    {"deadline_ignored", "liveness", 3, 1000, "hybrid"},
    {"load_writes_behind_length", "bytes", 114, 1000, "window"},
    {"reason_counts_twice", "reasons", 1, 1000, "full_window"},
    {"skip_verify", "delivered", 25, 1000, "state"},
    {"store_skips_last_layer", "bytes", 1, 1000, "full_window"},
    {"checksum_first_half_only", "delivered", 131, 1000, "full_window"},
    {"slot_handed_out_twice", "index", 1, 1000, "full_window"},
    {"release_forgets_bytes", "index", 7, 1000, "adapters"},
};

std::string_view chosen;

}  // namespace

std::span<const Fault> faults() { return kFaults; }

const Fault* find_fault(std::string_view name) {
  const auto at = std::find_if(std::begin(kFaults), std::end(kFaults),
                               [&](const Fault& each) { return each.name == name; });
  return at == std::end(kFaults) ? nullptr : &*at;
}

void choose_fault(std::string_view name) { chosen = name; }

bool has_fault_points() {
#ifdef TIERCEL_FAULTS
  return true;
#else
  return false;
#endif
}

}  // namespace tiercel::sim

#ifdef TIERCEL_FAULTS
namespace tiercel {
bool fault_active(const char* name) { return !sim::chosen.empty() && sim::chosen == name; }
}  // namespace tiercel
#endif
