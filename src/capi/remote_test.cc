// The remote tier through the ABI: a folder as the store, two nodes that share it; and what a node with a
// store that is not there does.
#include <filesystem>
#include <string>
#include <vector>

#include <stdlib.h>
#include <unistd.h>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

class CapiRemote : public testing::TestWithParam<tiercel_threading> {
 protected:
  CapiRemote() {
    std::string name = (std::filesystem::temp_directory_path() / "tiercel-capi-remote.XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    url = "posix:" + (folder_ / "store").string();
    remote.url = url.c_str();
    remote.exchange_bytes = 4 << 20;
  }
  ~CapiRemote() override { std::filesystem::remove_all(folder_); }

  ProgramOptions options() {
    ProgramOptions wanted;
    wanted.threading = GetParam();
    wanted.host_bytes = 16 << 20;
    wanted.remote = &remote;
    return wanted;
  }
  static tiercel_ticket* promoted(tiercel_namespace* ns, const std::vector<tiercel_key>& keys) {
    auto match = sized<tiercel_match_options>();
    match.keys = keys.data();
    match.key_count = keys.size();
    match.limit_tokens = TIERCEL_NO_LIMIT;
    match.may_promote = 1;
    tiercel_ticket* ticket = nullptr;
    tiercel_error error{};
    EXPECT_EQ(tiercel_match(ns, &match, &ticket, &error), TIERCEL_OK) << error.message;
    EXPECT_EQ(tiercel_ticket_wait(ticket, kLong, &error), TIERCEL_OK) << error.message;
    return ticket;
  }
  static std::uint64_t promoted_length(Program& program, const std::vector<tiercel_key>& keys) {
    tiercel_ticket* const ticket = promoted(program.ns, keys);
    const std::uint64_t length = program.length_of(ticket);
    tiercel_ticket_release(ticket);
    return length;
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

  std::filesystem::path folder_;
  std::string url;
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
  EXPECT_EQ(promoted_length(second, keys), 6U);  // now it is here
}

TEST_P(CapiRemote, PrefetchBringsItAheadOfAMatch) {
  std::vector<tiercel_key> keys;
  {
    Program first(options());
    keys = Program::make_keys(first.ns, 6, 1);
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
  // Six pages of this model are less than the threshold for a prefetch, and say so.
  EXPECT_EQ(result.status, TIERCEL_OK);
  EXPECT_EQ(promoted_length(second, keys), 6U);
}

TEST_P(CapiRemote, WhatWasInvalidatedIsNotServedByTheNextNodeEither) {
  std::vector<tiercel_key> keys;
  {
    Program first(options());
    keys = Program::make_keys(first.ns, 4, 1);
    first.store(keys);
    TIERCEL_OK_CALL(tiercel_invalidate(first.ns, error));
    EXPECT_EQ(promoted_length(first, keys), 0U);
  }
  Program second(options());
  EXPECT_EQ(promoted_length(second, keys), 0U);
}

TEST_P(CapiRemote, AConnectorThatCannotStartIsAMissAndSaysWhy) {
  url = "program:" + (folder_ / "nothing-here").string();
  remote.url = url.c_str();
  Program program(options());
  const auto keys = Program::make_keys(program.ns, 4, 1);
  program.store(keys);
  EXPECT_EQ(promoted_length(program, keys), 4U);  // the host tier goes on
  EXPECT_EQ(promoted_length(program, Program::make_keys(program.ns, 4, 2)), 0U);
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
