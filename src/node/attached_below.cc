// A snapshot, window or draft may come for a page that only the disk has: all tiers together have the page,
// so it is found with it. It stands in the host tier, staged: its page is not there, and readers of the index
// see nothing of it. For a match it counts as what the disk has; it goes down as what is resident does,
// becomes visible when its page comes up, is the first to make room, and leaves when its page leaves the
// disk.

#include <algorithm>

#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

Presence Node::State::lower_presence(const Page& page) const {
  std::vector<Key> chain;
  const Page* top = &page;
  for (; top->parent != nullptr; top = top->parent) chain.push_back(top->name.key);
  if (!top->rooted) return lower_presence(page.name.ns, page.name.key);
  chain.push_back(top->name.key);
  std::reverse(chain.begin(), chain.end());
  const std::vector<Presence> presence = lower_presence(page.name.ns, 0, chain, nullptr);
  return presence.empty() ? 0 : presence.back();
}

bool Node::State::is_below(const Page& page) const {
  const Presence required = page.form->required;
  return required != 0 && current(page) && (lower_presence(page) & required) == required;
}

Presence Node::State::attached_presence(const Page& page) const {
  Presence bits = 0;
  for (const Residence* set : page.sets)
    if (set != nullptr && set->page_below) bits |= Presence{1} << set->cls.value();
  return bits;
}

// What the disk itself has sent up waits for the rest of its page: it is down there, too.
void Node::State::attach_below(Page& page) {
  if (world.disk == nullptr || page.visible) return;
  std::vector<Residence*> whole;
  for (Residence* set : page.sets)
    if (set != nullptr && set->state == ResidenceState::kStaged && !set->page_below && !set->from_disk &&
        !page.form->form->classes[set->cls.value()].required())
      whole.push_back(set);
  if (whole.empty() || (!is_below(page) && !TIERCEL_FAULT(attach_without_a_page))) return;
  // What is above it may be known to the disk alone.
  note_unrooted(page);
  for (Residence* set : whole) {
    set->page_below = true;
    attached_below.insert(set->id);
    uncharge(*set);
    became_resident(*set);  // first, as in set_resident
    tell_waiters(*set);
  }
}

bool Node::State::detach_below(Residence& set) {
  if (!set.page_below) return false;
  attached_below.erase(set.id);
  set.page_below = false;
  return true;
}

void Node::State::settle_below(const PageName& name) {
  if (attached_below.empty() || TIERCEL_FAULT(attached_outlives_its_page)) return;
  Page* page = find(name.ns, name.key);
  if (page == nullptr || page->visible || attached_presence(*page) == 0 || is_below(*page)) return;
  const std::vector<Residence*> sets = page->sets;  // the page may go with the last of them
  for (Residence* set : sets)
    if (set != nullptr && set->page_below) drop_below(*set, Ending::kEvicted);
}

void Node::State::drop_below(Residence& set, Ending ending) {
  Page& page = *set.page;
  hide_set(page, set.cls, ending);
  if (page.any_set()) return;
  vacate(page);
  prune(&page);
}

// Cost: those that may not go now are passed over, one by one.
bool Node::State::evict_below(const Need& need) {
  for (const std::uint64_t id : attached_below) {
    Residence& set = *residence(id);
    const Page& page = *set.page;
    if (set.leases != 0 || set.copies != 0 || !may_leave(set)) continue;
    if (page.last_sequence == need.access.sequence || page.name == PageName{need.ns, need.key}) continue;
    if (page.pinned_until > now() || !may_shrink(set.ns, set.payload_bytes, need)) continue;
    if (need.own_only && set.ns != need.ns) continue;
    if (need.space_bound && !space.may_take(need.pool(), set.pool, need.last_resort)) continue;
    leaves(set);
    drop_below(set, Ending::kEvicted);
    return true;
  }
  return false;
}

void Node::State::forget_below() {
  while (!attached_below.empty()) drop_below(*residence(*attached_below.begin()), Ending::kEvicted);
}

}  // namespace tiercel
