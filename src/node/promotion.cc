// From the disk into the host tier: for a match that may wait, or ahead of one. What comes is seen by nobody
// before all of its class-set was verified; who asks for what is on its way already waits for that one read;
// what cannot come in time is missed for a reason of its own.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

namespace {

constexpr std::uint32_t kAttemptsMax = 4;

Reason reason_of(StoreOutcome outcome) {
  switch (outcome) {
    case StoreOutcome::kTooLarge:
      return Reason::kTooLarge;
    case StoreOutcome::kQuota:
      return Reason::kQuota;
    default:
      return Reason::kNoRoom;
  }
}

}  // namespace

// ---- what is there ----

std::vector<Presence> Node::State::lower_presence(NamespaceId id, std::uint64_t first_page,
                                                  std::span<const Key> keys, const Request* request) const {
  const Namespace& ns = *namespaces.at(id);
  if (!on_disk(ns.disk) || options.off || retired(ns)) return {};
  std::vector<Presence> presence(keys.size());
  world.disk->find_chain(ns.disk, first_page, keys, presence);
  const Presence known = static_cast<Presence>((std::uint64_t{1} << ns.form->form->classes.size()) - 1);
  std::vector<Page*> above(attached_below.empty() ? 0 : keys.size());
  if (!above.empty()) pages.find_chain(current_space(*namespaces.at(id)), first_page, keys, above);
  for (std::size_t i = 0; i < presence.size(); ++i) {
    presence[i] &= known;
    if (!above.empty() && above[i] != nullptr && (presence[i] & ns.form->required) == ns.form->required)
      presence[i] |= attached_presence(*above[i]);
    if (request != nullptr && !request->failed.empty() && request->failed.contains(PageName{id, keys[i]}))
      presence[i] = 0;
  }
  return presence;
}

Presence Node::State::lower_presence(NamespaceId ns, const Key& key) const {
  const std::vector<Presence> presence = lower_presence(ns, 1, std::span(&key, 1), nullptr);
  return presence.empty() ? 0 : presence.front();
}

MatchQuery Node::State::query_of(const Ticket& ticket, const Promotion& promotion) const {
  MatchQuery query;
  query.session = ticket.session;
  query.ns = ticket.ns;
  query.request = ticket.request;
  query.keys = ticket.keys;
  query.first_page = ticket.view.first_page;
  query.held = ticket.held;
  query.limit_tokens = promotion.limit_tokens;
  query.prompt_tokens = promotion.prompt_tokens;
  query.probe = promotion.probe;
  query.touch = promotion.touch;
  return query;
}

// ---- plans ----

// Leases what is there, and lists what a resume at the longest length lacks, in prefix order. False: nothing
// that could come makes the answer longer.
bool Node::State::plan_promotion(Ticket& ticket, Promotion& promotion) {
  const MatchQuery query = query_of(ticket, promotion);
  const Request* request =
      ticket.request == RequestId{} ? nullptr : request_of(ticket.request, ticket.session);
  const StorageForm& model = *space_of(ticket.ns).form->form;
  const std::uint64_t first = ticket.view.first_page;
  const std::vector<Presence> disk = lower_presence(ticket.ns, first, ticket.keys, request);
  std::vector<Presence> lower = below_presence(ticket.ns, disk, ticket.keys, request);
  if (lower.empty() || lower_down()) return false;
  std::vector<Page*> found(ticket.keys.size());
  pages.find_chain(current_space(space_of(ticket.ns)), first, ticket.keys, found);
  std::vector<Presence> here(found.size()), all(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    here[i] = visible_presence(query, request, ticket.keys[i], found[i]);
    for (const auto& lost : promotion.lost)
      if (lost.first == first + i) lower[i] &= ~(Presence{1} << lost.second.value());
    all[i] = here[i] | lower[i];
  }
  const std::uint64_t now_there =
      restorable(model, ResumeQuery{here, first, ticket.held, query.limit_tokens}).longest;
  ResumeAnswer rule = restorable(model, ResumeQuery{all, first, ticket.held, query.limit_tokens});
  const std::uint64_t threshold =
      promotion.prefetch ? options.disk.prefetch_threshold_tokens : options.load_back_threshold_tokens;
  if (rule.longest > now_there && promotion.attempts == 0 &&
      (rule.longest - now_there) * model.spec.page_tokens < threshold) {
    for (std::uint64_t page = std::max(now_there, first); page < rule.longest; ++page)
      ticket.not_brought.emplace(page, Reason::kBelowThreshold);
    return false;
  }
  end_leases(ticket);
  for (std::uint64_t fits = 0; (fits = lease_for(ticket, found, rule.lengths.back())) < rule.lengths.back();)
    while (rule.lengths.back() > fits) rule.lengths.pop_back();
  const std::uint64_t length = rule.lengths.back();
  promotion.to_start.clear();
  for (std::uint64_t page = first; length > now_there && page < length; ++page)
    for (const ClassForm& cls : model.classes) {
      const Presence bit = Presence{1} << cls.id.value();
      const std::uint64_t held = ticket.held[cls.id.value()];
      if (cls.is_state() ? length == held : page < held) continue;
      if (!needs(cls, length, page) && !cls.optional()) continue;
      if ((here[page - first] & bit) != 0 || (lower[page - first] & bit) == 0) continue;
      promotion.to_start.push_back({page, cls.id, !disk.empty() && (disk[page - first] & bit) != 0});
      promotion.wanted.insert(page);
    }
  ++promotion.attempts;
  promotion.removals = space_of(ticket.ns).removals;
  promotion.failed = false;
  return !promotion.to_start.empty();
}

