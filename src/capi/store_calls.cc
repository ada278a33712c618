// Calls of the ABI: store, offer, reserve and what follows it.
#include <algorithm>
#include <cstring>

#include <tiercel/tiercel.h>

#include "capi/options.h"
#include "capi/transfer_calls.h"
#include "memory/record.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(StoreOutcome::kInvalid) == TIERCEL_ITEM_INVALID);
static_assert(static_cast<int>(StoreOutcome::kBeingWritten) == TIERCEL_ITEM_BEING_WRITTEN);
static_assert(static_cast<int>(OfferEvent::kLeaving) == TIERCEL_OFFER_LEAVING - 1);

constexpr std::uint32_t kNumberMax = UINT16_MAX;  // of classes and shards, as the node counts them
constexpr std::uint64_t kNoSlot = UINT64_MAX;     // an item that the node will call invalid

// What of an item needs no lock. Errors: invalid_argument for the whole call: it cannot be read.
Answer check_item(const tiercel_store_item& item, std::size_t number) {
  TIERCEL_RETURN_UNLESS_OK(check_reserved(fmt::format("store: item {}", number), item.reserved));
  if (item.external.data == nullptr && item.external.size != 0)
    return invalid(fmt::format("store: external of item {} is NULL", number));
  if (item.external.size > kExternalDigestBytesMax)
    return invalid(fmt::format("store: external of item {} has {} bytes, at most {}", number,
                               item.external.size, kExternalDigestBytesMax));
  return {};
}

StoreItem read_item(const tiercel_store_item& item) {
  StoreItem out;
  out.key = key_of(item.key);
  if (item.length > 1) out.parent = key_of(item.parent);
  out.length = item.length;
  // Beyond what the node can count there is no such class: the largest one will do.
  out.cls = ClassId(static_cast<std::uint16_t>(std::min(item.class_id, kNumberMax)));
  out.shard = ShardId(static_cast<std::uint16_t>(std::min(item.shard, kNumberMax)));
  out.slot = item.slot;
  if (item.bytes != 0) out.bytes = item.bytes;
  out.resume_point = item.resume_point != 0;
  if (item.external.size != 0) {
    std::memcpy(out.external.bytes.data(), item.external.data, static_cast<std::size_t>(item.external.size));
    out.external.size = static_cast<std::uint8_t>(item.external.size);
  }
  return out;
}

Answer read_store(std::string_view name, const tiercel_store_options* options, tiercel_store_options& given,
                  std::span<const tiercel_store_item>& items) {
  TIERCEL_RETURN_UNLESS_OK(read_options(name, options, given));
  TIERCEL_RETURN_UNLESS_OK(read_list("store: items", given.items, given.item_count, items));
  for (std::size_t i = 0; i < items.size(); ++i) TIERCEL_RETURN_UNLESS_OK(check_item(items[i], i));
  return {};
}

StoreRequest request_of(const tiercel_namespace& ns, RequestId request,
                        std::span<const tiercel_store_item> items) {
  StoreRequest out;
  out.session = ns.session;
  out.ns = ns.id;
  out.request = request;
  for (const tiercel_store_item& item : items) out.items.push_back(read_item(item));
  return out;
}

// Sources that the call brings along get slots. Returns which slot each item has, kNoSlot: none of its own.
Answer bring_sources(const FormTable& table, std::span<const tiercel_store_item> items, Brought& brought,
                     StoreRequest& request) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].record.object_count == 0) continue;
    request.items[i].slot = kNoSlot;
    if (!check_class(table, items[i].class_id, items[i].shard).ok())
      continue;  // invalid, as the node will say
    bool fits = false;
    auto pieces = make_pieces(table, items[i].class_id, items[i].record, &fits);
    if (!pieces) return pieces.error();
    if (fits)
      TIERCEL_RETURN_UNLESS_OK(
          brought.add(items[i].class_id, items[i].shard, std::move(*pieces), request.items[i].slot));
  }
  return {};
}

// Registered slots that the accepted items read.
std::vector<SourceSlot> sources_of(const FormTable& table, std::span<const tiercel_store_item> items,
                                   std::span<const StoreOutcome> outcomes) {
  std::vector<SourceSlot> sources;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (outcomes[i] == StoreOutcome::kAccepted && items[i].record.object_count == 0)
      sources.push_back({table.id, ClassId(static_cast<std::uint16_t>(items[i].class_id)),
                         ShardId(static_cast<std::uint16_t>(items[i].shard)), items[i].slot});
  return sources;
}

