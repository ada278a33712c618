#include <algorithm>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/delivery.h"

namespace tiercel::sim {
namespace {

class StaleChecker final : public Checker {
 public:
  std::string_view name() const override { return "stale"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = check_published(scene)) return wrong;
    if (auto wrong = check_found(scene)) return wrong;
    if (auto wrong = check_match(scene)) return wrong;
    return check_delivered(scene);
  }

 private:
  // Whether this computation's record of the page was accepted before the page was last removed, and not
  // after.
  static bool old(const Scene& scene, const PageId& page, ClassId cls, Computation computation) {
    const PageRecord* record = scene.book.find(page);
    if (record == nullptr) return false;
    const auto written = record->written.find({cls, ShardId(0)});
    if (written == record->written.end()) return false;
    bool known = false;
    for (const Written& each : written->second) {
      if (each.computation != computation) continue;
      if (each.removals == record->removals) return false;
      known = true;
    }
    return known;
  }

  static std::optional<std::string> check_published(const Scene& scene) {
    for (const Publication& each : publications(scene)) {
      const Space& space = scene.spaces[scene.space_of.at(each.page.ns)];
      if (space.dead)
        return fmt::format("page {} of an old weights epoch became visible", to_hex(each.page.key));
      // An attach to another life of its page is the business of the checker of mixtures.
      if (each.event->kind == EventKind::kAttached && scene.form_of(space).has_required()) continue;
      const auto computation = scene.stored_computation(space, *each.residence);
      if (computation && old(scene, each.page, each.residence->cls, *computation))
        return fmt::format("class {} of page {} became visible; it is older than the page's removal",
                           each.residence->cls.value(), to_hex(each.page.key));
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_found(const Scene& scene) {
    for (const AuditResidence& each : scene.view.after.residences) {
      const PageId page{each.ns, each.key};
      const PageRecord* record = scene.book.find(page);
      if (record == nullptr || record->visible || record->removals == 0) continue;
      if (each.state != ResidenceState::kResident || !each.page_visible) continue;
      if (!scene.cleared_generations.contains(each.generation))
        return fmt::format("page {} was removed and is visible", to_hex(page.key));
      if (scene.node->exists(page.ns, each.cls, page.key))
        return fmt::format("page {} was cleared and exists", to_hex(page.key));
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_match(const Scene& scene) {
    if (!scene.view.matched) return std::nullopt;
    const SimTicket& ticket = scene.tickets.at(*scene.view.matched);
    const Space& space = scene.spaces[ticket.space];
    for (const std::uint64_t pages : ticket.view.resident)
      if (space.dead && pages != 0) return "a namespace of an old weights epoch has pages";
    for (std::size_t c = 0; c < ticket.view.resident.size(); ++c) {
      std::uint64_t there = 0;
      std::uint64_t removals = 0;
      for (const Key& key : ticket.keys) {
        there += scene.book.presence({space.id, key}) >> c & 1;
        if (const PageRecord* record = scene.book.find({space.id, key})) removals += record->removals;
      }
      if (ticket.view.resident[c] > there && removals != 0)
        return fmt::format("ticket {} offers {} pages of class {}, {} are left after removals",
                           ticket.id.value(), ticket.view.resident[c], c, there);
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_delivered(const Scene& scene) {
    for (const Completion& completion : scene.view.completions) {
      if (completion.kind != CompletionKind::kLoaded || !completion.load->status.ok()) continue;
      const SimOperation& operation = scene.operations.at(completion.operation);
      for (const Delivery& each : deliveries(scene, operation, *completion.load)) {
        if (each.outcome != ItemOutcome::kDelivered) continue;
        const auto computation = delivered_computation(scene, operation, each);
        if (computation && old(scene, each.id, each.cls, *computation))
          return fmt::format("operation {} delivered class {} of page {}, which was removed before",
                             operation.id.value(), each.cls.value(), each.page);
      }
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> stale_checker() { return std::make_unique<StaleChecker>(); }

}  // namespace tiercel::sim
