// The disk tier through the ABI: on a small file, with a node after another on it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

class CapiDisk : public testing::TestWithParam<tiercel_threading> {
 protected:
  CapiDisk() {
    disk.path = file.c_str();
    disk.bytes = 16 << 20;
    disk.prefetch_threshold_tokens = 1;
    disk.admission = TIERCEL_ADMIT_ALL;
  }
  ProgramOptions options() {
    ProgramOptions wanted;
    wanted.threading = GetParam();
    wanted.host_bytes = 16 << 20;
    wanted.disk = &disk;
    return wanted;
  }

  const Folder folder;
  const std::string file = folder.of("cache");
  tiercel_disk_options disk = sized<tiercel_disk_options>();
};

TEST_P(CapiDisk, AFreshCacheOneConversationCloseAndReopenHits) {
  std::vector<tiercel_key> keys;
  std::vector<std::byte> full, state;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 6, 1);
    program.fill(5);
    full = program.full();
    state = program.state();
    program.store(keys);
    program.close();
  }
  Program program(options());
  tiercel_ticket* const ticket = promoted(program.ns, keys);
  ASSERT_EQ(program.length_of(ticket), 6U);
  tiercel_operation* const operation = load(ticket, 6);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).length, 6U);
  const auto part = [](const std::vector<std::byte>& bytes, std::size_t of, std::size_t slots,
                       std::size_t each) {
    return std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(of),
                                  bytes.begin() + static_cast<std::ptrdiff_t>(of + slots * each));
  };
  const std::size_t plane = program.options.slots * Program::kPart;
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(part(program.full(), i * plane, 6, Program::kPart), part(full, i * plane, 6, Program::kPart))
        << i;
  EXPECT_EQ(part(program.state(), 0, 1, Program::kStateBytes), part(state, 0, 1, Program::kStateBytes));
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
}

TEST_P(CapiDisk, ASnapshotIsAttachedToAPageThatOnlyTheDiskHas) {
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 3, 1);
    auto pages = Program::items(keys);
    pages.pop_back();  // the snapshot
    auto store = sized<tiercel_store_options>();
    store.items = pages.data();
    store.item_count = pages.size();
    tiercel_operation* operation = nullptr;
    TIERCEL_OK_CALL(tiercel_store(program.ns, &store, nullptr, &operation, error));
    TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
    tiercel_operation_release(operation);
  }
  Program program(options());
  EXPECT_EQ(program.promoted_length(keys), 0U);
  const std::vector<tiercel_store_item> snapshot = {Program::items(keys).back()};
  const auto attach = [&](const std::vector<tiercel_store_item>& what, tiercel_status wanted) {
    auto store = sized<tiercel_store_options>();
    store.items = what.data();
    store.item_count = what.size();
    tiercel_reservation* reservation = nullptr;
    TIERCEL_OK_CALL(tiercel_reserve(program.ns, &store, nullptr, &reservation, error));
    tiercel_operation* operation = nullptr;
    EXPECT_EQ(tiercel_attach(reservation, nullptr, &operation, nullptr), wanted);
    if (operation != nullptr)
      TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
    tiercel_operation_release(operation);
    tiercel_reservation_release(reservation);
  };
  attach({Program::items(Program::make_keys(program.ns, 3, 2)).back()}, TIERCEL_FAILED_PRECONDITION);
  attach(snapshot, TIERCEL_OK);
  EXPECT_EQ(program.promoted_length(keys), 3U);
}

TEST_P(CapiDisk, AMatchIsToldOnceAndItsTicketCountsByTier) {
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 4, 1);
    program.store(keys);
  }
  Program program(options());
  tiercel_cq* const cq = make_cq(program.node);
  tiercel_ticket* const ticket = promoted(program.ns, keys, cq);
  const std::vector<tiercel_completion> told = drain(cq);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].kind, TIERCEL_COMPLETION_TICKET);
  EXPECT_EQ(told[0].user_data, 77U);
  EXPECT_EQ(told[0].length, 4U);
  EXPECT_EQ(told[0].operation, tiercel_ticket_id(ticket));
  auto counts = sized<tiercel_ticket_counts>();
  TIERCEL_OK_CALL(tiercel_ticket_summary(ticket, &counts, error));
  EXPECT_EQ(counts.disk_pages, 4U);
  EXPECT_EQ(counts.host_pages, 0U);
  std::uint64_t pages[2] = {}, count = 0;
  TIERCEL_OK_CALL(tiercel_ticket_resident(ticket, TIERCEL_TIER_DISK, pages, 2, &count, error));
  EXPECT_EQ(pages[0], 4U);
  TIERCEL_OK_CALL(tiercel_ticket_resident(ticket, TIERCEL_TIER_HOST, pages, 2, &count, error));
  EXPECT_EQ(pages[0], 4U);
  EXPECT_EQ(tiercel_ticket_resident(ticket, TIERCEL_TIER_REMOTE, pages, 2, &count, nullptr),
            TIERCEL_UNSUPPORTED);
  tiercel_ticket_release(ticket);
  // Now the host tier has it.
  tiercel_ticket* const again = program.match(keys);
  TIERCEL_OK_CALL(tiercel_ticket_summary(again, &counts, error));
  EXPECT_EQ(counts.host_pages, 4U);
  tiercel_ticket_release(again);
  tiercel_cq_release(cq);
}

