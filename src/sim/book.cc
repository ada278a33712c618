#include "sim/book.h"

#include "base/check.h"

namespace tiercel::sim {

Reason reason_of(StoreOutcome refusal) {
  switch (refusal) {
    case StoreOutcome::kNoRoom:
      return Reason::kNoRoom;
    case StoreOutcome::kTooLarge:
      return Reason::kTooLarge;
    case StoreOutcome::kQuota:
      return Reason::kQuota;
    case StoreOutcome::kRateLimited:
      return Reason::kRateLimited;
    case StoreOutcome::kAccepted:
    case StoreOutcome::kCommitted:
    case StoreOutcome::kAlreadyPresent:
    case StoreOutcome::kBeingWritten:
    case StoreOutcome::kStale:
    case StoreOutcome::kExpired:
    case StoreOutcome::kAborted:
    case StoreOutcome::kFailed:
    case StoreOutcome::kInvalid:
    case StoreOutcome::kNotArrived:
    case StoreOutcome::kDamaged:
      break;
  }
  return Reason::kNeverStored;
}

const PageRecord* Book::find(const PageId& page) const {
  const auto at = pages_.find(page);
  return at == pages_.end() ? nullptr : &at->second;
}

Presence Book::presence(const PageId& page) const {
  const PageRecord* record = find(page);
  return record != nullptr && record->visible ? record->presence : 0;
}

std::optional<PageId> Book::parent(const PageId& page) const {
  const auto at = parents_.find(page);
  if (at == parents_.end()) return std::nullopt;
  return PageId{page.ns, at->second};
}

std::vector<PageId> Book::descendants(const PageId& top) const {
  std::vector<PageId> found;
  std::vector<PageId> todo{top};
  while (!todo.empty()) {
    const PageId page = todo.back();
    todo.pop_back();
    const auto at = links_.find(page);
    if (at == links_.end()) continue;
    for (const PageId& child : at->second.children) {
      found.push_back(child);
      todo.push_back(child);
    }
  }
  return found;
}

void Book::accepted(const PageId& page, const StoreItem& item, Computation computation) {
  PageRecord& record = pages_[page];
  record.accepted_step = step_;
  record.length = item.length;
  if (item.parent) parents_[page] = *item.parent;
  record.written[{item.cls, item.shard}].push_back({computation, record.life, record.removals, step_});
}

void Book::refused(const PageId& page, StoreOutcome outcome, bool alone) {
  PageRecord& record = pages_[page];
  const Reason reason = reason_of(outcome);
  if (reason == Reason::kNeverStored) return;
  // What was cleared may be swept only now, and then the clear is the later cause.
  if (alone && !record.visible && !record.past.contains(Reason::kRemoved))
    record.past = {reason};
  else
    record.past.insert(reason);
  if (!history_complete_) record.past.insert(Reason::kUnknownPast);
  record.refused_step = step_;
}

void Book::not_wanted(const PageId& page) {
  PageRecord& record = pages_[page];
  if (!record.visible) record.past.insert(Reason::kSecondTouch);
}

void Book::leave(const PageId& page, PageRecord& record, std::set<Reason> past) {
  record.visible = false;
  record.presence = 0;
  ++record.life;
  // What the same call accepted it accepted for the life that begins: to make room for it the page had to go.
  for (auto& [name, written] : record.written)
    for (Written& each : written)
      if (each.step == step_) each.life = record.life;
  record.damaged.clear();
  // A store that makes room and is refused all the same does both in one step.
  if (record.refused_step == step_)
    record.past.insert(past.begin(), past.end());
  else
    record.past = std::move(past);
  if (!history_complete_) record.past.insert(Reason::kUnknownPast);
  unlink(page);
}

void Book::removed(const PageId& page) {
  PageRecord& record = pages_[page];
  ++record.removals;
  if (record.visible)
    leave(page, record, {Reason::kRemoved});
  else
    ++record.life;
}

void Book::cleared(NamespaceId ns) {
  for (auto& [page, record] : pages_) {
    if (page.ns != ns) continue;
    ++record.removals;
    if (record.visible) {
      leave(page, record, {Reason::kRemoved});
    } else {
      ++record.life;
      if (record.past != std::set<Reason>{Reason::kNeverStored}) record.past.insert(Reason::kRemoved);
    }
  }
}

void Book::damaged(const PageId& page, ClassId cls) {
  PageRecord& record = pages_[page];
  record.damaged.insert(cls);
  record.ever_damaged.insert(cls);
}

void Book::restarted(const std::map<NamespaceId, NamespaceId>& now_called) {
  std::map<PageId, PageRecord> pages;
  for (auto& [page, record] : pages_) {
    record.visible = false;
    record.presence = 0;
    ++record.life;
    record.damaged.clear();
    record.past = {Reason::kNeverStored};
    pages.emplace(PageId{now_called.at(page.ns), page.key}, std::move(record));
  }
  pages_ = std::move(pages);
  std::map<PageId, Key> parents;
  for (const auto& [page, parent] : parents_)
    if (now_called.contains(page.ns)) parents.emplace(PageId{now_called.at(page.ns), page.key}, parent);
  parents_ = std::move(parents);
  links_.clear();
}

void Book::apply(const Event& event) {
  const PageId page{event.ns, event.key};
  switch (event.kind) {
    case EventKind::kStored: {
      PageRecord& record = pages_[page];
      if (record.visible) leave(page, record, {});
      record.visible = record.ever_visible = true;
      record.presence = event.classes;
      record.damaged.clear();
      link(page, event.parent);
      return;
    }
    case EventKind::kAttached:
      pages_[page].presence |= event.classes;
      return;
    case EventKind::kDropped: {
      PageRecord& record = pages_[page];
      record.presence &= ~event.classes;
      std::erase_if(record.damaged, [&](ClassId cls) { return (event.classes >> cls.value() & 1) != 0; });
      // Without a required class this may be the page's last: then the reason is this one.
      if (record.visible && record.presence == 0 && record.refused_step != step_)
        record.past = {reason_from(event.cause)};
      return;
    }
    case EventKind::kRemoved: {
      PageRecord& record = pages_[page];
      if (record.visible) leave(page, record, {reason_from(event.cause)});
      return;
    }
    case EventKind::kCleared:
      return;  // the call said so already
  }
}

void Book::resync(const Audit& audit, const std::set<std::uint32_t>& swept_later) {
  std::map<PageId, Presence> now;
  for (const AuditResidence& residence : audit.residences)
    if (residence.state == ResidenceState::kResident && residence.page_visible &&
        !swept_later.contains(residence.generation))
      now[{residence.ns, residence.key}] |= Presence{1} << residence.cls.value();
  for (auto& [page, record] : pages_) {
    const auto at = now.find(page);
    if (record.visible && (at == now.end() || at->second != record.presence)) {
      leave(page, record, {Reason::kEvicted, Reason::kDamaged, Reason::kRemoved});
    }
    if (at != now.end() && !record.visible) {
      record.visible = record.ever_visible = true;
      record.presence = at->second;
      const auto parent = parents_.find(page);
      link(page, parent == parents_.end() ? std::nullopt : std::optional<Key>(parent->second));
    }
    // It may have come and gone unseen.
    if (at == now.end() && !record.written.empty())
      record.past.insert({Reason::kEvicted, Reason::kDamaged, Reason::kRemoved});
  }
}

void Book::link(const PageId& page, const std::optional<Key>& parent) {
  Link& own = links_[page];
  own.visible = true;
  if (!parent || own.parent) return;
  own.parent = PageId{page.ns, *parent};
  links_[*own.parent].children.insert(page);
}

void Book::unlink(PageId page) {
  auto at = links_.find(page);
  if (at == links_.end()) return;
  at->second.visible = false;
  while (!at->second.visible && at->second.children.empty()) {
    const std::optional<PageId> parent = at->second.parent;
    links_.erase(at);
    if (!parent) return;
    at = links_.find(*parent);
    TIERCEL_CHECK(at != links_.end());
    at->second.children.erase(page);
    page = *parent;
  }
}

}  // namespace tiercel::sim
