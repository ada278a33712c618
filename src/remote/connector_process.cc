#include "remote/connector_process.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "tiercel/connector.h"

namespace tiercel {
namespace {

constexpr Duration kLastWait = std::chrono::seconds(1);  // for the exit of what was killed

std::string seconds_text(Duration duration) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(duration).count());
}

// The contract's statuses are our outcomes, number by number.
constexpr bool same(tiercel_connector_status status, RemoteOutcome outcome) {
  return static_cast<int>(status) == static_cast<int>(outcome);
}
static_assert(same(TIERCEL_CONNECTOR_OK, RemoteOutcome::kOk));
static_assert(same(TIERCEL_CONNECTOR_ABSENT, RemoteOutcome::kAbsent));
static_assert(same(TIERCEL_CONNECTOR_WRONG_SIZE, RemoteOutcome::kWrongSize));
static_assert(same(TIERCEL_CONNECTOR_NO_ROOM, RemoteOutcome::kNoRoom));
static_assert(same(TIERCEL_CONNECTOR_TOO_LARGE, RemoteOutcome::kTooLarge));
static_assert(same(TIERCEL_CONNECTOR_INVALID, RemoteOutcome::kInvalid));
static_assert(same(TIERCEL_CONNECTOR_FAILED, RemoteOutcome::kFailed));
static_assert(same(TIERCEL_CONNECTOR_DOWN, RemoteOutcome::kDown));
static_assert(same(TIERCEL_CONNECTOR_LATE, RemoteOutcome::kLate));
static_assert(same(TIERCEL_CONNECTOR_CANCELLED, RemoteOutcome::kCancelled));

bool outcome_of(std::int32_t status, RemoteOutcome& outcome) {
  if (status < TIERCEL_CONNECTOR_OK || status > TIERCEL_CONNECTOR_CANCELLED) return false;
  outcome = static_cast<RemoteOutcome>(status);
  return true;
}

Status nonsense(std::string what) { return {Code::kDataCorrupt, std::move(what)}; }

}  // namespace

Result<std::unique_ptr<ConnectorProcess>> ConnectorProcess::open(const ConnectorOptions& options,
                                                                 const Clock& clock,
                                                                 ChildProcesses& processes) {
  if (options.argv.empty() || options.argv[0].empty())
    return error(Code::kInvalidArgument, "connector: no program is named; give its path and arguments");
  if (options.config.find('\n') != std::string::npos || options.config.size() >= kChildInputBytesMax)
    return error(
        Code::kInvalidArgument,
        fmt::format("connector '{}': configuration: wanted one line of at most {} bytes, got {} bytes in "
                    "{} lines",
                    options.argv[0], kChildInputBytesMax - 1, options.config.size(),
                    1 + std::ranges::count(options.config, '\n')));
  TIERCEL_ASSIGN_OR_RETURN(Exchange exchange, Exchange::open(options.exchange));
  std::unique_ptr<ConnectorProcess> process(
      new ConnectorProcess(options, clock, processes, std::move(exchange)));
  process->start(clock.now());
  return process;
}

ConnectorProcess::ConnectorProcess(const ConnectorOptions& options, const Clock& clock,
                                   ChildProcesses& processes, Exchange exchange)
    : options_(options),
      clock_(clock),
      processes_(processes),
      exchange_(std::move(exchange)),
      restart_wait_(options.restart_wait) {}

ConnectorProcess::~ConnectorProcess() { close(Duration(0)); }

std::string ConnectorProcess::named(const std::string& what) const {
  return fmt::format("connector '{}': {}", options_.argv[0], what);
}

// ---- Its life ----

void ConnectorProcess::start(Time now) {
  exchange_.restart();
  ping_ = stats_batch_ = 0;
  ChildOptions child{.argv = options_.argv,
                     .environment = options_.environment,
                     .descriptors = {exchange_.fd(), exchange_.request_event(), exchange_.completion_event()},
                     .output = options_.output,
                     .input = options_.config + "\n"};
  if (options_.arena.fd >= 0) child.descriptors.push_back(options_.arena.fd);
  child.environment.push_back("TIERCEL_CONNECTOR=" + Exchange::environment(options_.arena));
  auto started = processes_.start(child);
  if (!started) {
    retry(now, started.error().message);
    return;
  }
  child_ = std::move(*started);
  ++starts_;
  state_ = State::kStarting;
  start_by_ = later(now, options_.start_timeout);
  if (why_.empty()) why_ = named("starting");
}

void ConnectorProcess::retry(Time now, std::string why) {
  state_ = State::kStopped;
  why_ = std::move(why);
  retry_at_ = later(now, restart_wait_);
  restart_wait_ = std::min(restart_wait_ * 2, options_.restart_wait_max);
}

