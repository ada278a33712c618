// Stores: reservations of class-sets, copies into them, commits. Records come in any class order, in separate
// calls; a page becomes visible in one step, and what came too late never does.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

std::string_view outcome_name(StoreOutcome outcome) {
  static constexpr std::array<std::string_view, 15> kNames = {
      "accepted",  "committed", "already_present", "being_written", "no_room",
      "too_large", "quota",     "rate_limited",    "stale",         "expired",
      "aborted",   "failed",    "invalid",         "not_arrived",   "damaged"};
  return kNames[static_cast<std::size_t>(outcome)];
}

namespace {

std::optional<Cause> cause_of(StoreOutcome outcome) {
  switch (outcome) {
    case StoreOutcome::kNoRoom:
      return Cause::kNoRoom;
    case StoreOutcome::kTooLarge:
      return Cause::kTooLarge;
    case StoreOutcome::kQuota:
      return Cause::kQuota;
    case StoreOutcome::kRateLimited:
      return Cause::kRateLimited;
    default:
      return std::nullopt;
  }
}

}  // namespace

// ---- admission ----

Status Node::State::check_store(const StoreRequest& request) const {
  if (Status status = check_session("store", request.session, request.ns, request.request); !status.ok())
    return status;
  if (options.off) return Status{Code::kUnavailable, "store: the cache is switched off"};
  if (suspended)
    return Status{Code::kFailedPrecondition,
                  "store: the node is suspended; call resume and register memory first"};
  if (loads.size() + stores.size() + reservations.size() >= options.operations_max)
    return Status{Code::kResourceExhausted,
                  fmt::format("store: {} operations are under way; wait for some (operations_max)",
                              options.operations_max)};
  return {};
}

bool Node::State::valid(const StoreRequest& request, const StoreItem& item, bool client_writes) const {
  const Form& form = *namespaces.at(request.ns)->form;
  if (item.cls.value() >= form.form->classes.size()) return false;
  const ClassForm& cls = form.form->classes[item.cls.value()];
  if (item.shard.value() >= cls.shards || item.length == 0 || item.length > kChainPagesMax) return false;
  if ((item.length == 1) == item.parent.has_value()) return false;
  if (item.parent && *item.parent == item.key) return false;
  if (item.bytes && *item.bytes != cls.record_bytes) return false;
  if (client_writes) return true;
  const auto engine = form.engine.find({item.cls, item.shard});
  return engine != form.engine.end() && item.slot < engine->second->slots;
}

// Lengths fall by one along parents, so that no chain is ever a ring; and a page has one parent.
bool Node::State::fits_chain(const StoreRequest& request, const StoreItem& item) const {
  if (const Page* page = find(request.ns, item.key); page != nullptr) {
    if (page->length != 0 && page->length != item.length) return false;
    if (page->parent != nullptr && (!item.parent || page->parent->name.key != *item.parent)) return false;
  }
  if (!item.parent) return true;
  const Page* parent = find(request.ns, *item.parent);
  return parent == nullptr || parent->length == 0 || parent->length == item.length - 1;
}

// A refusal is remembered as the page's reason, unless the page is there all the same.
StoreOutcome Node::State::refused(const StoreRequest& request, const StoreItem& item, StoreOutcome why) {
  ++stats.stores_refused;
  const Page* page = find(request.ns, item.key);
  if (page == nullptr || (!page->visible && !page->any_set()))
    if (const auto cause = cause_of(why))
      history.left(request.ns, item.key, PastEvent{*cause, now(), NamespaceId{}});
  return why;
}

Node::State::Writer Node::State::writer_of(const StoreRequest& request, std::uint64_t call,
                                           bool client_writes) {
  Writer writer;
  writer.access = access_of(request.request, request.session);
  // A request's sequence is its own each time it begins; calls outside a request are computations of their
  // own.
  writer.computation = request.request != RequestId{} ? writer.access.sequence * 2 : call * 2 + 1;
  writer.client_writes = client_writes;
  return writer;
}

Node::State::Admission Node::State::join(Residence& set, const StoreItem& item, const Writer& writer) {
  const std::uint64_t bit = std::uint64_t{1} << item.shard.value();
  const bool same = set.computation == writer.computation || TIERCEL_FAULT(mixed_shards);
  if (set.state != ResidenceState::kWriting || !same || (set.shards_claimed & bit) != 0)
    return {StoreOutcome::kBeingWritten, 0};
  set.shards_claimed |= bit;
  set.client_holds += writer.client_writes ? 1 : 0;
  return {StoreOutcome::kAccepted, set.id};
}

