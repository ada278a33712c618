// Calls of the ABI as an engine makes them, and as it should not make them.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include <poll.h>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

tiercel_store_options store_of(const std::vector<tiercel_store_item>& items) {
  auto options = sized<tiercel_store_options>();
  options.items = items.data();
  options.item_count = items.size();
  return options;
}

bool readable(const tiercel_cq* cq) {
  int fd = -1;
  EXPECT_EQ(tiercel_cq_fd(cq, &fd, nullptr), TIERCEL_OK);
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, 0) == 1;
}

std::vector<tiercel_completion> drain(tiercel_cq* cq) {
  std::vector<tiercel_completion> out(256);
  std::uint64_t count = 0;
  EXPECT_EQ(tiercel_cq_drain(cq, out.data(), out.size(), &count, nullptr), TIERCEL_OK);
  out.resize(count);
  return out;
}

tiercel_cq* make_cq(tiercel_node* node, std::uint64_t capacity = 0) {
  auto options = sized<tiercel_cq_options>();
  options.capacity = capacity;
  tiercel_cq* cq = nullptr;
  EXPECT_EQ(tiercel_cq_create(node, &options, &cq, nullptr), TIERCEL_OK);
  return cq;
}

std::uint64_t make_event(tiercel_node* node) {
  std::uint64_t event = 0;
  EXPECT_EQ(tiercel_event_create(node, &event, nullptr), TIERCEL_OK);
  return event;
}

// Loads `length` pages and the snapshot into slots first, first + 1, …; the snapshot into `first`.
tiercel_operation* load(tiercel_ticket* ticket, std::uint64_t length, std::uint64_t first = 0,
                        tiercel_cq* cq = nullptr, std::uint64_t after_event = 0) {
  std::vector<std::uint64_t> slots(length);
  std::iota(slots.begin(), slots.end(), first);
  tiercel_load_target targets[2] = {};
  targets[0].slots = slots.data();
  targets[0].count = slots.size();
  targets[1].slots = &first;
  targets[1].count = 1;
  targets[1].class_id = 1;
  auto options = sized<tiercel_load_options>();
  options.length = length;
  options.targets = targets;
  options.target_count = 2;
  options.cq = cq;
  options.after_event = after_event;
  tiercel_operation* operation = nullptr;
  tiercel_error error{};
  EXPECT_EQ(tiercel_load(ticket, &options, &operation, &error), TIERCEL_OK) << error.message;
  return operation;
}

tiercel_operation_result result_of(const tiercel_operation* operation) {
  auto result = sized<tiercel_operation_result>();
  EXPECT_EQ(tiercel_operation_result_read(operation, &result, nullptr), TIERCEL_OK);
  return result;
}

// ---- handles and arguments ----

