// What the past says about requests, and what follows from it: advice where snapshots are worth taking, and
// what the eviction policy may expect of pages and points.

#include <algorithm>

#include "base/prng.h"
#include "node/state.h"

namespace tiercel {

namespace {

std::uint64_t page_hash(NamespaceId ns, const Key& key) { return mix64(key.words[0] + ns.value()) | 1; }

}  // namespace

void Node::State::forget_request(RequestId request) {
  const auto at = requests.find(request);
  if (at == requests.end()) return;
  forecasts.erase(at->second.sequence);
  requests.erase(at);
}

// Whether pages of this form are worth something only where a resume point needs them.
bool Node::State::by_points(const Form& form) const {
  return options.retention == SparseRetention::kAtPoints && (form.states | form.windows) != 0;
}

// Once per request, and only from what came before it.
// `there`: pages of the chain that any tier has, up to the first gap.
void Node::State::foresee(Ticket& ticket, const MatchQuery& query, std::uint64_t sequence,
                          std::uint64_t there) {
  const Form& form = *space_of(query.ns).form;
  const bool asked_for = (form.states | form.windows) != 0 || options.policy == PolicyKind::kValue;
  if (!asked_for || !query.touch || options.off) return;
  if (const auto seen = forecasts.find(sequence); seen != forecasts.end()) {
    ticket.forecast = seen->second.forecast;
    return;
  }
  std::uint64_t whole = query.keys.size();
  const std::uint64_t page_tokens = form.form->spec.page_tokens;
  if (query.prompt_tokens != 0 && query.prompt_tokens < (query.first_page + whole) * page_tokens) --whole;
  std::vector<std::uint64_t> hashes;
  hashes.reserve(whole);
  for (const Key& key : query.keys.first(whole)) hashes.push_back(page_hash(query.ns, key));
  SeenRequest request;
  request.pages = hashes;
  request.first_page = query.first_page;
  request.restorable = std::min(ticket.view.length, query.first_page + whole);
  // Without a required class nothing says where what is there ends.
  if (form.required != 0) request.resident = there;
  request.by_points = by_points(form);
  request.page_tokens = page_tokens;
  if (query.prompt_tokens != 0)
    request.tail_tokens = query.prompt_tokens - (query.first_page + whole) * page_tokens;
  ticket.forecast = std::make_shared<const Forecast>(reuse.learn(request));
  if (query.request != RequestId{}) forecasts[sequence].forecast = ticket.forecast;
}

void Node::State::use_found(const Ticket& ticket, const MatchQuery& query, const Access& access,
                            std::span<Page* const> found, std::span<const Presence> presence) {
  if (!query.touch) return;
  const bool expects = options.policy == PolicyKind::kValue && ticket.forecast != nullptr;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (presence[i] == 0) continue;
    touch_page(*found[i], access);
    if (expects && !by_points(*found[i]->form))
      policy->expect(candidate(*found[i], CandidateKind::kPage),
                     ticket.forecast->page(query.first_page + i + 1));
  }
  if (!expects || ticket.view.length <= query.first_page) return;
  const std::size_t last = ticket.view.length - query.first_page - 1;
  if (found[last] == nullptr || !found[last]->point) return;
  const Prospect again = reuse.used(page_hash(query.ns, query.keys[last]));
  const auto seen = forecasts.find(access.sequence);
  if (seen == forecasts.end()) {
    policy->expect(candidate(*found[last], CandidateKind::kPoint), again);
    return;
  }
  RequestForecast& request = seen->second;
  if (request.resumed.uid != found[last]->uid) request.shortest_point = 0;
  request.resumed = {found[last]->number, found[last]->uid};
  request.resumed_length = ticket.view.length;
  request.resumed_again = again;
  expect_resumed(request, access.sequence);
}

// Until a request makes a point beyond the one that it resumed from, that one serves all that will stop in
// what it adds.
void Node::State::expect_resumed(const RequestForecast& request, std::uint64_t sequence) {
  const Page* at = pages.resolve(request.resumed);
  if (at == nullptr || !at->point || at->last_sequence != sequence) return;
  const Prospect beyond = request.forecast->beyond(request.resumed_length, request.shortest_point);
  const bool more = reuse.ages().rate(beyond, 0) > reuse.ages().rate(request.resumed_again, 0);
  policy->expect(candidate(*at, CandidateKind::kPoint), more ? beyond : request.resumed_again);
}