TEST_P(CapiDisk, ATicketThatEndsWhileItIsPendingIsToldAsCancelledOnce) {
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 32, 1);
    program.store(keys);
  }
  for (int round = 0; round < 8; ++round) {
    Program program(options());
    tiercel_cq* const cq = make_cq(program.node);
    auto match = sized<tiercel_match_options>();
    match.keys = keys.data();
    match.key_count = keys.size();
    match.limit_tokens = TIERCEL_NO_LIMIT;
    match.may_promote = 1;
    match.cq = cq;
    tiercel_ticket* ticket = nullptr;
    TIERCEL_OK_CALL(tiercel_match(program.ns, &match, &ticket, error));
    switch (round % 4) {
      case 0:
        TIERCEL_OK_CALL(tiercel_ticket_cancel(ticket, error));
        EXPECT_NE(tiercel_ticket_wait(ticket, kLong, nullptr), TIERCEL_DEADLINE_EXCEEDED);
        break;
      case 1:
        tiercel_ticket_release(std::exchange(ticket, nullptr));
        break;
      case 2:
        TIERCEL_OK_CALL(tiercel_session_close(std::exchange(program.session, nullptr), error));
        break;
      default:
        break;  // the node is closed
    }
    program.close();
    const std::vector<tiercel_completion> told = drain(cq);
    ASSERT_EQ(told.size(), 1U) << round;
    EXPECT_EQ(told[0].kind, TIERCEL_COMPLETION_TICKET);
    EXPECT_TRUE(told[0].status == TIERCEL_OK || told[0].status == TIERCEL_CANCELLED) << told[0].status;
    EXPECT_NE(told[0].flags & TIERCEL_COMPLETION_LAST, 0U);
    tiercel_ticket_release(ticket);
    tiercel_cq_release(cq);
  }
}

TEST_P(CapiDisk, AStoreHearsOfTheDiskInOrderAndOnlyWhenItAsked) {
  Program program(options());
  tiercel_cq* const cq = make_cq(program.node);
  const auto keys = Program::make_keys(program.ns, 3, 1);
  const auto items = Program::items(keys);
  tiercel_store_options store = store_of(items);
  store.cq = cq;
  store.tell_lower = 1;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &store, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, kLong, error));
  const std::vector<tiercel_completion> told = drain(cq);
  std::vector<tiercel_completion_kind> kinds;
  std::transform(told.begin(), told.end(), std::back_inserter(kinds),
                 [](const tiercel_completion& one) { return one.kind; });
  EXPECT_EQ(kinds,
            (std::vector<tiercel_completion_kind>{TIERCEL_COMPLETION_SOURCE_FREE, TIERCEL_COMPLETION_VISIBLE,
                                                  TIERCEL_COMPLETION_ACCEPTED, TIERCEL_COMPLETION_DURABLE}));
  EXPECT_EQ(told.back().length, 4U) << "three pages and a snapshot";
  EXPECT_EQ(told.back().tier, TIERCEL_TIER_DISK);
  EXPECT_NE(told.back().flags & TIERCEL_COMPLETION_LAST, 0U);
  for (std::size_t i = 0; i + 1 < told.size(); ++i) EXPECT_EQ(told[i].flags & TIERCEL_COMPLETION_LAST, 0U);
  tiercel_operation_release(operation);

  // Of what is there already there is nothing to tell, and it is told at once.
  TIERCEL_OK_CALL(tiercel_store(program.ns, &store, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, kLong, error));
  tiercel_operation_release(operation);
  EXPECT_EQ(drain(cq).size(), 4U);

  store.tell_lower = 0;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &store, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_VISIBLE, kLong, error));
  EXPECT_EQ(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, 0, nullptr),
            TIERCEL_INVALID_ARGUMENT);
  tiercel_operation_release(operation);
  tiercel_cq_release(cq);

  ProgramOptions without;
  Program host_only(without);
  store = store_of(items);
  store.tell_lower = 1;
  EXPECT_EQ(tiercel_store(host_only.ns, &store, nullptr, nullptr, nullptr), TIERCEL_UNSUPPORTED);
}

