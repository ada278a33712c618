// Transfers, tickets and completions: calls as an engine makes them.
#include <algorithm>
#include <filesystem>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

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

TEST(CapiCalls, ATtlEndsWithItsRequestAndSparesTheNextOneOfThatId) {
  Program program({.threading = TIERCEL_THREADING_CALLER});
  const auto keys = Program::make_keys(program.ns, 1, 1);
  auto request = sized<tiercel_request_options>();
  request.id = 5;
  request.ttl_ns = 1;  // over at the next poll
  TIERCEL_OK_CALL(tiercel_request_begin(program.session, &request, error));
  TIERCEL_OK_CALL(tiercel_request_end(program.session, 5, error));
  request.ttl_ns = 0;
  TIERCEL_OK_CALL(tiercel_request_begin(program.session, &request, error));
  tiercel_ticket* const ticket = program.match(keys, 5);
  TIERCEL_OK_CALL(tiercel_poll(program.node, 0, nullptr, error));
  tiercel_state state = TIERCEL_STATE_PENDING;
  TIERCEL_OK_CALL(tiercel_ticket_poll(ticket, &state, error));
  EXPECT_EQ(state, TIERCEL_STATE_READY);
  EXPECT_EQ(tiercel_request_begin(program.session, &request, nullptr), TIERCEL_ALREADY_EXISTS);
  tiercel_ticket_release(ticket);
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
