// Pages through the whole remote tier: gathered into runs, copied through the exchange, by the executor that
// a node has; looked up as a node looks them up. Beside it the bare client with an object for each page.
#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/check.h"
#include "base/prng.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/remote_parts.h"
#include "model/storage_form.h"
#include "os/executor.h"
#include "os/mapping.h"
#include "remote/object_format.h"
#include "remote/remote_tier.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kMemory = 64U << 20;  // of pages
constexpr std::uint64_t kExchange = 64U << 20;
constexpr std::uint64_t kPageTokens = 16;
constexpr std::uint64_t kLookUpPages = 128;
// A look-up learns; so long it remembers, and as long the next one waits.
constexpr Duration kKnown = std::chrono::milliseconds(10);

std::shared_ptr<const StorageForm> form_of(std::uint64_t page_bytes) {
  ModelSpec spec;
  spec.model_type = "bench";
  spec.page_tokens = kPageTokens;
  spec.topology = {1, 1, 1};
  Group group;
  group.kind = FullKind{};
  group.layers = {0};
  group.components = {{"kv", {page_bytes / kPageTokens}, DType::kU8, page_bytes / kPageTokens}};
  spec.groups = {group};
  return std::make_shared<const StorageForm>(make_storage_form(std::move(spec)).value());
}

std::vector<Key> chain_of(std::uint64_t number, std::uint64_t pages) {
  std::vector<Key> keys;
  for (std::uint64_t page = 0; page < pages; ++page)
    keys.push_back(Key{{mix64(number * 4096 + page), number}});
  return keys;
}

// As a node's: the end of each copy wakes whoever waits for the store.
class WakingExecutor final : public Executor {
 public:
  WakingExecutor() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { TIERCEL_CHECK(fd_ >= 0); }
  ~WakingExecutor() override { ::close(fd_); }
  WakingExecutor(const WakingExecutor&) = delete;
  WakingExecutor& operator=(const WakingExecutor&) = delete;

  void submit(std::unique_ptr<Task> task) override {
    threads_.submit(std::make_unique<Told>(std::move(task), fd_));
  }
  // Until a copy or a batch has ended, or so long.
  void wait(int end_fd, Duration at_most) const {
    pollfd ends[] = {{fd_, POLLIN, 0}, {end_fd, POLLIN, 0}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(at_most, Duration(0)));
    ::poll(ends, 2, static_cast<int>(left.count()));
    eventfd_t told = 0;
    static_cast<void>(::eventfd_read(fd_, &told));
  }

 private:
  class Told final : public Task {
   public:
    Told(std::unique_ptr<Task> task, int fd) : task_(std::move(task)), fd_(fd) {}
    void run() override {
      task_->run();
      static_cast<void>(::eventfd_write(fd_, 1));
    }

   private:
    std::unique_ptr<Task> task_;
    int fd_;
  };
  int fd_;
  ThreadExecutor threads_{1};  // ends before the descriptor
};

// A tier over a store of its own, and engine memory for its pages.
class TierWorld final {
 public:
  static Result<std::unique_ptr<TierWorld>> open(BenchRun& run, const std::string& url,
                                                 std::uint64_t page_bytes, Duration known_for,
                                                 bool copies = true) {
    std::unique_ptr<TierWorld> world(new TierWorld);
    const std::uint64_t bytes = kMemory + (2U << 20);
    TIERCEL_ASSIGN_OR_RETURN(
        world->memory_,
        Mapping::open({.kind = MappingKind::kShared, .bytes = bytes, .touch = {}, .numa = {}}));
    const ArenaGrant arena{world->memory_.fd(), 0, bytes, world->memory_.view().data()};
    TIERCEL_ASSIGN_OR_RETURN(world->store_,
                             BenchStore::open(url, run, kExchange, copies ? ArenaGrant{} : arena));
    RemoteTierOptions options;
    options.known_for = options.absent_for = known_for;
    options.batch_deadline = std::chrono::seconds(30);
    Digest seed{};
    store_le(seed.data(), static_cast<std::uint64_t>(now_nanoseconds()));
    TIERCEL_ASSIGN_OR_RETURN(world->tier_, RemoteTier::open(options, world->store_->store(),
                                                            world->store_->clock(), world->executor_, seed));
    const auto form = form_of(page_bytes);
    world->record_ = form->classes[0].record_bytes + 64;
    world->markers_ = {remote::form_marker_name(form->fingerprint),
                       remote::namespace_marker_name(seed, form->fingerprint)};
    world->space_ = world->tier_->open_space({seed, form, {world->record_}});
    return world;
  }
  // Its markers are of no use to anybody; what cannot be removed stays.
  ~TierWorld() {
    if (!tier_) return;
    static_cast<void>(store_->remove(markers_));
    tier_->close(std::chrono::seconds(2));
  }
  TierWorld(const TierWorld&) = delete;
  TierWorld& operator=(const TierWorld&) = delete;

