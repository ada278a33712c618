#include "remote/posix_store.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <map>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/crc32c.h"
#include "os/fd.h"
#include "os/thread_annotations.h"
#include "remote/connector_message.h"
#include "remote/object_files.h"

namespace tiercel {
namespace {

// What a thread reads or writes at once, and the longest that memory is held.
constexpr std::uint64_t kBufferBytes = 256U << 10;
constexpr Duration kLastWait = std::chrono::seconds(1);

}  // namespace

struct PosixStore::Batch {
  RemoteBatch request;
  // Guarded by `memory`: whoever copies holds it, so that after `over` nobody does.
  Mutex memory;
  bool over TIERCEL_GUARDED_BY(memory) = false;
  // Guarded by Shared::mutex.
  std::vector<RemoteResult> results;
  std::vector<bool> done;
  std::size_t left = 0;
  bool ended = false;
};

// What the store and its threads have together.
struct PosixStore::Shared {
  // Items of a batch that one thread does in a row.
  struct Job {
    std::shared_ptr<Batch> batch;
    std::vector<std::size_t> items;
  };
  // Constant.
  const Clock* clock = nullptr;
  Mapping exchange;
  std::array<MutableByteView, 2> regions;
  std::unique_ptr<ObjectFiles> files;

  mutable Mutex mutex;
  std::condition_variable_any work, gone_one;
  Fd end_event;  // readable while `ended`
  std::deque<Job> jobs TIERCEL_GUARDED_BY(mutex);
  std::map<std::uint64_t, std::shared_ptr<Batch>> batches TIERCEL_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Batch>> busy_with TIERCEL_GUARDED_BY(mutex);  // by thread
  std::vector<bool> gone TIERCEL_GUARDED_BY(mutex);                         // by thread
  bool stopping TIERCEL_GUARDED_BY(mutex) = false;
  bool ended TIERCEL_GUARDED_BY(mutex) = false;  // of some batch, not drained yet
  std::vector<std::thread> threads;              // the store's own

  bool take(unsigned thread, Job& job) TIERCEL_EXCLUDES(mutex);
  void record(Batch& batch, std::size_t item, const RemoteResult& result) TIERCEL_EXCLUDES(mutex);
  void run(unsigned thread);
  RemoteResult one(Batch& batch, std::size_t item, MutableByteView buffer, unsigned thread);
  bool all_gone() const TIERCEL_REQUIRES(mutex) {
    return static_cast<std::size_t>(std::ranges::count(gone, true)) >= threads.size();
  }
  std::size_t stuck() const TIERCEL_REQUIRES(mutex) {
    return static_cast<std::size_t>(std::ranges::count_if(busy_with, [](const auto& batch) {
      return batch && batch->ended && batch->left > 0;  // not one that it was just done with
    }));
  }
};

namespace {

// The pieces of one item, while its batch is not over.
template <typename Batch>
class ItemMemory final : public ObjectMemory {
 public:
  ItemMemory(Batch& batch, const RemoteItem& item, const std::array<MutableByteView, 2>& regions)
      : batch_(batch), item_(item), regions_(regions) {}
  bool copy_from(std::uint64_t offset, MutableByteView to, std::uint32_t& crc) override {
    return copy(offset, to.size(), [&](std::uint64_t at, MutableByteView memory) {
      crc = crc32c_copy(to.data() + at, memory, crc, WritePath::kCached);
    });
  }
  bool copy_to(std::uint64_t offset, ByteView from, std::uint32_t& crc) override {
    return copy(offset, from.size(), [&](std::uint64_t at, MutableByteView memory) {
      crc = crc32c_copy(memory.data(), from.subspan(at, memory.size()), crc, WritePath::kCached);
    });
  }

 private:
  template <typename Each>
  bool copy(std::uint64_t offset, std::uint64_t length, const Each& each) {
    const MutexLock lock(batch_.memory);
    if (batch_.over) return false;
    std::uint64_t done = 0;
    for (const RemotePiece& piece : item_.pieces) {
      if (offset >= piece.length) {
        offset -= piece.length;
        continue;
      }
      const std::uint64_t now = std::min(piece.length - offset, length - done);
      each(done, regions_[piece.region].subspan(piece.offset + offset, now));
      done += now;
      offset = 0;
      if (done == length) break;
    }
    return true;
  }

