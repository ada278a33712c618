// Batches of records between engine memory and the arena, by the very function that the node's copies run,
// against memcpy between the same places with as many threads.
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "base/prng.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "bench/record_parts.h"
#include "os/executor.h"

namespace tiercel {
namespace {

// A part of a batch.
class PartTask final : public Task {
 public:
  PartTask(std::function<void()> work, std::latch& done) : work_(std::move(work)), done_(done) {}
  void run() override {
    work_();
    done_.count_down();
  }

 private:
  std::function<void()> work_;
  std::latch& done_;
};

class CopyBench final {
 public:
  CopyBench(BenchRun& run, CopyKind kind, CopyWorld& world, std::uint64_t record_bytes)
      : run_(run), kind_(kind), world_(world), record_bytes_(record_bytes) {
    batch_ = std::min(world.slots(), std::max<std::uint64_t>(run.size(32 << 20, 0) / record_bytes, 2));
    order_.resize(world.slots());
    std::iota(order_.begin(), order_.end(), std::uint64_t{0});
    Prng prng(2);
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[prng.below(i)]);
  }

  void measure(unsigned threads) {
    // A node makes each copy just before it is carried out: it is near, wherever its record lies.
    const auto by_copy = [this](bool verify) {
      return [this, verify]() -> Step {
        return [this, copy = world_.copy(kind_, verify)](std::uint64_t slot) mutable {
          world_.aim(copy, slot);
          world_.carry_out_now(copy);
        };
      };
    };
    const auto by_memcpy = [this]() -> Step {
      return [this](std::uint64_t slot) { world_.memcpy_now(kind_, slot); };
    };
    std::vector<Subject> subjects = {subject("memcpy", threads, by_memcpy),
                                     subject("verified", threads, by_copy(true))};
    if (kind_ == CopyKind::kLoad) subjects.push_back(subject("unverified", threads, by_copy(false)));
    const Comparison result =
        run_.compare(fmt::format("{}, {} threads", format_size(record_bytes_), threads), batch_, subjects,
                     threads == 1 ? BenchClock::kThread : BenchClock::kWall);
    for (std::size_t i = 1; i < subjects.size(); ++i) add_line(result, i, threads);
  }

 private:
  using Step = std::function<void(std::uint64_t slot)>;
  using MakeStep = std::function<Step()>;  // for each part of a batch its own

  // One iteration: the next `batch_` records in the order, each thread its share.
  Subject subject(std::string name, unsigned threads, MakeStep make) {
    if (threads > 1 && !executor_) executor_ = std::make_unique<ThreadExecutor>(threads);
    return {
        std::move(name),
        [this, threads, make = std::move(make)](Samples& samples) {
          if (threads == 1) return part(0, batch_, make(), &samples);
          std::latch done(static_cast<std::ptrdiff_t>(threads));
          for (unsigned t = 0; t < threads; ++t)
            executor_->submit(std::make_unique<PartTask>(
                [&, t] { part(t * batch_ / threads, (t + 1) * batch_ / threads, make(), nullptr); }, done));
          done.wait();
        },
        [this] { first_ += batch_; }};
  }
  void part(std::uint64_t from, std::uint64_t to, const Step& step, Samples* samples) const {
    for (std::uint64_t i = from; i < to; ++i) {
      const double start = samples != nullptr ? now_nanoseconds() : 0;
      step(order_[(first_ + i) % order_.size()]);
      if (samples != nullptr) samples->add(now_nanoseconds() - start);
    }
  }
  void add_line(const Comparison& result, std::size_t subject, unsigned threads) {
    const bool put = kind_ == CopyKind::kStore;
    const bool verified = subject == 1;
    BenchLine line = line_of(result,
                             fmt::format("{} {}, {} thread{}", format_size(record_bytes_),
                                         put        ? "checksummed"
                                         : verified ? "verified"
                                                    : "unverified",
                                         threads, threads == 1 ? "" : "s"),
                             subject, 0, BenchUnit::kGigabytes, "GB/s", batch_ * record_bytes_);
    line.limit_name = fmt::format("memcpy, {} thread{}", threads, threads == 1 ? "" : "s");
    line.page_kind = world_.page_kind();
    const double target = !verified ? 0.95 : threads == 1 ? 0.80 : 0.90;
    line.target = fmt::format("ratio >= {:.2f}", target);
    run_.add(std::move(line));
  }

  BenchRun& run_;
  CopyKind kind_;
  CopyWorld& world_;
  std::uint64_t record_bytes_;
  std::uint64_t batch_ = 0;
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> order_;
  std::unique_ptr<ThreadExecutor> executor_;
};

Status record_bench(BenchRun& run, CopyKind kind) {
  const std::uint64_t footprint = run.size(256 << 20, 1 << 20);
  for (const std::uint64_t kib : {36U, 128U, 512U, 1024U, 4096U, 8192U}) {
    if (run.quick() && kib > 128) break;
    auto world = CopyWorld::create(kib << 10, footprint);
    if (!world) return world.error();
    CopyBench bench(run, kind, **world, kib << 10);
    bench.measure(1);
    bench.measure(2);
  }
  return {};
}

}  // namespace

Status get_bench(BenchRun& run) { return record_bench(run, CopyKind::kLoad); }
Status put_bench(BenchRun& run) { return record_bench(run, CopyKind::kStore); }

}  // namespace tiercel
