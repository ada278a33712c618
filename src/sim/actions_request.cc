// Requests: match, compute in chunks, store what was computed, end or be aborted.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "sim/actions.h"
#include "sim/scene_below.h"
#include "sim/scene_disk.h"
#include "sim/scene_remote.h"

namespace tiercel::sim {
namespace {

template <typename T>
void shuffle(Prng& prng, std::vector<T>& items) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[prng.below(i)]);
}

// The workload changes its ways every so many steps.
std::uint64_t phase(const Scene& scene) { return scene.view.step / kPhaseSteps; }

std::vector<std::size_t> walk(Scene& scene, std::size_t space) {
  std::vector<std::size_t> path;
  const std::uint64_t pages = scene.prng.between(1, scene.scenario.prompt_pages_max);
  std::optional<std::size_t> at;
  while (path.size() < pages) {
    const std::size_t known = at ? scene.prompts[*at].next.size() : scene.spaces[space].first_pages.size();
    const bool again = known == scene.scenario.branches || (known != 0 && scene.prng.chance(0.82));
    at = prompt_below(scene, space, at, again ? scene.prng.below(known) : known);
    path.push_back(*at);
  }
  return path;
}

void match(Scene& scene, SimRequest& request) {
  const Space& space = scene.spaces[request.space];
  const StorageForm& form = scene.form_of(space);
  const std::uint64_t page_tokens = form.spec.page_tokens;
  SimTicket ticket;
  ticket.session = scene.clients[request.client].id;
  ticket.space = request.space;
  ticket.request = request.id;
  MatchQuery query;
  query.session = ticket.session;
  query.ns = space.id;
  query.request = request.id;
  if (scene.prng.chance(0.15)) ticket.first_page = scene.prng.below(request.path.size());
  for (std::size_t i = ticket.first_page; i < request.path.size(); ++i)
    ticket.keys.push_back(scene.prompts[request.path[i]].key);
  query.keys = ticket.keys;
  query.first_page = ticket.first_page;
  if (ticket.first_page != 0 || scene.prng.chance(0.2))
    for (std::size_t c = 0; c < form.classes.size(); ++c)
      ticket.held.push_back(scene.prng.chance(0.8)
                                ? scene.prng.between(ticket.first_page, request.path.size())
                                : scene.prng.below(request.path.size() + 1));
  query.held = ticket.held;
  if (scene.prng.chance(0.25)) query.limit_tokens = scene.prng.below(request.path.size() * page_tokens + 3);
  if (scene.prng.chance(0.5))
    query.prompt_tokens = request.path.size() * page_tokens + scene.prng.below(page_tokens);
  if (ticket.first_page == 0 && scene.prng.chance(0.8))
    query.probe = scene.prompts[request.path.front()].probe;
  query.touch = scene.prng.chance(0.9);
  choose_promotion(scene, query);
  ticket.query = query;
  request.matched = true;
  const std::uint64_t troubles = scene.remote == nullptr ? 0 : scene.remote->troubles_heard;
  const auto answer = scene.node->match(query);
  if (!answer) return;
  ticket.id = *answer;
  const TicketView* view = scene.node->ticket(*answer);
  TIERCEL_CHECK(view != nullptr);
  if (view->pending) {
    request.waits_for = ticket.id;
    const Time deadline =
        scene.clock.now() + query.deadline.value_or(scene.scenario.options.operation_deadline);
    scene.below->matches.emplace(*answer, SimWaiting{std::move(ticket), deadline, troubles});
    scene.coverage.hit("node_match_pending");
    return;
  }
  ticket.view = *view;
  ticket.matched = scene.clock.now();
  ticket.step = scene.view.step;
  scene.view.matched = ticket.id;
  request.next_page = scene.prng.chance(0.8) ? view->length : 0;
  if (view->length > ticket.first_page && scene.prng.chance(0.7)) request.to_load = ticket.id;
  if (ticket.first_page != 0) scene.coverage.hit("match_first_page");
  if (!ticket.held.empty()) scene.coverage.hit("match_held");
  if (query.limit_tokens != UINT64_MAX) scene.coverage.hit("match_limit");
  scene.tickets.emplace(ticket.id, std::move(ticket));
}

