// Lookup: which prefix lengths can be restored, leases on what the longest needs, and one reason for every
// page that is missed.

#include <algorithm>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

Request* Node::State::request_of(RequestId request, SessionId session) {
  if (request == RequestId{}) return nullptr;
  auto [at, fresh] = requests.try_emplace(request);
  if (fresh) {
    at->second.id = request;
    at->second.session = session;
    at->second.sequence = ++last_sequence;
  }
  return &at->second;
}

Access Node::State::access_of(RequestId request, SessionId session) {
  const Request* known = request_of(request, session);
  return Access{known != nullptr ? known->sequence : ++last_sequence, now()};
}

// A session sees only its own tenant's namespaces; a request belongs to the session that began it.
Status Node::State::check_session(std::string_view call, SessionId session, NamespaceId ns,
                                  RequestId request) const {
  const auto bad = [&](std::string why) {
    return Status{Code::kInvalidArgument, fmt::format("{}: {}", call, why)};
  };
  const auto opened = sessions.find(session);
  if (opened == sessions.end()) return bad(fmt::format("session {} is not open", session.value()));
  if (!knows(ns)) return bad(fmt::format("namespace {} is not open", ns.value()));
  if (namespaces.at(ns)->identity.tenant_salt != opened->second.options.tenant_salt)
    return bad(fmt::format("namespace {} is another tenant's; open it from session {}", ns.value(),
                           session.value()));
  const auto known = requests.find(request);
  if (known != requests.end() && known->second.session != session)
    return bad(fmt::format("request {} is under way in session {}; use another number", request.value(),
                           known->second.session.value()));
  if (known == requests.end() && request != RequestId{} && requests.size() >= options.requests_max)
    return Status{
        Code::kResourceExhausted,
        fmt::format("{}: {} requests are under way; end some (requests_max)", call, requests.size())};
  if (completions.size() >= options.completions_max)
    return Status{
        Code::kResourceExhausted,
        fmt::format("{}: {} completions wait; drain them (completions_max)", call, completions.size())};
  return {};
}

Status Node::State::check_match(std::string_view call, const MatchQuery& query) const {
  const auto bad = [&](std::string why) {
    return Status{Code::kInvalidArgument, fmt::format("{}: {}", call, why)};
  };
  if (Status status = check_session(call, query.session, query.ns, query.request); !status.ok())
    return status;
  const Namespace& ns = *namespaces.at(query.ns);
  const std::size_t classes = ns.form->form->classes.size();
  if (!query.held.empty() && query.held.size() != classes)
    return bad(fmt::format("held has {} entries, the model has {} classes; give one per class or none",
                           query.held.size(), classes));
  const std::uint64_t page_tokens = ns.form->form->spec.page_tokens;
  if (query.first_page > kChainPagesMax || query.keys.size() > kChainPagesMax - query.first_page ||
      !checked_mul(kChainPagesMax, page_tokens))
    return bad(fmt::format("first_page {} and {} keys reach beyond {} pages", query.first_page,
                           query.keys.size(), kChainPagesMax));
  for (const std::uint64_t held : query.held)
    if (held > kChainPagesMax) return bad(fmt::format("held has {} pages, at most {}", held, kChainPagesMax));
  const std::uint64_t end_tokens = (query.first_page + query.keys.size()) * page_tokens;
  const std::uint64_t partial_tokens = query.keys.empty() ? 0 : page_tokens - 1;
  if (query.prompt_tokens != 0 && query.prompt_tokens < end_tokens - std::min(end_tokens, partial_tokens))
    return bad(
        fmt::format("prompt_tokens is {}, but the keys cover {} tokens", query.prompt_tokens, end_tokens));
  if (tickets.size() >= options.tickets_max)
    return Status{Code::kResourceExhausted,
                  fmt::format("{}: {} tickets are open; release some (tickets_max)", call, tickets.size())};
  return {};
}

Ticket& Node::State::new_ticket(const MatchQuery& query) {
  request_of(query.request, query.session);
  const TicketId id(next_id());
  Ticket& ticket = tickets[id];
  ticket.id = id;
  ticket.session = query.session;
  ticket.ns = query.ns;
  ticket.request = query.request;
  ticket.keys.assign(query.keys.begin(), query.keys.end());
  ticket.held.assign(query.held.begin(), query.held.end());
  ticket.held.resize(space_of(query.ns).form->form->classes.size());
  ticket.view.first_page = query.first_page;
  ticket.expires = later(now(), options.ticket_ttl);
  ticket_deadlines.emplace(ticket.expires, id);
  return ticket;
}

