// Reservations: slots that a client fills itself, in this process or in another one. What another process may
// still write to is never used again while it lives (contract §6).

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

// ---- writers in other processes ----

// Its number cannot be another process's as long as it lives, so one watch serves all its reservations.
Result<std::shared_ptr<OutsideWriter>> Node::State::outside_writer(std::uint32_t pid) {
  if (world.processes == nullptr)
    return error(Code::kUnsupported, "reserve: writer: this node knows of no other processes");
  watch_writers();
  if (const auto known = outside_writers.find(pid); known != outside_writers.end()) return known->second;
  auto writer = std::make_shared<OutsideWriter>();
  writer->pid = pid;
  TIERCEL_ASSIGN_OR_RETURN(writer->process, world.processes->watch(pid));
  return outside_writers[pid] = std::move(writer);
}

// Looks at each of them once. Returns how many have gone.
std::size_t Node::State::watch_writers() {
  std::vector<std::shared_ptr<OutsideWriter>> gone;
  for (auto at = outside_writers.begin(); at != outside_writers.end();) {
    const std::shared_ptr<OutsideWriter>& writer = at->second;
    const bool forgotten = writer.use_count() == 1;  // nothing of it is left
    if (!forgotten && writer->process->exited() && !TIERCEL_FAULT(writer_exit_missed)) gone.push_back(writer);
    const bool drop = forgotten || (!gone.empty() && gone.back() == writer);
    at = drop ? outside_writers.erase(at) : std::next(at);
  }
  for (const auto& writer : gone) {
    writer->exited = true;
    writer->process.reset();
    writer_exited(*writer);
  }
  return gone.size();
}

void Node::State::writer_exited(const OutsideWriter& writer) {
  for (auto at = left_behind.begin(); at != left_behind.end();) {
    if (at->second.writer.get() != &writer) {
      ++at;
      continue;
    }
    give_back(at->second, at->second.expired ? Ending::kExpired : Ending::kAborted);
    at = left_behind.erase(at);
  }
  const Time end = later(now(), options.writer_grace);
  for (auto& [id, reservation] : reservations) {
    if (reservation.writer.get() != &writer) continue;
    if (reservation.expired) {
      give_back(reservation, Ending::kExpired);
      continue;
    }
    for (const std::uint64_t member : reservation.residences) {
      Residence* set = residence(member);
      if (set == nullptr || set->deadline <= end) continue;
      set->deadline = end;
      residence_deadlines.emplace(end, set->id);
    }
  }
}

void Node::writer_stopped(ReservationId id) {
  State& s = *state_;
  if (const auto at = s.left_behind.find(id); at != s.left_behind.end()) {
    Reservation reservation = std::move(at->second);
    s.left_behind.erase(at);
    s.give_back(reservation, Ending::kAborted);
  } else if (const auto open = s.reservations.find(id); open != s.reservations.end()) {
    open->second.writer.reset();
    if (open->second.expired) s.give_back(open->second, Ending::kExpired);
  }
}

std::vector<WriterView> Node::writers() const {
  const State& s = *state_;
  std::map<std::uint32_t, WriterView> views;
  const auto add = [&](const Reservation& reservation, bool open) {
    if (!reservation.writer_lives()) return;
    WriterView& view = views[reservation.writer->pid];
    view.pid = reservation.writer->pid;
    view.reservations += open ? 1 : 0;
    for (const std::uint64_t member : reservation.residences) {
      const Residence* set = state_->residence(member);
      if (set == nullptr) continue;
      const std::uint64_t bytes = set->payload_bytes / set->slots.size();
      (set->state == ResidenceState::kQuarantined ? view.quarantined_bytes : view.reserved_bytes) += bytes;
    }
  };
  for (const auto& [id, reservation] : s.reservations) add(reservation, true);
  for (const auto& [id, reservation] : s.left_behind) add(reservation, false);
  std::vector<WriterView> out;
  out.reserve(views.size());
  for (const auto& [pid, view] : views) out.push_back(view);
  return out;
}

// ---- how a reservation ends ----

void Node::State::let_go(Reservation& reservation, std::size_t item) {
  Residence* set = residence(std::exchange(reservation.residences[item], 0));
  if (set == nullptr) return;
  TIERCEL_CHECK(set->client_holds != 0);
  --set->client_holds;
  free_if_unused(*set);
}

