#include "trace/report.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sizes.h"

namespace tiercel {
namespace {

// What a person should make of a reason.
std::string_view explanation(Reason reason) {
  switch (reason) {
    case Reason::kLimit:
      return "beyond what the caller asked for";
    case Reason::kTail:
      return "less than a page";
    case Reason::kAfterGap:
      return "there, but a page before it is not";
    case Reason::kStateMissing:
      return "there, but no snapshot to resume from at or beyond it";
    case Reason::kWindowMissing:
      return "there, but the window before the resume point is not";
    case Reason::kInFlight:
      return "still being written";
    case Reason::kDamaged:
      return "its bytes were not what was stored";
    case Reason::kTierDown:
      return "its tier could not be read";
    case Reason::kTooLate:
      return "arrived after its deadline";
    case Reason::kRemoved:
      return "taken out on request";
    case Reason::kEvicted:
      return "made room for others: a larger cache would have hit";
    case Reason::kNoRoom:
      return "nothing could go to make room for it";
    case Reason::kTooLarge:
      return "larger than the whole budget";
    case Reason::kSecondTouch:
      return "waited for a second use";
    case Reason::kWriteBudget:
      return "over the write budget";
    case Reason::kQuota:
      return "over its owner's share";
    case Reason::kBelowThreshold:
      return "too little to be worth a load";
    case Reason::kRateLimited:
      return "too much under way at once";
    case Reason::kOtherForm:
      return "stored for another geometry";
    case Reason::kOtherIdentity:
      return "stored for another model or tenant";
    case Reason::kNeverStored:
      return "seen for the first time";
    case Reason::kUnknownPast:
      return "stored once, what became of it is forgotten";
  }
  return "";
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string rule_text(const ReplayReport& report) {
  if (report.snapshot_bytes == 0 && report.window_bytes == 0) return "none needed";
  return report.snapshot_every == 0
             ? report.snapshots
             : fmt::format("{} + every {} pages", report.snapshots, report.snapshot_every);
}

nlohmann::ordered_json restart_json(const ReplayRestart& restart) {
  nlohmann::ordered_json json;
  json["after_requests"] = restart.after_requests;
  json["resident_pages"] = restart.resident_pages;
  json["written_class_sets"] = restart.written_class_sets;
  json["left_class_sets"] = restart.left_class_sets;
  json["recovered_class_sets"] = restart.recovered_class_sets;
  json["close_seconds"] = restart.close_seconds;
  json["open_seconds"] = restart.open_seconds;
  json["pages"] = restart.pages;
  json["hit_pages"] = restart.hit_pages;
  return json;
}

nlohmann::ordered_json disk_json(const ReplayDiskReport& disk) {
  nlohmann::ordered_json json;
  json["admission"] = disk.admission;
  json["write_policy"] = disk.write_policy;
  json["hit_pages"] = disk.hit_pages;
  json["brought_pages"] = disk.brought_pages;
  json["promoted_class_sets"] = disk.promoted_class_sets;
  json["stored_class_sets"] = disk.stored_class_sets;
  json["refused_class_sets"] = disk.refused_class_sets;
  json["size_bytes"] = disk.log.size_bytes;
  json["live_bytes"] = disk.log.live_bytes;
  json["class_sets"] = disk.log.class_sets;
  json["written_bytes"] = disk.log.written_bytes;
  json["record_bytes"] = disk.log.record_bytes;
  json["evicted_class_sets"] = disk.log.evicted;
  json["regions"] = disk.log.regions;
  json["regions_free"] = disk.log.regions_free;
  json["closed_written"] = disk.closed_written;
  json["closed_left"] = disk.closed_left;
  return json;
}

nlohmann::ordered_json remote_json(const ReplayRemoteReport& remote) {
  const RemoteStats& tier = remote.tier;
  nlohmann::ordered_json json;
  json["address"] = remote.address;
  json["hit_pages"] = remote.hit_pages;
  json["brought_pages"] = remote.brought_pages;
  json["promoted_class_sets"] = remote.promoted_class_sets;
  json["stored_class_sets"] = remote.stored_class_sets;
  json["refused_class_sets"] = remote.refused_class_sets;
  json["lookups"] = tier.lookups;
  json["names_asked"] = tier.names_asked;
  json["names_known"] = tier.names_known;
  json["objects_read"] = tier.objects_read;
  json["read_bytes"] = tier.object_bytes_read;
  json["objects_written"] = tier.objects_written;
  json["written_bytes"] = tier.object_bytes_written;
  json["failed_class_sets"] = tier.writes_failed;
  json["damaged_objects"] = tier.damaged_objects;
  json["batches"] = tier.batches;
  json["batches_failed"] = tier.batches_failed;
  json["batches_late"] = tier.batches_late;
  json["times_down"] = tier.trips;
  json["starts"] = remote.starts;
  json["kills"] = remote.kills;
  return json;
}

using Rows = std::vector<std::pair<std::string_view, std::string>>;

// Rows of the table above the reasons.
Rows disk_rows(const ReplayReport& report) {
  const ReplayDiskReport& disk = *report.disk;
  Rows rows;
  rows.emplace_back("disk",
                    fmt::format("{} in {} regions, admission {}, {}", format_size(disk.log.size_bytes),
                                disk.log.regions, disk.admission, disk.write_policy));
  rows.emplace_back(
      "disk hits", fmt::format("{} of {} hit pages came up from the disk ({:.2f} %)", grouped(disk.hit_pages),
                               grouped(report.hit_pages), share(disk.hit_pages, report.hit_pages)));
  rows.emplace_back("disk writes",
                    fmt::format("{} records, {} not admitted, {} evicted; {} written for {} of records",
                                grouped(disk.stored_class_sets), grouped(disk.refused_class_sets),
                                grouped(disk.log.evicted), format_size(disk.log.written_bytes),
                                format_size(disk.log.record_bytes)));
  rows.emplace_back("disk closed", fmt::format("{} class-sets in it, {} written down at the end, {} left",
                                               grouped(disk.log.class_sets), grouped(disk.closed_written),
                                               grouped(disk.closed_left)));
  return rows;
}

Rows remote_rows(const ReplayReport& report) {
  const ReplayRemoteReport& remote = *report.remote;
  const RemoteStats& tier = remote.tier;
  Rows rows;
  rows.emplace_back("remote", remote.address);
  rows.emplace_back("remote hits", fmt::format("{} of {} hit pages came from the store ({:.2f} %)",
                                               grouped(remote.hit_pages), grouped(report.hit_pages),
                                               share(remote.hit_pages, report.hit_pages)));
  rows.emplace_back(
      "remote moved",
      fmt::format("{} objects written ({}) with {} class-sets, {} read ({})", grouped(tier.objects_written),
                  format_size(tier.object_bytes_written), grouped(remote.stored_class_sets),
                  grouped(tier.objects_read), format_size(tier.object_bytes_read)));
  rows.emplace_back("remote asked",
                    fmt::format("{} lookups of {} names, {} more were known; {} batches, {} failed",
                                grouped(tier.lookups), grouped(tier.names_asked), grouped(tier.names_known),
                                grouped(tier.batches), grouped(tier.batches_failed)));
  if (tier.trips != 0 || tier.writes_failed != 0 || remote.refused_class_sets != 0)
    rows.emplace_back(
        "", fmt::format("down {} times; {} class-sets not stored, {} too large", grouped(tier.trips),
                        grouped(tier.writes_failed), grouped(remote.refused_class_sets)));
  return rows;
}

Rows restart_rows(const ReplayReport& report) {
  Rows rows;
  if (report.restart_not_reached)
    rows.emplace_back("restart", fmt::format("none: it was to come after {} requests, and before another; "
                                             "there were only {}",
                                             grouped(*report.restart_not_reached), grouped(report.requests)));
  if (!report.restart) return rows;
  const ReplayRestart& restart = *report.restart;
  rows.emplace_back("restart",
                    fmt::format("after {} requests: {} pages were in memory, {} records written down, "
                                "{} left, in {:.3f} s",
                                grouped(restart.after_requests), grouped(restart.resident_pages),
                                grouped(restart.written_class_sets), grouped(restart.left_class_sets),
                                restart.close_seconds));
  rows.emplace_back(
      "", fmt::format("opened in {:.3f} s with {} records; hit ratio after it {:.4f}", restart.open_seconds,
                      grouped(restart.recovered_class_sets), share(restart.hit_pages, restart.pages) / 100));
  return rows;
}

// Of the tiers below memory, and of a restart.
Rows rows_below(const ReplayReport& report) {
  Rows rows;
  const auto add = [&](Rows more) { rows.insert(rows.end(), more.begin(), more.end()); };
  if (report.disk) add(disk_rows(report));
  if (report.remote) add(remote_rows(report));
  add(restart_rows(report));
  return rows;
}

}  // namespace

std::string grouped(std::uint64_t number) {
  std::string text = fmt::format("{}", number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string report_json(const ReplayReport& report) {
  nlohmann::ordered_json json;
  json["policy"] = report.policy;
  json["snapshots"] = report.snapshots;
  json["snapshot_every"] = report.snapshot_every;
  json["skipped_lines"] = report.skipped_lines;
  if (report.bound_hit_pages) json["bound_hit_pages"] = *report.bound_hit_pages;
  json["requests"] = report.requests;
  json["pages"] = report.pages;
  json["hit_pages"] = report.hit_pages;
  json["hit_ratio"] = report.hit_ratio();
  json["tokens"] = report.tokens;
  json["hit_tokens"] = report.hit_tokens;
  json["missed"] = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < kReasonCount; ++i)
    if (report.missed[i] != 0)
      json["missed"][std::string(reason_name(static_cast<Reason>(i)))] = report.missed[i];
  json["stored_pages"] = report.stored_pages;
  json["evicted_pages"] = report.evicted_pages;
  json["resident_pages"] = report.resident_pages;
  json["snapshots_made"] = report.snapshots_made;
  json["snapshots_evicted"] = report.snapshots_evicted;
  json["page_bytes"] = report.page_bytes;
  json["window_bytes"] = report.window_bytes;
  json["snapshot_bytes"] = report.snapshot_bytes;
  json["resident_bytes"] = report.resident_bytes;
  json["peak_bytes"] = report.peak_bytes;
  json["fragmentation_bytes"] = report.fragmentation_bytes;
  json["verified_pages"] = report.verified_pages;
  json["verified_snapshots"] = report.verified_snapshots;
  json["corrupt_pages"] = report.corrupt_pages;
  json["compared_bytes"] = report.compared_bytes;
  if (report.disk) json["disk"] = disk_json(*report.disk);
  if (report.remote) json["remote"] = remote_json(*report.remote);
  if (report.restart || report.restart_not_reached) {
    nlohmann::ordered_json& where = json[report.disk ? "disk" : "remote"];
    if (report.restart) where["restart"] = restart_json(*report.restart);
    if (report.restart_not_reached) where["restart_not_reached"] = *report.restart_not_reached;
  }
  if (!report.status.empty()) json["status"] = report.status;
  json["wrong"] = report.wrong;
  json["seconds"] = report.seconds;
  json["pages_per_second"] = report.pages_per_second();
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string report_text(const ReplayReport& report, std::string_view trace, std::string_view model,
                        bool colour) {
  const std::string_view bold = colour ? "\033[1m" : "";
  const std::string_view plain = colour ? "\033[0m" : "";
  std::string text;
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{:<14}{}\n", name, value);
  };
  row("trace", fmt::format("{}: {} requests, {} pages, {} tokens{}", trace, grouped(report.requests),
                           grouped(report.pages), grouped(report.tokens),
                           report.skipped_lines == 0
                               ? ""
                               : fmt::format(", {} damaged lines skipped", grouped(report.skipped_lines))));
  row("model", fmt::format("{}: page {}, window records of a page {}, snapshot {}", model,
                           format_size(report.page_bytes), format_size(report.window_bytes),
                           format_size(report.snapshot_bytes)));
  row("cache", fmt::format("policy {}, resume points: {}", report.policy, rule_text(report)));
  text += fmt::format("{}{:<14}{:.4f}{}  {} pages, {} tokens\n", bold, "hit ratio", report.hit_ratio(), plain,
                      grouped(report.hit_pages), grouped(report.hit_tokens));
  if (report.bound_hit_pages)
    row("bound",
        fmt::format("{:.4f}  {} pages: the best possible with full attention alone",
                    share(*report.bound_hit_pages, report.pages) / 100, grouped(*report.bound_hit_pages)));
  row("pages", fmt::format("{} stored, {} evicted, {} resident", grouped(report.stored_pages),
                           grouped(report.evicted_pages), grouped(report.resident_pages)));
  if (report.snapshot_bytes != 0)
    row("snapshots", fmt::format("{} made, {} evicted", grouped(report.snapshots_made),
                                 grouped(report.snapshots_evicted)));
  for (const auto& [name, value] : rows_below(report)) row(name, value);
  row("bytes",
      fmt::format("{} resident, {} at the peak, {} lost to rounding", format_size(report.resident_bytes),
                  format_size(report.peak_bytes), format_size(report.fragmentation_bytes)));
  row("verified", fmt::format("{} of {} hit pages byte for byte ({}), {} snapshots, {} corrupt",
                              grouped(report.verified_pages), grouped(report.hit_pages),
                              format_size(report.compared_bytes), grouped(report.verified_snapshots),
                              grouped(report.corrupt_pages)));
  row("time", fmt::format("{:.2f} s, {} pages a second", report.seconds,
                          grouped(static_cast<std::uint64_t>(report.pages_per_second()))));
  text += fmt::format("\n{}{:<27}{:>12}{:>9}{}\n", bold, "missed because", "pages", "share", plain);
  const std::uint64_t missed = report.pages - report.hit_pages;
  for (std::size_t i = 0; i < kReasonCount; ++i) {
    if (report.missed[i] == 0) continue;
    const auto reason = static_cast<Reason>(i);
    text += fmt::format("{:<27}{:>12}{:>8.2f}%  {}\n", reason_name(reason), grouped(report.missed[i]),
                        share(report.missed[i], missed), explanation(reason));
  }
  text += fmt::format("{:<27}{:>12}\n", "together", grouped(missed));
  if (!report.status.empty()) text += "\n" + report.status;
  for (const std::string& what : report.wrong) text += fmt::format("WRONG: {}\n", what);
  return text;
}

}  // namespace tiercel