bool Node::State::begin_promotion(Ticket& ticket, const MatchQuery& query, Promotion& promotion) {
  promotion.ticket = ticket.id;
  promotion.limit_tokens = query.limit_tokens;
  promotion.prompt_tokens = query.prompt_tokens;
  promotion.probe = query.probe;
  promotion.touch = query.touch;
  promotion.deadline = later(now(), query.deadline.value_or(options.operation_deadline));
  if (!ask_remote(ticket, promotion) && !plan_promotion(ticket, promotion)) {
    end_leases(ticket);  // the answer takes its own
    return false;
  }
  promotion.sequence = access_of(ticket.request, ticket.session).sequence;
  ticket.view.pending = true;
  ticket.expires = later(promotion.deadline, options.ticket_ttl);
  promotion_deadlines.emplace(promotion.deadline, ticket.id);
  return true;
}

// ---- one class-set at a time ----

void Node::State::lose_item(Ticket& ticket, Promotion& promotion, const PromotionItem& item, Reason why) {
  const ClassForm& cls = space_of(ticket.ns).form->form->classes[item.cls.value()];
  promotion.lost.insert({item.page, item.cls});
  if (cls.optional()) return;
  ticket.not_brought.insert_or_assign(item.page, why);
  promotion.failed = true;
}

// What comes up must stand below all of its chain: a removal of any page of it takes it, too. Entries are
// made for those that have none, from the top down, so that pages that follow each other stand side by side
// in the index. Returns: the page before `number`, held against being pruned; none: the index has no room.
// Cost: the pages up to one that was linked up to the first of its chain before; where the question begins in
// the middle of a chain there is none, and all pages of the question before `number` are walked.
std::optional<Node::State::HeldPage> Node::State::make_chain(const Ticket& ticket, const Need& need,
                                                             std::uint64_t number) {
  const std::uint64_t first = ticket.view.first_page;
  const auto known = [&](std::uint64_t at) { return find(ticket.ns, ticket.keys[at - first]); };
  std::uint64_t top = number, unknown = 0;
  while (top > first) {
    const Page* page = known(--top);
    unknown += page == nullptr ? 1 : 0;
    if (page != nullptr && page->rooted) break;
  }
  if (unknown + 2 > options.index_pages_max) return std::nullopt;  // before anything is evicted for it
  HeldPage above(*this);
  for (std::uint64_t at = top; at < number; ++at) {
    Page* page = known(at);
    if (page == nullptr) {
      if (!make_index_room(need, 1)) return std::nullopt;
      page = &entry(ticket.ns, ticket.keys[at - first], at + 1, above.page());
    }
    if (above.page() != nullptr) link_parent(*page, above.page()->name.key);
    settle_root(ticket, *page, at);
    above.hold(page);
  }
  return above;
}