void write_outcomes(std::span<const StoreOutcome> from, tiercel_outcome* to) {
  if (to == nullptr) return;
  std::transform(from.begin(), from.end(), to,
                 [](StoreOutcome outcome) { return static_cast<tiercel_outcome>(outcome); });
}

}  // namespace

tiercel_status tiercel_store(tiercel_namespace* ns, const tiercel_store_options* options,
                             tiercel_outcome* outcomes, tiercel_operation** operation, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    tiercel_store_options given{};
    std::span<const tiercel_store_item> items;
    TIERCEL_RETURN_UNLESS_OK(read_store("store", options, given, items));
    Start start;
    TIERCEL_RETURN_UNLESS_OK(
        start.prepare(ns->core, OperationKind::kStore, given.cq, given.user_data, operation != nullptr));
    std::vector<StoreOutcome> admitted;
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      Brought brought(*ns->core, live, *ns->table);
      RequestName name(live, ns->session, given.request);
      StoreRequest request = request_of(*ns, name.id(), items);
      TIERCEL_RETURN_UNLESS_OK(waiting_event(live, given.after_event, request.after_event));
      if (given.deadline_ns != 0) request.deadline = duration_of(given.deadline_ns);
      TIERCEL_RETURN_UNLESS_OK(bring_sources(*ns->table, items, brought, request));
      auto stored = live.node->store(std::move(request));
      if (!stored) return stored.error();
      name.keep();
      admitted = stored->outcomes;
      Operation& op = start.operation();
      op.outcomes = std::move(stored->outcomes);
      op.sources = sources_of(*ns->table, items, admitted);
      op.brought = brought.take();  // those of refused items too: they go with the rest
      start.begin(live, stored->operation);
      ns->core->expect(given.deadline_ns, live);
      return {};
    }));
    write_outcomes(admitted, outcomes);
    start.give(operation);
    return {};
  });
}

tiercel_status tiercel_offer(tiercel_namespace* ns, const tiercel_offer_options* options, uint64_t* wanted,
                             tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    tiercel_offer_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("offer", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("offer", given.reserved));
    TIERCEL_RETURN_UNLESS_OK(
        check_enum("offer: event", given.event, TIERCEL_OFFER_COMPUTED, TIERCEL_OFFER_LEAVING));
    std::span<const tiercel_key> keys;
    std::span<const std::uint64_t> points;
    TIERCEL_RETURN_UNLESS_OK(read_list("offer: keys", given.keys, given.key_count, keys));
    TIERCEL_RETURN_UNLESS_OK(read_list("offer: points", given.points, given.point_count, points));
    if (given.first_page > kChainPagesMax)
      return invalid(fmt::format("offer: first_page is {}, at most {}", given.first_page, kChainPagesMax));
    if (wanted == nullptr && !keys.empty()) return invalid("offer: wanted is NULL");
    const std::vector<Key> names = keys_of(keys);
    return ns->core->locked([&](Live& live) -> Answer {
      OfferRequest request;
      request.session = ns->session;
      request.ns = ns->id;
      const RequestName name(live, ns->session, given.request);  // an offer begins none
      request.request = name.id();
      request.keys = names;
      request.first_page = given.first_page;
      request.event = static_cast<OfferEvent>(given.event - 1);
      request.points = points;
      const std::vector<Presence> bits = live.node->offer(request);
      std::copy(bits.begin(), bits.end(), wanted);
      return {};
    });
  });
}

// ---- reservations ----

tiercel_status tiercel_reserve(tiercel_namespace* ns, const tiercel_store_options* options,
                               tiercel_outcome* outcomes, tiercel_reservation** reservation,
                               tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("reserve: reservation", reservation));
    tiercel_store_options given{};
    std::span<const tiercel_store_item> items;
    TIERCEL_RETURN_UNLESS_OK(read_store("reserve", options, given, items));
    auto handle = std::make_unique<tiercel_reservation>();
    handle->core = ns->core;
    handle->table = ns->table;
    handle->ns = ns->id;
    std::vector<StoreOutcome> admitted;
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      RequestName name(live, ns->session, given.request);
      auto made = live.node->reserve(request_of(*ns, name.id(), items));
      if (!made) return made.error();
      name.keep();
      handle->id = made->reservation;
      admitted = std::move(made->outcomes);
      return {};
    }));
    for (std::size_t i = 0; i < items.size(); ++i)
      handle->items.push_back({key_of(items[i].key), items[i].class_id, admitted[i]});
    write_outcomes(admitted, outcomes);
    *reservation = handle.release();
    return {};
  });
}