TEST(CapiCalls, NullHandlesAreRefusedAndNullIsReleased) {
  tiercel_error error{};
  std::uint64_t count = 0, lost = 0;
  tiercel_ticket* ticket = nullptr;
  tiercel_session* session = nullptr;
  tiercel_state state = 77;
  EXPECT_EQ(tiercel_poll(nullptr, 0, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the node is NULL");
  EXPECT_EQ(tiercel_session_open(nullptr, nullptr, &session, nullptr), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_match(nullptr, nullptr, &ticket, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_load(nullptr, nullptr, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_store(nullptr, nullptr, nullptr, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_commit(nullptr, nullptr, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_ticket_poll(nullptr, &state, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_operation_wait(nullptr, 0, 0, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_cq_drain(nullptr, nullptr, 0, &count, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_events_drain(nullptr, nullptr, 0, &count, &lost, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_why(nullptr, nullptr, nullptr, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_clear(TIERCEL_CLEAR_FORM, nullptr, nullptr, TIERCEL_TIER_ALL, &error),
            TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(state, 77U) << "outputs are untouched by what fails";
  EXPECT_EQ(tiercel_node_close(nullptr, &error), TIERCEL_OK);
  EXPECT_EQ(tiercel_session_close(nullptr, &error), TIERCEL_OK);
  tiercel_ticket_release(nullptr);
  tiercel_operation_release(nullptr);
  tiercel_reservation_release(nullptr);
  tiercel_cq_release(nullptr);
  tiercel_namespace_release(nullptr);
  EXPECT_EQ(tiercel_ticket_id(nullptr) + tiercel_operation_id(nullptr) + tiercel_namespace_id(nullptr), 0U);
}

TEST(CapiCalls, AHandleOfAnotherKindIsRefused) {
  Program program;
  auto* const not_a_node = reinterpret_cast<tiercel_node*>(program.session);
  tiercel_error error{};
  EXPECT_EQ(tiercel_resume(not_a_node, &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "not that of a node"), nullptr) << error.message;
  EXPECT_EQ(tiercel_node_close(not_a_node, &error), TIERCEL_INVALID_ARGUMENT);
  tiercel_ticket_release(reinterpret_cast<tiercel_ticket*>(program.ns));  // refused without a word
  EXPECT_NE(tiercel_namespace_id(program.ns), 0U);
}

TEST(CapiCalls, HandlesOfTwoNodesDoNotMix) {
  Program one, two;
  auto identity = sized<tiercel_identity>();
  identity.weights = identity.dtype = "x";
  tiercel_namespace* ns = nullptr;
  EXPECT_EQ(tiercel_namespace_open(one.session, two.form, &identity, &ns, nullptr), TIERCEL_INVALID_ARGUMENT);
  tiercel_cq* const cq = make_cq(two.node);
  auto options = sized<tiercel_store_options>();
  options.cq = cq;
  EXPECT_EQ(tiercel_store(one.ns, &options, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  tiercel_cq_release(cq);
}

TEST(CapiCalls, OptionsThatMakeNoSenseDoNotOpenANode) {
  tiercel_node* node = nullptr;
  tiercel_error error{};
  const auto open = [&](auto&& change) {
    auto options = sized<tiercel_node_options>();
    options.host_bytes = 8 << 20;
    change(options);
    return tiercel_node_open(&options, &node, &error);
  };
  EXPECT_EQ(open([](auto& o) { o.host_bytes = 0; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.extent_bytes = 3000; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.policy = TIERCEL_ENUM_RESERVED; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "policy"), nullptr) << error.message;
  EXPECT_EQ(open([](auto& o) { o.threading = 3; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.client_share = 2; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.copy_threads = 100000; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.index_pages_max = UINT64_MAX; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.host_mode = TIERCEL_HOST_NONE; }), TIERCEL_UNSUPPORTED);
  EXPECT_EQ(open([](auto& o) { o.size = 9; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(node, nullptr);
}

TEST(CapiCalls, TheArenaIsOfTheKindAskedForAndOpeningTellsHowFarItIs) {
  struct Told {
    std::uint64_t calls = 0, done = 0, total = 0;
    int answer = 0;
  } told;
  const auto progress = [](void* context, std::uint64_t done, std::uint64_t total) {
    auto& to = *static_cast<Told*>(context);
    ++to.calls;
    EXPECT_GE(done, to.done);
    to.done = done;
    to.total = total;
    return to.answer;
  };
  auto options = sized<tiercel_node_options>();
  options.host_bytes = 16 << 20;
  options.memory_kind = TIERCEL_MEMORY_SHARED;
  options.touch_threads = 2;
  options.progress = progress;
  options.progress_context = &told;
  tiercel_node* node = nullptr;
  TIERCEL_OK_CALL(tiercel_node_open(&options, &node, error));
  EXPECT_GE(told.calls, 1U);
  EXPECT_EQ(told.done, told.total);
  auto stats = sized<tiercel_stats>();
  TIERCEL_OK_CALL(tiercel_stats_read(node, &stats, error));
  EXPECT_EQ(stats.memory_kind, TIERCEL_MEMORY_SHARED);
  EXPECT_LE(stats.page_kind, TIERCEL_PAGES_MIXED);
  TIERCEL_OK_CALL(tiercel_node_close(node, error));

  told = {};
  told.answer = 1;
  node = nullptr;
  options.host_bytes = 256 << 20;
  EXPECT_EQ(tiercel_node_open(&options, &node, nullptr), TIERCEL_CANCELLED);
  EXPECT_EQ(node, nullptr);
  options.host_bytes = std::uint64_t{1} << 44;  // no machine of today
  options.index_pages_max = options.history_entries = options.advice_entries = 1024;
  options.extent_bytes = 1 << 30;
  EXPECT_EQ(tiercel_node_open(&options, &node, nullptr), TIERCEL_RESOURCE_EXHAUSTED);
}

TEST(CapiCalls, ATopologyHidesNoForgottenRank) {
  Program program;
  tiercel_spec* const spec = make_test_spec();
  const auto open = [&](auto&& change) {
    auto options = sized<tiercel_form_options>();
    options.topology = whole_topology();
    change(options.topology);
    tiercel_form* form = nullptr;
    const tiercel_status status = tiercel_form_open(program.node, spec, &options, &form, nullptr);
    tiercel_form_release(form);
    return status;
  };
  EXPECT_EQ(open([](auto&) {}), TIERCEL_OK);
  EXPECT_EQ(open([](auto& t) { t.dp_size = 4, t.dp_rank = 3; }), TIERCEL_OK)
      << "data-parallel ranks share pages";
  EXPECT_EQ(open([](auto& t) { t.tp_size = 0; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& t) { t.tp_rank = 1; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& t) { t.tp_size = 2; }), TIERCEL_INVALID_ARGUMENT) << "the spec's tp is 1";
  EXPECT_EQ(open([](auto& t) { t.dcp_size = 2, t.dcp_rank = TIERCEL_ALL_RANKS; }), TIERCEL_UNSUPPORTED);
  EXPECT_EQ(open([](auto& t) { t.first_layer = 1; }), TIERCEL_UNSUPPORTED);
  EXPECT_EQ(open([](auto& t) { t.last_layer = 0; }), TIERCEL_UNSUPPORTED);
  tiercel_spec_release(spec);
}

// ---- batches ----

TEST(CapiCalls, EmptyBatchesSucceedAndComplete) {
  Program program;
  tiercel_cq* const cq = make_cq(program.node);
  auto options = sized<tiercel_store_options>();
  options.cq = cq;
  options.user_data = 9;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, 0, error));
  const auto completions = drain(cq);
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].kind, TIERCEL_COMPLETION_SOURCE_FREE);
  EXPECT_EQ(completions[1].kind, TIERCEL_COMPLETION_VISIBLE);
  EXPECT_EQ(completions[0].flags, TIERCEL_COMPLETION_QUIET);
  EXPECT_EQ(completions[1].flags, TIERCEL_COMPLETION_QUIET | TIERCEL_COMPLETION_LAST);
  EXPECT_EQ(completions[1].user_data, 9U);
  EXPECT_NE(completions[1].operation, 0U);
  tiercel_operation_release(operation);
  TIERCEL_OK_CALL(tiercel_exists(program.ns, 0, nullptr, 0, nullptr, error));
  TIERCEL_OK_CALL(tiercel_remove(program.ns, nullptr, 0, error));
  tiercel_ticket* const ticket = program.match({});
  EXPECT_EQ(program.length_of(ticket), 0U);
  tiercel_ticket_release(ticket);
  tiercel_cq_release(cq);
}

TEST(CapiCalls, AnItemThatMakesNoSenseHasItsOwnOutcomeAndTheRestIsStored) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  auto items = Program::items(keys);
  items.push_back(items[0]);
  items.back().class_id = 70000;
  items.push_back(items[0]);
  items.back().slot = 1 << 20;
  items.push_back(items[0]);
  items.back().bytes = 1;
  items.push_back(items[0]);  // the same again
  items.push_back(items[0]);
  items.back().key.bytes[0] ^= 1;
  items.back().length = 0;
  const auto options = store_of(items);
  std::vector<tiercel_outcome> outcomes(items.size());
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, outcomes.data(), &operation, error));
  EXPECT_EQ(outcomes,
            (std::vector<tiercel_outcome>{TIERCEL_ITEM_ACCEPTED, TIERCEL_ITEM_ACCEPTED, TIERCEL_ITEM_ACCEPTED,
                                          TIERCEL_ITEM_INVALID, TIERCEL_ITEM_INVALID, TIERCEL_ITEM_INVALID,
                                          TIERCEL_ITEM_BEING_WRITTEN, TIERCEL_ITEM_INVALID}));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).items_ok, 3U);
  EXPECT_EQ(result_of(operation).items, items.size());
  tiercel_operation_release(operation);
}

TEST(CapiCalls, WhatCannotBeReadIsAnErrorBeforeAnythingIsTouched) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 1, 1);
  auto items = Program::items(keys);
  items[1].reserved = 1;
  auto options = store_of(items);
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  items[1].reserved = 0;
  items[1].external = {nullptr, 4};
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  options.item_count = UINT64_MAX;
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  auto stats = sized<tiercel_stats>();
  TIERCEL_OK_CALL(tiercel_stats_read(program.node, &stats, error));
  EXPECT_EQ(stats.payload_bytes, 0U);
}

TEST(CapiCalls, KeysDoNotFitOrExtrasAreUneven) {
  Program program;
  tiercel_key_chain chain{};
  TIERCEL_OK_CALL(tiercel_key_chain_start(program.ns, &chain, error));
  const tiercel_key_chain start = chain;
  const std::vector<std::uint32_t> tokens(10, 3);
  std::vector<tiercel_key> keys(2);
  std::uint64_t count = 0;
  const auto extend = [&](std::uint64_t token_count, std::uint32_t width, const tiercel_extras* extras,
                          std::uint64_t extras_count, std::uint64_t capacity) {
    return tiercel_keys_from_tokens(program.ns, &chain, tokens.data(), token_count, width, extras,
                                    extras_count, keys.data(), capacity, &count, nullptr, nullptr);
  };
  const tiercel_bytes image = {"abc", 3};
  const tiercel_extras extras[2] = {{&image, 1}, {nullptr, 0}};
  EXPECT_EQ(extend(8, 1, nullptr, 0, 1), TIERCEL_RESOURCE_EXHAUSTED);
  EXPECT_EQ(extend(8, 3, nullptr, 0, 2), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(extend(8, 1, extras, 1, 2), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(std::memcmp(&chain, &start, sizeof chain), 0);
  EXPECT_EQ(extend(10, 1, extras, 2, 2), TIERCEL_OK);
  EXPECT_EQ(chain.pages, 2U);
  const tiercel_key with_image = keys[0];
  chain = start;
  EXPECT_EQ(extend(4, 1, nullptr, 0, 2), TIERCEL_OK);
  EXPECT_NE(std::memcmp(&with_image, keys.data(), sizeof with_image), 0);
  const tiercel_key single = keys[0];
  chain = start;
  EXPECT_EQ(extend(4, 2, nullptr, 0, 2), TIERCEL_OK) << "four pairs";
  EXPECT_NE(std::memcmp(&single, keys.data(), sizeof single), 0);
  EXPECT_EQ(tiercel_keys_from_digests(program.ns, tokens.data(), 1, 16, 16, keys.data(), nullptr, nullptr),
            TIERCEL_INVALID_ARGUMENT)
      << "the namespace is keyed by tokens";
}

// ---- memory that a call brings along ----

TEST(CapiCalls, BroughtMemoryIsStoredAndLoadedWithoutSlots) {
  Program program({.registers = false});
  const auto keys = Program::make_keys(program.ns, 1, 1);
  std::vector<std::byte> k(256), v(256), state(Program::kStateBytes);
  for (std::size_t i = 0; i < k.size(); ++i)
    k[i] = static_cast<std::byte>(i), v[i] = static_cast<std::byte>(255 - i);
  std::fill(state.begin(), state.end(), std::byte{5});
  const tiercel_segment k_parts[] = {{k.data(), 100}, {k.data() + 100, 156}};
  const tiercel_segment v_part = {v.data(), v.size()}, state_part = {state.data(), state.size()};
  const tiercel_object kv[] = {{k_parts, 2, 0, 0}, {&v_part, 1, 1, 0}};
  const tiercel_object whole = {&state_part, 1, TIERCEL_WHOLE, 0};
  auto items = Program::items(keys);
  items[0].record = {kv, 2};
  items[1].record = {&whole, 1};
  const auto options = store_of(items);
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
  EXPECT_EQ(result_of(operation).items_ok, 2U);
  tiercel_operation_release(operation);

  std::vector<std::byte> record(Program::kFullBytes), snapshot(Program::kStateBytes);
  const tiercel_segment record_part = {record.data(), record.size()},
                        snapshot_part = {snapshot.data(), snapshot.size()};
  const tiercel_object objects[2] = {{&record_part, 1, TIERCEL_WHOLE, 0}, {&snapshot_part, 1, 0, 0}};
  const tiercel_record_memory records[2] = {{&objects[0], 1}, {&objects[1], 1}};
  tiercel_load_target targets[2] = {};
  for (std::uint32_t i = 0; i < 2; ++i) {
    targets[i].records = &records[i];
    targets[i].count = 1;
    targets[i].class_id = i;
  }
  auto load_options = sized<tiercel_load_options>();
  load_options.length = 1;
  load_options.targets = targets;
  load_options.target_count = 2;
  tiercel_ticket* const ticket = program.match(keys);
  TIERCEL_OK_CALL(tiercel_load(ticket, &load_options, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).length, 1U);
  // Record order: k and v of layer 0, then of layer 2.
  EXPECT_TRUE(std::equal(k.begin(), k.begin() + 128, record.begin()));
  EXPECT_TRUE(std::equal(v.begin(), v.begin() + 128, record.begin() + 128));
  EXPECT_TRUE(std::equal(k.begin() + 128, k.end(), record.begin() + 256));
  EXPECT_EQ(snapshot, state);
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
}

TEST(CapiCalls, BroughtMemoryOfAnotherSizeIsInvalidAndOfARegisteredClassRefused) {
  Program program({.registers = false});
  const auto keys = Program::make_keys(program.ns, 1, 1);
  std::vector<std::byte> bytes(Program::kFullBytes);
  tiercel_segment part = {bytes.data(), bytes.size() - 1};
  const tiercel_object whole = {&part, 1, TIERCEL_WHOLE, 0};
  auto items = Program::items(keys);
  items.resize(1);
  items[0].record = {&whole, 1};
  const auto options = store_of(items);
  tiercel_outcome outcome = TIERCEL_ITEM_ACCEPTED;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, &outcome, nullptr, error));
  EXPECT_EQ(outcome, TIERCEL_ITEM_INVALID);
  program.register_memory();
  ++part.size;
  EXPECT_EQ(tiercel_store(program.ns, &options, &outcome, nullptr, nullptr), TIERCEL_FAILED_PRECONDITION);
  TIERCEL_OK_CALL(tiercel_unregister_memory(program.form, 0, 0, kLong, error));
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, &outcome, &operation, error));
  EXPECT_EQ(outcome, TIERCEL_ITEM_ACCEPTED);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_SOURCE_FREE, kLong, error));
  tiercel_operation_release(operation);
}

// ---- tickets ----

TEST(CapiCalls, AShorterMatchStructHasNoLimitAndALongerOneMayNotAskForMore) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  program.store(keys);
  struct {
    tiercel_match_options known{};
    std::uint64_t newer = 0;
  } options;
  options.known.keys = keys.data();
  options.known.key_count = keys.size();
  tiercel_ticket* ticket = nullptr;
  options.known.size = offsetof(tiercel_match_options, limit_tokens);
  TIERCEL_OK_CALL(tiercel_match(program.ns, &options.known, &ticket, error));
  EXPECT_EQ(program.length_of(ticket), 2U);
  tiercel_ticket_release(ticket);
  options.known.size = sizeof options;
  TIERCEL_OK_CALL(tiercel_match(program.ns, &options.known, &ticket, error));
  EXPECT_EQ(program.length_of(ticket), 0U) << "limit_tokens is 0: nothing may be reused";
  tiercel_ticket_release(ticket);
  options.newer = 1;
  EXPECT_EQ(tiercel_match(program.ns, &options.known, &ticket, nullptr), TIERCEL_INVALID_ARGUMENT);
}

TEST(CapiCalls, ATicketTravelsAsBytesInsideItsTenant) {
  Program program({.salt = "a"});
  const auto keys = Program::make_keys(program.ns, 2, 1);
  program.store(keys);
  tiercel_ticket* const ticket = program.match(keys);
  std::vector<std::byte> bytes(64);
  std::uint64_t size = 0;
  TIERCEL_OK_CALL(tiercel_ticket_export(ticket, bytes.data(), bytes.size(), &size, error));
  bytes.resize(size);
  tiercel_ticket* other = nullptr;
  TIERCEL_OK_CALL(tiercel_ticket_import(program.session, bytes.data(), size, &other, error));
  EXPECT_EQ(tiercel_ticket_id(other), tiercel_ticket_id(ticket));
  tiercel_ticket_release(ticket);
  tiercel_state state = TIERCEL_STATE_PENDING;
  TIERCEL_OK_CALL(tiercel_ticket_poll(other, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_READY) << "one handle is left";

  auto stranger = sized<tiercel_session_options>();
  stranger.tenant_salt = {"b", 1};
  tiercel_session* session = nullptr;
  TIERCEL_OK_CALL(tiercel_session_open(program.node, &stranger, &session, error));
  tiercel_ticket* stolen = nullptr;
  EXPECT_EQ(tiercel_ticket_import(session, bytes.data(), size, &stolen, nullptr), TIERCEL_NOT_FOUND);
  TIERCEL_OK_CALL(tiercel_session_close(session, error));
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] ^= std::byte{1};
    EXPECT_EQ(tiercel_ticket_import(program.session, bytes.data(), size, &stolen, nullptr),
              TIERCEL_INVALID_ARGUMENT);
    bytes[i] ^= std::byte{1};
  }
  EXPECT_EQ(tiercel_ticket_import(program.session, bytes.data(), size - 1, &stolen, nullptr),
            TIERCEL_INVALID_ARGUMENT);
  Program elsewhere({.salt = "a"});
  EXPECT_EQ(tiercel_ticket_import(elsewhere.session, bytes.data(), size, &stolen, nullptr),
            TIERCEL_UNSUPPORTED);
  tiercel_ticket_release(other);
  EXPECT_EQ(tiercel_ticket_import(program.session, bytes.data(), size, &stolen, nullptr), TIERCEL_NOT_FOUND);
  EXPECT_EQ(stolen, nullptr);
}

TEST(CapiCalls, RequestsAreTheSessionsOwnAndEndAfterTheirTime) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 1, 1);
  program.store(keys);
  tiercel_session* second = nullptr;
  TIERCEL_OK_CALL(tiercel_session_open(program.node, nullptr, &second, error));
  auto request = sized<tiercel_request_options>();
  request.id = 5;
  TIERCEL_OK_CALL(tiercel_request_begin(program.session, &request, error));
  TIERCEL_OK_CALL(tiercel_request_begin(second, &request, error));
  tiercel_ticket* ticket = program.match(keys, 5);
  TIERCEL_OK_CALL(tiercel_request_abort(second, 5, error));
  tiercel_state state = TIERCEL_STATE_PENDING;
  TIERCEL_OK_CALL(tiercel_ticket_poll(ticket, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_READY) << "the other session's request 5 was aborted";
  TIERCEL_OK_CALL(tiercel_request_abort(program.session, 5, error));
  TIERCEL_OK_CALL(tiercel_ticket_poll(ticket, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_ENDED);
  EXPECT_EQ(program.length_of(ticket), 1U) << "the answer stays readable";
  tiercel_ticket_release(ticket);

  request.ttl_ns = kSecond / 20;
  TIERCEL_OK_CALL(tiercel_request_begin(program.session, &request, error));
  ticket = program.match(keys, 5);
  for (state = TIERCEL_STATE_READY; state != TIERCEL_STATE_ENDED;)
    TIERCEL_OK_CALL(tiercel_ticket_poll(ticket, &state, error));
  tiercel_ticket_release(ticket);
  request.priority = 1;
  EXPECT_EQ(tiercel_request_begin(program.session, &request, nullptr), TIERCEL_UNSUPPORTED);
  TIERCEL_OK_CALL(tiercel_session_close(second, error));
}

// ---- completions ----

TEST(CapiCalls, TheEventfdIsReadableExactlyWhileCompletionsWait) {
  Program program;
  tiercel_cq* const cq = make_cq(program.node);
  EXPECT_FALSE(readable(cq));
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys);
  auto options = store_of(items);
  options.cq = cq;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_TRUE(readable(cq));
  tiercel_completion completion{};
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_cq_drain(cq, &completion, 1, &count, error));
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(completion.handle, operation);
  EXPECT_TRUE(readable(cq)) << "one still waits";
  tiercel_operation_release(operation);
  TIERCEL_OK_CALL(tiercel_cq_drain(cq, &completion, 1, &count, error));
  EXPECT_EQ(completion.handle, nullptr) << "given back meanwhile";
  EXPECT_FALSE(readable(cq));
  TIERCEL_OK_CALL(tiercel_cq_drain(cq, &completion, 1, &count, error));
  EXPECT_EQ(count, 0U);
  tiercel_cq_release(cq);
}

