#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "memory/record.h"
#include "sim/checkers.h"

namespace tiercel::sim {
namespace {

class WritersChecker final : public Checker {
 public:
  std::string_view name() const override { return "writers"; }

  std::optional<std::string> check(const Scene& scene) override {
    std::map<std::uint64_t, const AuditResidence*> by_offset;  // of a record's first byte
    for (const AuditResidence& each : scene.view.after.residences)
      for (const auto& spans : each.spans) by_offset[spans.front().offset] = &each;
    for (const HeldSlot& slot : scene.writers->held())
      if (auto wrong = check_slot(scene, slot, by_offset))
        return fmt::format("process {} may write to item {} of reservation {}: {}", slot.process, slot.item,
                           slot.reservation.value(), *wrong);
    std::erase_if(generations_, [&](const auto& each) {
      return std::none_of(scene.writers->held().begin(), scene.writers->held().end(),
                          [&](const HeldSlot& slot) {
                            return slot.reservation == each.first.first && slot.item == each.first.second;
                          });
    });
    for (const Completion& completion : scene.view.completions)
      if (completion.kind == CompletionKind::kSourceFree)
        if (auto wrong = check_commit(scene.operations.at(completion.operation), completion.store))
          return fmt::format("operation {}: {}", completion.operation.value(), *wrong);
    return std::nullopt;
  }

 private:
  // No slot that a living process may write to is anybody else's, or free to become so.
  std::optional<std::string> check_slot(const Scene& scene, const HeldSlot& slot,
                                        const std::map<std::uint64_t, const AuditResidence*>& by_offset) {
    const auto owner = by_offset.find(slot.spans.front().offset);
    if (owner == by_offset.end()) return "its slot is free";
    const AuditResidence& set = *owner->second;
    const auto [first, fresh] = generations_.try_emplace({slot.reservation, slot.item}, set.generation);
    if (set.generation != first->second || set.spans[slot.what.shard.value()] != slot.spans)
      return fmt::format("its slot is now class {} of page {} (generation {})", set.cls.value(),
                         to_hex(set.key), set.generation);
    if (set.state == ResidenceState::kResident || set.state == ResidenceState::kStaged)
      return "its record was published";
    const auto reservation = scene.reservations.find(slot.reservation);
    const bool ended = reservation == scene.reservations.end() || reservation->second.ended;
    if (ended && set.state != ResidenceState::kQuarantined)
      return "its reservation has ended and it is not quarantined";
    const ClassForm& cls = scene.form_of(scene.spaces[slot.space]).classes[slot.what.cls.value()];
    if (!slot.written.empty() &&
        scene.arena->read(slot.spans, header_bytes(cls), cls.record_bytes) != slot.written)
      return "somebody else wrote there";
    return std::nullopt;
  }

  static std::optional<std::string> check_commit(const SimOperation& operation,
                                                 const std::vector<StoreOutcome>& outcomes) {
    if (operation.kind != SimOperation::Kind::kCommit) return std::nullopt;
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
      if (operation.first[i] != StoreOutcome::kAccepted) continue;
      if ((outcomes[i] == StoreOutcome::kNotArrived) == operation.named[i])
        return fmt::format("item {} was {}named and ends as {}", i, operation.named[i] ? "" : "not ",
                           outcome_name(outcomes[i]));
      if (operation.bad_sum[i] && outcomes[i] == StoreOutcome::kCommitted)
        return fmt::format("item {} was committed under a checksum of other bytes", i);
    }
    return std::nullopt;
  }

  // Of the class-set to which a held slot belonged at first.
  std::map<std::pair<ReservationId, std::size_t>, std::uint32_t> generations_;
};

}  // namespace

std::unique_ptr<Checker> writers_checker() { return std::make_unique<WritersChecker>(); }

}  // namespace tiercel::sim
