// How long a batch takes at most when something dies or hangs under it: the connector, the master, a peer.
#include <algorithm>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/benches.h"
#include "bench/remote_parts.h"

namespace tiercel {
namespace {

constexpr Duration kDeadline = std::chrono::seconds(1);  // what the tier gives a batch
constexpr Duration kSlack = std::chrono::milliseconds(50);
constexpr std::uint64_t kObject = 1U << 20;
constexpr std::size_t kObjects = 16;

double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }

class EndBench final {
 public:
  EndBench(BenchRun& run, const std::string& url) : run_(run), url_(url) {}

  Status line(std::string_view victim, int signal) {
    MooncakeCluster cluster;
    std::string url = url_;
    if (url.empty()) {
      auto started = start_mooncake(256U << 20);
      if (!started) return started.error();
      cluster = std::move(*started);
      url = cluster.url;
    }
    auto opened = BenchStore::open(url, run_);
    if (!opened) return opened.error();
    BenchStore& store = **opened;
    Samples none;
    const RemoteWork work{RemoteVerb::kPut, numbered("bench.end", kObjects), kObject, kObjects};
    if (Status status = store.perform(work, none); !status.ok()) return status;
    const std::uint32_t pid = victim == "connector" ? store.store().health().pid
                              : victim == "master"  ? cluster.master_pid
                                                    : cluster.peer_pid;
    watch(store, work.names, [&] { ::kill(static_cast<pid_t>(pid), signal); });
    add(std::string(victim), signal);
    // Nothing that is stopped stays so; a connector is ended by its supervision.
    if (victim != "connector" && signal == SIGSTOP) ::kill(static_cast<pid_t>(pid), SIGCONT);
    if (url_.empty()) return {};  // all of it goes
    if (Status status = store.await_ready(); !status.ok()) return status;
    return store.remove(work.names);
  }

 private:
  // Batches one behind the other, gets and look-ups in turn, the first of them under way when it happens.
  void watch(BenchStore& store, const std::vector<std::string>& names, const std::function<void()>& strike) {
    worst_ = first_miss_ = Duration(0);
    again_.reset();
    outcomes_.clear();
    batches_ = 0;
    const Duration watched = run_.quick() ? std::chrono::seconds(1) : std::chrono::seconds(4);
    const Time start = store.clock().now();
    bool struck = false, missed = false;
    Time struck_at = start;
    while (!struck || store.clock().now() < later(struck_at, watched)) {
      const bool moves = batches_++ % 2 == 0;
      RemoteBatch batch{moves ? RemoteVerb::kGet : RemoteVerb::kExists, {}, {}};
      for (std::size_t i = 0; i < names.size(); ++i) {
        batch.items.push_back({names[i], {}});
        if (moves) batch.items.back().pieces = {{0, i * kObject, kObject}};
      }
      const Time begun = store.clock().now();
      batch.deadline = later(begun, kDeadline);
      const auto id = store.store().submit(std::move(batch));
      if (!struck) {
        strike();
        struck_at = store.clock().now();
        struck = true;
      }
      const bool good = id ? end_of(store, *id) : refused(store);
      const Time now = store.clock().now();
      worst_ = std::max(worst_, Duration(now - begun));
      if (!good && !missed) first_miss_ = now - struck_at;
      // A look-up may still find what can no longer be read.
      if (good && missed && moves && !again_) again_ = now - struck_at;
      missed |= !good;
      // What is refused at once is asked again a little later, as a node does.
      if (!id || now - begun < std::chrono::milliseconds(1)) store.store().wait(std::chrono::milliseconds(5));
    }
  }
  bool refused(BenchStore& store) {
    ++outcomes_["refused at once"];
    store.store().drain();
    return false;
  }
  // Whether all of it was good.
  bool end_of(BenchStore& store, RemoteBatchId id) {
    for (;;) {
      for (const RemoteEvent& event : store.store().drain()) {
        if (event.kind != RemoteEvent::Kind::kDone || event.batch != id) continue;
        RemoteOutcome worst = RemoteOutcome::kOk;
        for (const RemoteResult& result : event.results) worst = std::max(worst, result.outcome);
        ++outcomes_[std::string(remote_outcome_name(worst))];
        return worst == RemoteOutcome::kOk;
      }
      store.store().wait(std::chrono::seconds(1));
    }
  }

  void add(const std::string& victim, int signal) {
    BenchLine line;
    line.name = fmt::format("{} {}: a batch ends", victim, signal == SIGKILL ? "killed" : "stopped");
    line.unit = "ms";
    line.ours = std::max(milliseconds(worst_), 1e-3);
    line.limit = milliseconds(kDeadline + kSlack);
    line.limit_name = "deadline + 50 ms";
    line.ratio = line.limit / line.ours;
    line.target = "ratio >= 1.00";
    line.operations = batches_;
    std::string ends;
    for (const auto& [name, count] : outcomes_)
      ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", count, name);
    line.note = fmt::format("the longest of {} batches; first miss after {:.0f} ms; {}; ended as: {}",
                            batches_, milliseconds(first_miss_),
                            again_ ? fmt::format("read again after {:.0f} ms", milliseconds(*again_))
                                   : std::string("not read again meanwhile"),
                            ends);
    run_.add(std::move(line));
  }

  BenchRun& run_;
  std::string url_;
  Duration worst_{0}, first_miss_{0};
  std::optional<Duration> again_;
  std::map<std::string, std::uint64_t> outcomes_;
  std::uint64_t batches_ = 0;
};

}  // namespace

Status remote_end_lines(BenchRun& run, const std::string& url) {
  if (scheme_of(url) == "posix") return {};  // there is no process to be ended
  EndBench bench(run, url);
  for (const std::string_view victim : {"connector", "master", "peer"}) {
    if (victim != "connector" && !url.empty()) break;  // others' servers are left alone
    if (victim != "connector" && run.quick()) break;
    for (const int signal : {SIGKILL, SIGSTOP}) {
      run.progress(fmt::format("{} {}", victim, signal == SIGKILL ? "killed" : "stopped"));
      if (Status status = bench.line(victim, signal); !status.ok()) return status;
    }
  }
  return {};
}

}  // namespace tiercel