void ConnectorProcess::kill(const std::string& why) {
  if (state_ != State::kStarting && state_ != State::kReady) return;
  why_ = named(why);
  state_ = State::kDying;
  ++kills_;
  child_->kill();
}

void ConnectorProcess::see_exit(Time now) {
  if (!child_ || !child_->exited()) return;
  if (state_ != State::kDying && state_ != State::kClosed) why_ = named(child_->end());
  child_.reset();
  end_all(state_ == State::kClosed ? RemoteOutcome::kCancelled : RemoteOutcome::kDown);
  if (state_ != State::kClosed) retry(now, std::move(why_));
}

void ConnectorProcess::check_process(Time now) {
  if (state_ == State::kStarting && now >= start_by_)
    kill(fmt::format("no hello within {}; its standard error may say why",
                     seconds_text(options_.start_timeout)));
  if (state_ == State::kReady && now - ready_since_ >= options_.calm_after)
    restart_wait_ = options_.restart_wait;
  if (state_ == State::kReady) ping(now);
  if (state_ == State::kStopped && now >= retry_at_) start(now);
}

void ConnectorProcess::ping(Time now) {
  if (ping_ == 0 && now >= ping_at_) {
    ping_ = ++last_id_;
    ping_sent_ = false;
    ping_by_ = later(now, options_.ping_answer);
  }
  // Where the ring is full the question stands all the same: nobody reads it.
  if (ping_ != 0 && !ping_sent_) ping_sent_ = send(TIERCEL_CONNECTOR_PING, ping_);
  if (stats_batch_ != 0 && !stats_sent_) stats_sent_ = send(TIERCEL_CONNECTOR_STATS, stats_batch_);
  for (auto& [id, batch] : batches_)
    if (batch.cancel_unsent) batch.cancel_unsent = !send(TIERCEL_CONNECTOR_CANCEL, id);
  if (ping_ != 0 && now >= ping_by_)
    kill(fmt::format("no answer for {}: it does not read its ring", seconds_text(options_.ping_answer)));
}

bool ConnectorProcess::send(std::uint16_t verb, std::uint64_t id) {
  if (state_ != State::kReady && state_ != State::kClosed) return false;
  const RingWriter::Put put = exchange_.requests().put(encode_request(verb, id, 0, {}));
  if (put == RingWriter::Put::kNonsense) kill("nonsense as its position in the request ring");
  if (put == RingWriter::Put::kPut) exchange_.tell();
  return put == RingWriter::Put::kPut;
}

void ConnectorProcess::ask_stats() {
  if (state_ != State::kReady || stats_batch_ != 0) return;
  stats_batch_ = ++last_id_;
  stats_sent_ = send(TIERCEL_CONNECTOR_STATS, stats_batch_);
}

// ---- Batches ----

Result<RemoteBatchId> ConnectorProcess::submit(RemoteBatch batch) {
  const std::array<std::uint64_t, 2> regions{exchange_.data_bytes(),
                                             options_.arena.fd >= 0 ? options_.arena.bytes : 0};
  TIERCEL_RETURN_IF_ERROR(check_batch(batch, regions));
  if (state_ != State::kReady) return error(Code::kUnavailable, why_);
  const Time now = clock_.now();
  const std::uint64_t id = last_id_ + 1;
  if (batch.items.empty() || batch.deadline <= now) {  // nothing to be done, or no time for it
    events_.push_back({RemoteEvent::Kind::kDone, RemoteBatchId(id), true,
                       std::vector<RemoteResult>(batch.items.size(), {RemoteOutcome::kLate, 0})});
    last_id_ = id;
    return RemoteBatchId(id);
  }
  if (batches_.size() >= options_.batches_max)
    return error(Code::kResourceExhausted,
                 named(fmt::format("{} batches are under way; wait for the end of one", batches_.size())));
  const std::uint64_t wanted = request_bytes(batch.items), most = exchange_.requests().message_bytes_max();
  if (wanted > most)
    return error(
        Code::kInvalidArgument,
        named(fmt::format("a request of {} bytes: wanted at most {}; make it several", wanted, most)));
  const Time deadline =
      later(SteadyClock().now(), batch.deadline - now);  // by the clock that both sides have
  const RingWriter::Put put = exchange_.requests().put(encode_request(
      connector_verb(batch.verb), id, static_cast<std::uint64_t>(deadline.count()), batch.items));
  if (put == RingWriter::Put::kNonsense) {
    kill("nonsense as its position in the request ring");
    return error(Code::kUnavailable, why_);
  }
  if (put == RingWriter::Put::kFull)
    return error(Code::kResourceExhausted, named("the request ring is full; wait for the end of a batch"));
  exchange_.tell();
  last_id_ = id;
  Batch& under_way = batches_[id];
  under_way.verb = batch.verb;
  under_way.deadline = batch.deadline;
  // No sum wraps: check_batch().
  for (const RemoteItem& item : batch.items) {
    std::uint64_t size = 0;
    for (const RemotePiece& piece : item.pieces) size += piece.length;
    under_way.sizes.push_back(size);
    under_way.bytes += size;
  }
  return RemoteBatchId(id);
}

