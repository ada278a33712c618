// Loads: from leased records to the engine's memory, whole or layer by layer. What cannot be delivered
// shortens the load to the next length that can (contract §2); before anything is written behind a length,
// everything up to it has been verified.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "base/prng.h"
#include "node/state.h"

namespace tiercel {
namespace {

Status bad(std::string why) { return Status{Code::kInvalidArgument, "load: " + std::move(why)}; }

std::uint64_t run_bytes(const ClassForm& cls, LayerRange layers) {
  std::uint64_t bytes = 0;
  for (std::uint32_t l = layers.first; l < layers.last; ++l) bytes += cls.layers[l].length;
  return bytes;
}

}  // namespace

// ---- what is asked ----

Status Node::State::check_target(const LoadTarget& target, const LoadRequest& request,
                                 const Ticket& ticket) const {
  const Form& form = *namespaces.at(ticket.ns)->form;
  if (target.cls.value() >= form.form->classes.size())
    return bad(fmt::format("class {} does not exist; the model has {}", target.cls.value(),
                           form.form->classes.size()));
  const ClassForm& cls = form.form->classes[target.cls.value()];
  if (target.shard.value() >= cls.shards)
    return bad(fmt::format("shard {} of class {} does not exist; it has {}", target.shard.value(), cls.name,
                           cls.shards));
  const auto engine = form.engine.find({target.cls, target.shard});
  if (engine == form.engine.end())
    return Status{
        Code::kFailedPrecondition,
        fmt::format("load: no memory is registered for class {} shard {}", cls.name, target.shard.value())};
  const std::uint64_t count =
      request.length > ticket.view.first_page ? request.length - ticket.view.first_page : 0;
  if (cls.is_state() ? target.slots.size() != 1 : target.slots.size() < count)
    return bad(fmt::format("class {} has {} target slots, wanted {}", cls.name, target.slots.size(),
                           cls.is_state() ? 1 : count));
  for (const std::uint64_t slot : target.slots)
    if (slot != kSkipSlot && slot >= engine->second->slots)
      return bad(fmt::format("slot {} of class {} does not exist; {} are registered", slot, cls.name,
                             engine->second->slots));
  return {};
}

// Fills in the default order; a named layer must exist.
Status Node::State::check_layers(LoadRequest& request, const Ticket& ticket) const {
  std::set<std::uint32_t> known;
  for (const LoadTarget& target : request.targets)
    for (const LayerRun& run : namespaces.at(ticket.ns)->form->form->classes[target.cls.value()].layers)
      known.insert(run.layer);
  if (request.layers.empty()) request.layers.assign(known.begin(), known.end());
  std::set<std::uint32_t> seen;
  for (const std::uint32_t layer : request.layers) {
    if (!known.contains(layer)) return bad(fmt::format("layer {} is in none of the target classes", layer));
    if (!seen.insert(layer).second) return bad(fmt::format("layer {} is listed twice", layer));
  }
  if (seen.size() != known.size())
    return bad(fmt::format(
        "{} layers are listed, the target classes have {}; list them all, or none for ascending order",
        seen.size(), known.size()));
  return {};
}

Status Node::State::check_load(const LoadRequest& request, const Ticket& ticket) const {
  if (suspended)
    return Status{Code::kFailedPrecondition,
                  "load: the node is suspended; call resume and register memory first"};
  if (loads.size() + stores.size() >= options.operations_max)
    return Status{Code::kResourceExhausted,
                  fmt::format("load: {} operations are under way; wait for some (operations_max)",
                              options.operations_max)};
  if (!std::binary_search(ticket.view.lengths.begin(), ticket.view.lengths.end(), request.length))
    return bad(fmt::format("length {} is not one of the ticket's lengths", request.length));
  std::set<std::pair<ClassId, ShardId>> seen;
  for (const LoadTarget& target : request.targets) {
    if (Status status = check_target(target, request, ticket); !status.ok()) return status;
    if (!seen.insert({target.cls, target.shard}).second)
      return bad(fmt::format("class {} shard {} is listed twice", target.cls.value(), target.shard.value()));
  }
  return {};
}

Result<OperationId> Node::load(LoadRequest request) {
  State& s = *state_;
  const auto found = s.tickets.find(request.ticket);
  if (found == s.tickets.end() || found->second.released)
    return error(Code::kNotFound, "load: the ticket has expired or was released; match again");
  Ticket& ticket = found->second;
  if (ticket.view.pending)
    return error(Code::kFailedPrecondition, "load: the ticket is pending; wait until it is ready");
  TIERCEL_RETURN_IF_ERROR(s.check_load(request, ticket));
  if (request.mode == LoadMode::kLayered) TIERCEL_RETURN_IF_ERROR(s.check_layers(request, ticket));
  const OperationId id(s.next_id());
  Load& load = s.loads[id];
  load.id = id;
  load.ticket = request.ticket;
  load.form = s.space_of(ticket.ns).form;
  load.deadline = later(s.now(), request.deadline.value_or(s.options.operation_deadline));
  load.request = std::move(request);
  for (const LoadTarget& target : load.request.targets)
    load.engine.push_back(load.form->engine.at({target.cls, target.shard}));
  s.operation_deadlines.emplace(load.deadline, id);
  ++ticket.loads;
  ++s.stats.loads;
  s.attempt(load, load.request.length);
  s.load_step(load);  // with nothing to copy it ends here
  s.pump();
  return id;
}

// ---- attempts ----

bool Node::State::servable(const Lease& lease) {
  const Residence* set = residence(lease.residence);
  if (set == nullptr || set->generation != lease.generation) return false;
  if (TIERCEL_FAULT(skip_generation_check)) return true;
  return set->page != nullptr && current(*set->page);
}

// What of a page this load can still have: what its ticket leased, if still current, and whatever else is
// resident now.
Presence Node::State::load_presence(const Load& load, const Ticket& ticket, std::uint64_t page) {
  const Page* at = find(ticket.ns, ticket.keys[page - ticket.view.first_page]);
  Presence bits = 0;
  for (const ClassForm& cls : load.form->form->classes) {
    if (load.failed.contains({page, cls.id})) continue;
    const Lease* lease = lease_of(ticket, page, cls.id);
    const Residence* now_there = at != nullptr && at->visible ? at->sets[cls.id.value()] : nullptr;
    const bool there = lease != nullptr
                           ? servable(*lease)
                           : now_there != nullptr && now_there->state == ResidenceState::kResident;
    if (there) bits |= Presence{1} << cls.id.value();
  }
  return bits;
}

void Node::State::attempt(Load& load, std::uint64_t at_most) {
  Ticket& ticket = tickets.at(load.ticket);
  for (;;) {
    std::vector<Presence> presence;
    for (std::uint64_t page = ticket.view.first_page; page < at_most; ++page)
      presence.push_back(load_presence(load, ticket, page));
    const ResumeAnswer rule =
        restorable(*load.form->form, ResumeQuery{presence, ticket.view.first_page, ticket.held, UINT64_MAX});
    load.length = 0;
    for (const std::uint64_t length : rule.lengths)
      if (length <= at_most) load.length = length;
    if (gather(load, ticket)) break;
    at_most = load.length;  // something could not be leased: what it was needed for is out of reach
  }
  start_verify(load);
}

// False: a record of this length could not be leased within the session's bound; it is marked as failed.
bool Node::State::gather(Load& load, Ticket& ticket) {
  load.items.clear();
  for (std::size_t t = 0; t < load.request.targets.size(); ++t) {
    const ClassForm& cls = load.form->form->classes[load.request.targets[t].cls.value()];
    const std::uint64_t held = ticket.held[cls.id.value()];
    if (cls.is_state()) {
      if (load.length > ticket.view.first_page && load.length != held &&
          !gather_item(load, ticket, t, load.length - 1))
        return false;
      continue;
    }
    for (std::uint64_t page = std::max(ticket.view.first_page, held); page < load.length; ++page)
      if ((needs(cls, load.length, page) || cls.optional()) && !gather_item(load, ticket, t, page))
        return false;
  }
  return true;
}

bool Node::State::gather_item(Load& load, Ticket& ticket, std::size_t target, std::uint64_t page) {
  const LoadTarget& where = load.request.targets[target];
  const ClassForm& cls = load.form->form->classes[where.cls.value()];
  LoadItem item;
  item.target = target;
  item.entry = cls.is_state() ? 0 : page - ticket.view.first_page;
  item.page = page;
  if (where.slots[item.entry] == kSkipSlot || load.delivered.contains({target, page})) return true;
  if (load.failed.contains({page, cls.id})) return true;  // an optional one: reported, never in the way
  if (const Lease* lease = lease_of(ticket, page, cls.id); lease != nullptr) {
    if (!servable(*lease)) return true;
    item.residence = lease->residence;
  } else {
    Page* at = find(ticket.ns, ticket.keys[page - ticket.view.first_page]);
    Residence* set = at != nullptr && at->visible ? at->sets[cls.id.value()] : nullptr;
    if (set == nullptr || set->state != ResidenceState::kResident) return true;
    if (!within_bound(ticket.session, set->payload_bytes)) {
      load.failed.insert({page, cls.id});
      return cls.optional();
    }
    add_lease(ticket, *set, page);
    item.residence = set->id;
  }
  load.items.push_back(item);
  return true;
}

// ---- copies ----

// The layers that the next step is about: all, or the one whose turn it is. Nothing: this class has no such
// layer.
std::optional<LayerRange> Node::State::layers_of(const Load& load, const ClassForm& cls) const {
  const auto count = static_cast<std::uint32_t>(cls.layers.size());
  if (load.request.mode == LoadMode::kWhole) return LayerRange{0, count};
  if (load.layer_at >= load.request.layers.size()) return std::nullopt;
  for (std::uint32_t i = 0; i < count; ++i)
    if (cls.layers[i].layer == load.request.layers[load.layer_at]) return LayerRange{i, i + 1};
  return std::nullopt;
}

// Contract §8. Sampling draws for each load anew: no record is always passed over.
bool Node::State::verification_due(const Load& load, const Residence& set, ShardId shard) const {
  // Whoever wrote it promised that he is through with it; a late write is seen all the same.
  if (set.writer_lives()) return true;
  if (set.prove_first && (set.verified >> shard.value() & 1) == 0) return true;
  switch (options.verification) {
    case Verification::kAlways:
      return true;
    case Verification::kOncePerResidency:
      return (set.verified >> shard.value() & 1) == 0;
    case Verification::kSampled:
      return mix64(world.seed ^ set.id ^ mix64(load.id.value())) % options.sampled_one_in == 0;
  }
  return true;
}

void Node::State::start_verify(Load& load) {
  load.phase = LoadPhase::kVerify;
  for (std::size_t i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    item.status = {};
    Residence& set = *residence(item.residence);
    const LoadTarget& target = load.request.targets[item.target];
    const ClassForm& cls = load.form->form->classes[target.cls.value()];
    const auto layers = layers_of(load, cls);
    const bool due = verification_due(load, set, target.shard);
    if (!layers || !due || TIERCEL_FAULT(load_writes_behind_length)) continue;
    PendingCopy copy{load.id, i, set.id, run_bytes(cls, *layers), {}};
    copy.copy.kind = CopyKind::kVerify;
    copy.copy.place = place_of(set, target.shard);
    copy.copy.layers = *layers;
    if (layers->first == 0 && layers->last == cls.layers.size() && !set.writer_lives())
      copy.verifies = std::uint64_t{1} << target.shard.value();
    ++load.outstanding;
    queue_copy(std::move(copy), 0);
  }
}

void Node::State::start_copy(Load& load) {
  load.phase = LoadPhase::kCopy;
  if (load.request.mode == LoadMode::kLayered && TIERCEL_FAULT(layer_event_before_verify)) give_layer(load);
  for (std::size_t i = 0; i < load.items.size(); ++i) {
    LoadItem& item = load.items[i];
    item.status = {};
    const LoadTarget& target = load.request.targets[item.target];
    const ClassForm& cls = load.form->form->classes[target.cls.value()];
    const auto layers = layers_of(load, cls);
    if (!layers) continue;
    Residence* set = residence(item.residence);
    if (TIERCEL_FAULT(serve_neighbour_page)) {
      const Lease* next = lease_of(tickets.at(load.ticket), item.page + 1, target.cls);
      if (next != nullptr && servable(*next)) set = residence(next->residence);
    }
    PendingCopy copy{load.id, i, set->id, run_bytes(cls, *layers), {}};
    copy.copy.kind = CopyKind::kLoad;
    copy.copy.place = place_of(*set, target.shard);
    copy.copy.engine = load.engine[item.target];
    copy.copy.slot = target.slots[item.entry];
    copy.copy.layers = *layers;
    copy.copy.verify = verification_due(load, *set, target.shard) && !TIERCEL_FAULT(count_damaged_as_hit);
    if (copy.copy.verify && layers->first == 0 && layers->last == cls.layers.size() && !set->writer_lives())
      copy.verifies = std::uint64_t{1} << target.shard.value();
    ++load.outstanding;
    queue_copy(std::move(copy), load.request.after_event);
  }
}

// A page whose load failed for a request is not offered to that request again: an engine that reschedules
// would ask for ever.
void Node::State::refuse_again(const Load& load, std::uint64_t page, Reason reason) {
  const Ticket& ticket = tickets.at(load.ticket);
  const auto request = requests.find(ticket.request);
  if (request == requests.end()) return;
  request->second.failed.emplace(PageName{ticket.ns, ticket.keys[page - ticket.view.first_page]}, reason);
}

// Notes what the last copies could not do. Damaged records leave the cache.
bool Node::State::take_failures(Load& load) {
  bool any = false;
  for (LoadItem& item : load.items) {
    if (item.status.ok()) continue;
    const ClassForm& cls = load.form->form->classes[load.request.targets[item.target].cls.value()];
    const bool corrupt = item.status.code == Code::kDataCorrupt;
    if (corrupt && TIERCEL_FAULT(count_damaged_as_hit)) continue;
    any = true;
    load.failed.insert({item.page, cls.id});
    if (corrupt) load.damaged.insert({item.target, item.page});
    if (!cls.optional()) refuse_again(load, item.page, corrupt ? Reason::kDamaged : Reason::kTierDown);
    Residence* set = residence(item.residence);
    if (corrupt && set != nullptr) damaged(*set);
  }
  return any;
}

bool Node::State::still_current(const Load& load) {
  const Ticket& ticket = tickets.at(load.ticket);
  for (const LoadItem& item : load.items) {
    const Lease* lease = lease_of(ticket, item.page, load.request.targets[item.target].cls);
    if (lease == nullptr || !servable(*lease)) return false;
  }
  return true;
}

// Goes on while there is nothing to wait for.
void Node::State::load_step(Load& load) {
  while (load.outstanding == 0) {
    if (load.ending) return end_load(load);
    if (load.phase == LoadPhase::kVerify) {
      if (take_failures(load) || !still_current(load))
        attempt(load, load.length);
      else
        start_copy(load);
    } else if (!after_copy(load)) {
      return end_load(load);
    }
  }
}

// False: the load is at its end.
bool Node::State::after_copy(Load& load) {
  const bool layered = load.request.mode == LoadMode::kLayered && !load.request.layers.empty();
  Status first_failure;
  for (const LoadItem& item : load.items) {
    if (item.status.ok() || !first_failure.ok()) continue;
    const ClassForm& cls = load.form->form->classes[load.request.targets[item.target].cls.value()];
    first_failure = Status{item.status.code, fmt::format("load: page {}, class {}: {}", item.page, cls.name,
                                                         item.status.message)};
  }
  const bool failed = take_failures(load);
  if (failed || !still_current(load)) {
    if (!layered || load.layer_at == 0) {
      attempt(load, load.length);
      return true;
    }
    load.ending = failed ? first_failure
                         : Status{Code::kCancelled, "load: a page was removed while its layers were loaded"};
    return false;
  }
  if (layered) {
    if (!TIERCEL_FAULT(layer_event_before_verify)) give_layer(load);
    if (++load.layer_at < load.request.layers.size()) {
      start_copy(load);
      return true;
    }
  }
  for (const LoadItem& item : load.items) load.delivered.insert({item.target, item.page});
  return false;
}

void Node::State::give_layer(const Load& load) {
  Completion completion;
  completion.kind = CompletionKind::kLayerReady;
  completion.operation = load.id;
  completion.layer = load.request.layers[load.layer_at];
  give(std::move(completion));
}

// ---- ends ----

ItemOutcome Node::State::item_outcome(const Load& load, const Ticket& ticket, std::size_t target,
                                      std::uint64_t entry, std::uint64_t length) {
  const LoadTarget& where = load.request.targets[target];
  const ClassForm& cls = load.form->form->classes[where.cls.value()];
  if (where.slots[entry] == kSkipSlot) return ItemOutcome::kSkipped;
  const std::uint64_t held = ticket.held[cls.id.value()];
  const std::uint64_t asked = std::max(length, load.request.length);
  if (cls.is_state()) {
    if (asked <= ticket.view.first_page || (length != 0 && length == held)) return ItemOutcome::kNotNeeded;
    if (length > ticket.view.first_page && load.delivered.contains({target, length - 1}))
      return ItemOutcome::kDelivered;
    return load.damaged.contains({target, asked - 1}) ? ItemOutcome::kDamaged : ItemOutcome::kNotDelivered;
  }
  const std::uint64_t page = ticket.view.first_page + entry;
  const bool wanted = needs(cls, length, page) || (cls.optional() && page < length);
  if (page < held) return ItemOutcome::kNotNeeded;
  if (wanted && load.delivered.contains({target, page})) return ItemOutcome::kDelivered;
  if (load.damaged.contains({target, page})) return ItemOutcome::kDamaged;
  if (page < length) return wanted ? ItemOutcome::kMissing : ItemOutcome::kNotNeeded;
  if (page >= load.request.length || !(needs(cls, load.request.length, page) || cls.optional()))
    return ItemOutcome::kNotNeeded;
  const bool there = (load_presence(load, ticket, page) >> cls.id.value() & 1) != 0;
  return there ? ItemOutcome::kNotDelivered : ItemOutcome::kMissing;
}

LoadResult Node::State::load_result(const Load& load, Status status, std::uint64_t length) {
  const Ticket& ticket = tickets.at(load.ticket);
  LoadResult result;
  result.status = std::move(status);
  result.length = length;
  for (std::size_t t = 0; t < load.request.targets.size(); ++t) {
    std::vector<ItemOutcome>& outcomes = result.outcomes.emplace_back();
    for (std::uint64_t entry = 0; entry < load.request.targets[t].slots.size(); ++entry)
      outcomes.push_back(item_outcome(load, ticket, t, entry, length));
  }
  return result;
}

void Node::State::answer_load(Load& load, Status status, std::uint64_t length) {
  load.answered = true;
  if (status.ok() && length < load.request.length) ++stats.loads_shortened;
  if (status.code == Code::kCancelled)
    ++stats.loads_cancelled;
  else if (status.code == Code::kDeadlineExceeded)
    ++stats.loads_timed_out;
  else if (!status.ok())
    ++stats.loads_failed;
  Completion completion;
  completion.kind = CompletionKind::kLoaded;
  completion.operation = load.id;
  completion.quiescent = load.outstanding == 0;
  completion.load = load_result(load, std::move(status), length);
  give(std::move(completion));
}

void Node::State::end_load(Load& load) {
  TIERCEL_CHECK(load.outstanding == 0);
  if (load.answered)
    give_quiescent(load.id);
  else if (load.ending)
    answer_load(load, *load.ending, 0);
  else
    answer_load(load, Status{}, load.length);
  Ticket& ticket = tickets.at(load.ticket);
  const TicketId ticket_id = load.ticket;
  loads.erase(load.id);
  if (--ticket.loads == 0 && ticket.released) drop_ticket(ticket_id);
}

}  // namespace tiercel