Result<TicketId> Node::match(const MatchQuery& query) {
  State& s = *state_;
  if (Status status = s.check_match("match", query); !status.ok()) return tl::unexpected(std::move(status));
  s.end_prefetches_of(query.request);
  Ticket& ticket = s.new_ticket(query);
  const TicketId id = ticket.id;
  Promotion promotion;
  if (!query.may_promote || !s.begin_promotion(ticket, query, promotion)) {
    s.finish_match(ticket, query);
    return id;
  }
  ++(promotion.asking ? s.stats.remote_matches : s.stats.disk_matches);
  s.promotions.emplace(id, std::move(promotion));
  s.settle_promotions();
  if (const auto at = s.promotions.find(id); at != s.promotions.end()) at->second.told = true;
  return id;
}

// Answers, and counts the answer.
void Node::State::finish_match(Ticket& ticket, const MatchQuery& query) {
  answer(ticket, query, request_of(query.request, query.session));
  remember_probe(query);
  if (options.write_policy == WritePolicy::kWriteThroughSelective) remember_sightings(query);
  ++stats.matches;
  stats.hit_tokens += ticket.view.hit_tokens;
  stats.disk_hit_tokens +=
      std::min(ticket.view.hit_tokens, (ticket.brought_pages - ticket.remote_pages) *
                                           space_of(ticket.ns).form->form->spec.page_tokens);
  stats.remote_hit_tokens += std::min(ticket.view.hit_tokens,
                                      ticket.remote_pages * space_of(ticket.ns).form->form->spec.page_tokens);
  stats.missed_tokens += ticket.view.missed_tokens;
  for (const Miss& miss : ticket.view.missed) {
    stats.missed_pages[static_cast<std::size_t>(miss.reason)] += miss.pages;
    if (miss.pages == 0) stats.tail_tokens += miss.tokens;
  }
}

// What of a page may be offered to this request. A page whose load failed for it is not offered to it again.
Presence Node::State::visible_presence(const MatchQuery& query, const Request* request, const Key& key,
                                       const Page* page) const {
  if (page == nullptr || !page->visible || options.off) return 0;
  if (request != nullptr && !request->failed.empty() && request->failed.contains(PageName{query.ns, key}))
    return 0;
  return page->presence;
}

// Too little beyond what the engine holds is not worth a load, and a session's bound may not allow the
// longest: such lengths are not offered, and the pages that they would have brought are missed for that
// reason.
Reason Node::State::lease_offered(Ticket& ticket, const MatchQuery& query, std::span<Page* const> found,
                                  ResumeAnswer& rule) {
  const StorageForm& model = *space_of(query.ns).form->form;
  const std::uint64_t page_tokens = model.spec.page_tokens;
  Reason forced = Reason::kLimit;
  if (page_tokens < options.load_back_threshold_tokens && rule.longest != 0) {
    const std::vector<Presence> nothing(found.size());
    const ResumeQuery by_engine{nothing, query.first_page, ticket.held, query.limit_tokens};
    const std::uint64_t held = restorable(model, by_engine).longest;
    if (rule.longest > held && (rule.longest - held) * page_tokens < options.load_back_threshold_tokens) {
      forced = Reason::kBelowThreshold;
      while (rule.lengths.back() > held) rule.lengths.pop_back();
    }
  }
  for (std::uint64_t fits = 0; (fits = lease_for(ticket, found, rule.lengths.back())) < rule.lengths.back();)
    while (rule.lengths.back() > fits) rule.lengths.pop_back();  // length 0 leases nothing
  return forced;
}