// One chunk of the forward pass: items for its pages, a snapshot at its end.
void compute_chunk(Scene& scene, SimRequest& request) {
  const StorageForm& form = scene.form_of(scene.spaces[request.space]);
  const std::uint64_t left = request.path.size() - request.next_page;
  const bool all_at_once = scene.prng.chance(0.1);
  const double sparse = phase(scene) % 3 == 2 ? 0.1 : 0.85;
  const std::uint64_t pages = all_at_once ? left : std::min<std::uint64_t>(left, scene.prng.between(1, 4));
  for (std::uint64_t i = 0; i < pages; ++i) {
    const std::size_t prompt = request.path[request.next_page + i];
    const bool last = i + 1 == pages;
    const bool point = last && scene.prng.chance(0.6);
    for (const ClassForm& cls : form.classes) {
      if (cls.is_state() && !(last && scene.prng.chance(sparse))) continue;
      if (cls.is_window() && !scene.prng.chance(sparse)) continue;
      if (cls.optional() && !scene.prng.chance(0.5)) continue;
      for (std::uint16_t shard = 0; shard < cls.shards; ++shard) {
        request.to_store.push_back(make_item(scene, prompt, cls.id, ShardId(shard)));
        request.to_store.back().resume_point = point;
        if (scene.prng.chance(0.1)) request.to_store.back().bytes = cls.record_bytes;
        if (scene.prng.chance(0.005)) request.to_store.back().bytes = cls.record_bytes + 1;
      }
    }
  }
  request.next_page += pages;
  if (scene.prng.chance(0.4)) shuffle(scene.prng, request.to_store);
  if (!request.to_store.empty() && scene.prng.chance(0.04))
    request.to_store.push_back(request.to_store.front());
}

// Takes engine memory for the items, as far as there is any. Without an event their bytes are there at once.
void take_sources(Scene& scene, SimOperation& operation) {
  const Space& space = scene.spaces[operation.space];
  const StorageForm& form = scene.form_of(space);
  for (std::size_t i = 0; i < operation.items.size(); ++i) {
    StoreItem& item = operation.items[i];
    const auto slot = scene.engine->take(space.form, item.cls, item.shard);
    if (!slot) {
      operation.items.resize(i);
      return;
    }
    item.slot = slot->slot;
    operation.sources.push_back(slot);
    if (operation.event == 0)
      scene.engine->write(*slot, make_payload(form.classes[item.cls.value()],
                                              scene.record_name(space, item.key, item.cls, item.shard),
                                              operation.computation));
  }
}

void give_back_refused(Scene& scene, SimOperation& operation, const std::vector<StoreOutcome>& outcomes) {
  for (std::size_t i = 0; i < operation.sources.size(); ++i) {
    if (i < outcomes.size() && outcomes[i] == StoreOutcome::kAccepted) continue;
    scene.engine->give_back(*operation.sources[i]);
    operation.sources[i].reset();
  }
}

void note_shards(Scene& scene, const SimOperation& operation) {
  const StorageForm& form = scene.form_of(scene.spaces[operation.space]);
  for (std::size_t i = 0; i < operation.items.size(); ++i) {
    const StoreItem& item = operation.items[i];
    if (operation.first[i] != StoreOutcome::kAccepted || form.classes[item.cls.value()].shards == 1) continue;
    const bool other_here = std::any_of(
        operation.items.begin(), operation.items.end(),
        [&](const StoreItem& o) { return o.key == item.key && o.cls == item.cls && o.shard != item.shard; });
    if (!other_here) scene.coverage.hit("shards_in_separate_calls");
  }
}