  std::string pages() const { return store_->pages(); }

  // All pages of a chain are written.
  Status write(const std::vector<Key>& keys) {
    std::size_t next = 0, ended = 0;
    while (ended < keys.size()) {
      for (; next < keys.size(); ++next) {
        RemoteEntry made = entry(keys[next], next);
        if (next != 0) made.parent = keys[next - 1];
        made.length = next + 1;
        const RemoteVerdict verdict = tier_->append(std::move(made)).verdict;
        if (verdict == RemoteVerdict::kRateLimited) break;
        if (verdict != RemoteVerdict::kAccepted)
          return {Code::kUnavailable, fmt::format("the tier: a page is {}", remote_verdict_name(verdict))};
      }
      if (next == keys.size()) tier_->flush_soon();
      if (Status status = go_on(ended); !status.ok()) return status;
    }
    return {};
  }
  Status read(const std::vector<Key>& keys) {
    for (std::size_t page = 0; page < keys.size(); ++page)
      if (!tier_->read(entry(keys[page], page))) return {Code::kUnavailable, "the tier knows a page no more"};
    for (std::size_t ended = 0; ended < keys.size();)
      if (Status status = go_on(ended); !status.ok()) return status;
    return {};
  }
  Status look_up(const std::vector<Key>& keys) {
    if (!tier_->look_up({space_, 0, keys, {}}))
      return {Code::kUnavailable, "the tier knows the pages already"};
    for (std::size_t ended = 0; ended == 0;)
      if (Status status = go_on(ended); !status.ok()) return status;
    return {};
  }
  // Their objects are gone.
  Status drop(const std::vector<Key>& keys) {
    if (keys.empty()) return {};
    const std::uint64_t before = tier_->stats().removed_objects;
    for (const Key& key : keys) tier_->drop({space_, key, ClassId(0)});
    std::size_t none = 0;
    const double until = now_nanoseconds() + 1e9;
    while (tier_->stats().removed_objects == before && now_nanoseconds() < until)
      if (Status status = go_on(none); !status.ok()) return status;
    return {};
  }

 private:
  TierWorld() = default;
  RemoteEntry entry(const Key& key, std::size_t page) const {
    RemoteEntry made;
    made.name = {space_, key, ClassId(0)};
    std::byte* place = const_cast<std::byte*>(memory_.view().data()) + page * record_;
    TIERCEL_CHECK((page + 1) * record_ <= memory_.size_bytes());
    made.shards = {{{place, record_}}};
    return made;
  }
  Status go_on(std::size_t& ended) {
    const std::size_t did = tier_->poll();
    const std::vector<RemoteTierEvent> events = tier_->drain_events();
    for (const RemoteTierEvent& event : events) {
      if (!event.status.ok()) return event.status;
      ++ended;
    }
    if (tier_->down()) return {Code::kUnavailable, "the tier is down: " + tier_->health().why_not};
    if (did == 0 && events.empty())
      executor_.wait(tier_->end_fd(), std::min<Duration>(tier_->next_due() - store_->clock().now(),
                                                         std::chrono::milliseconds(100)));
    return {};
  }

  std::unique_ptr<BenchStore> store_;
  Mapping memory_;
  WakingExecutor executor_;  // before the tier: its copies end first
  std::unique_ptr<RemoteTier> tier_;
  RemoteSpaceId space_;
  std::vector<std::string> markers_;
  std::uint64_t record_ = 0;
};

class TierBench final {
 public:
  TierBench(BenchRun& run, std::string url, BareClient* bare)
      : run_(run), url_(std::move(url)), bare_(bare) {}

  // `copies`: through the exchange; else straight between pages and store, where it reaches them.
  Status lines(std::uint64_t page_bytes, bool copies) {
    auto world = TierWorld::open(run_, url_, page_bytes, std::chrono::hours(1), copies);
    if (!world) return world.error();
    world_ = world->get();
    copies_ = copies;
    const std::uint64_t pages = std::min<std::uint64_t>(64, kMemory / page_bytes);
    const std::vector<Key> stored = chain_of(1, pages);
    const std::vector<std::string> names = numbered(fmt::format("bench.tier.{}", page_bytes), pages);
    note(world_->write(stored));
    if (bare_ != nullptr) note_bare(bare_->perform({RemoteVerb::kPut, names, page_bytes, pages}));
    if (!status_.ok()) return status_;
    std::vector<Subject> reads = {{"tier", [&](Samples&) { note(world_->read(stored)); }, {}}};
    if (bare_ != nullptr)
      reads.push_back({"bare",
                       [&](Samples&) {
                         note_bare(bare_->perform({RemoteVerb::kGet, names, page_bytes, pages}));
                       },
                       {},
                       [&] { return bare_took_; }});
    add("read", page_bytes, pages, reads);
    if (bare_ != nullptr) note(bare_->remove(names));
    note(world_->drop(stored));

    std::vector<Key> ours;
    std::vector<std::string> theirs;
    std::vector<Subject> writes = {{"tier", [&](Samples&) { note(world_->write(ours)); },
                                    [&] {
                                      note(world_->drop(ours));
                                      ours = chain_of(++chains_, pages);
                                    }}};
    if (bare_ != nullptr)
      writes.push_back({"bare",
                        [&](Samples&) {
                          note_bare(bare_->perform({RemoteVerb::kPut, theirs, page_bytes, pages}));
                        },
                        [&] {
                          if (!theirs.empty()) note(bare_->remove(theirs));
                          theirs = numbered(fmt::format("bench.tier.{}.{}", page_bytes, ++chains_), pages);
                        },
                        [&] { return bare_took_; }});
    add("write", page_bytes, pages, writes);
    note(world_->drop(ours));
    if (bare_ != nullptr && !theirs.empty()) note(bare_->remove(theirs));
    return status_;
  }

