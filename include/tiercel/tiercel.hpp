// The C ABI of tiercel.h for C++20: move-only handles that give themselves back, spans in, values out. Header
// only; what a call does, costs and waits for is said there, and only what this layer adds is said here.
//
// Errors: nothing is thrown by the library or by this header (std::vector and std::string may, when memory is
// out). A call that can fail gives a Status, or a Result<T>: the value, or the Status of why not. `*` and
// `->` of a Result that failed print its message and end the program, so that a forgotten check is never a
// wild pointer: look first. What a call says of single items (outcomes, statuses) stands in lists; the call
// itself fails only as a whole. Destructors pass over errors; use close() where it matters whether that went
// well.
//
// Handles: any order of destruction is safe, also after the node's. A moved-from or default-made handle is
// empty (`!handle`); calls on it answer invalid_argument. get() lends the C handle, for calls by hand and for
// options.
//
// Options: `auto options = sized<tiercel_node_options>()`, then set what is wanted. Where a function takes a
// list beside options, it fills in their pointer and count itself.
//
// Threads: as in C: any call from any thread, except that a handle object must not be moved or destroyed
// meanwhile.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tiercel/tiercel.h>

namespace tiercel {
inline namespace v1 {  // apart from the names inside a library that is linked statically

// ---- outcomes ----

struct [[nodiscard]] Status {
  tiercel_status code = TIERCEL_OK;
  std::string message;  // one line; empty when ok

  bool ok() const { return code == TIERCEL_OK; }
  explicit operator bool() const { return ok(); }
  std::string to_string() const {
    return message.empty() ? tiercel_status_name(code) : tiercel_status_name(code) + (": " + message);
  }
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::in_place_index<1>, std::move(value)) {}         // NOLINT: return value;
  Result(Status status) : value_(std::in_place_index<0>, std::move(status)) {}  // NOLINT: return status;

  bool ok() const { return value_.index() == 1; }
  explicit operator bool() const { return ok(); }
  // Of success: ok without a message.
  Status status() const { return ok() ? Status{} : std::get<0>(value_); }

  T& operator*() & { return checked(); }
  const T& operator*() const& { return const_cast<Result*>(this)->checked(); }
  T operator*() && { return std::move(checked()); }  // by value: `for (x : *call())` keeps it alive
  T* operator->() { return &checked(); }
  const T* operator->() const { return &const_cast<Result*>(this)->checked(); }

 private:
  T& checked() {
    if (T* value = std::get_if<1>(&value_)) return *value;
    std::fprintf(stderr, "tiercel: the value of a failed call was used: %s\n", status().to_string().c_str());
    std::abort();
  }
  std::variant<Status, T> value_;
};

// ---- options ----

// A struct of the ABI with its size filled in and everything else at its default.
template <typename T>
T sized() {
  T value{};
  value.size = sizeof(T);
  return value;
}

// A process that holds the whole model by itself: one rank of everything, all layers, the writer.
inline tiercel_topology one_rank() {
  tiercel_topology topology{};
  topology.tp_size = topology.pp_size = topology.cp_size = topology.dcp_size = topology.dp_size = 1;
  topology.last_layer = UINT32_MAX;
  topology.writer = 1;
  return topology;
}

// ---- what the functions below are made of ----

namespace detail {

template <auto Give>
struct GiveBack {
  template <typename H>
  void operator()(H* handle) const {
    Give(handle);
  }
};
template <typename H, auto Give>
using Owned = std::unique_ptr<H, GiveBack<Give>>;

inline void close_node(tiercel_node* node) { tiercel_node_close(node, nullptr); }
inline void close_session(tiercel_session* session) { tiercel_session_close(session, nullptr); }

// f(args…, error) is one call of the ABI.
template <typename F, typename... Args>
Status call(F f, Args... args) {
  tiercel_error error;
  error.message[0] = '\0';
  const tiercel_status code = f(args..., &error);
  if (code == TIERCEL_OK) return {};
  return {code, error.message};
}
// f(args…, &value, error) fills a value; a struct that has a size begins with it.
template <typename T, typename F, typename... Args>
Result<T> value_of(F f, Args... args) {
  T value{};
  if constexpr (requires { value.size; }) value.size = sizeof(T);
  if (Status status = call(f, args..., &value); !status.ok()) return status;
  return value;
}
// f(args…, &handle, error) makes a handle.
template <typename Wrapper, typename F, typename... Args>
Result<Wrapper> made(F f, Args... args) {
  decltype(std::declval<Wrapper>().get()) handle = nullptr;
  if (Status status = call(f, args..., &handle); !status.ok()) return status;
  return Wrapper(handle);
}
// f(args…, out, capacity, &count, error) gives a list: asked again until all of it fits.
template <typename List, typename F, typename... Args>
Result<List> list_of(F f, Args... args) {
  List list;
  for (;;) {
    std::uint64_t count = 0;
    typename List::value_type* const out = list.empty() ? nullptr : list.data();
    if (Status status = call(f, args..., out, std::uint64_t{list.size()}, &count); !status.ok())
      return status;
    const bool fits = count <= list.size();
    list.resize(static_cast<std::size_t>(count));
    if (fits) return list;
  }
}

}  // namespace detail

// ---- model ----

class Spec {
 public:
  Spec() = default;
  explicit Spec(tiercel_spec* handle) : handle_(handle) {}
  // Of a published config.json.
  static Result<Spec> from_config(std::string_view text, const tiercel_config_options* options = nullptr) {
    return detail::made<Spec>(tiercel_spec_from_config, text.data(), text.size(), options);
  }
  static Result<Spec> from_json(std::string_view text, std::uint64_t page_tokens = 0) {
    return detail::made<Spec>(tiercel_spec_from_json, text.data(), text.size(), page_tokens);
  }
  Result<std::string> to_json() const { return detail::list_of<std::string>(tiercel_spec_to_json, get()); }
  tiercel_spec* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_spec, tiercel_spec_release> handle_;
};

class SpecBuilder {
 public:
  SpecBuilder() = default;
  explicit SpecBuilder(tiercel_spec_builder* handle) : handle_(handle) {}
  static Result<SpecBuilder> create(const tiercel_spec_options& options) {
    return detail::made<SpecBuilder>(tiercel_spec_builder_create, &options);
  }
  // The number of the group, for component().
  Result<std::uint32_t> group(std::span<const std::uint32_t> layers, tiercel_group_options options) {
    options.layers = layers.data();
    options.layer_count = layers.size();
    return detail::value_of<std::uint32_t>(tiercel_spec_builder_group, get(), &options);
  }
  Status component(std::uint32_t group, const tiercel_component_options& options) {
    return detail::call(tiercel_spec_builder_component, get(), group, &options);
  }
  Result<Spec> finish() const { return detail::made<Spec>(tiercel_spec_builder_finish, get()); }
  tiercel_spec_builder* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_spec_builder, tiercel_spec_builder_release> handle_;
};

class Form {
 public:
  Form() = default;
  explicit Form(tiercel_form* handle) : handle_(handle) {}
  Result<tiercel_form_info> describe() const {
    return detail::value_of<tiercel_form_info>(tiercel_form_describe, get());
  }
  Result<tiercel_class_info> class_info(std::uint32_t class_id) const {
    return detail::value_of<tiercel_class_info>(tiercel_form_class, get(), class_id);
  }
  Result<std::vector<tiercel_run_info>> runs(std::uint32_t class_id) const {
    return detail::list_of<std::vector<tiercel_run_info>>(tiercel_form_runs, get(), class_id);
  }
  // options: class, shard, number of slots.
  Status register_memory(std::span<const tiercel_memory_run> runs, tiercel_memory_options options) {
    options.runs = runs.data();
    options.run_count = runs.size();
    return detail::call(tiercel_register_memory, get(), &options);
  }
  Status unregister_memory(std::uint32_t class_id, std::uint32_t shard, std::uint64_t deadline_ns) {
    return detail::call(tiercel_unregister_memory, get(), class_id, shard, deadline_ns);
  }
  Status wait_sources(std::uint32_t class_id, std::uint32_t shard, std::span<const std::uint64_t> slots,
                      std::uint64_t deadline_ns) {
    return detail::call(tiercel_wait_sources, get(), class_id, shard, slots.data(), slots.size(),
                        deadline_ns);
  }
  Status set_weights_epoch(std::uint64_t epoch) {
    return detail::call(tiercel_set_weights_epoch, get(), epoch);
  }
  Status clear(tiercel_tier tiers = TIERCEL_TIER_ALL) {
    return detail::call(tiercel_clear, TIERCEL_CLEAR_FORM, nullptr, get(), tiers);
  }
  tiercel_form* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_form, tiercel_form_release> handle_;
};

// ---- operations ----

class CompletionQueue {
 public:
  CompletionQueue() = default;
  explicit CompletionQueue(tiercel_cq* handle) : handle_(handle) {}
  // To be polled, never read: draining resets it. −1 of an empty handle.
  int fd() const {
    int out = -1;
    if (tiercel_cq_fd(get(), &out, nullptr) != TIERCEL_OK) return -1;
    return out;
  }
  // The part of `into` that was filled, oldest first.
  Result<std::span<tiercel_completion>> drain(std::span<tiercel_completion> into) {
    std::uint64_t count = 0;
    Status status = detail::call(tiercel_cq_drain, get(), into.data(), into.size(), &count);
    if (!status.ok()) return status;
    return into.first(static_cast<std::size_t>(count));
  }
  tiercel_cq* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_cq, tiercel_cq_release> handle_;
};

// A load, a store, a commit, a prefetch or a suspension. Destroying the handle does not end it.
class Operation {
 public:
  Operation() = default;
  explicit Operation(tiercel_operation* handle) : handle_(handle) {}
  std::uint64_t id() const { return tiercel_operation_id(get()); }
  Result<tiercel_state> poll() const {
    return detail::value_of<tiercel_state>(tiercel_operation_poll, get());
  }
  // until: a completion kind; 0: the last one.
  Status wait(tiercel_completion_kind until, std::uint64_t deadline_ns) const {
    return detail::call(tiercel_operation_wait, get(), until, deadline_ns);
  }
  Status wait_layer(std::uint32_t layer, std::uint64_t deadline_ns) const {
    return detail::call(tiercel_wait_layer, get(), layer, deadline_ns);
  }
  Result<tiercel_operation_result> result() const {
    return detail::value_of<tiercel_operation_result>(tiercel_operation_result_read, get());
  }
  Result<std::vector<tiercel_load_outcome>> load_outcomes(std::uint64_t target) const {
    return detail::list_of<std::vector<tiercel_load_outcome>>(tiercel_load_outcomes, get(), target);
  }
  Result<std::vector<tiercel_outcome>> store_outcomes() const {
    return detail::list_of<std::vector<tiercel_outcome>>(tiercel_store_outcomes, get());
  }
  Result<tiercel_prefetch_result> prefetch_result() const {
    return detail::value_of<tiercel_prefetch_result>(tiercel_prefetch_result_read, get());
  }
  Result<std::vector<tiercel_miss>> prefetch_reasons() const {
    return detail::list_of<std::vector<tiercel_miss>>(tiercel_prefetch_reasons, get());
  }
  // Memory is the caller's again only at the completion with the flag QUIET, or after wait(QUIESCENT).
  Status cancel() { return detail::call(tiercel_operation_cancel, get()); }
  tiercel_operation* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_operation, tiercel_operation_release> handle_;
};

// The answer of a match, and its leases until it is destroyed, cancelled or expired.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(tiercel_ticket* handle) : handle_(handle) {}
  std::uint64_t id() const { return tiercel_ticket_id(get()); }
  Result<tiercel_state> poll() const { return detail::value_of<tiercel_state>(tiercel_ticket_poll, get()); }
  Status wait(std::uint64_t deadline_ns) const {
    return detail::call(tiercel_ticket_wait, get(), deadline_ns);
  }
  Result<std::vector<std::uint64_t>> lengths() const {
    return detail::list_of<std::vector<std::uint64_t>>(tiercel_ticket_lengths, get());
  }
  Result<tiercel_ticket_counts> summary() const {
    return detail::value_of<tiercel_ticket_counts>(tiercel_ticket_summary, get());
  }
  Result<std::vector<std::uint64_t>> resident(tiercel_tier tier) const {
    return detail::list_of<std::vector<std::uint64_t>>(tiercel_ticket_resident, get(), tier);
  }
  Result<std::vector<tiercel_miss>> reasons() const {
    return detail::list_of<std::vector<tiercel_miss>>(tiercel_ticket_reasons, get());
  }
  Result<std::vector<std::uint64_t>> snapshot_advice(const tiercel_advice_options& options) {
    return detail::list_of<std::vector<std::uint64_t>>(tiercel_snapshot_advice, get(), &options);
  }
  Status cancel() { return detail::call(tiercel_ticket_cancel, get()); }
  // For Session::import_ticket, elsewhere in this process.
  Result<std::vector<unsigned char>> export_bytes() const {
    return detail::list_of<std::vector<unsigned char>>(tiercel_ticket_export, get());
  }
  Result<Operation> load(std::uint64_t length, std::span<const tiercel_load_target> targets,
                         tiercel_load_options options = sized<tiercel_load_options>()) {
    options.length = length;
    options.targets = targets.data();
    options.target_count = targets.size();
    return detail::made<Operation>(tiercel_load, get(), &options);
  }
  tiercel_ticket* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_ticket, tiercel_ticket_release> handle_;
};

