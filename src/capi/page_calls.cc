// Calls of the ABI: requests, the lifetime of pages, flush, suspension.
#include <algorithm>

#include <tiercel/tiercel.h>

#include "capi/handles.h"
#include "capi/options.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

// ---- requests ----

tiercel_status tiercel_request_begin(tiercel_session* session, const tiercel_request_options* options,
                                     tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(session));
    tiercel_request_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_options("request_begin", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("request_begin", given.reserved));
    if (given.id == 0) return invalid("request_begin: id 0 means none; use another");
    if (given.priority != 0) return unsupported("request_begin: priorities are not built; leave it 0");
    if (given.salt.size != 0)
      return unsupported(
          "request_begin: a request's salt is not built; give it as an extra of the pages' keys");
    return session->core->locked([&](Live& live) -> Answer {
      RequestName name(live, session->id, given.id);
      Status status = live.node->request_begin(session->id, name.id());
      if (status.code == Code::kAlreadyExists)
        return {TIERCEL_ALREADY_EXISTS,
                fmt::format("request_begin: request {} is under way; end it first", given.id)};
      if (!status.ok()) return status;
      name.keep();
      if (given.ttl_ns != 0) {
        live.end_request_at(later(session->core->now(), duration_of(given.ttl_ns)), session->id, given.id);
        session->core->expect(given.ttl_ns, live);
      }
      return {};
    });
  });
}

namespace {

tiercel_status end_request(tiercel_session* session, std::uint64_t request, bool abort,
                           tiercel_error* error) noexcept {
  return locked_call(session, error, [&](Live& live) -> Answer {
    const RequestId id = live.known_request(session->id, request);
    if (abort)
      live.node->request_abort(id);
    else
      live.node->request_end(id);
    live.forget_request(session->id, request);
    return {};
  });
}

}  // namespace

tiercel_status tiercel_request_end(tiercel_session* session, uint64_t request, tiercel_error* error) {
  return end_request(session, request, false, error);
}

tiercel_status tiercel_request_abort(tiercel_session* session, uint64_t request, tiercel_error* error) {
  return end_request(session, request, true, error);
}

// ---- lifetime of pages ----

namespace {

// A call on a list of keys: checked, then body(Live&, keys) under the lock.
template <typename Body>
tiercel_status keys_call(std::string_view name, tiercel_namespace* ns, const tiercel_key* keys,
                         std::uint64_t key_count, tiercel_error* error, const Body& body) noexcept {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(ns));
    std::span<const tiercel_key> given;
    TIERCEL_RETURN_UNLESS_OK(read_list(name, keys, key_count, given));
    const std::vector<Key> names = keys_of(given);
    return ns->core->locked([&](Live& live) -> Answer { return body(live, names); });
  });
}

// Of the node's tiers none may be left out: what is cleared above would come back from below.
Answer check_tiers(const Core& core, tiercel_tier tiers) {
  const tiercel_tier all = core.has_disk() ? TIERCEL_TIER_HOST | TIERCEL_TIER_DISK : TIERCEL_TIER_HOST;
  if ((tiers & all) == all) return {};
  return unsupported(
      fmt::format("clear: tiers is {:#x}, the node has {:#x} and clears them together; name them all, or "
                  "TIERCEL_TIER_ALL",
                  tiers, all));
}

}  // namespace

tiercel_status tiercel_pin(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                           uint64_t ttl_ns, tiercel_error* error) {
  return keys_call("pin: keys", ns, keys, key_count, error,
                   [&](Live& live, const std::vector<Key>& names) -> Answer {
                     if (ttl_ns == 0) return invalid("pin: ttl_ns is 0; say for how long");
                     live.node->pin(ns->id, names, duration_of(ttl_ns));
                     ns->core->expect(ttl_ns, live);
                     return {};
                   });
}

tiercel_status tiercel_unpin(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                             tiercel_error* error) {
  return keys_call("unpin: keys", ns, keys, key_count, error,
                   [&](Live& live, const std::vector<Key>& names) -> Answer {
                     live.node->unpin(ns->id, names);
                     return {};
                   });
}

tiercel_status tiercel_touch(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                             uint64_t request, tiercel_error* error) {
  return keys_call("touch: keys", ns, keys, key_count, error,
                   [&](Live& live, const std::vector<Key>& names) -> Answer {
                     live.node->touch(ns->id, names, live.known_request(ns->session, request));
                     return {};
                   });
}

