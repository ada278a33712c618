#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/scene_disk.h"

namespace tiercel::sim {
namespace {

// The node over its disk. What the log itself promises is checked by its own runs.
class DiskTierChecker final : public Checker {
 public:
  std::string_view name() const override { return "disk_tier"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (scene.disk == nullptr) return std::nullopt;
    const SceneDisk& disk = *scene.disk;
    if (!disk.wrong.empty()) return disk.wrong.front();
    if (const auto& misuse = disk.drive->misuse()) return "the drive: " + *misuse;
    if (scene.view.polled) {
      if (auto wrong = check_flushes(scene)) return wrong;
      if (auto wrong = check_attached(scene)) return wrong;
    }
    if (scene.view.phase != StepView::Phase::kRunning && !disk.flushes.empty())
      return "somebody still waits for a flush when all is quiet";
    return std::nullopt;
  }

 private:
  // What is found with a page that the disk alone has: the page is there, or comes from somebody just now,
  // and what was attached is whole.
  static std::optional<std::string> check_attached(const Scene& scene) {
    std::map<PageId, Presence> coming;
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.state == ResidenceState::kWriting || each.state == ResidenceState::kStaged)
        coming[{each.ns, each.key}] |= Presence{1} << each.cls.value();
    for (const AuditResidence& each : scene.view.after.residences) {
      if (!each.page_below || scene.cleared_generations.contains(each.generation)) continue;
      const Space& space = scene.spaces[scene.space_of.at(each.ns)];
      const Presence there = in_log(scene, {each.ns, each.key}) | coming[{each.ns, each.key}];
      for (const ClassForm& cls : scene.form_of(space).classes)
        if (cls.required() && (there >> cls.id.value() & 1) == 0)
          return fmt::format("class {} of page {} is attached to it, and the disk has not got its class {}",
                             each.cls.value(), to_hex(each.key), cls.name);
      if (!scene.stored_computation(space, each))
        return fmt::format("class {} of page {} is attached to it and is nobody's whole record",
                           each.cls.value(), to_hex(each.key));
    }
    return std::nullopt;
  }

  // A poll may itself wait for the drive (a removal that is recorded): its time counts.
  static std::optional<std::string> check_flushes(const Scene& scene) {
    for (const auto& [id, deadline] : scene.disk->flushes)
      if (scene.clock.now() > deadline) return fmt::format("flush {} goes on after its deadline", id.value());
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> disk_tier_checker() { return std::make_unique<DiskTierChecker>(); }

}  // namespace tiercel::sim