TEST(CapiCalls, AFullQueueRefusesNewOperations) {
  Program program;
  tiercel_cq* const cq = make_cq(program.node, 2);
  auto options = sized<tiercel_store_options>();
  options.cq = cq;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, nullptr, error));
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_RESOURCE_EXHAUSTED);
  EXPECT_EQ(drain(cq).size(), 2U);
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, nullptr, error));
  tiercel_cq_release(cq);
}

TEST(CapiCalls, AStoreWhoseEventNeverFiresEndsAtItsDeadline) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys);
  auto options = store_of(items);
  options.after_event = make_event(program.node);
  options.deadline_ns = 1000;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).items_ok, 0U);
  EXPECT_EQ(result_of(operation).quiescent, 1U);
  tiercel_operation_release(operation);
  options.after_event = 999;
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT)
      << "no such event was made";
  EXPECT_EQ(tiercel_event_fire(program.node, 999, nullptr), TIERCEL_INVALID_ARGUMENT);
}

TEST(CapiCalls, ACancelledLoadIsQuiescentAtItsLastCompletion) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  program.store(keys);
  tiercel_cq* const cq = make_cq(program.node);
  tiercel_ticket* const ticket = program.match(keys);
  tiercel_operation* const operation = load(ticket, 2, 0, cq, make_event(program.node));
  TIERCEL_OK_CALL(tiercel_operation_cancel(operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_QUIESCENT, kLong, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).status, TIERCEL_CANCELLED);
  const auto completions = drain(cq);
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].status, TIERCEL_CANCELLED);
  EXPECT_EQ(completions[0].flags, TIERCEL_COMPLETION_LAST | TIERCEL_COMPLETION_QUIET);
  EXPECT_EQ(tiercel_wait_layer(operation, 0, 0, nullptr), TIERCEL_CANCELLED);
  EXPECT_EQ(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, 0, nullptr),
            TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, 0, nullptr), TIERCEL_UNSUPPORTED);
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
  tiercel_cq_release(cq);
}