void Node::State::answer(Ticket& ticket, const MatchQuery& query, const Request* request) {
  const Form& form = *space_of(query.ns).form;
  const StorageForm& model = *form.form;
  std::vector<Page*> found(query.keys.size());
  std::vector<Presence> presence(query.keys.size());
  TicketView& view = ticket.view;
  view.resident.assign(model.classes.size(), 0);
  const Access access = access_of(query.request, query.session);
  pages.find_chain(current_space(space_of(query.ns)), query.first_page, query.keys, found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    presence[i] = visible_presence(query, request, query.keys[i], found[i]);
    for (std::size_t c = 0; c < model.classes.size(); ++c) view.resident[c] += presence[i] >> c & 1;
  }
  std::vector<Presence> lower = lower_presence(query.ns, query.first_page, query.keys, request);
  view.on_disk.assign(model.classes.size(), 0);
  for (const Presence bits : lower)
    for (std::size_t c = 0; c < model.classes.size(); ++c) view.on_disk[c] += bits >> c & 1;
  lower = below_presence(query.ns, std::move(lower), query.keys, request);
  view.promoted_pages = ticket.brought_pages;
  view.remote_pages = ticket.remote_pages;
  std::vector<Presence> judged = presence;
  if (TIERCEL_FAULT(resume_ignores_window))
    for (Presence& bits : judged) bits |= form.windows;
  ResumeQuery resume{judged, query.first_page, ticket.held, query.limit_tokens};
  if (TIERCEL_FAULT(ignore_limit)) resume.limit_tokens = UINT64_MAX;
  ResumeAnswer rule = restorable(model, resume);
  view.known_pages = rule.gap;

  const std::uint64_t page_tokens = model.spec.page_tokens;
  const std::uint64_t possible = rule.longest;
  const Reason forced = lease_offered(ticket, query, found, rule);
  view.lengths = std::move(rule.lengths);
  view.length = view.lengths.back();
  AnswerSoFar so_far{query, request, found, presence, lower};
  so_far.gap = rule.gap;
  if (!lower.empty()) {
    so_far.everywhere = presence;
    for (std::size_t i = 0; i < lower.size(); ++i) so_far.everywhere[i] |= lower[i];
    const ResumeAnswer all =
        restorable(model, ResumeQuery{so_far.everywhere, query.first_page, ticket.held, resume.limit_tokens});
    so_far.reach = all.longest;
    rule.gap = all.gap;
  }
  foresee(ticket, query, access.sequence, rule.gap);
  use_found(ticket, query, access, found, presence);
  if (query.touch)
    for (std::uint64_t page = query.first_page; page < view.length; ++page)
      if (Page* at = found[page - query.first_page]; at != nullptr) used_again(*at, query.request);

  so_far.possible = possible;
  so_far.forced = forced;
  std::vector<PageView> views = missed_views(ticket, so_far);
  // Pages that are there lack a snapshot or a window: whether the store has it, it has not said.
  for (std::uint64_t page = std::max(view.length, query.first_page); ticket.unanswered && page < rule.gap;
       ++page)
    if (PageView& at = views[page - query.first_page]; (at.resident || at.held) && !at.forced)
      at.forced = ticket.unanswered;
  const std::uint64_t end = query.first_page + found.size();
  const std::uint64_t end_tokens = end * page_tokens;
  const std::uint64_t tail = query.prompt_tokens > end_tokens ? query.prompt_tokens - end_tokens : 0;
  view.missed = judge(model, Judgement{views, query.first_page, view.length, rule.limit_pages, rule.gap, tail,
                                       query.limit_tokens <= end_tokens});
  if (TIERCEL_FAULT(drop_a_reason) && !view.missed.empty()) view.missed.pop_back();
  if (TIERCEL_FAULT(reason_counts_twice) && view.missed.size() > 1)
    view.missed.push_back(view.missed.front());
  if (view.length > query.first_page) view.hit_tokens = (view.length - query.first_page) * page_tokens;
  for (const Miss& miss : view.missed) view.missed_tokens += miss.tokens;
}

// Required classes of which the engine holds this page.
Presence Node::State::held_required(const Ticket& ticket, std::uint64_t page) const {
  Presence held = 0;
  for (const ClassForm& cls : namespaces.at(ticket.ns)->form->form->classes)
    if (cls.required() && page < ticket.held[cls.id.value()]) held |= Presence{1} << cls.id.value();
  return held;
}

std::vector<PageView> Node::State::missed_views(const Ticket& ticket, const AnswerSoFar& so_far) const {
  const MatchQuery& query = so_far.query;
  const Form& form = *namespaces.at(query.ns)->form;
  std::vector<PageView> views(so_far.found.size());
  const std::uint64_t end = query.first_page + so_far.found.size();
  for (std::uint64_t page = std::max(ticket.view.length, query.first_page); page < end; ++page) {
    const std::size_t i = page - query.first_page;
    PageView& at = views[i];
    // Of a page that left the disk in part the rest may be the engine's.
    const Presence lower = so_far.lower.empty() ? 0 : so_far.lower[i];
    at = page_view(query.ns, query.keys[i], so_far.found[i], so_far.request,
                   lower == 0 ? lower : lower | held_required(ticket, page));
    at.presence = so_far.presence[i];
    for (const ClassForm& cls : form.form->classes)
      if (cls.is_state() && ticket.held[cls.id.value()] == page + 1)
        at.presence |= Presence{1} << cls.id.value();
    at.held = form.required != 0;
    for (const ClassForm& cls : form.form->classes)
      if (cls.required()) at.held = at.held && page < ticket.held[cls.id.value()];
    if (page < so_far.possible)
      at.forced = so_far.forced;
    else if (!so_far.lower.empty())
      look_below(at, page, ticket, so_far);
    if (!at.resident) explain_elsewhere(query, page, at);
    // Nobody knows whether the remote tier has it.
    const bool unknown =
        at.own == Reason::kNeverStored || at.own == Reason::kEvicted || at.own == Reason::kUnknownPast;
    if (!at.resident && ticket.unanswered && unknown) at.own = *ticket.unanswered;
  }
  return views;
}