// Room that nobody sees yet. Destroying it aborts what was not committed.
class Reservation {
 public:
  Reservation() = default;
  explicit Reservation(tiercel_reservation* handle) : handle_(handle) {}
  Result<std::vector<tiercel_segment>> spans(std::uint64_t item) const {
    return detail::list_of<std::vector<tiercel_segment>>(tiercel_reservation_spans, get(), item);
  }
  // Of the arena's file, in the byte order of the layout; null: record order.
  Result<std::vector<tiercel_file_segment>> segments(std::uint64_t item, const char* layout = nullptr) const {
    return detail::list_of<std::vector<tiercel_file_segment>>(tiercel_reservation_segments, get(), item,
                                                              layout);
  }
  Result<Operation> commit(const tiercel_commit_options* options = nullptr) {
    return detail::made<Operation>(tiercel_commit, get(), options);
  }
  // Nothing arrived: abort() is the call.
  Result<Operation> commit(std::span<const tiercel_arrival> arrived,
                           tiercel_commit_options options = sized<tiercel_commit_options>()) {
    if (arrived.empty())
      return Status{TIERCEL_INVALID_ARGUMENT, "commit: nothing has arrived; abort the reservation"};
    options.arrivals = arrived.data();
    options.arrival_count = arrived.size();
    return commit(&options);
  }
  // The caller vouches that the writer in another process writes nothing more.
  Status writer_stopped() { return detail::call(tiercel_writer_stopped, get()); }
  Result<Operation> attach(const tiercel_commit_options* options = nullptr) {
    return detail::made<Operation>(tiercel_attach, get(), options);
  }
  Status abort() { return detail::call(tiercel_abort, get()); }
  tiercel_reservation* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_reservation, tiercel_reservation_release> handle_;
};