// The page is linked as far up as the question's keys reach.
void Node::State::settle_root(const Ticket& ticket, Page& page, std::uint64_t number) {
  page.rooted = page.rooted || number == 0 || (page.parent != nullptr && page.parent->rooted);
  if (!page.rooted && number == ticket.view.first_page) note_unrooted(page);
}

Page& Node::State::top_of(Page& page) {
  Page* top = &page;
  while (top->parent != nullptr) top = top->parent;
  return *top;
}

void Node::State::note_unrooted(Page& page) {
  Page& top = top_of(page);
  if (top.rooted || std::exchange(top.noted_unrooted, true)) return;
  std::vector<PageRef>& tops = space_of(page.name.ns).unrooted;
  constexpr std::size_t kLookedThrough = 1024;
  if (tops.size() % kLookedThrough == kLookedThrough - 1)
    std::erase_if(tops, [&](const PageRef& ref) { return unrooted(ref) == nullptr; });
  tops.push_back({top.number, top.uid});
}

void Node::State::HeldPage::hold(Page* page) {
  if (page != nullptr) page->held = true;
  if (page_ != nullptr) {
    page_->held = false;
    state_->prune(page_);
  }
  page_ = page;
}

// The page, or the top of what it has been linked to since; nothing if that is the first of its chain.
Page* Node::State::unrooted(const PageRef& ref) const {
  Page* page = pages.resolve(ref);
  if (page == nullptr || page->parent == nullptr) return page;
  page->noted_unrooted = false;
  Page& top = top_of(*page);
  return top.rooted ? nullptr : &top;
}

// Any removal may be of a page above them: they go, as the disk itself gives them no more.
void Node::State::remove_unrooted(Namespace& ns) {
  for (const PageRef& ref : std::exchange(ns.unrooted, {})) {
    Page* page = unrooted(ref);
    if (page == nullptr) continue;
    page->noted_unrooted = false;
    remove_tree(*page);
  }
}

// Eviction makes it, as for a store.
bool Node::State::make_index_room(const Need& need, std::uint64_t entries) {
  const auto there = [&] {
    return pages.size() + entries <= options.index_pages_max &&
           pages.index().has_room(entries, sets_promised);
  };
  while (!there()) {
    if (stale_pages != 0)
      sweep(1024);
    else if (!evict_dead_weight(need) && ask_readers() == 0 && !evict_some(need))
      return false;
  }
  return true;
}

Node::State::Start Node::State::start_read(Ticket& ticket, Promotion& promotion, const PromotionItem& item) {
  Namespace& ns = space_of(ticket.ns);
  const Key& key = ticket.keys[item.page - ticket.view.first_page];
  const ClassForm& cls = ns.form->form->classes[item.cls.value()];
  const std::uint64_t bytes = cls.set_bytes();
  const auto lost = [&](Reason why) {
    lose_item(ticket, promotion, item, why);
    return Start::kLost;
  };
  const bool chain_known = ticket.view.first_page == 0;
  const Source source = source_of(ns, key, item, chain_known);
  if (source == Source::kDown) return lost(Reason::kTierDown);
  if (source == Source::kLater) return Start::kLater;
  if (source == Source::kNone) return lost(Reason::kEvicted);
  const auto prefetch_room =
      static_cast<std::uint64_t>(options.disk.prefetch_share * static_cast<double>(stats.arena_bytes));
  if (promotion.prefetch && stats.prefetch_bytes + bytes > prefetch_room) return lost(Reason::kRateLimited);
  if (!within_bound(ticket.session, bytes)) return lost(Reason::kRateLimited);
  const std::uint64_t reading = stats.disk_reading_bytes + stats.remote_reading_bytes;
  if (reading != 0 && reading + bytes > options.in_flight_bytes_max) return Start::kLater;
  Need need;
  need.ns = ticket.ns;
  need.form = ns.form;
  need.cls = item.cls;
  need.key = key;
  need.access = Access{promotion.sequence, now()};
  if (item.page > ticket.view.first_page) need.parent = ticket.keys[item.page - ticket.view.first_page - 1];
  if (never_fits(need)) return lost(Reason::kTooLarge);  // before anything is evicted for it
  const std::optional<HeldPage> before = make_chain(ticket, need, item.page);
  if (!before) return lost(Reason::kNoRoom);
  const Page* page = find(ticket.ns, key);
  need.new_page = page == nullptr || !page->any_set();
  std::vector<SlotId> slots;
  const StoreOutcome room = make_room(need, slots);
  if (room != StoreOutcome::kAccepted) return lost(reason_of(room));
  StoreRequest request;
  request.session = ticket.session;
  request.ns = ticket.ns;
  StoreItem store;
  store.key = key;
  store.parent = need.parent;
  store.length = item.page + 1;
  store.cls = item.cls;
  Residence& set = new_residence(request, store, std::move(slots));
  settle_root(ticket, *set.page, item.page);
  set.computation = set.id * 2 + 1;  // its own: nobody's store joins it
  set.shards_claimed = UINT64_MAX;
  set.page->last_sequence = std::max(set.page->last_sequence, promotion.sequence);
  if (!submit_read(set, source, chain_known)) {
    set.reading = false;
    abort_residence(set.id, Ending::kAborted);
    const Source again = source_of(ns, key, item, chain_known);
    if (again == Source::kDown) return lost(Reason::kTierDown);
    return again == Source::kNone || source == Source::kRemote ? lost(Reason::kEvicted) : Start::kLater;
  }
  if (promotion.prefetch) {
    set.prefetched = true;
    stats.prefetch_bytes += bytes;
  }
  set.promotions.emplace_back(ticket.id, item.page);
  promotion.waits_for.insert(set.id);
  return Start::kDone;
}

