// What may be found, and how it leaves: visibility, resume points and the windows they keep, removal,
// clearing.

#include <algorithm>
#include <cassert>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

// ---- the index ----

bool Node::State::current(const Page& page) const {
  if (TIERCEL_FAULT(cleared_page_served)) return true;
  return page.birth == namespaces.at(page.name.ns)->combined_mark();
}

// A namespace that was cleared goes on under a new space: nothing old is found under it.
SpaceId Node::State::current_space(Namespace& ns) const {
  const bool stale = ns.space_mark != ns.combined_mark() && !TIERCEL_FAULT(cleared_page_served);
  if (ns.space == SpaceId{} || stale) {
    if (ns.entries != 0) ns.old_spaces.push_back({ns.space, std::exchange(ns.entries, 0)});
    ns.space = SpaceId(++last_space);
    ns.space_mark = ns.combined_mark();
  }
  return ns.space;
}

Page* Node::State::find(NamespaceId ns, const Key& key) {
  return pages.find(current_space(space_of(ns)), key);
}

const Page* Node::State::find(NamespaceId ns, const Key& key) const {
  return pages.find(current_space(*namespaces.at(ns)), key);
}

Page* Node::State::find_any(NamespaceId id, const Key& key) const {
  Namespace& ns = *namespaces.at(id);
  if (Page* page = pages.find(current_space(ns), key); page != nullptr) return page;
  for (const Namespace::OldSpace& old : ns.old_spaces)
    if (Page* page = pages.find(old.space, key); page != nullptr) return page;
  return nullptr;
}

// A cleared entry is emptied first, so that nothing old shines through the new page.
Page& Node::State::entry(NamespaceId id, const Key& key, std::uint64_t length, const Page* parent) {
  Namespace& ns = space_of(id);
  const SpaceId now_under = current_space(ns);
  if (Page* known = find_any(id, key); known != nullptr) {
    if (known->space == now_under) return *known;
    if (known->any_set()) hide_page(*known, PastEvent{Cause::kRemoved, now(), NamespaceId{}}, Ending::kStale);
    move_to_current_space(*known);
    known->birth = ns.combined_mark();
    return *known;
  }
  Page& page = pages.insert(now_under, PageName{id, key}, next_id(), length == 0 ? 0 : length - 1, parent);
  ++ns.entries;
  page.form = ns.form;
  page.birth = ns.combined_mark();
  page.rooted = length == 1;
  page.sets.resize(page.form->form->classes.size());
  page.window_refs.resize(page.sets.size());
  return page;
}

void Node::State::move_to_current_space(Page& page) {
  Namespace& ns = space_of(page.name.ns);
  leave_space(page);
  pages.rehome(page, current_space(ns));
  pages.index().set_children(page.number, page.visible_children);
  ++ns.entries;
}

void Node::State::leave_space(const Page& page) {
  Namespace& ns = space_of(page.name.ns);
  if (page.space == ns.space) {
    --ns.entries;
    return;
  }
  const auto old = std::find_if(ns.old_spaces.begin(), ns.old_spaces.end(),
                                [&](const Namespace::OldSpace& at) { return at.space == page.space; });
  TIERCEL_CHECK(old != ns.old_spaces.end());
  if (--old->entries == 0) ns.old_spaces.erase(old);
}

void Node::State::link_parent(Page& page, const std::optional<Key>& parent_key) {
  if (!parent_key || page.parent != nullptr) return;
  Page& parent = entry(page.name.ns, *parent_key, page.length == 0 ? 0 : page.length - 1, nullptr);
  page.parent = &parent;
  page.child_at = parent.children.size();
  parent.children.push_back(&page);
  page.rooted = page.rooted || parent.rooted;
  if (parent.length == 0 && page.length > 1) parent.length = page.length - 1;
}

void Node::State::prune(Page* page) {
  // A pinned entry stays until it is unpinned, also when its time is over: `pins` names it.
  while (page != nullptr && page->children.empty() && !page->any_set() && page->pinned_until == Time{0} &&
         !page->held) {
    Page* parent = page->parent;
    if (parent != nullptr) {
      parent->children.back()->child_at = page->child_at;
      std::swap(parent->children[page->child_at], parent->children.back());
      parent->children.pop_back();
    }
    leave_space(*page);
    pages.erase(*page);
    page = parent;
  }
}

