// The host tier and the remote tier: what is asked for, what is offered when, what became of it. Which tier a
// class-set is read from is decided in promotion.cc; that all of it is read the same way, too.

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "node/state.h"

namespace tiercel {

namespace {

constexpr std::uint32_t kAsksMax = 4;  // of one match

Reason reason_of(const Status& status) {
  switch (status.code) {
    case Code::kDataCorrupt:
      return Reason::kDamaged;
    case Code::kNotFound:
      return Reason::kEvicted;
    case Code::kDeadlineExceeded:
      return Reason::kTooLate;
    default:
      return Reason::kTierDown;
  }
}

}  // namespace

void Node::State::open_on_remote(Namespace& ns) {
  if (world.remote == nullptr) return;
  RemoteSpaceName name;
  name.root = ns.root;
  name.form = ns.form->form;
  for (const ClassForm& cls : ns.form->form->classes)
    name.record_bytes.push_back(ns.form->header_bytes[cls.id.value()] +
                                world.arena.payload_kept(cls.record_bytes));
  ns.remote = world.remote->open_space(name);
}

RemoteEntry Node::State::remote_entry(const Residence& set) {
  const Namespace& ns = *namespaces.at(set.ns);
  const ClassForm& cls = ns.form->form->classes[set.cls.value()];
  RemoteEntry entry;
  entry.name = {ns.remote, set.key, set.cls};
  if (set.page != nullptr && set.page->parent != nullptr) entry.parent = set.page->parent->name.key;
  if (set.page != nullptr) entry.length = set.page->length;
  entry.shards =
      record_pieces(set, ns.form->header_bytes[set.cls.value()] + world.arena.payload_kept(cls.record_bytes));
  return entry;
}

// ---- what is there ----

bool Node::State::lower_down() const {
  return (world.disk == nullptr || world.disk->down()) && (world.remote == nullptr || world.remote->down());
}

std::vector<Presence> Node::State::below_presence(NamespaceId id, std::vector<Presence> presence,
                                                  std::span<const Key> keys, const Request* request) const {
  const Namespace& ns = *namespaces.at(id);
  if (world.remote == nullptr || options.off || retired(ns)) return presence;
  std::vector<Presence> remote(keys.size());
  world.remote->find_chain(ns.remote, keys, remote);
  for (std::size_t i = 0; i < keys.size(); ++i)
    if (request != nullptr && !request->failed.empty() && request->failed.contains(PageName{id, keys[i]}))
      remote[i] = 0;
  if (presence.empty()) return remote;
  for (std::size_t i = 0; i < keys.size(); ++i) presence[i] |= remote[i];
  return presence;
}

bool Node::State::remote_has(const Namespace& ns, const Key& key, ClassId cls) const {
  if (world.remote == nullptr || world.remote->down()) return false;
  Presence presence = 0;
  world.remote->find_chain(ns.remote, std::span(&key, 1), std::span(&presence, 1));
  return (presence >> cls.value() & 1) != 0;
}

// False: nothing to wait for; what is not known is not there, or `unanswered` says why nobody could ask.
bool Node::State::ask_remote(Ticket& ticket, Promotion& promotion) {
  const Namespace& ns = space_of(ticket.ns);
  if (world.remote == nullptr || options.off || retired(ns) || promotion.asks == kAsksMax) return false;
  const MatchQuery query = query_of(ticket, promotion);
  const Request* request =
      ticket.request == RequestId{} ? nullptr : request_of(ticket.request, ticket.session);
  const std::uint64_t first = ticket.view.first_page;
  std::vector<Presence> have =
      below_presence(ticket.ns, lower_presence(ticket.ns, first, ticket.keys, request), ticket.keys, request);
  std::vector<Page*> found(ticket.keys.size());
  pages.find_chain(current_space(space_of(ticket.ns)), first, ticket.keys, found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    have[i] |= visible_presence(query, request, ticket.keys[i], found[i]);
    for (const ClassForm& cls : ns.form->form->classes) {
      const std::uint64_t held = ticket.held[cls.id.value()];
      if (cls.is_state() ? first + i + 1 == held : first + i < held) have[i] |= Presence{1} << cls.id.value();
    }
  }
  const ResumeAnswer rule =
      restorable(*ns.form->form, ResumeQuery{have, first, ticket.held, promotion.limit_tokens});
  if (rule.longest >= rule.limit_pages || rule.limit_pages <= first) return false;
  RemoteQuestion question;
  question.space = ns.remote;
  question.first_page = first;
  question.keys =
      std::span(ticket.keys).first(std::min<std::uint64_t>(ticket.keys.size(), rule.limit_pages - first));
  question.have = std::span(have).first(question.keys.size());
  promotion.asking = world.remote->look_up(question);
  promotion.asks += promotion.asking ? 1 : 0;
  if (!promotion.asking && world.remote->down() && !TIERCEL_FAULT(remote_down_unsaid))
    ticket.unanswered = Reason::kTierDown;
  return promotion.asking.has_value();
}

void Node::State::looked_up(RemoteLookupId lookup, const Status& status) {
  for (auto& [id, promotion] : promotions) {
    if (promotion.asking != lookup) continue;
    promotion.asking.reset();
    Ticket& ticket = tickets.at(id);
    if (!status.ok() || TIERCEL_FAULT(remote_miss_called_down)) ticket.unanswered = reason_of(status);
    plan_promotion(ticket, promotion);
    return;
  }
}

// ---- offers ----

bool Node::State::remote_there(const Residence& set) const {
  return set.remote == DiskState::kThere && set.remote_mark == space_of(set.ns).remote_mark();
}

void Node::State::offer_remote(Residence& set) {
  if (world.remote == nullptr || set.page == nullptr || set.state != ResidenceState::kResident) return;
  if (remote_there(set) || set.remote == DiskState::kWriting || set.remote == DiskState::kRefused) return;
  const Namespace& ns = space_of(set.ns);
  if (set.writer_lives() || !current(*set.page)) return;
  if (!world.remote->usable(ns.remote)) return wait_for_remote(set);
  const RemoteAnswer answer = world.remote->append(remote_entry(set));
  switch (answer.verdict) {
    case RemoteVerdict::kAccepted:
      set.remote = DiskState::kWriting;
      if (!TIERCEL_FAULT(remote_frees_source_early)) ++set.copies;
      remote_appends.emplace(answer.append, set.id);
      stats.remote_writing_bytes += set.payload_bytes;
      return;
    case RemoteVerdict::kAlreadyThere:
      set.remote = DiskState::kThere;
      set.remote_mark = ns.remote_mark();
      return;
    case RemoteVerdict::kTooLarge:
      set.remote = DiskState::kRefused;
      ++stats.remote_refused;
      return;
    case RemoteVerdict::kRateLimited:
    case RemoteVerdict::kTierDown:
      return wait_for_remote(set);
  }
}

void Node::State::wait_for_remote(Residence& set) {
  if (std::exchange(set.remote, DiskState::kWaiting) == DiskState::kWaiting) return;
  to_offer_remote.push_back(set.id);
  // While the store is away others come and go: those that went are forgotten when they are the most.
  if (to_offer_remote.size() > 2 * residences.size() + 64)
    std::erase_if(to_offer_remote, [&](std::uint64_t id) { return residence(id) == nullptr; });
}

void Node::State::offer_waiting_remote() {
  if (world.remote == nullptr || world.remote->down()) return;
  for (std::size_t tries = std::min<std::size_t>(to_offer_remote.size(), 256); tries != 0; --tries) {
    const std::uint64_t id = to_offer_remote.front();
    Residence* set = residence(id);
    const bool usable = set != nullptr && world.remote->usable(space_of(set->ns).remote);
    if (set != nullptr && set->page != nullptr && set->remote == DiskState::kWaiting) {
      offer_remote(*set);
      // No room: it stays the first. Its namespace is not known there yet: the others go first.
      if (set->remote == DiskState::kWaiting && usable) return;
      if (set->remote == DiskState::kWaiting) to_offer_remote.push_back(id);
    }
    to_offer_remote.pop_front();
  }
}

void Node::State::remote_offer_ended(Residence& set, bool written) {
  if (set.copies != 0) --set.copies;
  stats.remote_writing_bytes -= set.payload_bytes;
  set.remote = written ? DiskState::kThere : DiskState::kUnknown;
  set.remote_mark = space_of(set.ns).remote_mark();
  if (written) {
    ++stats.remote_demoted;
    stats.remote_demoted_bytes += set.payload_bytes;
  }
  if (set.page != nullptr) return drop_if_unneeded(set);
  free_if_unused(set);
}

std::size_t Node::State::remote_events() {
  if (world.remote == nullptr) return 0;
  std::size_t done = world.remote->poll();
  for (const RemoteTierEvent& event : world.remote->drain_events()) {
    ++done;
    switch (event.kind) {
      case RemoteTierEvent::Kind::kLookedUp:
        looked_up(event.lookup, event.status);
        break;
      case RemoteTierEvent::Kind::kRead: {
        const auto at = remote_reads.find(event.read);
        TIERCEL_CHECK(at != remote_reads.end());
        Residence* set = residence(at->second);
        remote_reads.erase(at);
        TIERCEL_CHECK(set != nullptr);
        read_done(*set, event.status, reason_of(event.status));
        break;
      }
      case RemoteTierEvent::Kind::kWritten:
      case RemoteTierEvent::Kind::kLost: {
        const auto at = remote_appends.find(event.append);
        TIERCEL_CHECK(at != remote_appends.end());
        Residence* set = residence(at->second);
        remote_appends.erase(at);
        TIERCEL_CHECK(set != nullptr);
        remote_offer_ended(*set, event.kind == RemoteTierEvent::Kind::kWritten);
        break;
      }
    }
  }
  offer_waiting_remote();
  return done;
}

// ---- removals ----

// Pages are removed there with their whole namespace (decision 0011).
void Node::State::clear_remote(Namespace& ns) {
  if (world.remote == nullptr || TIERCEL_FAULT(clear_forgets_remote)) return;
  ++ns.remote_clears;
  world.remote->clear(ns.remote);
}

void Node::State::clear_remote(Form& form) {
  if (world.remote == nullptr || TIERCEL_FAULT(clear_forgets_remote)) return;
  ++form.remote_clears;
  world.remote->clear_form(form.form->fingerprint);
}

Status Node::State::settle_remote(std::string_view call) {
  if (world.remote == nullptr || !world.remote->clearing()) return {};
  if (world.remote->settle(options.remote.record_deadline).ok()) return {};
  return {Code::kUnavailable,
          fmt::format("{}: it holds now, but the remote store has not confirmed it; when this process has "
                      "ended what was removed may be found there again, so call it again when the store is "
                      "back",
                      call)};
}

// ---- the end ----

void Node::close_remote(Duration at_most) {
  State& s = *state_;
  if (s.world.remote == nullptr) return;
  while (!s.promotions.empty())
    s.give_up_promotion(s.promotions.begin()->first,
                        Status{Code::kCancelled, "the remote tier is being closed"});
  s.offer_waiting_remote();
  s.world.remote->close(at_most);
  s.remote_events();
  s.to_offer_remote.clear();
}

const RemoteTier* Node::remote() const { return state_->world.remote; }

bool Node::storing_remotely() const {
  return !state_->remote_appends.empty() || !state_->to_offer_remote.empty();
}

}  // namespace tiercel
