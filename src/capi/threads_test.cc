// Many threads on one node, and a forked child.
#include <atomic>
#include <map>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

constexpr std::uint64_t kPages = 3;

// One engine's turn: store a prompt, match it, load it, look at the bytes.
void turn(Program& program, tiercel_cq* cq, std::uint32_t seed, std::uint64_t first,
          std::atomic<int>& wrong) {
  const auto keys = Program::make_keys(program.ns, kPages, seed);
  auto items = Program::items(keys, first);
  std::vector<std::byte> page(Program::kFullBytes, static_cast<std::byte>(seed)),
      snapshot(Program::kStateBytes);
  std::fill(snapshot.begin(), snapshot.end(), static_cast<std::byte>(seed + 1));
  const tiercel_segment page_part = {page.data(), page.size()},
                        state_part = {snapshot.data(), snapshot.size()};
  const tiercel_object objects[2] = {{&page_part, 1, TIERCEL_WHOLE, 0}, {&state_part, 1, TIERCEL_WHOLE, 0}};
  for (auto& item : items) item.record = {&objects[item.class_id], 1};
  auto store = sized<tiercel_store_options>();
  store.items = items.data();
  store.item_count = items.size();
  store.cq = cq;
  store.request = seed;
  tiercel_operation* operation = nullptr;
  if (tiercel_store(program.ns, &store, nullptr, &operation, nullptr) != TIERCEL_OK)
    return;  // the node is closing
  tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, nullptr);
  tiercel_operation_release(operation);

  auto match = sized<tiercel_match_options>();
  match.keys = keys.data();
  match.key_count = keys.size();
  match.limit_tokens = TIERCEL_NO_LIMIT;
  match.request = seed;
  tiercel_ticket* ticket = nullptr;
  if (tiercel_match(program.ns, &match, &ticket, nullptr) != TIERCEL_OK) return;
  const std::uint64_t length = program.length_of(ticket);
  std::vector<std::byte> loaded(Program::kFullBytes);
  const tiercel_segment loaded_part = {loaded.data(), loaded.size()};
  const tiercel_object loaded_object = {&loaded_part, 1, TIERCEL_WHOLE, 0};
  std::vector<tiercel_record_memory> records(length, tiercel_record_memory{});
  if (length != 0) records.back() = {&loaded_object, 1};  // the others are not wanted
  tiercel_load_target target{};
  target.records = records.data();
  target.count = records.size();
  auto load = sized<tiercel_load_options>();
  load.length = length;
  load.targets = &target;
  load.target_count = length != 0 ? 1 : 0;
  load.cq = cq;
  if (tiercel_load(ticket, &load, &operation, nullptr) == TIERCEL_OK) {
    tiercel_operation_wait(operation, 0, kLong, nullptr);
    auto result = sized<tiercel_operation_result>();
    const bool ended = tiercel_operation_result_read(operation, &result, nullptr) == TIERCEL_OK;
    if (ended && result.status == TIERCEL_OK && result.length == kPages && loaded != page) ++wrong;
    tiercel_operation_release(operation);
  }
  tiercel_ticket_release(ticket);
  tiercel_request_end(program.session, seed, nullptr);
}

// Takes completions out until `stop`, counting the last ones of each operation.
void drain_until(tiercel_cq* cq, const std::atomic<bool>& stop, std::map<std::uint64_t, int>& last) {
  for (bool again = true; again;) {
    again = !stop;
    tiercel_completion completions[16];
    std::uint64_t count = 0;
    if (tiercel_cq_drain(cq, completions, 16, &count, nullptr) != TIERCEL_OK) return;
    for (std::uint64_t i = 0; i < count; ++i)
      if ((completions[i].flags & TIERCEL_COMPLETION_LAST) != 0) ++last[completions[i].operation];
    again = again || count != 0;
    if (count == 0) std::this_thread::yield();
  }
}

void many_threads(const ProgramOptions& options, bool close_early) {
  constexpr std::uint32_t kThreads = 4;
  constexpr std::uint32_t kTurns = 25;
  Program program(options);
  tiercel_cq* cq = nullptr;
  ASSERT_EQ(tiercel_cq_create(program.node, nullptr, &cq, nullptr), TIERCEL_OK);
  std::atomic<int> wrong{0}, turns{0};
  std::atomic<bool> stop{false};
  std::map<std::uint64_t, int> last;
  std::thread drainer([&] { drain_until(cq, stop, last); });
  std::vector<std::thread> engines;
  for (std::uint32_t t = 0; t < kThreads; ++t)
    engines.emplace_back([&, t] {
      for (std::uint32_t i = 0; i < kTurns; ++i, ++turns)
        turn(program, cq, 1 + t * kTurns + i, t * kPages, wrong);
    });
  if (close_early) {
    while (turns < 10) std::this_thread::yield();
    program.close();
  }
  for (std::thread& engine : engines) engine.join();
  stop = true;
  drainer.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(last.size(), close_early ? 10U : std::size_t{kThreads} * kTurns * 2);
  for (const auto& [operation, count] : last) EXPECT_EQ(count, 1) << operation;
  tiercel_cq_release(cq);
}

