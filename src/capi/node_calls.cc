// Calls of the ABI: names, node, session.
#include <cstdlib>
#include <string>

#include <tiercel/tiercel.h>

#include "capi/disk_calls.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/remote_calls.h"

using namespace tiercel;        // NOLINT(google-build-using-namespace): the ABI's functions stand outside
using namespace tiercel::capi;  // NOLINT(google-build-using-namespace)

// ---- names ----

uint32_t tiercel_abi_version(void) { return TIERCEL_ABI_VERSION; }

const char* tiercel_status_name(tiercel_status status) {
  if (status == TIERCEL_WRONG_PROCESS) return "wrong_process";
  return status <= TIERCEL_INTERNAL ? code_name(static_cast<Code>(status)).data() : "unknown";
}

const char* tiercel_reason_name(tiercel_reason reason) {
  return reason < kReasonCount ? reason_name(static_cast<Reason>(reason)).data() : "unknown";
}

const char* tiercel_outcome_name(tiercel_outcome outcome) {
  return outcome <= TIERCEL_ITEM_DAMAGED ? outcome_name(static_cast<StoreOutcome>(outcome)).data()
                                         : "unknown";
}

// ---- node ----

namespace {

static_assert(static_cast<int>(PolicyKind::kValue) == TIERCEL_POLICY_VALUE - 1);
static_assert(static_cast<int>(WritePolicy::kWriteBack) == TIERCEL_WRITE_BACK - 1);
static_assert(static_cast<int>(Verification::kSampled) == TIERCEL_VERIFY_SAMPLED - 1);
static_assert(static_cast<int>(SparseRetention::kAll) == TIERCEL_RETAIN_ALL - 1);

// 0: the default that is there already.
template <typename To, typename From>
void set(To& to, From from) {
  if (from != 0) to = static_cast<To>(from);
}
void set(Duration& to, std::uint64_t nanoseconds) {
  if (nanoseconds != 0) to = duration_of(nanoseconds);
}
template <typename Enum>
Answer set_enum(std::string_view name, Enum& to, std::uint32_t value, std::uint32_t last) {
  TIERCEL_RETURN_UNLESS_OK(check_enum(name, value, 0, last));
  if (value != 0) to = static_cast<Enum>(value - 1);
  return {};
}

Answer read_kinds(const tiercel_node_options& given, NodeOptions& node) {
  TIERCEL_RETURN_UNLESS_OK(set_enum("policy", node.policy, given.policy, TIERCEL_POLICY_VALUE));
  TIERCEL_RETURN_UNLESS_OK(
      set_enum("write_policy", node.write_policy, given.write_policy, TIERCEL_WRITE_BACK));
  TIERCEL_RETURN_UNLESS_OK(
      set_enum("verification", node.verification, given.verification, TIERCEL_VERIFY_SAMPLED));
  TIERCEL_RETURN_UNLESS_OK(set_enum("retention", node.retention, given.retention, TIERCEL_RETAIN_ALL));
  TIERCEL_RETURN_UNLESS_OK(check_enum("threading", given.threading, 0, TIERCEL_THREADING_CALLER));
  TIERCEL_RETURN_UNLESS_OK(check_enum("memory_kind", given.memory_kind, 0, TIERCEL_MEMORY_SHARED));
  TIERCEL_RETURN_UNLESS_OK(check_enum("host_mode", given.host_mode, 0, TIERCEL_HOST_NONE));
  if (given.host_mode > TIERCEL_HOST_CACHE) return unsupported("open: host_mode: only `cache` is built");
  return {};
}

bool switched_off() {
  const char* const value =
      std::getenv("TIERCEL_OFF");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
  return value != nullptr && *value != '\0' && std::string_view(value) != "0";
}

Answer read_node_options(const tiercel_node_options* options, CoreOptions& core) {
  tiercel_node_options given{};
  TIERCEL_RETURN_UNLESS_OK(read_options("open", options, given));
  constexpr std::uint32_t kThreadsMax = 256;
  if (given.copy_threads > kThreadsMax || given.touch_threads > kThreadsMax)
    return invalid(fmt::format("open: copy_threads is {}, touch_threads {}, at most {} each",
                               given.copy_threads, given.touch_threads, kThreadsMax));
  NodeOptions& node = core.node;
  TIERCEL_RETURN_UNLESS_OK(read_kinds(given, node));
  node.host_bytes = given.host_bytes;
  set(node.extent_bytes, given.extent_bytes);
  node.index_pages_max = given.index_pages_max;
  node.history_entries = given.history_entries;
  node.advice_entries = given.advice_entries;
  set(node.record_bytes_max, given.record_bytes_max);
  set(node.pages_max, given.pages_max);
  set(node.snapshot_budget, given.snapshot_budget);
  node.in_flight_bytes_max = given.in_flight_bytes_max;
  set(node.move_bytes_max, given.move_bytes_max);
  set(node.load_back_threshold_tokens, given.load_back_threshold_tokens);
  set(node.ticket_ttl, given.ticket_ttl_ns);
  set(node.reservation_ttl, given.reservation_ttl_ns);
  set(node.operation_deadline, given.operation_deadline_ns);
  set(node.writer_grace, given.writer_grace_ns);
  if (given.client_share < 0 || given.client_share > 0) node.client_share = given.client_share;
  set(node.operations_max, given.operations_max);
  set(node.tickets_max, given.tickets_max);
  set(node.requests_max, given.requests_max);
  set(node.completions_max, given.completions_max);
  set(node.events_max, given.events_max);
  set(node.sampled_one_in, given.sampled_one_in);
  set(node.selective_threshold, given.selective_threshold);
  node.off = switched_off();
  set(core.seed, given.seed);
  static_assert(static_cast<int>(MappingKind::kShared) == TIERCEL_MEMORY_SHARED - 1);
  if (given.memory_kind != 0) core.memory = static_cast<MappingKind>(given.memory_kind - 1);
  core.touch_threads = given.touch_threads;
  if (given.progress != nullptr)
    core.progress = [call = given.progress, context = given.progress_context](
                        std::uint64_t done, std::uint64_t total) { return call(context, done, total) != 0; };
  core.caller_drives = given.threading == TIERCEL_THREADING_CALLER;
  core.copy_threads = given.copy_threads != 0 ? given.copy_threads : (core.caller_drives ? 0 : 1);
  TIERCEL_RETURN_UNLESS_OK(read_disk_options(given.disk, core));
  return read_remote_options(given.remote, core);
}

}  // namespace

