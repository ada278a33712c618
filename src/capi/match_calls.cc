// Calls of the ABI: match, tickets, exists.
#include <algorithm>
#include <cstring>

#include <tiercel/tiercel.h>

#include "base/crc32c.h"
#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(Reason::kEvicted) == TIERCEL_REASON_EVICTED);
static_assert(static_cast<int>(Reason::kUnknownPast) == TIERCEL_REASON_UNKNOWN_PAST);

// What a match asks, in the node's terms; the query's views point into it.
struct MatchCall {
  std::vector<Key> keys;
  std::span<const std::uint64_t> held;
  MatchQuery query;
};

Answer read_match(const tiercel_namespace& ns, const tiercel_match_options& given, MatchCall& call) {
  std::span<const tiercel_key> keys;
  TIERCEL_RETURN_UNLESS_OK(read_list("match: keys", given.keys, given.key_count, keys));
  TIERCEL_RETURN_UNLESS_OK(read_list("match: held", given.held, given.held_count, call.held));
  call.keys = keys_of(keys);
  MatchQuery& query = call.query;
  query.session = ns.session;
  query.ns = ns.id;
  query.keys = call.keys;
  query.first_page = given.first_page;
  query.held = call.held;
  query.limit_tokens = given.limit_tokens;
  query.prompt_tokens = given.prompt_tokens;
  query.touch = given.no_touch == 0;
  query.may_promote = given.may_promote != 0;
  if (given.deadline_ns != 0) query.deadline = duration_of(given.deadline_ns);
  constexpr tiercel_probe kNone{};
  if (given.probe != nullptr && std::memcmp(given.probe, &kNone, sizeof kNone) != 0) {
    const auto bytes = std::as_bytes(std::span(given.probe->bytes));
    query.probe = Probe{{load_le<std::uint64_t>(bytes.data()), load_le<std::uint64_t>(bytes.data() + 8)}};
  }
  return {};
}

// Before its answer is read.
Answer check_answered(const tiercel_ticket* ticket) {
  TIERCEL_RETURN_UNLESS_OK(check(ticket));
  if (ticket->ticket->answered.load(std::memory_order_acquire)) return {};
  return {TIERCEL_UNAVAILABLE, "the ticket is pending; wait for it"};
}

std::unique_ptr<tiercel_ticket> ticket_handle(const std::shared_ptr<Core>& core,
                                              std::shared_ptr<Ticket> ticket) {
  auto handle = std::make_unique<tiercel_ticket>();
  handle->core = core;
  handle->ticket = std::move(ticket);
  return handle;
}

}  // namespace

std::vector<tiercel_miss> tiercel::capi::misses_of(std::span<const Miss> misses) {
  std::vector<tiercel_miss> out;
  for (const Miss& miss : misses) {
    tiercel_miss& to = out.emplace_back(tiercel_miss{});
    to.first_page = miss.first_page;
    to.pages = miss.pages;
    to.tokens = miss.tokens;
    to.when_ns = static_cast<std::uint64_t>(miss.when.count());
    to.by = miss.by.value();
    to.reason = static_cast<tiercel_reason>(miss.reason);
    write_text(miss.field, to.field);
  }
  return out;
}

tiercel_status tiercel_match(tiercel_namespace* ns, const tiercel_match_options* options,
                             tiercel_ticket** ticket, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("match: ticket", ticket));
    tiercel_match_options given{};
    given.limit_tokens = TIERCEL_NO_LIMIT;
    TIERCEL_RETURN_UNLESS_OK(read_options("match", options, given));
    MatchCall call;
    TIERCEL_RETURN_UNLESS_OK(read_match(*ns, given, call));
    if (given.cq != nullptr) {
      TIERCEL_RETURN_UNLESS_OK(check(given.cq));
      if (given.cq->core != ns->core) return invalid("match: the completion queue is of another node");
      if (given.cq->queue->full())
        return {TIERCEL_RESOURCE_EXHAUSTED, "match: the completion queue is full; drain it"};
    }
    auto handle = ticket_handle(ns->core, std::make_shared<Ticket>());
    Ticket& made = *handle->ticket;
    made.session = ns->session;
    made.form = ns->table;
    made.handles = 1;
    if (given.cq != nullptr) made.cq = given.cq->queue;
    made.user_data = given.user_data;
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      RequestName request(live, ns->session, given.request);
      call.query.request = request.id();
      const auto id = live.node->match(call.query);
      if (!id) return id.error();
      request.keep();
      made.id = *id;
      live.begin(handle->ticket);
      if (made.answered.load()) return {};
      ns->core->look_now();
      ns->core->expect(given.deadline_ns, live);
      return {};
    }));
    *ticket = handle.release();
    return {};
  });
}

