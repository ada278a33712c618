// Pages between pools of different layouts. First fragment by fragment: random slots of one pool and a row of
// the other, against memcpy of as many bytes in one piece; then, for models that are named, whole resume
// points between pairs of layouts, by the very copies that engines start.
#include <array>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "base/prng.h"
#include "base/sizes.h"
#include "bench/benches.h"
#include "model/copy_plan.h"
#include "model/pool_layout.h"
#include "model/storage_form.h"
#include "os/executor.h"
#include "os/mapping.h"
#include "transfer/fragment_copy.h"
#include "transfer/pool_copy.h"

namespace tiercel {
namespace {

constexpr unsigned kThreads = 2;

Result<Mapping> filled_mapping(std::uint64_t bytes) {
  MappingOptions options;
  options.bytes = bytes;
  Result<Mapping> memory = Mapping::open(options);
  if (!memory) return memory;
  Prng prng(1);
  for (std::uint64_t at = 0; at + 8 <= bytes; at += 4096) store_le(memory->bytes().data() + at, prng.next());
  return memory;
}

class LambdaTask final : public Task {
 public:
  explicit LambdaTask(std::function<void()> work) : work_(std::move(work)) {}
  void run() override { work_(); }

 private:
  std::function<void()> work_;
};

// Two pools, and the piece of memcpy beside them.
struct Pools {
  Mapping source, target;
  std::uint64_t bytes = 0;  // of each

  static Result<Pools> open(std::uint64_t bytes) {
    Pools pools;
    TIERCEL_ASSIGN_OR_RETURN(pools.source, filled_mapping(bytes));
    TIERCEL_ASSIGN_OR_RETURN(pools.target, filled_mapping(bytes));
    pools.bytes = bytes;
    return pools;
  }
  std::string_view page_kind() const { return page_kind_name(source.pages().kind); }
};

// memcpy of `moved` bytes in one piece (with more threads one each), another piece each time.
class Flat final {
 public:
  Flat(Pools& pools, std::uint64_t moved) : pools_(pools), moved_(moved) {}
  void operator()(unsigned part, unsigned parts) const {
    const std::uint64_t from = moved_ * part / parts;
    const std::uint64_t to = moved_ * (part + 1) / parts;
    std::memcpy(pools_.target.bytes().data() + first_ + from, pools_.source.bytes().data() + first_ + from,
                to - from);
    keep(pools_.target.bytes().data());
  }
  void advance() { first_ = first_ + 2 * moved_ <= pools_.bytes ? first_ + moved_ : 0; }

 private:
  Pools& pools_;
  std::uint64_t moved_;
  std::uint64_t first_ = 0;
};

// A plan whose granules are slots of `length` bytes, dense on both sides.
CopyPlan slots_plan(std::uint64_t length, std::uint64_t slots) {
  CopyPlan plan;
  plan.source_granules = plan.target_granules = slots;
  CopyNest nest;
  nest.length = length;
  nest.source.page = nest.target.page = length;
  plan.layers = {{0, {nest}}};
  return plan;
}

class FragmentBench final {
 public:
  FragmentBench(BenchRun& run, Pools& pools, std::uint64_t length, bool gather)
      : run_(run),
        pools_(pools),
        length_(length),
        gather_(gather),
        count_(std::max<std::uint64_t>(run.size(64 << 20, 0) / length, 2)),
        plan_(slots_plan(length, pools.bytes / length)),
        flat_(pools, count_ * length),
        executor_(kThreads - 1),
        sums_(count_) {
    random_.resize(plan_.source_granules);
    std::iota(random_.begin(), random_.end(), std::uint64_t{0});
    row_ = random_;
    Prng prng(2);
    for (std::size_t i = random_.size(); i > 1; --i) std::swap(random_[i - 1], random_[prng.below(i)]);
  }

  void measure() {
    one_thread();
    two_threads();
  }

 private:
  using Part = std::function<void(unsigned part, unsigned parts)>;

