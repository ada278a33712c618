#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "base/crc32c.h"
#include "memory/record.h"
#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class LeasesChecker final : public Checker {
 public:
  std::string_view name() const override { return "leases"; }

  std::optional<std::string> check(const Scene& scene) override {
    const Audit& now = scene.view.after;
    std::map<std::uint32_t, const AuditResidence*> by_generation;
    for (const AuditResidence& each : now.residences) by_generation[each.generation] = &each;
    if (auto wrong = check_counts(now, by_generation)) return wrong;
    if (auto wrong = check_places(scene, by_generation)) return wrong;
    if (auto wrong = check_evictions(scene)) return wrong;
    if (auto wrong = check_copies(scene)) return wrong;
    if (auto wrong = check_bytes(scene, by_generation)) return wrong;
    return check_reservations(scene);
  }

 private:
  using ByGeneration = std::map<std::uint32_t, const AuditResidence*>;

  static std::string text(const AuditResidence& each) {
    return fmt::format("class {} of page {} (generation {})", each.cls.value(), to_hex(each.key),
                       each.generation);
  }

  static std::optional<std::string> check_counts(const Audit& now, const ByGeneration& by_generation) {
    std::map<std::uint32_t, std::uint32_t> leases;
    for (const AuditTicket& ticket : now.tickets)
      for (const auto& [cls, generation] : ticket.leases) {
        const auto at = by_generation.find(generation);
        if (at == by_generation.end() || at->second->cls != cls)
          return fmt::format("ticket {} leases class {} generation {}, which is gone", ticket.ticket.value(),
                             cls.value(), generation);
        ++leases[generation];
      }
    for (const auto& [generation, residence] : by_generation) {
      const auto at = leases.find(generation);
      const std::uint32_t wanted = at == leases.end() ? 0 : at->second;
      if (residence->leases != wanted)
        return fmt::format("{}: {} leases counted, {} held by tickets", text(*residence), residence->leases,
                           wanted);
    }
    return std::nullopt;
  }

  // What was leased or copied before this step and still is lies where it lay.
  static std::optional<std::string> check_places(const Scene& scene, const ByGeneration& by_generation) {
    for (const AuditResidence& before : scene.view.before.residences) {
      if (before.leases == 0 && before.copies == 0 && before.state != ResidenceState::kQuarantined) continue;
      const auto at = by_generation.find(before.generation);
      if (at == by_generation.end()) continue;
      if (before.spans != at->second->spans || before.slots != at->second->slots)
        return fmt::format("{} was moved while it was in use", text(before));
    }
    return std::nullopt;
  }

  // Eviction passes over what is leased or copied: nothing is in use that has just been evicted.
  static std::optional<std::string> check_evictions(const Scene& scene) {
    for (const Event& event : scene.view.events.events) {
      if (event.cause != Cause::kEvicted) continue;
      for (const AuditResidence& now : scene.view.after.residences)
        if (now.ns == event.ns && now.key == event.key && (event.classes >> now.cls.value() & 1) != 0 &&
            now.state == ResidenceState::kHidden &&
            now.leases + now.copies != (now.writing ? 1U : 0U) + (now.storing ? 1U : 0U) &&
            was_resident(scene.view.before, now.generation))
          return fmt::format("{} was evicted while it was in use", text(now));
    }
    return std::nullopt;
  }
  static bool was_resident(const Audit& before, std::uint32_t generation) {
    return std::any_of(before.residences.begin(), before.residences.end(), [&](const AuditResidence& each) {
      return each.generation == generation && each.state == ResidenceState::kResident;
    });
  }

  // Every copy under way has a residence that keeps its slots.
  static std::optional<std::string> check_copies(const Scene& scene) {
    if (scene.scenario.executor.at_once) return std::nullopt;
    std::uint64_t copies = 0;
    for (const AuditResidence& each : scene.view.after.residences) copies += each.copies;
    const std::uint64_t running = scene.executor->held() + (scene.executor->ran() - scene.ran_before_poll);
    if (copies < running)
      return fmt::format("{} copies are under way, slots are kept for {}", running, copies);
    return std::nullopt;
  }

  std::optional<std::string> check_bytes(const Scene& scene, const ByGeneration& by_generation) {
    std::map<std::uint32_t, std::uint32_t> sums;
    for (const auto& [generation, residence] : by_generation) {
      if (residence->leases == 0) continue;
      const PageRecord* record = scene.book.find({residence->ns, residence->key});
      if (record != nullptr && record->damaged.contains(residence->cls) &&
          residence->state == ResidenceState::kResident)
        damaged_.insert(generation);
      if (damaged_.contains(generation)) continue;
      std::uint32_t sum = 0;
      const ClassForm& cls =
          scene.form_of(scene.spaces[scene.space_of.at(residence->ns)]).classes[residence->cls.value()];
      for (const auto& spans : residence->spans)
        sum = crc32c(scene.arena->read(spans, 0, header_bytes(cls) + cls.record_bytes), sum);
      const auto at = sums_.find(generation);
      if (at != sums_.end() && at->second != sum)
        return fmt::format("{}: its bytes changed under a lease", text(*residence));
      sums[generation] = sum;
    }
    sums_ = std::move(sums);
    return std::nullopt;
  }

  // A client's own slots stay its own until it gives them back.
  static std::optional<std::string> check_reservations(const Scene& scene) {
    for (const auto& [id, reservation] : scene.reservations) {
      if (reservation.ended || reservation.writer != 0)
        continue;  // those of other processes: check_writers.cc
      const StorageForm& form = scene.form_of(scene.spaces[reservation.space]);
      for (std::size_t i = 0; i < reservation.items.size(); ++i) {
        if (reservation.first[i] != StoreOutcome::kAccepted) continue;
        if (scene.node->reserved_spans(id, i) != reservation.spans[i])
          return fmt::format("reservation {} item {}: its slot is not the one it was given", id.value(), i);
        const auto& written = reservation.last_written[i];
        if (written.empty()) continue;
        const ClassForm& cls = form.classes[reservation.items[i].cls.value()];
        if (scene.arena->read(reservation.spans[i], header_bytes(cls), cls.record_bytes) != written)
          return fmt::format("reservation {} item {}: somebody else wrote to its slot", id.value(), i);
      }
    }
    return std::nullopt;
  }

  std::map<std::uint32_t, std::uint32_t> sums_;  // of leased records, by generation
  std::set<std::uint32_t> damaged_;              // generations that the simulator damaged
};

}  // namespace

std::unique_ptr<Checker> leases_checker() { return std::make_unique<LeasesChecker>(); }

}  // namespace tiercel::sim