  Batch& batch_;
  const RemoteItem& item_;
  const std::array<MutableByteView, 2>& regions_;
};

// Which items have to be done in a row: those of one name, where one changes what the next finds.
std::vector<std::vector<std::size_t>> in_rows(const RemoteBatch& batch) {
  std::vector<std::vector<std::size_t>> rows;
  if (batch.verb == RemoteVerb::kExists || batch.verb == RemoteVerb::kGet) {
    for (std::size_t i = 0; i < batch.items.size(); ++i) rows.push_back({i});
    return rows;
  }
  std::map<std::string_view, std::size_t> row_of;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const auto [found, fresh] = row_of.try_emplace(batch.items[i].name, rows.size());
    if (fresh) rows.emplace_back();
    rows[found->second].push_back(i);
  }
  return rows;
}

}  // namespace

// ---- A thread ----

bool PosixStore::Shared::take(unsigned thread, Job& job) {
  const MutexLock lock(mutex);
  busy_with[thread] = nullptr;
  while (jobs.empty() && !stopping) work.wait(mutex);
  if (stopping) {
    gone[thread] = true;
    gone_one.notify_all();
    return false;
  }
  job = std::move(jobs.front());
  jobs.pop_front();
  busy_with[thread] = job.batch;
  return true;
}

void PosixStore::Shared::record(Batch& batch, std::size_t item, const RemoteResult& result) {
  // Its memory was wanted no more, so finish() is about to say how it ended: cancelled, or late.
  if (result.outcome == RemoteOutcome::kCancelled) return;
  const MutexLock lock(mutex);
  if (batch.ended) return;
  batch.results[item] = result;
  batch.done[item] = true;
  if (--batch.left > 0) return;
  ended = true;
  ::eventfd_write(end_event.get(), 1);
}

RemoteResult PosixStore::Shared::one(Batch& batch, std::size_t index, MutableByteView buffer,
                                     unsigned thread) {
  if (clock->now() >= batch.request.deadline) return {RemoteOutcome::kLate, 0};
  const RemoteItem& item = batch.request.items[index];
  ItemMemory<Batch> memory(batch, item, regions);
  std::uint64_t bytes = 0;
  for (const RemotePiece& piece : item.pieces) bytes += piece.length;
  switch (batch.request.verb) {
    case RemoteVerb::kExists:
      return files->exists(item.name);
    case RemoteVerb::kGet:
      return files->get(item.name, bytes, memory, buffer);
    case RemoteVerb::kPut:
    case RemoteVerb::kReplace:
      return {
          files->put(item.name, bytes, batch.request.verb == RemoteVerb::kReplace, memory, buffer, thread),
          0};
    case RemoteVerb::kRemove:
      return {files->remove(item.name), 0};
  }
  return {RemoteOutcome::kInvalid, 0};
}

void PosixStore::Shared::run(unsigned thread) {
  std::vector<std::byte> buffer(kBufferBytes);
  Job job;
  while (take(thread, job)) {
    for (const std::size_t item : job.items) {
      const RemoteResult result = one(*job.batch, item, buffer, thread);
      if (result.outcome == RemoteOutcome::kDown) files->reopen();
      record(*job.batch, item, result);
    }
    job = {};
  }
}

// ---- The store ----