// ---- pages ----

struct Stored {
  Operation operation;
  std::vector<tiercel_outcome> outcomes;  // how each item was admitted
};
struct Reserved {
  Reservation reservation;
  std::vector<tiercel_outcome> outcomes;
};

class Namespace {
 public:
  Namespace() = default;
  Namespace(tiercel_namespace* handle, std::uint64_t page_tokens)
      : handle_(handle), page_tokens_(page_tokens) {}
  std::uint64_t id() const { return tiercel_namespace_id(get()); }
  std::uint64_t page_tokens() const { return page_tokens_; }
  Result<std::string> describe() const {
    return detail::list_of<std::string>(tiercel_namespace_describe, get());
  }

  Result<tiercel_key_chain> start_chain() const {
    return detail::value_of<tiercel_key_chain>(tiercel_key_chain_start, get());
  }
  // Keys of the whole pages in `tokens`, by which `chain` has grown afterwards.
  Result<std::vector<tiercel_key>> keys_from_tokens(tiercel_key_chain& chain,
                                                    std::span<const std::uint32_t> tokens,
                                                    std::span<const tiercel_extras> extras = {},
                                                    tiercel_probe* probe = nullptr) const {
    return keys_from(chain, tokens, 1, extras, probe);
  }
  // Positions of two ids each.
  Result<std::vector<tiercel_key>> keys_from_pairs(tiercel_key_chain& chain,
                                                   std::span<const std::uint32_t> pairs,
                                                   std::span<const tiercel_extras> extras = {},
                                                   tiercel_probe* probe = nullptr) const {
    return keys_from(chain, pairs, 2, extras, probe);
  }
  // Digests of the engine's own, side by side.
  Result<std::vector<tiercel_key>> keys_from_digests(std::span<const unsigned char> digests,
                                                     std::uint64_t digest_bytes,
                                                     tiercel_probe* probe = nullptr) const {
    if (digest_bytes == 0 || digests.size() % digest_bytes != 0)
      return Status{TIERCEL_INVALID_ARGUMENT, "keys_from_digests: the bytes are not whole digests"};
    std::vector<tiercel_key> keys(static_cast<std::size_t>(digests.size() / digest_bytes));
    Status status = detail::call(tiercel_keys_from_digests, get(), digests.data(), keys.size(), digest_bytes,
                                 digest_bytes, keys.data(), probe);
    if (!status.ok()) return status;
    return keys;
  }