// Counts of pages with any class-set: for pages_max, and to know what a clear has left to sweep.
void Node::State::occupy(Page& page) {
  Namespace& ns = space_of(page.name.ns);
  if (ns.pages_mark != ns.combined_mark()) {
    ns.pages = 0;
    ns.pages_mark = ns.combined_mark();
  }
  ++ns.pages;
  ++ns.form->pages;
  ++occupied_pages;
}

void Node::State::vacate(Page& page) {
  --occupied_pages;
  Namespace& ns = space_of(page.name.ns);
  if (page.birth != ns.combined_mark()) {
    --stale_pages;
    return;
  }
  --ns.pages;
  --ns.form->pages;
}

CandidateId Node::State::candidate(const Page& page, CandidateKind kind, ClassId cls) const {
  const std::uint64_t tag = kind == CandidateKind::kPage    ? 0
                            : kind == CandidateKind::kPoint ? 1
                                                            : 2U + cls.value();
  return CandidateId(std::uint64_t{page.number.value()} * 64 + tag);
}

// ---- what readers of the index see ----

SetNumber Node::State::set_number(const Form& form, ClassId cls, std::size_t shard) const {
  const std::size_t number = shard == 0 ? cls.value() : form.further_sets[cls.value()] + shard - 1;
  return SetNumber(static_cast<std::uint8_t>(number));
}

std::uint64_t Node::State::sets_in_index(const Form& form, ClassId cls) const {
  return form.form->classes[cls.value()].shards - (cls.value() == 0 ? 1U : 0U);
}

// Shard 0 last: where it is, all are.
void Node::State::show_set(const Residence& set) {
  for (std::size_t shard = set.slots.size(); shard-- != 0;) {
    const bool room = pages.index().put_set(set.page->number, set_number(*set.page->form, set.cls, shard),
                                            space.address(set.pool, set.slots[shard]));
    TIERCEL_CHECK(room);  // promised when it was reserved
  }
  sets_promised -= sets_in_index(*set.page->form, set.cls);
}

void Node::State::conceal_set(const Residence& set) {
  for (std::size_t shard = 0; shard < set.slots.size(); ++shard)
    pages.index().drop_set(set.page->number, set_number(*set.page->form, set.cls, shard));
}

// ---- becoming visible ----

// `staged` is whole. With its page's required class-sets it becomes visible; alone if the page already is. If
// the page is on the disk only, it is found there with it.
void Node::State::publish(Page& page, Residence& staged) {
  const Form& form = *page.form;
  if (page.visible) {
    set_resident(page, staged);
    push_event(EventKind::kAttached, page, Presence{1} << staged.cls.value());
    return;
  }
  for (const ClassForm& cls : form.form->classes) {
    if (!cls.required()) continue;
    const Residence* set = page.sets[cls.id.value()];
    const bool whole = set != nullptr && set->state == ResidenceState::kStaged;
    if (!whole && !TIERCEL_FAULT(publish_before_all_classes)) return attach_below(page);
  }
  become_visible(page);
}

void Node::State::become_visible(Page& page) {
  page.visible = true;
  ++stats.pages_visible;
  ++stats.pages_stored;
  history.stored(page.name.ns, page.name.key, now());
  Candidate told;
  told.id = told.page = candidate(page, CandidateKind::kPage);
  told.key = page.name.key;
  told.length = page.length;
  if (page.parent != nullptr && page.parent->visible)
    told.parent = candidate(*page.parent, CandidateKind::kPage);
  for (const Residence* set : page.sets)
    if (set != nullptr && set->state == ResidenceState::kStaged &&
        !page.form->form->classes[set->cls.value()].sparse())
      told.bytes += set->payload_bytes;
  told.page_tokens = page.form->form->spec.page_tokens;
  told.by_points = by_points(*page.form);
  policy->stored(told, Access{page.last_sequence, now()});
  expect_page(page);
  if (page.form->required != 0 && page.parent != nullptr) {
    if (page.parent->visible_children++ == 0 && page.parent->visible)
      policy->set_evictable(candidate(*page.parent, CandidateKind::kPage), false);
    pages.index().set_children(page.parent->number, page.parent->visible_children);
  }
  policy->set_evictable(told.id, page.visible_children == 0);
  for (Residence* set : page.sets)
    if (set != nullptr && set->state == ResidenceState::kStaged) set_resident(page, *set);
  pages.index().touch(page.number, page.last_sequence);
  pages.index().set_visible(page.number, true);
  push_event(EventKind::kStored, page, page.presence);
}

