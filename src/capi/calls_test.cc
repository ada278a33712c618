// Handles, arguments and batches: calls as they should not be made.
#include <algorithm>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

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
  EXPECT_EQ(open([](auto& t) { t.replicated = 1; }), TIERCEL_UNSUPPORTED);
  EXPECT_EQ(open([](auto& t) { t.writer = 0; }), TIERCEL_UNSUPPORTED) << "nobody would write them";
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

TEST(CapiCalls, EveryReservedFieldIsChecked) {
  Program program;
  auto offer = sized<tiercel_offer_options>();
  offer.event = TIERCEL_OFFER_COMPUTED;
  EXPECT_EQ(tiercel_offer(program.ns, &offer, nullptr, nullptr), TIERCEL_OK);
  offer.reserved = 1;
  EXPECT_EQ(tiercel_offer(program.ns, &offer, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  auto prefetch = sized<tiercel_prefetch_options>();
  prefetch.policy = TIERCEL_PREFETCH_BEST_EFFORT;
  EXPECT_EQ(tiercel_prefetch(program.ns, &prefetch, nullptr, nullptr), TIERCEL_UNSUPPORTED);
  prefetch.reserved = 1;
  EXPECT_EQ(tiercel_prefetch(program.ns, &prefetch, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  auto spec = sized<tiercel_spec_options>();
  spec.page_tokens = 4;
  spec.tp = spec.pp = spec.cp = 1;
  tiercel_spec_builder* builder = nullptr;
  TIERCEL_OK_CALL(tiercel_spec_builder_create(&spec, &builder, error));
  auto group = sized<tiercel_group_options>();
  const std::uint32_t layer = 0;
  group.layers = &layer;
  group.layer_count = 1;
  group.kind = TIERCEL_GROUP_FULL;
  std::uint32_t number = 9;
  TIERCEL_OK_CALL(tiercel_spec_builder_group(builder, &group, &number, error));
  auto component = sized<tiercel_component_options>();
  component.name = "k";
  component.opaque_bytes = 8;
  component.reserved = 1;
  EXPECT_EQ(tiercel_spec_builder_component(builder, number, &component, nullptr), TIERCEL_INVALID_ARGUMENT);
  component.reserved = 0;
  TIERCEL_OK_CALL(tiercel_spec_builder_component(builder, number, &component, error));
  tiercel_spec_builder_release(builder);
  tiercel_load_target target{};
  target.reserved = 1;
  auto load = sized<tiercel_load_options>();
  load.targets = &target;
  load.target_count = 1;
  tiercel_ticket* const ticket = program.match({});
  tiercel_error why{};
  EXPECT_EQ(tiercel_load(ticket, &load, nullptr, &why), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(why.message, "reserved"), nullptr) << why.message;
  tiercel_ticket_release(ticket);
}

TEST(CapiCalls, CommitsAndReservationsRefuseWhatTheyDoNotKnowAndKeepTheReservation) {
  Program program;
  const auto items = Program::items(Program::make_keys(program.ns, 1, 1));
  auto reserve = store_of(items);
  tiercel_reservation* reservation = nullptr;
  reserve.reserved = 1;
  EXPECT_EQ(tiercel_reserve(program.ns, &reserve, nullptr, &reservation, nullptr), TIERCEL_INVALID_ARGUMENT);
  reserve.reserved = 0;
  TIERCEL_OK_CALL(tiercel_reserve(program.ns, &reserve, nullptr, &reservation, error));
  tiercel_arrival arrival{};
  auto commit = sized<tiercel_commit_options>();
  commit.arrivals = &arrival;
  commit.arrival_count = 1;
  const auto refused = [&] { return tiercel_commit(reservation, &commit, nullptr, nullptr); };
  arrival.reserved = 1;
  EXPECT_EQ(refused(), TIERCEL_INVALID_ARGUMENT);
  arrival.reserved = 0;
  arrival.checksum_count = 2;  // and no list
  EXPECT_EQ(refused(), TIERCEL_INVALID_ARGUMENT);
  const std::uint32_t sums[1] = {};
  arrival.checksums = sums;
  arrival.checksum_count = 1;  // of two layers
  EXPECT_EQ(refused(), TIERCEL_INVALID_ARGUMENT);
  arrival = {};
  arrival.item = items.size();
  EXPECT_EQ(refused(), TIERCEL_INVALID_ARGUMENT);
  arrival.item = 0;
  commit.reserved = 1;
  EXPECT_EQ(refused(), TIERCEL_INVALID_ARGUMENT);
  commit.reserved = 0;
  EXPECT_EQ(tiercel_suspend(program.node, &commit, nullptr, nullptr), TIERCEL_INVALID_ARGUMENT);
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_commit(reservation, &commit, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
  tiercel_outcome outcomes[2] = {};
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_store_outcomes(operation, outcomes, 2, &count, error));
  EXPECT_EQ(outcomes[0], TIERCEL_ITEM_COMMITTED);
  EXPECT_EQ(outcomes[1], TIERCEL_ITEM_NOT_ARRIVED);
  EXPECT_STREQ(tiercel_outcome_name(outcomes[1]), "not_arrived");
  EXPECT_STREQ(tiercel_outcome_name(TIERCEL_ITEM_DAMAGED), "damaged");
  tiercel_operation_release(operation);
  tiercel_reservation_release(reservation);
}

TEST(CapiCalls, AnEmptyListOfArrivalsCommitsNothing) {
  Program program;
  const auto items = Program::items(Program::make_keys(program.ns, 1, 1));
  const auto reserve = store_of(items);
  tiercel_reservation* reservation = nullptr;
  TIERCEL_OK_CALL(tiercel_reserve(program.ns, &reserve, nullptr, &reservation, error));
  const tiercel_arrival none{};
  auto commit = sized<tiercel_commit_options>();
  commit.arrivals = &none;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_commit(reservation, &commit, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
  tiercel_outcome outcomes[2] = {};
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_store_outcomes(operation, outcomes, 2, &count, error));
  EXPECT_EQ(outcomes[0], TIERCEL_ITEM_NOT_ARRIVED);
  EXPECT_EQ(outcomes[1], TIERCEL_ITEM_NOT_ARRIVED);
  tiercel_operation_release(operation);
  tiercel_reservation_release(reservation);
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

}  // namespace
}  // namespace tiercel::capi