Result<std::unique_ptr<PosixStore>> PosixStore::open(const PosixStoreOptions& options, const Clock& clock,
                                                     const PosixCalls& calls) {
  if (options.folder.empty())
    return error(Code::kInvalidArgument,
                 "posix store: no folder is named; give one on the shared file system");
  if (options.threads == 0 || options.threads > kObjectThreadsMax || options.exchange_bytes == 0 ||
      options.batches_max == 0)
    return error(
        Code::kInvalidArgument,
        fmt::format(
            "posix store '{}': wanted 1 to {} threads, bytes of exchange and batches, got {} threads, "
            "{} bytes, {} batches",
            options.folder, kObjectThreadsMax, options.threads, options.exchange_bytes, options.batches_max));
  const auto shared = std::make_shared<Shared>();
  shared->clock = &clock;
  shared->end_event = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (shared->end_event.get() < 0)
    return error(Code::kResourceExhausted,
                 fmt::format("posix store '{}': no descriptor left; look at ulimit -n", options.folder));
  TIERCEL_ASSIGN_OR_RETURN(shared->files, ObjectFiles::open(options.folder, calls));
  TIERCEL_ASSIGN_OR_RETURN(
      shared->exchange,
      Mapping::open(
          {.kind = MappingKind::kAnonymous, .bytes = options.exchange_bytes, .touch = {}, .numa = {}}));
  shared->regions = {shared->exchange.bytes().first(options.exchange_bytes), options.arena};
  {
    const MutexLock lock(shared->mutex);
    shared->busy_with.resize(options.threads);
    shared->gone.resize(options.threads);
  }
  std::unique_ptr<PosixStore> store(new PosixStore(options, clock, shared));
  try {
    // Each has the shared part for as long as it lives: one that hangs may outlive the store.
    for (unsigned i = 0; i < options.threads; ++i)
      shared->threads.emplace_back([shared, i] { shared->run(i); });
  } catch (const std::system_error& failure) {
    return error(Code::kResourceExhausted,
                 fmt::format("posix store '{}': {} threads: {}; look at ulimit -u", options.folder,
                             options.threads, failure.code().message()));
  }
  return store;
}

PosixStore::PosixStore(const PosixStoreOptions& options, const Clock& clock, std::shared_ptr<Shared> shared)
    : options_(options), clock_(clock), shared_(std::move(shared)) {}

PosixStore::~PosixStore() {
  close(kLastWait);
  for (std::thread& thread : shared_->threads)
    if (thread.joinable()) thread.detach();  // it hangs; the shared part goes with it
}

std::byte* PosixStore::exchange() { return shared_->exchange.bytes().data(); }

Result<RemoteBatchId> PosixStore::submit(RemoteBatch batch) {
  const std::array<std::uint64_t, 2> regions{shared_->regions[0].size(), shared_->regions[1].size()};
  TIERCEL_RETURN_IF_ERROR(check_batch(batch, regions));
  if (const RemoteHealth health = this->health(); !health.ready)
    return error(Code::kUnavailable, health.why_not);
  const std::uint64_t id = last_id_ + 1;
  if (batch.items.empty() || batch.deadline <= clock_.now()) {  // nothing to be done, or no time for it
    events_.push_back({RemoteEvent::Kind::kDone, RemoteBatchId(id), true,
                       std::vector<RemoteResult>(batch.items.size(), {RemoteOutcome::kLate, 0})});
    last_id_ = id;
    return RemoteBatchId(id);
  }
  const auto fresh = std::make_shared<Batch>();
  fresh->left = batch.items.size();
  fresh->results.resize(fresh->left);
  fresh->done.resize(fresh->left);
  fresh->request = std::move(batch);
  auto rows = in_rows(fresh->request);
  {
    const MutexLock lock(shared_->mutex);
    if (shared_->batches.size() >= options_.batches_max)
      return error(Code::kResourceExhausted,
                   fmt::format("posix store '{}': {} batches are under way; wait for the end of one",
                               options_.folder, shared_->batches.size()));
    for (std::vector<std::size_t>& row : rows) shared_->jobs.push_back({fresh, std::move(row)});
    shared_->batches.emplace(id, fresh);
  }
  if (rows.size() == 1)
    shared_->work.notify_one();
  else
    shared_->work.notify_all();
  last_id_ = id;
  return RemoteBatchId(id);
}