  // limit_tokens has no default on purpose: TIERCEL_NO_LIMIT, or the prompt less one.
  Result<Ticket> match(std::span<const tiercel_key> keys, std::uint64_t limit_tokens,
                       tiercel_match_options options = sized<tiercel_match_options>()) {
    options.keys = keys.data();
    options.key_count = keys.size();
    options.limit_tokens = limit_tokens;
    return detail::made<Ticket>(tiercel_match, get(), &options);
  }
  // TIERCEL_OK or TIERCEL_NOT_FOUND for each key.
  Result<std::vector<tiercel_status>> exists(std::uint32_t class_id,
                                             std::span<const tiercel_key> keys) const {
    std::vector<tiercel_status> out(keys.size());
    Status status = detail::call(tiercel_exists, get(), class_id, keys.data(), keys.size(), out.data());
    if (!status.ok()) return status;
    return out;
  }
  Result<Stored> store(std::span<const tiercel_store_item> items,
                       tiercel_store_options options = sized<tiercel_store_options>()) {
    options.items = items.data();
    options.item_count = items.size();
    Stored stored{{}, std::vector<tiercel_outcome>(items.size())};
    auto operation = detail::made<Operation>(tiercel_store, get(), &options, stored.outcomes.data());
    if (!operation) return operation.status();
    stored.operation = *std::move(operation);
    return stored;
  }
  // One bitmap of wanted class-sets for each key.
  Result<std::vector<std::uint64_t>> offer(std::span<const tiercel_key> keys, tiercel_offer_event event,
                                           tiercel_offer_options options = sized<tiercel_offer_options>()) {
    options.keys = keys.data();
    options.key_count = keys.size();
    options.event = event;
    std::vector<std::uint64_t> wanted(keys.size());
    Status status = detail::call(tiercel_offer, get(), &options, wanted.data());
    if (!status.ok()) return status;
    return wanted;
  }
  // writer_pid: of the process that will write, if it is another one.
  Result<Reserved> reserve(std::span<const tiercel_store_item> items, std::uint64_t request = 0,
                           std::uint32_t writer_pid = 0) {
    auto options = sized<tiercel_store_options>();
    options.items = items.data();
    options.item_count = items.size();
    options.request = request;
    options.writer_pid = writer_pid;
    Reserved reserved{{}, std::vector<tiercel_outcome>(items.size())};
    auto reservation = detail::made<Reservation>(tiercel_reserve, get(), &options, reserved.outcomes.data());
    if (!reservation) return reservation.status();
    reserved.reservation = *std::move(reservation);
    return reserved;
  }