// With a disk: what no length of all tiers together reaches lacks something everywhere, and is judged by all
// of them; the rest could have come, and is missed for what kept it below.
void Node::State::look_below(PageView& at, std::uint64_t page, const Ticket& ticket,
                             const AnswerSoFar& so_far) const {
  const Presence required = namespaces.at(so_far.query.ns)->form->required;
  const std::size_t i = page - so_far.query.first_page;
  if (page >= so_far.reach) {
    const Presence bits = so_far.everywhere[i];
    at.presence |= bits;
    const Presence lacking = required & ~bits & ~held_required(ticket, page);
    at.resident = at.resident || (bits != 0 && lacking == 0);
    return;
  }
  Reason kept = lower_down() ? Reason::kTierDown : Reason::kTooLate;
  if (const auto why = ticket.not_brought.find(page); why != ticket.not_brought.end())
    kept = why->second;
  else if (!ticket.not_brought.empty())
    kept = ticket.not_brought.begin()->second;
  if (at.own == Reason::kTooLate || at.own == Reason::kTierDown) at.own = kept;
  if (at.resident || at.held) at.forced = so_far.gap < page ? Reason::kAfterGap : kept;
}

// Residence and, where the page is not resident, its own reason.
PageView Node::State::page_view(NamespaceId ns, const Key& key, const Page* page, const Request* request,
                                Presence lower) const {
  PageView view;
  if (options.off) {
    view.own = Reason::kTierDown;
    return view;
  }
  if (request != nullptr) {
    if (const auto failed = request->failed.find(PageName{ns, key}); failed != request->failed.end()) {
      view.own = failed->second;
      return view;
    }
  }
  if (page != nullptr && page->visible) {
    view.presence = page->presence;
    const Presence required = page->form->required;
    view.resident = required != 0 ? (page->presence & required) == required : page->presence != 0;
    if (view.resident) return view;
  }
  // The disk has what is needed of it: what may come after its page does not change that.
  const Presence required = namespaces.at(ns)->form->required;
  const bool below = lower != 0 && (lower & required) == required;
  const Presence later = below && required != 0 ? ~required : 0;
  const auto is_under_way = [&](const Residence* set) {
    return set != nullptr && !set->page_below && (later >> set->cls.value() & 1) == 0;
  };
  if (page != nullptr && std::any_of(page->sets.begin(), page->sets.end(), is_under_way)) {
    const bool comes_up = std::all_of(page->sets.begin(), page->sets.end(), [&](const Residence* set) {
      return !is_under_way(set) || set->from_disk || set->state == ResidenceState::kResident;
    });
    view.own = comes_up ? Reason::kTooLate : Reason::kInFlight;
    return view;
  }
  if (below) {  // and it was not brought up
    view.own = lower_down() ? Reason::kTierDown : Reason::kTooLate;
    return view;
  }
  if (page == nullptr) {
    // Cleared, and not yet swept.
    if (const Page* stale = find_any(ns, key); stale != nullptr && stale->visible) {
      view.own = Reason::kRemoved;
      view.past.cause = Cause::kRemoved;
      return view;
    }
  }
  view.past = history.why(ns, key);
  view.own = reason_from(view.past.cause);
  return view;
}

