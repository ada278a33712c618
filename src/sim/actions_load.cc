// Loads, reservations that a client fills itself, cancelling, and the engine's events.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "memory/record.h"
#include "sim/actions.h"

namespace tiercel::sim {
namespace {

std::vector<std::uint32_t> layers_of(const StorageForm& form, const LoadRequest& request) {
  std::set<std::uint32_t> layers;
  for (const LoadTarget& target : request.targets)
    for (const LayerRun& run : form.classes[target.cls.value()].layers) layers.insert(run.layer);
  return {layers.begin(), layers.end()};
}

// Engine slots for one class and shard: of every page, or the one for a snapshot.
void add_target(Scene& scene, SimOperation& operation, const SimTicket& ticket, const ClassForm& cls,
                ShardId shard) {
  const Space& space = scene.spaces[operation.space];
  LoadTarget target{cls.id, shard, {}};
  std::vector<std::optional<EngineSlot>> slots;
  const std::uint64_t pages = cls.is_state() ? 1 : operation.load.length - ticket.first_page;
  for (std::uint64_t i = 0; i < pages; ++i) {
    std::optional<EngineSlot> slot;
    if (!scene.prng.chance(0.06)) slot = scene.engine->take(space.form, cls.id, shard);
    if (!slot) scene.coverage.hit("load_skipped_slots");
    target.slots.push_back(slot ? slot->slot : kSkipSlot);
    slots.push_back(slot);
  }
  operation.load.targets.push_back(std::move(target));
  operation.targets.push_back(std::move(slots));
}

void give_back_targets(Scene& scene, SimOperation& operation) {
  for (auto& slots : operation.targets)
    for (auto& slot : slots)
      if (slot) scene.engine->give_back(*slot);
}

void choose_mode(Scene& scene, SimOperation& operation) {
  LoadRequest& load = operation.load;
  load.mode = scene.prng.chance(0.55) ? LoadMode::kLayered : LoadMode::kWhole;
  if (load.mode == LoadMode::kLayered && scene.prng.chance(0.5)) {
    load.layers = layers_of(scene.form_of(scene.spaces[operation.space]), load);
    for (std::size_t i = load.layers.size(); i > 1; --i)
      std::swap(load.layers[i - 1], load.layers[scene.prng.below(i)]);
  }
  if (scene.prng.chance(0.15)) load.after_event = operation.event = ++scene.last_event;
  if (scene.prng.chance(0.15)) load.deadline = std::chrono::milliseconds(scene.prng.between(10, 1500));
}

SimReservation* choose_reservation(Scene& scene) {
  std::vector<ReservationId> open;
  for (const auto& [id, reservation] : scene.reservations)
    if (!reservation.ended) open.push_back(id);
  if (open.empty()) return nullptr;
  return &scene.reservations.at(open[scene.prng.below(open.size())]);
}

void write_payload(Scene& scene, SimReservation& reservation, std::size_t item) {
  if (reservation.writer != 0) return scene.writers->write(scene, reservation.id, item);
  const Space& space = scene.spaces[reservation.space];
  const StoreItem& what = reservation.items[item];
  const ClassForm& cls = scene.form_of(space).classes[what.cls.value()];
  reservation.last_written[item] =
      make_payload(cls, scene.record_name(space, what.key, what.cls, what.shard), reservation.computation);
  scene.arena->write(reservation.spans[item], header_bytes(cls), reservation.last_written[item]);
}

// Whether the item's bytes are there: written now, or before by a process that has died since.
bool fill(Scene& scene, SimReservation& reservation, std::size_t item) {
  write_payload(scene, reservation, item);
  return reservation.writer == 0 || scene.writers->wrote_all(scene, reservation.id, item);
}

// What the commit names, with the writer's checksums now and then, some of them of other bytes.
CommitRequest choose_arrivals(Scene& scene, SimReservation& reservation, SimOperation& operation) {
  CommitRequest what;
  const bool in_part = scene.writers->any() && (reservation.writer != 0 || scene.prng.chance(0.3));
  const bool all = !in_part || scene.prng.chance(0.5);
  const bool sums = in_part && scene.prng.chance(0.4);
  what.trust_checksums = sums && scene.prng.chance(0.3);
  std::vector<Arrival> arrived;
  operation.named.assign(reservation.items.size(), false);
  operation.bad_sum.assign(reservation.items.size(), false);
  for (std::size_t i = 0; i < reservation.items.size(); ++i) {
    if (reservation.first[i] != StoreOutcome::kAccepted) continue;
    if (!all && scene.prng.chance(0.3)) continue;
    if (!fill(scene, reservation, i)) continue;
    operation.named[i] = true;
    Arrival& arrival = arrived.emplace_back();
    arrival.item = i;
    if (!sums) continue;
    const Space& space = scene.spaces[reservation.space];
    const StoreItem& item = reservation.items[i];
    const ClassForm& cls = scene.form_of(space).classes[item.cls.value()];
    arrival.checksums = run_checksums(
        cls,
        make_payload(cls, scene.record_name(space, item.key, item.cls, item.shard), reservation.computation));
    if (what.trust_checksums || !scene.prng.chance(0.3)) continue;
    arrival.checksums.back() ^= 1;
    operation.bad_sum[i] = true;
    scene.coverage.hit("checksum_of_other_bytes");
  }
  const bool whole =
      std::equal(operation.named.begin(), operation.named.end(), reservation.first.begin(),
                 [](bool named, StoreOutcome first) { return named == (first == StoreOutcome::kAccepted); });
  if (!whole) scene.coverage.hit("commit_in_part");
  if (!whole || sums) what.arrived = std::move(arrived);
  return what;
}

void commit(Scene& scene, SimReservation& reservation) {
  SimOperation operation;
  const CommitRequest what = choose_arrivals(scene, reservation, operation);
  const auto answer = scene.node->commit(reservation.id, what);
  if (!answer) {
    // Its deadline has passed: what was quarantined is given back with this.
    if (reservation.quarantine_seen) scene.coverage.hit("quarantine_ended");
    reservation.ended = true;
    return;
  }
  reservation.ended = true;
  for (std::size_t i = 0; i < reservation.items.size(); ++i)
    if (operation.named[i]) scene.writers->given_back(reservation.id, i);
  operation.id = *answer;
  operation.kind = SimOperation::Kind::kCommit;
  operation.session = reservation.session;
  operation.request = reservation.request;
  operation.space = reservation.space;
  operation.computation = reservation.computation;
  operation.items = reservation.items;
  operation.first = reservation.first;
  operation.sources.resize(reservation.items.size());
  operation.issued = scene.clock.now();
  operation.deadline =
      std::max(reservation.deadline, scene.clock.now()) + scene.scenario.options.operation_deadline;
  operation.step = scene.view.step;
  scene.operations.emplace(operation.id, std::move(operation));
  scene.coverage.hit("reservation_commit");
}

// The process that will write, if it is another one; now and then one that has died.
std::uint32_t choose_writer(Scene& scene) {
  if (!scene.writers->any() || !scene.prng.chance(0.6)) return 0;
  const std::uint32_t dead = scene.writers->dead_pid();
  return dead != 0 && scene.prng.chance(0.15) ? dead : scene.writers->choose(scene.prng);
}

// What the other process is told.
void tell_writer(Scene& scene, const SimReservation& reservation) {
  if (reservation.writer == 0) return;
  for (std::size_t i = 0; i < reservation.items.size(); ++i)
    if (reservation.first[i] == StoreOutcome::kAccepted)
      scene.writers->told({scene.writers->process(reservation.writer),
                           reservation.id,
                           i,
                           reservation.space,
                           reservation.items[i],
                           reservation.computation,
                           reservation.spans[i],
                           {}});
}

}  // namespace

void load_ticket(Scene& scene, TicketId id) {
  const auto found = scene.tickets.find(id);
  if (found == scene.tickets.end()) return;
  SimTicket& ticket = found->second;
  if (ticket.gone || ticket.view.length <= ticket.first_page) return;
  SimOperation operation;
  operation.kind = SimOperation::Kind::kLoad;
  operation.session = ticket.session;
  operation.request = ticket.request;
  operation.space = ticket.space;
  operation.ticket = ticket.id;
  operation.load.ticket = ticket.id;
  operation.load.length = ticket.view.length;
  if (scene.prng.chance(0.25)) {
    const std::uint64_t other = ticket.view.lengths[scene.prng.below(ticket.view.lengths.size())];
    if (other > ticket.first_page) operation.load.length = other;
  }
  for (const ClassForm& cls : scene.form_of(scene.spaces[ticket.space]).classes) {
    if (scene.prng.chance(0.05)) continue;
    for (std::uint16_t shard = 0; shard < cls.shards; ++shard)
      add_target(scene, operation, ticket, cls, ShardId(shard));
  }
  choose_mode(scene, operation);
  operation.issued = scene.clock.now();
  operation.step = scene.view.step;
  operation.disturbances = scene.disturbed();
  operation.deadline =
      scene.clock.now() + operation.load.deadline.value_or(scene.scenario.options.operation_deadline);
  const auto answer = scene.node->load(operation.load);
  if (!answer) {
    give_back_targets(scene, operation);
    if (answer.error().code == Code::kNotFound) ticket.gone = true;
    return;
  }
  operation.id = *answer;
  ++ticket.loads;
  scene.coverage.hit(operation.load.mode == LoadMode::kWhole ? "load_whole" : "load_layered");
  if (operation.load.length != ticket.view.length) scene.coverage.hit("load_not_longest");
  if (operation.event != 0) {
    scene.events_waiting.push_back(operation.event);
    scene.coverage.hit("load_waited_for_event");
  }
  scene.operations.emplace(operation.id, std::move(operation));
}

void start_load(Scene& scene) {
  std::vector<TicketId> usable;
  for (const auto& [id, ticket] : scene.tickets)
    if (!ticket.gone && ticket.view.length > ticket.first_page) usable.push_back(id);
  if (usable.empty()) return;
  // Mostly the newest ones: an engine loads soon after it has asked.
  const std::size_t from = usable.size() > 4 && scene.prng.chance(0.8) ? usable.size() - 4 : 0;
  load_ticket(scene, usable[from + scene.prng.below(usable.size() - from)]);
}

// A writer that puts bytes into the arena itself.
void reserve_pages(Scene& scene) {
  if (scene.requests.empty()) return;
  SimRequest& request = scene.requests[scene.prng.below(scene.requests.size())];
  if (request.to_store.empty()) return;
  SimReservation reservation;
  reservation.session = scene.clients[request.client].id;
  reservation.request = request.id;
  reservation.space = request.space;
  reservation.computation = request.computation;
  const std::size_t count = std::min<std::size_t>(request.to_store.size(), scene.prng.between(1, 5));
  const auto end = request.to_store.begin() + static_cast<std::ptrdiff_t>(count);
  reservation.items.assign(request.to_store.begin(), end);
  request.to_store.erase(request.to_store.begin(), end);
  StoreRequest call;
  call.session = reservation.session;
  call.ns = scene.spaces[request.space].id;
  call.request = request.id;
  call.items = reservation.items;
  if (scene.prng.chance(0.3)) call.deadline = std::chrono::milliseconds(scene.prng.between(50, 1000));
  reservation.made = scene.clock.now();
  reservation.step = scene.view.step;
  reservation.deadline = reservation.made + call.deadline.value_or(scene.scenario.options.reservation_ttl);
  scene.view.storing = call.ns;
  reservation.writer = choose_writer(scene);
  const auto answer = scene.node->reserve(call, reservation.writer);
  if (!answer) {
    if (answer.error().code == Code::kNotFound) scene.coverage.hit("writer_gone_refused");
    return;
  }
  TIERCEL_CHECK(answer->outcomes.size() == reservation.items.size());
  reservation.id = answer->reservation;
  reservation.first = answer->outcomes;
  for (std::size_t i = 0; i < reservation.items.size(); ++i)
    note_answer(scene, request, reservation.items[i], reservation.first[i]);
  if (reservation.id == ReservationId{}) return;
  reservation.last_written.resize(reservation.items.size());
  for (std::size_t i = 0; i < reservation.items.size(); ++i)
    reservation.spans.push_back(reservation.first[i] == StoreOutcome::kAccepted
                                    ? scene.node->reserved_spans(reservation.id, i)
                                    : std::vector<ArenaSpan>{});
  tell_writer(scene, reservation);
  scene.reservations.emplace(reservation.id, std::move(reservation));
}

void use_reservation(Scene& scene) {
  SimReservation* reservation = choose_reservation(scene);
  if (reservation == nullptr) return;
  scene.view.note = fmt::format("reservation {}", reservation->id.value());
  const double choice = scene.prng.unit();
  if (choice < 0.35) {
    // One item now, another later; also after the deadline: the client lives and may write.
    std::vector<std::size_t> items;
    for (std::size_t i = 0; i < reservation->items.size(); ++i)
      if (reservation->first[i] == StoreOutcome::kAccepted) items.push_back(i);
    write_payload(scene, *reservation, items[scene.prng.below(items.size())]);
  } else if (choice < 0.75) {
    commit(scene, *reservation);
  } else if (choice < 0.85) {
    scene.node->abort(reservation->id);
    reservation->ended = true;
    scene.coverage.hit("reservation_aborted");
  } else if (choice < 0.97 && reservation->writer != 0) {
    scene.node->writer_stopped(reservation->id);
    scene.writers->given_back(reservation->id);
    scene.coverage.hit("writer_stopped");
  }
}

void cancel_operation(Scene& scene) {
  std::vector<OperationId> open;
  for (const auto& [id, operation] : scene.operations)
    if (!operation.ended()) open.push_back(id);
  if (open.empty()) return;
  SimOperation& operation = scene.operations.at(open[scene.prng.below(open.size())]);
  operation.cancel_asked = true;
  scene.view.note = fmt::format("operation {}", operation.id.value());
  scene.node->cancel(operation.id);
}

namespace {

// What an operation waited for has happened: a store's bytes are there now.
void before_event(Scene& scene, std::uint64_t event) {
  for (auto& [id, operation] : scene.operations) {
    if (operation.event != event) continue;
    operation.event_fired = true;
    if (operation.kind != SimOperation::Kind::kStore || operation.source_free) continue;
    const Space& space = scene.spaces[operation.space];
    for (std::size_t i = 0; i < operation.items.size(); ++i) {
      if (!operation.sources[i]) continue;
      const StoreItem& item = operation.items[i];
      scene.engine->write(
          *operation.sources[i],
          make_payload(scene.form_of(space).classes[item.cls.value()],
                       scene.record_name(space, item.key, item.cls, item.shard), operation.computation));
    }
  }
}

}  // namespace

void fire_event(Scene& scene) {
  if (scene.events_waiting.empty()) return;
  const std::size_t index = scene.prng.below(scene.events_waiting.size());
  const std::uint64_t event = scene.events_waiting[index];
  scene.events_waiting.erase(scene.events_waiting.begin() + static_cast<std::ptrdiff_t>(index));
  scene.view.note = fmt::format("event {}", event);
  before_event(scene, event);
  scene.node->event_done(event);
}

void fire_all_events(Scene& scene) {
  while (!scene.events_waiting.empty()) fire_event(scene);
}

}  // namespace tiercel::sim
