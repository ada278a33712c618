// What must go so that a record may come: limits, sweeping, dead weight, moving, eviction, in that order.

#include <algorithm>

#include "base/checked.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

// Refused before anything is evicted: a record, or a page's required records together, that no eviction could
// make fit.
bool Node::State::never_fits(const Need& need) const {
  if (options.record_bytes_max && need.bytes() > *options.record_bytes_max) return true;
  const auto extents_of = [&](const ClassForm& cls) {
    const PoolId pool = need.form->pools[cls.id.value()];
    const std::uint64_t slot = need.form->slot_bytes[cls.id.value()];
    if (!space.fits_alone(pool)) return space.extents_total() + 1;
    if (slot > options.extent_bytes) return space.bytes_alone(slot) / options.extent_bytes * cls.shards;
    return ceil_div(cls.shards, options.extent_bytes / slot);
  };
  const ClassForm& own = need.form->form->classes[need.cls.value()];
  if (own.record_bytes > options.in_flight_bytes_max) return true;  // no copy of it could ever start
  std::uint64_t extents = extents_of(own);
  std::uint64_t bytes = need.bytes();
  if (own.required()) {
    extents = bytes = 0;
    for (const ClassForm& cls : need.form->form->classes) {
      if (!cls.required()) continue;
      extents += extents_of(cls);
      bytes += cls.set_bytes();
    }
  }
  return extents > space.extents_total() || (options.record_bytes_max && bytes > *options.record_bytes_max);
}

bool Node::State::within_limits(Need& need) {
  const Namespace& ns = space_of(need.ns);
  need.own_only = ns.bytes_max && ns.bytes + need.bytes() > *ns.bytes_max;
  if (need.own_only) return false;
  if (options.record_bytes_max && stats.payload_bytes + need.bytes() > *options.record_bytes_max)
    return false;
  // The page and its parent may need entries, also when eviction has just taken them.
  const auto is_new = [&](const Key& key) { return find_any(need.ns, key) != nullptr ? 0U : 1U; };
  const std::uint64_t new_entries = is_new(need.key) + (need.parent ? is_new(*need.parent) : 0U);
  if (pages.size() + new_entries > options.index_pages_max) return false;
  // In the index a page that was cleared moves, and may need a record of its own.
  const auto enters = [&](const Key& key) { return find(need.ns, key) != nullptr ? 0U : 1U; };
  const std::uint64_t entering = enters(need.key) + (need.parent ? enters(*need.parent) : 0U);
  if (!pages.index().has_room(entering, sets_promised + sets_in_index(*need.form, need.cls))) return false;
  if (!need.new_page) return true;
  if (options.pages_max && occupied_pages + 1 > *options.pages_max) return false;
  return true;
}

bool Node::State::take_slots(const Need& need, std::vector<SlotId>& slots) {
  const std::uint16_t shards = need.form->form->classes[need.cls.value()].shards;
  slots.clear();
  while (slots.size() < shards) {
    const auto slot = space.allocate(need.pool());
    if (!slot) {
      for (const SlotId taken : slots) space.release(need.pool(), taken);
      slots.clear();
      return false;
    }
    slots.push_back(*slot);
  }
  return true;
}

StoreOutcome Node::State::make_room(Need need, std::vector<SlotId>& slots) {
  if (never_fits(need)) return StoreOutcome::kTooLarge;
  const Namespace& ns = space_of(need.ns);
  if (ns.bytes_max && need.bytes() > *ns.bytes_max) return StoreOutcome::kQuota;
  std::uint64_t move_budget_bytes = options.move_bytes_max;
  for (;;) {
    if (within_limits(need)) {
      if (take_slots(need, slots)) return StoreOutcome::kAccepted;
      need.space_bound = true;
    } else {
      need.space_bound = false;
    }
    if (stale_pages != 0) {
      sweep(1024);
      continue;
    }
    if (evict_dead_weight(need)) continue;
    if (ask_readers() != 0) continue;
    if (need.space_bound && compact(need, move_budget_bytes)) continue;
    if (evict_some(need)) continue;
    if (need.space_bound && !need.last_resort) {
      need.last_resort = true;
      continue;
    }
    return need.own_only ? StoreOutcome::kQuota : StoreOutcome::kNoRoom;
  }
}

