#include "sim/coverage.h"

#include <span>

#include <fmt/format.h>

#include "base/check.h"

namespace tiercel::sim {
namespace {

constexpr std::string_view kCounters[] = {
    "advice_given",
    "attach",
    "attach_lost_to_replacement",
    "attach_sparse_late",
    "checksum_of_other_bytes",
    "child_stored_before_parent",
    "clear_with_work_under_way",
    "commit_in_part",
    "damage_header",
    "damage_payload",
    "device_read_failed",
    "device_write_failed",
    "dropped_sparse",
    "epoch_with_work_under_way",
    "events_lost",
    "evicted_page",
    "gave_up_storing",
    "load_cancelled",
    "load_device_failed",
    "load_layered",
    "load_layered_damaged_after_first_event",
    "load_not_longest",
    "load_quiescent_after_deadline",
    "load_shortened",
    "load_skipped_slots",
    "load_timed_out",
    "load_waited_for_event",
    "load_whole",
    "match_first_page",
    "match_held",
    "match_limit",
    "memory_replaced",
    "memory_replacement_refused",
    "neighbour_cleared",
    "neighbour_stored",
    "node_attached_below",
    "node_crash",
    "node_drive_trouble",
    "node_match_deadline",
    "node_match_pending",
    "node_on_disk_too_late",
    "node_power_cut",
    "node_prefetch",
    "node_prefetch_cancelled",
    "node_promoted",
    "node_promotion_joined",
    "node_refused_by_disk",
    "node_removal_unrecorded",
    "node_store_durable",
    "node_tier_down",
    "other_form",
    "other_identity",
    "pinned",
    "quarantine",
    "quarantine_ended",
    "reader_came_too_late",
    "reader_died",
    "reader_interrupted",
    "reader_leased",
    "reader_met_a_clear",
    "records_moved",
    "refused_no_room",
    "refused_quota",
    "refused_rate_limited",
    "refused_too_large",
    "remote_clear",
    "remote_clear_unconfirmed",
    "remote_cleared_while_storing",
    "remote_damaged_object",
    "remote_direct",
    "remote_down",
    "remote_full",
    "remote_hung",
    "remote_killed",
    "remote_late_batch",
    "remote_lookup",
    "remote_lookup_failed",
    "remote_markers_lost",
    "remote_misread",
    "remote_object_damaged",
    "remote_object_lost",
    "remote_promoted",
    "remote_read",
    "remote_read_failed",
    "remote_unquiet",
    "remote_write",
    "remote_write_failed",
    "remove_with_load",
    "remove_with_promotion",
    "remove_with_store",
    "request_aborted_with_stores",
    "reservation_aborted",
    "reservation_commit",
    "reservation_expired",
    "same_page_two_computations",
    "session_closed_with_work",
    "shards_in_separate_calls",
    "snapshot_in_several_extents",
    "stale_clear",
    "stale_commit",
    "stale_epoch",
    "store_already_present",
    "store_being_written",
    "store_cancelled",
    "store_copy_failed",
    "store_waited_for_event",
    "suspended_with_transfers",
    "ticket_expired",
    "unknown_past",
    "verified_once",
    "write_back_offer",
    "write_selective_offer",
    "writer_died",
    "writer_gone_refused",
    "writer_quarantined",
    "writer_stopped",
    "writer_wrote_after_the_deadline",
    "writer_wrote_after_the_end",
};

// Two nodes store the shards of one page between each other: sim.hybrid_remote is made for it.
constexpr std::string_view kRareCounters[] = {"remote_mixed_shards"};

constexpr std::string_view kDiskCounters[] = {
    "disk_already_there",
    "disk_append",
    "disk_checkpoint",
    "disk_cleared",
    "disk_close",
    "disk_closed",
    "disk_destroy",
    "disk_drive_gone",
    "disk_drive_stalled",
    "disk_evicted",
    "disk_form_cleared",
    "disk_kill",
    "disk_lost",
    "disk_not_closed",
    "disk_not_settled",
    "disk_power_failed_in_recovery",
    "disk_power_failure",
    "disk_rate_limited",
    "disk_read",
    "disk_read_failed",
    "disk_recovered",
    "disk_recovered_from_footers",
    "disk_recovered_from_image",
    "disk_recovered_from_tail",
    "disk_removal_unrecorded",
    "disk_removals_folded",
    "disk_removed",
    "disk_removed_while_queued",
    "disk_second_touch",
    "disk_settled",
    "disk_tail_refused",
    "disk_tier_down",
    "disk_write_budget",
};

constexpr std::string_view kLyingDiskCounters[] = {"disk_damage_met", "disk_lying_refused"};

Coverage of(std::span<const std::string_view> names) {
  Coverage coverage;
  for (const std::string_view name : names) coverage.must_meet(name);
  return coverage;
}

}  // namespace

Coverage Coverage::of_node() {
  Coverage coverage = of(kCounters);
  for (const std::string_view name : kRareCounters) coverage.may_meet(name);
  return coverage;
}
Coverage Coverage::of_disk(bool lying) {
  Coverage coverage = of(kDiskCounters);
  if (lying)
    for (const std::string_view name : kLyingDiskCounters) coverage.must_meet(name);
  return coverage;
}

void Coverage::hit(std::string_view name, std::uint64_t times) {
  const auto at = counts_.find(name);
  TIERCEL_CHECK(at != counts_.end());
  at->second += times;
}

void Coverage::add(const Coverage& other) {
  for (const auto& [name, count] : other.counts_) counts_[name] += count;
  rare_.insert(other.rare_.begin(), other.rare_.end());
}

std::string Coverage::to_string() const {
  std::string text;
  for (const auto& [name, count] : counts_) text += fmt::format("  {:<40} {}\n", name, count);
  return text;
}

std::string Coverage::missing() const {
  std::vector<std::string> wanted;
  for (const auto& [name, count] : counts_)
    if (!rare_.contains(name)) wanted.push_back(name);
  return missing(wanted);
}

std::string Coverage::missing(const std::vector<std::string>& names) const {
  std::string text;
  for (const std::string& name : names) {
    const auto at = counts_.find(name);
    if (at == counts_.end() || at->second == 0) text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

}  // namespace tiercel::sim
