// Sessions and requests, pins, clearing, deadlines, suspension: what begins and ends.

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

// ---- completions ----

void Node::State::give(Completion completion) {
  if (completion.kind == CompletionKind::kSourceFree && TIERCEL_FAULT(lose_completion)) return;
  if (completion.kind == CompletionKind::kLoaded && TIERCEL_FAULT(complete_twice))
    completions.push_back(completion);
  completions.push_back(std::move(completion));
}

void Node::State::give_quiescent(OperationId operation) {
  Completion completion;
  completion.kind = CompletionKind::kQuiescent;
  completion.operation = operation;
  give(std::move(completion));
}

std::vector<Completion> Node::drain_completions() { return std::exchange(state_->completions, {}); }

Events Node::drain_events() {
  State& s = *state_;
  Events out;
  out.events.assign(std::make_move_iterator(s.events.begin()), std::make_move_iterator(s.events.end()));
  s.events.clear();
  out.lost = std::exchange(s.events_lost, 0);
  return out;
}

// ---- sessions and requests ----

Result<SessionId> Node::open_session(SessionOptions options) {
  State& s = *state_;
  const auto number = s.next_small_id();
  if (!number)
    return error(Code::kResourceExhausted, "open_session: 2^32 sessions were opened; open the node anew");
  const SessionId id(*number);
  Session session;
  session.id = id;
  session.bytes_max = options.bytes_max.value_or(
      static_cast<std::uint64_t>(s.options.client_share * static_cast<double>(s.stats.arena_bytes)));
  session.options = std::move(options);
  s.sessions.emplace(id, std::move(session));
  return id;
}

void Node::State::cancel_load(Load& load, Status why) {
  if (load.ending) return;
  load.ending = std::move(why);
  load.outstanding -= drop_pending(load.id);
  if (TIERCEL_FAULT(reuse_slot_of_cancelled_load) && load.outstanding != 0) {
    for (const LoadItem& item : load.items)
      if (Residence* set = residence(item.residence); set != nullptr) set->copies = 0;
    end_leases(tickets.at(load.ticket));
  }
  if (load.outstanding == 0) end_load(load);
}

void Node::State::cancel_store(Store& store, Ending why) {
  const OperationId id = store.id;
  store.outstanding -= drop_pending(id);
  const std::vector<std::uint64_t> members = store.residences;
  ++store.outstanding;  // it must not answer before all its items have ended
  for (const std::uint64_t member : members)
    if (member != 0) abort_residence(member, why);
  for (const std::uint64_t member : members)
    if (Residence* set = residence(member); set != nullptr) free_if_unused(*set);
  --store.outstanding;
  end_store_if_done(id);
}

void Node::State::cancel_operation(OperationId id) {
  if (const auto load = loads.find(id); load != loads.end())
    cancel_load(load->second, Status{Code::kCancelled, "load: cancelled"});
  else if (const auto store = stores.find(id); store != stores.end())
    cancel_store(store->second, Ending::kAborted);
  else
    for (const auto& [ticket, promotion] : promotions)
      if (promotion.prefetch && promotion.id == id)
        return give_up_promotion(ticket, Status{Code::kCancelled, "it was cancelled"});
}

void Node::cancel(OperationId operation) {
  state_->cancel_operation(operation);
  state_->pump();
}

Status Node::request_begin(SessionId session, RequestId request) {
  State& s = *state_;
  if (request == RequestId{})
    return {Code::kInvalidArgument, "request_begin: request id 0 means none; use another"};
  if (!s.sessions.contains(session))
    return {Code::kInvalidArgument, fmt::format("request_begin: session {} is not open", session.value())};
  if (s.requests.contains(request))
    return {Code::kAlreadyExists,
            fmt::format("request_begin: request {} is under way; end it first", request.value())};
  s.request_of(request, session);
  return {};
}