tiercel_status tiercel_exists(const tiercel_namespace* ns, uint32_t class_id, const tiercel_key* keys,
                              uint64_t key_count, tiercel_status* statuses, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_class(*ns->table, class_id, 0));
    std::span<const tiercel_key> given;
    TIERCEL_RETURN_UNLESS_OK(read_list("exists: keys", keys, key_count, given));
    if (statuses == nullptr && key_count != 0) return invalid("exists: statuses is NULL");
    const std::vector<Key> names = keys_of(given);
    return ns->core->locked([&](Live& live) -> Answer {
      const ClassId cls(static_cast<std::uint16_t>(class_id));
      for (std::size_t i = 0; i < names.size(); ++i)
        statuses[i] = live.node->exists(ns->id, cls, names[i]) ? TIERCEL_OK : TIERCEL_NOT_FOUND;
      return {};
    });
  });
}

// ---- tickets ----

uint64_t tiercel_ticket_id(const tiercel_ticket* ticket) {
  return mine(ticket) ? ticket->ticket->id.value() : 0;
}

tiercel_status tiercel_ticket_poll(const tiercel_ticket* ticket, tiercel_state* state, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ticket));
    TIERCEL_RETURN_UNLESS_OK(check_out("ticket_poll: state", state));
    ticket->core->peek([&](Live& live) {
      const bool open = live.node != nullptr && live.node->ticket(ticket->ticket->id) != nullptr;
      *state = !open                             ? TIERCEL_STATE_ENDED
               : ticket->ticket->answered.load() ? TIERCEL_STATE_READY
                                                 : TIERCEL_STATE_PENDING;
    });
    return {};
  });
}

tiercel_status tiercel_ticket_wait(const tiercel_ticket* ticket, uint64_t deadline_ns, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ticket));
    const Ticket& waited = *ticket->ticket;
    const auto answered = [&] { return waited.answered.load(std::memory_order_acquire); };
    if (answered()) return Answer(waited.status);
    return ticket->core->wait(deadline_ns, [&](Live&) -> std::optional<Answer> {
      return answered() ? std::optional(Answer(waited.status)) : std::nullopt;
    });
  });
}

tiercel_status tiercel_ticket_lengths(const tiercel_ticket* ticket, uint64_t* lengths, uint64_t capacity,
                                      uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_answered(ticket));
    return write_list<std::uint64_t>("ticket_lengths", ticket->ticket->view.lengths, lengths, capacity,
                                     count);
  });
}

tiercel_status tiercel_ticket_summary(const tiercel_ticket* ticket, tiercel_ticket_counts* counts,
                                      tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_answered(ticket));
    const TicketView& view = ticket->ticket->view;
    tiercel_ticket_counts out{};
    out.first_page = view.first_page;
    out.length = view.length;
    out.known_pages = view.known_pages;
    out.hit_tokens = view.hit_tokens;
    out.missed_tokens = view.missed_tokens;
    const std::uint64_t hit = view.length > view.first_page ? view.length - view.first_page : 0;
    out.remote_pages = std::min(view.remote_pages, hit);
    out.disk_pages = std::min(view.promoted_pages - view.remote_pages, hit - out.remote_pages);
    out.host_pages = hit - out.disk_pages - out.remote_pages;
    return write_sized("ticket_summary", out, counts);
  });
}

tiercel_status tiercel_ticket_resident(const tiercel_ticket* ticket, tiercel_tier tier, uint64_t* pages,
                                       uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_answered(ticket));
    if (tier == TIERCEL_TIER_REMOTE || (tier == TIERCEL_TIER_DISK && !ticket->core->has_disk()))
      return unsupported("ticket_resident: the node has no such tier");
    if (tier != TIERCEL_TIER_HOST && tier != TIERCEL_TIER_DISK)
      return invalid(fmt::format("ticket_resident: {} is not one tier", tier));
    const TicketView& view = ticket->ticket->view;
    std::vector<std::uint64_t> there = tier == TIERCEL_TIER_DISK ? view.on_disk : view.resident;
    there.resize(ticket->ticket->form->form.classes.size());  // of a disk that is switched off: none
    return write_list<std::uint64_t>("ticket_resident", there, pages, capacity, count);
  });
}

tiercel_status tiercel_ticket_reasons(const tiercel_ticket* ticket, tiercel_miss* misses, uint64_t capacity,
                                      uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_answered(ticket));
    return write_list<tiercel_miss>("ticket_reasons", misses_of(ticket->ticket->view.missed), misses,
                                    capacity, count);
  });
}

tiercel_status tiercel_snapshot_advice(tiercel_ticket* ticket, const tiercel_advice_options* options,
                                       uint64_t* lengths, uint64_t capacity, uint64_t* count,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_answered(ticket));
    tiercel_advice_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("snapshot_advice", options, given));
    AdviceQuery query;
    query.pages = given.pages;
    if (given.multiple_of != 0) query.multiple_of = given.multiple_of;
    if (given.at_most != 0) query.at_most = given.at_most;
    query.from = given.from;
    std::vector<std::uint64_t> advised;
    TIERCEL_RETURN_UNLESS_OK(ticket->core->locked([&](Live& live) -> Answer {
      if (live.node->ticket(ticket->ticket->id) == nullptr)
        return {TIERCEL_NOT_FOUND, "snapshot_advice: the ticket has ended; match again"};
      advised = live.node->snapshot_advice(ticket->ticket->id, query);
      return {};
    }));
    return write_list<std::uint64_t>("snapshot_advice", advised, lengths, capacity, count);
  });
}