  // 128 pages that are there and of which nothing is remembered, run by run.
  Status look_up_line() {
    constexpr std::uint64_t kPage = 4U << 10;
    auto world = TierWorld::open(run_, url_, kPage, kKnown);
    if (!world) return world.error();
    world_ = world->get();
    const std::vector<Key> stored = chain_of(1, kLookUpPages);
    const std::vector<std::string> names = numbered("bench.tier.page", kLookUpPages);
    note(world_->write(stored));
    if (bare_ != nullptr) note_bare(bare_->perform({RemoteVerb::kPut, names, kPage, 64}));
    if (!status_.ok()) return status_;
    std::vector<Subject> subjects = {{"tier", [&](Samples&) { note(world_->look_up(stored)); },
                                      [&] { std::this_thread::sleep_for(kKnown + kKnown / 10); }}};
    if (bare_ != nullptr)
      subjects.push_back({"bare",
                          [&](Samples&) {
                            note_bare(bare_->perform({RemoteVerb::kExists, names, 0, kLookUpPages}));
                          },
                          {},
                          [&] { return bare_took_; }});
    const std::string name = fmt::format("look up {} pages, through the tier", kLookUpPages);
    const Comparison result = run_.compare(name, 1, subjects);
    if (bare_ != nullptr) note(bare_->remove(names));
    std::this_thread::sleep_for(2 * kKnown);
    note(world_->look_up(stored));  // what is dropped must be known
    note(world_->drop(stored));
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, scheme_of(url_) + " " + name, 0, subjects.size() - 1,
                             BenchUnit::kNanoseconds, "ns/look-up");
    finish(line, "in runs of 16");
    return {};
  }

 private:
  void note(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void note_bare(const Result<std::vector<double>>& times) {
    if (!times) return note(times.error());
    bare_took_ = 0;
    for (const double time : *times) bare_took_ += time;
  }
  void add(std::string_view verb, std::uint64_t page_bytes, std::uint64_t pages,
           const std::vector<Subject>& subjects) {
    const std::string name = fmt::format("{} {} pages of {}, through the tier{}", verb, pages,
                                         format_size(page_bytes), copies_ ? "" : ", without a copy");
    if (!status_.ok()) return;
    const Comparison result = run_.compare(name, 1, subjects);
    if (!status_.ok()) return;
    BenchLine line = line_of(result, scheme_of(url_) + " " + name, 0, subjects.size() - 1,
                             BenchUnit::kMegabytes, "MB/s", pages * page_bytes);
    if (bare_ != nullptr && scheme_of(url_) == "mooncake" && page_bytes >= (64U << 10))
      line.target = "ratio >= 0.90";
    finish(line, copies_ ? "in runs, one copy through the exchange" : "in runs");
  }
  void finish(BenchLine& line, std::string_view how) {
    if (bare_ == nullptr) line.limit = line.ratio = 0;
    if (bare_ != nullptr) line.limit_name = bare_->name() + ", an object a page";
    line.page_kind = world_->pages();
    line.note = how;
    run_.add(std::move(line));
  }

  BenchRun& run_;
  std::string url_;
  BareClient* bare_;
  TierWorld* world_ = nullptr;
  bool copies_ = true;
  std::uint64_t chains_ = 1;
  double bare_took_ = 0;
  Status status_;
};

}  // namespace

Status remote_tier_lines(BenchRun& run, const std::string& url, BareClient* bare) {
  TierBench bench(run, url, bare);
  for (const std::uint64_t page_bytes : {4U << 10, 64U << 10, 1U << 20, 4U << 20}) {
    if (run.quick() && page_bytes > (64U << 10)) break;
    if (Status status = bench.lines(page_bytes, true); !status.ok()) return status;
    if (page_bytes < RemoteTierOptions{}.direct_bytes || scheme_of(url) == "posix") continue;
    if (Status status = bench.lines(page_bytes, false); !status.ok()) return status;
  }
  return bench.look_up_line();
}

}  // namespace tiercel