// The disk first: it is nearer.
Node::State::Source Node::State::source_of(const Namespace& ns, const Key& key, const PromotionItem& item,
                                           bool chain_known) const {
  const bool disk = on_disk(ns.disk) && (item.on_disk || TIERCEL_FAULT(remote_page_read_from_disk));
  if (disk && world.disk->can_read() && world.disk->find(disk_name(ns, key, item.cls), chain_known))
    return Source::kDisk;
  if (remote_has(ns, key, item.cls)) return Source::kRemote;
  if (!disk && world.remote != nullptr && world.remote->down()) return Source::kDown;
  if (!disk || world.disk->can_read()) return Source::kNone;
  return world.disk->down() ? Source::kDown : Source::kLater;
}

bool Node::State::submit_read(Residence& set, Source source, bool chain_known) {
  set.reading = set.from_disk = true;
  if (source == Source::kRemote) {
    const std::optional<RemoteReadId> read = world.remote->read(remote_entry(set));
    if (!read) return false;
    remote_reads.emplace(*read, set.id);
    set.from_remote = true;
    set.remote = DiskState::kThere;
    set.remote_mark = space_of(set.ns).remote_mark();
    stats.remote_reading_bytes += set.payload_bytes;
  } else {
    set.disk = DiskState::kThere;
    const std::optional<DiskReadId> read = world.disk->read(disk_entry(set), chain_known);
    if (!read) return false;
    reads.emplace(*read, set.id);
    stats.disk_reading_bytes += set.payload_bytes;
  }
  ++set.copies;
  return true;
}

Node::State::Start Node::State::start_item(Ticket& ticket, Promotion& promotion, const PromotionItem& item) {
  const Key& key = ticket.keys[item.page - ticket.view.first_page];
  Page* page = find(ticket.ns, key);
  Residence* set = page == nullptr ? nullptr : page->sets[item.cls.value()];
  if (set == nullptr) return start_read(ticket, promotion, item);
  if (set->state == ResidenceState::kResident || set->page_below) {  // somebody stored it meanwhile
    if (lease_of(ticket, item.page, item.cls) == nullptr && within_bound(ticket.session, set->payload_bytes))
      add_lease(ticket, *set, item.page);
    return Start::kDone;
  }
  if (!set->reading) {
    lose_item(ticket, promotion, item, Reason::kInFlight);
    return Start::kLost;
  }
  ++stats.promotions_joined;
  set->promotions.emplace_back(ticket.id, item.page);
  promotion.waits_for.insert(set->id);
  return Start::kDone;
}

