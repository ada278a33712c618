// A remote store by its address, as users write it: `mooncake://127.0.0.1:50051`, `posix:/srv/shared/cache`.
//
// Threads: as RemoteStore.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/child_process.h"
#include "os/clock.h"
#include "remote/remote_store.h"

namespace tiercel {

struct StoreAddress {
  // posix:FOLDER · mooncake://HOST:PORT · valkey://… (redis://, valkeys://, rediss://) · memory: ·
  // program:PROGRAM (a connector of somebody's own). Behind a `?` options of the connector:
  // `mooncake://HOST:PORT?global_segment_size=4GiB&local_hostname=10.0.0.7`.
  std::string url;
  std::string config = "{}";  // more options, one JSON object; what the url says goes first
  // Where our connectors lie; empty: the environment's TIERCEL_CONNECTORS, else beside this program
  // (../share/tiercel/connectors), else in the source tree that it was built in.
  std::string connectors;
  // What runs them; empty: the environment's TIERCEL_CONNECTOR_PYTHON, else the virtual environment that
  // tools/connectors.sh made, else python3.
  std::string python;
  std::uint64_t exchange_bytes = 64ULL << 20;
  ArenaGrant arena;  // a connector may reach it; a folder is used by this process itself, which copies
  int output = -1;   // of a connector: where its own output goes; -1: our standard error
};

// What an address means, without opening anything.
struct StorePlan {
  enum class Kind : std::uint8_t { kFolder, kConnector };
  Kind kind = Kind::kConnector;
  std::string folder;
  std::vector<std::string> argv;
  std::string config;  // of a connector, one line
};
// `exists` says whether a file or folder is there, `environment` gives a variable's value or "".
// Errors: invalid_argument naming the part of the address, wanted and got; not_found: no connectors there
// (where was looked, what to set).
struct StoreSurroundings {
  virtual ~StoreSurroundings() = default;
  virtual bool exists(const std::string& path) const = 0;
  virtual std::string environment(const std::string& name) const = 0;
  virtual std::string program_folder() const = 0;  // of this program; "" where it is not known
};
Result<StorePlan> plan_store(const StoreAddress& address, const StoreSurroundings& around);
// In the surroundings of this process.
Result<StorePlan> plan_store(const StoreAddress& address);

// Without user, password and options, for people and logs; also of an address that makes no sense.
std::string printable_address(std::string_view url);

// Opens it. A connector is started, and not ready yet: health() says when it is. Errors: as plan_store, and
// as PosixStore::open and ConnectorProcess::open.
Result<std::unique_ptr<RemoteStore>> open_store(const StoreAddress& address, const Clock& clock,
                                                ChildProcesses& processes);

}  // namespace tiercel