void hand_over(Scene& scene, SimRequest& request) {
  SimOperation operation;
  operation.session = scene.clients[request.client].id;
  operation.request = request.id;
  operation.space = request.space;
  operation.computation = request.computation;
  operation.issued = scene.clock.now();
  operation.step = scene.view.step;
  const std::size_t count = std::min<std::size_t>(request.to_store.size(), scene.prng.between(1, 8));
  operation.items.assign(request.to_store.begin(),
                         request.to_store.begin() + static_cast<std::ptrdiff_t>(count));
  request.to_store.erase(request.to_store.begin(),
                         request.to_store.begin() + static_cast<std::ptrdiff_t>(count));
  if (scene.prng.chance(0.2)) operation.event = ++scene.last_event;
  take_sources(scene, operation);
  if (operation.items.empty()) return;
  StoreRequest call;
  call.session = operation.session;
  call.ns = scene.spaces[request.space].id;
  call.request = request.id;
  call.items = operation.items;
  call.after_event = operation.event;
  call.tell_lower = operation.tell_lower = scene.disk != nullptr && scene.prng.chance(0.5);
  if (scene.prng.chance(0.1)) call.deadline = std::chrono::milliseconds(scene.prng.between(50, 2000));
  operation.deadline = scene.clock.now() + call.deadline.value_or(scene.scenario.options.operation_deadline);
  scene.view.storing = call.ns;
  const auto answer = scene.node->store(call);
  if (!answer) {
    give_back_refused(scene, operation, {});
    return;
  }
  TIERCEL_CHECK(answer->outcomes.size() == operation.items.size());
  operation.id = answer->operation;
  operation.first = answer->outcomes;
  for (std::size_t i = 0; i < operation.items.size(); ++i)
    note_answer(scene, request, operation.items[i], operation.first[i]);
  give_back_refused(scene, operation, operation.first);
  if (operation.id == OperationId{}) return;
  note_shards(scene, operation);
  if (operation.event != 0) {
    scene.events_waiting.push_back(operation.event);
    scene.coverage.hit("store_waited_for_event");
  }
  scene.operations.emplace(operation.id, std::move(operation));
}

// By the audit of the step before: nothing of the page is there or being written.
bool nothing_there(const Scene& scene, const PageId& page) {
  const auto& residences = scene.view.before.residences;
  return std::none_of(residences.begin(), residences.end(), [&](const AuditResidence& each) {
    return each.ns == page.ns && each.key == page.key && each.state != ResidenceState::kHidden &&
           each.state != ResidenceState::kQuarantined && !scene.cleared_generations.contains(each.generation);
  });
}

void end_request(Scene& scene, std::size_t index) {
  const RequestId id = scene.requests[index].id;
  scene.view.note = fmt::format("request {} ends", id.value());
  scene.node->request_end(id);
  forget_request(scene, id, false);
}

}  // namespace

bool choose_client_and_space(Scene& scene, std::size_t& client, std::size_t& space) {
  client = scene.prng.below(scene.clients.size());
  std::vector<std::size_t> fit;
  for (std::size_t i = 0; i < scene.spaces.size(); ++i) {
    if (scene.spaces[i].salt != scene.clients[client].salt) continue;
    if (scene.spaces[i].dead && !scene.prng.chance(0.1)) continue;
    // One model after the other is busy, so that the arena's extents change hands.
    if (scene.spaces[i].form != scene.models[phase(scene) % scene.models.size()].id &&
        !scene.prng.chance(0.1))
      continue;
    fit.push_back(i);
  }
  if (fit.empty()) return false;
  // Few namespaces are busy, so that their pages meet.
  space = fit[scene.prng.chance(0.7) ? scene.prng.below(std::min<std::size_t>(fit.size(), 3))
                                     : scene.prng.below(fit.size())];
  return true;
}

SimRequest new_request(Scene& scene, std::size_t client, std::size_t space) {
  SimRequest request;
  request.id = RequestId(++scene.last_request);
  request.client = client;
  request.space = space;
  request.computation = request.id.value();
  return request;
}

StoreItem make_item(const Scene& scene, std::size_t prompt, ClassId cls, ShardId shard) {
  const Prompt& page = scene.prompts[prompt];
  StoreItem item;
  item.external = external_name(page.key);
  item.key = page.key;
  if (page.parent) item.parent = scene.prompts[*page.parent].key;
  item.length = page.length;
  item.cls = cls;
  item.shard = shard;
  return item;
}