void Node::State::set_resident(Page& page, Residence& set) {
  const ClassForm& cls = page.form->form->classes[set.cls.value()];
  set.state = ResidenceState::kResident;
  uncharge(set);
  page.presence |= Presence{1} << set.cls.value();
  show_set(set);
  stats.resident_bytes += set.payload_bytes;
  stats.resident_bytes_peak = std::max(stats.resident_bytes_peak, stats.resident_bytes);
  // First: who is told of its being visible asks what becomes of it on the disk.
  if (!detach_below(set))
    became_resident(set);
  else if (options.remote.write_policy == WritePolicy::kWriteThrough)
    offer_remote(set);
  tell_waiters(set);
  tell_promotions(set);
  if (cls.is_state()) {
    ++stats.snapshots_stored;
    ++stats.snapshots_resident;
    if ((page.presence & page.form->states) == page.form->states) make_point(page);
    return;
  }
  if (cls.is_window()) {
    if (options.retention == SparseRetention::kAll) {
      if (!policy->pages_only()) {
        Candidate told;
        told.id = candidate(page, CandidateKind::kWindow, set.cls);
        told.kind = CandidateKind::kWindow;
        told.page = candidate(page, CandidateKind::kPage);
        told.key = page.name.key;
        told.length = page.length;
        told.bytes = set.payload_bytes;
        policy->stored(told, Access{page.last_sequence, now()});
        policy->set_evictable(told.id, true);
      }
    } else if (page.window_refs[set.cls.value()] == 0) {
      note_dead(set);
    }
    if (page.point_wanted && page.form->states == 0 && !page.point) make_point(page);
    return;
  }
  if (cls.optional()) policy->resized(candidate(page, CandidateKind::kPage), page_payload(page));
}

std::uint64_t Node::State::page_payload(const Page& page) const {
  std::uint64_t bytes = 0;
  for (const Residence* set : page.sets)
    if (set != nullptr && set->state == ResidenceState::kResident &&
        !page.form->form->classes[set->cls.value()].sparse())
      bytes += set->payload_bytes;
  return bytes;
}

// ---- resume points ----

// Snapshot and the window records that no other point needs: what leaves with the point.
std::uint64_t Node::State::point_payload(const Page& page) const {
  std::uint64_t bytes = 0;
  for (const ClassForm& cls : page.form->form->classes) {
    const std::size_t c = cls.id.value();
    if (cls.is_state() && page.sets[c] != nullptr) bytes += page.sets[c]->payload_bytes;
    if (!cls.is_window() || options.retention == SparseRetention::kAll) continue;
    const Page* at = &page;
    for (std::uint64_t i = 0; i < std::min(page.point_reach, cls.window_pages()); ++i, at = at->parent)
      if (at->window_refs[c] <= 1) bytes += cls.set_bytes();
  }
  return bytes;
}

void Node::State::make_point(Page& page) {
  page.point = true;
  page.point_sequence = page.last_sequence;
  std::uint64_t window_max = 0;
  for (const ClassForm& cls : page.form->form->classes) window_max = std::max(window_max, cls.window_pages());
  page.point_reach = 0;
  for (Page* at = &page; at != nullptr && page.point_reach < window_max; at = at->parent) {
    for (const ClassForm& cls : page.form->form->classes)
      if (page.point_reach < cls.window_pages()) ++at->window_refs[cls.id.value()];
    ++page.point_reach;
  }
  if (policy->pages_only()) return;
  Candidate told;
  told.id = candidate(page, CandidateKind::kPoint);
  told.kind = CandidateKind::kPoint;
  told.page = candidate(page, CandidateKind::kPage);
  told.key = page.name.key;
  told.length = page.length;
  told.bytes = point_payload(page);
  told.page_tokens = page.form->form->spec.page_tokens;
  policy->stored(told, Access{page.last_sequence, now()});
  expect_point(page);
  policy->set_evictable(told.id, true);
}