// Readers can lease none of the records from now on: the pages to thaw. Nothing: some of them are
// `being_read`; the plan is given up.
std::optional<std::vector<PageNumber>> Node::State::freeze_for(
    const std::vector<Move>& moves, std::unordered_set<std::uint64_t>& being_read) {
  std::vector<PageNumber> frozen;
  std::vector<LeaseName> names;
  std::vector<std::uint64_t> ids;
  for (const Move& move : moves) {
    const Residence& set = *residences.at(slot_owner.at(slot_name(move.pool, move.from)).first);
    if (set.state != ResidenceState::kResident) continue;
    frozen.push_back(set.page->number);
    names.push_back(pages.index().lease_name(set.page->number));
    ids.push_back(set.id);
    pages.index().freeze(set.page->number);
  }
  if (!readers_there()) return frozen;
  std::vector<std::uint8_t> named(names.size());
  world.readers->scan(names, named);
  if (std::find(named.begin(), named.end(), 1) == named.end() || TIERCEL_FAULT(move_under_reader))
    return frozen;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (named[i] != 0) being_read.insert(ids[i]);
  for (const PageNumber page : frozen) pages.index().thaw(page);
  for (const Move& move : moves) space.release(move.pool, move.to);
  return std::nullopt;
}

// Empties one extent by moving its records within their pool. False: nothing to gain, or this store has moved
// enough.
bool Node::State::compact(const Need& need, std::uint64_t& budget_bytes) {
  constexpr int kExtentsAsked = 16;  // one after the other, while readers read something of each
  std::unordered_set<std::uint64_t> being_read;
  const auto movable = [&](PoolId pool, SlotId slot) {
    const auto owner = slot_owner.find(slot_name(pool, slot));
    if (owner == slot_owner.end()) return false;  // taken for a store that is being admitted
    const Residence& set = *residences.at(owner->second.first);
    if (set.state != ResidenceState::kResident && set.state != ResidenceState::kStaged) return false;
    if (set.page != nullptr && set.page->pinned_until > now()) return false;
    if (being_read.contains(set.id)) return false;
    if (TIERCEL_FAULT(move_under_lease)) return true;
    return set.leases == 0 && set.copies == 0;
  };
  std::optional<std::vector<Move>> moves;
  std::optional<std::vector<PageNumber>> frozen;
  for (int asked = 0; !frozen; ++asked) {
    if (asked == kExtentsAsked) return false;
    moves = space.plan_compaction(need.pool(), std::min(budget_bytes, options.move_bytes_max), movable,
                                  need.last_resort);
    if (!moves) return false;
    frozen = freeze_for(*moves, being_read);
  }
  for (const Move& move : *moves) {
    const auto owner = slot_owner.at(slot_name(move.pool, move.from));
    Residence& set = *residences.at(owner.first);
    const Form& form = *space_of(set.ns).form;
    const ClassForm& cls = form.form->classes[set.cls.value()];
    const auto from = space.spans(move.pool, move.from);
    const auto to = space.spans(move.pool, move.to);
    const std::uint64_t kept =
        form.header_bytes[set.cls.value()] + world.arena.payload_kept(cls.record_bytes);
    move_record(from, to, kept, world.arena);
    world.arena.discard(from);
    space.release(move.pool, move.from);
    slot_owner.erase(slot_name(move.pool, move.from));
    slot_owner[slot_name(move.pool, move.to)] = owner;
    set.slots[owner.second.value()] = move.to;
    if (set.state == ResidenceState::kResident)
      pages.index().move_set(set.page->number, set_number(form, set.cls, owner.second.value()),
                             space.address(move.pool, move.to));
    ++stats.records_moved;
    stats.bytes_moved += kept;
    budget_bytes -= std::min(budget_bytes, form.slot_bytes[set.cls.value()]);
  }
  for (const PageNumber page : *frozen) pages.index().thaw(page);
  return !moves->empty();
}

// Window records that no resume point came to need, and pages below a lost one: worth nothing, so they go
// first. Not under `lru`, which knows pages only.
bool Node::State::evict_dead_weight(const Need& need) {
  if (policy->pages_only()) return false;
  for (std::size_t tries = std::min<std::size_t>(dead_windows.size(), 64); tries != 0; --tries) {
    const std::uint64_t id = dead_windows.front();
    dead_windows.pop_front();
    Residence* set = residence(id);
    if (set == nullptr || set->page == nullptr || set->state != ResidenceState::kResident ||
        set->page->window_refs[set->cls.value()] != 0)
      continue;
    Page& page = *set->page;
    // Its point may be on its way, somebody may read it, its namespace may have no more than its minimum.
    if (page.last_sequence == need.access.sequence || set->leases != 0 || set->copies != 0 ||
        page.pinned_until > now() || !may_shrink(set->ns, set->payload_bytes, need)) {
      dead_windows.push_back(id);
      continue;
    }
    ++stats.windows_dropped;
    drop_set(page, set->cls, Cause::kEvicted, Ending::kEvicted);
    prune(&page);
    return true;
  }
  for (std::size_t tries = std::min<std::size_t>(first_victims.size(), 64); tries != 0; --tries) {
    const PageRef ref = first_victims.front();
    first_victims.pop_front();
    const Page* page = pages.resolve(ref);
    if (page == nullptr || !page->visible) continue;
    bool below_gap = false;
    for (const Page* up = page->parent; up != nullptr && !below_gap; up = up->parent)
      below_gap = !up->visible;
    if (!below_gap) continue;
    const CandidateId id = candidate(*page, CandidateKind::kPage);
    if (page->visible_children == 0 && evictable(id, need)) {
      evict(id, need);
      return true;
    }
    first_victims.push_back(ref);
  }
  return false;
}

