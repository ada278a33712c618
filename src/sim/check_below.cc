#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/delivery.h"
#include "sim/scene_below.h"

namespace tiercel::sim {
namespace {

// The node over tiers below, whichever they are. What each of them promises has checkers of its own.
class BelowChecker final : public Checker {
 public:
  std::string_view name() const override { return "below"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (scene.below == nullptr) return std::nullopt;
    if (!scene.below->wrong.empty()) return scene.below->wrong.front();
    if (auto wrong = check_bytes(scene)) return wrong;
    if (auto wrong = check_brought(scene)) return wrong;
    if (scene.view.polled)
      if (auto wrong = check_deadlines(scene)) return wrong;
    return scene.view.phase == StepView::Phase::kRunning ? std::nullopt : check_quiet(scene);
  }

 private:
  static std::optional<std::string> check_bytes(const Scene& scene) {
    const Audit& now = scene.view.after;
    std::uint64_t from_disk = 0, from_remote = 0, writing = 0, storing = 0;
    for (const AuditResidence& each : now.residences) {
      if (each.reading) (each.from_remote ? from_remote : from_disk) += each.payload_bytes;
      if (each.writing) writing += each.payload_bytes;
      if (each.storing) storing += each.payload_bytes;
      if (each.copies < (each.writing ? 1U : 0U) + (each.storing ? 1U : 0U))
        return fmt::format("class {} of page {} is being written down and may be reused", each.cls.value(),
                           to_hex(each.key));
    }
    const auto differs = [](std::string_view what, std::uint64_t said, std::uint64_t counted) {
      return said == counted ? std::nullopt
                             : std::optional(fmt::format("{} is {}, {} are", what, said, counted));
    };
    if (auto wrong = differs("disk_reading_bytes", now.stats.disk_reading_bytes, from_disk)) return wrong;
    if (auto wrong = differs("disk_writing_bytes", now.stats.disk_writing_bytes, writing)) return wrong;
    if (auto wrong = differs("remote_reading_bytes", now.stats.remote_reading_bytes, from_remote))
      return wrong;
    if (auto wrong = differs("remote_writing_bytes", now.stats.remote_writing_bytes, storing)) return wrong;
    if (now.stats.prefetch_bytes > from_disk + from_remote)
      return fmt::format("prefetches are charged {} bytes, {} are being read", now.stats.prefetch_bytes,
                         from_disk + from_remote);
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

  // Whoever waits is answered in time. (A poll may itself wait, for a removal that is recorded: its time
  // counts.)
  static std::optional<std::string> check_deadlines(const Scene& scene) {
    const Time now = scene.clock.now();
    for (const auto& [id, waiting] : scene.below->matches)
      if (now > waiting.deadline)
        return fmt::format("ticket {} is pending {} ms after its deadline", id.value(),
                           (now - waiting.deadline) / std::chrono::milliseconds(1));
    for (const auto& [id, waiting] : scene.below->prefetches)
      if (now > waiting.deadline)
        return fmt::format("prefetch {} goes on {} ms after its deadline", id.value(),
                           (now - waiting.deadline) / std::chrono::milliseconds(1));
    return std::nullopt;
  }

  static std::optional<std::string> check_quiet(const Scene& scene) {
    const Stats& now = scene.view.after.stats;
    if (!scene.below->matches.empty() || !scene.below->prefetches.empty())
      return "somebody still waits for what is below when all is quiet";
    const std::uint64_t reading = now.disk_reading_bytes + now.remote_reading_bytes;
    const std::uint64_t writing = now.disk_writing_bytes + now.remote_writing_bytes;
    if (reading + writing + now.prefetch_bytes != 0)
      return fmt::format("{} bytes are read, {} written and {} charged to prefetches when all is quiet",
                         reading, writing, now.prefetch_bytes);
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> below_checker() { return std::make_unique<BelowChecker>(); }

}  // namespace tiercel::sim