ExternalDigest external_name(const Key& key) {
  ExternalDigest name;
  name.size = static_cast<std::uint8_t>(key.words[0] % 3 * 16);  // of every third page nothing
  for (std::size_t i = 0; i < name.size; ++i)
    name.bytes[i] = static_cast<std::byte>(key.words[1] >> (i % 8 * 8) & 0xFF);
  return name;
}

void note_answer(Scene& scene, const SimRequest& request, const StoreItem& item, StoreOutcome outcome) {
  const Space& space = scene.spaces[request.space];
  const PageId page{space.id, item.key};
  switch (outcome) {
    case StoreOutcome::kAccepted: {
      const PageRecord* parent = item.parent ? scene.book.find({space.id, *item.parent}) : nullptr;
      if (item.parent && (parent == nullptr || parent->written.empty()))
        scene.coverage.hit("child_stored_before_parent");
      scene.book.accepted(page, item, request.computation);
      return;
    }
    case StoreOutcome::kAlreadyPresent:
      scene.coverage.hit("store_already_present");
      return;
    case StoreOutcome::kBeingWritten:
      scene.coverage.hit("store_being_written");
      scene.coverage.hit("same_page_two_computations");
      return;
    case StoreOutcome::kNoRoom:
      scene.coverage.hit("refused_no_room");
      break;
    case StoreOutcome::kTooLarge:
      scene.coverage.hit("refused_too_large");
      break;
    case StoreOutcome::kQuota:
      scene.coverage.hit("refused_quota");
      break;
    case StoreOutcome::kRateLimited:
      scene.coverage.hit("refused_rate_limited");
      break;
    case StoreOutcome::kStale:
      scene.coverage.hit(space.dead ? "stale_epoch" : "stale_commit");
      break;
    case StoreOutcome::kCommitted:
    case StoreOutcome::kExpired:
    case StoreOutcome::kAborted:
    case StoreOutcome::kFailed:
    case StoreOutcome::kInvalid:
    case StoreOutcome::kNotArrived:
    case StoreOutcome::kDamaged:
      break;
  }
  // What this very call has had accepted before this item counts too.
  const PageRecord* record = scene.book.find(page);
  scene.book.refused(
      page, outcome,
      nothing_there(scene, page) && (record == nullptr || record->accepted_step != scene.view.step));
}

void forget_request(Scene& scene, RequestId request, bool aborted) {
  for (auto& [id, ticket] : scene.tickets)
    if (ticket.request == request) ticket.gone = true;
  if (aborted)
    for (auto& [id, reservation] : scene.reservations)
      if (reservation.request == request) reservation.ended = true;
  std::erase_if(scene.requests, [&](const SimRequest& each) { return each.id == request; });
}

void advance_request(Scene& scene) {
  constexpr std::size_t kRequests = 6;
  if (scene.requests.size() < kRequests && (scene.requests.empty() || scene.prng.chance(0.3))) {
    std::size_t client = 0;
    std::size_t space = 0;
    if (!choose_client_and_space(scene, client, space)) return;
    scene.requests.push_back(new_request(scene, client, space));
    scene.requests.back().path = walk(scene, space);
    if (scene.prng.chance(0.4)) {
      const Status begun = scene.node->request_begin(scene.clients[client].id, scene.requests.back().id);
      // Refused when too many are under way: then it is never heard of.
      if (!begun.ok()) scene.requests.pop_back();
      TIERCEL_CHECK(begun.ok() || begun.code == Code::kResourceExhausted);
      return;
    }
  }
  const auto urgent = std::find_if(scene.requests.begin(), scene.requests.end(),
                                   [](const SimRequest& each) { return each.urgent; });
  const std::size_t index = urgent != scene.requests.end()
                                ? static_cast<std::size_t>(urgent - scene.requests.begin())
                                : scene.prng.below(scene.requests.size());
  SimRequest& request = scene.requests[index];
  if (request.waits_for && scene.prng.chance(0.97)) return;  // now and then it goes on, or away, all the same
  if (!request.matched && !request.path.empty()) return match(scene, request);
  if (request.to_load) return load_ticket(scene, *std::exchange(request.to_load, std::nullopt));
  if (!request.to_store.empty()) return hand_over(scene, request);
  if (request.next_page < request.path.size()) {
    compute_chunk(scene, request);
    if (!request.to_store.empty()) hand_over(scene, request);
    return;
  }
  end_request(scene, index);
}