  std::string name(std::string_view tail) const {
    return fmt::format("{} {}, {}", gather_ ? "gather" : "scatter", format_size(length_), tail);
  }
  GranuleLists lists(unsigned part, unsigned parts) const {
    const std::uint64_t from = first_ + count_ * part / parts;
    const std::uint64_t to = first_ + count_ * (part + 1) / parts;
    const auto random = std::span(random_).subspan(from, to - from);
    const auto row = std::span(row_).subspan(from, to - from);
    return gather_ ? GranuleLists{random, row} : GranuleLists{row, random};
  }
  NestMemory memory() const { return {pools_.source.bytes().data(), pools_.target.bytes().data()}; }
  const CopyNest& nest() const { return plan_.layers[0].nests[0]; }
  void ours(unsigned part, unsigned parts) const {
    copy_fragments(plan_, nest(), memory(), lists(part, parts), WritePath::kPastCache);
    copy_fence();
  }
  void summed(unsigned part, unsigned parts) {
    const std::uint64_t from = count_ * part / parts;
    const auto sums = std::span(sums_).subspan(from, count_ * (part + 1) / parts - from);
    copy_fragments(plan_, nest(), memory(), lists(part, parts), WritePath::kPastCache, PlanSide::kSource,
                   sums);
    copy_fence();
  }
  void loop(unsigned part, unsigned parts) const {
    const GranuleLists granules = lists(part, parts);
    for (std::size_t i = 0; i < granules.source.size(); ++i)
      std::memcpy(memory().target + granules.target[i] * length_,
                  memory().source + granules.source[i] * length_, length_);
  }

  // One iteration: the next slots; this thread does the last share and waits for the others.
  Subject subject(unsigned threads, Part part) {
    return {"",
            [this, threads, part = std::move(part)](Samples&) {
              std::latch done(static_cast<std::ptrdiff_t>(threads) - 1);
              for (unsigned t = 0; t + 1 < threads; ++t)
                executor_.submit(std::make_unique<LambdaTask>([&, t] {
                  part(t, threads);
                  done.count_down();
                }));
              part(threads - 1, threads);
              done.wait();
            },
            [this] {
              flat_.advance();
              first_ = first_ + 2 * count_ <= random_.size() ? first_ + count_ : 0;
            }};
  }
  Part flat_part() {
    return [this](unsigned part, unsigned parts) { flat_(part, parts); };
  }
  Part ours_part() {
    return [this](unsigned part, unsigned parts) { ours(part, parts); };
  }
  Part summed_part() {
    return [this](unsigned part, unsigned parts) { summed(part, parts); };
  }
  BenchLine line(const Comparison& result, std::string_view tail, std::size_t subject, std::size_t peer,
                 std::string peer_name, std::string limit_name) const {
    BenchLine line = line_of(result, name(tail), subject, 0, BenchUnit::kGigabytes, "GB/s", count_ * length_);
    line.limit_name = std::move(limit_name);
    line.page_kind = pools_.page_kind();
    add_peer(line, result, subject, peer, BenchUnit::kGigabytes, std::move(peer_name));
    return line;
  }

  void one_thread() {
    const Subject subjects[] = {subject(1, flat_part()), subject(1, ours_part()),
                                subject(1, [this](unsigned part, unsigned parts) { loop(part, parts); }),
                                subject(1, summed_part())};
    const Comparison result = run_.compare(name("1 thread"), count_, subjects, BenchClock::kThread);
    BenchLine copied = line(result, "1 thread", 1, 2, "memcpy of each", "memcpy");
    if (length_ >= 128 << 10) copied.target = "ratio >= 1.00";
    if (length_ == 1024 || length_ == 2048) copied.target = "ratio >= 0.65";
    run_.add(std::move(copied));
    run_.add(line(result, "1 thread, summed", 3, 1, "not summed", "memcpy"));
  }
  void two_threads() {
    const Subject subjects[] = {subject(kThreads, flat_part()), subject(1, ours_part()),
                                subject(kThreads, ours_part()), subject(kThreads, summed_part())};
    const Comparison result = run_.compare(name("2 threads"), count_, subjects);
    BenchLine copied = line(result, "2 threads", 2, 1, "1 thread", "memcpy, 2 threads");
    run_.add(std::move(copied));
    run_.add(line(result, "2 threads, summed", 3, 2, "not summed", "memcpy, 2 threads"));
  }

