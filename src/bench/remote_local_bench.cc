// The local tier beside Mooncake's dummy client on the same machine: the same pages, looked for, got and put.
#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/prng.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/index_parts.h"
#include "bench/record_parts.h"
#include "bench/remote_parts.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kFootprint = 128U << 20;
constexpr std::uint64_t kBytesAnIteration = 16U << 20;

// What a process beside the node does for a page (look for it, copy it verified), and the node to store one.
class LocalBench final {
 public:
  LocalBench(BenchRun& run, FullIndex& index, BareClient& dummy)
      : run_(run), index_(index), view_(*IndexView::attach(index.index().image())), dummy_(dummy) {}

  Status exists_line(std::uint64_t pages) {
    const std::size_t rounds = run_.size(16, 2);
    const RemoteWork stored{RemoteVerb::kPut, numbered("bench.local.page", pages), 4096,
                            std::min<std::size_t>(pages, 64)};
    took(dummy_.perform(stored));
    RemoteWork work{RemoteVerb::kExists, {}, 0, pages};
    for (std::size_t i = 0; i < rounds; ++i)
      work.names.insert(work.names.end(), stored.names.begin(), stored.names.end());
    std::vector<ChainKeys> asked(rounds);
    std::uint64_t found = 0, wanted = 0;
    const Subject subjects[] = {
        {"local",
         [&](Samples& samples) {
           std::array<FoundPage, kChain> there;
           for (const ChainKeys& keys : asked) {
             const double start = now_nanoseconds();
             view_.read_chain(kSpace, 0, std::span(keys).first(pages), std::span(there).first(pages));
             samples.add(now_nanoseconds() - start);
             for (std::uint64_t i = 0; i < pages; ++i) found += there[i].page != kNoPage ? 1 : 0;
             wanted += pages;
           }
         },
         [&] {
           for (ChainKeys& keys : asked) fill(keys, any_chain());
         }},
        {"dummy", [&](Samples&) { took(dummy_.perform(work)); }, {}, [this] { return took_; }}};
    const std::string name = fmt::format("local: existence of {} page{}", pages, pages == 1 ? "" : "s");
    const Comparison result = run_.compare(name, rounds, subjects);
    forget(stored.names);
    if (status_.ok() && found != wanted)
      status_ = {Code::kInternal, "local: pages that are there were not found"};
    if (!status_.ok()) return status_;
    BenchLine line = line_of(result, name, 0, 0, BenchUnit::kNanoseconds, "ns");
    if (pages == kChain) line.target = "50 x";
    finish(std::move(line), result, BenchUnit::kNanoseconds);
    return {};
  }

  Status record_lines(std::uint64_t length) {
    const std::uint64_t footprint = run_.size(kFootprint, 4U << 20);
    auto world = CopyWorld::create(length, footprint);
    if (!world) return world.error();
    world_ = world->get();
    const std::size_t slots =
        std::min<std::size_t>(world_->slots(), 1024);  // as many objects on the other side
    names_ = numbered(fmt::format("bench.local.{}", length), slots);
    took(dummy_.perform({RemoteVerb::kPut, names_, length, 1}));
    length_ = length;
    rounds_ = std::clamp<std::size_t>(kBytesAnIteration / length, 4, run_.size(64, 4));
    line(CopyKind::kLoad);
    forget(names_);
    line(CopyKind::kStore);
    return status_;
  }