TEST(CapiCalls, ClosingANodeCompletesEverythingOnce) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys);
  tiercel_cq* const cq = make_cq(program.node);
  auto options = store_of(items);
  options.cq = cq;
  options.after_event = make_event(program.node);
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  program.close();
  const auto completions = drain(cq);
  EXPECT_EQ(std::count_if(completions.begin(), completions.end(),
                          [](const auto& c) { return (c.flags & TIERCEL_COMPLETION_LAST) != 0; }),
            1);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_FAILED_PRECONDITION);
  tiercel_operation_release(operation);
  tiercel_cq_release(cq);
}

TEST(CapiCalls, WithoutAThreadNothingMovesUntilSomebodyDrives) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  Program program({.threading = TIERCEL_THREADING_CALLER});
  EXPECT_EQ(threads(), before);
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys);
  const auto options = store_of(items);
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, &operation, error));
  tiercel_state state = TIERCEL_STATE_READY;
  TIERCEL_OK_CALL(tiercel_operation_poll(operation, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_PENDING);
  std::uint64_t steps = 0;
  TIERCEL_OK_CALL(tiercel_poll(program.node, kSecond, &steps, error));
  EXPECT_GE(steps, 3U);
  TIERCEL_OK_CALL(tiercel_operation_poll(operation, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_READY);
  TIERCEL_OK_CALL(tiercel_poll(program.node, kSecond, &steps, error));
  EXPECT_EQ(steps, 0U);
  tiercel_operation_release(operation);
}

TEST(CapiCalls, UnregisteringWaitsForCopiesAndASuspensionEndsThem) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  program.fill(1);
  program.store(keys);
  const std::vector<std::byte> was = program.state();
  tiercel_ticket* ticket = program.match(keys);
  tiercel_operation* operation = load(ticket, 2, 0, nullptr, make_event(program.node));
  EXPECT_EQ(tiercel_unregister_memory(program.form, 0, 0, 0, nullptr), TIERCEL_DEADLINE_EXCEEDED);
  tiercel_operation* suspension = nullptr;
  TIERCEL_OK_CALL(tiercel_suspend(program.node, nullptr, &suspension, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(suspension, TIERCEL_COMPLETION_SUSPENDED, kLong, error));
  tiercel_operation_release(suspension);
  TIERCEL_OK_CALL(tiercel_suspend(program.node, nullptr, &suspension, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(suspension, 0, 0, error));
  tiercel_operation_release(suspension);
  EXPECT_EQ(result_of(operation).status, TIERCEL_CANCELLED);
  tiercel_operation_release(operation);
  EXPECT_EQ(tiercel_unregister_memory(program.form, 0, 0, 0, nullptr), TIERCEL_NOT_FOUND);

  TIERCEL_OK_CALL(tiercel_resume(program.node, error));
  program.fill(2);
  program.register_memory();
  operation = load(ticket, 2);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).length, 2U);
  EXPECT_TRUE(std::equal(was.begin(), was.begin() + Program::kStateBytes, program.state().begin()));
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
}

