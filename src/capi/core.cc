#include "capi/core.h"

#include <stop_token>
#include <vector>

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "os/block_open.h"

namespace tiercel::capi {

namespace {

// Of readers in other processes: none can come before a daemon hands the arena out, so few and small.
constexpr LeaseTableShape kReaders{.clients_max = 16, .words_per_client = 512, .touches_per_client = 512};

std::uint64_t random_not_zero() {
  std::uint64_t value = 0;
  while (value == 0) TIERCEL_CHECK(::getrandom(&value, sizeof value, 0) == sizeof value);
  return value;
}

}  // namespace

Duration duration_of(std::uint64_t nanoseconds) {
  return Duration(static_cast<Duration::rep>(std::min<std::uint64_t>(nanoseconds, INT64_MAX)));
}

Core::Core(const CoreOptions& options)
    : caller_drives_(options.caller_drives),
      off_(options.node.off),
      has_disk_(options.disk.has_value()),
      has_remote_(options.remote.has_value()),
      close_write_down_(options.disk ? options.disk->close_write_down : Duration(0)),
      close_remote_(options.remote ? options.remote->close_deadline : Duration(0)),
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
  Status status = core->open_all(options);
  if (!status.ok()) {
    if (core->disk_created_) ::unlink(options.disk->path.c_str());  // nothing is left of what did not open
    return tl::unexpected(std::move(status));
  }
  if (!options.caller_drives) core->control_ = std::thread([&c = *core] { c.control_loop(); });
  return core;
}

Status Core::open_all(const CoreOptions& options) {
  NodeOptions node_options = options.node;
  if (options.disk && !options.node.off) {
    if (Status status = open_disk(*options.disk); !status.ok()) return status;
    node_options.disk.host_bytes = log_->geometry().host_bytes;
  }
  const Result<Grant> grant = divide_grant(node_options);
  if (!grant) return grant.error();
  if (Status status = open_arena(options, *grant); !status.ok()) return status;
  if (log_ != nullptr)
    if (Status status = reopen_disk(*options.disk); !status.ok()) return status;
  if (options.remote && !options.node.off)
    if (Status status = open_remote(*options.remote); !status.ok()) return status;
  if (Status status = watch_ends(); !status.ok()) return status;
  const std::uint64_t seed = options.seed != 0 ? options.seed : random_not_zero();
  if (Status status = open_index(*grant, seed); !status.ok()) return status;
  World world{clock_, *executor_, arena_->extents(), memory_, seed, index_.get(), &*readers_};
  world.processes = &processes_;
  world.disk = log_.get();
  world.remote = remote_.get();
  Result<std::unique_ptr<Node>> node = Node::open(node_options, world);
  if (!node) return node.error();
  peek([&](Live& live) {
    live.node = std::move(*node);
    const auto got = ::getrandom(live.instance.data(), live.instance.size(), 0);
    TIERCEL_CHECK(got == static_cast<ssize_t>(live.instance.size()));
  });
  return {};
}

Status Core::open_disk(const CoreDisk& wanted) {
  BlockDeviceOptions options;
  options.file.path = wanted.path;
  options.file.bytes = wanted.bytes;
  options.file.create = wanted.bytes != 0;
  options.file.progress = wanted.progress;
  auto drive = open_block_device(options);
  if (!drive) return drive.error();
  drive_ = std::make_unique<LateDrive>(std::move(drive->device));
  disk_created_ = drive->created;
  Digest uuid{};
  TIERCEL_CHECK(::getrandom(uuid.data(), uuid.size(), 0) == static_cast<ssize_t>(uuid.size()));
  auto log = DiskLog::open(wanted.log, *drive_, clock_, uuid);
  if (!log) return log.error();
  log_ = std::move(*log);
  return {};
}

// Once more, now that there is an arena: so that it is read into and written from without a detour.
Status Core::reopen_disk(const CoreDisk& wanted) {
  BlockDeviceOptions options;
  options.file.path = wanted.path;
  options.tuning.memory.push_back(arena_->bytes(arena_->layout().extents));
  const bool created =
      std::exchange(disk_created_, false);  // until it is locked again it may be somebody else's
  drive_->close();
  auto drive = open_block_device(options);
  if (!drive) return drive.error();
  if (drive->device->size_bytes() != drive_->size_bytes())
    return {Code::kFailedPrecondition,
            fmt::format("disk {}: its size changed while it was opened", wanted.path)};
  // For a moment nobody had its lock.
  if (Status status = log_->still_ours(*drive->device); !status.ok())
    return {status.code, fmt::format("disk {}: {}", wanted.path, status.message)};
  disk_created_ = created;
  disk_text_ = fmt::format("drive     {}: {}, {}\n", wanted.path, block_engine_name(drive->engine),
                           drive->direct ? "past the page cache" : "through the page cache");
  for (const std::string& note : drive->notes) disk_text_ += fmt::format("          {}\n", note);
  disk_end_fd_ = drive->end_fd;
  drive_->reopened(std::move(drive->device));
  return {};
}

Status Core::open_remote(const CoreRemote& wanted) {
  StoreAddress address = wanted.address;
  if (wanted.tier.direct_bytes != UINT64_MAX && arena_->mapping().fd() >= 0) {
    const ArenaSection& extents = arena_->layout().extents;
    address.arena = {arena_->mapping().fd(), extents.offset.value(), extents.bytes,
                     arena_->bytes(extents).data()};
  }
  auto store = open_store(address, clock_, children_);
  if (!store) return store.error();
  store_ = std::move(*store);
  const Time until = later(clock_.now(), wanted.wait_ready);
  while (!store_->health().ready && clock_.now() < until) {
    store_->wait(std::min<Duration>(until - clock_.now(), std::chrono::milliseconds(20)));
    static_cast<void>(store_->drain());
  }
  Digest seed{};
  TIERCEL_CHECK(::getrandom(seed.data(), seed.size(), 0) == static_cast<ssize_t>(seed.size()));
  auto tier = RemoteTier::open(wanted.tier, *store_, clock_, *executor_, seed);
  if (!tier) return tier.error();
  remote_ = std::move(*tier);
  remote_text_ = fmt::format("remote    {}\n", printable_address(wanted.address.url));
  return {};
}

