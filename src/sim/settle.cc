// What follows from a step's answers in the simulator's own books.

#include <algorithm>

#include "base/check.h"
#include "sim/actions.h"
#include "sim/scene_below.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

void note_loaded(Scene& scene, SimOperation& operation, const Completion& completion) {
  operation.loaded = true;
  operation.quiescent = completion.quiescent;
  operation.result = *completion.load;
  const LoadResult& result = operation.result;
  SimTicket& ticket = scene.tickets.at(operation.ticket);
  if (!completion.quiescent) scene.coverage.hit("load_quiescent_after_deadline");
  if (result.status.code == Code::kDeadlineExceeded) scene.coverage.hit("load_timed_out");
  if (result.status.code == Code::kCancelled) scene.coverage.hit("load_cancelled");
  if (result.status.code == Code::kDataCorrupt && !operation.ready.empty())
    scene.coverage.hit("load_layered_damaged_after_first_event");
  if (result.status.ok() && result.length < operation.load.length) scene.coverage.hit("load_shortened");
  // Whatever was not delivered may have failed for this request: it may not be offered to it again.
  if (operation.request == RequestId{} || (result.status.ok() && result.length == operation.load.length))
    return;
  const Space& space = scene.spaces[operation.space];
  bool device = false;
  for (std::size_t i = 0; i < ticket.keys.size(); ++i) {
    bool failed = !result.status.ok() && result.status.code != Code::kCancelled;
    for (std::size_t t = 0; t < result.outcomes.size(); ++t) {
      const bool state = scene.form_of(space).classes[operation.load.targets[t].cls.value()].is_state();
      const auto& outcomes = result.outcomes[t];
      const std::size_t entry = state ? 0 : i;
      if (entry >= outcomes.size()) continue;
      failed = failed || outcomes[entry] == ItemOutcome::kDamaged || outcomes[entry] == ItemOutcome::kMissing;
      device = device || outcomes[entry] == ItemOutcome::kMissing;
    }
    if (failed) scene.failed_loads[operation.request].insert({space.id, ticket.keys[i]});
  }
  if (device && scene.device->write_errors() != 0) scene.coverage.hit("load_device_failed");
}

void note_stored(Scene& scene, SimOperation& operation, const Completion& completion) {
  operation.source_free = true;
  operation.quiescent = completion.quiescent;
  for (const StoreOutcome outcome : completion.store) {
    if (outcome == StoreOutcome::kStale) scene.coverage.hit("stale_commit");
    if (outcome == StoreOutcome::kExpired) scene.coverage.hit("reservation_expired");
    if (outcome == StoreOutcome::kFailed) scene.coverage.hit("store_copy_failed");
    if (outcome == StoreOutcome::kAborted && operation.cancel_asked) scene.coverage.hit("store_cancelled");
    if (outcome == StoreOutcome::kStale && scene.spaces[operation.space].dead)
      scene.coverage.hit("stale_epoch");
    if (outcome == StoreOutcome::kStale && scene.cleared_spaces.contains(scene.spaces[operation.space].id))
      scene.coverage.hit("stale_clear");
  }
  // A sparse record of a page that was there when it was accepted and has had another life since.
  const Space& space = scene.spaces[operation.space];
  for (std::size_t i = 0; i < operation.items.size() && i < completion.store.size(); ++i) {
    if (completion.store[i] != StoreOutcome::kStale || operation.first[i] != StoreOutcome::kAccepted)
      continue;
    if (scene.form_of(space).classes[operation.items[i].cls.value()].required()) continue;
    if (scene.book.presence({space.id, operation.items[i].key}) != 0)
      scene.coverage.hit("attach_lost_to_replacement");
  }
}

void give_back_slots(Scene& scene, SimOperation& operation) {
  for (auto& slot : operation.sources)
    if (slot) {
      scene.engine->give_back(*slot);
      slot.reset();
    }
  for (auto& slots : operation.targets)
    for (auto& slot : slots)
      if (slot) {
        scene.engine->give_back(*slot);
        slot.reset();
      }
}

void note_completion(Scene& scene, const Completion& completion) {
  if (completion.kind == CompletionKind::kSuspended) {
    scene.suspending = false;
    scene.suspended = true;
    return;
  }
  const auto found = scene.operations.find(completion.operation);
  if (found == scene.operations.end()) return;
  SimOperation& operation = found->second;
  switch (completion.kind) {
    case CompletionKind::kLoaded:
      note_loaded(scene, operation, completion);
      break;
    case CompletionKind::kLayerReady:
      operation.ready.insert(completion.layer);
      break;
    case CompletionKind::kSourceFree:
      note_stored(scene, operation, completion);
      break;
    case CompletionKind::kVisible:
      operation.visible = true;
      break;
    case CompletionKind::kQuiescent:
      operation.quiescent = true;
      break;
    case CompletionKind::kSuspended:
    case CompletionKind::kMatched:
    case CompletionKind::kPrefetched:
    case CompletionKind::kAccepted:
    case CompletionKind::kDurable:
    case CompletionKind::kFlushed:
      break;
  }
  if (operation.quiescent) give_back_slots(scene, operation);
}