// The point is gone; window records that only it needed go with it.
void Node::State::drop_point(Page& page, Cause cause) {
  if (!page.point) return;
  page.point = false;
  if (!policy->pages_only())
    policy->departed(candidate(page, CandidateKind::kPoint),
                     cause == Cause::kEvicted ? Departure::kEvicted : Departure::kRemoved);
  std::uint64_t reach = 0;
  for (Page* at = &page; at != nullptr && reach < page.point_reach; at = at->parent, ++reach) {
    for (const ClassForm& cls : page.form->form->classes) {
      const std::size_t c = cls.id.value();
      if (reach >= cls.window_pages() || --at->window_refs[c] != 0) continue;
      if (options.retention == SparseRetention::kAll) continue;
      Residence* set = at->sets[c];
      if (set == nullptr || set->state != ResidenceState::kResident) continue;
      if (at == &page && !page.visible) continue;  // its page is leaving: it goes there
      set->unneeded = true;
      if (set->leases != 0 || set->copies != 0 || at->pinned_until > now() || at->birth != page.birth) {
        note_dead(*set);  // it goes when nobody reads it any more
        continue;
      }
      ++stats.windows_dropped;
      drop_set(*at, cls.id, cause, Ending::kEvicted);
    }
  }
}

// Under a policy that knows pages only nothing goes first.
void Node::State::note_dead(const Residence& window) {
  if (!policy->pages_only()) dead_windows.push_back(window.id);
}

// A window record that outlived its last resume point because it was read goes with the last lease.
void Node::State::drop_if_unneeded(Residence& set) {
  if (!set.unneeded || set.leases != 0 || set.copies != 0 || set.page == nullptr) return;
  Page& page = *set.page;
  if (page.window_refs[set.cls.value()] != 0 || page.pinned_until > now()) return;
  const Namespace& ns = space_of(page.name.ns);
  if (ns.bytes - set.payload_bytes < ns.bytes_min)
    return note_dead(set);  // goes when its namespace may shrink
  ++stats.windows_dropped;
  drop_set(page, set.cls, Cause::kEvicted, Ending::kEvicted);
  prune(&page);
}

// ---- leaving ----

void Node::State::charge(Residence& residence) {
  residence.charged = true;
  stats.reserved_bytes += residence.payload_bytes;
  if (const auto at = sessions.find(residence.session); at != sessions.end())
    at->second.reserved_bytes += residence.payload_bytes;
}

void Node::State::uncharge(Residence& residence) {
  if (!residence.charged) return;
  residence.charged = false;
  stats.reserved_bytes -= residence.payload_bytes;
  if (TIERCEL_FAULT(forget_session_charge)) return;
  if (const auto at = sessions.find(residence.session); at != sessions.end())
    at->second.reserved_bytes -= residence.payload_bytes;
}

// Slots return when nobody finds, reads or writes them any more.
void Node::State::free_if_unused(Residence& residence) {
  if (residence.page != nullptr || residence.copies != 0 || residence.client_holds != 0) return;
  if (residence.leases != 0 && !TIERCEL_FAULT(evict_under_lease)) return;
  if (residence.ask_readers && !TIERCEL_FAULT(readers_not_asked)) {
    held_by_readers.push_back(residence.id);
    return;
  }
  const auto held = residences.find(residence.id);
  const std::unique_ptr<Residence> own = std::move(held->second);
  residences.erase(held);
  end_reading(*own);
  for (std::size_t shard = 0; shard < own->slots.size(); ++shard) {
    world.arena.discard(space.spans(own->pool, own->slots[shard]));
    slot_owner.erase(slot_name(own->pool, own->slots[shard]));
    space.release(own->pool, own->slots[shard]);
  }
  stats.payload_bytes -= own->payload_bytes;
  if (own->state == ResidenceState::kQuarantined) stats.quarantined_bytes -= own->payload_bytes;
  uncharge(*own);
}

// What is hidden first and then named by nobody is read by nobody (docs/decisions/0007). A residence stands
// in the list once for each time that something else let go of it.
std::size_t Node::State::ask_readers() {
  if (held_by_readers.empty()) return 0;
  std::vector<std::uint64_t> asked = std::exchange(held_by_readers, {});
  std::sort(asked.begin(), asked.end());
  asked.erase(std::unique(asked.begin(), asked.end()), asked.end());
  std::erase_if(asked, [&](std::uint64_t id) { return residence(id) == nullptr; });
  std::vector<LeaseName> names;
  names.reserve(asked.size());
  for (const std::uint64_t id : asked) names.push_back(residence(id)->shown_as);
  std::vector<std::uint8_t> named(asked.size());
  world.readers->scan(names, named);
  std::size_t freed = 0;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    Residence& set = *residence(asked[i]);
    if (named[i] != 0) {
      held_by_readers.push_back(asked[i]);
      continue;
    }
    set.ask_readers = false;
    free_if_unused(set);
    ++freed;
  }
  return freed;
}

