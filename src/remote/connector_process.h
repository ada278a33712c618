// A connector at arm's length: a process that is started, asked over shared memory, and killed when it does
// not answer, whatever hangs or crashes in it. Its death costs the batches under way and nothing else; it is
// started again after a wait that doubles. Memory that it may still write to is not given back before its
// completion has come or its exit is known (tiercel/connector.h is what it is told).
//
// Threads: one; as RemoteStore. Nothing blocks but wait() and close(), and a start, until the program's file
// is open.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/child_process.h"
#include "os/clock.h"
#include "remote/connector_message.h"
#include "remote/exchange.h"
#include "remote/remote_store.h"

namespace tiercel {

struct ConnectorOptions {
  std::vector<std::string> argv;         // the first without a slash: looked for in PATH
  std::vector<std::string> environment;  // "NAME=value", besides ours or instead of it
  std::string config = "{}";             // one JSON object, on one line
  ExchangeOptions exchange;
  ArenaGrant arena;               // region 1; the fd stays the caller's
  int output = -1;                // where the process's output and errors go; -1: our standard error
  std::size_t batches_max = 256;  // under way at once
  Duration start_timeout = std::chrono::seconds(10);  // until its hello
  Duration ping_every = std::chrono::seconds(1);
  Duration ping_answer = std::chrono::seconds(2);          // without it: killed
  Duration kill_after = std::chrono::seconds(2);           // a batch's deadline, without its completion
  Duration restart_wait = std::chrono::milliseconds(100);  // doubles with each end, to at most
  Duration restart_wait_max = std::chrono::seconds(30);
  Duration calm_after = std::chrono::seconds(10);  // so long ready: the wait begins anew
};

class ConnectorProcess final : public RemoteStore {
 public:
  // Started, but not ready yet. A program that cannot be started is no error: health() says why, and it is
  // tried again. Errors: invalid_argument: no program, a configuration of several lines or too long, sizes;
  // resource_exhausted. Lives: `clock` and `processes` outlive it.
  static Result<std::unique_ptr<ConnectorProcess>> open(const ConnectorOptions& options, const Clock& clock,
                                                        ChildProcesses& processes);
  ~ConnectorProcess() override;

  Result<RemoteBatchId> submit(RemoteBatch batch) override;
  void cancel(RemoteBatchId batch) override;
  std::vector<RemoteEvent> drain() override;
  void wait(Duration at_most) override;
  Time next_due() const override;
  int end_fd() const override { return exchange_.completion_event(); }
  RemoteHealth health() const override;
  std::byte* exchange() override { return exchange_.data(); }
  std::uint64_t exchange_bytes() const override { return exchange_.data_bytes(); }
  std::optional<RemotePiece> reach(const std::byte* data, std::uint64_t length) const override;
  void close(Duration at_most) override;

  // Asks for its own numbers, unless it is being asked already; the last answer, as JSON ("" before the
  // first) that nobody has checked.
  void ask_stats();
  const std::string& stats() const { return stats_; }

 private:
  enum class State : std::uint8_t {
    kStopped,   // no process
    kStarting,  // its hello is waited for
    kReady,
    kDying,  // killed, not gone yet
    kClosed,
  };
  struct Batch {
    RemoteVerb verb = RemoteVerb::kExists;
    Time deadline{0};
    std::vector<std::uint64_t> sizes;  // of each item, all its pieces
    std::uint64_t bytes = 0;
    bool told = false;           // its kDone was, without quiet
    bool cancel_unsent = false;  // for want of room in the ring
  };
  using Batches = std::map<std::uint64_t, Batch>;

  ConnectorProcess(const ConnectorOptions& options, const Clock& clock, ChildProcesses& processes,
                   Exchange exchange);
  void step();
  void start(Time now);
  void see_exit(Time now);
  void retry(Time now, std::string why);
  void read_completions(Time now);
  void hello(const ConnectorCompletion& completion, Time now);
  Status done(const ConnectorCompletion& completion);
  void end_batch(Batches::iterator at, RemoteOutcome outcome, bool quiet);
  void end_all(RemoteOutcome outcome);
  void check_deadlines(Time now);
  void check_process(Time now);
  void ping(Time now);
  bool send(std::uint16_t verb, std::uint64_t id);
  void kill(const std::string& why);
  std::string named(const std::string& what) const;

  // Constant.
  const ConnectorOptions options_;
  const Clock& clock_;
  ChildProcesses& processes_;

  Exchange exchange_;
  std::unique_ptr<ChildProcess> child_;
  State state_ = State::kStopped;
  std::string why_;  // it is not ready
  Time ready_since_{0}, start_by_{0}, retry_at_{0};
  Duration restart_wait_;
  std::uint64_t starts_ = 0, kills_ = 0;

  Batches batches_;
  std::uint64_t last_id_ = 0;
  std::vector<RemoteEvent> events_;

  std::uint64_t ping_ = 0, stats_batch_ = 0;  // under way
  bool ping_sent_ = false, stats_sent_ = false;
  Time ping_at_{0}, ping_by_{0};
  std::string stats_;
};

}  // namespace tiercel