TEST_P(CapiDisk, APrefetchTellsWhatCameAndWhyTheRestDidNot) {
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 5, 1);
    program.store(keys);
  }
  Program program(options());
  auto prefetch = sized<tiercel_prefetch_options>();
  prefetch.keys = keys.data();
  prefetch.key_count = keys.size();
  prefetch.policy = TIERCEL_PREFETCH_WAIT_COMPLETE;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_prefetch(program.ns, &prefetch, &operation, error));
  EXPECT_EQ(tiercel_operation_wait(operation, TIERCEL_COMPLETION_LOADED, 0, nullptr),
            TIERCEL_INVALID_ARGUMENT);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  auto result = sized<tiercel_prefetch_result>();
  TIERCEL_OK_CALL(tiercel_prefetch_result_read(operation, &result, error));
  EXPECT_EQ(result.status, TIERCEL_OK);
  EXPECT_EQ(result.wanted_pages, 5U);
  EXPECT_EQ(result.brought_pages, 5U);
  EXPECT_EQ(result.length, 5U);
  EXPECT_EQ(result_of(operation).length, 5U);
  tiercel_operation_release(operation);
  tiercel_ticket* const ticket = program.match(keys);
  EXPECT_EQ(program.length_of(ticket), 5U);
  tiercel_ticket_release(ticket);

  // Nothing in storage: ended, with nothing.
  const auto unknown = Program::make_keys(program.ns, 3, 9);
  prefetch.keys = unknown.data();
  prefetch.key_count = unknown.size();
  for (const tiercel_prefetch_policy policy :
       {TIERCEL_PREFETCH_BEST_EFFORT, TIERCEL_PREFETCH_WAIT_COMPLETE, TIERCEL_PREFETCH_TIMEOUT}) {
    prefetch.policy = policy;
    TIERCEL_OK_CALL(tiercel_prefetch(program.ns, &prefetch, &operation, error));
    TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
    TIERCEL_OK_CALL(tiercel_prefetch_result_read(operation, &result, error));
    EXPECT_EQ(result.length, 0U);
    EXPECT_EQ(result.brought_pages, 0U);
    tiercel_operation_release(operation);
  }
  auto stats = sized<tiercel_disk_stats>();
  TIERCEL_OK_CALL(tiercel_disk_stats_read(program.node, &stats, error));
  EXPECT_EQ(stats.prefetch_bytes + stats.reading_bytes, 0U);
  EXPECT_EQ(stats.prefetches, 4U);
}

// H04.
TEST_P(CapiDisk, TheSameModelWithOtherBytesFindsNothingAndTakesNothingAway) {
  struct Other {
    const char *model, *weights, *dtype;
  };
  const Other others[] = {{"test", "revision", "fp8"},
                          {"test", "another revision", "bf16"},
                          {"organisation/test", "revision", "bf16"}};
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 4, 1);
    program.store(keys);
  }
  for (const Other& other : others) {
    Program program(options());
    auto identity = sized<tiercel_identity>();
    identity.model = other.model;
    identity.weights = other.weights;
    identity.dtype = other.dtype;
    tiercel_namespace* ns = nullptr;
    TIERCEL_OK_CALL(tiercel_namespace_open(program.session, program.form, &identity, &ns, error));
    tiercel_ticket* ticket = promoted(ns, Program::make_keys(ns, 4, 1));
    EXPECT_EQ(program.length_of(ticket), 0U) << other.model << other.weights << other.dtype;
    tiercel_ticket_release(ticket);
    ticket = promoted(ns, keys);  // even when it asks by the other's keys
    EXPECT_EQ(program.length_of(ticket), 0U);
    tiercel_ticket_release(ticket);
    tiercel_namespace_release(ns);
  }
  Program program(options());
  EXPECT_EQ(program.promoted_length(keys), 4U);
}