  BenchRun& run_;
  Pools& pools_;
  std::uint64_t length_;
  bool gather_;
  std::uint64_t count_;  // slots of an iteration
  CopyPlan plan_;
  Flat flat_;
  ThreadExecutor executor_;
  std::vector<std::uint32_t> sums_;
  std::vector<std::uint64_t> random_, row_;
  std::uint64_t first_ = 0;
};

// ---- Models ----

constexpr std::array<std::pair<const char*, const char*>, 8> kLayoutPairs = {{
    {"layer_first", "page_first"},
    {"page_first", "layer_first"},
    {"layer_first", "page_first_direct"},
    {"page_first_direct", "layer_first"},
    {"layer_first", "page_head"},
    {"page_head", "layer_first"},
    {"vllm_nhd", "record"},
    {"record", "vllm_nhd"},
}};

// All pools of a model in two layouts, in the memory of two mappings.
class ModelBench final {
 public:
  ModelBench(BenchRun& run, const BenchModel& model) : run_(run), model_(model), executor_(kThreads) {}

  Status measure() {
    const auto form = make_storage_form(model_.spec);
    if (!form) return form.error();
    shapes_ = pool_shapes(*form);
    std::erase_if(shapes_, [](const PoolShape& shape) { return shape.page_bytes() == 0; });
    if (shapes_.empty()) return {};
    for (const auto& [source, target] : kLayoutPairs)
      if (Status status = measure_pair(source, target); !status.ok()) return status;
    return {};
  }

 private:
  struct Pool {
    PoolLayout source, target;
    std::shared_ptr<const CopyPlan> plan;  // shared by the copies of every iteration
    std::uint64_t moved = 0;               // pages of an iteration
    std::vector<std::uint64_t> random;
  };

  // As many pages as make `share` bytes of its memory, and of each iteration.
  Result<Pool> pool(const PoolShape& shape, const char* source, const char* target) const {
    const std::uint64_t bytes = shape.page_bytes();
    const std::uint64_t share = run_.size(256 << 20, 1 << 20) / shapes_.size();
    const std::uint64_t pages = std::max<std::uint64_t>(share / bytes, 2);
    Pool pool;
    TIERCEL_ASSIGN_OR_RETURN(const Layout from, layout_from_text(source));
    TIERCEL_ASSIGN_OR_RETURN(const Layout to, layout_from_text(target));
    TIERCEL_ASSIGN_OR_RETURN(pool.source, lay_out(shape, from, pages));
    TIERCEL_ASSIGN_OR_RETURN(pool.target, lay_out(shape, to, pages));
    TIERCEL_ASSIGN_OR_RETURN(CopyPlan plan, plan_copy(pool.source, pool.target));
    pool.plan = std::make_shared<const CopyPlan>(std::move(plan));
    pool.moved = std::max<std::uint64_t>(pages / 8, 1);
    pool.random.resize(pages);
    std::iota(pool.random.begin(), pool.random.end(), std::uint64_t{0});
    Prng prng(3);
    for (std::size_t i = pages; i > 1; --i) std::swap(pool.random[i - 1], pool.random[prng.below(i)]);
    return pool;
  }
  // Buffers one after the other from `at` on, each on a line of its own.
  static PoolMemory place(const PoolLayout& layout, Mapping& memory, std::uint64_t& at) {
    PoolMemory placed;
    placed.ranks.emplace_back();
    for (const std::uint64_t bytes : layout.buffer_bytes) {
      placed.ranks[0].push_back(host_buffer(memory.bytes().subspan(at, bytes)));
      at += (bytes + 4095) / 4096 * 4096;
    }
    return placed;
  }
  static std::uint64_t room(const PoolLayout& layout) {
    std::uint64_t room = 0;
    for (const std::uint64_t bytes : layout.buffer_bytes) room += (bytes + 4095) / 4096 * 4096;
    return room;
  }