  Result<Operation> prefetch(std::span<const tiercel_key> keys, tiercel_prefetch_policy policy,
                             tiercel_prefetch_options options = sized<tiercel_prefetch_options>()) {
    options.keys = keys.data();
    options.key_count = keys.size();
    options.policy = policy;
    return detail::made<Operation>(tiercel_prefetch, get(), &options);
  }
  Status pin(std::span<const tiercel_key> keys, std::uint64_t ttl_ns) {
    return detail::call(tiercel_pin, get(), keys.data(), keys.size(), ttl_ns);
  }
  Status unpin(std::span<const tiercel_key> keys) {
    return detail::call(tiercel_unpin, get(), keys.data(), keys.size());
  }
  Status touch(std::span<const tiercel_key> keys, std::uint64_t request = 0) {
    return detail::call(tiercel_touch, get(), keys.data(), keys.size(), request);
  }
  Status remove(std::span<const tiercel_key> keys) {
    return detail::call(tiercel_remove, get(), keys.data(), keys.size());
  }
  Status invalidate() { return detail::call(tiercel_invalidate, get()); }
  Status clear(tiercel_tier tiers = TIERCEL_TIER_ALL) {
    return detail::call(tiercel_clear, TIERCEL_CLEAR_NAMESPACE, get(), nullptr, tiers);
  }
  Result<tiercel_page_state> why(const tiercel_key& key) const {
    return detail::value_of<tiercel_page_state>(tiercel_why, get(), &key);
  }
  tiercel_namespace* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Result<std::vector<tiercel_key>> keys_from(tiercel_key_chain& chain, std::span<const std::uint32_t> tokens,
                                             std::uint32_t width, std::span<const tiercel_extras> extras,
                                             tiercel_probe* probe) const {
    const std::uint64_t positions = tokens.size() / width;
    std::vector<tiercel_key> keys(page_tokens_ == 0 ? 0 : static_cast<std::size_t>(positions / page_tokens_));
    std::uint64_t count = 0;
    Status status = detail::call(tiercel_keys_from_tokens, get(), &chain, tokens.data(), positions, width,
                                 extras.data(), extras.size(), keys.data(), keys.size(), &count, probe);
    if (!status.ok()) return status;
    keys.resize(static_cast<std::size_t>(count));
    return keys;
  }

