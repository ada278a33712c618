#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

std::optional<std::string> differs(std::string_view what, std::uint64_t said, std::uint64_t counted) {
  if (said == counted) return std::nullopt;
  return fmt::format("{}: {} said, {} counted", what, said, counted);
}
std::optional<std::string> exceeds(std::string_view what, std::uint64_t got, std::uint64_t limit) {
  if (got <= limit) return std::nullopt;
  return fmt::format("{}: {} is above {}", what, got, limit);
}

class BudgetChecker final : public Checker {
 public:
  std::string_view name() const override { return "budget"; }

  std::optional<std::string> check(const Scene& scene) override {
    if (auto wrong = check_limits(scene)) return wrong;
    if (auto wrong = check_records(scene.view.after)) return wrong;
    if (auto wrong = check_in_flight(scene)) return wrong;
    return check_sessions(scene);
  }

 private:
  static std::optional<std::string> check_limits(const Scene& scene) {
    const Stats& stats = scene.view.after.stats;
    const NodeOptions& options = scene.scenario.options;
    if (auto wrong = differs("host_bytes_granted", stats.host_bytes_granted, options.host_bytes))
      return wrong;
    if (auto wrong =
            exceeds("arena, index, history and advice",
                    stats.arena_bytes_owned + stats.index_bytes + stats.history_bytes + stats.advice_bytes,
                    options.host_bytes))
      return wrong;
    if (auto wrong = exceeds("arena_bytes_owned", stats.arena_bytes_owned, stats.arena_bytes)) return wrong;
    if (options.record_bytes_max)
      if (auto wrong = exceeds("payload_bytes", stats.payload_bytes, *options.record_bytes_max)) return wrong;
    if (auto wrong = exceeds("resident_bytes", stats.resident_bytes, stats.resident_bytes_peak)) return wrong;
    return exceeds("index entries", scene.view.after.index_entries, options.index_pages_max);
  }

  static std::optional<std::string> check_records(const Audit& now) {
    std::uint64_t payload = 0;
    std::uint64_t resident = 0;
    std::uint64_t quarantined = 0;
    std::uint64_t slots = 0;
    for (const AuditResidence& each : now.residences) {
      payload += each.payload_bytes;
      if (each.state == ResidenceState::kResident) resident += each.payload_bytes;
      if (each.state == ResidenceState::kQuarantined) quarantined += each.payload_bytes;
      for (const auto& shard : each.spans)
        for (const ArenaSpan& span : shard) slots += span.length;
    }
    if (auto wrong = differs("payload_bytes", now.stats.payload_bytes, payload)) return wrong;
    if (auto wrong = differs("resident_bytes", now.stats.resident_bytes, resident)) return wrong;
    if (auto wrong = differs("quarantined_bytes", now.stats.quarantined_bytes, quarantined)) return wrong;
    if (auto wrong = differs("owned minus fragmentation",
                             now.stats.arena_bytes_owned - now.stats.fragmentation_bytes, slots))
      return wrong;
    return differs("arena_bytes_owned", now.stats.arena_bytes_owned,
                   (now.extents_total - now.extents_free) * now.extent_bytes);
  }

  static std::optional<std::string> check_in_flight(const Scene& scene) {
    const Audit& now = scene.view.after;
    std::uint64_t running = 0;
    for (const AuditOperation& each : now.operations) running += each.running_bytes;
    if (auto wrong = differs("in_flight_bytes", now.stats.in_flight_bytes, running)) return wrong;
    std::uint64_t under_copies = 0;
    for (const AuditResidence& each : now.residences) under_copies += each.copies * each.payload_bytes;
    if (auto wrong = exceeds("in_flight_bytes", now.stats.in_flight_bytes, under_copies)) return wrong;
    const std::uint64_t limit = scene.scenario.options.in_flight_bytes_max;
    if (limit != 0)
      if (auto wrong = exceeds("in_flight_bytes", now.stats.in_flight_bytes, limit)) return wrong;
    const bool idle = scene.executor->held() == 0 && scene.executor->ran() == scene.ran_before_poll;
    return idle ? differs("in_flight_bytes when nothing runs", now.stats.in_flight_bytes, 0) : std::nullopt;
  }

  static std::optional<std::string> check_sessions(const Scene& scene) {
    const Audit& now = scene.view.after;
    std::map<std::uint32_t, std::uint64_t> payload;
    for (const AuditResidence& each : now.residences) payload[each.generation] = each.payload_bytes;
    std::uint64_t leased = 0;
    for (const AuditTicket& ticket : now.tickets) {
      std::uint64_t own = 0;
      for (const auto& [cls, generation] : ticket.leases) own += payload[generation];
      if (auto wrong = differs("leased_bytes of a ticket", ticket.leased_bytes, own)) return wrong;
      leased += own;
    }
    if (auto wrong = differs("leased_bytes", now.stats.leased_bytes, leased)) return wrong;
    if (auto wrong = exceeds("reserved_bytes", now.stats.reserved_bytes, now.stats.payload_bytes))
      return wrong;
    std::uint64_t writing = 0;
    for (const AuditResidence& each : now.residences)
      if (each.state == ResidenceState::kWriting || each.state == ResidenceState::kQuarantined)
        writing += each.payload_bytes;
    if (auto wrong = exceeds("what is written or quarantined, against reserved_bytes", writing,
                             now.stats.reserved_bytes))
      return wrong;
    return check_charges(scene);
  }

  // Every byte leased or reserved is charged to a session. What a closed session had under copies is nobody's
  // until they end; so is what another process may still write to.
  static std::optional<std::string> check_charges(const Scene& scene) {
    const Audit& now = scene.view.after;
    const auto open = [&](SessionId session) {
      return std::any_of(scene.clients.begin(), scene.clients.end(),
                         [&](const Client& each) { return each.id == session; });
    };
    std::uint64_t leased = 0;
    for (const AuditTicket& ticket : now.tickets)
      if (open(ticket.session)) leased += ticket.leased_bytes;
    std::uint64_t left_behind = 0;
    for (const AuditResidence& each : now.residences)
      if (!open(each.session) && each.state != ResidenceState::kResident &&
          (each.copies != 0 || each.state == ResidenceState::kQuarantined))
        left_behind += each.payload_bytes;
    const std::uint64_t wanted = leased + now.stats.reserved_bytes;
    if (now.session_bytes > wanted || now.session_bytes + left_behind < wanted)
      return fmt::format("{} bytes are charged to sessions, {} are leased or reserved, {} left behind",
                         now.session_bytes, wanted, left_behind);
    return std::nullopt;
  }
};

}  // namespace

std::unique_ptr<Checker> budget_checker() { return std::make_unique<BudgetChecker>(); }

}  // namespace tiercel::sim
