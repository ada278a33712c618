// Calls of the ABI: operations and completion queues.
#include <algorithm>

#include <tiercel/tiercel.h>

#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

namespace {

static_assert(static_cast<int>(ItemOutcome::kNotDelivered) == TIERCEL_ENTRY_NOT_DELIVERED);

bool given(const Operation& op, tiercel_completion_kind kind) { return (op.given >> kind & 1) != 0; }

// Whether the operation can have such a completion at all.
Answer check_until(const Operation& op, tiercel_completion_kind until, bool has_disk) {
  TIERCEL_RETURN_UNLESS_OK(check_enum("operation_wait: until", until, 0, TIERCEL_COMPLETION_PREFETCHED));
  const bool lower = until == TIERCEL_COMPLETION_ACCEPTED || until == TIERCEL_COMPLETION_DURABLE;
  if (lower && !has_disk) return unsupported("operation_wait: the node has no tier below the host");
  const bool fits = until == 0 || until == TIERCEL_COMPLETION_QUIESCENT ||
                    (op.kind == OperationKind::kLoad && until == TIERCEL_COMPLETION_LOADED) ||
                    (op.kind == OperationKind::kStore &&
                     (until == TIERCEL_COMPLETION_SOURCE_FREE || until == TIERCEL_COMPLETION_VISIBLE)) ||
                    (op.tells_lower && lower) ||
                    (op.kind == OperationKind::kPrefetch && until == TIERCEL_COMPLETION_PREFETCHED) ||
                    (op.kind == OperationKind::kSuspend && until == TIERCEL_COMPLETION_SUSPENDED);
  return fits ? Answer{}
              : invalid(
                    fmt::format("operation_wait: this operation never has a completion of kind {}", until));
}

bool reached(const Operation& op, tiercel_completion_kind until) {
  if (until == 0) return op.last;
  return until == TIERCEL_COMPLETION_QUIESCENT ? op.quiescent : given(op, until);
}

Answer wrong_kind(std::string_view call, std::string_view wanted) {
  return invalid(fmt::format("{}: the operation is no {}", call, wanted));
}

}  // namespace

uint64_t tiercel_operation_id(const tiercel_operation* operation) {
  return mine(operation) ? operation->operation->id : 0;
}

tiercel_status tiercel_operation_poll(const tiercel_operation* operation, tiercel_state* state,
                                      tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    TIERCEL_RETURN_UNLESS_OK(check_out("operation_poll: state", state));
    operation->core->peek(
        [&](Live&) { *state = operation->operation->last ? TIERCEL_STATE_READY : TIERCEL_STATE_PENDING; });
    return {};
  });
}

tiercel_status tiercel_operation_wait(const tiercel_operation* operation, tiercel_completion_kind until,
                                      uint64_t deadline_ns, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    const Operation& op = *operation->operation;
    TIERCEL_RETURN_UNLESS_OK(check_until(op, until, operation->core->has_disk()));
    return operation->core->wait(deadline_ns, [&](Live&) -> std::optional<Answer> {
      return reached(op, until) ? std::optional(Answer{}) : std::nullopt;
    });
  });
}

tiercel_status tiercel_wait_layer(const tiercel_operation* operation, uint32_t layer, uint64_t deadline_ns,
                                  tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    const Operation& op = *operation->operation;
    if (op.kind != OperationKind::kLoad) return wrong_kind("wait_layer", "load");
    return operation->core->wait(deadline_ns, [&](Live&) -> std::optional<Answer> {
      if (std::find(op.layers_ready.begin(), op.layers_ready.end(), layer) != op.layers_ready.end())
        return Answer{};
      if (given(op, TIERCEL_COMPLETION_LOADED)) return Answer(op.load.status);
      return std::nullopt;
    });
  });
}

tiercel_status tiercel_operation_result_read(const tiercel_operation* operation,
                                             tiercel_operation_result* result, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    const Operation& op = *operation->operation;
    tiercel_operation_result out{};
    bool known = false;
    operation->core->peek([&](Live&) {
      out.quiescent = op.quiescent ? 1 : 0;
      if (op.kind == OperationKind::kLoad) {
        known = given(op, TIERCEL_COMPLETION_LOADED);
        out.length = op.load.length;
        out.status = static_cast<tiercel_status>(op.load.status.code);
        write_text(op.load.status.message, out.message);
      } else if (op.kind == OperationKind::kPrefetch) {
        known = op.last;
        out.length = op.prefetch.length;
        out.status = static_cast<tiercel_status>(op.prefetch.status.code);
        write_text(op.prefetch.status.message, out.message);
      } else {
        known = op.last || given(op, TIERCEL_COMPLETION_SOURCE_FREE);
        out.items = op.outcomes.size();
        out.items_ok = items_ok(op);
        out.length = op.class_sets;
        out.status = static_cast<tiercel_status>(op.lower.code);
        write_text(op.lower.message, out.message);
      }
    });
    if (!known) return {TIERCEL_UNAVAILABLE, "operation_result_read: it has not ended; wait for it"};
    return write_sized("operation_result_read", out, result);
  });
}

