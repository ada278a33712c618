#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/delivery.h"
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
    if (auto wrong = check_bytes(scene)) return wrong;
    if (auto wrong = check_brought(scene)) return wrong;
    if (scene.view.polled) {
      if (auto wrong = check_deadlines(scene)) return wrong;
      if (auto wrong = check_attached(scene)) return wrong;
    }
    return scene.view.phase == StepView::Phase::kRunning ? std::nullopt : check_quiet(scene);
  }

 private:
  static std::optional<std::string> check_bytes(const Scene& scene) {
    const Audit& now = scene.view.after;
    std::uint64_t reading = 0, writing = 0;
    for (const AuditResidence& each : now.residences) {
      if (each.reading) reading += each.payload_bytes;
      if (each.writing) writing += each.payload_bytes;
      if (each.writing && each.copies == 0)
        return fmt::format("class {} of page {} is being written down and may be reused", each.cls.value(),
                           to_hex(each.key));
    }
    if (now.stats.disk_reading_bytes != reading)
      return fmt::format("disk_reading_bytes is {}, {} are", now.stats.disk_reading_bytes, reading);
    if (now.stats.disk_writing_bytes != writing)
      return fmt::format("disk_writing_bytes is {}, {} are", now.stats.disk_writing_bytes, writing);
    if (now.stats.prefetch_bytes > reading)
      return fmt::format("prefetches are charged {} bytes, {} are being read", now.stats.prefetch_bytes,
                         reading);
    return std::nullopt;
  }

  // What came up and is seen is whole, every byte of it, before anybody reads it.
  static std::optional<std::string> check_brought(const Scene& scene) {
    for (const Publication& each : publications(scene)) {
      if (!each.residence->from_disk) continue;
      const Space& space = scene.spaces[scene.space_of.at(each.page.ns)];
      if (!scene.stored_computation(space, *each.residence) &&
          !scene.book.find(each.page)->ever_damaged.contains(each.residence->cls))
        return fmt::format("class {} of page {} came up and is nobody's whole record",
                           each.residence->cls.value(), to_hex(each.page.key));
    }
    return std::nullopt;
  }

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

  static std::optional<std::string> check_deadlines(const Scene& scene) {
    const Time now = scene.clock.now();
    for (const auto& [id, waiting] : scene.disk->matches)
      if (now > waiting.deadline + kPollMax)
        return fmt::format("ticket {} is pending {} ms after its deadline", id.value(),
                           (now - waiting.deadline) / std::chrono::milliseconds(1));
    for (const auto& [id, waiting] : scene.disk->prefetches)
      if (now > waiting.deadline + kPollMax)
        return fmt::format("prefetch {} goes on {} ms after its deadline", id.value(),
                           (now - waiting.deadline) / std::chrono::milliseconds(1));
    for (const auto& [id, deadline] : scene.disk->flushes)
      if (now > deadline + kPollMax) return fmt::format("flush {} goes on after its deadline", id.value());
    return std::nullopt;
  }

  static std::optional<std::string> check_quiet(const Scene& scene) {
    const SceneDisk& disk = *scene.disk;
    const Stats& now = scene.view.after.stats;
    if (!disk.matches.empty() || !disk.prefetches.empty() || !disk.flushes.empty())
      return "somebody still waits for the disk when all is quiet";
    if (now.disk_reading_bytes != 0 || now.disk_writing_bytes != 0 || now.prefetch_bytes != 0)
      return fmt::format("{} bytes are read, {} written and {} charged to prefetches when all is quiet",
                         now.disk_reading_bytes, now.disk_writing_bytes, now.prefetch_bytes);
    return std::nullopt;
  }

  // A poll may itself wait for the drive (a removal that is recorded): its time counts.
  static constexpr Duration kPollMax{0};
};

}  // namespace

std::unique_ptr<Checker> disk_tier_checker() { return std::make_unique<DiskTierChecker>(); }

}  // namespace tiercel::sim