void ConnectorProcess::cancel(RemoteBatchId batch) {
  const auto found = batches_.find(batch.value());
  if (found == batches_.end() || found->second.told) return;
  found->second.cancel_unsent = !send(TIERCEL_CONNECTOR_CANCEL, batch.value());
}

void ConnectorProcess::end_batch(Batches::iterator at, RemoteOutcome outcome, bool quiet) {
  Batch& batch = at->second;
  RemoteEvent event{RemoteEvent::Kind::kDone, RemoteBatchId(at->first), quiet, {}};
  if (batch.told)
    event.kind = RemoteEvent::Kind::kQuiet;
  else
    event.results.assign(batch.sizes.size(), {outcome, 0});
  events_.push_back(std::move(event));
  batch.told = true;
  if (quiet) batches_.erase(at);
}

void ConnectorProcess::end_all(RemoteOutcome outcome) {
  while (!batches_.empty()) end_batch(batches_.begin(), outcome, true);
}

void ConnectorProcess::check_deadlines(Time now) {
  for (auto at = batches_.begin(); at != batches_.end();) {
    const auto next = std::next(at);
    const Time deadline = at->second.deadline;
    if (!at->second.told && now >= deadline) end_batch(at, RemoteOutcome::kLate, false);
    if (now >= later(deadline, options_.kill_after))
      kill(fmt::format("a batch is not ended {} after its deadline", seconds_text(options_.kill_after)));
    at = next;
  }
}

// ---- What it says ----

void ConnectorProcess::read_completions(Time now) {
  exchange_.forget_completion();
  std::vector<std::byte> message;
  while (state_ == State::kStarting || state_ == State::kReady || state_ == State::kClosed) {
    const RingReader::Take taken = exchange_.completions().take(message);
    if (taken == RingReader::Take::kEmpty) return;
    Status status;
    if (taken == RingReader::Take::kNonsense) {
      status = nonsense(exchange_.completions().nonsense());
    } else if (const auto completion = parse_completion(message); !completion) {
      status = completion.error();
    } else if (completion->verb == TIERCEL_CONNECTOR_DONE) {
      status = done(*completion);
    } else if (state_ != State::kStarting || completion->batch != 0) {
      status = nonsense("a hello that nobody waits for");
    } else {
      hello(*completion, now);
    }
    if (status.ok()) continue;
    kill(fmt::format("nonsense on its completion ring: {}", status.message));
    return;
  }
}

void ConnectorProcess::hello(const ConnectorCompletion& completion, Time now) {
  if (completion.status != 0) {
    const std::string text = one_line(completion.text);
    kill(text.empty() ? fmt::format("it cannot serve (status {}) and does not say why", completion.status)
                      : text);
    return;
  }
  state_ = State::kReady;
  why_.clear();
  ready_since_ = now;
  ping_at_ = later(now, options_.ping_every);
}

Status ConnectorProcess::done(const ConnectorCompletion& completion) {
  if (completion.batch == ping_ && ping_ != 0) {
    ping_ = 0;
    ping_at_ = later(clock_.now(), options_.ping_every);
    return {};
  }
  if (completion.batch == stats_batch_ && stats_batch_ != 0) {
    stats_batch_ = 0;
    stats_ = completion.text.empty() ? "{}" : completion.text;
    return {};
  }
  const auto found = batches_.find(completion.batch);
  if (found == batches_.end())
    return nonsense(fmt::format("the end of batch {}, which is not under way", completion.batch));
  const Batch& batch = found->second;
  if (completion.results.size() != batch.sizes.size())
    return nonsense(fmt::format("{} results of {} items", completion.results.size(), batch.sizes.size()));
  std::vector<RemoteResult> results(batch.sizes.size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ConnectorResult& got = completion.results[i];
    if (!outcome_of(got.status, results[i].outcome))
      return nonsense(fmt::format("status {} of an item", got.status));
    if (results[i].outcome != RemoteOutcome::kOk) continue;
    if (completion.status != 0) return nonsense("an item that is ok in a batch that was not tried");
    if (batch.verb == RemoteVerb::kGet && got.bytes != batch.sizes[i])
      return nonsense(fmt::format("{} bytes got of an object of {}", got.bytes, batch.sizes[i]));
    if (batch.verb == RemoteVerb::kExists || batch.verb == RemoteVerb::kGet) results[i].bytes = got.bytes;
  }
  RemoteEvent event{RemoteEvent::Kind::kQuiet, RemoteBatchId(found->first), true, {}};
  if (!batch.told) event = {RemoteEvent::Kind::kDone, event.batch, true, std::move(results)};
  events_.push_back(std::move(event));
  batches_.erase(found);
  return {};
}

