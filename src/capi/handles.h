// What the ABI's opaque handles are, and the checks before each use.
//
// Threads: a handle is constant after it is made, except where it says otherwise; what changes stands behind
// the lock of its Core.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <tiercel/types.h>

#include "capi/answer.h"
#include "capi/arena_segments.h"
#include "capi/core.h"
#include "capi/form_table.h"
#include "capi/process.h"
#include "device/device.h"
#include "model/spec.h"
#include "os/mapping.h"

namespace tiercel::capi {

// First in every handle: which kind it is, and the process it was made in. Destroyed, it says so for as long
// as the memory is not used again: a mistake of the caller's is then mostly seen.
class Mark final {
 public:
  explicit Mark(std::uint64_t kind) : kind_(kind), generation_(fork_generation()) {}
  ~Mark() {
    volatile std::uint64_t* const kind = &kind_;
    *kind = 0;
  }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  bool is(std::uint64_t kind) const { return kind_ == kind; }
  bool here() const { return generation_ == fork_generation(); }

 private:
  std::uint64_t kind_;
  std::uint64_t generation_;
};

}  // namespace tiercel::capi

struct tiercel_node {
  static constexpr std::uint64_t kKind = 0x7469'6572'6365'6c01;
  static constexpr std::string_view kName = "node";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
};
struct tiercel_session {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 1;
  static constexpr std::string_view kName = "session";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  tiercel::SessionId id;
};
struct tiercel_spec {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 2;
  static constexpr std::string_view kName = "spec";
  tiercel::capi::Mark mark{kKind};
  tiercel::ModelSpec spec;
};
struct tiercel_spec_builder {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 3;
  static constexpr std::string_view kName = "spec builder";
  tiercel::capi::Mark mark{kKind};
  tiercel::ModelSpec spec;  // changes
};
struct tiercel_form {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 4;
  static constexpr std::string_view kName = "form";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<const tiercel::capi::FormTable> table;
};
struct tiercel_namespace {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 5;
  static constexpr std::string_view kName = "namespace";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<const tiercel::capi::FormTable> table;
  tiercel::SessionId session;
  tiercel::NamespaceId id;
  tiercel::Digest root{};
  std::string scheme;  // empty: our own chain over tokens
};
struct tiercel_ticket {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 6;
  static constexpr std::string_view kName = "ticket";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<tiercel::capi::Ticket> ticket;  // shared with other handles of it and the table in Live
};
struct tiercel_operation {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 7;
  static constexpr std::string_view kName = "operation";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<tiercel::capi::Operation> operation;  // shared with Live and completions that wait
};
struct tiercel_reservation {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 8;
  static constexpr std::string_view kName = "reservation";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<const tiercel::capi::FormTable> table;
  tiercel::NamespaceId ns;
  tiercel::ReservationId id;  // 0: nothing was accepted
  struct Item {
    tiercel::Key key;
    std::uint32_t cls = 0;
    tiercel::StoreOutcome outcome{};
  };
  std::vector<Item> items;
  bool ended = false;  // committed or aborted; behind the core's lock
  bool tells_lower = false;
  // By class and layout, made when first asked for; behind the core's lock.
  mutable std::map<std::pair<std::uint32_t, std::string>,
                   std::shared_ptr<const std::vector<tiercel::capi::NamedRun>>>
      fragments;
};
struct tiercel_cq {
  static constexpr std::uint64_t kKind = tiercel_node::kKind + 9;
  static constexpr std::string_view kName = "completion queue";
  tiercel::capi::Mark mark{kKind};
  std::shared_ptr<tiercel::capi::Core> core;
  std::shared_ptr<tiercel::capi::CompletionQueue> queue;  // shared with operations that complete into it
};

namespace tiercel::capi {

// Errors: invalid_argument: NULL, or no handle of this kind; wrong_process.
template <typename Handle>
Answer check(const Handle* handle) {
  if (handle == nullptr) return invalid(fmt::format("the {} is NULL", Handle::kName));
  if (!handle->mark.is(Handle::kKind))
    return invalid(fmt::format("the handle is not that of a {}, or was given back", Handle::kName));
  if (!handle->mark.here())
    return {TIERCEL_WRONG_PROCESS,
            fmt::format("the {} handle was made before a fork, in the parent; the child needs one of its own",
                        Handle::kName)};
  return {};
}

template <typename T>
Answer check_out(std::string_view name, const T* out) {
  return out != nullptr ? Answer{} : invalid(fmt::format("{} is NULL", name));
}

// Whether a handle may be freed here: not NULL, of its kind, of this process.
template <typename Handle>
bool mine(const Handle* handle) {
  return handle != nullptr && handle->mark.is(Handle::kKind) && handle->mark.here();
}

// Frees a handle that nothing else is to be done for. What its last owner's destructor throws ends here.
template <typename Handle>
void free_handle(Handle* handle) noexcept {
  if (mine(handle)) delete handle;
}

// The body of a call on one handle: checked, then under the node's lock.
template <typename Handle, typename Body>
tiercel_status locked_call(Handle* handle, tiercel_error* error, const Body& body) noexcept {
  return answer(error, [&]() -> Answer {
    TIERCEL_RETURN_UNLESS_OK(check(handle));
    return handle->core->locked(body);
  });
}

Key key_of(const tiercel_key& key);
tiercel_key key_of(const Key& key);
std::vector<Key> keys_of(std::span<const tiercel_key> keys);

// The engine's memory of one class and shard, as the node keeps it. Errors: what the node says.
Answer register_pool(const tiercel_form& form, const DevicePool& pool);

tiercel_page_kind page_kind_of(PageKind kind);
std::vector<tiercel_miss> misses_of(std::span<const Miss> misses);

// An operation that is about to be begun: its handle is made before, so that nothing fails after.
class Start final {
 public:
  // `cq` may be null. Errors: invalid_argument; resource_exhausted: the queue is full.
  Answer prepare(const std::shared_ptr<Core>& core, OperationKind kind, tiercel_cq* cq,
                 std::uint64_t user_data, bool wants_handle);
  Operation& operation() { return *operation_; }
  // It is under way with the node's id (0: nothing to do). Requires: the lock is held.
  void begin(Live& live, OperationId id);
  // Hands the handle over; no effect where none is wanted.
  void give(tiercel_operation** out);

 private:
  std::shared_ptr<Operation> operation_;
  std::unique_ptr<tiercel_operation> handle_;
};

}  // namespace tiercel::capi