tiercel_status tiercel_remove(tiercel_namespace* ns, const tiercel_key* keys, uint64_t key_count,
                              tiercel_error* error) {
  return keys_call(
      "remove: keys", ns, keys, key_count, error,
      [&](Live& live, const std::vector<Key>& names) -> Answer { return live.node->remove(ns->id, names); });
}

tiercel_status tiercel_invalidate(tiercel_namespace* ns, tiercel_error* error) {
  return locked_call(ns, error, [&](Live& live) -> Answer { return live.node->invalidate(ns->id); });
}

tiercel_status tiercel_set_weights_epoch(tiercel_form* form, uint64_t epoch, tiercel_error* error) {
  return locked_call(form, error, [&](Live& live) -> Answer {
    return live.node->set_weights_epoch(form->table->id, epoch);
  });
}

tiercel_status tiercel_clear(tiercel_clear_scope scope, tiercel_namespace* ns, tiercel_form* form,
                             tiercel_tier tiers, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_enum("clear: scope", scope, TIERCEL_CLEAR_NAMESPACE, TIERCEL_CLEAR_FORM));
    if (tiers == 0 || tiers > TIERCEL_TIER_ALL)
      return invalid(fmt::format("clear: tiers is {:#x}; name one at least, or TIERCEL_TIER_ALL", tiers));
    if ((scope == TIERCEL_CLEAR_NAMESPACE) != (ns != nullptr) ||
        (scope == TIERCEL_CLEAR_FORM) != (form != nullptr))
      return invalid("clear: give the handle that the scope names, and NULL for the other");
    if (ns != nullptr) {
      TIERCEL_RETURN_UNLESS_OK(check(ns));
      TIERCEL_RETURN_UNLESS_OK(check_tiers(*ns->core, tiers));
      return ns->core->locked([&](Live& live) -> Answer { return live.node->clear(ns->id); });
    }
    TIERCEL_RETURN_UNLESS_OK(check(form));
    TIERCEL_RETURN_UNLESS_OK(check_tiers(*form->core, tiers));
    return form->core->locked([&](Live& live) -> Answer { return live.node->clear(form->table->id); });
  });
}

tiercel_status tiercel_flush(tiercel_node* node, uint64_t deadline_ns, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    Core& core = *node->core;
    const Time end = later(core.now(), duration_of(deadline_ns));
    std::vector<std::shared_ptr<Operation>> before;
    TIERCEL_RETURN_UNLESS_OK(core.locked([&](Live& live) -> Answer {
      before = live.stores_under_way();
      return {};
    }));
    TIERCEL_RETURN_UNLESS_OK(core.wait(deadline_ns, [&](Live&) -> std::optional<Answer> {
      for (const auto& store : before)
        if (!store->quiescent) return std::nullopt;
      return Answer{};
    }));
    const Duration rest = std::max(end - core.now(), Duration(0));
    Start start;
    bool waits = false;
    TIERCEL_RETURN_UNLESS_OK(start.prepare(node->core, OperationKind::kFlush, nullptr, 0, false));
    TIERCEL_RETURN_UNLESS_OK(core.locked([&](Live& live) -> Answer {
      if (!core.disk_open(live)) return {};
      const auto id = live.node->flush(rest);
      if (!id) return id.error();
      start.begin(live, *id);
      core.look_now();
      core.expect(static_cast<std::uint64_t>(rest.count()), live);
      waits = true;
      return {};
    }));
    if (!waits) return {};
    const Operation& flush = start.operation();
    // The node ends it at its deadline; this waits a little longer, to hear what it says.
    constexpr std::uint64_t kMore = 1'000'000'000;
    return core.wait(static_cast<std::uint64_t>(rest.count()) + kMore, [&](Live&) -> std::optional<Answer> {
      return flush.last ? std::optional(Answer(flush.flushed)) : std::nullopt;
    });
  });
}

tiercel_status tiercel_suspend(tiercel_node* node, const tiercel_commit_options* options,
                               tiercel_operation** operation, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    tiercel_commit_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_optional("suspend", options, given));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("suspend: arrivals", given.arrival_count));
    TIERCEL_RETURN_UNLESS_OK(check_reserved("suspend", given.reserved));
    Start start;
    TIERCEL_RETURN_UNLESS_OK(
        start.prepare(node->core, OperationKind::kSuspend, given.cq, given.user_data, operation != nullptr));
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      start.begin(live, OperationId{});
      live.suspend();
      return {};
    }));
    start.give(operation);
    return {};
  });
}

tiercel_status tiercel_resume(tiercel_node* node, tiercel_error* error) {
  return locked_call(node, error, [&](Live& live) -> Answer {
    live.resume();
    return {};
  });
}
