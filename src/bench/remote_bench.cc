// A remote store by the node's path, beside its bare client and a raw socket with the same bytes.
#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/remote_parts.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kExchange = 64U << 20;
constexpr std::uint64_t kIteration = 8U << 20;  // bytes moved in one, where batches are small
constexpr std::size_t kRoundsMax = 16;
constexpr std::size_t kPoolMax = 1024;  // objects
constexpr std::size_t kLookedFor = 128;
constexpr std::size_t kAtOnce = 4;  // batches: as many reads as the tier has under way

class StoreBench final {
 public:
  StoreBench(BenchRun& run, std::string url, std::unique_ptr<BenchStore> store, BareClient* bare,
             std::unique_ptr<RawSocket> raw)
      : run_(run), url_(std::move(url)), store_(std::move(store)), bare_(bare), raw_(std::move(raw)) {}

  Status lines() {
    for (const std::uint64_t length : {4U << 10, 64U << 10, 1U << 20, 4U << 20}) {
      if (run_.quick() && length > (64U << 10)) break;
      if (Status status = fill_pool(length); !status.ok()) return status;
      for (const RemoteVerb verb : {RemoteVerb::kGet, RemoteVerb::kPut}) {
        std::size_t before = 0;
        for (const std::size_t wanted : {1U, 16U, 64U}) {
          const std::size_t batch = std::min<std::size_t>(wanted, kExchange / length);
          if (std::exchange(before, batch) == batch) continue;
          for (const std::size_t at_once : {std::size_t{1}, kAtOnce}) {
            if (at_once > 1 && at_once * batch * length > kExchange) break;
            if (Status status = line(verb, length, batch, at_once); !status.ok()) return status;
          }
        }
      }
      if (Status status = empty_pool(); !status.ok()) return status;
    }
    for (const std::uint64_t piece : {64U << 10, 256U << 10, 1U << 20, 2U << 20, 4U << 20}) {
      if (run_.quick() && piece != (4U << 20)) continue;
      if (Status status = pieces_line(piece); !status.ok()) return status;
    }
    return look_up_line();
  }

 private:
  // What gets read: as much as the exchange takes, by the names that both sides use.
  Status fill_pool(std::uint64_t length) {
    const std::size_t count = std::min<std::size_t>(kPoolMax, run_.size(kExchange, 4U << 20) / length);
    pool_ = numbered(fmt::format("bench.pool.{}", length), std::max<std::size_t>(count, 64));
    if (length * pool_.size() > kExchange) pool_.resize(kExchange / length);
    run_.progress(fmt::format("storing objects of {}", format_size(length)));
    Samples none;
    const RemoteWork work{RemoteVerb::kPut, pool_, length, std::min<std::size_t>(16, pool_.size())};
    if (Status status = store_->perform(work, none); !status.ok()) return status;
    next_ = 0;
    // Files of its own: it does not know how ours lie.
    if (bare_ == nullptr || scheme_of(url_) == "mooncake") return {};
    const auto stored = bare_->perform(work);
    return stored ? Status{} : stored.error();
  }
  Status empty_pool() {
    if (bare_ != nullptr && scheme_of(url_) != "mooncake")
      if (Status status = bare_->remove(pool_); !status.ok()) return status;
    return store_->remove(pool_);
  }

