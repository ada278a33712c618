// Prefetches: promotions ahead of the match that will need them, each with a policy of when it ends.

#include <algorithm>

#include "node/state.h"

namespace tiercel {

PrefetchResult Node::State::prefetch_result(const Ticket& ticket, const Promotion& promotion) {
  PrefetchResult result;
  result.status = promotion.ending.value_or(Status{});
  result.wanted_pages = promotion.wanted.size();
  result.brought_pages = promotion.brought.size();
  const StorageForm& model = *space_of(ticket.ns).form->form;
  std::vector<Presence> here;
  for (const Key& key : ticket.keys) {
    const Page* page = find(ticket.ns, key);
    here.push_back(page != nullptr && page->visible ? page->presence : 0);
  }
  result.length =
      restorable(model, ResumeQuery{here, ticket.view.first_page, ticket.held, UINT64_MAX}).longest;
  for (const auto& [page, why] : ticket.not_brought) {
    Miss miss;
    miss.reason = why;
    miss.first_page = page;
    miss.pages = 1;
    miss.tokens = model.spec.page_tokens;
    Miss* last = result.missed.empty() ? nullptr : &result.missed.back();
    if (last != nullptr && last->reason == why && last->first_page + last->pages == page) {
      ++last->pages;
      last->tokens += miss.tokens;
    } else {
      result.missed.push_back(std::move(miss));
    }
  }
  return result;
}

void Node::State::end_prefetches_of(RequestId request) {
  if (request == RequestId{}) return;
  std::vector<TicketId> over;
  for (const auto& [id, promotion] : promotions)
    if (promotion.prefetch && promotion.policy == PrefetchPolicy::kBestEffort &&
        tickets.at(id).request == request)
      over.push_back(id);
  for (const TicketId id : over) {
    Promotion& promotion = promotions.at(id);
    give_up_promotion(promotion.ticket,
                      Status{Code::kCancelled, "its request has asked: what has come counts"});
  }
}

Result<OperationId> Node::prefetch(const PrefetchRequest& request) {
  State& s = *state_;
  if (s.world.disk == nullptr && s.world.remote == nullptr)
    return error(Code::kUnsupported, "prefetch: the node has neither a disk nor a remote tier to fetch from");
  MatchQuery query;
  query.session = request.session;
  query.ns = request.ns;
  query.request = request.request;
  query.keys = request.keys;
  query.first_page = request.first_page;
  query.held = request.held;
  query.touch = false;
  query.deadline = request.deadline.value_or(s.options.operation_deadline);
  if (Status status = s.check_match("prefetch", query); !status.ok())
    return tl::unexpected(std::move(status));
  if (request.policy == PrefetchPolicy::kTimeout) {
    const std::uint64_t tokens = request.keys.size() * s.space_of(request.ns).form->form->spec.page_tokens;
    const Duration limit = s.options.disk.prefetch_base +
                           s.options.disk.prefetch_per_1024_tokens * static_cast<std::int64_t>(tokens) / 1024;
    query.deadline = std::min(*query.deadline, limit);
  }
  Ticket& ticket = s.new_ticket(query);
  const OperationId id(s.next_id());
  ++s.stats.prefetches;
  Promotion promotion;
  promotion.id = id;
  promotion.prefetch = true;
  promotion.policy = request.policy;
  const TicketId ticket_id = ticket.id;
  s.begin_promotion(ticket, query, promotion);
  promotion.ticket = ticket_id;
  s.promotions.emplace(ticket_id, std::move(promotion));
  s.settle_promotions();
  return id;
}

}  // namespace tiercel