TEST(CapiCalls, ASlotIsASourceUntilItsStoreHasReadIt) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys, 3);
  auto options = store_of(items);
  options.after_event = make_event(program.node);
  TIERCEL_OK_CALL(tiercel_store(program.ns, &options, nullptr, nullptr, error));
  const std::uint64_t read[] = {0, 4}, unread[] = {0, 5};
  TIERCEL_OK_CALL(tiercel_wait_sources(program.form, 0, 0, unread, 2, 0, error));
  EXPECT_EQ(tiercel_wait_sources(program.form, 0, 0, read, 2, 0, nullptr), TIERCEL_DEADLINE_EXCEEDED);
  TIERCEL_OK_CALL(tiercel_event_fire(program.node, options.after_event, error));
  TIERCEL_OK_CALL(tiercel_wait_sources(program.form, 0, 0, read, 2, kLong, error));
  TIERCEL_OK_CALL(tiercel_event_fire(program.node, options.after_event, error));
}

TEST(CapiCalls, AnAttachNeedsItsPageAndAClassThatMayComeLater) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  auto items = Program::items(keys);
  tiercel_store_item snapshot = items.back();
  const std::vector<tiercel_store_item> one = {snapshot};
  auto options = store_of(one);
  tiercel_reservation* reservation = nullptr;
  TIERCEL_OK_CALL(tiercel_reserve(program.ns, &options, nullptr, &reservation, error));
  EXPECT_EQ(tiercel_attach(reservation, nullptr, nullptr, nullptr), TIERCEL_FAILED_PRECONDITION)
      << "no page yet";
  items.pop_back();
  const auto pages = store_of(items);
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &pages, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  tiercel_operation_release(operation);
  TIERCEL_OK_CALL(tiercel_attach(reservation, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).items_ok, 1U);
  tiercel_operation_release(operation);
  tiercel_reservation_release(reservation);
  tiercel_ticket* const ticket = program.match(keys);
  EXPECT_EQ(program.length_of(ticket), 2U);
  tiercel_ticket_release(ticket);

  const auto more = Program::make_keys(program.ns, 1, 2);
  items = Program::items(more);
  options = store_of(items);
  TIERCEL_OK_CALL(tiercel_reserve(program.ns, &options, nullptr, &reservation, error));
  EXPECT_EQ(tiercel_attach(reservation, nullptr, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT)
      << "a required class";
  tiercel_reservation_release(reservation);  // aborts it
  auto stats = sized<tiercel_stats>();
  TIERCEL_OK_CALL(tiercel_stats_read(program.node, &stats, error));
  EXPECT_EQ(stats.reserved_bytes, 0U);
}