TEST_P(CapiDisk, ASecondOpeningIsToldWhoHasTheFile) {
  const pid_t owner = ::getpid();
  auto node = sized<tiercel_node_options>();
  node.host_bytes = 16 << 20;
  node.disk = &disk;
  tiercel_node* second = nullptr;
  tiercel_error error{};
  Program program(options());
  EXPECT_EQ(tiercel_node_open(&node, &second, &error), TIERCEL_FAILED_PRECONDITION);
  EXPECT_NE(std::strstr(error.message, "this process"), nullptr) << error.message;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    node.threading = TIERCEL_THREADING_CALLER;  // the child of a program with threads starts none
    const bool refused = tiercel_node_open(&node, &second, &error) == TIERCEL_FAILED_PRECONDITION;
    const bool named = std::strstr(error.message, std::to_string(owner).c_str()) != nullptr;
    if (!named) std::fprintf(stderr, "%s\n", error.message);
    ::_exit(refused && named ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "another process is told the number of the first";
}

TEST_P(CapiDisk, WhatWasRemovedOrClearedStaysAwayAfterARestart) {
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 5, 1);
    // No snapshots: lengths follow from the pages alone only where there is no state; so every page has one.
    for (std::size_t pages = 1; pages <= keys.size(); ++pages)
      program.store(
          std::vector<tiercel_key>(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(pages)));
    TIERCEL_OK_CALL(tiercel_remove(program.ns, &keys[3], 1, error));
  }
  {
    Program program(options());
    EXPECT_EQ(program.promoted_length(keys), 3U);
    EXPECT_EQ(tiercel_clear(TIERCEL_CLEAR_NAMESPACE, program.ns, nullptr, TIERCEL_TIER_HOST, nullptr),
              TIERCEL_UNSUPPORTED);
    TIERCEL_OK_CALL(tiercel_clear(TIERCEL_CLEAR_NAMESPACE, program.ns, nullptr,
                                  TIERCEL_TIER_HOST | TIERCEL_TIER_DISK, error));
  }
  Program program(options());
  EXPECT_EQ(program.promoted_length(keys), 0U);
}

TEST_P(CapiDisk, WritingDownIsReportedAndTheNodeGoesOnWithoutADisk) {
  disk.write_policy = TIERCEL_WRITE_BACK;
  std::vector<tiercel_key> keys;
  {
    Program program(options());
    keys = Program::make_keys(program.ns, 4, 1);
    program.store(keys);
    auto report = sized<tiercel_write_down>();
    TIERCEL_OK_CALL(tiercel_node_write_down(program.node, kLong, &report, error));
    EXPECT_EQ(report.status, TIERCEL_OK) << report.message;
    EXPECT_EQ(report.class_sets, 5U);
    EXPECT_EQ(report.left_class_sets, 0U);
    EXPECT_EQ(tiercel_node_write_down(program.node, kLong, &report, nullptr), TIERCEL_UNSUPPORTED);
    auto prefetch = sized<tiercel_prefetch_options>();
    prefetch.policy = TIERCEL_PREFETCH_BEST_EFFORT;
    EXPECT_EQ(tiercel_prefetch(program.ns, &prefetch, nullptr, nullptr), TIERCEL_UNSUPPORTED);
    TIERCEL_OK_CALL(tiercel_flush(program.node, kLong, error));
    tiercel_ticket* const ticket = program.match(keys);
    EXPECT_EQ(program.length_of(ticket), 4U) << "the host tier still serves";
    tiercel_ticket_release(ticket);
    program.store(Program::make_keys(program.ns, 2, 8));
  }
  Program program(options());
  EXPECT_EQ(program.promoted_length(keys), 4U);
}

// Not that it is durable: what it waited for will not come.
TEST_P(CapiDisk, AStoreThatOutlivesTheDiskIsToldThatItIsNotDurable) {
  Program program(options());
  tiercel_cq* const cq = make_cq(program.node);
  const auto keys = Program::make_keys(program.ns, 3, 1);
  const auto items = Program::items(keys);
  tiercel_store_options store = store_of(items);
  store.cq = cq;
  store.tell_lower = 1;
  TIERCEL_OK_CALL(tiercel_event_create(program.node, &store.after_event, error));
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_store(program.ns, &store, nullptr, &operation, error));
  TIERCEL_OK_CALL(tiercel_node_write_down(program.node, kLong, nullptr, error));
  TIERCEL_OK_CALL(tiercel_event_fire(program.node, store.after_event, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, TIERCEL_COMPLETION_DURABLE, kLong, error));
  EXPECT_EQ(result_of(operation).status, TIERCEL_UNAVAILABLE);
  EXPECT_EQ(result_of(operation).length, 0U);
  const std::vector<tiercel_completion> told = drain(cq);
  ASSERT_EQ(told.size(), 4U);
  EXPECT_EQ(told[1].kind, TIERCEL_COMPLETION_VISIBLE);
  EXPECT_EQ(told[1].status, TIERCEL_OK) << "the host tier has it";
  EXPECT_EQ(told[2].kind, TIERCEL_COMPLETION_ACCEPTED);
  EXPECT_EQ(told[2].status, TIERCEL_UNAVAILABLE);
  EXPECT_EQ(told[3].kind, TIERCEL_COMPLETION_DURABLE);
  EXPECT_EQ(told[3].status, TIERCEL_UNAVAILABLE);
  EXPECT_EQ(told[3].length, 0U);
  EXPECT_NE(told[3].flags & TIERCEL_COMPLETION_LAST, 0U);
  tiercel_operation_release(operation);
  tiercel_cq_release(cq);
}

