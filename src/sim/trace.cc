#include "sim/trace.h"

#include <fmt/format.h>

namespace tiercel::sim {
namespace {

std::string short_key(const Key& key) { return to_hex(key).substr(0, 6); }

std::string describe(const SimOperation& operation) {
  if (operation.kind == SimOperation::Kind::kLoad) {
    std::string text =
        fmt::format("  load {} of ticket {}: {} pages{}, event {}, {} ms\n", operation.id.value(),
                    operation.ticket.value(), operation.load.length,
                    operation.load.mode == LoadMode::kLayered ? " layered" : "", operation.event,
                    (operation.deadline - operation.issued) / std::chrono::milliseconds(1));
    for (const LoadTarget& target : operation.load.targets)
      text += fmt::format("    class {} shard {}: {} slots\n", target.cls.value(), target.shard.value(),
                          target.slots.size());
    return text;
  }
  std::string text =
      fmt::format("  {} {} of request {} session {}: event {}, {} ms\n",
                  operation.kind == SimOperation::Kind::kStore ? "store" : "commit", operation.id.value(),
                  operation.request.value(), operation.session.value(), operation.event,
                  (operation.deadline - operation.issued) / std::chrono::milliseconds(1));
  for (std::size_t i = 0; i < operation.items.size(); ++i)
    text += fmt::format("    page {} ({}) class {} shard {}: {}\n", short_key(operation.items[i].key),
                        operation.items[i].length, operation.items[i].cls.value(),
                        operation.items[i].shard.value(), outcome_name(operation.first[i]));
  return text;
}

std::string describe(const Completion& completion) {
  static constexpr std::string_view kKinds[] = {"loaded",    "layer_ready", "source_free", "visible",
                                                "quiescent", "suspended",   "matched",     "prefetched",
                                                "accepted",  "durable",     "flushed"};
  std::string text = fmt::format("  {} {}{}", kKinds[static_cast<std::size_t>(completion.kind)],
                                 completion.operation.value(), completion.quiescent ? "" : " (copies run)");
  if (completion.kind == CompletionKind::kLayerReady) text += fmt::format(" layer {}", completion.layer);
  if (completion.load)
    text += fmt::format(" length {} {}", completion.load->length, completion.load->status.to_string());
  for (const StoreOutcome outcome : completion.store) text += fmt::format(" {}", outcome_name(outcome));
  text += "\n";
  if (!completion.load) return text;
  for (const auto& outcomes : completion.load->outcomes) {
    static constexpr char kLetters[] =
        "n-dm!.";  // not needed, skipped, delivered, missing, damaged, not delivered
    text += "    ";
    for (const ItemOutcome outcome : outcomes) text += kLetters[static_cast<std::size_t>(outcome)];
    text += "\n";
  }
  return text;
}

std::string describe(const Event& event) {
  static constexpr std::string_view kKinds[] = {"stored", "attached", "dropped", "removed", "cleared"};
  return fmt::format("  event {}: {} page {} classes {:#x} {}\n", event.sequence,
                     kKinds[static_cast<std::size_t>(event.kind)], short_key(event.key), event.classes,
                     reason_name(reason_from(event.cause)));
}

std::string describe(const SimTicket& ticket) {
  std::string text =
      fmt::format("  ticket {} of request {} session {}: first page {}, held {}, lengths {}\n   ",
                  ticket.id.value(), ticket.request.value(), ticket.session.value(), ticket.first_page,
                  fmt::join(ticket.held, ","), fmt::join(ticket.view.lengths, ","));
  for (const Key& key : ticket.keys) text += " " + short_key(key);
  text += "\n";
  for (const Miss& miss : ticket.view.missed)
    text += fmt::format("    page {}: {} x {} {}\n", miss.first_page, miss.pages, reason_name(miss.reason),
                        miss.field);
  return text;
}

}  // namespace

std::string describe_step(const Scene& scene) {
  const StepView& view = scene.view;
  std::string text = fmt::format("{} {} at {} ms\n", view.step, view.action,
                                 scene.clock.now() / std::chrono::milliseconds(1));
  for (const auto& [id, operation] : scene.operations)
    if (operation.step == view.step) text += describe(operation);
  for (const auto& [id, reservation] : scene.reservations)
    if (reservation.step == view.step)
      text += fmt::format("  reservation {} of request {} session {}: {} items\n", id.value(),
                          reservation.request.value(), reservation.session.value(), reservation.items.size());
  if (view.matched) text += describe(scene.tickets.at(*view.matched));
  for (const Completion& completion : view.completions) text += describe(completion);
  for (const Event& event : view.events.events) text += describe(event);
  for (const AuditResidence& each : view.after.residences)
    if (each.state != ResidenceState::kResident || each.copies + each.leases != 0)
      text +=
          fmt::format("  in use: page {} class {} generation {} state {} session {} leases {} copies {}\n",
                      short_key(each.key), each.cls.value(), each.generation, static_cast<int>(each.state),
                      each.session.value(), each.leases, each.copies);
  if (!view.note.empty()) text += fmt::format("  {}\n", view.note);
  return text;
}

}  // namespace tiercel::sim