// ---- The store ----

void ConnectorProcess::step() {
  const Time now = clock_.now();
  // The exit is looked at first and believed after the ring was read: what it said last has arrived then.
  const bool exited = child_ && child_->exited();
  if (child_) read_completions(now);
  if (exited) see_exit(now);
  check_deadlines(now);
  if (state_ != State::kClosed) check_process(now);
}

std::vector<RemoteEvent> ConnectorProcess::drain() {
  step();
  return std::exchange(events_, {});
}

void ConnectorProcess::wait(Duration at_most) {
  at_most = std::min(at_most, next_due() - clock_.now());
  if (at_most <= Duration(0)) return;
  pollfd asked[2] = {{exchange_.completion_event(), POLLIN, 0},
                     {child_ ? child_->watch_fd() : -1, POLLIN, 0}};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{static_cast<time_t>(seconds.count()), static_cast<long>((at_most - seconds).count())};
  ::ppoll(asked, 2, &limit, nullptr);
}

Time ConnectorProcess::next_due() const {
  if (!events_.empty()) return clock_.now();
  Time due = Time::max();
  for (const auto& [id, batch] : batches_) {
    if (!batch.told) due = std::min(due, batch.deadline);
    if (state_ == State::kReady) due = std::min(due, later(batch.deadline, options_.kill_after));
  }
  if (state_ == State::kStopped) due = std::min(due, retry_at_);
  if (state_ == State::kStarting) due = std::min(due, start_by_);
  if (state_ == State::kReady) due = std::min(due, ping_ != 0 ? ping_by_ : ping_at_);
  return due;
}

RemoteHealth ConnectorProcess::health() const {
  RemoteHealth health;
  health.ready = state_ == State::kReady;
  if (state_ != State::kReady) health.why_not = why_;
  if (state_ == State::kStopped)
    health.why_not +=
        fmt::format("; started again in {}", seconds_text(std::max(retry_at_ - clock_.now(), Duration(0))));
  health.starts = starts_;
  health.kills = kills_;
  health.pid = child_ ? child_->pid() : 0;
  health.batches_in_flight = batches_.size();
  for (const auto& [id, batch] : batches_) {
    health.unquiet_batches += batch.told ? 1 : 0;
    health.unquiet_bytes += batch.told ? batch.bytes : 0;
  }
  return health;
}

std::optional<RemotePiece> ConnectorProcess::reach(const std::byte* data, std::uint64_t length) const {
  const ArenaGrant& arena = options_.arena;
  // Of any pointers, also those of other memory.
  const std::less<> before;
  if (arena.fd < 0 || length == 0 || before(data, arena.data) || !before(data, arena.data + arena.bytes))
    return std::nullopt;
  const auto offset = static_cast<std::uint64_t>(data - arena.data);
  if (length > arena.bytes - offset) return std::nullopt;
  return RemotePiece{1, offset, length};
}

void ConnectorProcess::close(Duration at_most) {
  if (state_ == State::kClosed) return;
  const bool asked = state_ == State::kReady;
  state_ = State::kClosed;
  why_ = named("closed");
  // Real time, whatever clock the batches have: a process is waited for.
  const SteadyClock clock;
  const Time until = later(clock.now(), at_most);
  const auto left = [&] { return until - clock.now(); };
  if (asked)
    for (auto& [id, batch] : batches_) send(TIERCEL_CONNECTOR_CANCEL, id);
  while (asked && child_ && !batches_.empty() && left() > Duration(0)) {
    pollfd ends[2] = {{exchange_.completion_event(), POLLIN, 0}, {child_->watch_fd(), POLLIN, 0}};
    const Duration wait = std::min<Duration>(left(), std::chrono::milliseconds(100));
    ::poll(ends, 2, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
    step();
    if (exchange_.completions().nonsense().size() > 0) break;
  }
  if (child_) {
    child_->close_input();
    if (!child_->wait(std::max(left(), Duration(0)))) {
      ++kills_;
      child_->kill();
      child_->wait(kLastWait);
    }
    see_exit(clock_.now());
  }
  // One that cannot even be killed hangs in the kernel: it is told of, and its memory stays away.
  for (auto at = batches_.begin(); at != batches_.end();) {
    const auto next = std::next(at);
    if (!at->second.told) end_batch(at, RemoteOutcome::kCancelled, false);
    at = next;
  }
}

}  // namespace tiercel