void Node::State::quarantine(Residence& set) {
  if (set.page != nullptr || set.client_holds == 0 || set.state == ResidenceState::kQuarantined) return;
  set.state = ResidenceState::kQuarantined;
  stats.quarantined_bytes += set.payload_bytes;
  ++stats.quarantines;
}

void Node::State::give_back(Reservation& reservation, Ending ending) {
  for (const std::uint64_t member : reservation.residences) abort_residence(member, ending);
  for (std::size_t i = 0; i < reservation.residences.size(); ++i) let_go(reservation, i);
}

void Node::State::give_up(Reservation reservation, Ending ending) {
  if (!reservation.writer_lives() || TIERCEL_FAULT(writer_slot_reused)) return give_back(reservation, ending);
  bool holds = false;
  for (const std::uint64_t member : reservation.residences) {
    abort_residence(member, ending);
    Residence* set = residence(member);
    if (set == nullptr) continue;
    quarantine(*set);
    holds = true;
  }
  const ReservationId id = reservation.id;
  if (holds) left_behind.emplace(id, std::move(reservation));
}

// The deadline of a class-set that clients hold has passed: none of them may commit it, and where one may
// still write it is quarantined.
void Node::State::expire_holders(std::uint64_t id) {
  const std::vector<ReservationId> holders = residence(id)->holders;
  for (const ReservationId holder : holders) {
    const auto at = reservations.find(holder);
    if (at == reservations.end()) continue;
    at->second.expired = true;
    if (at->second.writer != nullptr && at->second.writer->exited) give_back(at->second, Ending::kExpired);
  }
  if (Residence* set = residence(id); set != nullptr) quarantine(*set);
}

// ---- the calls ----

Result<ReserveAnswer> Node::reserve(StoreRequest request, std::uint32_t writer_pid) {
  State& s = *state_;
  TIERCEL_RETURN_IF_ERROR(s.check_store(request));
  ReserveAnswer answer;
  const ReservationId id(s.next_id());
  Reservation reservation;
  if (writer_pid != 0) {
    TIERCEL_ASSIGN_OR_RETURN(reservation.writer, s.outside_writer(writer_pid));
  }
  reservation.id = id;
  reservation.session = request.session;
  reservation.request = request.request;
  reservation.ns = request.ns;
  const State::Writer writer = s.writer_of(request, id.value(), true);
  bool any = false;
  for (const StoreItem& item : request.items) {
    const State::Admission admission = s.admit(request, item, writer);
    answer.outcomes.push_back(admission.outcome);
    reservation.residences.push_back(admission.residence);
    any |= admission.outcome == StoreOutcome::kAccepted;
  }
  if (!any) return answer;
  answer.reservation = id;
  for (std::size_t i = 0; i < reservation.residences.size(); ++i)
    if (Residence* set = s.residence(reservation.residences[i]); set != nullptr) set->holders.push_back(id);
  reservation.outcomes = answer.outcomes;
  reservation.items = std::move(request.items);
  s.reservations.emplace(id, std::move(reservation));
  return answer;
}

std::vector<ArenaSpan> Node::reserved_spans(ReservationId reservation, std::size_t item) const {
  const auto at = state_->reservations.find(reservation);
  if (at == state_->reservations.end() || item >= at->second.items.size()) return {};
  const Residence* set = state_->residence(at->second.residences[item]);
  if (set == nullptr || set->client_holds == 0) return {};
  return state_->space.spans(set->pool, set->slots[at->second.items[item].shard.value()]);
}

