#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class LeaksChecker final : public Checker {
 public:
  std::string_view name() const override { return "leaks"; }

  std::optional<std::string> check(const Scene& scene) override {
    const StepView::Phase phase = scene.view.phase;
    if (phase != StepView::Phase::kEnded && phase != StepView::Phase::kEmptied) return std::nullopt;
    if (auto wrong = check_ended(scene)) return wrong;
    return phase == StepView::Phase::kEmptied ? check_emptied(scene.view.after) : std::nullopt;
  }

 private:
  // All sessions are closed: nothing is anybody's.
  static std::optional<std::string> check_ended(const Scene& scene) {
    const Audit& now = scene.view.after;
    if (!now.tickets.empty())
      return fmt::format("{} tickets are left when all clients have gone", now.tickets.size());
    if (now.session_bytes != 0 || now.stats.leased_bytes != 0 || now.stats.reserved_bytes != 0)
      return fmt::format("{} bytes leased and {} reserved when all clients have gone", now.stats.leased_bytes,
                         now.stats.reserved_bytes);
    if (now.stats.quarantined_bytes != 0)
      return fmt::format("{} bytes are quarantined when all clients have gone", now.stats.quarantined_bytes);
    for (const AuditResidence& each : now.residences)
      if (each.state != ResidenceState::kResident && !each.page_below)
        return fmt::format("class {} of page {} is not resident and keeps its slots", each.cls.value(),
                           to_hex(each.key));
    if (scene.engine->taken() != 0)
      return fmt::format("{} slots of engine memory were never given back", scene.engine->taken());
    return std::nullopt;
  }

  static std::optional<std::string> check_emptied(const Audit& now) {
    if (!now.residences.empty())
      return fmt::format("{} class-sets are left when all is cleared, first class {} of page {} in state {}",
                         now.residences.size(), now.residences.front().cls.value(),
                         to_hex(now.residences.front().key), static_cast<int>(now.residences.front().state));
    if (now.extents_free != now.extents_total)
      return fmt::format("{} of {} extents are free when all is cleared", now.extents_free,
                         now.extents_total);
    if (now.index_entries != 0)
      return fmt::format("{} index entries are left when all is cleared", now.index_entries);
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> leaks_checker() { return std::make_unique<LeaksChecker>(); }

}  // namespace tiercel::sim
