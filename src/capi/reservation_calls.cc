// Calls of the ABI: reserve and what follows it; writers in other processes.
#include <algorithm>
#include <string>

#include <tiercel/tiercel.h>

#include "base/crc32c.h"
#include "capi/arena_segments.h"
#include "capi/options.h"
#include "capi/store_items.h"
#include "capi/transfer_calls.h"
#include "memory/record.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

// Whether another process can map the arena.
Answer check_shared(std::string_view name, const Core& core) {
  if (core.memory_kind() == MappingKind::kShared) return {};
  return {TIERCEL_FAILED_PRECONDITION,
          fmt::format("{}: the arena is private memory, no other process can write to it; open the node with "
                      "memory_kind = TIERCEL_MEMORY_SHARED",
                      name)};
}

}  // namespace

tiercel_status tiercel_reserve(tiercel_namespace* ns, const tiercel_store_options* options,
                               tiercel_outcome* outcomes, tiercel_reservation** reservation,
                               tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    TIERCEL_RETURN_UNLESS_OK(check_out("reserve: reservation", reservation));
    tiercel_store_options given{};
    std::span<const tiercel_store_item> items;
    TIERCEL_RETURN_UNLESS_OK(read_store("reserve", options, given, items));
    TIERCEL_RETURN_UNLESS_OK(check_tell_lower("reserve", *ns->core, given));
    if (given.writer_pid != 0) TIERCEL_RETURN_UNLESS_OK(check_shared("reserve", *ns->core));
    auto handle = std::make_unique<tiercel_reservation>();
    handle->core = ns->core;
    handle->table = ns->table;
    handle->ns = ns->id;
    std::vector<StoreOutcome> admitted;
    TIERCEL_RETURN_UNLESS_OK(ns->core->locked([&](Live& live) -> Answer {
      RequestName name(live, ns->session, given.request);
      StoreRequest request = request_of(*ns, name.id(), items);
      handle->tells_lower = request.tell_lower = given.tell_lower != 0 && ns->core->disk_open(live);
      auto made = live.node->reserve(std::move(request), given.writer_pid);
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

tiercel_status tiercel_reservation_segments(const tiercel_reservation* reservation, uint64_t item,
                                            const char* layout, tiercel_file_segment* segments,
                                            uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(reservation));
    std::string order;
    TIERCEL_RETURN_UNLESS_OK(read_text("reservation_segments: layout", layout, order));
    if (item >= reservation->items.size())
      return invalid(fmt::format("reservation_segments: item {} of {}", item, reservation->items.size()));
    Core& core = *reservation->core;
    std::vector<ArenaSpan> places;
    std::shared_ptr<const std::vector<NamedRun>> fragments;
    const std::uint32_t class_id = reservation->items[item].cls;
    const std::pair name(class_id, layout == nullptr ? "record" : order);
    int fd = -1;
    std::uint64_t extents_at = 0;
    TIERCEL_RETURN_UNLESS_OK(core.locked([&](Live& live) -> Answer {
      TIERCEL_RETURN_UNLESS_OK(check_shared("reservation_segments", core));
      places = live.node->reserved_spans(reservation->id, static_cast<std::size_t>(item));
      if (places.empty())
        return {TIERCEL_NOT_FOUND,
                fmt::format("reservation_segments: item {} was not accepted, or has ended", item)};
      const auto known = reservation->fragments.find(name);
      if (known != reservation->fragments.end()) fragments = known->second;
      fd = core.arena().mapping().fd();
      extents_at = core.arena().layout().extents.offset.value();
      return {};
    }));
    if (fragments == nullptr) {  // made without the lock: it may take a while
      auto made = named_runs_of(*reservation->table, class_id, name.second);
      if (!made) return made.error();
      fragments = std::make_shared<const std::vector<NamedRun>>(std::move(*made));
      core.peek([&](Live&) { reservation->fragments.emplace(name, fragments); });
    }
    const std::uint64_t header = header_bytes(reservation->table->form.classes[class_id]);
    const auto pieces = file_segments(*fragments, header, places, extents_at, fd);
    return write_list<tiercel_file_segment>("reservation_segments", pieces, segments, capacity, count);
  });
}

namespace {

// It is in the host tier, on its way there, or only the disk has it.
bool has_page(const tiercel_reservation& reservation, const Key& key, const Live& live) {
  const PageView page = live.node->why(reservation.ns, key);
  return page.resident || page.own == Reason::kTooLate || page.own == Reason::kTierDown;
}

// Every item that is to be attached is something that may come after its page, and the pages are there.
Answer check_attach(const tiercel_reservation& reservation, const CommitRequest& what, Live& live) {
  for (std::size_t i = 0; i < reservation.items.size(); ++i) {
    const tiercel_reservation::Item& item = reservation.items[i];
    if (item.outcome != StoreOutcome::kAccepted) continue;
    if (what.arrived && std::none_of(what.arrived->begin(), what.arrived->end(),
                                     [&](const Arrival& arrival) { return arrival.item == i; }))
      continue;
    if (reservation.table->form.classes[item.cls].required())
      return invalid(
          fmt::format("attach: class {} is required: it comes with its page, use commit", item.cls));
    if (!has_page(reservation, item.key, live))
      return {
          TIERCEL_FAILED_PRECONDITION,
          "attach: neither the host tier nor the disk has the page; commit stores it as a page of its own"};
  }
  return {};
}

Answer read_arrivals(std::string_view name, const tiercel_commit_options& given, std::size_t items,
                     CommitRequest& what) {
  TIERCEL_RETURN_UNLESS_OK(check_reserved(name, given.reserved));
  std::span<const tiercel_arrival> arrivals;
  TIERCEL_RETURN_UNLESS_OK(
      read_list(fmt::format("{}: arrivals", name), given.arrivals, given.arrival_count, arrivals));
  what.trust_checksums = given.trust_checksums != 0;
  if (given.arrivals == nullptr) return {};
  what.arrived.emplace();
  for (const tiercel_arrival& arrival : arrivals) {
    TIERCEL_RETURN_UNLESS_OK(check_reserved(name, arrival.reserved));
    std::span<const std::uint32_t> checksums;
    TIERCEL_RETURN_UNLESS_OK(read_list(fmt::format("{}: checksums of item {}", name, arrival.item),
                                       arrival.checksums, arrival.checksum_count, checksums));
    if (arrival.item >= items)
      return invalid(fmt::format("{}: item {} is named, the reservation has {}", name, arrival.item, items));
    what.arrived->push_back({static_cast<std::size_t>(arrival.item), {checksums.begin(), checksums.end()}});
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
    CommitRequest what;
    TIERCEL_RETURN_UNLESS_OK(read_arrivals(name, given, reservation->items.size(), what));
    Start start;
    TIERCEL_RETURN_UNLESS_OK(start.prepare(reservation->core, OperationKind::kStore, given.cq,
                                           given.user_data, operation != nullptr));
    TIERCEL_RETURN_UNLESS_OK(reservation->core->locked([&](Live& live) -> Answer {
      if (reservation->ended)
        return {TIERCEL_NOT_FOUND, fmt::format("{}: the reservation has ended; reserve again", name)};
      if (attach) TIERCEL_RETURN_UNLESS_OK(check_attach(*reservation, what, live));
      for (const tiercel_reservation::Item& item : reservation->items)
        start.operation().outcomes.push_back(item.outcome);
      OperationId id;
      if (reservation->id != ReservationId{}) {
        const auto committed = live.node->commit(reservation->id, what);
        reservation->ended = committed || committed.error().code != Code::kInvalidArgument;
        if (!committed) return committed.error();
        id = *committed;
      }
      reservation->ended = true;
      start.operation().tells_lower = reservation->tells_lower && reservation->core->disk_open(live);
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

tiercel_status tiercel_writer_stopped(tiercel_reservation* reservation, tiercel_error* error) {
  return locked_call(reservation, error, [&](Live& live) -> Answer {
    live.node->writer_stopped(reservation->id);
    return {};
  });
}

tiercel_status tiercel_writers_read(tiercel_node* node, tiercel_writer_info* writers, uint64_t capacity,
                                    uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    std::vector<tiercel_writer_info> all;
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      for (const WriterView& view : live.node->writers()) {
        tiercel_writer_info& info = all.emplace_back(tiercel_writer_info{});
        info.reservations = view.reservations;
        info.reserved_bytes = view.reserved_bytes;
        info.quarantined_bytes = view.quarantined_bytes;
        info.pid = view.pid;
      }
      return {};
    }));
    return write_list<tiercel_writer_info>("writers_read", all, writers, capacity, count);
  });
}

uint32_t tiercel_crc32c(const void* data, uint64_t size, uint32_t before) {
  return crc32c({static_cast<const std::byte*>(data), static_cast<std::size_t>(size)}, before);
}

void tiercel_reservation_release(tiercel_reservation* reservation) {
  if (!mine(reservation)) return;
  reservation->core->peek([&](Live& live) {
    if (live.node != nullptr && !std::exchange(reservation->ended, true)) live.node->abort(reservation->id);
  });
  delete reservation;
}