// Whatever has not been done by now is `rest`; nobody touches its memory from here on.
void PosixStore::finish(std::uint64_t id, Batch& batch, RemoteOutcome rest) {
  {
    const MutexLock lock(batch.memory);
    batch.over = true;
  }
  const MutexLock lock(shared_->mutex);
  if (batch.left > 0)
    std::erase_if(shared_->jobs, [&](const Shared::Job& job) { return job.batch.get() == &batch; });
  for (std::size_t i = 0; i < batch.results.size(); ++i)
    if (!batch.done[i]) batch.results[i] = {rest, 0};
  batch.ended = true;
  events_.push_back({RemoteEvent::Kind::kDone, RemoteBatchId(id), true, std::move(batch.results)});
  shared_->batches.erase(id);
}

void PosixStore::cancel(RemoteBatchId batch) {
  std::shared_ptr<Batch> found;
  {
    const MutexLock lock(shared_->mutex);
    const auto at = shared_->batches.find(batch.value());
    if (at == shared_->batches.end()) return;
    found = at->second;
  }
  finish(batch.value(), *found, RemoteOutcome::kCancelled);
}

std::vector<RemoteEvent> PosixStore::drain() {
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Batch>>> over;
  const Time now = clock_.now();
  {
    const MutexLock lock(shared_->mutex);
    shared_->ended = false;
    eventfd_t before = 0;
    ::eventfd_read(shared_->end_event.get(), &before);
    for (const auto& [id, batch] : shared_->batches)
      if (batch->left == 0 || now >= batch->request.deadline) over.emplace_back(id, batch);
  }
  for (const auto& [id, batch] : over) finish(id, *batch, RemoteOutcome::kLate);
  return std::exchange(events_, {});
}

void PosixStore::wait(Duration at_most) {
  at_most = std::min(at_most, next_due() - clock_.now());
  if (at_most <= Duration(0)) return;
  pollfd asked{shared_->end_event.get(), POLLIN, 0};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  const timespec limit{static_cast<time_t>(seconds.count()), static_cast<long>((at_most - seconds).count())};
  ::ppoll(&asked, 1, &limit, nullptr);
}

int PosixStore::end_fd() const { return shared_->end_event.get(); }

Time PosixStore::next_due() const {
  if (!events_.empty()) return clock_.now();
  const MutexLock lock(shared_->mutex);
  if (shared_->ended) return clock_.now();
  Time due = Time::max();
  for (const auto& [id, batch] : shared_->batches) due = std::min(due, batch->request.deadline);
  return due;
}

RemoteHealth PosixStore::health() const {
  RemoteHealth health;
  const MutexLock lock(shared_->mutex);
  health.batches_in_flight = shared_->batches.size();
  health.ready = !closed_ && shared_->stuck() < options_.threads;
  if (closed_)
    health.why_not = fmt::format("posix store '{}': closed", options_.folder);
  else if (!health.ready)
    health.why_not = fmt::format(
        "posix store '{}': all {} threads wait for the file system, beyond their deadlines; "
        "is its server there?",
        options_.folder, options_.threads);
  return health;
}

void PosixStore::close(Duration at_most) {
  closed_ = true;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<Batch>>> over;
  {
    const MutexLock lock(shared_->mutex);
    for (const auto& one : shared_->batches) over.push_back(one);
    shared_->stopping = true;
  }
  shared_->work.notify_all();
  for (const auto& [id, batch] : over) finish(id, *batch, RemoteOutcome::kCancelled);
  const SteadyClock clock;
  const Time until = later(clock.now(), at_most);
  std::vector<bool> gone;
  {
    const MutexLock lock(shared_->mutex);
    for (Time now = clock.now(); !shared_->all_gone() && now < until; now = clock.now())
      shared_->gone_one.wait_for(shared_->mutex, std::min<Duration>(until - now, std::chrono::hours(24)));
    gone = shared_->gone;
  }
  for (std::size_t i = 0; i < shared_->threads.size(); ++i) {
    std::thread& thread = shared_->threads[i];
    // One that hangs in the kernel cannot be ended; it has no memory but its own.
    if (thread.joinable() && gone[i]) thread.join();
  }
}

}  // namespace tiercel