// The same content under another form or identity of the same tenant.
void Node::State::explain_elsewhere(const MatchQuery& query, std::uint64_t page, PageView& view) const {
  if (view.own != Reason::kNeverStored) return;
  const Namespace& own = *namespaces.at(query.ns);
  const Key& key = query.keys[page - query.first_page];
  for (auto at = namespace_by_content.lower_bound({own.root, FormId{}});
       at != namespace_by_content.end() && at->first.first == own.root; ++at) {
    if (at->second == query.ns) continue;
    const Page* other = find(at->second, key);
    if (other == nullptr || !other->visible) continue;
    view.own = Reason::kOtherForm;
    view.field = first_difference(*own.form->form, *namespaces.at(at->second)->form->form).value_or("form");
    return;
  }
  if (!query.probe || page != 0) return;
  const auto known = probes.find({own.identity.tenant_salt, *query.probe});
  if (known == probes.end()) return;
  for (const ProbeEntry& entry : known->second) {
    if (entry.ns == query.ns) continue;
    const Page* other = find(entry.ns, entry.key);
    if (other == nullptr || !other->visible) continue;
    view.own = Reason::kOtherIdentity;
    view.field = first_difference(own.identity, namespaces.at(entry.ns)->identity).value_or("identity");
    return;
  }
}

void Node::State::remember_probe(const MatchQuery& query) {
  constexpr std::size_t kProbesMax = 65536;
  constexpr std::size_t kNamespacesMax = 16;
  if (!query.probe || query.first_page != 0 || query.keys.empty()) return;
  const std::pair<std::string, Probe> name{space_of(query.ns).identity.tenant_salt, *query.probe};
  auto [at, fresh] = probes.try_emplace(name);
  if (fresh) probe_order.push_back(name);
  for (const ProbeEntry& entry : at->second)
    if (entry.ns == query.ns) return;
  if (at->second.size() < kNamespacesMax) at->second.push_back({query.ns, query.keys[0]});
  if (probe_order.size() > kProbesMax) {
    probes.erase(probe_order.front());
    probe_order.pop_front();
  }
}

void Node::State::remember_sightings(const MatchQuery& query) {
  for (const Key& key : query.keys) {
    const PageName name{query.ns, key};
    auto [at, fresh] = sightings.try_emplace(name);
    if (fresh) sighting_order.push_back(name);
    if (fresh || at->second.last != query.request || query.request == RequestId{}) {
      at->second.last = query.request;
      ++at->second.requests;
    }
  }
  while (sighting_order.size() > options.history_entries) {
    sightings.erase(sighting_order.front());
    sighting_order.pop_front();
  }
}

void Node::State::touch_page(Page& page, const Access& access) {
  page.last_sequence = access.sequence;
  pages.index().touch(page.number, access.sequence);
  policy->touched(candidate(page, CandidateKind::kPage), access);
  if (policy->pages_only()) return;
  if (page.point) policy->touched(candidate(page, CandidateKind::kPoint), access);
  if (options.retention != SparseRetention::kAll) return;
  for (const ClassForm& cls : page.form->form->classes)
    if (cls.is_window() && (page.presence >> cls.id.value() & 1) != 0)
      policy->touched(candidate(page, CandidateKind::kWindow, cls.id), access);
}

// A reader's own word, and perhaps an old one: what it names is used if it is there. Of all that came, so
// many pages at most.
std::size_t Node::State::use_touches() {
  if (!readers_there()) return 0;
  std::size_t used = 0;
  std::uint32_t pages_left = 16384;
  world.readers->drain_touches([&](ClientPlace, const Touch& touch) {
    Page* page = pages.find_number(touch.page);
    const Access access = access_of(RequestId{}, SessionId{});
    for (std::uint32_t left = touch.length; left != 0 && pages_left != 0 && page != nullptr;
         --left, page = page->parent) {
      --pages_left;
      if (page->visible) touch_page(*page, access);
    }
    ++used;
  });
  return used;
}

// ---- leases ----

void Node::State::add_lease(Ticket& ticket, Residence& set, std::uint64_t page) {
  ++set.leases;
  const auto place = std::upper_bound(
      ticket.leases.begin(), ticket.leases.end(), std::pair(page, set.cls),
      [](const auto& wanted, const Lease& lease) { return wanted < std::pair(lease.page, lease.cls); });
  ticket.leases.insert(place, {set.id, page, set.cls, set.generation});
  ticket.leased_bytes += set.payload_bytes;
  stats.leased_bytes += set.payload_bytes;
  sessions.at(ticket.session).leased_bytes += set.payload_bytes;
}

const Lease* Node::State::lease_of(const Ticket& ticket, std::uint64_t page, ClassId cls) const {
  const auto at = std::lower_bound(
      ticket.leases.begin(), ticket.leases.end(), std::pair(page, cls),
      [](const Lease& lease, const auto& wanted) { return std::pair(lease.page, lease.cls) < wanted; });
  return at != ticket.leases.end() && at->page == page && at->cls == cls ? &*at : nullptr;
}

