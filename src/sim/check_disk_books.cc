// The drive's use, the ends of what was begun, bounds and figures.
#include <algorithm>

#include <fmt/format.h>

#include "sim/disk_checkers.h"

namespace tiercel::sim {

void check_disk_drive(DiskScene& scene) {
  if (const auto& misuse = scene.drive->misuse()) scene.complain("disk_drive", *misuse);
}

void check_disk_ends(DiskScene& scene) {
  if (scene.view.step % 8 != 0) return;
  if (auto touched = graveyard_touched(scene)) scene.complain("disk_ends", *touched);
}

void check_disk_durable(DiskScene& scene) {
  const std::uint64_t durable = scene.log->durable_at();
  if (durable > scene.log->last_at())
    scene.complain("disk_durable", fmt::format("durable at {} of {}", durable, scene.log->last_at()));
  if (durable < scene.durable_told)
    scene.complain("disk_durable", fmt::format("durable at {}, told {}", durable, scene.durable_told));
}

void check_disk_bounds(DiskScene& scene) {
  const DiskLogOptions& options = scene.scenario.options;
  std::uint64_t queued = 0, largest = 0;
  for (const auto& [id, pending] : scene.appends) {
    queued += scene.book.append(pending.number).bytes;
    largest = std::max(largest, scene.book.append(pending.number).bytes);
  }
  if (queued > std::max(options.queued_bytes_max, largest))
    scene.complain("disk_bounds", fmt::format("{} bytes accepted and not written, {} are allowed", queued,
                                              options.queued_bytes_max));
  if (scene.reads.size() > options.reads_in_flight)
    scene.complain("disk_bounds", fmt::format("{} reads under way, {} are allowed", scene.reads.size(),
                                              options.reads_in_flight));
}

void check_disk_stats(DiskScene& scene) {
  const DiskStats& stats = scene.log->stats();
  if (stats.regions_free > stats.regions)
    scene.complain("disk_stats", fmt::format("{} of {} regions are free", stats.regions_free, stats.regions));
  const std::uint64_t parts = stats.record_bytes + stats.directory_bytes + stats.padding_bytes +
                              stats.footer_bytes + stats.image_bytes;
  const bool quiet = scene.view.phase == DiskStepView::Phase::kQuiet && failures(scene) == 0;
  if (quiet && parts > stats.written_bytes)
    scene.complain("disk_stats",
                   fmt::format("{} bytes written, their parts are {}", stats.written_bytes, parts));
  const std::uint64_t saw = scene.drive->counts().written_bytes;
  if (stats.written_bytes > saw)
    scene.complain("disk_stats", fmt::format("{} bytes written, the drive saw {}", stats.written_bytes, saw));
  if (stats.size_bytes > scene.drive->size_bytes()) scene.complain("disk_stats", "larger than the drive");
  if (stats.down != scene.log->down()) scene.complain("disk_stats", "down, and not");
  if (!scene.view.all_pages || scene.drive->power_is_off()) return;
  std::uint64_t found = 0, known = 0;  // for sure; perhaps
  for (const auto& [set, numbers] : scene.book.sets()) {
    const auto present = scene.book.present(set);
    if (!present || !scene.book.surely_alive(*present)) continue;
    ++known;
    if (!scene.book.append(*present).may_be_missing) ++found;
  }
  if (!scene.scenario.lying && !scene.log->down() && stats.class_sets < found)
    scene.complain("disk_stats", fmt::format("{} class-sets, {} can be found", stats.class_sets, found));
  if (!scene.scenario.lying && !scene.book.was_removed_from() && stats.class_sets > known)
    scene.complain("disk_stats", fmt::format("{} class-sets, {} can be found", stats.class_sets, known));
  if (quiet && stats.written_bytes != saw)
    scene.complain("disk_stats", fmt::format("{} bytes written, the drive saw {}", stats.written_bytes, saw));
}

}  // namespace tiercel::sim
