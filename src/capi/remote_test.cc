// The remote tier through the ABI: a folder as the store, two nodes that share it; and what a node with a
// store that is not there does.
#include <string>
#include <vector>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

class CapiRemote : public testing::TestWithParam<tiercel_threading> {
 protected:
  CapiRemote() {
    remote.url = url.c_str();
    remote.exchange_bytes = 4 << 20;
  }

  ProgramOptions options() {
    ProgramOptions wanted;
    wanted.threading = GetParam();
    wanted.host_bytes = 16 << 20;
    wanted.remote = &remote;
    return wanted;
  }
  static tiercel_remote_stats stats_of(const Program& program) {
    auto stats = sized<tiercel_remote_stats>();
    tiercel_error error{};
    EXPECT_EQ(tiercel_remote_stats_read(program.node, &stats, &error), TIERCEL_OK) << error.message;
    return stats;
  }
  static tiercel_status refusal(const tiercel_remote_options& remote, std::string& message) {
    auto options = sized<tiercel_node_options>();
    options.host_bytes = 16 << 20;
    options.remote = &remote;
    tiercel_node* node = nullptr;
    tiercel_error error{};
    const tiercel_status status = tiercel_node_open(&options, &node, &error);
    message = error.message;
    if (node != nullptr) tiercel_node_close(node, nullptr);
    return status;
  }

  const Folder folder;
  std::string url = "posix:" + folder.of("store");
  tiercel_remote_options remote = sized<tiercel_remote_options>();
};

TEST_P(CapiRemote, WhatOneNodeStoredAnotherServes) {
  std::vector<tiercel_key> keys;
  std::vector<std::byte> state;
  {
    Program first(options());
    keys = Program::make_keys(first.ns, 6, 1);
    first.fill(5);
    state = first.state();
    first.store(keys);
    first.close();  // stores what is on its way
  }
  Program second(options());
  tiercel_ticket* const ticket = promoted(second.ns, keys);
  ASSERT_EQ(second.length_of(ticket), 6U);
  auto counts = sized<tiercel_ticket_counts>();
  TIERCEL_OK_CALL(tiercel_ticket_summary(ticket, &counts, error));
  EXPECT_EQ(counts.remote_pages, 6U);
  EXPECT_EQ(counts.disk_pages, 0U);
  tiercel_operation* const operation = load(ticket, 6);
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  EXPECT_EQ(result_of(operation).length, 6U);
  const auto bytes = [](const std::vector<std::byte>& of) {
    return std::vector<std::byte>(of.begin(), of.begin() + Program::kStateBytes);
  };
  EXPECT_EQ(bytes(second.state()), bytes(state));
  tiercel_operation_release(operation);
  tiercel_ticket_release(ticket);
  const tiercel_remote_stats stats = stats_of(second);
  EXPECT_EQ(stats.ready, 1U);
  EXPECT_EQ(stats.open, 1U);
  EXPECT_EQ(stats.reading_bytes, 0U);
  EXPECT_GT(stats.objects_read, 0U);
  EXPECT_EQ(second.promoted_length(keys), 6U);  // now it is here
}

TEST_P(CapiRemote, PrefetchBringsItAheadOfAMatch) {
  constexpr std::uint64_t kPages = 64;  // 256 tokens: of less no prefetch is begun
  std::vector<tiercel_key> keys;
  {
    Program first(options());
    keys = Program::make_keys(first.ns, kPages, 1);
    first.store(keys);
    first.close();
  }
  Program second(options());
  auto prefetch = sized<tiercel_prefetch_options>();
  prefetch.keys = keys.data();
  prefetch.key_count = keys.size();
  prefetch.policy = TIERCEL_PREFETCH_WAIT_COMPLETE;
  tiercel_operation* operation = nullptr;
  TIERCEL_OK_CALL(tiercel_prefetch(second.ns, &prefetch, &operation, error));
  TIERCEL_OK_CALL(tiercel_operation_wait(operation, 0, kLong, error));
  auto result = sized<tiercel_prefetch_result>();
  TIERCEL_OK_CALL(tiercel_prefetch_result_read(operation, &result, error));
  tiercel_operation_release(operation);
  EXPECT_EQ(result.status, TIERCEL_OK) << result.message;
  EXPECT_EQ(result.brought_pages, kPages);
  EXPECT_EQ(result.length, kPages);
  tiercel_ticket* const ticket = second.match(keys);  // waits for nothing
  EXPECT_EQ(second.length_of(ticket), kPages);
  tiercel_ticket_release(ticket);
}

TEST_P(CapiRemote, WhatWasInvalidatedIsNotServedByTheNextNodeEither) {
  std::vector<tiercel_key> keys;
  {
    Program first(options());
    keys = Program::make_keys(first.ns, 4, 1);
    first.store(keys);
    TIERCEL_OK_CALL(tiercel_invalidate(first.ns, error));
    EXPECT_EQ(first.promoted_length(keys), 0U);
  }
  Program second(options());
  EXPECT_EQ(second.promoted_length(keys), 0U);
}

TEST_P(CapiRemote, AConnectorThatCannotStartIsAMissAndSaysWhy) {
  url = "program:" + folder.of("nothing-here");
  remote.url = url.c_str();
  Program program(options());
  const auto keys = Program::make_keys(program.ns, 4, 1);
  program.store(keys);
  EXPECT_EQ(program.promoted_length(keys), 4U);  // the host tier goes on
  EXPECT_EQ(program.promoted_length(Program::make_keys(program.ns, 4, 2)), 0U);
  const tiercel_remote_stats stats = stats_of(program);
  EXPECT_EQ(stats.ready, 0U);
  EXPECT_NE(std::string(stats.why_not), "");
  char text[4096] = {};
  std::uint64_t count = 0;
  TIERCEL_OK_CALL(tiercel_status_text(program.node, text, sizeof text, &count, error));
  EXPECT_NE(std::string(text).find("NOT READY"), std::string::npos) << text;
}

TEST_P(CapiRemote, AnAddressThatMakesNoSenseIsRefused) {
  std::string message;
  remote.url = "";
  EXPECT_EQ(refusal(remote, message), TIERCEL_INVALID_ARGUMENT);
  remote.url = "mooncake";
  EXPECT_EQ(refusal(remote, message), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(message.find("mooncake://HOST:PORT"), std::string::npos) << message;
  remote.url = url.c_str();
  remote.object_pages_max = 12;
  EXPECT_EQ(refusal(remote, message), TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(message.find("power of two"), std::string::npos) << message;
}

TEST_P(CapiRemote, ANodeWithoutOneSaysSo) {
  ProgramOptions none = options();
  none.remote = nullptr;
  Program program(none);
  auto stats = sized<tiercel_remote_stats>();
  EXPECT_EQ(tiercel_remote_stats_read(program.node, &stats, nullptr), TIERCEL_UNSUPPORTED);
}

INSTANTIATE_TEST_SUITE_P(Threading, CapiRemote,
                         testing::Values(TIERCEL_THREADING_CONTROL, TIERCEL_THREADING_CALLER),
                         [](const auto& each) {
                           return std::string(each.param == TIERCEL_THREADING_CONTROL ? "control" : "caller");
                         });

}  // namespace
}  // namespace tiercel::capi