tiercel_status tiercel_ticket_cancel(tiercel_ticket* ticket, tiercel_error* error) {
  return locked_call(ticket, error, [&](Live& live) -> Answer {
    live.node->release(ticket->ticket->id);
    return {};
  });
}

void tiercel_ticket_release(tiercel_ticket* ticket) {
  if (!mine(ticket)) return;
  ticket->core->peek([&](Live& live) {
    if (--ticket->ticket->handles != 0) return;
    live.tickets.erase(ticket->ticket->id);
    if (live.node != nullptr) live.node->release(ticket->ticket->id);
  });
  delete ticket;
}

// ---- tickets as bytes ----
// "TCLT", version u32 LE, instance of the node 16 bytes, ticket u64 LE, CRC32C of all before u32 LE.

namespace {
constexpr std::uint64_t kExportBytes = 4 + 4 + 16 + 8 + 4;
constexpr std::string_view kExportMagic = "TCLT";
constexpr std::uint32_t kExportVersion = 1;

struct Exported {
  std::array<std::byte, 16> instance{};
  TicketId ticket;
};

std::vector<std::byte> encode(const Exported& exported) {
  std::vector<std::byte> out;
  append_bytes(out, as_byte_view(kExportMagic));
  append_le(out, kExportVersion);
  append_bytes(out, exported.instance);
  append_le(out, exported.ticket.value());
  append_le(out, crc32c(out));
  return out;
}

Answer decode(ByteView bytes, Exported& out) {
  if (bytes.size() != kExportBytes)
    return invalid(
        fmt::format("ticket_import: {} bytes, an exported ticket has {}", bytes.size(), kExportBytes));
  const ByteView body = bytes.first(kExportBytes - 4);
  const ByteView magic = as_byte_view(kExportMagic);
  if (load_le<std::uint32_t>(bytes.data() + body.size()) != crc32c(body) ||
      !std::equal(magic.begin(), magic.end(), bytes.begin()))
    return invalid("ticket_import: these bytes are damaged, or no exported ticket");
  if (const auto version = load_le<std::uint32_t>(bytes.data() + 4); version != kExportVersion)
    return unsupported(
        fmt::format("ticket_import: version {}, this library knows {}", version, kExportVersion));
  std::copy_n(bytes.begin() + 8, out.instance.size(), out.instance.begin());
  out.ticket = TicketId(load_le<std::uint64_t>(bytes.data() + 24));
  return {};
}
}  // namespace

tiercel_status tiercel_ticket_export(const tiercel_ticket* ticket, void* bytes, uint64_t capacity,
                                     uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ticket));
    Exported exported;
    exported.ticket = ticket->ticket->id;
    ticket->core->peek([&](Live& live) { exported.instance = live.instance; });
    return write_list<std::byte>("ticket_export", encode(exported), static_cast<std::byte*>(bytes), capacity,
                                 count);
  });
}

tiercel_status tiercel_ticket_import(tiercel_session* session, const void* bytes, uint64_t size,
                                     tiercel_ticket** ticket, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(session));
    TIERCEL_RETURN_UNLESS_OK(check_out("ticket_import: ticket", ticket));
    std::span<const std::byte> given;
    TIERCEL_RETURN_UNLESS_OK(read_list("ticket_import", static_cast<const std::byte*>(bytes), size, given));
    Exported exported;
    TIERCEL_RETURN_UNLESS_OK(decode(given, exported));
    auto handle = ticket_handle(session->core, nullptr);
    TIERCEL_RETURN_UNLESS_OK(session->core->locked([&](Live& live) -> Answer {
      if (exported.instance != live.instance)
        return unsupported(
            "ticket_import: the ticket is of another node; this library has tickets of its own only");
      const auto found = live.tickets.find(exported.ticket);
      const auto owner =
          found != live.tickets.end() ? live.sessions.find(found->second->session) : live.sessions.end();
      const auto own = live.sessions.find(session->id);
      // Another tenant's ticket looks like one that has ended.
      if (owner == live.sessions.end() || own == live.sessions.end() ||
          owner->second.tenant_salt != own->second.tenant_salt ||
          live.node->ticket(exported.ticket) == nullptr)
        return {TIERCEL_NOT_FOUND, "ticket_import: the ticket has ended; match again"};
      ++found->second->handles;
      handle->ticket = found->second;
      return {};
    }));
    *ticket = handle.release();
    return {};
  });
}
