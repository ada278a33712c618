#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class PolicyChecker final : public Checker {
 public:
  std::string_view name() const override { return "policy"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = check_pins(scene)) return wrong;
    if (auto wrong = check_quotas(scene)) return wrong;
    if (auto wrong = check_pages_max(scene)) return wrong;
    return check_advice(scene);
  }

 private:
  static std::optional<std::string> check_pins(const Scene& scene) {
    for (const Event& event : scene.view.events.events) {
      if (event.kind != EventKind::kRemoved || event.cause != Cause::kEvicted) continue;
      const auto pin = scene.pins.find({event.ns, event.key});
      if (pin != scene.pins.end() && pin->second > scene.clock.now())
        return fmt::format("page {} was evicted while it was pinned", to_hex(event.key));
    }
    return std::nullopt;
  }

  static std::map<NamespaceId, std::uint64_t> bytes_of(const Audit& audit) {
    std::map<NamespaceId, std::uint64_t> bytes;
    for (const AuditResidence& each : audit.residences)
      if (each.state != ResidenceState::kHidden && each.state != ResidenceState::kQuarantined)
        bytes[each.ns] += each.payload_bytes;
    return bytes;
  }

  static std::optional<std::string> check_quotas(const Scene& scene) {
    if (!scene.scenario.quotas) return std::nullopt;
    auto now = bytes_of(scene.view.after);
    for (const Space& space : scene.spaces)
      if (space.bytes_max && now[space.id] > *space.bytes_max)
        return fmt::format("namespace {} has {} bytes, its maximum is {}", space.id.value(), now[space.id],
                           *space.bytes_max);
    for (const Event& event : scene.view.events.events) {
      const bool left = event.kind == EventKind::kRemoved || event.kind == EventKind::kDropped;
      // To make room for somebody else. (What no resume point needs any more leaves for nobody's sake.)
      if (!left || event.cause != Cause::kEvicted || !scene.view.storing || scene.view.storing == event.ns)
        continue;
      const Space& space = scene.spaces[scene.space_of.at(event.ns)];
      if (now[space.id] < space.bytes_min)
        return fmt::format("eviction took namespace {} to {} bytes, its minimum is {}", space.id.value(),
                           now[space.id], space.bytes_min);
    }
    return std::nullopt;
  }

  static std::optional<std::string> check_pages_max(const Scene& scene) {
    if (!scene.scenario.options.pages_max) return std::nullopt;
    std::set<PageId> pages;
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.page_visible) pages.insert({each.ns, each.key});
    if (pages.size() <= *scene.scenario.options.pages_max) return std::nullopt;
    return fmt::format("{} pages are visible, at most {} may be", pages.size(),
                       *scene.scenario.options.pages_max);
  }

  // Advice is within what was asked, ascending, the same twice, and within the budget of all tickets
  // together.
  std::optional<std::string> check_advice(const Scene& scene) {
    if (!scene.view.advice_query) return std::nullopt;
    const AdviceQuery& query = *scene.view.advice_query;
    if (scene.view.advice != scene.view.advice_again) return "the same question was advised on in two ways";
    if (scene.view.advice.size() > query.at_most) return "more advice than was asked for";
    std::uint64_t last = 0;
    for (const std::uint64_t length : scene.view.advice) {
      if (length <= last) return "advice does not ascend";
      if (length > query.pages || length <= query.from || length % query.multiple_of != 0)
        return fmt::format("advice to snapshot at {} of {} pages, from {}, multiples of {}", length,
                           query.pages, query.from, query.multiple_of);
      last = length;
      advised_.emplace(scene.view.advice_ticket, length);
    }
    if (!scene.view.advice.empty() && !scene.tickets.at(scene.view.advice_ticket).query.touch)
      return "advice for a match that was no use of its pages";
    const auto budget = scene.scenario.options.snapshot_budget;
    if (budget && advised_.size() > *budget)
      return fmt::format("{} snapshots were advised, the budget is {}", advised_.size(), *budget);
    return std::nullopt;
  }

  std::set<std::pair<TicketId, std::uint64_t>> advised_;
};

}  // namespace

std::unique_ptr<Checker> policy_checker() { return std::make_unique<PolicyChecker>(); }

}  // namespace tiercel::sim