  // The next names of the pool, or fresh ones.
  std::vector<std::string> names(RemoteVerb verb, std::string_view who, std::size_t count) {
    if (verb == RemoteVerb::kPut) return numbered(fmt::format("bench.{}.{}", who, ++puts_), count);
    std::vector<std::string> chosen;
    for (std::size_t i = 0; i < count; ++i) chosen.push_back(pool_[(next_ + i) % pool_.size()]);
    next_ = (next_ + count) % pool_.size();
    return chosen;
  }
  void note(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // Puts before this iteration's are taken away, by whoever made them.
  Subject ours(const RemoteWork& work) {
    return {"ours", [this](Samples& samples) { note(store_->perform(our_work_, samples)); },
            [this, work, count = work.names.size()] {
              if (work.verb == RemoteVerb::kPut && !our_work_.names.empty())
                note(store_->remove(our_work_.names));
              our_work_ = work;
              our_work_.names = names(work.verb, "ours", count);
            }};
  }
  Subject bare(const RemoteWork& work) {
    return {"bare",
            [this](Samples& samples) {
              bare_took_ = 0;
              const auto times = bare_->perform(bare_work_);
              if (!times) return note(times.error());
              for (const double time : *times) {
                bare_took_ += time;
                samples.add(time);
              }
            },
            [this, work, count = work.names.size()] {
              if (work.verb == RemoteVerb::kPut && !bare_work_.names.empty())
                note(bare_->remove(bare_work_.names));
              bare_work_ = work;
              bare_work_.names = names(work.verb, "bare", count);
            },
            [this] { return bare_took_; }};
  }
  Subject raw(const RemoteWork& work) {
    return {"socket",
            [this, work](Samples&) {
              for (std::size_t first = 0; first < work.names.size(); first += work.batch) {
                const std::uint64_t bytes = work.length * work.batch;
                if (!(work.verb == RemoteVerb::kGet ? raw_->get(bytes) : raw_->put(bytes)))
                  note({Code::kUnavailable, "the connection over 127.0.0.1 broke"});
              }
            },
            {}};
  }

  Status line(RemoteVerb verb, std::uint64_t length, std::size_t batch, std::size_t at_once) {
    const std::size_t rounds =
        std::clamp<std::size_t>(kIteration / (length * batch), at_once, run_.size(kRoundsMax, 2) * at_once);
    const RemoteWork work{verb, std::vector<std::string>(rounds * batch), length, batch, at_once};
    our_work_ = bare_work_ = {};
    std::vector<Subject> subjects = {ours(work), raw(work)};
    if (bare_ != nullptr) subjects.push_back(bare(work));
    const std::string name =
        fmt::format("{} {} x {}{}", verb == RemoteVerb::kGet ? "get" : "put", batch, format_size(length),
                    at_once > 1 ? fmt::format(", {} at once", at_once) : "");
    const Comparison result = run_.compare(name, rounds, subjects);
    for (RemoteWork* left : {&our_work_, &bare_work_})
      if (verb == RemoteVerb::kPut && !left->names.empty())
        note(left == &our_work_ ? store_->remove(left->names) : bare_->remove(left->names));
    if (!status_.ok()) return status_;
    const std::uint64_t bytes = rounds * batch * length;
    const std::size_t limit = bare_ != nullptr ? 2 : 1;
    BenchLine line =
        line_of(result, scheme_of(url_) + " " + name, 0, limit, BenchUnit::kMegabytes, "MB/s", bytes);
    line.limit_name = bare_ != nullptr ? bare_->name() : "socket over 127.0.0.1";
    if (bare_ != nullptr) {
      add_peer(line, result, 0, 1, BenchUnit::kMegabytes, "socket over 127.0.0.1");
      // Throughput is what the tier gets, which has several under way; one at a time shows what a batch
      // takes.
      const bool largest = at_once > 1 || kAtOnce * batch * length > kExchange;
      if (scheme_of(url_) == "mooncake" && length >= (64U << 10) && largest) line.target = "ratio >= 0.90";
      line.note = fmt::format("{}: p50 {:.0f} us, pages {}", bare_->name(),
                              result.samples(2).quantile(0.5) / 1e3, bare_->pages());
    }
    line.page_kind = store_->pages();
    run_.add(std::move(line));
    return {};
  }

  // What it costs that an object lies in pieces, as it would without a copy into one.
  Status pieces_line(std::uint64_t piece) {
    constexpr std::uint64_t kObject = 8U << 20;
    const RemoteWork whole{RemoteVerb::kGet, numbered("bench.pieces", run_.size(4, 1)), kObject, 4};
    RemoteWork parted = whole;
    parted.pieces = kObject / piece;
    Samples none;
    RemoteWork stored = whole;
    stored.verb = RemoteVerb::kPut;
    if (Status status = store_->perform(stored, none); !status.ok()) return status;
    const std::vector<Subject> subjects = {
        {"parted", [&](Samples& samples) { note(store_->perform(parted, samples)); }, {}},
        {"whole", [&](Samples& samples) { note(store_->perform(whole, samples)); }, {}}};
    const std::string name = fmt::format("get 8 MiB in pieces of {}", format_size(piece));
    const Comparison result = run_.compare(name, 1, subjects);
    note(store_->remove(whole.names));
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, scheme_of(url_) + " " + name, 0, 1, BenchUnit::kMegabytes, "MB/s",
                             whole.names.size() * kObject);
    line.limit_name = "in one piece";
    line.page_kind = store_->pages();
    run_.add(std::move(line));
    return {};
  }

