#include <algorithm>

#include <fmt/format.h>

#include "sim/checkers.h"
#include "sim/delivery.h"

namespace tiercel::sim {
namespace {

class BytesChecker final : public Checker {
 public:
  std::string_view name() const override { return "bytes"; }

  std::optional<std::string> check(const Scene& scene) override {
    for (const Publication& each : publications(scene))
      if (auto wrong = check_resident(scene, *each.residence)) return wrong;
    for (const Completion& completion : scene.view.completions) {
      if (completion.kind != CompletionKind::kLoaded) continue;
      if (auto wrong = check_load(scene, scene.operations.at(completion.operation), *completion.load))
        return fmt::format("operation {}: {}", completion.operation.value(), *wrong);
    }
    if (auto wrong = check_early(scene)) return wrong;
    if (scene.view.step % 16 != 0 && scene.view.phase == StepView::Phase::kRunning) return std::nullopt;
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.state == ResidenceState::kResident && each.page_visible)
        if (auto wrong = check_resident(scene, each)) return wrong;
    return scene.engine->stray_write();
  }

 private:
  static std::optional<std::string> check_resident(const Scene& scene, const AuditResidence& residence) {
    const PageRecord* record = scene.book.find({residence.ns, residence.key});
    if (record != nullptr && record->ever_damaged.contains(residence.cls)) return std::nullopt;
    const Space& space = scene.spaces[scene.space_of.at(residence.ns)];
    for (std::size_t shard = 0; shard < residence.spans.size(); ++shard)
      if (!scene.stored_computation(space, residence, ShardId(static_cast<std::uint16_t>(shard))))
        return fmt::format("class {} shard {} of page {} does not hold its own bytes", residence.cls.value(),
                           shard, to_hex(residence.key));
    return std::nullopt;
  }

  // Damage, removals and device errors in the middle of a load leave bytes behind a length that shrank; so
  // does damage that somebody else finds first.
  static bool damage_found_by_others(const Scene& scene, const SimOperation& operation,
                                     const std::vector<Delivery>& all) {
    const SimTicket& ticket = scene.tickets.at(operation.ticket);
    for (const Key& key : ticket.keys) {
      const PageId page{scene.spaces[ticket.space].id, key};
      const auto found = scene.damage_found.find(page);
      if (found == scene.damage_found.end()) continue;
      Presence own = 0;
      for (const Delivery& each : all)
        if (each.id == page && each.outcome == ItemOutcome::kDamaged) own |= Presence{1} << each.cls.value();
      for (const auto& [step, classes] : found->second)
        if (step > operation.step && (classes & own) == 0) return true;
    }
    return false;
  }

  static std::optional<std::string> check_load(const Scene& scene, const SimOperation& operation,
                                               const LoadResult& result) {
    const std::vector<Delivery> all = deliveries(scene, operation, result);
    const bool disturbed =
        operation.disturbances != scene.disturbed() || damage_found_by_others(scene, operation, all);
    for (const Delivery& each : all) {
      if (!each.slot) continue;
      if (each.outcome == ItemOutcome::kDelivered) {
        if (!result.status.ok()) continue;
        if (auto wrong = check_delivered(scene, operation, each)) return wrong;
      } else if (result.status.ok() && !disturbed && !untouched(scene.engine->read(*each.slot))) {
        return fmt::format("class {} entry {}: written to, and not delivered (length {})", each.cls.value(),
                           each.entry, result.length);
      }
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_delivered(const Scene& scene, const SimOperation& operation,
                                                    const Delivery& each) {
    const auto computation = delivered_computation(scene, operation, each);
    if (!computation)
      return fmt::format("class {} shard {} of page {} was delivered with bytes that are not its own",
                         each.cls.value(), each.shard.value(), each.page);
    const SimTicket& ticket = scene.tickets.at(operation.ticket);
    const auto lease = ticket.leases.find({each.page, each.cls});
    if (lease != ticket.leases.end() && lease->second.computation &&
        *lease->second.computation != *computation)
      return fmt::format("class {} of page {}: computation {} was leased, {} was delivered", each.cls.value(),
                         each.page, *lease->second.computation, *computation);
    return std::nullopt;
  }

  // Nothing is written before the engine's event.
  static std::optional<std::string> check_early(const Scene& scene) {
    for (const auto& [id, operation] : scene.operations) {
      if (operation.event == 0 || operation.event_fired || operation.kind != SimOperation::Kind::kLoad)
        continue;
      for (const auto& slots : operation.targets)
        for (const auto& slot : slots)
          if (slot && !untouched(scene.engine->read(*slot)))
            return fmt::format("operation {} wrote before its event", id.value());
    }
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> bytes_checker() { return std::make_unique<BytesChecker>(); }

}  // namespace tiercel::sim
