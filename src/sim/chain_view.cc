#include "sim/chain_view.h"

#include <algorithm>

#include "sim/delivery.h"

namespace tiercel::sim {

bool held(const ClassForm& cls, const SimTicket& ticket, std::uint64_t page) {
  if (ticket.held.empty()) return false;
  const std::uint64_t pages = ticket.held[cls.id.value()];
  return cls.is_state() ? page + 1 == pages : page < pages;
}

bool has(const ChainView& view, const ClassForm& cls, const SimTicket& ticket, std::uint64_t page) {
  if (held(cls, ticket, page)) return true;
  if (page < view.first_page || page >= view.end) return false;
  return (view.presence[page - view.first_page] >> cls.id.value() & 1) != 0;
}

bool can_resume(const StorageForm& form, const ChainView& view, const SimTicket& ticket,
                std::uint64_t length) {
  for (const ClassForm& cls : form.classes)
    for (std::uint64_t page = 0; page < length; ++page)
      if (needed_at(cls, form.spec.page_tokens, length, page) && !has(view, cls, ticket, page)) return false;
  return true;
}

void find_lengths(const StorageForm& form, const SimTicket& ticket, ChainView& view) {
  view.lengths.clear();
  for (std::uint64_t length = 0; length <= std::min(view.end, view.limit_pages); ++length) {
    if (!can_resume(form, view, ticket, length)) continue;
    // Below the query's first page only what the engine holds wholly is reported.
    if (length == 0 || length > view.first_page) {
      view.lengths.push_back(length);
    } else {
      ChainView nothing = view;
      std::fill(nothing.presence.begin(), nothing.presence.end(), Presence{0});
      if (can_resume(form, nothing, ticket, length)) view.lengths.push_back(length);
    }
  }
  view.gap = view.end;
  for (std::uint64_t page = 0; page < view.gap; ++page)
    for (const ClassForm& cls : form.classes)
      if (cls.required() && !has(view, cls, ticket, page)) view.gap = std::min(view.gap, page);
}

ChainView view_chain(const Scene& scene, const SimTicket& ticket) {
  const Space& space = scene.spaces[ticket.space];
  const StorageForm& form = scene.form_of(space);
  ChainView view;
  view.first_page = ticket.first_page;
  view.end = ticket.first_page + ticket.keys.size();
  view.limit_pages = ticket.query.limit_tokens / form.spec.page_tokens;
  const auto failed = scene.failed_loads.find(ticket.request);
  for (const Key& key : ticket.keys) {
    const PageId page{space.id, key};
    const bool gone = failed != scene.failed_loads.end() && failed->second.contains(page);
    view.failed.push_back(gone);
    view.presence.push_back(scene.scenario.options.off || gone ? 0 : scene.book.presence(page));
  }
  find_lengths(form, ticket, view);
  return view;
}

}  // namespace tiercel::sim