bool Node::State::within_bound(SessionId id, std::uint64_t bytes) const {
  const Session& session = sessions.at(id);
  const std::uint64_t charged = session.leased_bytes + session.reserved_bytes;
  return bytes == 0 || (charged <= session.bytes_max && bytes <= session.bytes_max - charged);
}

// Returns `length`; or, with nothing leased, a shorter length beyond which none can fit either.
std::uint64_t Node::State::lease_for(Ticket& ticket, std::span<Page* const> found, std::uint64_t length) {
  const StorageForm& model = *space_of(ticket.ns).form->form;
  std::vector<std::pair<Residence*, std::uint64_t>> wanted;
  std::uint64_t bytes = 0, required_bytes = 0;
  for (std::uint64_t page = ticket.view.first_page; page < length; ++page) {
    const Page* at = found[page - ticket.view.first_page];
    if (at == nullptr) continue;
    for (const ClassForm& cls : model.classes) {
      const std::uint64_t held = ticket.held[cls.id.value()];
      if (cls.is_state() ? length == held : page < held) continue;
      if (!needs(cls, length, page) && !cls.optional()) continue;
      Residence* set = at->sets[cls.id.value()];
      if (set == nullptr || set->state != ResidenceState::kResident) continue;
      wanted.emplace_back(set, page);
      bytes += set->payload_bytes;
      if (cls.required()) required_bytes += set->payload_bytes;
    }
    // What every longer prefix needs too is already too much.
    if (!within_bound(ticket.session, required_bytes)) return page;
  }
  if (!within_bound(ticket.session, bytes)) return length - 1;
  for (const auto& [set, page] : wanted) add_lease(ticket, *set, page);
  return length;
}

void Node::State::end_leases(Ticket& ticket) {
  const std::vector<Lease> leases = std::move(ticket.leases);
  ticket.leases.clear();
  stats.leased_bytes -= ticket.leased_bytes;
  if (const auto at = sessions.find(ticket.session); at != sessions.end())
    at->second.leased_bytes -= ticket.leased_bytes;
  ticket.leased_bytes = 0;
  for (const Lease& lease : leases) {
    Residence* set = residence(lease.residence);
    if (set == nullptr) continue;
    --set->leases;
    if (set->page != nullptr)
      drop_if_unneeded(*set);
    else
      free_if_unused(*set);
  }
}

// Ends the ticket; while loads of it run, when the last has ended.
void Node::State::drop_ticket(TicketId id) {
  if (promotions.contains(id))
    give_up_promotion(id, Status{Code::kCancelled, "its ticket was released"}, false);
  const auto at = tickets.find(id);
  if (at == tickets.end()) return;
  if (at->second.loads != 0) {
    at->second.released = true;
    return;
  }
  end_leases(at->second);
  tickets.erase(at);
}

const TicketView* Node::ticket(TicketId ticket) const {
  const auto at = state_->tickets.find(ticket);
  return at != state_->tickets.end() && !at->second.released ? &at->second.view : nullptr;
}

void Node::release(TicketId ticket) { state_->drop_ticket(ticket); }

bool Node::exists(NamespaceId ns, ClassId cls, const Key& key) const {
  if (!state_->knows(ns)) return false;
  const Page* page = state_->find(ns, key);
  if (page != nullptr && page->visible && cls.value() < page->sets.size() &&
      (page->presence >> cls.value() & 1) != 0)
    return true;
  return cls.value() < 8 * sizeof(Presence) && ((state_->lower_presence(ns, key) >> cls.value() & 1) != 0 ||
                                                state_->remote_has(state_->space_of(ns), key, cls));
}

ReaderSpace Node::reader_space(NamespaceId id) const {
  Namespace& ns = state_->space_of(id);
  ReaderSpace out;
  out.space = state_->current_space(ns);
  const auto mark = [&](std::uint32_t of) { return ReaderMark{of, state_->pages.index().mark(of)}; };
  out.namespace_mark = mark(id.value());
  out.form_mark = mark(ns.form->id.value());
  for (const ClassForm& cls : ns.form->form->classes)
    out.first_sets.push_back(state_->set_number(*ns.form, cls.id, 0));
  return out;
}

PageView Node::why(NamespaceId ns, const Key& key) const {
  if (!state_->knows(ns)) return {};
  return state_->page_view(ns, key, state_->find(ns, key), nullptr, state_->lower_presence(ns, key));
}

}  // namespace tiercel