TEST(CapiCalls, EventsComeOutInPiecesWithoutAGap) {
  Program program;
  program.store(Program::make_keys(program.ns, 5, 1));
  std::vector<tiercel_cache_event> events(3);
  std::uint64_t count = 0, lost = 1, next = 0;
  for (int round = 0; round < 4; ++round) {
    TIERCEL_OK_CALL(tiercel_events_drain(program.node, events.data(), 2, &count, &lost, error));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (next != 0) {
        EXPECT_EQ(events[i].sequence, next);
      }
      next = events[i].sequence + 1;
    }
    EXPECT_EQ(lost, 0U);
  }
  EXPECT_EQ(count, 0U);
  EXPECT_GE(next, 5U);
}

TEST(CapiCalls, TheOneSwitchTurnsTheCacheOff) {
  ASSERT_EQ(::setenv("TIERCEL_OFF", "1", 1), 0);
  Program program;
  ASSERT_EQ(::setenv("TIERCEL_OFF", "0", 1), 0);
  const auto keys = Program::make_keys(program.ns, 2, 1);
  const auto items = Program::items(keys);
  const auto options = store_of(items);
  EXPECT_EQ(tiercel_store(program.ns, &options, nullptr, nullptr, nullptr), TIERCEL_UNAVAILABLE);
  tiercel_ticket* const ticket = program.match(keys);
  EXPECT_EQ(program.length_of(ticket), 0U);
  tiercel_miss miss{};
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_ticket_reasons(ticket, &miss, 1, &count, error));
  EXPECT_EQ(miss.reason, TIERCEL_REASON_TIER_DOWN);
  tiercel_ticket_release(ticket);
  auto stats = sized<tiercel_stats>();
  TIERCEL_OK_CALL(tiercel_stats_read(program.node, &stats, error));
  EXPECT_EQ(stats.off, 1U);
  Program on;
  TIERCEL_OK_CALL(tiercel_stats_read(on.node, &stats, error));
  EXPECT_EQ(stats.off, 0U);
  ASSERT_EQ(::unsetenv("TIERCEL_OFF"), 0);
}

}  // namespace
}  // namespace tiercel::capi
