#include "node/status_text.h"

#include <chrono>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "base/sizes.h"
#include "disk/disk_log.h"
#include "node/reasons.h"

namespace tiercel {
namespace {

void row(std::string& text, std::string_view name, const std::string& value) {
  text += fmt::format("{:<10}{}\n", name, value);
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string age_text(Duration age) {
  using std::chrono::duration_cast;
  const auto seconds = duration_cast<std::chrono::seconds>(age).count();
  if (seconds < 60) return fmt::format("{} s", seconds);
  if (seconds < 3600) return fmt::format("{} min", seconds / 60);
  if (seconds < 86400) return fmt::format("{} h {} min", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{} d {} h", seconds / 86400, seconds / 3600 % 24);
}

std::string refusals_text(const DiskStats& disk) {
  std::string text;
  for (std::size_t i = 0; i < disk.verdicts.size(); ++i) {
    const auto verdict = static_cast<DiskVerdict>(i);
    if (verdict == DiskVerdict::kAccepted || verdict == DiskVerdict::kAlreadyThere) continue;
    if (disk.verdicts[i] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", disk_verdict_name(verdict), disk.verdicts[i]);
  }
  return text;
}

void size_rows(std::string& text, const DiskStats& disk) {
  row(text, "disk",
      fmt::format("{} in {} regions of {}, {} never used or free{}", format_size(disk.size_bytes),
                  disk.regions, format_size(disk.region_bytes), disk.regions_free,
                  disk.down ? "; DOWN: it stalls or fails, and is asked again from time to time" : ""));
  row(text, "",
      fmt::format("{} class-sets that can be found, {} ({:.1f} %), of {} that the index has room for",
                  disk.class_sets, format_size(disk.live_bytes), percent(disk.live_bytes, disk.size_bytes),
                  disk.index_entries));
}

std::string running_disk_text(const DiskStats& disk) {
  std::string text;
  size_rows(text, disk);
  row(text, "",
      fmt::format("oldest page {}, {} removals remembered, {} of memory for the index",
                  disk.class_sets == 0 ? std::string("none") : age_text(disk.oldest_age), disk.removals,
                  format_size(disk.host_bytes)));
  row(text, "written",
      fmt::format("{} for {} of records, {} reinserted, {} evicted with {} regions",
                  format_size(disk.written_bytes), format_size(disk.appended_bytes),
                  format_size(disk.reinserted_bytes), disk.evicted, disk.regions_evicted));
  row(text, "budget",
      disk.write_budget_bytes == 0 ? std::string("none: writes are not limited")
                                   : fmt::format("{} a day, {} left", format_size(disk.write_budget_bytes),
                                                 format_size(disk.write_budget_left)));
  if (const std::string refused = refusals_text(disk); !refused.empty()) row(text, "refused", refused);
  if (disk.trips + disk.io_errors + disk.stalls + disk.read_failures + disk.unrecorded != 0)
    row(text, "faults",
        fmt::format("down {} times, {} errors, {} stalls, {} reads failed, {} removals not recorded",
                    disk.trips, disk.io_errors, disk.stalls, disk.read_failures, disk.unrecorded));
  return text;
}

std::string remote_rows(const Stats& stats, const RemoteStats& remote, const RemoteHealth& health) {
  std::string text;
  row(text, "remote",
      !health.ready ? fmt::format("NOT READY: {}", health.why_not)
      : remote.down
          ? std::string("DOWN: it fails or is late, and is asked again from time to time")
          : fmt::format("ready{}", health.pid == 0 ? "" : fmt::format(", connector {}", health.pid)));
  row(text, "",
      fmt::format("stored {} in {} objects, read {} in {} objects, asked for {} names ({} more were known)",
                  format_size(remote.written_bytes), remote.objects_written, format_size(remote.read_bytes),
                  remote.objects_read, remote.names_asked, remote.names_known));
  row(text, "",
      fmt::format("exchange {} of {} in use, {} kept from use by late batches; matches that waited {}",
                  format_size(remote.exchange_used_bytes), format_size(remote.exchange_bytes),
                  format_size(remote.unquiet_bytes), stats.remote_matches));
  if (remote.trips + remote.batches_failed + remote.damaged_objects + health.kills != 0)
    row(text, "",
        fmt::format(
            "faults: down {} times, {} batches failed ({} late), {} objects damaged, connector started "
            "{} times, killed {} times",
            remote.trips, remote.batches_failed, remote.batches_late, remote.damaged_objects, health.starts,
            health.kills));
  return text;
}

}  // namespace

std::string disk_file_text(const DiskStats& disk) {
  std::string text;
  size_rows(text, disk);
  row(text, "",
      fmt::format("{} removals remembered, {} of memory for the index while a cache is open", disk.removals,
                  format_size(disk.host_bytes)));
  row(text, "found by",
      fmt::format("image {}, newer footers {}, end of the log {}: a class-set may stand in several; {} were "
                  "read for it",
                  disk.recovered_from_image, disk.recovered_from_footers, disk.recovered_from_tail,
                  format_size(disk.recovery_read_bytes)));
  if (disk.images_damaged + disk.tail_segments_refused != 0)
    row(text, "not found",
        fmt::format("{} images are damaged, {} segments at the end are not whole", disk.images_damaged,
                    disk.tail_segments_refused));
  return text;
}

std::string status_text(const Stats& stats, const DiskStats* disk, const RemoteTier* remote) {
  std::string text;
  row(text, "host",
      fmt::format("{} granted: {} of records in {} pages, {} for index and history",
                  format_size(stats.host_bytes_granted), format_size(stats.resident_bytes),
                  stats.pages_visible,
                  format_size(stats.index_bytes + stats.history_bytes + stats.advice_bytes)));
  row(text, "",
      fmt::format("{} leased, {} being written, {} quarantined, {} lost to rounding",
                  format_size(stats.leased_bytes), format_size(stats.reserved_bytes),
                  format_size(stats.quarantined_bytes), format_size(stats.fragmentation_bytes)));
  if (disk != nullptr) text += running_disk_text(*disk);
  if (remote != nullptr) text += remote_rows(stats, remote->stats(), remote->health());
  const std::uint64_t tokens = stats.hit_tokens + stats.missed_tokens;
  row(text, "hits",
      fmt::format("{} of {} tokens ({:.1f} %) in {} matches{}", stats.hit_tokens, tokens,
                  percent(stats.hit_tokens, tokens), stats.matches,
                  disk == nullptr ? std::string()
                                  : fmt::format("; {} of them came from the disk", stats.disk_hit_tokens)) +
          (remote == nullptr ? std::string()
                             : fmt::format("; {} came from the remote store", stats.remote_hit_tokens)));
  if (disk != nullptr)
    row(text, "moved",
        fmt::format("down {} ({}), up {} ({}), {} could not come; prefetches {}", stats.demoted,
                    format_size(stats.demoted_bytes), stats.promoted, format_size(stats.promoted_bytes),
                    stats.promotions_failed, stats.prefetches));
  std::string missed;
  for (std::size_t i = 0; i < kReasonCount; ++i)
    if (stats.missed_pages[i] != 0)
      fmt::format_to(std::back_inserter(missed), "{}{} {}", missed.empty() ? "" : ", ",
                     reason_name(static_cast<Reason>(i)), stats.missed_pages[i]);
  row(text, "missed", missed.empty() ? std::string("nothing") : "pages by reason: " + missed);
  return text;
}

}  // namespace tiercel
