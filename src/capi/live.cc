#include "capi/live.h"

#include <algorithm>
#include <utility>

#include <tiercel/disk.h>

namespace tiercel::capi {

namespace {
constexpr std::uint64_t kOwnIds = std::uint64_t{1} << 63;  // the node counts from 1 and never gets here
constexpr Duration kTick = std::chrono::milliseconds(50);
constexpr std::uint32_t bit(tiercel_completion_kind kind) { return std::uint32_t{1} << kind; }
}  // namespace

std::uint64_t items_ok(const Operation& op) {
  return static_cast<std::uint64_t>(
      std::count_if(op.outcomes.begin(), op.outcomes.end(), [](StoreOutcome outcome) {
        return outcome == StoreOutcome::kCommitted || outcome == StoreOutcome::kAlreadyPresent;
      }));
}

// ---- operations ----

void Live::begin(const std::shared_ptr<Operation>& op) {
  const bool known = op->id != 0;
  if (!known) op->id = kOwnIds | ++last_own_id_;
  if (op->kind == OperationKind::kSuspend) {
    suspensions_.push_back(op);
  } else if (known) {
    operations_.emplace(op->id, op);
    for (const SourceSlot& source : op->sources) ++sources_[source];
  } else {  // a store of which nothing was accepted
    op->sources.clear();
    become_quiescent(*op);
    give(op, TIERCEL_COMPLETION_SOURCE_FREE, false);
    give(op, TIERCEL_COMPLETION_VISIBLE, !op->tells_lower);
    if (!op->tells_lower) return;
    give(op, TIERCEL_COMPLETION_ACCEPTED, false);
    give(op, TIERCEL_COMPLETION_DURABLE, true);
  }
}

std::vector<std::shared_ptr<Operation>> Live::stores_under_way() const {
  std::vector<std::shared_ptr<Operation>> stores;
  for (const auto& [id, op] : operations_)
    if (op->kind == OperationKind::kStore) stores.push_back(op);
  return stores;
}

void Live::give_back(const std::vector<BroughtSlot>& slots) {
  for (const BroughtSlot& slot : slots) memory_.give_back(slot);
}

void Live::become_quiescent(Operation& op) {
  if (op.quiescent) return;
  op.quiescent = true;
  give_back(std::exchange(op.brought, {}));
  for (const SourceSlot& source : std::exchange(op.sources, {}))
    if (const auto at = sources_.find(source); at != sources_.end() && --at->second == 0) sources_.erase(at);
}

void Live::give(const std::shared_ptr<Operation>& op, tiercel_completion_kind kind, bool last,
                std::uint32_t layer) {
  ++given_;
  op->given |= bit(kind);
  op->last = op->last || last;
  if (op->cq == nullptr) return;
  tiercel_completion completion{};
  completion.user_data = op->user_data;
  completion.operation = op->id;
  completion.kind = kind;
  completion.layer = layer;
  const bool lower = kind == TIERCEL_COMPLETION_ACCEPTED || kind == TIERCEL_COMPLETION_DURABLE;
  completion.tier = lower ? TIERCEL_TIER_DISK : TIERCEL_TIER_HOST;
  if (last) completion.flags |= TIERCEL_COMPLETION_LAST;
  if (op->quiescent) completion.flags |= TIERCEL_COMPLETION_QUIET;
  if (op->kind == OperationKind::kLoad && (op->given & bit(TIERCEL_COMPLETION_LOADED)) != 0) {
    completion.length = op->load.length;
    completion.status = static_cast<tiercel_status>(op->load.status.code);
  }
  if (op->kind == OperationKind::kPrefetch) {
    completion.length = op->prefetch.length;
    completion.status = static_cast<tiercel_status>(op->prefetch.status.code);
  }
  if (op->kind == OperationKind::kStore) {
    completion.items = op->outcomes.size();
    completion.items_ok = items_ok(*op);
    if (lower) completion.length = op->class_sets;
    if (lower) completion.status = static_cast<tiercel_status>(op->lower.code);
  }
  op->cq->push(completion, op);
}

void Live::take_store(const std::shared_ptr<Operation>& op, Completion& completion) {
  op->outcomes = std::move(completion.store);
  const bool visible = completion.kind == CompletionKind::kVisible;
  if (visible || completion.quiescent) become_quiescent(*op);
  give(op, visible ? TIERCEL_COMPLETION_VISIBLE : TIERCEL_COMPLETION_SOURCE_FREE,
       visible && !op->tells_lower);
}

void Live::take_completion(Completion& completion) {
  const auto found = operations_.find(completion.operation.value());
  if (found == operations_.end()) return;
  const std::shared_ptr<Operation> op = found->second;  // the table may be its last owner
  switch (completion.kind) {
    case CompletionKind::kLoaded:
      op->load = std::move(completion.load.value());
      if (completion.quiescent) become_quiescent(*op);
      give(op, TIERCEL_COMPLETION_LOADED, completion.quiescent);
      break;
    case CompletionKind::kLayerReady:
      op->layers_ready.push_back(completion.layer);
      give(op, TIERCEL_COMPLETION_LAYER, false, completion.layer);
      break;
    case CompletionKind::kSourceFree:
    case CompletionKind::kVisible:
      take_store(op, completion);
      break;
    case CompletionKind::kQuiescent:
      become_quiescent(*op);
      give(op, TIERCEL_COMPLETION_QUIESCENT, op->kind == OperationKind::kLoad);
      break;
    case CompletionKind::kPrefetched:
      op->prefetch = std::move(completion.prefetch.value());
      become_quiescent(*op);
      give(op, TIERCEL_COMPLETION_PREFETCHED, true);
      break;
    case CompletionKind::kAccepted:
      op->class_sets = completion.class_sets;
      op->lower = std::move(completion.status);
      give(op, TIERCEL_COMPLETION_ACCEPTED, false);
      break;
    case CompletionKind::kDurable:
      op->class_sets = completion.class_sets;
      op->lower = std::move(completion.status);
      give(op, TIERCEL_COMPLETION_DURABLE, true);
      break;
    case CompletionKind::kFlushed:
      op->flushed = std::move(completion.status);
      op->last = true;
      ++given_;
      break;
    case CompletionKind::kSuspended:
    case CompletionKind::kMatched:
      break;
  }
  if (op->last) operations_.erase(op->id);
}

void Live::suspend() {
  if (suspended_ && quiet_) return all_suspended();
  if (!suspended_) quiet_ = false;
  suspended_ = true;
  node->suspend();
}

void Live::resume() {
  suspended_ = false;
  node->resume();
}

void Live::all_suspended() {
  quiet_ = true;
  for (auto& [name, use] : memory_uses) use.registered = use.brought_now = false;
  for (const std::shared_ptr<Operation>& op : std::exchange(suspensions_, {})) {
    become_quiescent(*op);
    give(op, TIERCEL_COMPLETION_SUSPENDED, true);
  }
}

void Live::cancel_flushes() {
  for (auto at = operations_.begin(); at != operations_.end();) {
    const std::shared_ptr<Operation> op = at->second;
    if (op->kind != OperationKind::kFlush) {
      ++at;
      continue;
    }
    op->flushed = {Code::kCancelled, "flush: the disk was closed meanwhile"};
    op->last = true;
    ++given_;
    at = operations_.erase(at);
  }
}

bool Live::copies_under_way() const {
  return !suspensions_.empty() || std::any_of(operations_.begin(), operations_.end(), [](const auto& entry) {
    const Operation& op = *entry.second;
    const bool visible = (op.given & bit(TIERCEL_COMPLETION_VISIBLE)) != 0;
    return op.kind != OperationKind::kFlush && !(op.tells_lower && visible);
  });
}

std::size_t Live::route() {
  for (Completion& completion : node->drain_completions())
    if (completion.kind == CompletionKind::kSuspended) {
      all_suspended();
    } else if (completion.kind == CompletionKind::kMatched) {
      if (const auto at = pending_.find(completion.ticket); at != pending_.end()) {
        answer_ticket(*at->second, node->ticket(completion.ticket));
        pending_.erase(at);
      }
    } else {
      take_completion(completion);
    }
  return std::exchange(given_, 0);
}

// ---- tickets ----

void Live::begin(const std::shared_ptr<Ticket>& ticket) {
  const TicketView& view = *node->ticket(ticket->id);
  tickets.emplace(ticket->id, ticket);
  if (view.pending)
    pending_.emplace(ticket->id, ticket);
  else
    answer_ticket(*ticket, &view);
}

// `view`: null: it has ended.
void Live::answer_ticket(Ticket& ticket, const TicketView* view) {
  ++given_;
  if (view != nullptr) {
    ticket.view = *view;
  } else {
    ticket.view = {};
    ticket.view.lengths = {0};
    ticket.view.resident.resize(ticket.form->form.classes.size());
    ticket.view.on_disk.resize(ticket.form->form.classes.size());
    ticket.status = {Code::kCancelled, "the ticket ended before it was ready; match again"};
  }
  ticket.view.pending = false;
  ticket.answered.store(true, std::memory_order_release);
  if (ticket.cq == nullptr) return;
  tiercel_completion completion{};
  completion.user_data = ticket.user_data;
  completion.operation = ticket.id.value();
  completion.length = ticket.view.length;
  completion.kind = TIERCEL_COMPLETION_TICKET;
  completion.flags = TIERCEL_COMPLETION_LAST | TIERCEL_COMPLETION_QUIET;
  completion.status = static_cast<tiercel_status>(ticket.status.code);
  completion.tier = TIERCEL_TIER_HOST;
  ticket.cq->push(completion, nullptr);
}

// ---- requests ----

RequestId Live::request(SessionId session, std::uint64_t request) {
  if (request == 0) return {};
  auto [at, fresh] = requests_.try_emplace({session, request});
  if (fresh) at->second.id = RequestId(++last_request_);
  return at->second.id;
}

RequestId Live::known_request(SessionId session, std::uint64_t request) const {
  const auto at = requests_.find({session, request});
  return at != requests_.end() ? at->second.id : RequestId{};
}

void Live::forget(std::map<RequestKey, KnownRequest>::iterator at) {
  if (at->second.end) request_ends_.erase(*at->second.end);
  requests_.erase(at);
}

void Live::forget_request(SessionId session, std::uint64_t request) {
  if (const auto at = requests_.find({session, request}); at != requests_.end()) forget(at);
}

void Live::forget_requests(SessionId session) {
  for (auto at = requests_.lower_bound({session, 0}); at != requests_.end() && at->first.first == session;)
    forget(at++);
}

void Live::end_request_at(Time when, SessionId session, std::uint64_t request) {
  requests_.at({session, request}).end = request_ends_.emplace(when, RequestKey(session, request));
  note_deadline(when);
}

std::size_t Live::expire_requests() {
  std::size_t done = 0;
  for (; !request_ends_.empty() && request_ends_.begin()->first <= clock_.now(); ++done) {
    const auto [session, request] = request_ends_.begin()->second;
    node->request_abort(known_request(session, request));
    forget_request(session, request);
  }
  return done;
}

// ---- time ----

Time Live::next_due() {
  const Time now = clock_.now();
  while (!deadlines_.empty() && deadlines_.top() <= now) deadlines_.pop();
  Time tick = later(now, kTick);
  if (node != nullptr && node->disk() != nullptr) tick = std::min(tick, node->disk()->next_due());
  if (node != nullptr && node->remote() != nullptr) tick = std::min(tick, node->remote()->next_due());
  return deadlines_.empty() ? tick : std::min(tick, deadlines_.top());
}

}  // namespace tiercel::capi
