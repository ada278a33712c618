#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class LivenessChecker final : public Checker {
 public:
  std::string_view name() const override { return "liveness"; }

  std::optional<std::string> check(const Scene& scene) override {
    for (const Completion& completion : scene.view.completions) {
      if (completion.kind == CompletionKind::kLoaded || completion.kind == CompletionKind::kSourceFree)
        answered_.insert(completion.operation);
      if (completion.kind == CompletionKind::kVisible) visible_.insert(completion.operation);
    }
    note_ages(scene);
    if (scene.view.polled)
      if (auto wrong = check_deadlines(scene)) return wrong;
    return scene.view.phase == StepView::Phase::kRunning ? std::nullopt : check_quiet(scene);
  }

 private:
  void note_ages(const Scene& scene) {
    std::map<std::uint32_t, Time> ages;
    for (const AuditResidence& each : scene.view.after.residences) {
      const auto at = since_.find(each.generation);
      ages[each.generation] = at == since_.end() ? scene.clock.now() : at->second;
    }
    since_ = std::move(ages);
  }

  std::optional<std::string> check_deadlines(const Scene& scene) const {
    const Time now = scene.clock.now();
    const Duration ttl = scene.scenario.options.reservation_ttl;
    for (const auto& [id, operation] : scene.operations) {
      if (now > operation.deadline && !answered_.contains(id))
        return fmt::format("operation {} has not answered, {} ms after its deadline", id.value(),
                           (now - operation.deadline) / std::chrono::milliseconds(1));
      const Time settled = std::max(operation.deadline, operation.issued + ttl);
      if (operation.kind != SimOperation::Kind::kLoad && now > settled && operation.quiescent &&
          !visible_.contains(id))
        return fmt::format("operation {} waits to become visible beyond every deadline", id.value());
    }
    for (const AuditResidence& each : scene.view.after.residences)
      if (!each.page_below &&
          (each.state == ResidenceState::kWriting || each.state == ResidenceState::kStaged) &&
          now > since_.at(each.generation) + ttl)
        return fmt::format("class {} of page {} is being written beyond its deadline", each.cls.value(),
                           to_hex(each.key));
    for (const auto& [id, ticket] : scene.tickets)
      if (!ticket.gone && ticket.loads == 0 && now > ticket.matched + scene.scenario.options.ticket_ttl &&
          scene.node->ticket(id) != nullptr)
        return fmt::format("ticket {} outlives its time", id.value());
    return std::nullopt;
  }

  // Faults have stopped, every copy has run, every deadline has passed.
  static std::optional<std::string> check_quiet(const Scene& scene) {
    const Audit& now = scene.view.after;
    if (!now.operations.empty())
      return fmt::format("{} operations are under way when all is quiet", now.operations.size());
    if (now.stats.in_flight_bytes != 0)
      return fmt::format("{} bytes in flight when all is quiet", now.stats.in_flight_bytes);
    for (const AuditResidence& each : now.residences)
      if (each.copies != 0) return fmt::format("page {} is being copied when all is quiet", to_hex(each.key));
    return std::nullopt;
  }

  std::set<OperationId> answered_;
  std::set<OperationId> visible_;
  std::map<std::uint32_t, Time> since_;  // when a generation was seen first
};

}  // namespace

std::unique_ptr<Checker> liveness_checker() { return std::make_unique<LivenessChecker>(); }

}  // namespace tiercel::sim