void Node::State::tell_waiters(Residence& residence) {
  const auto waiters = std::exchange(residence.waiters, {});
  for (const auto& [waiter, item] : waiters) {
    const auto at = stores.find(waiter);
    if (at == stores.end()) continue;
    at->second.unseen.erase(residence.id);
    at->second.outcomes[item] = outcome_of(residence, at->second.outcomes[item]);
  }
  for (const auto& waiter : waiters) end_store_if_done(waiter.first);
}

void Node::State::hide_set(Page& page, ClassId cls, Ending ending) {
  Residence* set = page.sets[cls.value()];
  if (set == nullptr) return;
  const ClassForm& form_class = page.form->form->classes[cls.value()];
  const bool was_resident = set->state == ResidenceState::kResident;
  detach_below(*set);
  page.sets[cls.value()] = nullptr;
  if (was_resident)
    conceal_set(*set);
  else
    sets_promised -= sets_in_index(*page.form, cls);
  if (!(TIERCEL_FAULT(index_keeps_evicted_set) && form_class.sparse()))
    page.presence &= ~(Presence{1} << cls.value());
  set->page = nullptr;
  set->ending = ending;
  set->state = ResidenceState::kHidden;
  set->ask_readers = was_resident && readers_there();
  if (set->ask_readers) set->shown_as = pages.index().lease_name(page.number);
  space_of(page.name.ns).bytes -= set->payload_bytes;
  if (was_resident) {
    stats.resident_bytes -= set->payload_bytes;
    if (form_class.is_state()) {
      --stats.snapshots_resident;
      if (ending == Ending::kEvicted) ++stats.snapshots_evicted;
    }
    if (form_class.is_window() && options.retention == SparseRetention::kAll && !policy->pages_only())
      policy->departed(candidate(page, CandidateKind::kWindow, cls),
                       ending == Ending::kEvicted ? Departure::kEvicted : Departure::kRemoved);
  }
  if (set->disk == DiskState::kWriting)
    leaving_bytes += set->payload_bytes;
  else
    settle_descent(*set);
  tell_waiters(*set);
  tell_promotions(*set);
  free_if_unused(*set);
}

// The page is found no more; class-sets that are still being written stay with their writers.
void Node::State::out_of_sight(Page& page, const PastEvent& event) {
  page.visible = false;
  pages.index().set_visible(page.number, false);
  --stats.pages_visible;
  // An evicted page that the disk had refused is remembered for that.
  const bool taken = event.cause == Cause::kRemoved || event.cause == Cause::kDamaged;
  ++(taken ? stats.pages_removed : stats.pages_evicted);
  push_event(EventKind::kRemoved, page, page.presence, event.cause);
  history.left(page.name.ns, page.name.key, event);
  drop_point(page, event.cause);
  policy->departed(candidate(page, CandidateKind::kPage),
                   event.cause == Cause::kEvicted ? Departure::kEvicted : Departure::kRemoved);
  if (page.form->required != 0 && page.parent != nullptr) {
    if (--page.parent->visible_children == 0 && page.parent->visible)
      policy->set_evictable(candidate(*page.parent, CandidateKind::kPage), true);
    pages.index().set_children(page.parent->number, page.parent->visible_children);
  }
  if (page.visible_children != 0 && event.cause == Cause::kDamaged) lose_descendants_first(page);
}

void Node::State::hide_page(Page& page, const PastEvent& why, Ending ending) {
  // What was cleared before stays `removed`, whatever makes its slots go.
  const PastEvent event = current(page) ? why : PastEvent{Cause::kRemoved, now(), NamespaceId{}};
  if (page.visible) out_of_sight(page, event);
  page.point_wanted = false;
  const bool occupied = page.any_set();
  for (const ClassForm& cls : page.form->form->classes) hide_set(page, cls.id, ending);
  if (occupied) vacate(page);
}

