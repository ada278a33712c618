#include "remote/remote_tier.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/fault.h"
#include "remote/tier_state.h"

namespace tiercel {

using remote::Area;

namespace {

class CopyTask final : public Task {
 public:
  CopyTask(std::vector<remote::MemoryCopy> pieces, std::uint64_t number,
           std::shared_ptr<remote::CopiesDone> done)
      : pieces_(std::move(pieces)), number_(number), done_(std::move(done)) {}
  void run() override {
    for (const remote::MemoryCopy& piece : pieces_) std::memcpy(piece.to, piece.from, piece.bytes);
    done_->push(number_);
  }

 private:
  std::vector<remote::MemoryCopy> pieces_;
  std::uint64_t number_;
  std::shared_ptr<remote::CopiesDone> done_;
};

constexpr Duration kLook = std::chrono::milliseconds(20);

Status check_options(const RemoteTierOptions& options) {
  const auto wrong = [](std::string_view option, std::string_view wanted, auto got) {
    return Status{Code::kInvalidArgument, fmt::format("remote: {}: wanted {}, got {}", option, wanted, got)};
  };
  const std::uint32_t pages = options.runs.pages_max;
  if (pages == 0 || pages > remote::kRunPagesMax || (pages & (pages - 1)) != 0)
    return wrong("pages of an object", "a power of two up to 64", pages);
  if (options.direct_bytes == 0) return wrong("bytes of a record that is not copied", "more than 0", 0);
  if (options.batch_bytes_max == 0) return wrong("bytes of a batch", "more than 0", 0);
  if (options.batch_deadline <= Duration{0})
    return wrong("deadline of a batch", "more than 0", options.batch_deadline.count());
  if (options.reads_in_flight == 0 || options.writes_in_flight == 0)
    return wrong("batches under way", "at least 1", 0);
  if (!(options.write_share > 0 && options.write_share <= 1))
    return wrong("share of the exchange for writes", "above 0, at most 1", options.write_share);
  if (options.errors_to_trip == 0) return wrong("failures before the tier is down", "at least 1", 0);
  return {};
}

}  // namespace

void remote::add_copies(std::byte* flat, std::uint64_t length, const std::vector<BlockPiece>& pieces,
                        bool to_pieces, std::vector<MemoryCopy>& copies) {
  for (const BlockPiece& piece : pieces) {
    const std::uint64_t part = std::min(length, piece.length);
    if (part == 0) return;
    if (to_pieces)
      copies.push_back({piece.data, flat, part});
    else
      copies.push_back({flat, piece.data, part});
    flat += part;
    length -= part;
  }
}

Status remote::outcome_status(RemoteOutcome outcome, std::string_view what) {
  if (outcome == RemoteOutcome::kOk) return {};
  const std::string text = fmt::format("remote: {}: {}", what, remote_outcome_name(outcome));
  switch (outcome) {
    case RemoteOutcome::kAbsent:
    case RemoteOutcome::kWrongSize:
      return {Code::kNotFound, text};
    case RemoteOutcome::kNoRoom:
    case RemoteOutcome::kTooLarge:
      return {Code::kResourceExhausted, text};
    case RemoteOutcome::kLate:
      return {Code::kDeadlineExceeded, text};
    default:
      return {Code::kUnavailable, text};
  }
}

std::string_view remote_verdict_name(RemoteVerdict verdict) {
  switch (verdict) {
    case RemoteVerdict::kAccepted:
      return "accepted";
    case RemoteVerdict::kAlreadyThere:
      return "already_there";
    case RemoteVerdict::kTooLarge:
      return "too_large";
    case RemoteVerdict::kRateLimited:
      return "rate_limited";
    case RemoteVerdict::kTierDown:
      return "tier_down";
  }
  return "unknown";
}

RemoteTier::State::State(const RemoteTierOptions& tier_options, RemoteStore& tier_store, Clock& tier_clock,
                         Executor& tier_executor, const Digest& tier_seed)
    : options(tier_options),
      store(tier_store),
      clock(tier_clock),
      executor(tier_executor),
      seed(tier_seed),
      exchange(tier_store.exchange_bytes()),
      known(tier_clock, tier_options.known_entries, tier_options.known_for, tier_options.absent_for),
      copies_done(std::make_shared<remote::CopiesDone>()),
      retry_wait(tier_options.retry_after) {
  stats.exchange_bytes = exchange.size_bytes();
  constexpr std::uint64_t kSlowStart = 16;
  reads.window = writes.window = std::max<std::uint64_t>(options.batch_bytes_max / kSlowStart, 1);
}

// By counting under a seed that no other node has.
std::uint64_t RemoteTier::State::random() {
  std::vector<std::byte> text(seed.begin(), seed.end());
  append_le(text, ++random_drawn);
  const Digest digest = sha256(text);
  const auto drawn = load_le<std::uint64_t>(digest.data());
  return drawn == 0 ? 1 : drawn;
}

// ---- batches ----

bool RemoteTier::State::start(RemoteVerb verb, std::vector<RemoteItem> items, std::vector<Area> areas,
                              Then then, bool direct) {
  if (closed) return false;
  RemoteBatch batch{verb, std::move(items), later(now(), options.batch_deadline)};
  Result<RemoteBatchId> id = store.submit(std::move(batch));
  if (!id) {
    TIERCEL_CHECK(id.error().code != Code::kInvalidArgument);
    if (id.error().code == Code::kUnavailable) trip_due = true;
    return false;
  }
  ++stats.batches;
  batches.emplace(*id, Batch{std::move(then), std::move(areas), direct});
  return true;
}

std::size_t RemoteTier::State::take_ends() {
  std::size_t done = 0;
  for (const RemoteEvent& event : store.drain()) {
    ++done;
    if (event.kind == RemoteEvent::Kind::kDone) {
      end_batch(event);
      continue;
    }
    if (const auto batch = unquiet.extract(event.batch)) end_unquiet(batch.mapped());
  }
  return done;
}

void RemoteTier::State::end_unquiet(const Unquiet& batch) {
  ending_quiet = false;  // it came too late for anything that it did to count
  if (batch.then) batch.then(batch.results);
  for (const Area& area : batch.areas) {
    stats.unquiet_bytes -= area.length;
    exchange.give_back(area);
  }
}

void RemoteTier::State::end_batch(const RemoteEvent& done) {
  const auto at = batches.find(done.batch);
  TIERCEL_CHECK(at != batches.end());
  Batch batch = std::move(at->second);
  batches.erase(at);
  judge(done.results);
  ending_quiet = done.quiet;
  areas_kept = false;
  const bool waits = batch.direct && !done.quiet && !TIERCEL_FAULT(remote_direct_ends_before_quiet);
  if (!waits) batch.then(done.results);
  if (areas_kept) return;
  if (done.quiet || TIERCEL_FAULT(remote_area_reused_before_quiet)) {
    for (const Area& area : batch.areas) exchange.give_back(area);
    return;
  }
  for (const Area& area : batch.areas) stats.unquiet_bytes += area.length;
  Unquiet left{std::move(batch.areas), {}, {}};
  if (waits) {
    left.then = std::move(batch.then);
    left.results = done.results;
  }
  unquiet.emplace(done.batch, std::move(left));
}

// ---- the breaker ----

// A batch failed as a whole when none of its items was answered.
void RemoteTier::State::judge(const std::vector<RemoteResult>& results) {
  if (results.empty()) return;
  bool late = false;
  for (const RemoteResult& result : results) {
    const bool answered = result.outcome != RemoteOutcome::kDown && result.outcome != RemoteOutcome::kLate &&
                          result.outcome != RemoteOutcome::kFailed;
    if (answered) {
      failures = 0;
      return;
    }
    late |= result.outcome == RemoteOutcome::kLate;
  }
  ++stats.batches_failed;
  if (late) ++stats.batches_late;
  if (++failures >= options.errors_to_trip) trip_due = true;
}

void RemoteTier::State::trip() {
  trip_due = false;
  if (is_down) return;
  is_down = stats.down = true;
  ++stats.trips;
  failures = 0;
  retry_at = later(now(), retry_wait);
  retry_wait = std::min(retry_wait * 2, options.retry_after_max);
  const Status why{Code::kUnavailable, "the remote tier is down"};
  while (!lookups.empty()) end_lookup(lookups.begin()->first, why);
  for (const remote::ObjectRead& object : to_read) end_read(object, why);
  to_read.clear();
  lose_all_writes(why);
}

void RemoteTier::State::recover() {
  is_down = stats.down = false;
  failures = 0;
  retry_wait = options.retry_after;
}

void RemoteTier::State::probe() {
  if (!is_down || probing || closed || now() < retry_at) return;
  if (store.health().ready) {
    std::vector<RemoteItem> items;
    items.push_back({fmt::format("t{}.probe", remote::kObjectVersion), {}});
    probing = start(RemoteVerb::kExists, std::move(items), {}, [this](const auto& results) {
      probing = false;
      const RemoteOutcome outcome = results.at(0).outcome;
      if (outcome == RemoteOutcome::kOk || outcome == RemoteOutcome::kAbsent) recover();
    });
  }
  retry_at = later(now(), retry_wait);
  retry_wait = std::min(retry_wait * 2, options.retry_after_max);
}

// ---- copies ----

void RemoteTier::State::copy(std::vector<remote::MemoryCopy> pieces, std::function<void()> then) {
  if (pieces.empty()) return then();
  const std::uint64_t number = ++last_id;
  copies.emplace(number, std::move(then));
  executor.submit(std::make_unique<CopyTask>(std::move(pieces), number, copies_done));
}

std::size_t RemoteTier::State::take_copies() {
  const std::vector<std::uint64_t> done = copies_done->drain();
  for (const std::uint64_t number : done) {
    const auto at = copies.find(number);
    const std::function<void()> then = std::move(at->second);
    copies.erase(at);
    then();
  }
  return done.size();
}

// ---- the calls ----

Result<std::unique_ptr<RemoteTier>> RemoteTier::open(const RemoteTierOptions& options, RemoteStore& store,
                                                     Clock& clock, Executor& executor, const Digest& seed) {
  if (Status status = check_options(options); !status.ok()) return tl::unexpected(std::move(status));
  auto state = std::make_unique<State>(options, store, clock, executor, seed);
  return std::unique_ptr<RemoteTier>(new RemoteTier(std::move(state)));
}

RemoteTier::RemoteTier(std::unique_ptr<State> state) : state_(std::move(state)) {}
RemoteTier::~RemoteTier() = default;

RemoteSpaceId RemoteTier::open_space(const RemoteSpaceName& name) {
  State& s = *state_;
  const auto known = s.space_by_name.find({name.root, name.form->fingerprint});
  if (known != s.space_by_name.end()) return known->second;
  remote::TierSpace space;
  space.id = RemoteSpaceId(static_cast<std::uint32_t>(s.spaces.size() + 1));
  space.name = name;
  space.objects = remote::make_object_form(name.form, name.record_bytes, s.options.runs);
  space.form_marker = s.marker_named(remote::form_marker_name(name.form->fingerprint));
  space.namespace_marker = s.marker_named(remote::namespace_marker_name(name.root, name.form->fingerprint));
  for (const std::size_t marker : {space.form_marker, space.namespace_marker})
    s.markers[marker].spaces.push_back(s.spaces.size());
  s.space_by_name.emplace(std::pair(name.root, name.form->fingerprint), space.id);
  s.spaces.push_back(std::move(space));
  s.refresh(s.spaces.back());
  s.pump_markers();
  return s.spaces.back().id;
}

void RemoteTier::clear(RemoteSpaceId space) { state_->begin_clear(state_->space_of(space).namespace_marker); }

void RemoteTier::clear_form(const Digest& form) {
  state_->begin_clear(state_->marker_named(remote::form_marker_name(form)));
}

bool RemoteTier::clearing() const {
  return std::any_of(state_->markers_due.begin(), state_->markers_due.end(),
                     [&](std::size_t index) { return state_->markers[index].clearing; });
}

Status RemoteTier::settle(Duration at_most) {
  const Time until = later(state_->now(), at_most);
  while (clearing()) {
    poll();
    if (!clearing()) break;
    const Time now = state_->now();
    if (now >= until || state_->closed)
      return {Code::kDeadlineExceeded,
              "remote: a clear has not been confirmed by the store in time; what was cleared may come back "
              "after a restart: repeat the call"};
    wait(std::min<Duration>(until - now, std::chrono::milliseconds(50)));
  }
  return {};
}

bool RemoteTier::down() const { return state_->is_down || state_->trip_due || state_->closed; }

std::size_t RemoteTier::poll() {
  State& s = *state_;
  std::size_t done = s.take_ends() + s.take_copies();
  if (s.trip_due) s.trip();
  if (s.closed) s.lose_all_writes(Status{Code::kUnavailable, "the remote tier was closed"});
  s.probe();
  if (!s.is_down && !s.closed)
    done += s.pump_markers() + s.pump_lookups() + s.pump_reads() + s.pump_writes() + s.pump_removals();
  if (s.trip_due) s.trip();
  s.stats.exchange_used_bytes = s.exchange.used_bytes();
  return done;
}

std::vector<RemoteTierEvent> RemoteTier::drain_events() { return std::exchange(state_->events, {}); }

Time RemoteTier::next_due() const {
  const State& s = *state_;
  Time due = s.store.next_due();
  if (s.is_down) due = std::min(due, s.retry_at);
  // What hangs on a batch that could not be begun, or on a process's death, is looked at now and then.
  const bool busy = !s.batches.empty() || !s.lookups.empty() || !s.to_read.empty() || !s.to_write.empty();
  if (busy) due = std::min(due, later(s.now(), kLook));
  if (!s.gathering_order.empty()) {
    const auto oldest = s.gathering.find(s.gathering_order.front());
    const Time since = oldest == s.gathering.end() ? s.now() : oldest->second.since;
    due = std::min(due, later(since, s.options.gather_for));
  }
  return due;
}

int RemoteTier::end_fd() const { return state_->store.end_fd(); }

void RemoteTier::wait(Duration at_most) {
  State& s = *state_;
  if (!s.copies.empty()) at_most = std::min<Duration>(at_most, std::chrono::milliseconds(1));
  s.store.wait(at_most);
}

void RemoteTier::flush_soon() { state_->flush = true; }

bool RemoteTier::writing() const {
  return !state_->gathering.empty() || !state_->to_write.empty() || !state_->now_writing.empty();
}

const RemoteStats& RemoteTier::stats() const { return state_->stats; }
RemoteHealth RemoteTier::health() const { return state_->store.health(); }

void RemoteTier::close(Duration at_most) {
  State& s = *state_;
  if (s.closed) return;
  const Time until = later(s.now(), at_most);
  flush_soon();
  while (writing() && !s.is_down && s.now() < until) {
    if (poll() == 0) wait(std::min<Duration>(until - s.now(), std::chrono::milliseconds(20)));
  }
  s.closed = true;
  const Status why{Code::kUnavailable, "the remote tier was closed"};
  while (!s.lookups.empty()) s.end_lookup(s.lookups.begin()->first, why);
  for (const remote::ObjectRead& object : s.to_read) s.end_read(object, why);
  s.to_read.clear();
  s.lose_all_writes(why);
  s.store.close(std::max<Duration>(until - s.now(), std::chrono::milliseconds(1)));
  s.take_ends();
  // The store is closed: whatever did not become quiet has nobody behind it who could be waited for.
  for (const auto& [id, batch] : std::exchange(s.unquiet, {})) s.end_unquiet(batch);
  s.take_copies();  // what is still being copied ends by poll()
}

}  // namespace tiercel