  Status measure_pair(const char* source, const char* target) {
    std::vector<Pool> list;
    std::uint64_t bytes = 0, moved = 0;
    for (const PoolShape& shape : shapes_) {
      auto made = pool(shape, source, target);
      if (!made) return made.error();
      bytes = bytes + std::max(room(made->source), room(made->target));
      moved += made->moved * shape.page_bytes();
      list.push_back(std::move(*made));
    }
    bytes = std::max(bytes, 2 * moved);
    if (pools_.bytes < bytes) {
      pools_ = Pools();
      auto opened = Pools::open(bytes);
      if (!opened) return opened.error();
      pools_ = std::move(*opened);
    }
    add_line(list, moved, fmt::format("{}: {} to {}", model_.name, source, target));
    return {};
  }

  std::vector<PoolCopy> parts(const std::vector<Pool>& list, std::uint64_t turn) {
    std::vector<PoolCopy> parts;
    std::uint64_t from = 0, to = 0;
    for (const Pool& pool : list) {
      PoolCopy part;
      part.plan = pool.plan;
      part.source = place(pool.source, pools_.source, from);
      part.target = place(pool.target, pools_.target, to);
      for (std::uint64_t i = 0; i < pool.moved; ++i) {
        const std::uint64_t at = (turn * pool.moved + i) % pool.random.size();
        part.source_granules.push_back(pool.random[at]);
        part.target_granules.push_back(pool.random[pool.random.size() - 1 - at]);
      }
      parts.push_back(std::move(part));
    }
    return parts;
  }

  void add_line(const std::vector<Pool>& list, std::uint64_t moved, std::string name) {
    Flat flat(pools_, moved);
    std::uint64_t turn = 0;
    const auto copying = [&](unsigned workers, std::optional<PlanSide> sums) {
      return Subject{"",
                     [&, workers, sums](Samples&) {
                       LayeredCopyOptions options;
                       options.workers = workers;
                       options.sums = sums;
                       InlineExecutor inlined;
                       Executor& executor = workers == 1 ? static_cast<Executor&>(inlined) : executor_;
                       auto copy = LayeredCopy::start(parts(list, turn), options, &executor);
                       TIERCEL_CHECK(copy.has_value() && copy->wait().ok());
                     },
                     [&] { ++turn; }};
    };
    const Subject alone[] = {{"", [&](Samples&) { flat(0, 1); }, [&] { flat.advance(); }},
                             copying(1, {}),
                             copying(1, PlanSide::kSource)};
    const Comparison result = run_.compare(name, 1, alone, BenchClock::kThread);
    const Subject together[] = {copying(1, {}), copying(kThreads, {})};
    const Comparison threads = run_.compare(name + ", 2 threads", 1, together);
    BenchLine line = line_of(result, std::move(name), 1, 0, BenchUnit::kGigabytes, "GB/s", moved);
    line.limit_name = "memcpy";
    line.page_kind = pools_.page_kind();
    line.note = fmt::format("2 threads {:.2f} x one; summed {:.2f}; fragments {}", threads.ratio(1, 0),
                            result.ratio(2, 1), fragments(list));
    run_.add(std::move(line));
  }
  // The shortest and the longest run of all pools.
  static std::string fragments(const std::vector<Pool>& list) {
    std::uint64_t least = UINT64_MAX, most = 0;
    for (const Pool& pool : list)
      for (const LayerCopy& layer : pool.plan->layers)
        for (const CopyNest& nest : layer.nests) {
          least = std::min(least, nest.length);
          most = std::max(most, nest.length);
        }
    return least == most ? format_size(least)
                         : fmt::format("{} to {}", format_size(least), format_size(most));
  }

  BenchRun& run_;
  const BenchModel& model_;
  ThreadExecutor executor_;
  std::vector<PoolShape> shapes_;
  Pools pools_;
};

}  // namespace

Status copy_bench(BenchRun& run) {
  for (const BenchModel& model : run.models())
    if (Status status = ModelBench(run, model).measure(); !status.ok())
      return {status.code, fmt::format("{}: {}", model.name, status.message)};
  if (!run.models().empty()) return {};
  auto pools = Pools::open(run.size(512 << 20, 2 << 20));
  if (!pools) return pools.error();
  for (const std::uint64_t length :
       {512U, 1U << 10, 2U << 10, 16U << 10, 32U << 10, 64U << 10, 128U << 10, 256U << 10})
    for (const bool gather : {true, false}) FragmentBench(run, *pools, length, gather).measure();
  return {};
}

}  // namespace tiercel
