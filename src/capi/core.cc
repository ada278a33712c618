#include "capi/core.h"

#include <stop_token>
#include <vector>

#include <sys/random.h>

#include "base/check.h"

namespace tiercel::capi {

namespace {

// Stands for the arena while a node says how large it must be.
class AnySizeArena final : public Arena {
 public:
  std::uint64_t size_bytes() const override { return UINT64_MAX; }
  std::uint64_t payload_kept(std::uint64_t payload_bytes) const override { return payload_bytes; }
  MutableByteView view(std::span<const ArenaSpan>, std::uint64_t, std::uint64_t) override {
    TIERCEL_CHECK(false);
    return {};
  }
  void discard(std::span<const ArenaSpan>) override {}
};

}  // namespace

Duration duration_of(std::uint64_t nanoseconds) {
  return Duration(static_cast<Duration::rep>(std::min<std::uint64_t>(nanoseconds, INT64_MAX)));
}

Core::Core(const CoreOptions& options)
    : caller_drives_(options.caller_drives),
      off_(options.node.off),
      memory_kind_(options.memory),
      live_(clock_, memory_) {
  if (options.copy_threads != 0) {
    executor_ = std::make_unique<WakingExecutor>(options.copy_threads, wake_);
  } else {
    auto own = std::make_unique<CallerExecutor>();
    own_copies_ = own.get();
    executor_ = std::move(own);
  }
}

Result<std::shared_ptr<Core>> Core::open(const CoreOptions& options) {
  std::shared_ptr<Core> core(new Core(options));
  AnySizeArena any;
  std::uint64_t arena_bytes = 0;
  {
    TIERCEL_ASSIGN_OR_RETURN(
        const std::unique_ptr<Node> sized,
        Node::open(options.node, World{core->clock_, *core->executor_, any, core->memory_, 1}));
    arena_bytes = sized->stats().arena_bytes;
  }
  TIERCEL_RETURN_IF_ERROR(core->open_arena(options, arena_bytes));
  World world{core->clock_, *core->executor_, core->arena_->extents(), core->memory_, options.seed};
  TIERCEL_ASSIGN_OR_RETURN(std::unique_ptr<Node> node, Node::open(options.node, world));
  core->peek([&](Live& live) {
    live.node = std::move(node);
    const auto got = ::getrandom(live.instance.data(), live.instance.size(), 0);
    TIERCEL_CHECK(got == static_cast<ssize_t>(live.instance.size()));
  });
  if (!options.caller_drives) core->control_ = std::thread([&c = *core] { c.control_loop(); });
  return core;
}

// Requires: whole extents.
Status Core::open_arena(const CoreOptions& options, std::uint64_t bytes) {
  MappedArenaOptions wanted;
  wanted.kind = options.memory;
  wanted.sizes.extent_bytes = options.node.extent_bytes;
  wanted.sizes.extents = bytes / options.node.extent_bytes;
  if (::getrandom(&wanted.epoch, sizeof wanted.epoch, 0) != sizeof wanted.epoch || wanted.epoch == 0)
    wanted.epoch = 1;
  wanted.touch.threads = options.touch_threads;
  std::stop_source stop;
  wanted.touch.stop = stop.get_token();
  wanted.touch.progress = [&](std::uint64_t done, std::uint64_t total) {
    if (options.progress && options.progress(done, total)) stop.request_stop();
  };
  auto opened = MappedArena::open(wanted);
  if (!opened) return opened.error();
  arena_.emplace(std::move(*opened));
  page_kind_ = arena_->mapping().pages().kind;
  return {};
}

Core::~Core() { close(); }

Answer Core::closed() { return {TIERCEL_FAILED_PRECONDITION, "the node was closed; open another"}; }

std::size_t Core::settle(Live& live) {
  const std::size_t given = live.route();
  if (given != 0) changed_.notify_all();
  return given;
}

std::size_t Core::step() {
  const MutexLock lock(mutex_);
  if (live_.node == nullptr) return 0;
  std::size_t done = live_.expire_requests();
  done += live_.node->poll();
  return done + settle(live_);
}

std::uint64_t Core::drive(Duration budget) {
  constexpr int kCopiesATurn = 64;
  const Time end = later(clock_.now(), budget);
  std::uint64_t all = 0, done = 0;
  do {
    done = 0;
    for (int i = 0; own_copies_ != nullptr && i < kCopiesATurn && own_copies_->run_one(); ++i) {
      ++done;
      if (clock_.now() >= end) break;
    }
    done += step();
    all += done;
  } while (done != 0 && clock_.now() < end);
  return all;
}

void Core::expect(std::uint64_t deadline_ns, Live& live) {
  if (deadline_ns == 0) return;
  live.note_deadline(later(clock_.now(), duration_of(deadline_ns)));
  wake_.raise();
}

void Core::control_loop() {
  for (;;) {
    while (drive(kTurn) != 0) {
    }
    Duration rest{0};
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      rest = live_.next_due() - clock_.now();
    }
    wake_.wait(std::max(rest, Duration(0)));
  }
}

// False: somebody closed it before.
bool Core::close_begins() {
  const MutexLock lock(mutex_);
  if (live_.closing || live_.node == nullptr) return false;
  live_.closing = true;
  std::vector<SessionId> sessions;
  for (const auto& [id, info] : live_.sessions) sessions.push_back(id);
  for (const SessionId session : sessions) static_cast<void>(live_.node->close_session(session).ok());
  settle(live_);
  return true;
}

void Core::close() {
  if (!close_begins()) return;
  const Answer ended = wait(TIERCEL_FOREVER, [](Live& live) -> std::optional<Answer> {
    if (live.operations_under_way() == 0) return Answer{};
    return std::nullopt;
  });
  static_cast<void>(ended.ok());
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.raise();
  if (control_.joinable()) control_.join();
  {
    const MutexLock lock(mutex_);
    live_.node.reset();
  }
  changed_.notify_all();
  // Another caller may be inside drive() and look for copies once more: its queue stays.
  if (own_copies_ == nullptr) executor_.reset();
  arena_.reset();
}

}  // namespace tiercel::capi