Node::State::Admission Node::State::admit(const StoreRequest& request, const StoreItem& item,
                                          const Writer& writer) {
  if (!valid(request, item, writer.client_writes) || !fits_chain(request, item))
    return {StoreOutcome::kInvalid, 0};
  Namespace& ns = space_of(request.ns);
  if (retired(ns)) return {StoreOutcome::kStale, 0};
  const Page* before = find(request.ns, item.key);
  if (Page* page = find(request.ns, item.key); page != nullptr && page->sets[item.cls.value()] != nullptr) {
    Residence& set = *page->sets[item.cls.value()];
    if (set.page_below) {
      page->last_sequence = writer.access.sequence;
      page->point_wanted |= item.resume_point;
      return {StoreOutcome::kAlreadyPresent, 0};
    }
    if (set.state != ResidenceState::kResident) return join(set, item, writer);
    touch_page(*page, writer.access);
    if (item.resume_point && page->form->states == 0 && !page->point) make_point(*page);
    return {StoreOutcome::kAlreadyPresent, 0};
  }
  const ClassForm& cls = ns.form->form->classes[item.cls.value()];
  Need need;
  need.ns = request.ns;
  need.form = ns.form;
  need.cls = item.cls;
  need.key = item.key;
  need.access = writer.access;
  need.new_page = before == nullptr || !before->any_set();
  need.parent = item.parent;
  if (never_fits(need)) return {refused(request, item, StoreOutcome::kTooLarge), 0};
  if (!within_bound(request.session, cls.set_bytes()))
    return {refused(request, item, StoreOutcome::kRateLimited), 0};
  std::vector<SlotId> slots;
  if (const StoreOutcome room = make_room(need, slots); room != StoreOutcome::kAccepted)
    return {refused(request, item, room), 0};
  Residence& set = new_residence(request, item, std::move(slots));
  set.computation = writer.computation;
  set.shards_claimed = std::uint64_t{1} << item.shard.value();
  set.client_holds = writer.client_writes ? 1 : 0;
  set.page->last_sequence = writer.access.sequence;
  set.page->point_wanted |= item.resume_point;
  return {StoreOutcome::kAccepted, set.id};
}

Residence& Node::State::new_residence(const StoreRequest& request, const StoreItem& item,
                                      std::vector<SlotId> slots) {
  const Page* parent = item.parent ? &entry(request.ns, *item.parent, item.length - 1, nullptr) : nullptr;
  Page& page = entry(request.ns, item.key, item.length, parent);
  page.length = item.length;
  if (item.external.size != 0) page.external = item.external;
  link_parent(page, item.parent);
  const ClassForm& cls = page.form->form->classes[item.cls.value()];
  if (!page.any_set()) occupy(page);
  auto made = std::make_unique<Residence>();
  Residence& set = *made;
  set.id = next_id();
  set.ns = request.ns;
  set.key = item.key;
  set.cls = item.cls;
  set.pool = page.form->pools[item.cls.value()];
  set.slots = std::move(slots);
  for (std::size_t shard = 0; shard < set.slots.size(); ++shard)
    slot_owner[slot_name(set.pool, set.slots[shard])] = {set.id, ShardId(static_cast<std::uint16_t>(shard))};
  if (++last_generation == 0) ++last_generation;
  set.generation = last_generation;
  set.payload_bytes = cls.set_bytes();
  set.page = &page;
  set.session = request.session;
  set.deadline = later(now(), options.reservation_ttl);
  residence_deadlines.emplace(set.deadline, set.id);
  page.sets[item.cls.value()] = &set;
  sets_promised += sets_in_index(*page.form, item.cls);
  stats.payload_bytes += set.payload_bytes;
  space_of(request.ns).bytes += set.payload_bytes;
  residences.emplace(set.id, std::move(made));
  charge(set);
  return set;
}

// ---- the calls ----

void Node::State::expect_items(const StoreRequest& request) {
  std::vector<Key> keys;
  keys.reserve(request.items.size());
  for (const StoreItem& item : request.items) keys.push_back(item.key);
  pages.index().expect(current_space(space_of(request.ns)), keys);
}

Result<StoreAnswer> Node::store(const StoreRequest& request) {
  State& s = *state_;
  TIERCEL_RETURN_IF_ERROR(s.check_store(request));
  StoreAnswer answer;
  const OperationId id(s.next_id());
  const State::Writer writer = s.writer_of(request, id.value(), false);
  std::vector<std::uint64_t> members;
  bool any = false;
  s.expect_items(request);
  for (const StoreItem& item : request.items) {
    const State::Admission admission = s.admit(request, item, writer);
    answer.outcomes.push_back(admission.outcome);
    members.push_back(admission.residence);
    if (admission.outcome != StoreOutcome::kAccepted) continue;
    any = true;
    // As if its copy ran already: a later item of this batch may not evict it to make room.
    ++s.residence(admission.residence)->copies;
  }
  if (!any) return answer;
  answer.operation = id;
  s.add_store(id, request, answer.outcomes, members, CopyKind::kStore);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (answer.outcomes[i] != StoreOutcome::kAccepted) continue;
    Residence& set = *s.residence(members[i]);
    --set.copies;
    s.free_if_unused(set);
  }
  s.end_store_if_done(id);
  s.pump();
  return answer;
}