void note_events(Scene& scene) {
  for (const Event& event : scene.view.events.events) {
    if (event.kind == EventKind::kAttached) scene.coverage.hit("attach");
    if (event.kind == EventKind::kDropped) scene.coverage.hit("dropped_sparse");
    if (event.kind == EventKind::kRemoved && event.cause == Cause::kEvicted)
      scene.coverage.hit("evicted_page");
    if (event.kind == EventKind::kRemoved) scene.pins.erase({event.ns, event.key});
  }
  scene.coverage.hit("events_lost", scene.view.events.lost);
}

void note_audit(Scene& scene) {
  const Audit& now = scene.view.after;
  const Audit& before = scene.view.before;
  scene.coverage.hit("quarantine", now.stats.quarantines - before.stats.quarantines);
  for (const AuditResidence& each : now.residences)
    if (each.state == ResidenceState::kQuarantined && scene.writers->any()) {
      scene.coverage.hit("writer_quarantined");
      break;
    }
  for (const AuditResidence& each : now.residences)
    if (each.page_below) {
      scene.coverage.hit("node_attached_below");
      break;
    }
  scene.coverage.hit("node_promotion_joined", now.stats.promotions_joined - before.stats.promotions_joined);
  scene.coverage.hit("records_moved", now.stats.records_moved - before.stats.records_moved);
  if (scene.scenario.options.verification == Verification::kOncePerResidency &&
      now.stats.unverified_bytes > before.stats.unverified_bytes)
    scene.coverage.hit("verified_once");
  scene.coverage.hit("device_read_failed", scene.device->read_errors() - scene.device_errors_seen[0]);
  scene.coverage.hit("device_write_failed", scene.device->write_errors() - scene.device_errors_seen[1]);
  scene.device_errors_seen = {scene.device->read_errors(), scene.device->write_errors()};
  for (const AuditResidence& each : now.residences) {
    if (each.state != ResidenceState::kResident || !each.page_visible) continue;
    for (const auto& spans : each.spans)
      if (spans.size() > 1) {
        scene.coverage.hit("snapshot_in_several_extents");
        break;
      }
  }
  std::set<TicketId> open;
  for (const AuditTicket& ticket : now.tickets) open.insert(ticket.ticket);
  for (auto& [id, ticket] : scene.tickets) {
    if (ticket.gone || scene.node->ticket(id) != nullptr) continue;
    ticket.gone = true;
    scene.coverage.hit("ticket_expired");
  }
  for (auto& [id, reservation] : scene.reservations)
    if (!reservation.ended && scene.clock.now() >= reservation.deadline) reservation.quarantine_seen = true;
}

// What has ended is forgotten, so that long runs cost no more a step than short ones.
void forget_ended(Scene& scene) {
  for (const auto& [id, operation] : scene.operations)
    if (operation.ended() && operation.kind == SimOperation::Kind::kLoad)
      --scene.tickets.at(operation.ticket).loads;
  std::erase_if(scene.operations, [](const auto& each) { return each.second.ended(); });
  std::erase_if(scene.tickets, [](const auto& each) { return each.second.gone && each.second.loads == 0; });
  std::erase_if(scene.reservations, [](const auto& each) { return each.second.ended; });
}

}  // namespace

namespace {

void note_answer_of(Scene& scene, SimTicket& ticket) {
  for (const Miss& miss : ticket.view.missed) {
    if (miss.reason == Reason::kOtherForm) scene.coverage.hit("other_form");
    if (miss.reason == Reason::kOtherIdentity) scene.coverage.hit("other_identity");
    if (miss.reason == Reason::kUnknownPast) scene.coverage.hit("unknown_past");
    if (scene.below == nullptr) continue;
    if (miss.reason == Reason::kTooLate) scene.coverage.hit("node_on_disk_too_late");
    if (miss.reason == Reason::kTierDown) scene.coverage.hit("node_tier_down");
    if (miss.reason == Reason::kSecondTouch || miss.reason == Reason::kWriteBudget)
      scene.coverage.hit("node_refused_by_disk");
  }
  const auto audited = std::find_if(scene.view.after.tickets.begin(), scene.view.after.tickets.end(),
                                    [&](const AuditTicket& each) { return each.ticket == ticket.id; });
  if (audited == scene.view.after.tickets.end()) return;
  const Space& space = scene.spaces[ticket.space];
  for (const auto& [cls, generation] : audited->leases) {
    const auto residence =
        std::find_if(scene.view.after.residences.begin(), scene.view.after.residences.end(),
                     [&, c = cls, g = generation](const AuditResidence& each) {
                       return each.ns == space.id && each.cls == c && each.generation == g;
                     });
    if (residence == scene.view.after.residences.end()) continue;  // the checker of leases says so
    const auto key = std::find(ticket.keys.begin(), ticket.keys.end(), residence->key);
    if (key == ticket.keys.end()) continue;
    const auto page = ticket.first_page + static_cast<std::uint64_t>(key - ticket.keys.begin());
    ticket.leases[{page, cls}] = {generation, scene.stored_computation(space, *residence)};
  }
}

}  // namespace

void note_match(Scene& scene) {
  if (scene.view.matched) note_answer_of(scene, scene.tickets.at(*scene.view.matched));
  if (scene.below == nullptr) return;
  for (const auto& [id, waiting] : scene.below->answered) note_answer_of(scene, scene.tickets.at(id));
}

void settle(Scene& scene) {
  for (const Completion& completion : scene.view.completions) note_completion(scene, completion);
  note_events(scene);
  note_audit(scene);
  note_remote(scene);
  forget_ended(scene);
}

}  // namespace tiercel::sim
