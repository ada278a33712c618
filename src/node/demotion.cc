// From the host tier to the disk: what is offered when, what became of it, and when a store, a removal or a
// flush may be called durable. Whether something is worth a write is the disk's admission's decision.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

namespace {

// A refusal of the disk, as a later miss will tell it. Nothing: the page is simply gone.
std::optional<Cause> cause_of(DiskVerdict verdict) {
  switch (verdict) {
    case DiskVerdict::kSecondTouch:
      return Cause::kSecondTouch;
    case DiskVerdict::kWriteBudget:
      return Cause::kWriteBudget;
    case DiskVerdict::kQuota:
      return Cause::kQuota;
    case DiskVerdict::kTooLarge:
      return Cause::kTooLarge;
    case DiskVerdict::kNoRoom:
      return Cause::kNoRoom;
    case DiskVerdict::kRateLimited:
      return Cause::kRateLimited;
    case DiskVerdict::kAccepted:
    case DiskVerdict::kAlreadyThere:
    case DiskVerdict::kTierDown:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

// A namespace for which the disk has no number (its catalogue is full) lives in the host tier alone.
void Node::State::open_on_disk(Namespace& ns) {
  if (world.disk == nullptr) return;
  DiskSpaceName name;
  name.root = ns.root;
  name.form = ns.form->form->fingerprint;
  name.text = canonical_text(ns.identity) + ns.form->form->canonical;
  for (const ClassForm& cls : ns.form->form->classes) {
    std::vector<std::uint64_t>& runs = name.runs.emplace_back();
    for (const LayerRun& run : cls.layers) runs.push_back(run.length);
  }
  const Result<DiskSpaceId> opened = world.disk->open_space(name);
  if (!opened) return;
  ns.disk = *opened;
  by_disk_space[*opened] = ns.id;
}

// The records as they stand in the arena. Where a slot has room for whole blocks they are taken whole, so
// that the drive needs no copy of the last one; what lies behind the record there says nothing.
DiskEntry Node::State::disk_entry(const Residence& set) {
  const Namespace& ns = *namespaces.at(set.ns);
  const ClassForm& cls = ns.form->form->classes[set.cls.value()];
  DiskEntry entry;
  entry.name = disk_name(ns, set.key, set.cls);
  if (set.page != nullptr && set.page->parent != nullptr) entry.parent = set.page->parent->name.key;
  if (set.page != nullptr) entry.length = set.page->length;
  const std::uint64_t kept = world.arena.payload_kept(cls.record_bytes);
  const std::uint64_t record = ns.form->header_bytes[set.cls.value()] + kept;
  const std::uint64_t blocks = ceil_div(record, kBlockBytes) * kBlockBytes;
  const bool whole = kept == cls.record_bytes && blocks <= ns.form->slot_bytes[set.cls.value()];
  entry.record_bytes = whole ? blocks : record;
  entry.shards = record_pieces(set, entry.record_bytes);
  return entry;
}

std::vector<std::vector<BlockPiece>> Node::State::record_pieces(const Residence& set, std::uint64_t bytes) {
  std::vector<std::vector<BlockPiece>> shards;
  for (const SlotId slot : set.slots) {
    const std::vector<ArenaSpan> spans = space.spans(set.pool, slot);
    std::vector<BlockPiece>& pieces = shards.emplace_back();
    for (std::uint64_t position = 0; position < bytes;) {
      const MutableByteView part = world.arena.view(spans, position, bytes - position);
      pieces.push_back({part.data(), part.size()});
      position += part.size();
    }
  }
  return shards;
}

// Whoever listens hears of what is decided, whichever way.
void Node::State::offer_down(Residence& set, DiskOffer offer) {
  offer_to_log(set, offer);
  if (set.disk != DiskState::kWriting && set.disk != DiskState::kWaiting) settle_descent(set);
}

std::uint64_t Node::State::write_room() const {
  return static_cast<std::uint64_t>(options.disk.write_share * static_cast<double>(stats.arena_bytes));
}

void Node::State::offer_to_log(Residence& set, DiskOffer offer) {
  if (world.disk == nullptr || set.page == nullptr) return;
  if (set.state != ResidenceState::kResident && !set.page_below) return;
  if (set.disk == DiskState::kWriting || set.disk == DiskState::kThere) return;
  const Namespace& ns = *namespaces.at(set.ns);
  // What another process may still change is not worth a write before that has ended.
  if (!on_disk(ns.disk) || set.writer_lives() || !current(*set.page)) return;
  const auto wait = [&] {
    if (set.disk != DiskState::kWaiting) to_offer.push_back(set.id);
    set.disk = DiskState::kWaiting;
  };
  const bool closing = offer == DiskOffer::kClosing;
  if (!closing && stats.disk_writing_bytes != 0 &&
      stats.disk_writing_bytes + set.payload_bytes > write_room())
    return wait();
  const DiskAnswer answer = world.disk->append(disk_entry(set), offer);
  switch (answer.verdict) {
    case DiskVerdict::kAccepted:
      set.disk = DiskState::kWriting;
      if (!TIERCEL_FAULT(demotion_frees_source_early)) ++set.copies;
      appends.emplace(answer.append, set.id);
      stats.disk_writing_bytes += set.payload_bytes;
      return;
    case DiskVerdict::kAlreadyThere:  // perhaps not durable yet
      set.disk = DiskState::kThere;
      set.disk_at = world.disk->last_at();
      return;
    case DiskVerdict::kRateLimited:
    case DiskVerdict::kTierDown:
      return wait();
    default:
      set.disk = DiskState::kRefused;
      set.disk_verdict = answer.verdict;
      ++stats.demotions_refused;
  }
}

void Node::State::became_resident(Residence& set) {
  if (options.remote.write_policy == WritePolicy::kWriteThrough) offer_remote(set);
  if (world.disk == nullptr || set.disk == DiskState::kThere) return;
  switch (options.disk.write_policy) {
    case WritePolicy::kWriteThrough:
      return offer_down(set, DiskOffer::kComputed);
    case WritePolicy::kWriteThroughSelective:
      return;
    case WritePolicy::kWriteBack:
      unwritten.push_back(set.id);
      return;
  }
}

// Of one page that a match found. Second touch means another request than the one that stored it.
void Node::State::used_again(Page& page, RequestId request) {
  if ((world.disk == nullptr && world.remote == nullptr) || !page.visible) return;
  if (request != RequestId{} && request == page.last_hit_by) return;
  page.last_hit_by = request;
  if (page.hits < UINT32_MAX) ++page.hits;
  if (options.remote.write_policy == WritePolicy::kWriteThroughSelective &&
      page.hits >= options.remote.selective_threshold)
    for (Residence* set : page.sets)
      if (set != nullptr) offer_remote(*set);
  if (world.disk == nullptr || options.disk.write_policy == WritePolicy::kWriteBack) return;
  if (options.disk.write_policy == WritePolicy::kWriteThroughSelective &&
      page.hits < options.disk.selective_threshold)
    return;
  for (Residence* set : page.sets)
    if (set != nullptr && set->disk != DiskState::kWaiting) offer_down(*set, DiskOffer::kHit);
}

// What was refused is not asked again here: to be evicted is no use.
void Node::State::leaves(Residence& set) {
  if (options.remote.write_policy == WritePolicy::kWriteBack) offer_remote(set);
  if (world.disk == nullptr || set.disk == DiskState::kRefused) return;
  if (options.disk.write_policy == WritePolicy::kWriteThroughSelective) return;
  offer_down(set, DiskOffer::kLeaving);
}

PastEvent Node::State::past_of_evicted(const Page& page, NamespaceId by) const {
  PastEvent past{Cause::kEvicted, now(), by};
  for (const Residence* set : page.sets) {
    if (set == nullptr || !page.form->form->classes[set->cls.value()].required()) continue;
    if (set->disk != DiskState::kRefused) continue;
    if (const auto cause = cause_of(set->disk_verdict)) return PastEvent{*cause, now(), NamespaceId{}};
  }
  return past;
}

// Under write-back what has not been written yet must be, before its slots can be used: too much of it at
// once and only what is on the disk already may go.
bool Node::State::may_leave(const Residence& set) const {
  if (world.disk == nullptr || options.disk.write_policy != WritePolicy::kWriteBack) return true;
  if (set.disk == DiskState::kThere || set.disk == DiskState::kRefused) return true;
  return leaving_bytes == 0 || leaving_bytes + set.payload_bytes <= write_room();
}

// Write-back: the oldest go down while they can still be found, so that room is made by forgetting alone.
void Node::State::clean_ahead() {
  if (world.disk == nullptr || options.disk.write_policy != WritePolicy::kWriteBack || world.disk->down())
    return;
  const auto free = static_cast<double>(space.extents_free()) * static_cast<double>(options.extent_bytes);
  const bool bytes_low = options.record_bytes_max &&
                         static_cast<double>(stats.payload_bytes) >
                             (1 - options.disk.clean_share) * static_cast<double>(*options.record_bytes_max);
  if (free > options.disk.clean_share * static_cast<double>(stats.arena_bytes) && !bytes_low) return;
  for (std::size_t tries = 64; tries != 0 && !unwritten.empty(); --tries) {
    Residence* set = residence(unwritten.front());
    if (set != nullptr && set->page != nullptr && set->disk == DiskState::kUnknown) {
      offer_down(*set, DiskOffer::kLeaving);
      if (set->disk == DiskState::kWaiting) return;
    }
    unwritten.pop_front();
  }
}

void Node::State::offer_waiting() {
  if (world.disk == nullptr || world.disk->down()) return;
  for (std::size_t tries = std::min<std::size_t>(to_offer.size(), 64); tries != 0; --tries) {
    const std::uint64_t id = to_offer.front();
    to_offer.pop_front();
    ++offers_taken;
    Residence* set = residence(id);
    if (set == nullptr || set->page == nullptr || set->disk != DiskState::kWaiting) continue;
    set->disk = DiskState::kUnknown;
    offer_down(*set, DiskOffer::kComputed);
    if (set->disk == DiskState::kWaiting) {  // still no room: it stays the first
      to_offer.pop_back();
      to_offer.push_front(id);
      --offers_taken;
      return;
    }
  }
}

// ---- what became of it ----

void Node::State::offer_ended(Residence& set, std::optional<std::uint64_t> at) {
  if (set.copies != 0) --set.copies;
  stats.disk_writing_bytes -= set.payload_bytes;
  if (set.page == nullptr) leaving_bytes -= std::min(leaving_bytes, set.payload_bytes);
  set.disk = at ? DiskState::kThere : DiskState::kUnknown;
  if (at) {
    set.disk_at = *at;
    ++stats.demoted;
    stats.demoted_bytes += set.payload_bytes;
  }
  settle_descent(set);
  if (set.page != nullptr) return drop_if_unneeded(set);
  // Its page was evicted while it was written down, and is below now; something of it may have come since.
  Page* page = at ? find(set.ns, set.key) : nullptr;
  if (page != nullptr) attach_below(*page);
  free_if_unused(set);
}

// It is on the disk, or will not be for these stores.
void Node::State::settle_descent(const Residence& set) {
  for (auto& [store, descent] : descents) {
    if (descent.writing.erase(set.id) == 0 || set.disk != DiskState::kThere) continue;
    ++descent.class_sets;
    descent.at = std::max(descent.at, set.disk_at);
  }
}

// Requires: the store is at its end.
void Node::State::watch_descent(const Store& store) {
  Descent descent;
  descent.store = store.id;
  std::set<std::uint64_t> seen;  // one for each class-set, however many shards it has
  for (const std::uint64_t id : store.residences) {
    const Residence* set = id == 0 || !seen.insert(id).second ? nullptr : residence(id);
    if (set == nullptr) continue;
    if (set->disk == DiskState::kWriting || set->disk == DiskState::kWaiting) descent.writing.insert(id);
    if (set->disk != DiskState::kThere) continue;
    ++descent.class_sets;
    descent.at = std::max(descent.at, set->disk_at);
  }
  descents.emplace(store.id, std::move(descent));
}

// A page that left with its region, and that the host tier has not got either: its past.
void Node::State::disk_evicted(const DiskName& name) {
  const auto known = by_disk_space.find(name.space);
  if (known == by_disk_space.end()) return;
  Page* page = find(known->second, name.key);
  Residence* set =
      page != nullptr && name.cls.value() < page->sets.size() ? page->sets[name.cls.value()] : nullptr;
  if (set != nullptr) {
    if (set->disk == DiskState::kThere) set->disk = DiskState::kUnknown;
    return;
  }
  const Form& form = *space_of(known->second).form;
  if (name.cls.value() >= form.form->classes.size()) return;
  if (form.required != 0 && !form.form->classes[name.cls.value()].required()) return;
  if (page != nullptr) settle_below(page->name);
  page = find(known->second, name.key);
  // What was removed stays `removed`, whatever became of its bytes.
  const bool gone = page == nullptr || (!page->visible && !page->any_set());
  if (gone && history.why(known->second, name.key).cause != Cause::kRemoved)
    history.left(known->second, name.key, PastEvent{Cause::kEvicted, now(), NamespaceId{}});
}

std::size_t Node::State::disk_events() {
  if (world.disk == nullptr) return 0;
  std::size_t done = world.disk->poll();
  for (const DiskEvent& event : world.disk->drain_events()) {
    ++done;
    switch (event.kind) {
      case DiskEvent::Kind::kWritten:
      case DiskEvent::Kind::kLost: {
        const auto at = appends.find(event.append);
        TIERCEL_CHECK(at != appends.end());
        Residence* set = residence(at->second);
        appends.erase(at);
        if (set == nullptr) break;  // only where a fault let it go
        const bool written = event.kind == DiskEvent::Kind::kWritten;
        offer_ended(*set, written ? std::optional(event.at) : std::nullopt);
        break;
      }
      case DiskEvent::Kind::kRead: {
        const auto at = reads.find(event.read);
        TIERCEL_CHECK(at != reads.end());
        Residence* set = residence(at->second);
        reads.erase(at);
        TIERCEL_CHECK(set != nullptr);
        read_done(*set, event.status,
                  event.status.code == Code::kDataCorrupt ? Reason::kDamaged
                  : event.status.code == Code::kNotFound  ? Reason::kRemoved
                                                          : Reason::kTierDown);
        break;
      }
      case DiskEvent::Kind::kEvicted:
        disk_evicted(event.name);
        break;
      case DiskEvent::Kind::kDurable:
      case DiskEvent::Kind::kCheckpoint:
        break;
    }
  }
  clean_ahead();
  offer_waiting();
  return done + tell_durable();
}

std::size_t Node::State::tell_durable() {
  std::size_t told = 0;
  const std::uint64_t durable_at = world.disk->durable_at();
  for (auto at = descents.begin(); at != descents.end();) {
    Descent& descent = at->second;
    Completion completion;
    completion.operation = descent.store;
    completion.class_sets = descent.class_sets;
    if (descent.writing.empty() && !descent.accepted) {
      descent.accepted = true;
      completion.kind = CompletionKind::kAccepted;
      give(completion);
      if (descent.at > durable_at) world.disk->flush_soon();
      ++told;
    }
    if (!descent.accepted || descent.at > durable_at) {
      ++at;
      continue;
    }
    completion.kind = CompletionKind::kDurable;
    give(std::move(completion));
    at = descents.erase(at);
    ++told;
  }
  for (auto at = flushes.begin(); at != flushes.end();) {
    // What waited to be offered when it was asked has been offered, whatever came later.
    if (!at->at && (offers_taken >= at->offers || to_offer.empty())) {
      at->at = world.disk->last_at();
      world.disk->flush_soon();
    }
    const bool all = at->at && *at->at <= durable_at;
    if (!all && at->deadline > now()) {
      ++at;
      continue;
    }
    Completion completion;
    completion.kind = CompletionKind::kFlushed;
    completion.operation = at->id;
    if (!all)
      completion.status =
          Status{Code::kDeadlineExceeded, world.disk->down()
                                              ? "flush: the disk is down; what it has not got may be lost"
                                              : "flush: its deadline passed; flush again"};
    give(std::move(completion));
    at = flushes.erase(at);
    ++told;
  }
  return told;
}

// ---- removals ----

bool Node::State::note_record(std::optional<std::uint64_t> at, std::uint64_t& newest) {
  if (!at) return false;
  newest = std::max(newest, *at);
  return true;
}

Status Node::State::settle_record(std::string_view call, std::uint64_t at, bool recorded) {
  if (world.disk == nullptr) return {};
  Status status;
  if (at != 0) status = world.disk->settle(at, options.disk.record_deadline);
  if (recorded && status.ok()) return {};
  return {Code::kUnavailable,
          fmt::format("{}: it holds now, but the disk did not record it ({}); after a crash what was removed "
                      "may be found again, so call it again when the disk is back",
                      call, status.ok() ? "it is down" : status.message)};
}

// ---- flush and close ----

Result<OperationId> Node::flush(std::optional<Duration> deadline) {
  State& s = *state_;
  if (s.world.disk == nullptr) return error(Code::kUnsupported, "flush: the node has no disk");
  FlushUnderWay flush;
  flush.id = OperationId(s.next_id());
  flush.deadline = later(s.now(), deadline.value_or(s.options.operation_deadline));
  flush.offers = s.offers_taken + s.to_offer.size();
  s.flushes.push_back(flush);
  s.world.disk->flush_soon();
  s.tell_durable();
  return flush.id;
}

// Recently used pages first; of one request's pages the first ones first: a prefix is worth something, its
// end alone is not.
std::vector<std::uint64_t> Node::State::hottest_unwritten() {
  std::vector<const Residence*> sets;
  for (const auto& [id, set] : residences)
    if (set->page != nullptr && (set->page->visible || set->page_below) &&
        (set->state == ResidenceState::kResident || set->page_below) && set->disk != DiskState::kThere &&
        set->disk != DiskState::kWriting)
      sets.push_back(set.get());
  std::sort(sets.begin(), sets.end(), [](const Residence* a, const Residence* b) {
    const auto order = [](const Residence* set) {
      return std::tuple(~set->page->last_sequence, set->page->length, set->cls.value(), set->id);
    };
    return order(a) < order(b);
  });
  std::vector<std::uint64_t> ids;
  ids.reserve(sets.size());
  for (const Residence* set : sets) ids.push_back(set->id);
  return ids;
}

// Stores that listen are told that what they wait for will not come.
void Node::State::tell_no_disk() {
  const Status gone{Code::kUnavailable, "there is no disk, or it was closed before this was durable"};
  for (const auto& [id, descent] : std::exchange(descents, {})) {
    Completion completion;
    completion.operation = id;
    completion.status = gone;
    completion.kind = CompletionKind::kAccepted;
    completion.class_sets = descent.class_sets;
    if (!descent.accepted) give(completion);
    completion.kind = CompletionKind::kDurable;
    completion.class_sets = 0;
    give(std::move(completion));
  }
}

// What the drive may still read or write keeps its slots.
void Node::State::forget_disk() {
  tell_no_disk();
  for (const FlushUnderWay& flush : std::exchange(flushes, {})) {
    Completion completion;
    completion.kind = CompletionKind::kFlushed;
    completion.operation = flush.id;
    completion.status = Status{Code::kUnavailable, "flush: the disk was closed before all was durable"};
    give(std::move(completion));
  }
  forget_below();
  to_offer.clear();
  unwritten.clear();
  world.disk = nullptr;
}

WriteDown Node::write_down(Duration at_most) {
  constexpr Duration kTurn = std::chrono::milliseconds(10);
  State& s = *state_;
  WriteDown report;
  if (s.world.disk == nullptr) return report;
  const Time began = s.now();
  const Time end = later(began, at_most);
  const std::uint64_t demoted = s.stats.demoted, demoted_bytes = s.stats.demoted_bytes;
  // Answers and promotions that wait for the disk have what is there.
  while (!s.promotions.empty())
    s.give_up_promotion(s.promotions.begin()->first, Status{Code::kCancelled, "the disk is being closed"});
  const std::vector<std::uint64_t> order = s.hottest_unwritten();
  std::size_t next = 0;
  while (s.now() < end && !s.world.disk->down()) {
    while (next < order.size()) {
      Residence* set = s.residence(order[next]);
      if (set != nullptr && set->disk == DiskState::kWaiting) set->disk = DiskState::kUnknown;
      if (set != nullptr) s.offer_down(*set, DiskOffer::kClosing);
      if (set != nullptr && set->disk == DiskState::kWaiting) break;
      ++next;
    }
    if (next == order.size() && s.appends.empty()) break;
    const std::uint64_t at = s.world.disk->last_at();
    if (at <= s.world.disk->durable_at())
      s.world.disk->wait(std::min<Duration>(end - s.now(), kTurn));
    else if (!s.world.disk->settle(at, end - s.now()).ok())
      break;
    s.disk_events();
  }
  report.status = s.world.disk->close(std::max(end - s.now(), Duration{std::chrono::seconds(1)}));
  s.disk_events();
  report.left_class_sets = s.hottest_unwritten().size();
  s.forget_disk();
  report.class_sets = s.stats.demoted - demoted;
  report.bytes = s.stats.demoted_bytes - demoted_bytes;
  report.took = s.now() - began;
  return report;
}

const DiskLog* Node::disk() const { return state_->world.disk; }

}  // namespace tiercel