TEST(CapiThreads, ManyThreadsOnOneNodeGetTheirOwnBytes) {
  many_threads({.copy_threads = 2, .registers = false}, false);
}

TEST(CapiThreads, ManyThreadsDriveANodeThatHasNone) {
  many_threads({.threading = TIERCEL_THREADING_CALLER, .registers = false}, false);
}

TEST(CapiThreads, ANodeMayBeClosedWhileOthersCallIt) {
  many_threads({.copy_threads = 2, .registers = false}, true);
}

TEST(CapiThreads, ANodeThatIsDrivenMayBeClosedWhileOthersCallIt) {
  many_threads({.threading = TIERCEL_THREADING_CALLER, .registers = false}, true);
}

TEST(CapiThreads, AWaitEndsWhenTheNodeIsClosed) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 1, 1);
  const auto items = Program::items(keys);
  auto store = sized<tiercel_store_options>();
  store.items = items.data();
  store.item_count = items.size();
  ASSERT_EQ(tiercel_event_create(program.node, &store.after_event, nullptr), TIERCEL_OK);
  tiercel_operation* operation = nullptr;
  ASSERT_EQ(tiercel_store(program.ns, &store, nullptr, &operation, nullptr), TIERCEL_OK);
  const std::uint64_t slot = 0;
  std::thread waiter([&] {
    EXPECT_EQ(tiercel_operation_wait(operation, 0, TIERCEL_FOREVER, nullptr), TIERCEL_OK);
    const tiercel_status status =
        tiercel_wait_sources(program.form, 0, 0, &slot, 1, TIERCEL_FOREVER, nullptr);
    EXPECT_EQ(status, TIERCEL_OK);
  });
  program.close();
  waiter.join();
  auto result = sized<tiercel_operation_result>();
  EXPECT_EQ(tiercel_operation_result_read(operation, &result, nullptr), TIERCEL_OK);
  EXPECT_EQ(result.items_ok, 0U);
  tiercel_operation_release(operation);
}

// What a forked child sees of its parent's handles; 0 when every call was refused for it.
int uses_in_child(Program& program, tiercel_ticket* ticket, tiercel_operation* operation, tiercel_cq* cq,
                  tiercel_reservation* reservation, tiercel_spec* spec) {
  auto stats = sized<tiercel_stats>();
  auto store = sized<tiercel_store_options>();
  auto load = sized<tiercel_load_options>();
  auto form_info = sized<tiercel_form_info>();
  tiercel_state state = 0;
  std::uint64_t count = 0;
  const tiercel_status answers[] = {
      tiercel_stats_read(program.node, &stats, nullptr),
      tiercel_poll(program.node, 0, nullptr, nullptr),
      tiercel_store(program.ns, &store, nullptr, nullptr, nullptr),
      tiercel_load(ticket, &load, nullptr, nullptr),
      tiercel_ticket_poll(ticket, &state, nullptr),
      tiercel_operation_wait(operation, 0, kLong, nullptr),
      tiercel_cq_drain(cq, nullptr, 0, &count, nullptr),
      tiercel_commit(reservation, nullptr, nullptr, nullptr),
      tiercel_form_describe(program.form, &form_info, nullptr),
      tiercel_spec_to_json(spec, nullptr, 0, &count, nullptr),
      tiercel_request_end(program.session, 1, nullptr),
      tiercel_session_close(program.session, nullptr),
      tiercel_node_close(program.node, nullptr),
  };
  tiercel_ticket_release(ticket);  // these do nothing there
  tiercel_operation_release(operation);
  tiercel_reservation_release(reservation);
  tiercel_cq_release(cq);
  tiercel_namespace_release(program.ns);
  int number = 1;
  for (const tiercel_status status : answers) {
    if (status != TIERCEL_WRONG_PROCESS) return number;
    ++number;
  }
  return 0;
}

TEST(CapiThreads, AForkedChildCanUseNoHandleOfItsParent) {
  Program program;
  const auto keys = Program::make_keys(program.ns, 2, 1);
  program.store(keys);
  tiercel_ticket* const ticket = program.match(keys);
  auto empty = sized<tiercel_store_options>();
  tiercel_operation* operation = nullptr;
  tiercel_reservation* reservation = nullptr;
  tiercel_cq* cq = nullptr;
  ASSERT_EQ(tiercel_store(program.ns, &empty, nullptr, &operation, nullptr), TIERCEL_OK);
  ASSERT_EQ(tiercel_reserve(program.ns, &empty, nullptr, &reservation, nullptr), TIERCEL_OK);
  ASSERT_EQ(tiercel_cq_create(program.node, nullptr, &cq, nullptr), TIERCEL_OK);
  tiercel_spec* const spec = make_test_spec();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(uses_in_child(program, ticket, operation, cq, reservation, spec));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "number of the call that was not refused";
  EXPECT_EQ(program.length_of(ticket), 2U) << "the parent goes on";
  tiercel_spec_release(spec);
  tiercel_ticket_release(ticket);
  tiercel_operation_release(operation);
  tiercel_reservation_release(reservation);
  tiercel_cq_release(cq);
}

}  // namespace
}  // namespace tiercel::capi