tiercel_status tiercel_node_open(const tiercel_node_options* options, tiercel_node** node,
                                 tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check_out("open: node", node));
    CoreOptions core_options;
    TIERCEL_RETURN_UNLESS_OK(read_node_options(options, core_options));
    auto handle = std::make_unique<tiercel_node>();
    auto core = Core::open(core_options);
    if (!core) return core.error();
    handle->core = std::move(*core);
    *node = handle.release();
    return {};
  });
}

tiercel_status tiercel_node_close(tiercel_node* node, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    if (node == nullptr) return {};
    TIERCEL_RETURN_UNLESS_OK(check(node));
    node->core->close();
    delete node;
    return {};
  });
}

tiercel_status tiercel_poll(tiercel_node* node, uint64_t budget_ns, uint64_t* steps, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([](Live&) { return Answer{}; }));
    const std::uint64_t done = node->core->drive(duration_of(budget_ns));
    if (steps != nullptr) *steps = done;
    return {};
  });
}

// ---- session ----

tiercel_status tiercel_session_open(tiercel_node* node, const tiercel_session_options* options,
                                    tiercel_session** session, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(node));
    TIERCEL_RETURN_UNLESS_OK(check_out("session_open: session", session));
    constexpr std::uint64_t kSaltMax = 64 << 10;
    tiercel_session_options given{};
    TIERCEL_RETURN_UNLESS_OK(read_optional("session_open", options, given));
    SessionOptions wanted;
    TIERCEL_RETURN_UNLESS_OK(read_text("session_open: name", given.name, wanted.name));
    TIERCEL_RETURN_UNLESS_OK(
        read_bytes("session_open: tenant_salt", given.tenant_salt, kSaltMax, wanted.tenant_salt));
    set(wanted.bytes_max, given.bytes_max);
    auto handle = std::make_unique<tiercel_session>();
    handle->core = node->core;
    TIERCEL_RETURN_UNLESS_OK(node->core->locked([&](Live& live) -> Answer {
      const auto opened = live.node->open_session(wanted);
      if (!opened) return opened.error();
      live.sessions.emplace(*opened, SessionInfo{wanted.tenant_salt});
      handle->id = *opened;
      return {};
    }));
    *session = handle.release();
    return {};
  });
}

tiercel_status tiercel_session_close(tiercel_session* session, tiercel_error* error) {
  return answer(error, [&]() -> Answer {
    if (session == nullptr) return {};
    TIERCEL_RETURN_UNLESS_OK(check(session));
    const Answer closed = session->core->locked([&](Live& live) -> Answer {
      live.sessions.erase(session->id);
      live.forget_requests(session->id);
      return live.node->close_session(session->id);
    });
    static_cast<void>(closed.ok());  // of a closed node it has ended already
    delete session;
    return {};
  });
}