  detail::Owned<tiercel_namespace, tiercel_namespace_release> handle_;
  std::uint64_t page_tokens_ = 0;
};

// ---- node ----

class Session {
 public:
  Session() = default;
  explicit Session(tiercel_session* handle) : handle_(handle) {}
  Result<Namespace> open_namespace(const Form& form, const tiercel_identity& identity) {
    const Result<tiercel_form_info> info = form.describe();
    if (!info) return info.status();
    tiercel_namespace* handle = nullptr;
    Status status = detail::call(tiercel_namespace_open, get(), form.get(), &identity, &handle);
    if (!status.ok()) return status;
    return Namespace(handle, info->page_tokens);
  }
  Result<Ticket> import_ticket(std::span<const unsigned char> bytes) {
    return detail::made<Ticket>(tiercel_ticket_import, get(), bytes.data(), bytes.size());
  }
  Status request_begin(std::uint64_t id, tiercel_request_options options = sized<tiercel_request_options>()) {
    options.id = id;
    return detail::call(tiercel_request_begin, get(), &options);
  }
  Status request_end(std::uint64_t id) { return detail::call(tiercel_request_end, get(), id); }
  Status request_abort(std::uint64_t id) { return detail::call(tiercel_request_abort, get(), id); }
  // As the destructor, with the answer. Empty afterwards.
  Status close() { return detail::call(tiercel_session_close, handle_.release()); }
  tiercel_session* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_session, detail::close_session> handle_;
};

