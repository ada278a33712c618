#include <algorithm>

#include "node/state.h"

namespace tiercel {

const Stats& Node::stats() const {
  State& s = *state_;
  s.stats.arena_bytes_owned = s.space.bytes_owned();
  s.stats.fragmentation_bytes = s.space.fragmentation_bytes();
  s.stats.index_bytes = s.pages.index().bytes();
  s.stats.history_bytes = s.history.nominal_bytes();
  s.stats.advice_bytes = s.reuse.nominal_bytes();
  return s.stats;
}

namespace {

AuditResidence laid_open(const Residence& set, const Space& space) {
  AuditResidence out;
  out.ns = set.ns;
  out.key = set.key;
  out.cls = set.cls;
  out.state = set.state;
  out.generation = set.generation;
  out.pool = set.pool;
  out.slots = set.slots;
  for (const SlotId slot : set.slots) out.spans.push_back(space.spans(set.pool, slot));
  out.payload_bytes = set.payload_bytes;
  out.leases = set.leases;
  out.copies = set.copies;
  out.session = set.session;
  out.page_visible = set.page != nullptr && set.page->visible;
  out.page_below = set.page_below;
  out.from_disk = set.from_disk;
  out.reading = set.reading;
  out.from_remote = set.from_remote;
  out.writing = set.disk == DiskState::kWriting;
  out.storing = set.remote == DiskState::kWriting;
  return out;
}

// No page is held between two calls; a rooted one has a rooted one above it, or is the first of its chain.
std::optional<std::string> chains_wrong(const PageTable& pages) {
  for (const Page* page = pages.oldest(); page != nullptr; page = page->newer) {
    if (page->held) return "a page is held, and nobody is at work";
    if (page->rooted && page->parent == nullptr && page->length > 1)
      return "a page in the middle of a chain is rooted, and has no parent";
    if (page->rooted && page->parent != nullptr && !page->parent->rooted)
      return "a rooted page has a parent that is not";
  }
  return std::nullopt;
}

// What is attached to a page below is whole, not required, and its page is not visible.
std::optional<std::string> attached_wrong(const AuditResidence& set, const Residence& of, bool listed) {
  if (of.page_below != listed)
    return "a class-set of a page below is not in their list, or the other way round";
  if (!of.page_below) return std::nullopt;
  if (of.page == nullptr || of.page->visible || set.state != ResidenceState::kStaged)
    return "a class-set of a page below is not staged, or its page is visible";
  if (of.page->form->form->classes[set.cls.value()].required())
    return "a required class-set waits for a page below";
  return std::nullopt;
}

}  // namespace

Audit Node::audit() const {
  const State& s = *state_;
  Audit audit;
  audit.stats = stats();
  std::vector<const Residence*> sorted;
  sorted.reserve(s.residences.size());
  for (const auto& [id, set] : s.residences) sorted.push_back(set.get());
  std::sort(sorted.begin(), sorted.end(),
            [](const Residence* a, const Residence* b) { return a->id < b->id; });
  for (const Residence* set : sorted) {
    const AuditResidence& out = audit.residences.emplace_back(laid_open(*set, s.space));
    if (!audit.inconsistency)
      audit.inconsistency = attached_wrong(out, *set, s.attached_below.contains(set->id));
  }
  for (const auto& [id, ticket] : s.tickets) {
    AuditTicket& out = audit.tickets.emplace_back();
    out.ticket = id;
    out.session = ticket.session;
    out.leased_bytes = ticket.leased_bytes;
    for (const Lease& lease : ticket.leases) out.leases.emplace_back(lease.cls, lease.generation);
  }
  std::map<OperationId, std::uint64_t> running;
  for (const auto& [name, copy] : s.running_copies) running[name.first] += copy.bytes;
  for (const auto& [id, load] : s.loads)
    audit.operations.push_back(
        {id, true, false, load.answered, load.outstanding, running[id], load.deadline});
  for (const auto& [id, store] : s.stores)
    audit.operations.push_back({id, false, false, store.answered, store.outstanding, running[id], Time{0}});
  // Each class-set that comes up is an operation of its own; its match or prefetch only waits.
  for (const Residence* set : sorted)
    if (const OperationId up(set->id); set->reading || running.contains(up))
      audit.operations.push_back(
          {up, false, true, set->page == nullptr, set->copies, running[up], set->deadline});
  audit.slots_in_use = s.space.slots_in_use();
  audit.extents_total = s.space.extents_total();
  audit.extents_free = s.space.extents_free();
  audit.extent_bytes = s.options.extent_bytes;
  for (const auto& [id, session] : s.sessions)
    audit.session_bytes += session.leased_bytes + session.reserved_bytes;
  audit.index_entries = s.pages.size();
  if (!audit.inconsistency) audit.inconsistency = s.space.inconsistency();
  if (!audit.inconsistency) audit.inconsistency = s.pages.index().inconsistency();
  if (!audit.inconsistency) audit.inconsistency = chains_wrong(s.pages);
  return audit;
}

}  // namespace tiercel
