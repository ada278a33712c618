// Calls of the ABI: store, offer.
#include <algorithm>

#include <tiercel/tiercel.h>

#include "capi/options.h"
#include "capi/store_items.h"
#include "capi/transfer_calls.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(OfferEvent::kLeaving) == TIERCEL_OFFER_LEAVING - 1);

constexpr std::uint64_t kNoSlot = UINT64_MAX;  // an item that the node will call invalid

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

}  // namespace

tiercel_status tiercel_store(tiercel_namespace* ns, const tiercel_store_options* options,
                             tiercel_outcome* outcomes, tiercel_operation** operation, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    tiercel_store_options given{};
    std::span<const tiercel_store_item> items;
    TIERCEL_RETURN_UNLESS_OK(read_store("store", options, given, items));
    TIERCEL_RETURN_UNLESS_OK(check_tell_lower("store", *ns->core, given));
    if (given.writer_pid != 0)
      return invalid(
          "store: writer_pid is given, but a store copies from memory of this process; use reserve");
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
      request.tell_lower = given.tell_lower != 0 && ns->core->disk_open(live);
      TIERCEL_RETURN_UNLESS_OK(bring_sources(*ns->table, items, brought, request));
      auto stored = live.node->store(request);
      if (!stored) return stored.error();
      name.keep();
      admitted = stored->outcomes;
      Operation& op = start.operation();
      op.outcomes = std::move(stored->outcomes);
      op.tells_lower = request.tell_lower;
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