class Node {
 public:
  Node() = default;
  explicit Node(tiercel_node* handle) : handle_(handle) {}
  static Result<Node> open(const tiercel_node_options& options) {
    return detail::made<Node>(tiercel_node_open, &options);
  }
  Result<Session> open_session(const tiercel_session_options* options = nullptr) {
    return detail::made<Session>(tiercel_session_open, get(), options);
  }
  Result<Form> open_form(const Spec& spec, const tiercel_topology& topology) {
    auto options = sized<tiercel_form_options>();
    options.topology = topology;
    return detail::made<Form>(tiercel_form_open, get(), spec.get(), &options);
  }
  Result<CompletionQueue> create_queue(std::uint64_t capacity = 0) {
    auto options = sized<tiercel_cq_options>();
    options.capacity = capacity;
    return detail::made<CompletionQueue>(tiercel_cq_create, get(), &options);
  }
  // How many things were done.
  Result<std::uint64_t> poll(std::uint64_t budget_ns) {
    return detail::value_of<std::uint64_t>(tiercel_poll, get(), budget_ns);
  }
  // A number for `after_event`.
  Result<std::uint64_t> create_event() {
    return detail::value_of<std::uint64_t>(tiercel_event_create, get());
  }
  Status fire_event(std::uint64_t event) { return detail::call(tiercel_event_fire, get(), event); }
  Status flush(std::uint64_t deadline_ns) { return detail::call(tiercel_flush, get(), deadline_ns); }
  Result<Operation> suspend(const tiercel_commit_options* options = nullptr) {
    return detail::made<Operation>(tiercel_suspend, get(), options);
  }
  Status resume() { return detail::call(tiercel_resume, get()); }
  Result<tiercel_stats> stats() const { return detail::value_of<tiercel_stats>(tiercel_stats_read, get()); }
  Result<tiercel_disk_stats> disk_stats() const {
    return detail::value_of<tiercel_disk_stats>(tiercel_disk_stats_read, get());
  }
  Result<tiercel_remote_stats> remote_stats() const {
    return detail::value_of<tiercel_remote_stats>(tiercel_remote_stats_read, get());
  }
  // For people.
  Result<std::string> status_text() const { return detail::list_of<std::string>(tiercel_status_text, get()); }
  // Ends the disk tier; close() does so by itself.
  Result<tiercel_write_down> write_down(std::uint64_t deadline_ns) {
    return detail::value_of<tiercel_write_down>(tiercel_node_write_down, get(), deadline_ns);
  }
  Result<std::vector<tiercel_writer_info>> writers() const {
    return detail::list_of<std::vector<tiercel_writer_info>>(tiercel_writers_read, get());
  }
  // The part of `into` that was filled; *lost, when not null: dropped since the last call.
  Result<std::span<tiercel_cache_event>> drain_events(std::span<tiercel_cache_event> into,
                                                      std::uint64_t* lost = nullptr) {
    std::uint64_t count = 0, dropped = 0;
    Status status = detail::call(tiercel_events_drain, get(), into.data(), into.size(), &count, &dropped);
    if (!status.ok()) return status;
    if (lost != nullptr) *lost = dropped;
    return into.first(static_cast<std::size_t>(count));
  }
  // As the destructor, with the answer. Empty afterwards.
  Status close() { return detail::call(tiercel_node_close, handle_.release()); }
  tiercel_node* get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  detail::Owned<tiercel_node, detail::close_node> handle_;
};

}  // namespace v1
}  // namespace tiercel

#include <tiercel/host_pools.hpp>  // which needs all of the above