// What waits for its turn stands in no tree that a removal could take: it is looked for once more, by its
// chain.
void Node::State::lose_removed(Ticket& ticket, Promotion& promotion) {
  const std::uint64_t removals = space_of(ticket.ns).removals;
  if (std::exchange(promotion.removals, removals) == removals ||
      TIERCEL_FAULT(promotion_plan_outlives_removal))
    return;
  const std::uint64_t first = ticket.view.first_page;
  const std::vector<Presence> disk = lower_presence(ticket.ns, first, ticket.keys, nullptr);
  const std::vector<Presence> lower = below_presence(ticket.ns, disk, ticket.keys, nullptr);
  for (PromotionItem& item : promotion.to_start)
    item.on_disk = !disk.empty() && (disk[item.page - first] >> item.cls.value() & 1) != 0;
  std::erase_if(promotion.to_start, [&](const PromotionItem& item) {
    const bool there = !lower.empty() && (lower[item.page - first] >> item.cls.value() & 1) != 0;
    if (!there) lose_item(ticket, promotion, item, Reason::kRemoved);
    return !there;
  });
}

// Oldest first; what has to wait lets nobody pass.
void Node::State::pump_promotions() {
  for (auto& [id, promotion] : promotions) {
    Ticket& ticket = tickets.at(id);
    if (!promotion.to_start.empty() && lower_down()) {
      for (const PromotionItem& item : promotion.to_start)
        lose_item(ticket, promotion, item, Reason::kTierDown);
      promotion.to_start.clear();
    }
    if (!promotion.to_start.empty()) lose_removed(ticket, promotion);
    while (!promotion.to_start.empty()) {
      const PromotionItem item = promotion.to_start.front();
      const Start started = start_item(ticket, promotion, item);
      if (started == Start::kLater) return;
      promotion.to_start.pop_front();
      // Beyond a required class-set that does not come nothing can be resumed.
      const bool required = space_of(ticket.ns).form->form->classes[item.cls.value()].required();
      if (started == Start::kLost && required)
        std::erase_if(promotion.to_start, [&](const PromotionItem& each) { return each.page >= item.page; });
    }
  }
}

// ---- what came ----

// All shards must be of this class-set, and of one computation, whatever the drive has made of them.
std::optional<std::uint32_t> Node::State::generation_read(const Residence& set) {
  const Namespace& ns = space_of(set.ns);
  const Form& form = *ns.form;
  std::optional<std::uint32_t> generation;
  std::vector<std::byte> bytes(form.header_bytes[set.cls.value()]);
  for (const SlotId slot : set.slots) {
    const std::vector<ArenaSpan> spans = space.spans(set.pool, slot);
    for (std::uint64_t position = 0; position < bytes.size();) {
      const ByteView part = world.arena.view(spans, position, bytes.size() - position);
      std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(position));
      position += part.size();
    }
    const Result<RecordHeader> header = parse_header(bytes);
    if (!header || (generation && *generation != header->label.generation)) return std::nullopt;
    if (header->label.key != set.key || header->label.cls != set.cls || header->label.root != ns.root)
      return std::nullopt;
    generation = header->label.generation;
    if (set.page != nullptr && header->label.external.size != 0) set.page->external = header->label.external;
  }
  return generation;
}

// `why`: the reason of a status that is not ok.
void Node::State::read_done(Residence& set, const Status& status, Reason why) {
  --set.copies;
  if (set.page == nullptr) {  // it left while it was read
    end_reading(set);
    return free_if_unused(set);
  }
  if (!status.ok()) return lose_read(set, why, Ending::kFailed);
  const std::optional<std::uint32_t> generation = generation_read(set);
  if (!generation) return lose_read(set, Reason::kDamaged, Ending::kFailed);
  const ClassForm& cls = space_of(set.ns).form->form->classes[set.cls.value()];
  if (TIERCEL_FAULT(promotion_publishes_unverified)) {
    for (std::size_t shard = 0; shard < set.slots.size(); ++shard)
      shard_written(set, ShardId(static_cast<std::uint16_t>(shard)));
    return end_reading(set);
  }
  for (std::size_t shard = 0; shard < set.slots.size(); ++shard) {
    const ShardId id(static_cast<std::uint16_t>(shard));
    PendingCopy copy{OperationId(set.id), shard, set.id, cls.record_bytes, {}, std::uint64_t{1} << shard};
    copy.copy.kind = CopyKind::kAdopt;
    copy.copy.place = place_of(set, id);
    copy.copy.place.label.generation = *generation;
    copy.copy.generation = set.generation;
    queue_copy(std::move(copy), 0);
  }
}