namespace {

// Ids first: ending one thing may end others.
template <typename Map, typename Matches>
auto ids_where(const Map& map, const Matches& matches) {
  std::vector<typename Map::key_type> ids;
  for (const auto& [id, value] : map)
    if (matches(value)) ids.push_back(id);
  return ids;
}

}  // namespace

void Node::request_end(RequestId request) {
  State& s = *state_;
  if (request == RequestId{}) return;
  for (const TicketId id :
       ids_where(s.tickets, [&](const Ticket& ticket) { return ticket.request == request; }))
    s.drop_ticket(id);
  s.forget_request(request);
}

void Node::request_abort(RequestId request) {
  State& s = *state_;
  if (request == RequestId{}) return;
  const auto of_request = [&](const auto& thing) { return thing.request == request; };
  for (const OperationId id :
       ids_where(s.loads, [&](const Load& load) { return s.tickets.at(load.ticket).request == request; }))
    s.cancel_operation(id);
  for (const OperationId id : ids_where(s.stores, of_request)) s.cancel_operation(id);
  for (const ReservationId id : ids_where(s.reservations, of_request)) abort(id);
  request_end(request);
  s.pump();
}

Status Node::close_session(SessionId session) {
  State& s = *state_;
  if (!s.sessions.contains(session))
    return {Code::kNotFound, fmt::format("close_session: session {} is not open", session.value())};
  const auto of_session = [&](const auto& thing) { return thing.session == session; };
  for (const OperationId id :
       ids_where(s.loads, [&](const Load& load) { return s.tickets.at(load.ticket).session == session; }))
    s.cancel_operation(id);
  for (const OperationId id : ids_where(s.stores, of_session)) s.cancel_operation(id);
  for (const ReservationId id : ids_where(s.reservations, of_session)) abort(id);
  for (const TicketId id : ids_where(s.tickets, of_session)) s.drop_ticket(id);
  for (const RequestId id : ids_where(s.requests, of_session)) s.forget_request(id);
  // What it was bringing up is nobody's any more; others that wait for it ask again.
  for (const std::uint64_t id : ids_where(s.residences, [&](const std::unique_ptr<Residence>& set) {
         return set->from_disk && set->session == session && set->page != nullptr &&
                set->state != ResidenceState::kResident;
       }))
    s.abort_residence(id, Ending::kAborted);
  s.sessions.erase(session);
  s.pump();
  return {};
}

// ---- lifetime of pages ----

void Node::State::unpin_page(Page& page) {
  if (page.pinned_until == Time{0}) return;
  pins.erase({page.pinned_until, page.name});
  page.pinned_until = Time{0};
  --stats.pinned_pages;
}

void Node::pin(NamespaceId ns, std::span<const Key> keys, Duration ttl) {
  State& s = *state_;
  if (!s.knows(ns) || ttl <= Duration{0}) return;
  for (const Key& key : keys) {
    Page* page = s.find(ns, key);
    if (page == nullptr || !page->visible) continue;
    s.unpin_page(*page);
    page->pinned_until = later(s.now(), ttl);
    s.pins.insert({page->pinned_until, page->name});
    ++s.stats.pinned_pages;
  }
}

void Node::unpin(NamespaceId ns, std::span<const Key> keys) {
  State& s = *state_;
  if (!s.knows(ns)) return;
  for (const Key& key : keys) {
    Page* page = s.find_any(ns, key);
    if (page == nullptr) continue;
    s.unpin_page(*page);
    s.prune(page);
  }
}

void Node::touch(NamespaceId ns, std::span<const Key> keys, RequestId request) {
  State& s = *state_;
  if (!s.knows(ns)) return;
  // A request that is not under way is not begun by a touch.
  const Access access = s.access_of(s.requests.contains(request) ? request : RequestId{}, SessionId{});
  for (const Key& key : keys)
    if (Page* page = s.find(ns, key); page != nullptr && page->visible) s.touch_page(*page, access);
}

