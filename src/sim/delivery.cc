#include "sim/delivery.h"

#include <algorithm>

namespace tiercel::sim {

std::vector<Delivery> deliveries(const Scene& scene, const SimOperation& operation,
                                 const LoadResult& result) {
  const SimTicket& ticket = scene.tickets.at(operation.ticket);
  const Space& space = scene.spaces[operation.space];
  std::vector<Delivery> all;
  for (std::size_t t = 0; t < operation.load.targets.size(); ++t) {
    const LoadTarget& target = operation.load.targets[t];
    const bool state = scene.form_of(space).classes[target.cls.value()].is_state();
    for (std::size_t entry = 0; entry < target.slots.size(); ++entry) {
      Delivery each;
      each.target = t;
      each.entry = entry;
      const std::uint64_t length = result.length != 0 ? result.length : operation.load.length;
      each.page = state ? length - 1 : ticket.first_page + entry;
      if (each.page >= ticket.first_page && each.page - ticket.first_page < ticket.keys.size())
        each.id = {space.id, ticket.keys[each.page - ticket.first_page]};
      each.cls = target.cls;
      each.shard = target.shard;
      each.slot = operation.targets[t][entry];
      each.outcome = result.outcomes[t][entry];
      all.push_back(each);
    }
  }
  return all;
}

std::optional<Computation> delivered_computation(const Scene& scene, const SimOperation& operation,
                                                 const Delivery& delivery) {
  if (!delivery.slot) return std::nullopt;
  const Space& space = scene.spaces[operation.space];
  const ClassForm& cls = scene.form_of(space).classes[delivery.cls.value()];
  return whole_payload(cls, scene.record_name(space, delivery.id.key, delivery.cls, delivery.shard),
                       scene.engine->read(*delivery.slot));
}

bool needed_at(const ClassForm& cls, std::uint64_t page_tokens, std::uint64_t length, std::uint64_t page) {
  if (page >= length) return false;
  if (cls.required()) return true;
  if (cls.is_state()) return page + 1 == length;
  if (const auto* window = std::get_if<WindowRetention>(&cls.retention)) {
    // The next token sees the window_tokens - 1 tokens before it.
    const std::uint64_t next = length * page_tokens;
    return next - (page + 1) * page_tokens < window->window_tokens - 1;
  }
  return false;
}

std::vector<Publication> publications(const Scene& scene) {
  std::vector<Publication> all;
  for (const Event& event : scene.view.events.events) {
    if (event.kind != EventKind::kStored && event.kind != EventKind::kAttached) continue;
    const PageId page{event.ns, event.key};
    for (const AuditResidence& each : scene.view.after.residences)
      if (each.ns == page.ns && each.key == page.key && each.state == ResidenceState::kResident &&
          each.page_visible && (event.classes >> each.cls.value() & 1) != 0)
        all.push_back({&event, page, &each});
  }
  return all;
}

}  // namespace tiercel::sim