void Node::State::adopt_done(Residence& set, ShardId shard, const Status& status, std::uint64_t verifies) {
  if (set.page == nullptr) {
    if (set.copies == 0) end_reading(set);
    return;
  }
  if (!status.ok()) return lose_read(set, Reason::kDamaged, Ending::kFailed);
  set.verified |= verifies;
  const std::uint64_t id = set.id;
  shard_written(set, shard);
  Residence* still = residence(id);
  if (still != nullptr && (still->state != ResidenceState::kWriting || still->copies == 0))
    end_reading(*still);
}

// Damage is dropped there, too: it would only be found again.
void Node::State::lose_read(Residence& set, Reason why, Ending ending) {
  ++stats.promotions_failed;
  if (why == Reason::kDamaged) {
    ++stats.damaged_records;
    const Namespace& ns = space_of(set.ns);
    if (set.from_remote)
      world.remote->drop({ns.remote, set.key, set.cls});
    else if (world.disk != nullptr)
      world.disk->drop(disk_name(ns, set.key, set.cls));
    if (Page* page = set.page;
        page != nullptr && !page->visible && ns.form->form->classes[set.cls.value()].required())
      history.left(set.ns, set.key, PastEvent{Cause::kDamaged, now(), NamespaceId{}});
  }
  set.lost_by = why;
  const std::uint64_t id = set.id;
  abort_residence(id, ending);
  if (Residence* left = residence(id); left != nullptr && left->copies == 0) end_reading(*left);
  if (Residence* left = residence(id); left != nullptr) free_if_unused(*left);
}

void Node::State::end_reading(Residence& set) {
  if (!set.reading) return;
  set.reading = false;
  (set.from_remote ? stats.remote_reading_bytes : stats.disk_reading_bytes) -= set.payload_bytes;
  if (set.prefetched && !TIERCEL_FAULT(promotion_forgets_budget)) stats.prefetch_bytes -= set.payload_bytes;
  set.prefetched = false;
}

void Node::State::tell_promotions(Residence& set) {
  const bool resident = set.state == ResidenceState::kResident;
  if (resident && set.reading) {
    ++stats.promoted;
    stats.promoted_bytes += set.payload_bytes;
    if (set.from_remote) {
      ++stats.remote_promoted;
      stats.remote_promoted_bytes += set.payload_bytes;
    }
  }
  for (const auto& [ticket_id, number] : std::exchange(set.promotions, {})) {
    const auto at = promotions.find(ticket_id);
    if (at == promotions.end()) continue;
    Promotion& promotion = at->second;
    Ticket& ticket = tickets.at(ticket_id);
    promotion.waits_for.erase(set.id);
    if (resident) {
      promotion.brought.insert(number);
      if (set.from_remote) promotion.from_remote.insert(number);
      ticket.not_brought.erase(number);
      if (within_bound(ticket.session, set.payload_bytes)) add_lease(ticket, set, number);
      continue;
    }
    Reason why = set.lost_by;
    if (set.ending == Ending::kStale) why = Reason::kRemoved;
    if (set.ending == Ending::kExpired) why = Reason::kTooLate;
    lose_item(ticket, promotion, {number, set.cls}, why);
  }
}

// ---- ends ----

