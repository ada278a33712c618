// What is read back is what was appended.
#include <fmt/format.h>

#include "sim/disk_checkers.h"

namespace tiercel::sim {
namespace {

void judge_read(DiskScene& scene, const ReadSeen& seen) {
  const std::string where = fmt::format("page {} class {}", seen.set.page, seen.set.cls.value());
  if (seen.verified && !seen.append)
    return scene.complain("disk_bytes", where + ": checksums are right, and nobody appended these bytes");
  if (scene.scenario.lying) return;
  // What has left while it was read may be anything.
  const bool stays = seen.expected && scene.book.present(seen.set) == seen.expected &&
                     !scene.book.append(*seen.expected).may_be_missing && scene.book.alive(*seen.expected);
  if (!seen.status.ok()) {
    if (stays && !seen.drive_failed)
      scene.complain("disk_bytes", fmt::format("{}: the drive has not failed, the read has: {}", where,
                                               seen.status.to_string()));
    return;
  }
  if (stays && !seen.verified) return scene.complain("disk_bytes", where + ": read back damaged");
  if (stays && seen.append != seen.expected)
    scene.complain("disk_bytes",
                   fmt::format("{}: read append {}, {} is there", where, *seen.append, *seen.expected));
}

}  // namespace

void check_disk_bytes(DiskScene& scene) {
  for (const ReadSeen& seen : scene.view.reads) judge_read(scene, seen);
}

}  // namespace tiercel::sim