void abort_request(Scene& scene) {
  if (scene.requests.empty()) return;
  const RequestId id = scene.requests[scene.prng.below(scene.requests.size())].id;
  const bool stores = std::any_of(scene.operations.begin(), scene.operations.end(), [&](const auto& each) {
    return each.second.request == id && each.second.kind != SimOperation::Kind::kLoad && !each.second.ended();
  });
  if (stores) scene.coverage.hit("request_aborted_with_stores");
  scene.view.note = fmt::format("request {}", id.value());
  scene.node->request_abort(id);
  if (scene.prng.chance(0.2)) scene.node->request_abort(id);  // idempotent
  forget_request(scene, id, true);
}

namespace {

// What may come for a page that nobody but the disk has: of a few the one that leaves it first, since to ask
// the log takes time.
std::vector<std::pair<std::size_t, ClassId>> lacking_below(Scene& scene) {
  std::vector<std::pair<std::size_t, ClassId>> lacking;
  std::uint64_t oldest = UINT64_MAX;
  for (std::size_t tries = 8; tries != 0 && !scene.prompts.empty(); --tries) {
    const std::size_t prompt = scene.prng.below(scene.prompts.size());
    const Space& space = scene.spaces[scene.prompts[prompt].ns];
    const PageId page{space.id, scene.prompts[prompt].key};
    if (space.dead || scene.book.presence(page) != 0) continue;
    const auto& classes = scene.form_of(space).classes;
    const auto born = born_in_log(scene, page, classes.front().id);
    if (!born || *born >= oldest) continue;
    const Presence there = in_log(scene, page);
    std::vector<std::pair<std::size_t, ClassId>> of_page;
    for (const ClassForm& cls : classes)
      if ((there >> cls.id.value() & 1) == 0) of_page.emplace_back(prompt, cls.id);
    if (of_page.empty()) continue;
    oldest = *born;
    lacking = std::move(of_page);
  }
  return lacking;
}

}  // namespace

// A request of its own that brings a snapshot, window or draft of a page that has been there for long, in
// memory or on the disk alone.
void attach_later(Scene& scene) {
  std::vector<std::pair<std::size_t, ClassId>> lacking;
  if (scene.disk != nullptr && scene.prng.chance(0.5)) lacking = lacking_below(scene);
  const bool below = !lacking.empty();
  for (std::size_t i = 0; i < scene.prompts.size() && !below; ++i) {
    const Space& space = scene.spaces[scene.prompts[i].ns];
    const Presence presence = scene.book.presence({space.id, scene.prompts[i].key});
    if (presence == 0 || space.dead) continue;
    for (const ClassForm& cls : scene.form_of(space).classes)
      if ((presence >> cls.id.value() & 1) == 0) lacking.emplace_back(i, cls.id);
  }
  if (lacking.empty()) return;
  const auto [prompt, cls] = lacking[scene.prng.below(lacking.size())];
  const std::size_t space = scene.prompts[prompt].ns;
  std::vector<std::size_t> clients;
  for (std::size_t i = 0; i < scene.clients.size(); ++i)
    if (scene.clients[i].salt == scene.spaces[space].salt) clients.push_back(i);
  SimRequest request = new_request(scene, clients[scene.prng.below(clients.size())], space);
  const ClassForm& form = scene.form_of(scene.spaces[space]).classes[cls.value()];
  for (std::uint16_t shard = 0; shard < form.shards; ++shard)
    request.to_store.push_back(make_item(scene, prompt, cls, ShardId(shard)));
  request.matched = true;
  scene.coverage.hit("attach_sparse_late");
  hand_over(scene, request);
  if (!request.to_store.empty() || scene.prng.chance(0.5)) scene.requests.push_back(std::move(request));
}