// Where readers have to be asked before slots return they are asked once for a batch, so a little more than
// what is needed goes: at most one page of 64 of those that it is about, and 64 pages.
bool Node::State::evict_some(const Need& need) {
  if (evict_below(need)) return true;
  const std::uint64_t there = need.own_only ? space_of(need.ns).pages : stats.pages_visible;
  const std::uint64_t batch = readers_there() ? std::clamp<std::uint64_t>(there / 64, 1, 64) : 1;
  std::uint64_t gone = 0;
  while (gone < batch && evict_one(need)) ++gone;
  if (gone != 0) ask_readers();
  return gone != 0;
}

bool Node::State::evict_one(const Need& need) {
  const auto victim = policy->victim(need.access, [&](CandidateId id) { return evictable(id, need); });
  if (!victim) return false;
  evict(*victim, need);
  return true;
}

bool Node::State::evictable(CandidateId id, const Need& need) {
  const Page& page = page_of(id);
  if (page.last_sequence == need.access.sequence) return false;  // of the request that asks
  if (page.name == PageName{need.ns, need.key}) return false;    // what is stored is for this page
  if (page.pinned_until > now()) return false;
  const std::uint64_t tag = id.value() % 64;
  const auto leaves = [&](const ClassForm& cls) {
    if (tag == 0) return true;
    return tag == 1 ? cls.is_state() || cls.is_window() : cls.id.value() == tag - 2;
  };
  bool helps_space = false;
  std::uint64_t bytes = 0;
  for (const ClassForm& cls : page.form->form->classes) {
    const Residence* set = page.sets[cls.id.value()];
    if (set == nullptr || !leaves(cls)) continue;
    if (tag == 1 && cls.is_window() && set->leases != 0) continue;  // stays under its lease, harmless
    if ((set->leases != 0 || set->copies != 0) && !TIERCEL_FAULT(evict_under_lease)) return false;
    if (!may_leave(*set)) return false;
    bytes += set->payload_bytes;
    helps_space |= space.may_take(need.pool(), set->pool, need.last_resort);
  }
  if (need.space_bound && !helps_space && tag != 1) return false;
  if (need.own_only && page.name.ns != need.ns) return false;
  if (page.point && tag <= 1) bytes += point_payload(page);
  return may_shrink(page.name.ns, bytes, need);
}

// Eviction for somebody else never takes a namespace below its minimum.
bool Node::State::may_shrink(NamespaceId id, std::uint64_t bytes, const Need& need) const {
  const Namespace& ns = *namespaces.at(id);
  return id == need.ns || (ns.bytes >= bytes && ns.bytes - bytes >= ns.bytes_min);
}

void Node::State::evict(CandidateId id, const Need& need) {
  Page& page = page_of(id);
  const std::uint64_t tag = id.value() % 64;
  for (const ClassForm& cls : page.form->form->classes) {
    Residence* set = page.sets[cls.id.value()];
    const bool goes = tag == 0 || (tag == 1 ? cls.is_state() : cls.id.value() == tag - 2);
    if (set != nullptr && goes) leaves(*set);
  }
  if (tag == 0) {
    hide_page(page, past_of_evicted(page, need.ns), Ending::kEvicted);
  } else if (tag == 1) {
    const bool had_state = (page.presence & page.form->states) != 0;
    for (const ClassForm& cls : page.form->form->classes)
      if (cls.is_state() && page.sets[cls.id.value()] != nullptr)
        drop_set(page, cls.id, Cause::kEvicted, Ending::kEvicted);
    if (!had_state) drop_point(page, Cause::kEvicted);
  } else {
    drop_set(page, ClassId(static_cast<std::uint16_t>(tag - 2)), Cause::kEvicted, Ending::kEvicted);
  }
  prune(&page);
}

}  // namespace tiercel