Status Node::remove(NamespaceId ns, std::span<const Key> keys) {
  State& s = *state_;
  if (!s.knows(ns)) return {};
  std::uint64_t at = 0;
  bool recorded = true;
  for (const Key& key : keys) {
    // Also an entry that was cleared: pages stored since may hang below it.
    ++s.space_of(ns).removals;
    if (Page* page = s.find_any(ns, key); page != nullptr) s.remove_tree(*page);
    s.remove_unrooted(s.space_of(ns));
    if (const DiskSpaceId space = s.space_of(ns).disk;
        s.on_disk(space) && !TIERCEL_FAULT(removal_stays_in_memory))
      recorded = s.note_record(s.world.disk->remove(space, key), at) && recorded;
  }
  if (!keys.empty()) s.clear_remote(s.space_of(ns));
  Status status = s.settle_record("remove", at, recorded);
  Status remote = s.settle_remote("remove");
  return status.ok() ? remote : status;
}

Status Node::clear(NamespaceId id) {
  State& s = *state_;
  if (!s.knows(id)) return {};
  Namespace& ns = s.space_of(id);
  if (ns.pages_mark == ns.combined_mark()) {
    s.stale_pages += ns.pages;
    ns.form->pages -= ns.pages;
  }
  ns.pages = 0;
  ++ns.mark;
  ns.pages_mark = ns.combined_mark();
  s.pages.index().bump_mark(id.value());
  s.push_cleared(ns.form->id, id);
  std::uint64_t at = 0;
  const bool recorded = !s.on_disk(ns.disk) || s.note_record(s.world.disk->clear(ns.disk), at);
  s.clear_remote(ns);
  Status status = s.settle_record("clear", at, recorded);
  Status remote = s.settle_remote("clear");
  return status.ok() ? remote : status;
}

Status Node::State::clear_form(std::string_view call, Form& form) {
  stale_pages += form.pages;
  form.pages = 0;
  ++form.mark;
  pages.index().bump_mark(form.id.value());
  push_cleared(form.id, NamespaceId{});
  clear_remote(form);
  std::uint64_t at = 0;
  const bool recorded = world.disk == nullptr ||
                        note_record(world.disk->clear_form(form.form->fingerprint, form.weights_epoch), at);
  Status status = settle_record(call, at, recorded);
  Status remote = settle_remote(call);
  if (status.ok()) status = std::move(remote);
  form.unrecorded = !status.ok();
  return status;
}

Status Node::clear(FormId id) {
  State& s = *state_;
  const auto at = s.forms.find(id);
  return at == s.forms.end() ? Status{} : s.clear_form("clear", *at->second);
}

Status Node::set_weights_epoch(FormId id, std::uint64_t epoch) {
  State& s = *state_;
  const auto at = s.forms.find(id);
  if (at == s.forms.end() || epoch < at->second->weights_epoch) return {};
  if (epoch == at->second->weights_epoch && !at->second->unrecorded) return {};
  at->second->weights_epoch = epoch;
  return s.clear_form("set_weights_epoch", *at->second);
}

// ---- deadlines ----

std::size_t Node::State::expire_residences() {
  std::size_t done = 0;
  while (!residence_deadlines.empty() && residence_deadlines.begin()->first <= now()) {
    Residence* set = residence(residence_deadlines.begin()->second);
    residence_deadlines.erase(residence_deadlines.begin());
    if (set == nullptr || set->state == ResidenceState::kResident || set->page_below ||
        TIERCEL_FAULT(leak_expired_reservation))
      continue;
    const std::uint64_t id = set->id;
    if (set->page != nullptr) {
      if (!set->from_disk) ++stats.expired_reservations;
      abort_residence(id, Ending::kExpired);
      set = residence(id);
    }
    ++done;
    if (set != nullptr && set->client_holds != 0) expire_holders(id);
  }
  return done;
}

