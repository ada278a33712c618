// Calls of the ABI: load.
#include <tiercel/tiercel.h>

#include "capi/options.h"
#include "capi/transfer_calls.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace tiercel::capi {

Answer Brought::add(std::uint32_t class_id, std::uint32_t shard, Pieces pieces, std::uint64_t& slot) {
  const ClassId cls(static_cast<std::uint16_t>(class_id));
  const ShardId number(static_cast<std::uint16_t>(shard));
  MemoryUse& use = live_.memory_uses[{table_.id, cls, number}];
  if (use.registered)
    return {TIERCEL_FAILED_PRECONDITION,
            fmt::format("class {} shard {} has registered memory: name its slots, or unregister it", class_id,
                        shard)};
  if (!use.brought) {
    use.brought = core_.memory().add_pool(table_.form.classes[class_id].record_bytes);
    if (!use.brought) return {TIERCEL_RESOURCE_EXHAUSTED, "no address space left for memory of this class"};
  }
  if (!use.brought_now) {
    DevicePool pool = core_.memory().device_pool(*use.brought, cls, number);
    if (Status status = live_.node->register_memory(table_.id, std::move(pool)); !status.ok()) return status;
    use.brought_now = true;
  }
  const auto taken = core_.memory().take(*use.brought, std::move(pieces));
  if (!taken)
    return {TIERCEL_RESOURCE_EXHAUSTED,
            fmt::format("class {} shard {}: {} records with memory of their own are under way; wait for some",
                        class_id, shard, EngineMemory::kBroughtSlotsMax)};
  slots_.push_back({*use.brought, *taken});
  slot = *taken;
  return {};
}

Answer waiting_event(const Live& live, std::uint64_t event, std::uint64_t& wait_for) {
  if (event > live.last_event)
    return invalid(fmt::format("after_event: {} was not made by event_create", event));
  wait_for = live.events.contains(event) ? event : 0;
  return {};
}

}  // namespace tiercel::capi

namespace {

// Checked before anything is touched.
Answer check_target(const FormTable& table, const tiercel_load_target& target) {
  TIERCEL_RETURN_UNLESS_OK(check_reserved("load: a target", target.reserved));
  TIERCEL_RETURN_UNLESS_OK(check_class(table, target.class_id, target.shard));
  if (target.slots != nullptr && target.records != nullptr)
    return invalid("load: a target has slots and records; give one of them");
  std::span<const std::uint64_t> slots;
  if (target.records == nullptr) return read_list("load: slots", target.slots, target.count, slots);
  std::span<const tiercel_record_memory> records;
  return read_list("load: records", target.records, target.count, records);
}

Answer add_records(const FormTable& table, const tiercel_load_target& target, Brought& brought,
                   LoadTarget& out) {
  for (std::uint64_t i = 0; i < target.count; ++i) {
    std::uint64_t& slot = out.slots.emplace_back(kSkipSlot);
    if (target.records[i].object_count == 0) continue;
    bool fits = false;
    auto pieces = make_pieces(table, target.class_id, target.records[i], &fits);
    if (!pieces) return pieces.error();
    if (!fits)
      return invalid(
          fmt::format("load: record {} of class {}: its segments are not {} bytes in the right shares", i,
                      target.class_id, table.form.classes[target.class_id].record_bytes));
    TIERCEL_RETURN_UNLESS_OK(brought.add(target.class_id, target.shard, std::move(*pieces), slot));
  }
  return {};
}

Answer add_targets(const FormTable& table, std::span<const tiercel_load_target> targets, Brought& brought,
                   LoadRequest& request) {
  for (const tiercel_load_target& target : targets) {
    LoadTarget& out = request.targets.emplace_back();
    out.cls = ClassId(static_cast<std::uint16_t>(target.class_id));
    out.shard = ShardId(static_cast<std::uint16_t>(target.shard));
    if (target.records != nullptr)
      TIERCEL_RETURN_UNLESS_OK(add_records(table, target, brought, out));
    else if (target.count != 0)
      out.slots.assign(target.slots, target.slots + target.count);
  }
  return {};
}

}  // namespace

tiercel_status tiercel_load(tiercel_ticket* ticket, const tiercel_load_options* options,
                            tiercel_operation** operation, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ticket));
    tiercel_load_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("load", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_enum("load: mode", given.mode, 0, TIERCEL_LOAD_MODE_LAYERED));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("load", given.reserved));
    std::span<const tiercel_load_target> targets;
    std::span<const std::uint32_t> layers;
    TIERCEL_RETURN_UNLESS_OK(read_list("load: targets", given.targets, given.target_count, targets));
    TIERCEL_RETURN_UNLESS_OK(read_list("load: layers", given.layers, given.layer_count, layers));
    const FormTable& table = *ticket->ticket->form;
    for (const tiercel_load_target& target : targets) TIERCEL_RETURN_UNLESS_OK(check_target(table, target));
    Start start;
    TIERCEL_RETURN_UNLESS_OK(
        start.prepare(ticket->core, OperationKind::kLoad, given.cq, given.user_data, operation != nullptr));
    TIERCEL_RETURN_UNLESS_OK(ticket->core->locked([&](Live& live) -> Answer {
      Brought brought(*ticket->core, live, table);
      LoadRequest request;
      request.ticket = ticket->ticket->id;
      request.length = given.length;
      request.mode = given.mode == TIERCEL_LOAD_MODE_LAYERED ? LoadMode::kLayered : LoadMode::kWhole;
      request.layers.assign(layers.begin(), layers.end());
      TIERCEL_RETURN_UNLESS_OK(waiting_event(live, given.after_event, request.after_event));
      if (given.deadline_ns != 0) request.deadline = duration_of(given.deadline_ns);
      TIERCEL_RETURN_UNLESS_OK(add_targets(table, targets, brought, request));
      const auto id = live.node->load(std::move(request));
      if (!id) return id.error();
      start.operation().brought = brought.take();
      start.begin(live, *id);
      ticket->core->expect(given.deadline_ns, live);
      return {};
    }));
    start.give(operation);
    return {};
  });
}