 private:
  void line(CopyKind kind) {
    const bool get = kind == CopyKind::kLoad;
    std::vector<std::uint64_t> slots(rounds_);
    std::vector<ChainKeys> asked(rounds_);
    RemoteWork work{get ? RemoteVerb::kGet : RemoteVerb::kPut, {}, length_, 1};
    RecordCopy copy = world_->copy(kind, true);
    const Subject subjects[] = {
        {"local",
         [&](Samples& samples) {
           for (std::size_t i = 0; i < rounds_; ++i) {
             const double start = now_nanoseconds();
             if (get) find_one(asked[i]);
             world_->aim(copy, slots[i]);
             world_->carry_out_now(copy);
             if (!get) note_one();
             samples.add(now_nanoseconds() - start);
           }
         },
         [&] {
           for (std::uint64_t& slot : slots) slot = prng_.below(world_->slots());
           for (ChainKeys& keys : asked) fill(keys, any_chain());
         }},
        {"dummy", [&](Samples&) { took(dummy_.perform(work)); },
         [&] {
           if (!get)
             forget(std::exchange(work.names, numbered(fmt::format("bench.local.put.{}", ++puts_), rounds_)));
           if (!get) return;
           work.names.clear();
           for (std::size_t i = 0; i < rounds_; ++i) work.names.push_back(names_[prng_.below(names_.size())]);
         },
         [this] { return took_; }}};
    const std::string name = fmt::format("local: {} {}", get ? "get" : "put", format_size(length_));
    const Comparison result = run_.compare(name, rounds_, subjects);
    if (!get) forget(work.names);
    if (!status_.ok()) return;
    BenchLine line = line_of(result, name, 0, 0, BenchUnit::kMegabytes, "MB/s", rounds_ * length_);
    line.target = length_ <= 4096 ? "20 x" : "3 x";
    line.note = get ? "looked up, every byte verified" : "with checksums; evicted and stored in the index";
    finish(std::move(line), result, BenchUnit::kMegabytes);
  }
  void finish(BenchLine line, const Comparison& result, BenchUnit unit) {
    line.limit = line.ratio = 0;
    add_peer(line, result, 0, 1, unit, "Mooncake's dummy client");
    line.page_kind = world_ != nullptr ? world_->page_kind() : index_.page_kind();
    line.note += fmt::format("{}the dummy client's pages {}", line.note.empty() ? "" : "; ", dummy_.pages());
    run_.add(std::move(line));
  }

  void find_one(const ChainKeys& keys) {
    std::array<FoundPage, 1> there;
    view_.read_chain(kSpace, 0, std::span(keys).first(1), there);
    keep(there);
  }
  // A page's share of evicting and storing chains of 128.
  void note_one() {
    index_.evict();
    if (++noted_ % kChain == 0) index_.store(next_chain_++);
  }
  // One that no put has evicted: the latest.
  std::uint64_t any_chain() { return prng_.between(index_.chains() / 2, index_.chains() - 1); }
  void note(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  void took(const Result<std::vector<double>>& times) {
    if (!times) return note(times.error());
    took_ = std::accumulate(times->begin(), times->end(), 0.0);
  }
  void forget(const std::vector<std::string>& names) {
    if (!names.empty()) note(dummy_.remove(names));
  }

  BenchRun& run_;
  FullIndex& index_;
  const IndexView view_;
  BareClient& dummy_;
  CopyWorld* world_ = nullptr;
  Prng prng_{11};
  std::vector<std::string> names_;
  std::uint64_t length_ = 0, puts_ = 0, noted_ = 0;
  std::uint64_t next_chain_ = 1ULL << 40;
  std::size_t rounds_ = 1;
  double took_ = 0;
  Status status_;
};

}  // namespace

Status remote_local_lines(BenchRun& run, const std::string& peer) {
  auto dummy = open_bare("mooncake://" + peer + "?client_server_address=" + peer, kFootprint, run);
  if (!dummy) return dummy.error();
  const auto index = FullIndex::create(run.size(1'000'000 / kChain * kChain, 64 * kChain), 1, run);
  if (!index) return index.error();
  LocalBench bench(run, **index, **dummy);
  for (const std::uint64_t pages : {std::uint64_t{1}, kChain})
    if (Status status = bench.exists_line(pages); !status.ok()) return status;
  for (const std::uint64_t length : {4U << 10, 64U << 10, 1U << 20, 4U << 20}) {
    if (run.quick() && length > (64U << 10)) break;
    if (Status status = bench.record_lines(length); !status.ok()) return status;
  }
  return {};
}

}  // namespace tiercel