TEST_P(CapiDisk, SwitchedOffTheDiskIsNotTouched) {
  ASSERT_EQ(::setenv("TIERCEL_OFF", "1", 1), 0);  // NOLINT(concurrency-mt-unsafe): no other thread is there
  {
    Program program(options());
    EXPECT_FALSE(std::filesystem::exists(file));
    auto prefetch = sized<tiercel_prefetch_options>();
    prefetch.policy = TIERCEL_PREFETCH_BEST_EFFORT;
    EXPECT_EQ(tiercel_prefetch(program.ns, &prefetch, nullptr, nullptr), TIERCEL_UNAVAILABLE);
    const auto keys = Program::make_keys(program.ns, 2, 1);
    tiercel_ticket* const ticket = promoted(program.ns, keys);
    std::uint64_t pages[2] = {9, 9}, count = 0;
    TIERCEL_OK_CALL(tiercel_ticket_resident(ticket, TIERCEL_TIER_DISK, pages, 2, &count, error));
    EXPECT_EQ(count, 2U);
    EXPECT_EQ(pages[0], 0U);
    tiercel_ticket_release(ticket);
    TIERCEL_OK_CALL(tiercel_flush(program.node, 0, error));
    auto stats = sized<tiercel_disk_stats>();
    TIERCEL_OK_CALL(tiercel_disk_stats_read(program.node, &stats, error));
    EXPECT_EQ(stats.open, 0U);
    EXPECT_EQ(stats.size_bytes, 0U);
  }
  ASSERT_EQ(::unsetenv("TIERCEL_OFF"), 0);  // NOLINT(concurrency-mt-unsafe): nor now
}

TEST_P(CapiDisk, OptionsThatMakeNoSenseOpenNothing) {
  tiercel_error error{};
  const auto open = [&](auto&& change) {
    tiercel_disk_options wanted = disk;
    change(wanted);
    auto node = sized<tiercel_node_options>();
    node.host_bytes = 16 << 20;
    node.threading = GetParam();
    node.disk = &wanted;
    tiercel_node* made = nullptr;
    return tiercel_node_open(&node, &made, &error);
  };
  EXPECT_EQ(open([](auto& o) { o.path = nullptr; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(error.message, "path"), nullptr) << error.message;
  EXPECT_EQ(open([](auto& o) { o.path = ""; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.admission = 4; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.write_policy = 4; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.prefetch_share = 1.5; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.write_share = -1; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.size = 0; }), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(open([](auto& o) { o.bytes = 8192; }), TIERCEL_INVALID_ARGUMENT) << error.message;
  EXPECT_EQ(open([](auto& o) { o.bytes = 0; }), TIERCEL_NOT_FOUND) << error.message;
  EXPECT_EQ(open([](auto& o) { o.region_bytes = 12345; }), TIERCEL_INVALID_ARGUMENT) << error.message;
}

TEST_P(CapiDisk, StatusSaysWhatEachTierHas) {
  Program program(options());
  program.store(Program::make_keys(program.ns, 3, 1));
  TIERCEL_OK_CALL(tiercel_flush(program.node, kLong, error));
  std::string text(4096, '\0');
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_status_text(program.node, text.data(), text.size(), &count, error));
  ASSERT_LE(count, text.size());
  text.resize(count);
  for (const char* word : {"host", "disk", "regions", "oldest page", "budget", "hits", "missed", "drive"})
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in\n" << text;
}

INSTANTIATE_TEST_SUITE_P(Threading, CapiDisk,
                         testing::Values(TIERCEL_THREADING_CONTROL, TIERCEL_THREADING_CALLER),
                         [](const auto& of) {
                           return of.param == TIERCEL_THREADING_CONTROL ? "Control" : "Caller";
                         });

}  // namespace
}  // namespace tiercel::capi