void Node::State::add_store(OperationId id, const StoreRequest& request, std::vector<StoreOutcome> outcomes,
                            std::vector<std::uint64_t> members, CopyKind kind, const Sealing* sealing) {
  Store& store = stores[id];
  store.id = id;
  store.session = request.session;
  store.request = request.request;
  store.tell_lower = request.tell_lower;
  store.outcomes = std::move(outcomes);
  store.residences = std::move(members);
  operation_deadlines.emplace(later(now(), request.deadline.value_or(options.operation_deadline)), id);
  const Form& form = *space_of(request.ns).form;
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    const StoreItem& item = request.items[i];
    store.shards.push_back(item.shard);
    if (store.outcomes[i] != StoreOutcome::kAccepted) continue;
    Residence& set = *residence(store.residences[i]);
    if (set.page == nullptr) {  // its page went to make room for a later item
      store.outcomes[i] = outcome_of(set, StoreOutcome::kStale);
      continue;
    }
    store.unseen.insert(set.id);
    set.waiters.emplace_back(id, i);
    PendingCopy copy{id, i, set.id, form.form->classes[item.cls.value()].record_bytes, {}};
    copy.copy.kind = kind;
    copy.copy.place = place_of(set, item.shard);
    if (kind == CopyKind::kStore) {
      copy.copy.engine = form.engine.at({item.cls, item.shard});
      copy.copy.slot = item.slot;
    }
    if (sealing != nullptr && sealing->arrivals[i] != nullptr) {
      copy.copy.checksums = sealing->arrivals[i]->checksums;
      copy.copy.trusted = sealing->trusted;
    }
    ++store.outstanding;
    queue_copy(std::move(copy), request.after_event);
  }
}

void Node::not_stored(NamespaceId ns, std::span<const Key> keys, StoreOutcome why) {
  const auto cause = cause_of(why);
  if (!state_->knows(ns) || !cause) return;
  for (const Key& key : keys) {
    const Page* page = state_->find(ns, key);
    if (page == nullptr || (!page->visible && !page->any_set()))
      state_->history.left(ns, key, PastEvent{*cause, state_->now(), NamespaceId{}});
  }
}

// ---- ends of copies ----

StoreOutcome Node::State::outcome_of(const Residence& residence, StoreOutcome so_far) const {
  if (residence.page != nullptr) return so_far;
  switch (residence.ending) {
    case Ending::kExpired:
      return StoreOutcome::kExpired;
    case Ending::kAborted:
      return StoreOutcome::kAborted;
    case Ending::kFailed:
      return StoreOutcome::kFailed;
    case Ending::kNone:
    case Ending::kStale:
    case Ending::kEvicted:
      return StoreOutcome::kStale;
  }
  return so_far;
}

void Node::State::store_copy_done(Store& store, std::uint64_t index, const Status& status) {
  const OperationId id = store.id;
  Residence* set = residence(store.residences[index]);
  if (!status.ok()) {
    if (set != nullptr && set->page != nullptr) abort_residence(set->id, Ending::kFailed);
    const bool damaged = status.code == Code::kDataCorrupt;
    stats.damaged_records += damaged ? 1 : 0;
    stores.at(id).outcomes[index] = damaged ? StoreOutcome::kDamaged : StoreOutcome::kFailed;
  } else if (set != nullptr && (set->page != nullptr || reattach(*set))) {
    store.outcomes[index] = StoreOutcome::kCommitted;
    shard_written(*set, store.shards[index]);
  }  // else: it left while it was written, and the store has been told why
  --stores.at(id).outstanding;
  end_store_if_done(id);
}

// What an attach must never do; here only so that the simulator can prove that it would be seen.
bool Node::State::reattach(Residence& set) {
  if (!TIERCEL_FAULT(attach_to_replaced_page)) return false;
  Page* page = find(set.ns, set.key);
  if (set.ending != Ending::kStale || page == nullptr || !page->visible ||
      page->sets[set.cls.value()] != nullptr)
    return false;
  set.page = page;
  set.state = ResidenceState::kWriting;
  page->sets[set.cls.value()] = &set;
  sets_promised += sets_in_index(*page->form, set.cls);
  space_of(set.ns).bytes += set.payload_bytes;
  return true;
}

