#include "sim/disk_checkers.h"

#include <fmt/format.h>

namespace tiercel::sim {
namespace {

constexpr DiskChecker kCheckers[] = {
    {"disk_drive", check_disk_drive}, {"disk_ends", check_disk_ends},
    {"disk_open", nullptr},           {"disk_stale", check_disk_found},
    {"disk_bytes", check_disk_bytes}, {"disk_durable", check_disk_durable},
    {"disk_found", nullptr},          {"disk_bounds", check_disk_bounds},
    {"disk_stats", check_disk_stats}, {"disk_liveness", nullptr},
};

}  // namespace

std::span<const DiskChecker> disk_checkers() { return kCheckers; }

std::optional<Caught> ask_disk_checkers(DiskScene& scene) {
  if (scene.complaints.empty())
    for (const DiskChecker& each : kCheckers)
      if (each.look != nullptr && scene.log != nullptr) each.look(scene);
  for (const DiskChecker& each : kCheckers) {
    const auto complaint = scene.complaints.find(each.name);
    if (complaint != scene.complaints.end())
      return Caught{std::string(each.name), scene.view.step,
                    fmt::format("{}:{}: {}", scene.view.action, scene.view.note, complaint->second)};
  }
  return std::nullopt;
}

}  // namespace tiercel::sim
