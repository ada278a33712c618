// What benches of the remote tier share: servers and bare clients in processes of their own, a raw socket as
// the limit, and the work of a store measured like them.
//
// Threads: one; the socket's other end is a thread of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "bench/bench.h"
#include "bench/disk_parts.h"
#include "os/child_process.h"
#include "os/clock.h"
#include "os/mapping.h"
#include "remote/open_store.h"
#include "remote/remote_store.h"

namespace tiercel {

// Objects of one size, moved or looked for `batch` at a time.
struct RemoteWork {
  RemoteVerb verb = RemoteVerb::kExists;
  std::vector<std::string> names;  // of all batches
  std::uint64_t length = 0;        // of an object
  std::size_t batch = 1;
  std::size_t at_once = 1;  // batches under way; a bare client has one
  std::size_t pieces = 1;   // of an object, in our exchange
};

// A script of ours behind a socket: a line of JSON each way.
class ScriptProcess final {
 public:
  // `arguments`: before the descriptor, which comes last. `environment`: besides ours. Errors: as
  // ChildProcesses::start; unavailable: what the script's first line says.
  static Result<std::unique_ptr<ScriptProcess>> start(std::vector<std::string> arguments);
  ~ScriptProcess();
  ScriptProcess(const ScriptProcess&) = delete;
  ScriptProcess& operator=(const ScriptProcess&) = delete;

  const std::string& first() const { return first_; }  // its first line
  // Errors: unavailable: it is gone, or does not answer within two minutes.
  Result<std::string> ask(std::string command);

 private:
  ScriptProcess() = default;
  Result<std::string> read_line();
  LinuxChildProcesses processes_;
  std::unique_ptr<ChildProcess> child_;
  int socket_ = -1;
  std::string rest_;
  std::string first_;
};

// A Mooncake of one master and one peer that lends memory, on this machine.
struct MooncakeCluster {
  std::unique_ptr<ScriptProcess> script;  // ends both
  std::string url, peer;                  // of a store; HOST:PORT of the mooncake_client
  std::uint32_t master_pid = 0, peer_pid = 0;
};
// Errors: unavailable, not_found: what is missing, in words.
Result<MooncakeCluster> start_mooncake(std::uint64_t lent_bytes);

// The same work without us: what the ratio is to.
class BareClient {
 public:
  virtual ~BareClient() = default;
  virtual std::string name() const = 0;
  virtual std::string pages() const = 0;  // of its memory
  // Nanoseconds of each batch. Errors: unavailable: an object was not moved.
  virtual Result<std::vector<double>> perform(const RemoteWork& work) = 0;
  virtual Status remove(const std::vector<std::string>& names) = 0;
};
// The bare client of what the url names; nothing where there is none to be compared with.
Result<std::unique_ptr<BareClient>> open_bare(const std::string& url, std::uint64_t memory_bytes,
                                              BenchRun& run);

// Over 127.0.0.1 as fast as a connection goes: a request of a few bytes one way, the payload another.
class RawSocket final {
 public:
  // Errors: resource_exhausted, unavailable.
  static Result<std::unique_ptr<RawSocket>> open(std::uint64_t memory_bytes);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;
  // So many bytes here or there. False: the connection is broken.
  bool get(std::uint64_t bytes) { return move(0, bytes); }
  bool put(std::uint64_t bytes) { return move(1, bytes); }

 private:
  RawSocket() = default;
  bool move(std::uint64_t direction, std::uint64_t bytes);
  void serve();
  Mapping here_, there_;
  int client_ = -1, server_ = -1;
  std::uint64_t at_ = 0;
  std::thread thread_;
};

// A store, open and ready, with the memory of its exchange written once.
class BenchStore final {
 public:
  // Errors: as open_store; unavailable: it did not become ready, and why.
  static Result<std::unique_ptr<BenchStore>> open(const std::string& url, BenchRun& run,
                                                  std::uint64_t exchange_bytes = 64U << 20,
                                                  const ArenaGrant& arena = {});
  RemoteStore& store() { return *store_; }
  Clock& clock() { return clock_; }
  std::string pages() const { return pages_; }
  // Until it takes batches. Errors: unavailable: why it does not.
  Status await_ready();
  // The results of one batch.
  Result<std::vector<RemoteResult>> call(RemoteBatch batch);
  // Each batch of the work; the time from its submission to its end to `samples`. Errors: unavailable: an
  // object was not moved. Requires: the exchange has room for what is under way.
  Status perform(const RemoteWork& work, Samples& samples);
  Status remove(const std::vector<std::string>& names);

 private:
  BenchStore() = default;
  RemoteBatch batch_of(const RemoteWork& work, std::size_t first);
  SteadyClock clock_;
  LinuxChildProcesses processes_;
  std::unique_ptr<RemoteStore> store_;
  std::string pages_;
  std::uint64_t at_ = 0;  // of the exchange: where the next object goes
};

// The names PREFIX.0, PREFIX.1, …
std::vector<std::string> numbered(const std::string& prefix, std::size_t count);

// Of memory of ours, by the kernel's page tables: "2 MiB", "4 KiB", "mixed".
std::string page_kind_at(const std::byte* data, std::uint64_t bytes);

// What a url begins with: "mooncake", "posix".
std::string scheme_of(const std::string& url);

// Parts of remote_bench().
Status remote_tier_lines(BenchRun& run, const std::string& url, BareClient* bare);  // remote_tier_bench.cc
Status remote_local_lines(BenchRun& run, const std::string& peer);                  // remote_local_bench.cc
Status remote_end_lines(BenchRun& run, const std::string& url);                     // remote_end_bench.cc

}  // namespace tiercel