// The control thread wakes for what ends at the drive and at the store.
Status Core::watch_ends() {
  const int remote = store_ != nullptr ? store_->end_fd() : -1;
  if (remote < 0) return disk_end_fd_ < 0 ? Status{} : wake_.watch(disk_end_fd_);
  ends_fd_ = ::epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {disk_end_fd_, remote}) {
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (fd >= 0 && (ends_fd_ < 0 || ::epoll_ctl(ends_fd_, EPOLL_CTL_ADD, fd, &wanted) != 0))
      return {Code::kResourceExhausted, "no descriptor left for the remote tier; look at ulimit -n"};
  }
  return wake_.watch(ends_fd_);
}

Status Core::open_arena(const CoreOptions& options, const Grant& grant) {
  const auto index = compact::plan_image(index_sizes(grant.options));
  if (!index) return index.error();
  const auto leases = LeaseTable::bytes(kReaders);
  if (!leases) return leases.error();
  MappedArenaOptions wanted;
  wanted.kind = options.memory;
  wanted.sizes.index_bytes = index->bytes;
  wanted.sizes.leases_bytes = *leases;
  wanted.sizes.extent_bytes = grant.options.extent_bytes;
  wanted.sizes.extents = grant.extents;
  wanted.epoch = random_not_zero();
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

// Index and leases lie in the arena, where another process finds them.
Status Core::open_index(const Grant& grant, std::uint64_t seed) {
  auto index = CompactIndex::create(arena_->bytes(arena_->layout().index), index_sizes(grant.options), seed);
  if (!index) return index.error();
  index_ = std::move(*index);
  auto readers = LeaseTable::format(arena_->bytes(arena_->layout().leases), kReaders);
  if (!readers) return readers.error();
  readers_.emplace(std::move(*readers));
  return {};
}

Core::~Core() {
  close();
  if (ends_fd_ >= 0) ::close(ends_fd_);
}

bool Core::disk_open(const Live& live) const { return log_ != nullptr && !live.disk_closed; }

WriteDown Core::write_down(Live& live, Duration at_most) {
  WriteDown done = live.node->write_down(at_most);
  live.disk_closed = true;
  settle(live);  // stores and flushes that waited for the disk have been told by the node
  return done;
}

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
  // The node asks no more; what ends late would keep its descriptor readable, and this thread awake.
  if (live_.disk_closed && log_ != nullptr) done += log_->poll();
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

void Core::wait_a_turn() {
  if ((has_disk_ || has_remote_) && !off_) return wake_.wait(kTurn);
  const MutexLock lock(mutex_);
  changed_.wait_for(mutex_, kTurn);
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
  sessions.reserve(live_.sessions.size());
  for (const auto& [id, info] : live_.sessions) sessions.push_back(id);
  for (const SessionId session : sessions) static_cast<void>(live_.node->close_session(session).ok());
  live_.cancel_flushes();
  settle(live_);
  return true;
}

void Core::close() {
  if (!close_begins()) return;
  const Answer ended = wait(TIERCEL_FOREVER, [](Live& live) -> std::optional<Answer> {
    if (live.copies_under_way()) return std::nullopt;
    return Answer{};
  });
  static_cast<void>(ended.ok());
  // What tickets had waited for is still read; of a drive that hangs only so long.
  const auto patience = static_cast<std::uint64_t>(close_write_down_.count());
  if (remote_ != nullptr) {
    peek([this](Live&) { remote_->flush_soon(); });
    const auto all = static_cast<std::uint64_t>(close_remote_.count());
    const Answer stored = wait(all, [this](Live& live) -> std::optional<Answer> {
      const bool waits = live.node->storing_remotely() && !remote_->down();
      return waits ? std::nullopt : std::optional(Answer{});
    });
    static_cast<void>(stored.ok());
    const MutexLock lock(mutex_);
    live_.node->close_remote(kTurn);
    settle(live_);
  }
  // Copies between the exchange and the arena that were under way.
  const Answer moved = wait(TIERCEL_FOREVER, [this](Live& live) -> std::optional<Answer> {
    const Stats& stats = live.node->stats();
    if (remote_ != nullptr && stats.remote_reading_bytes + stats.remote_writing_bytes != 0)
      return std::nullopt;
    return Answer{};
  });
  static_cast<void>(moved.ok());
  const Answer read = wait(patience, [](Live& live) -> std::optional<Answer> {
    if (live.node->stats().disk_reading_bytes != 0) return std::nullopt;
    return Answer{};
  });
  static_cast<void>(read.ok());
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.raise();
  if (control_.joinable()) control_.join();
  {
    const MutexLock lock(mutex_);
    if (disk_open(live_)) static_cast<void>(write_down(live_, close_write_down_));
    live_.node.reset();
    log_.reset();
    drive_.reset();
    remote_.reset();
  }
  changed_.notify_all();
  // Another caller may be inside drive() and look for copies once more: its queue stays.
  if (own_copies_ == nullptr) executor_.reset();
  store_.reset();
  arena_.reset();
}

}  // namespace tiercel::capi