  // Names of 128 pages that are there.
  Status look_up_line() {
    const RemoteWork store{RemoteVerb::kPut, numbered("bench.page", kLookedFor), 4096, 64};
    Samples none;
    if (Status status = store_->perform(store, none); !status.ok()) return status;
    const bool own_files = bare_ != nullptr && scheme_of(url_) != "mooncake";
    if (own_files)
      if (auto stored = bare_->perform(store); !stored) return stored.error();
    RemoteWork work{RemoteVerb::kExists, {}, 0, kLookedFor};
    const std::size_t rounds = run_.size(kRoundsMax, 2);
    for (std::size_t i = 0; i < rounds; ++i)
      work.names.insert(work.names.end(), store.names.begin(), store.names.end());
    std::vector<Subject> subjects = {
        {"ours", [&](Samples& samples) { note(store_->perform(work, samples)); }, {}}};
    if (bare_ != nullptr)
      subjects.push_back({"bare",
                          [&](Samples&) {
                            bare_took_ = 0;
                            const auto times = bare_->perform(work);
                            if (!times) return note(times.error());
                            for (const double time : *times) bare_took_ += time;
                          },
                          {},
                          [&] { return bare_took_; }});
    const std::string name = fmt::format("exists {} names", kLookedFor);
    const Comparison result = run_.compare(name, rounds, subjects);
    if (own_files) note(bare_->remove(store.names));
    note(store_->remove(store.names));
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, scheme_of(url_) + " " + name, 0, subjects.size() - 1,
                             BenchUnit::kNanoseconds, "ns/look-up");
    if (bare_ == nullptr) line.limit = line.ratio = 0;
    if (bare_ != nullptr) line.limit_name = bare_->name();
    run_.add(std::move(line));
    return {};
  }

  BenchRun& run_;
  std::string url_;
  std::unique_ptr<BenchStore> store_;
  BareClient* bare_;
  std::unique_ptr<RawSocket> raw_;
  std::vector<std::string> pool_;
  std::size_t next_ = 0;
  std::uint64_t puts_ = 0;
  RemoteWork our_work_, bare_work_;  // of this iteration
  double bare_took_ = 0;
  Status status_;
};

Status store_lines(BenchRun& run, const std::string& url) {
  auto bare = open_bare(url, kExchange, run);
  if (!bare) return bare.error();
  {
    auto raw = RawSocket::open(kExchange);
    if (!raw) return raw.error();
    auto store = BenchStore::open(url, run, kExchange);
    if (!store) return store.error();
    StoreBench bench(run, url, std::move(*store), bare->get(), std::move(*raw));
    if (Status status = bench.lines(); !status.ok()) return status;
  }
  return remote_tier_lines(run, url, bare->get());
}

// A folder of this machine, where there is no store to be measured.
Status folder_lines(BenchRun& run, const std::string& why) {
  auto folder = BenchFolder::create(run.folder());
  if (!folder) return folder.error();
  if (Status status = store_lines(run, "posix:" + folder->file("store")); !status.ok()) return status;
  run.remark(why);
  return {};
}

}  // namespace

Status remote_bench(BenchRun& run) {
  if (!run.remote().empty()) {
    if (Status status = store_lines(run, run.remote()); !status.ok()) return status;
    return remote_end_lines(run, run.remote());
  }
  run.progress("starting a Mooncake");
  auto cluster = start_mooncake(2ULL << 30);
  if (!cluster) return folder_lines(run, fmt::format("Mooncake was left out: {}", cluster.error().message));
  if (Status status = store_lines(run, cluster->url); !status.ok()) return status;
  if (Status status = remote_local_lines(run, cluster->peer); !status.ok()) return status;
  cluster->script.reset();
  return remote_end_lines(run, "");
}

}  // namespace tiercel