std::size_t Node::State::expire_tickets() {
  std::size_t done = 0;
  while (!ticket_deadlines.empty() && ticket_deadlines.begin()->first <= now()) {
    const auto at = tickets.find(ticket_deadlines.begin()->second);
    ticket_deadlines.erase(ticket_deadlines.begin());
    if (at == tickets.end() || at->second.expires > now()) continue;  // gone, or it was pending for a while
    drop_ticket(at->first);
    ++done;
  }
  return done;
}

void Node::State::operation_timed_out(OperationId id) {
  if (const auto at = loads.find(id); at != loads.end()) {
    Load& load = at->second;
    if (load.answered) return;
    if (!load.ending) {  // a load that was cancelled and whose copies still run answers that
      const Ticket& ticket = tickets.at(load.ticket);
      for (std::uint64_t page = ticket.view.first_page; page < load.length; ++page)
        refuse_again(load, page, Reason::kTooLate);
      load.ending = Status{Code::kDeadlineExceeded, "load: its deadline passed"};
    }
    load.outstanding -= drop_pending(id);
    if (load.outstanding == 0)
      end_load(load);
    else
      answer_load(load, *load.ending, 0);
  } else if (const auto store = stores.find(id); store != stores.end() && !store->second.answered) {
    Store& late = store->second;
    late.outstanding -= drop_pending(id);
    const std::vector<std::uint64_t> members = late.residences;
    ++late.outstanding;  // it must not answer before all its items have ended
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i] != 0 && late.outcomes[i] == StoreOutcome::kAccepted)
        abort_residence(members[i], Ending::kExpired);
    for (const std::uint64_t member : members)
      if (Residence* set = residence(member); set != nullptr) free_if_unused(*set);
    --late.outstanding;
    if (late.outstanding != 0 && !late.answered) {
      answer_store(late);
      late.ran_late = true;
    }
    end_store_if_done(id);
  }
}

std::size_t Node::State::expire() {
  std::size_t done = expire_residences() + expire_tickets();
  while (!operation_deadlines.empty() && operation_deadlines.begin()->first <= now()) {
    const OperationId id = operation_deadlines.begin()->second;
    operation_deadlines.erase(operation_deadlines.begin());
    if (TIERCEL_FAULT(deadline_ignored)) continue;
    operation_timed_out(id);
    ++done;
  }
  while (!pins.empty() && pins.begin()->first <= now()) {
    const PageName name = pins.begin()->second;
    Page* page = find_any(name.ns, name.key);
    TIERCEL_CHECK(page != nullptr);
    unpin_page(*page);
    prune(page);
    ++done;
  }
  return done;
}

// ---- suspension ----

void Node::suspend() {
  State& s = *state_;
  if (s.suspended) {
    s.resume_when_quiet = false;  // asleep already, or on the way: and it stays so
    return;
  }
  s.suspended = s.suspending = true;
  for (const OperationId id : ids_where(s.loads, [](const Load&) { return true; })) s.cancel_operation(id);
  for (const OperationId id : ids_where(s.stores, [](const Store&) { return true; })) s.cancel_operation(id);
  s.finish_suspension();
}

void Node::State::finish_suspension() {
  if (!suspending || !running_copies.empty()) return;
  suspending = false;
  for (auto& [id, form] : forms) form->engine.clear();
  if (std::exchange(resume_when_quiet, false)) suspended = false;
  Completion completion;
  completion.kind = CompletionKind::kSuspended;
  give(std::move(completion));
}

void Node::resume() {
  if (state_->suspending)
    state_->resume_when_quiet = true;
  else
    state_->suspended = false;
}

// ---- running ----

std::size_t Node::poll() {
  State& s = *state_;
  std::size_t done = s.finish_copies();
  done += s.disk_events();
  done += s.remote_events();
  done += s.watch_writers();
  done += s.expire();
  done += s.sweep(256);
  done += s.ask_readers();
  done += s.use_touches();
  s.pump();
  done += s.finish_copies();  // of an executor that runs tasks at once
  s.pump();
  done += s.settle_promotions();
  s.finish_suspension();
  return done;
}

}  // namespace tiercel
