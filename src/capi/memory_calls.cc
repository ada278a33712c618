// Calls of the ABI: the engine's memory and its events.
#include <algorithm>

#include <tiercel/tiercel.h>

#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

constexpr std::size_t kEventsMax = 65536;

Answer read_memory(const FormTable& table, const tiercel_memory_options* options,
                   tiercel_memory_options& given) {
  TIERCEL_RETURN_UNLESS_OK(read_options("register_memory", options, given));
  TIERCEL_RETURN_UNLESS_OK(check_class(table, given.class_id, given.shard));
  TIERCEL_RETURN_UNLESS_OK(check_enum("register_memory: source", given.source, 0, TIERCEL_SOURCE_FD));
  if (given.source == TIERCEL_SOURCE_FD)
    return unsupported(
        "register_memory: memory by file descriptor is not built; map it and give the address");
  if (given.device != TIERCEL_DEVICE_HOST)
    return unsupported(
        fmt::format("register_memory: device {} is not built; give host memory", given.device));
  TIERCEL_RETURN_UNLESS_OK(check_reserved("register_memory", given.reserved));
  std::span<const tiercel_memory_run> runs;
  return read_list("register_memory: runs", given.runs, given.run_count, runs);
}

std::tuple<FormId, ClassId, ShardId> name_of(const FormTable& table, std::uint32_t class_id,
                                             std::uint32_t shard) {
  return {table.id, ClassId(static_cast<std::uint16_t>(class_id)),
          ShardId(static_cast<std::uint16_t>(shard))};
}

}  // namespace

Answer tiercel::capi::register_pool(const tiercel_form& form, const DevicePool& pool) {
  return form.core->locked([&](Live& live) -> Answer {
    if (Status status = live.node->register_memory(form.table->id, pool); !status.ok()) return status;
    MemoryUse& use = live.memory_uses[{form.table->id, pool.cls, pool.shard}];
    use.registered = true;
    use.brought_now = false;
    return {};
  });
}

tiercel_status tiercel_register_memory(tiercel_form* form, const tiercel_memory_options* options,
                                       tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    const FormTable& table = *form->table;
    tiercel_memory_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_memory(table, options, given));
    const auto pool = make_device_pool(table, given);
    if (!pool) return pool.error();
    return register_pool(*form, *pool);
  });
}

tiercel_status tiercel_unregister_memory(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                         uint64_t deadline_ns, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_class(*form->table, class_id, shard));
    const auto [id, cls, number] = name_of(*form->table, class_id, shard);
    const auto name = name_of(*form->table, class_id, shard);
    const FormId form_id = id;
    const ClassId class_number = cls;
    const ShardId shard_number = number;
    TIERCEL_RETURN_UNLESS_OK(form->core->locked([&](Live& live) -> Answer {
      const auto use = live.memory_uses.find(name);
      if (use == live.memory_uses.end() || !use->second.registered)
        return {TIERCEL_NOT_FOUND, "unregister_memory: no memory is registered for this class and shard"};
      return {};
    }));
    return form->core->wait(deadline_ns, [&](Live& live) -> std::optional<Answer> {
      if (live.node == nullptr) return std::nullopt;
      Status status = live.node->unregister_memory(form_id, class_number, shard_number);
      if (status.code == Code::kFailedPrecondition) return std::nullopt;  // copies use it
      if (status.ok()) live.memory_uses[name].registered = false;
      return Answer(std::move(status));
    });
  });
}

tiercel_status tiercel_wait_sources(tiercel_form* form, uint32_t class_id, uint32_t shard,
                                    const uint64_t* slots, uint64_t slot_count, uint64_t deadline_ns,
                                    tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_class(*form->table, class_id, shard));
    std::span<const std::uint64_t> given;
    TIERCEL_RETURN_UNLESS_OK(read_list("wait_sources: slots", slots, slot_count, given));
    const auto name = name_of(*form->table, class_id, shard);
    return form->core->wait(deadline_ns, [&](Live& live) -> std::optional<Answer> {
      const bool read = std::any_of(given.begin(), given.end(), [&](std::uint64_t slot) {
        return live.reads({std::get<0>(name), std::get<1>(name), std::get<2>(name), slot});
      });
      return read ? std::nullopt : std::optional(Answer{});
    });
  });
}

tiercel_status tiercel_event_create(tiercel_node* node, uint64_t* event, tiercel_error* error) {
  return locked_call(node, error, [&](Live& live) -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("event_create: event", event));
    if (live.events.size() >= kEventsMax)
      return {TIERCEL_RESOURCE_EXHAUSTED,
              fmt::format("event_create: {} events have not fired; fire some", kEventsMax)};
    *event = ++live.last_event;
    live.events.insert(live.last_event);
    return {};
  });
}

tiercel_status tiercel_event_fire(tiercel_node* node, uint64_t event, tiercel_error* error) {
  return locked_call(node, error, [&](Live& live) -> Answer {
    if (event == 0 || event > live.last_event)
      return invalid(fmt::format("event_fire: {} was not made by event_create", event));
    if (live.events.erase(event) != 0) live.node->event_done(event);
    return {};
  });
}
