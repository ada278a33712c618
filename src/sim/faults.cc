#include "sim/faults.h"

#include <algorithm>

#include "base/fault.h"

namespace tiercel::sim {
namespace {

constexpr Fault kFaults[] = {
    {"publish_before_all_classes", "mixture", 9, 5000, "sharded"},
    {"publish_before_all_shards", "mixture", 9, 5000, "sharded"},
    {"skip_generation_check", "stale", 6, 5000, "full"},
    {"evict_under_lease", "leases", 2, 5000, "full"},
    {"forget_budget_return", "budget", 6, 5000, "full_window"},
    {"serve_neighbour_page", "bytes", 6, 5000, "full"},
    {"count_damaged_as_hit", "delivered", 12, 5000, "window"},
    {"drop_a_reason", "reasons", 2, 5000, "full"},
    {"reuse_slot_of_cancelled_load", "leases", 11, 5000, "full_window"},
    {"attach_to_replaced_page", "mixture", 7, 5000, "full_state"},
    {"old_epoch_publishes", "stale", 3, 5000, "full_state"},
    {"remove_misses_descendants", "stale", 2, 5000, "full"},
    {"forget_session_charge", "budget", 11, 5000, "adapters"},
    {"leak_expired_reservation", "liveness", 10, 5000, "window_state"},
    {"lose_completion", "completions", 9, 5000, "state"},
    {"complete_twice", "completions", 2, 5000, "adapters"},
    {"move_under_lease", "leases", 12, 5000, "big_snapshot"},
    {"index_keeps_evicted_set", "index", 1, 5000, "full_window"},
    {"resume_ignores_window", "resume", 2, 5000, "window"},
    {"drop_event", "events", 12, 5000, "full_window"},
    {"mixed_shards", "mixture", 12, 5000, "hybrid"},
    {"ignore_limit", "resume", 5, 5000, "adapters"},
    {"cleared_page_served", "stale", 3, 5000, "full_window"},
    {"layer_event_before_verify", "delivered", 8, 5000, "big_snapshot"},
    {"deadline_ignored", "liveness", 3, 5000, "window_state"},
    {"load_writes_behind_length", "bytes", 1, 5000, "state"},
    {"reason_counts_twice", "reasons", 10, 5000, "full"},
    {"skip_verify", "delivered", 12, 5000, "window"},
    {"store_skips_last_layer", "bytes", 9, 5000, "window"},
    {"checksum_first_half_only", "delivered", 12, 5000, "window"},
    {"slot_handed_out_twice", "index", 2, 5000, "hybrid"},
    {"weak_lease_order", "orders", 1, 50, "full"},
    {"scan_before_bump", "orders", 1, 50, "full"},
    {"release_forgets_bytes", "index", 10, 5000, "window_state"},
    {"tag_taken_as_hit", "readers", 10, 5000, "full"},
    {"generation_not_bumped", "readers", 8, 5000, "big_snapshot"},
    {"seqlock_not_repeated", "readers", 7, 5000, "state"},
    {"child_count_wrong", "lookup", 9, 5000, "full_state"},
    {"dropped_set_stays", "lookup", 9, 5000, "window_state"},
    {"readers_not_asked", "readers", 12, 5000, "big_snapshot"},
    {"move_under_reader", "readers", 12, 5000, "big_snapshot"},
    {"writer_slot_reused", "writers", 5, 5000, "sharded"},
    {"writer_exit_missed", "leaks", 7, 5000, "sharded"},
    {"writer_checksum_ignored", "writers", 7, 5000, "sharded"},
    {"disk_checksum_skipped", "mixture", 11, 5000, "sharded_lying_disk"},
    {"promotion_publishes_unverified", "mixture", 18, 5000, "sharded_lying_disk"},
    {"promotion_forgets_budget", "below", 1, 5000, "full_disk"},
    {"promotion_plan_outlives_removal", "stale", 19, 5000, "full_disk"},
    {"promotion_never_ends", "below", 1, 5000, "full_disk"},
    {"demotion_frees_source_early", "below", 1, 5000, "full_disk"},
    {"attach_without_a_page", "disk_tier", 1, 5000, "full_state_disk"},
    {"attached_outlives_its_page", "disk_tier", 17, 5000, "full_state_disk"},
    {"removal_stays_in_memory", "stale", 1, 5000, "full_disk"},
    {"clear_forgets_remote", "stale", 11, 5000, "full_remote"},
    {"remote_serves_cleared", "stale", 3, 5000, "state_remote"},
    {"remote_write_outlives_clear", "stale", 11, 5000, "full_remote"},
    {"remote_header_unchecked", "stale", 14, 5000, "full_remote"},
    {"remote_mixes_shards", "mixture", 9, 5000, "hybrid_remote"},
    {"remote_page_read_from_disk", "stale", 12, 5000, "full_disk_remote"},
    {"remote_direct_ends_before_quiet", "remote_tier", 5, 5000, "full_remote"},
    {"remote_area_reused_before_quiet", "remote_tier", 10, 5000, "state_remote"},
    {"remote_budget_forgotten", "remote_tier", 18, 5000, "full_remote"},
    {"remote_read_told_early", "leases", 2, 5000, "state_remote"},
    {"remote_frees_source_early", "below", 6, 5000, "full_disk_remote"},
    {"remote_lookup_never_ends", "below", 19, 5000, "hybrid_remote"},
    {"remote_down_unsaid", "reasons", 3, 5000, "hybrid_remote"},
    {"remote_miss_called_down", "reasons", 3, 5000, "full_remote"},
    {"image_claims_too_much", "disk_durable", 9, 5000, "disk"},
    {"mark_names_nothing", "disk_bytes", 16, 5000, "disk"},
    {"footer_without_flush", "disk_bytes", 3, 5000, "disk"},
    {"region_reused_before_header_flush", "disk_bytes", 19, 5000, "disk"},
    {"removal_not_logged", "disk_stale", 2, 5000, "disk"},
    {"clear_not_durable", "disk_stale", 8, 5000, "disk"},
    {"reinserted_gets_new_number", "disk_found", 2, 5000, "disk"},
    {"stale_life_ignored", "disk_bytes", 7, 5000, "disk"},
    {"epoch_ignored_in_tail", "disk_bytes", 14, 5000, "disk"},
    {"tail_segment_not_verified", "disk_bytes", 8, 5000, "disk"},
    {"durable_before_flush", "disk_durable", 8, 5000, "disk"},
    {"evicted_entry_stays", "disk_durable", 7, 5000, "disk"},
    {"queued_entry_beats_removal", "disk_stale", 12, 5000, "disk"},
    {"superblock_single", "disk_open", 3, 5000, "disk"},
    {"segment_lost_counts_written", "disk_bytes", 8, 5000, "disk"},
    {"middle_of_chain_trusted", "disk_stale", 12, 5000, "disk"},
    {"removal_forgotten_early", "disk_stale", 12, 5000, "disk"},
};

std::string_view chosen;
const std::function<void()>* at_pause = nullptr;

}  // namespace

std::span<const Fault> faults() { return kFaults; }

const Fault* find_fault(std::string_view name) {
  const auto at = std::find_if(std::begin(kFaults), std::end(kFaults),
                               [&](const Fault& each) { return each.name == name; });
  return at == std::end(kFaults) ? nullptr : &*at;
}

void choose_fault(std::string_view name) { chosen = name; }
void on_pause(const std::function<void()>* action) { at_pause = action; }

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
void pause_point() {
  if (sim::at_pause != nullptr) (*sim::at_pause)();
}
}  // namespace tiercel
#endif
