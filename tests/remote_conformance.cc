// The contract of a remote store (src/remote/test_store_contract.h) as a program: run over any connector, or
// over a folder. --help says how.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "os/child_process.h"
#include "os/clock.h"
#include "os/mapping.h"
#include "remote/connector_process.h"
#include "remote/posix_store.h"
#include "remote/test_store_contract.h"
#include "remote_twin_store.h"

namespace tiercel {
namespace {

constexpr const char* kHelp = R"(usage: remote_conformance --connector 'PROGRAM ARGUMENT...' [OPTION...]
       remote_conformance --posix FOLDER [OPTION...]
       remote_conformance --twin [--fault NAME] [OPTION...]

Runs the contract that every remote store must keep. Exit status 0: it keeps all of it.

  --connector WORDS      the connector's program and arguments; quotes '...' and "..." and \ as in a shell
  --twin                 the simulator's store; with --fault one that breaks the contract in one way: must fail
  --list-faults          their names
  --patience SECONDS     how long a batch may take to end at all (default 60)
  --config JSON          its configuration, one object on one line (default {})
  --env NAME=VALUE       added to its environment; may be repeated
  --start-timeout SECONDS  for its hello (default 30)
  --exchange-mib N       data of the exchange (default 64; at least 16; 1024 for the test of 1 GiB objects)
  --arena-mib N          grant an arena of so many MiB, too (default 2; 0: none)
  --object-bytes-max N   larger objects are not tried (default 4194304)
  --own-objects          two connectors at once do not see each other's objects
  --forgets              after its process was killed what was put may be gone
  --no-remove            it cannot remove; --no-replace: it cannot replace. Cases are left out and counted
  --list                 the names of the cases
  --gtest_filter=...     only some cases: --gtest_filter='*Twice*'; other options of GoogleTest, too

The environment's TIERCEL_LONG_TESTS=1 adds an object of 1 GiB (with --exchange-mib 1024).

examples:
  remote_conformance --posix /srv/shared/tiercel
  remote_conformance --connector 'python3 connectors/memory' --forgets --own-objects
  remote_conformance --connector 'python3 connectors/valkey' --config '{"url": "valkey://127.0.0.1:6379"}'
  remote_conformance --twin --fault put_replaces
  remote_conformance --connector 'build/dev/bin/remote_test_connector' --forgets --own-objects --gtest_filter='*Cancel*'
)";

struct Wanted {
  ConnectorOptions connector;
  PosixStoreOptions posix;
  StoreContractCase contract;
  bool twin = false;
  std::string fault;
  TwinObjects objects;
  std::uint64_t twins = 0;
  std::uint64_t arena_mib = 2;
  Mapping arena;
  LinuxChildProcesses processes;
  SteadyClock clock;
};
Wanted& wanted() {
  static Wanted one;
  return one;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  char quote = 0;
  bool inside = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote == 0 && c == ' ') {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      continue;
    }
    if (c == quote) {
      quote = 0;
      continue;
    }
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) c = text[++i];
    words.back() += c;
  }
  return words;
}

// False: not an option of ours.
bool take_flag(std::string_view word) {
  StoreContractCase& contract = wanted().contract;
  if (word == "--own-objects")
    contract.shared = false;
  else if (word == "--forgets")
    contract.keeps = false;
  else if (word == "--twin")
    wanted().twin = true;
  else if (word == "--no-remove")
    contract.removes = false;
  else if (word == "--no-replace")
    contract.replaces = false;
  else
    return false;
  return true;
}

bool take_value(std::string_view word, const char* value) {
  Wanted& all = wanted();
  if (word == "--connector")
    all.connector.argv = words_of(value);
  else if (word == "--posix")
    all.posix.folder = value;
  else if (word == "--patience")
    store_patience = std::chrono::seconds(std::strtoul(value, nullptr, 10));
  else if (word == "--fault")
    all.fault = value;
  else if (word == "--config")
    all.connector.config = value;
  else if (word == "--env")
    all.connector.environment.emplace_back(value);
  else if (word == "--start-timeout")
    all.connector.start_timeout = std::chrono::seconds(std::strtoul(value, nullptr, 10));
  else if (word == "--exchange-mib")
    all.connector.exchange.data_bytes = all.posix.exchange_bytes = std::strtoull(value, nullptr, 10) << 20;
  else if (word == "--arena-mib")
    all.arena_mib = std::strtoull(value, nullptr, 10);
  else if (word == "--object-bytes-max")
    all.contract.object_bytes_max = std::strtoull(value, nullptr, 10);
  else
    return false;
  return true;
}