std::size_t Node::State::settle_promotions() {
  if (world.disk == nullptr && world.remote == nullptr) return 0;
  std::size_t ended = 0;
  while (!promotion_deadlines.empty() && promotion_deadlines.begin()->first <= now()) {
    const TicketId id = promotion_deadlines.begin()->second;
    if (!promotions.contains(id) || TIERCEL_FAULT(promotion_never_ends) ||
        (promotions.at(id).asking && TIERCEL_FAULT(remote_lookup_never_ends))) {
      promotion_deadlines.erase(promotion_deadlines.begin());
      continue;
    }
    give_up_promotion(id, Status{Code::kDeadlineExceeded, "its deadline passed before all of it came"});
    ++ended;
  }
  // A drive that has fallen silent keeps nobody until his deadline.
  if (world.disk != nullptr && world.disk->down()) {
    std::vector<TicketId> waiting;
    for (const auto& [id, promotion] : promotions)
      if (world.remote == nullptr || waits_for_disk(promotion)) waiting.push_back(id);
    for (const TicketId id : waiting) give_up_promotion(id, Status{Code::kUnavailable, "the disk is down"});
    ended += waiting.size();
  }
  pump_promotions();
  std::vector<TicketId> ready;
  for (auto& [id, promotion] : promotions) {
    if (promotion.asking || !promotion.to_start.empty() || !promotion.waits_for.empty()) continue;
    // Something did not come: perhaps a shorter length can be had.
    Ticket& ticket = tickets.at(id);
    const bool again = promotion.failed && promotion.attempts < kAttemptsMax;
    if (again && (ask_remote(ticket, promotion) || plan_promotion(ticket, promotion))) continue;
    ready.push_back(id);
  }
  for (const TicketId id : ready) {
    finish_promotion(id);
    ++ended;
  }
  if (ended != 0 || !promotions.empty()) pump_promotions();
  return ended;
}

bool Node::State::waits_for_disk(const Promotion& promotion) const {
  return std::any_of(promotion.waits_for.begin(), promotion.waits_for.end(), [&](std::uint64_t id) {
    const auto at = residences.find(id);
    return at != residences.end() && at->second->reading && !at->second->from_remote;
  });
}

// It is answered with what is there; reads under way go on, and what they bring stays.
void Node::State::give_up_promotion(TicketId id, Status why, bool answered) {
  Promotion& promotion = promotions.at(id);
  Ticket& ticket = tickets.at(id);
  const Reason late = why.code == Code::kDeadlineExceeded || why.code == Code::kCancelled ? Reason::kTooLate
                                                                                          : Reason::kTierDown;
  if (promotion.asking.has_value()) ticket.unanswered = late;
  promotion.asking.reset();
  for (const PromotionItem& item : promotion.to_start) lose_item(ticket, promotion, item, late);
  promotion.to_start.clear();
  for (const std::uint64_t waited : promotion.waits_for) {
    Residence* set = residence(waited);
    if (set == nullptr) continue;
    for (const auto& [ticket_id, number] : set->promotions)
      if (ticket_id == id) lose_item(ticket, promotion, {number, set->cls}, late);
    std::erase_if(set->promotions, [&](const auto& waiter) { return waiter.first == id; });
  }
  promotion.waits_for.clear();
  promotion.ending = std::move(why);
  finish_promotion(id, answered);
}

void Node::State::finish_promotion(TicketId id, bool answered) {
  const Promotion promotion = std::move(promotions.at(id));
  promotions.erase(id);
  const auto [first, last] = promotion_deadlines.equal_range(promotion.deadline);
  const auto own = std::find_if(first, last, [&](const auto& each) { return each.second == id; });
  if (own != last) promotion_deadlines.erase(own);
  Ticket& ticket = tickets.at(id);
  ticket.brought_pages = promotion.brought.size();
  ticket.remote_pages = promotion.from_remote.size();
  Completion completion;
  completion.ticket = id;
  completion.operation = promotion.id;
  const bool told = promotion.prefetch || promotion.told;
  if (promotion.prefetch) {
    completion.kind = CompletionKind::kPrefetched;
    completion.prefetch = prefetch_result(ticket, promotion);
    stats.prefetched_pages += promotion.brought.size();
    drop_ticket(id);
  } else {
    completion.kind = CompletionKind::kMatched;
    if (promotion.ending) completion.status = *promotion.ending;
    end_leases(ticket);
    ticket.view.pending = false;
    ticket.view.lengths = {0};
    ticket.expires = later(now(), options.ticket_ttl);
    ticket_deadlines.emplace(ticket.expires, id);
    if (answered) finish_match(ticket, query_of(ticket, promotion));
  }
  if (told) give(std::move(completion));
}

}  // namespace tiercel