Result<Node::State::Sealing> Node::State::sealing_of(const Reservation& reservation,
                                                     const CommitRequest& what) const {
  Sealing sealing;
  sealing.trusted = what.trust_checksums;
  sealing.arrivals.resize(reservation.items.size());
  if (!what.arrived) return sealing;
  const auto bad = [](std::string why) { return error(Code::kInvalidArgument, "commit: " + std::move(why)); };
  const StorageForm& form = *namespaces.at(reservation.ns)->form->form;
  for (const Arrival& arrival : *what.arrived) {
    if (arrival.item >= reservation.items.size())
      return bad(
          fmt::format("item {} is named, the reservation has {}", arrival.item, reservation.items.size()));
    if (sealing.arrivals[arrival.item] != nullptr)
      return bad(fmt::format("item {} is named twice", arrival.item));
    sealing.arrivals[arrival.item] = &arrival;
    // What was refused at once may be anything.
    if (arrival.checksums.empty() || reservation.outcomes[arrival.item] != StoreOutcome::kAccepted) continue;
    const ClassForm& cls = form.classes[reservation.items[arrival.item].cls.value()];
    if (arrival.checksums.size() != cls.layers.size())
      return bad(
          fmt::format("item {} comes with {} checksums, wanted one for each of the {} layers of class {}, "
                      "or none",
                      arrival.item, arrival.checksums.size(), cls.layers.size(), cls.name));
    if (world.arena.payload_kept(cls.record_bytes) != cls.record_bytes)
      return bad("checksums are of whole records, and this arena keeps a part of each; leave them out");
  }
  return sealing;
}

// Items that the commit does not name are given up; with them goes every class-set of which they are a part.
void Node::State::part_with_missing(Reservation& reservation, const Sealing& sealing) {
  Reservation missing = reservation;
  for (std::size_t i = 0; i < reservation.items.size(); ++i) {
    if (sealing.arrivals[i] != nullptr) {
      missing.residences[i] = 0;
      continue;
    }
    reservation.residences[i] = 0;
    if (reservation.outcomes[i] == StoreOutcome::kAccepted)
      reservation.outcomes[i] = StoreOutcome::kNotArrived;
  }
  give_up(std::move(missing), Ending::kAborted);
}

void Node::State::note_written(const Reservation& reservation, const Sealing& sealing) {
  for (std::size_t i = 0; i < reservation.residences.size(); ++i) {
    Residence* set = residence(reservation.residences[i]);
    if (set == nullptr) continue;
    const bool unread =
        sealing.trusted && sealing.arrivals[i] != nullptr && !sealing.arrivals[i]->checksums.empty();
    set->prove_first |= unread || reservation.writer != nullptr;
    if (reservation.writer_lives() &&
        (set->written_by.empty() || set->written_by.back() != reservation.writer))
      set->written_by.push_back(reservation.writer);
  }
}

Result<OperationId> Node::commit(ReservationId id, const CommitRequest& what) {
  State& s = *state_;
  const auto at = s.reservations.find(id);
  if (at == s.reservations.end())
    return error(Code::kNotFound, "commit: the reservation has ended; reserve again");
  TIERCEL_ASSIGN_OR_RETURN(const State::Sealing sealing, s.sealing_of(at->second, what));
  Reservation reservation = std::move(at->second);
  s.reservations.erase(at);
  if (reservation.expired) {
    s.give_up(std::move(reservation), Ending::kExpired);
    return error(
        Code::kFailedPrecondition,
        "commit: the reservation's deadline has passed and its slots were quarantined; they are given back "
        "now, or when their writer in another process has exited; reserve again");
  }
  if (what.arrived) s.part_with_missing(reservation, sealing);
  StoreRequest request;
  request.session = reservation.session;
  request.ns = reservation.ns;
  request.request = reservation.request;
  for (std::size_t i = 0; i < reservation.items.size(); ++i) {
    if (reservation.outcomes[i] != StoreOutcome::kAccepted) continue;
    Residence* set = s.residence(reservation.residences[i]);
    if (set != nullptr && set->page != nullptr) continue;
    reservation.outcomes[i] =
        set != nullptr ? s.outcome_of(*set, StoreOutcome::kStale) : StoreOutcome::kStale;
  }
  s.note_written(reservation, sealing);
  request.items = reservation.items;
  const OperationId operation(s.next_id());
  s.add_store(operation, request, reservation.outcomes, reservation.residences, CopyKind::kSeal, &sealing);
  for (std::size_t i = 0; i < reservation.residences.size(); ++i) s.let_go(reservation, i);
  s.end_store_if_done(operation);
  s.pump();
  return operation;
}

void Node::abort(ReservationId id) {
  const auto at = state_->reservations.find(id);
  if (at == state_->reservations.end()) return;
  Reservation reservation = std::move(at->second);
  state_->reservations.erase(at);
  state_->give_up(std::move(reservation), Ending::kAborted);
}

}  // namespace tiercel