// 0: go on; else the exit status plus one.
int parse(int& count, char** arguments) {
  int kept = 1;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    if (word == "--help" || word == "-h") {
      std::fputs(kHelp, stdout);
      return 1;
    }
    if (word == "--list-faults") {
      for (const StoreFault& fault : kStoreFaults) fmt::print("{:<18} {}\n", fault.name, fault.what);
      return 1;
    }
    if (word == "--list") {
      static char list[] = "--gtest_list_tests";
      arguments[kept++] = list;
    } else if (word.starts_with("--gtest_")) {
      arguments[kept++] = arguments[i];
    } else if (take_flag(word)) {
      continue;
    } else if (i + 1 < count && take_value(word, arguments[i + 1])) {
      ++i;
    } else {
      fmt::print(stderr, "remote_conformance: '{}' is no option, or its value is missing; see --help\n",
                 word);
      return 65;
    }
  }
  count = kept;
  return 0;
}

std::unique_ptr<RemoteStore> make(std::string& why_not) {
  Wanted& all = wanted();
  if (all.twin) return std::make_unique<TwinStore>(all.objects, all.clock, all.fault, ++all.twins);
  if (!all.posix.folder.empty()) {
    all.posix.arena = all.contract.arena;
    auto store = PosixStore::open(all.posix, all.clock);
    if (store) return std::move(*store);
    why_not = store.error().to_string();
    return nullptr;
  }
  auto store = ConnectorProcess::open(all.connector, all.clock, all.processes);
  if (store) return std::move(*store);
  why_not = store.error().to_string();
  return nullptr;
}

Status prepare() {
  Wanted& all = wanted();
  all.contract.name = all.twin ? "twin" : all.posix.folder.empty() ? "connector" : "posix";
  const auto known = [&](const StoreFault& fault) { return fault.name == all.fault; };
  if (!all.fault.empty() &&
      (!all.twin || std::none_of(std::begin(kStoreFaults), std::end(kStoreFaults), known)))
    return {Code::kInvalidArgument,
            fmt::format("--fault {}: needs --twin, and one of --list-faults", all.fault)};
  if (all.twin) all.arena_mib = 0;
  // What cannot be opened is a failure here, not a machine without it.
  all.contract.make = [](std::string&) {
    std::string why_not;
    auto store = make(why_not);
    if (!store) fmt::print(stderr, "remote_conformance: {}\n", why_not);
    return store;
  };
  if (all.arena_mib == 0) return {};
  // Granted from its second page on, so that an offset that is forgotten shows.
  auto arena =
      Mapping::open({.kind = MappingKind::kShared, .bytes = all.arena_mib << 20, .touch = {}, .numa = {}});
  if (!arena) return arena.error();
  all.arena = std::move(*arena);
  all.contract.arena = all.arena.bytes().subspan(4096);
  all.connector.arena = {all.arena.fd(), 4096, all.contract.arena.size()};
  return {};
}

INSTANTIATE_TEST_SUITE_P(Store, StoreContract,
                         testing::ValuesIn([] { return std::vector{wanted().contract}; }()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tiercel

int main(int count, char** arguments) {
  using namespace tiercel;  // NOLINT: a program of one file
  wanted().connector.start_timeout = std::chrono::seconds(30);
  if (const int ends = parse(count, arguments); ends != 0) return ends - 1;
  const bool connector = !wanted().connector.argv.empty(), posix = !wanted().posix.folder.empty();
  if (connector + posix + wanted().twin != 1) {
    std::fputs("remote_conformance: give --connector, --posix or --twin, one of them; see --help\n", stderr);
    return 64;
  }
  if (const Status ready = prepare(); !ready.ok()) {
    fmt::print(stderr, "remote_conformance: {}\n", ready.to_string());
    return 1;
  }
  testing::InitGoogleTest(&count, arguments);
  return RUN_ALL_TESTS();
}