// A page that has just become visible, by the request that stored it.
void Node::State::expect_page(const Page& page) {
  const auto seen = forecasts.find(page.last_sequence);
  if (seen == forecasts.end() || options.policy != PolicyKind::kValue || by_points(*page.form)) return;
  policy->expect(candidate(page, CandidateKind::kPage), seen->second.forecast->page(page.length));
}

// A point serves what stops before the next longer one of its request.
void Node::State::expect_point(const Page& page) {
  const auto seen = forecasts.find(page.point_sequence);
  if (seen == forecasts.end() || options.policy != PolicyKind::kValue) return;
  RequestForecast& request = seen->second;
  const Forecast& forecast = *request.forecast;
  if (page.length > request.resumed_length &&
      (request.shortest_point == 0 || page.length < request.shortest_point)) {
    request.shortest_point = page.length;
    expect_resumed(request, page.point_sequence);
  }
  const Page* longest = pages.resolve(request.longest_point);
  if (longest != nullptr && (!longest->point || longest->point_sequence != page.point_sequence))
    longest = nullptr;
  const CandidateId id = candidate(page, CandidateKind::kPoint);
  if (longest != nullptr && longest->length > page.length) {
    policy->expect(id, forecast.point(page.length, longest->length));
    return;
  }
  policy->expect(id, forecast.point(page.length, 0));
  request.longest_point = {page.number, page.uid};
  if (longest != nullptr && longest->length < page.length)
    policy->expect(candidate(*longest, CandidateKind::kPoint), forecast.point(longest->length, page.length));
}

// What a point and a page of this form cost now, in pages of recompute.
AdvicePrice Node::State::price_now(const Form& form) const {
  // Room is given up only for what earns clearly more: forecasts of the new are less sure than of the old.
  constexpr double kSurety = 1.5;
  std::uint64_t point_bytes = 0;
  for (const ClassForm& cls : form.form->classes) {
    if (cls.is_state()) point_bytes += cls.set_bytes();
    if (cls.is_window()) point_bytes += cls.set_bytes() * cls.window_pages();
  }
  const double pages_per_byte =
      kSurety * policy->going_rate() / static_cast<double>(form.form->spec.page_tokens);
  return advice_price(pages_per_byte * static_cast<double>(point_bytes), reuse.rate_of_new(),
                      options.snapshot_budget, snapshots_advised, options.policy == PolicyKind::kValue);
}

// Terms are those of the first question, so that the same question has the same answer.
std::vector<std::uint64_t> Node::snapshot_advice(TicketId id, const AdviceQuery& query) {
  State& s = *state_;
  const auto at = s.tickets.find(id);
  if (at == s.tickets.end() || at->second.released || query.multiple_of == 0) return {};
  Ticket& ticket = at->second;
  if (ticket.forecast == nullptr) return {};
  if (!ticket.advice) {
    const std::uint64_t budget = s.options.snapshot_budget.value_or(UINT64_MAX);
    ticket.advice = AdviceTerms{
        s.price_now(*s.space_of(ticket.ns).form), budget - std::min(budget, s.snapshots_advised), {}};
  }
  AdviceLimits limits;
  limits.pages = query.pages;
  limits.multiple_of = query.multiple_of;
  limits.at_most = std::min(query.at_most, ticket.advice->left);
  limits.from = query.from;
  limits.restorable = ticket.view.length;
  std::vector<std::uint64_t> lengths = advised_lengths(*ticket.forecast, limits, ticket.advice->price);
  // Each length that was not named before takes of what all tickets together have left.
  std::erase_if(lengths, [&](std::uint64_t length) {
    if (ticket.advice->given.contains(length)) return false;
    if (s.options.snapshot_budget && s.snapshots_advised >= *s.options.snapshot_budget) return true;
    ticket.advice->given.insert(length);
    ++s.snapshots_advised;
    return false;
  });
  return lengths;
}

}  // namespace tiercel