void Node::State::shard_written(Residence& set, ShardId shard) {
  set.shards_written |= std::uint64_t{1} << shard.value();
  if (!current(*set.page)) {
    if (TIERCEL_FAULT(old_epoch_publishes)) {
      set.page->birth = space_of(set.ns).combined_mark();
      if (!set.page->visible) move_to_current_space(*set.page);
    } else {
      ++stats.stale_commits;
      return abort_residence(set.id, Ending::kStale);
    }
  }
  const std::uint16_t shards = set.page->form->form->classes[set.cls.value()].shards;
  const std::uint64_t all = shards >= 64 ? UINT64_MAX : (std::uint64_t{1} << shards) - 1;
  if (set.shards_written != all && !TIERCEL_FAULT(publish_before_all_shards)) return;
  if (set.state != ResidenceState::kWriting) return;
  set.state = ResidenceState::kStaged;
  publish(*set.page, set);
}

void Node::State::abort_residence(std::uint64_t id, Ending ending) {
  Residence* set = residence(id);
  // What has become visible meanwhile stays.
  if (set == nullptr || set->page == nullptr || set->state == ResidenceState::kResident) return;
  if (set->page_below) return;
  Page& page = *set->page;
  const PageName name = page.name;
  hide_set(page, set->cls, ending);
  if (page.any_set()) return settle_below(name);
  vacate(page);
  prune(&page);
}

void Node::State::answer_store(Store& store) {
  store.answered = true;
  Completion completion;
  completion.kind = CompletionKind::kSourceFree;
  completion.operation = store.id;
  completion.quiescent = store.outstanding == 0;
  completion.store = store.outcomes;
  give(std::move(completion));
}

void Node::State::end_store_if_done(OperationId id) {
  const auto at = stores.find(id);
  if (at == stores.end() || at->second.outstanding != 0) return;
  Store& store = at->second;
  if (!store.answered) answer_store(store);
  if (store.ran_late) {
    store.ran_late = false;
    give_quiescent(id);
  }
  if (!store.unseen.empty()) return;
  Completion completion;
  completion.kind = CompletionKind::kVisible;
  completion.operation = id;
  completion.store = std::move(store.outcomes);
  const bool tell_lower = store.tell_lower;
  if (tell_lower) watch_descent(store);
  stores.erase(at);
  give(std::move(completion));
  if (tell_lower && world.disk == nullptr) tell_no_disk();
}

// ---- offers ----

Presence Node::State::wanted(const OfferRequest& request, const Form& form, std::uint64_t number,
                             const Page* page) const {
  Presence bits = 0;
  const std::uint64_t end = request.first_page + request.keys.size();
  const auto is_point = [&](std::uint64_t from, std::uint64_t to) {  // a point's length in [from, to]
    if (request.points.empty()) return from <= end && end <= to;
    return std::any_of(request.points.begin(), request.points.end(),
                       [&](std::uint64_t length) { return from <= length && length <= to; });
  };
  for (const ClassForm& cls : form.form->classes) {
    const std::size_t c = cls.id.value();
    if (page != nullptr && page->sets[c] != nullptr) continue;
    bool want = true;
    if (cls.is_state()) {
      want = options.retention == SparseRetention::kAll || is_point(number + 1, number + 1);
    } else if (cls.is_window() && options.retention == SparseRetention::kAtPoints) {
      want =
          is_point(number + 1, number + cls.window_pages()) || (page != nullptr && page->window_refs[c] != 0);
    }
    if (want) bits |= Presence{1} << c;
  }
  return bits;
}

std::vector<Presence> Node::offer(const OfferRequest& request) {
  State& s = *state_;
  std::vector<Presence> answer(request.keys.size());
  if (s.options.off || !s.check_session("offer", request.session, request.ns, request.request).ok())
    return answer;
  const Form& form = *s.space_of(request.ns).form;
  const WritePolicy policy = s.options.write_policy;
  if (policy == WritePolicy::kWriteThrough && request.event != OfferEvent::kComputed) return answer;
  if (policy == WritePolicy::kWriteThroughSelective && request.event == OfferEvent::kLeaving) return answer;
  if (policy == WritePolicy::kWriteBack && request.event != OfferEvent::kLeaving) return answer;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const Page* page = s.find(request.ns, request.keys[i]);
    if (policy == WritePolicy::kWriteThroughSelective) {
      const auto seen = s.sightings.find(PageName{request.ns, request.keys[i]});
      if (seen == s.sightings.end() || seen->second.requests < s.options.selective_threshold) {
        if (page == nullptr || (!page->visible && !page->any_set()))
          s.history.left(request.ns, request.keys[i], PastEvent{Cause::kSecondTouch, s.now(), NamespaceId{}});
        continue;
      }
    }
    answer[i] = s.wanted(request, form, request.first_page + i, page);
  }
  return answer;
}

}  // namespace tiercel