void Node::State::drop_set(Page& page, ClassId cls, Cause cause, Ending ending) {
  const ClassForm& form_class = page.form->form->classes[cls.value()];
  const bool resident =
      page.sets[cls.value()] != nullptr && page.sets[cls.value()]->state == ResidenceState::kResident;
  hide_set(page, cls, ending);
  const bool empty =
      !page.any_set();  // before its point's windows follow: the last of them to go says so too
  if (resident) push_event(EventKind::kDropped, page, Presence{1} << cls.value(), cause);
  if (form_class.is_state()) drop_point(page, cause);
  if (form_class.optional() && page.visible)
    policy->resized(candidate(page, CandidateKind::kPage), page_payload(page));
  // Without a required class a page is there while any of its class-sets is.
  if (page.visible && page.form->required == 0 && page.presence == 0)
    out_of_sight(page, current(page) ? PastEvent{cause, now(), NamespaceId{}}
                                     : PastEvent{Cause::kRemoved, now(), NamespaceId{}});
  if (empty) vacate(page);
}

// A record turned out not to be what it was: it is never served again.
void Node::State::damaged(Residence& residence) {
  ++stats.damaged_records;
  Page* page = residence.page;
  if (page == nullptr) return;
  const ClassForm& cls = page->form->form->classes[residence.cls.value()];
  for (Residence* set : page->sets)
    if (set != nullptr && set->reading && cls.required()) set->lost_by = Reason::kDamaged;  // it goes, too
  if (cls.required())
    hide_page(*page, PastEvent{Cause::kDamaged, now(), NamespaceId{}}, Ending::kFailed);
  else
    drop_set(*page, residence.cls, Cause::kDamaged, Ending::kFailed);
  prune(page);
}

// Pages below a lost one cannot be reached: they go before anything else, leaves first. Cost: O(descendants).
void Node::State::lose_descendants_first(Page& lost) {
  if (policy->pages_only()) return;
  std::vector<Page*> todo(lost.children.begin(), lost.children.end());
  std::vector<PageRef> order;
  while (!todo.empty()) {
    Page* page = todo.back();
    todo.pop_back();
    if (page->visible) order.push_back({page->number, page->uid});
    todo.insert(todo.end(), page->children.begin(), page->children.end());
  }
  first_victims.insert(first_victims.end(), order.rbegin(), order.rend());
}

void Node::State::remove_tree(Page& top) {
  std::vector<Page*> order{&top};
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i != 0 && TIERCEL_FAULT(remove_misses_descendants)) break;
    order.insert(order.end(), order[i]->children.begin(), order[i]->children.end());
  }
  if (TIERCEL_FAULT(remove_misses_descendants)) order.resize(1);
  std::vector<PageName> names;
  for (Page* page : order) {
    hide_page(*page, PastEvent{Cause::kRemoved, now(), NamespaceId{}}, Ending::kStale);
    unpin_page(*page);
    names.push_back(page->name);
  }
  // Descendants first: a parent's entry goes with its last child's.
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (Page* page = find_any(name->ns, name->key); page != nullptr) prune(page);
}

// Gives back what clears left behind: at most `visits_max` entries are looked at. Returns pages emptied.
std::size_t Node::State::sweep(std::size_t visits_max) {
  std::size_t emptied = 0;
  while (stale_pages != 0 && visits_max-- != 0) {
    Page* at = pages.next();
    if (at == nullptr) break;
    Page& page = *at;
    if (page.birth == namespaces.at(page.name.ns)->combined_mark() || !page.any_set()) continue;
    hide_page(page, PastEvent{Cause::kRemoved, now(), NamespaceId{}}, Ending::kStale);
    ++emptied;
    prune(&page);
  }
  return emptied;
}

void Node::State::push_event(EventKind kind, const Page& page, Presence classes, Cause cause) {
  if (kind == EventKind::kAttached && TIERCEL_FAULT(drop_event)) return;
  if (!current(page)) return;  // its going was told when it was cleared
  Event event;
  event.kind = kind;
  event.ns = page.name.ns;
  event.form = page.form->id;
  event.key = page.name.key;
  if (page.parent != nullptr) event.parent = page.parent->name.key;
  event.length = page.length;
  event.external = page.external;
  event.classes = classes;
  event.cause = cause;
  queue_event(event);
}

void Node::State::push_cleared(FormId form, NamespaceId ns) {
  Event event;
  event.kind = EventKind::kCleared;
  event.ns = ns;
  event.form = form;
  event.cause = Cause::kRemoved;
  queue_event(event);
}

// A full queue drops what is new, counted; the sequence shows where.
void Node::State::queue_event(Event event) {
  event.sequence = ++event_sequence;
  if (events.size() < options.events_max) {
    events.push_back(event);
    return;
  }
  ++events_lost;
  ++stats.events_lost;
}

}  // namespace tiercel