tiercel_status tiercel_load_outcomes(const tiercel_operation* operation, uint64_t target,
                                     tiercel_load_outcome* outcomes, uint64_t capacity, uint64_t* count,
                                     tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    const Operation& op = *operation->operation;
    if (op.kind != OperationKind::kLoad) return wrong_kind("load_outcomes", "load");
    std::vector<tiercel_load_outcome> out;
    Answer found{TIERCEL_UNAVAILABLE, "load_outcomes: the load has no result yet; wait for it"};
    operation->core->peek([&](Live&) {
      if (!given(op, TIERCEL_COMPLETION_LOADED)) return;
      if (target >= op.load.outcomes.size()) {
        found = invalid(fmt::format("load_outcomes: target {} of {}", target, op.load.outcomes.size()));
        return;
      }
      found = {};
      for (const ItemOutcome outcome : op.load.outcomes[target])
        out.push_back(static_cast<tiercel_load_outcome>(outcome));
    });
    TIERCEL_RETURN_UNLESS_OK(found);
    return write_list<tiercel_load_outcome>("load_outcomes", out, outcomes, capacity, count);
  });
}

tiercel_status tiercel_store_outcomes(const tiercel_operation* operation, tiercel_outcome* outcomes,
                                      uint64_t capacity, uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(operation));
    const Operation& op = *operation->operation;
    if (op.kind != OperationKind::kStore) return wrong_kind("store_outcomes", "store");
    std::vector<tiercel_outcome> out;
    operation->core->peek([&](Live&) {
      for (const StoreOutcome outcome : op.outcomes) out.push_back(static_cast<tiercel_outcome>(outcome));
    });
    return write_list<tiercel_outcome>("store_outcomes", out, outcomes, capacity, count);
  });
}

tiercel_status tiercel_operation_cancel(tiercel_operation* operation, tiercel_error* error) {
  return locked_call(operation, error, [&](Live& live) -> Answer {
    const Operation& op = *operation->operation;
    if (!op.last && op.kind != OperationKind::kSuspend) live.node->cancel(OperationId(op.id));
    return {};
  });
}

void tiercel_operation_release(tiercel_operation* operation) {
  if (!mine(operation)) return;
  operation->operation->handle.store(nullptr);
  delete operation;
}

// ---- completion queues ----

tiercel_status tiercel_cq_create(tiercel_node* node, const tiercel_cq_options* options, tiercel_cq** cq,
                                 tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    TIERCEL_RETURN_UNLESS_OK(check_out("cq_create: cq", cq));
    constexpr std::uint64_t kCapacity = 65536;
    tiercel_cq_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_optional("cq_create", options, given));
    if (given.capacity > kListMax)
      return invalid(fmt::format("cq_create: capacity is {}, at most {}", given.capacity, kListMax));
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([](Live&) { return Answer{}; }));
    auto handle = std::make_unique<tiercel_cq>();
    handle->core = node->core;
    auto queue = CompletionQueue::create(given.capacity != 0 ? given.capacity : kCapacity);
    if (!queue) return queue.error();
    handle->queue = std::move(*queue);
    *cq = handle.release();
    return {};
  });
}

tiercel_status tiercel_cq_fd(const tiercel_cq* cq, int* fd, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(cq));
    TIERCEL_RETURN_UNLESS_OK(check_out("cq_fd: fd", fd));
    *fd = cq->queue->fd();
    return {};
  });
}

tiercel_status tiercel_cq_drain(tiercel_cq* cq, tiercel_completion* completions, uint64_t capacity,
                                uint64_t* count, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(cq));
    TIERCEL_RETURN_UNLESS_OK(check_out("cq_drain: count", count));
    if (completions == nullptr && capacity != 0) return invalid("cq_drain: completions is NULL");
    const auto room = static_cast<std::size_t>(std::min(capacity, kListMax));
    *count = cq->queue->drain(std::span(completions, room));
    return {};
  });
}

void tiercel_cq_release(tiercel_cq* cq) {
  if (!mine(cq)) return;
  cq->queue->close();
  delete cq;
}