// The engine stops storing this prompt: what is left of it will be missed for that reason.
void give_up_storing(Scene& scene) {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < scene.requests.size(); ++i)
    if (!scene.requests[i].to_store.empty()) open.push_back(i);
  if (open.empty()) return;
  SimRequest& request = scene.requests[open[scene.prng.below(open.size())]];
  const NamespaceId ns = scene.spaces[request.space].id;
  std::vector<Key> keys;
  for (const StoreItem& item : request.to_store)
    if (std::find(keys.begin(), keys.end(), item.key) == keys.end()) keys.push_back(item.key);
  request.to_store.clear();
  const StoreOutcome reasons[] = {StoreOutcome::kNoRoom, StoreOutcome::kTooLarge, StoreOutcome::kQuota};
  const StoreOutcome why = reasons[scene.prng.below(3)];
  scene.node->not_stored(ns, keys, why);
  for (const Key& key : keys) scene.book.refused({ns, key}, why, nothing_there(scene, {ns, key}));
  scene.coverage.hit("gave_up_storing");
}

void offer_pages(Scene& scene) {
  if (scene.requests.empty()) return;
  const SimRequest& request = scene.requests[scene.prng.below(scene.requests.size())];
  if (request.path.empty()) return;
  const Space& space = scene.spaces[request.space];
  std::vector<Key> keys;
  keys.reserve(request.path.size());
  for (const std::size_t prompt : request.path) keys.push_back(scene.prompts[prompt].key);
  OfferRequest offer;
  offer.session = scene.clients[request.client].id;
  offer.ns = space.id;
  offer.request = request.id;
  offer.keys = keys;
  offer.event = static_cast<OfferEvent>(scene.prng.below(3));
  const std::vector<std::uint64_t> points{keys.size()};
  offer.points = points;
  const std::vector<Presence> wanted = scene.node->offer(offer);
  TIERCEL_CHECK(wanted.size() == keys.size());
  const WritePolicy policy = scene.scenario.options.write_policy;
  if (policy == WritePolicy::kWriteThroughSelective && offer.event == OfferEvent::kComputed)
    scene.coverage.hit("write_selective_offer");
  if (policy == WritePolicy::kWriteBack && offer.event == OfferEvent::kLeaving)
    scene.coverage.hit("write_back_offer");
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (wanted[i] == 0) scene.book.not_wanted({space.id, keys[i]});
}

void ask_advice(Scene& scene) {
  std::vector<TicketId> open;
  for (const auto& [id, ticket] : scene.tickets)
    if (!ticket.gone) open.push_back(id);
  if (open.empty()) return;
  const SimTicket& ticket = scene.tickets.at(open[scene.prng.below(open.size())]);
  AdviceQuery query;
  query.pages = scene.prng.below(ticket.first_page + ticket.keys.size() + 1);
  query.multiple_of = scene.prng.between(1, 3);
  if (scene.prng.chance(0.3)) query.at_most = scene.prng.below(4);
  if (scene.prng.chance(0.5)) query.from = scene.prng.below(query.pages + 1);
  scene.view.advice_query = query;
  scene.view.advice_ticket = ticket.id;
  scene.view.advice = scene.node->snapshot_advice(ticket.id, query);
  scene.view.advice_again = scene.node->snapshot_advice(ticket.id, query);
  scene.coverage.hit("advice_given", scene.view.advice.size());
}

void release_ticket(Scene& scene) {
  std::vector<TicketId> open;
  for (const auto& [id, ticket] : scene.tickets)
    if (!ticket.gone) open.push_back(id);
  if (open.empty()) return;
  const TicketId id = open[scene.prng.below(open.size())];
  scene.view.note = fmt::format("ticket {}", id.value());
  scene.node->release(id);
  scene.tickets.at(id).gone = true;
}

}  // namespace tiercel::sim