namespace {

// The payload's memory: what follows the header in the record's spans.
std::vector<tiercel_segment> payload_of(Arena& arena, const ClassForm& cls,
                                        std::span<const ArenaSpan> spans) {
  std::vector<tiercel_segment> out;
  const std::uint64_t header = header_bytes(cls);
  for (std::uint64_t done = 0; done < cls.record_bytes;) {
    const MutableByteView view = arena.view(spans, header + done, cls.record_bytes - done);
    out.push_back({view.data(), view.size()});
    done += view.size();
  }
  return out;
}

}  // namespace

tiercel_status tiercel_reservation_spans(const tiercel_reservation* reservation, uint64_t item,
                                         tiercel_segment* spans, uint64_t capacity, uint64_t* count,
                                         tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(reservation));
    if (item >= reservation->items.size())
      return invalid(fmt::format("reservation_spans: item {} of {}", item, reservation->items.size()));
    std::vector<tiercel_segment> payload;
    TIERCEL_RETURN_UNLESS_OK(reservation->core->locked([&](Live& live) -> Answer {
      const auto places = live.node->reserved_spans(reservation->id, static_cast<std::size_t>(item));
      if (places.empty())
        return {TIERCEL_NOT_FOUND,
                fmt::format("reservation_spans: item {} was not accepted, or has ended", item)};
      const ClassForm& cls = reservation->table->form.classes[reservation->items[item].cls];
      payload = payload_of(reservation->core->arena().extents(), cls, places);
      return {};
    }));
    return write_list<tiercel_segment>("reservation_spans", payload, spans, capacity, count);
  });
}

namespace {

// Every item is something that may come after its page, and the pages are there.
Answer check_attach(const tiercel_reservation& reservation, Live& live) {
  for (const tiercel_reservation::Item& item : reservation.items) {
    if (item.outcome != StoreOutcome::kAccepted) continue;
    if (reservation.table->form.classes[item.cls].required())
      return invalid(
          fmt::format("attach: class {} is required: it comes with its page, use commit", item.cls));
    if (!live.node->why(reservation.ns, item.key).resident)
      return {TIERCEL_FAILED_PRECONDITION,
              "attach: a page is not visible; commit stores it as a page of its own"};
  }
  return {};
}

tiercel_status end_reservation(std::string_view name, tiercel_reservation* reservation,
                               const tiercel_commit_options* options, bool attach,
                               tiercel_operation** operation, tiercel_error* error) noexcept {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(reservation));
    tiercel_commit_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_optional(name, options, given));
    Start start;
    TIERCEL_RETURN_UNLESS_OK(start.prepare(reservation->core, OperationKind::kStore, given.cq,
                                           given.user_data, operation != nullptr));
    TIERCEL_RETURN_UNLESS_OK(reservation->core->locked([&](Live& live) -> Answer {
      if (reservation->ended)
        return {TIERCEL_NOT_FOUND, fmt::format("{}: the reservation has ended; reserve again", name)};
      if (attach) TIERCEL_RETURN_UNLESS_OK(check_attach(*reservation, live));
      reservation->ended = true;
      for (const tiercel_reservation::Item& item : reservation->items)
        start.operation().outcomes.push_back(item.outcome);
      OperationId id;
      if (reservation->id != ReservationId{}) {
        const auto committed = live.node->commit(reservation->id);
        if (!committed) return committed.error();
        id = *committed;
      }
      start.begin(live, id);
      return {};
    }));
    start.give(operation);
    return {};
  });
}

}  // namespace

tiercel_status tiercel_commit(tiercel_reservation* reservation, const tiercel_commit_options* options,
                              tiercel_operation** operation, tiercel_error* error) {
  return end_reservation("commit", reservation, options, false, operation, error);
}

tiercel_status tiercel_attach(tiercel_reservation* reservation, const tiercel_commit_options* options,
                              tiercel_operation** operation, tiercel_error* error) {
  return end_reservation("attach", reservation, options, true, operation, error);
}

tiercel_status tiercel_abort(tiercel_reservation* reservation, tiercel_error* error) {
  return locked_call(reservation, error, [&](Live& live) -> Answer {
    if (!std::exchange(reservation->ended, true)) live.node->abort(reservation->id);
    return {};
  });
}

void tiercel_reservation_release(tiercel_reservation* reservation) {
  if (!mine(reservation)) return;
  reservation->core->peek([&](Live& live) {
    if (live.node != nullptr && !std::exchange(reservation->ended, true)) live.node->abort(reservation->id);
  });
  delete reservation;
}
