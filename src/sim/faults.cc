#include "sim/faults.h"

#include <algorithm>

#include "base/fault.h"

namespace tiercel::sim {
namespace {

constexpr Fault kFaults[] = {
    {"publish_before_all_classes", "mixture", 1, 1000, "hybrid"},
    {"publish_before_all_shards", "mixture", 1, 1000, "sharded"},
    {"skip_generation_check", "stale", 1, 1000, "full"},
    {"evict_under_lease", "leases", 1, 1000, "full"},
    {"forget_budget_return", "budget", 1, 1000, "full"},
    {"serve_neighbour_page", "bytes", 1, 1000, "full"},
    {"count_damaged_as_hit", "delivered", 1, 1000, "full"},
    {"drop_a_reason", "reasons", 1, 1000, "full"},
    {"reuse_slot_of_cancelled_load", "leases", 1, 1000, "full"},
    {"attach_to_replaced_page", "mixture", 1, 1000, "full_window"},
    {"old_epoch_publishes", "stale", 1, 1000, "full"},
    {"remove_misses_descendants", "stale", 1, 1000, "full"},
    {"forget_session_charge", "budget", 1, 1000, "full"},
    {"leak_expired_reservation", "liveness", 1, 1000, "full"},
    {"lose_completion", "completions", 1, 1000, "full"},
    {"complete_twice", "completions", 1, 1000, "full"},
    {"move_under_lease", "leases", 1, 1000, "full"},
    {"index_keeps_evicted_set", "index", 1, 1000, "full_window"},
    {"resume_ignores_window", "resume", 1, 1000, "full_window"},
    {"drop_event", "events", 1, 1000, "full_window"},
    {"mixed_shards", "mixture", 1, 1000, "sharded"},
    {"ignore_limit", "resume", 1, 1000, "full"},
    {"cleared_page_served", "stale", 1, 1000, "full"},
    {"layer_event_before_verify", "delivered", 1, 1000, "full"},
    {"deadline_ignored", "liveness", 1, 1000, "full"},
    {"load_writes_behind_length", "bytes", 1, 1000, "full"},
    {"reason_counts_twice", "reasons", 1, 1000, "full"},
    {"skip_verify", "delivered", 1, 1000, "full"},
    {"store_skips_last_layer", "bytes", 1, 1000, "full"},
    {"checksum_first_half_only", "delivered", 1, 1000, "full"},
    {"slot_handed_out_twice", "index", 1, 1000, "full"},
    {"release_forgets_bytes", "budget", 1, 1000, "full"},
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
