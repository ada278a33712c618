#include "transfer/pool_copy.h"

#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "device/test_held_device.h"
#include "model/test_pools.h"

namespace tiercel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::byte kUntouched{0xA5};
constexpr std::uint64_t kPages = 6;

// A pool with its memory.
struct TestPool {
  PoolLayout layout;
  std::vector<std::vector<std::byte>> bytes;

  TestPool(const PoolShape& shape, const char* name, std::uint64_t seed)
      : layout(lay_out(shape, layout_from_text(name).value(), kPages).value()) {
    Prng prng(seed);
    for (const std::uint64_t length : layout.buffer_bytes) {
      bytes.emplace_back(length, kUntouched);
      if (seed != 0)
        for (std::byte& byte : bytes.back()) byte = static_cast<std::byte>(prng.next());
    }
  }
  PoolMemory memory() {
    PoolMemory memory;
    memory.ranks.emplace_back();
    for (std::vector<std::byte>& buffer : bytes) memory.ranks[0].push_back(host_buffer(buffer));
    return memory;
  }
  // The first bytes of the device, buffer after buffer.
  PoolMemory memory_on(Device& device) {
    PoolMemory memory{&device, {{}}};
    std::uint64_t address = 0;
    for (const auto& buffer : bytes) {
      memory.ranks[0].push_back({nullptr, address, buffer.size()});
      address += buffer.size();
    }
    return memory;
  }
  void put_on(Device& device) {
    std::uint64_t address = 0;
    for (const auto& buffer : bytes) {
      ASSERT_TRUE(device.write(address, buffer).ok());
      address += buffer.size();
    }
  }
  void take_from(Device& device) {
    std::uint64_t address = 0;
    for (auto& buffer : bytes) {
      ASSERT_TRUE(device.read(address, buffer).ok());
      address += buffer.size();
    }
  }
  std::byte* at(const CopySide& side) { return bytes[side.buffer].data(); }
};

// Two layers apart from each other, k and v; pages of four tokens.
PoolShape shape() { return pool(4, {7, 9, 12}, {tensor("k", 4, 2, 4, 2), tensor("v", 4, 2, 3, 2)}); }

std::shared_ptr<const CopyPlan> plan_of(const TestPool& from, const TestPool& to, CopyUnit unit = {}) {
  return std::make_shared<const CopyPlan>(plan_copy(from.layout, to.layout, unit).value());
}

PoolCopy pages(TestPool& from, TestPool& to, std::vector<std::uint64_t> source,
               std::vector<std::uint64_t> target) {
  PoolCopy copy;
  copy.plan = plan_of(from, to);
  copy.source = from.memory();
  copy.target = to.memory();
  copy.source_granules = std::move(source);
  copy.target_granules = std::move(target);
  return copy;
}

// What `copy` must make of `to`, layer by layer; `layers`: only those with these ids.
std::vector<std::vector<std::byte>> expected(const PoolCopy& copy, TestPool& from, const TestPool& to,
                                             const std::function<bool(std::uint32_t)>& layers) {
  TestPool wanted = to;
  for (const LayerCopy& layer : copy.plan->layers)
    if (layers(layer.layer))
      for (const CopyNest& nest : layer.nests)
        copy_fragments(*copy.plan, nest, {from.at(nest.source), wanted.at(nest.target)},
                       {copy.source_granules, copy.target_granules}, WritePath::kCached);
  return wanted.bytes;
}
std::vector<std::vector<std::byte>> expected(const PoolCopy& copy, TestPool& from, const TestPool& to) {
  return expected(copy, from, to, [](std::uint32_t) { return true; });
}

template <typename... Parts>
std::vector<PoolCopy> parts(Parts... part) {
  std::vector<PoolCopy> all;
  (all.push_back(std::move(part)), ...);
  return all;
}

LayeredCopyOptions by_steps() {
  LayeredCopyOptions options;
  options.workers = 0;
  options.piece_bytes = 1;  // a granule at a time
  return options;
}

// Runs tasks when it is told.
class HoldingExecutor final : public Executor {
 public:
  void submit(std::unique_ptr<Task> task) override { tasks.push_back(std::move(task)); }
  void run_all() {
    for (const auto& task : tasks) task->run();
    tasks.clear();
  }
  std::vector<std::unique_ptr<Task>> tasks;
};

TEST(LayeredCopy, ThreadsCopyPagesAndTokensBetweenAnyTwoLayouts) {
  ThreadExecutor executor(3);
  Prng prng(1);
  for (const char* a : {"layer_first", "page_first", "vllm_nhd", "llama_v_transposed"})
    for (const char* b : {"page_first_direct", "page_head", "record", "page_first_kv_split"})
      for (const std::uint64_t granule_tokens : {4U, 1U, 2U}) {
        TestPool from(shape(), a, 1);
        TestPool to(shape(), b, 0);
        PoolCopy copy = pages(from, to, {}, {});
        copy.plan = plan_of(from, to, {granule_tokens});
        std::set<std::uint64_t> taken;
        for (int i = 0; i < 9; ++i) {
          const std::uint64_t target = prng.below(copy.plan->target_granules);
          if (!taken.insert(target).second) continue;
          copy.source_granules.push_back(prng.below(copy.plan->source_granules));
          copy.target_granules.push_back(target);
        }
        const auto wanted = expected(copy, from, to);
        LayeredCopyOptions options;
        options.workers = 2;
        options.piece_bytes = 50;
        auto running = LayeredCopy::start(parts(copy), options, &executor).value();
        EXPECT_TRUE(running.wait().ok());
        EXPECT_TRUE(to.bytes == wanted) << a << " to " << b;
        EXPECT_EQ(running.state(), LayeredCopyState::kDone);
        EXPECT_THAT(running.whole_layers(), ElementsAre(7, 9, 12));
      }
}

// The reader starts first, the copy is held; what it reads is all there when it is woken.
TEST(LayeredCopy, AReaderThatRunsAheadOfTheCopyWaitsAndNeverReads) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const PoolCopy copy = pages(from, to, {0, 2, 5}, {1, 0, 3});
  const auto wanted = expected(copy, from, to);
  HoldingExecutor executor;
  auto running = LayeredCopy::start(parts(copy), {}, &executor).value();
  std::vector<std::vector<std::byte>> read;
  std::jthread reader([&] {
    for (std::uint32_t layer = 0; layer < 13; ++layer) ASSERT_TRUE(running.wait_layer(layer).ok());
    read = to.bytes;
  });
  EXPECT_FALSE(running.layer_ready(7));
  EXPECT_EQ(running.wait_layer(7, SteadyClock().now()).code, Code::kDeadlineExceeded);
  EXPECT_EQ(running.wait_layer(7, SteadyClock().now() + std::chrono::milliseconds(1)).code,
            Code::kDeadlineExceeded);
  EXPECT_TRUE(std::ranges::all_of(to.bytes[0], [](std::byte b) { return b == kUntouched; }));
  executor.run_all();
  reader.join();
  EXPECT_TRUE(read == wanted);
}

TEST(LayeredCopy, EachLayerHasItsOwnEventAndLayersThatThePoolLacksAreThereAtOnce) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const PoolCopy copy = pages(from, to, {0, 2, 5}, {1, 0, 3});
  const TestPool before = to;
  auto running = LayeredCopy::start(parts(copy), by_steps(), nullptr).value();
  for (const std::uint32_t hole : {0U, 6U, 8U, 10U, 11U, 13U, 500U}) EXPECT_TRUE(running.layer_ready(hole));
  std::vector<std::uint32_t> ready;
  for (int steps = 1; running.step(); ++steps) {
    ready = running.whole_layers();
    EXPECT_EQ(ready.size(), static_cast<std::size_t>(steps / 3)) << "three granules a layer, in order";
    const auto wanted = expected(copy, from, before, [&](std::uint32_t layer) {
      return std::ranges::find(ready, layer) != ready.end();
    });
    if (steps % 3 == 0) {
      EXPECT_TRUE(to.bytes == wanted);
    }
  }
  EXPECT_THAT(ready, ElementsAre(7, 9, 12));
  EXPECT_TRUE(running.wait().ok());
  EXPECT_FALSE(running.step());
}

TEST(LayeredCopy, NothingToCopyIsASuccess) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  InlineExecutor executor;
  for (const bool no_parts : {false, true}) {
    auto copies = no_parts ? parts() : parts(pages(from, to, {}, {}));
    auto running = LayeredCopy::start(std::move(copies), {}, &executor).value();
    EXPECT_EQ(running.state(), LayeredCopyState::kDone);
    EXPECT_TRUE(running.wait_layer(7).ok());
    EXPECT_TRUE(running.wait().ok());
  }
}

TEST(LayeredCopy, WhatMakesNoSenseIsRefusedBeforeAByteIsTouched) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const auto before = to.bytes;
  HostDevice small(100);
  HeldDevice here(1 << 16);
  HeldDevice there(1 << 16);
  const auto complaint = [&](const std::function<void(PoolCopy&)>& change) {
    PoolCopy copy = pages(from, to, {0, 1, 2}, {3, 4, 5});
    change(copy);
    const auto running = LayeredCopy::start(parts(copy), by_steps(), nullptr);
    return running ? std::string("started") : running.error().to_string();
  };
  EXPECT_EQ(complaint([](PoolCopy&) {}), "started");
  EXPECT_EQ(
      complaint([](PoolCopy& c) { c.target_granules.pop_back(); }),
      "invalid_argument: pool copy, part 0: 3 source granules and 2 target granules: give one target for "
      "each source");
  EXPECT_THAT(complaint([](PoolCopy& c) { c.source_granules[1] = 6; }),
              HasSubstr("source granule 6 (entry 1) is not below the pool's 6"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.target_granules[2] = UINT64_MAX; }), HasSubstr("(entry 2)"));
  EXPECT_THAT(complaint([](PoolCopy& c) {
                c.target_granules = {5, 3, 5};
              }),
              HasSubstr("target granule 5 is listed twice"));
  EXPECT_EQ(complaint([](PoolCopy& c) {
              c.source_granules = {5, 3, 5};
            }),
            "started")
      << "a page may go to several places";
  EXPECT_THAT(complaint([](PoolCopy& c) { --c.source.ranks[0][0].bytes; }),
              HasSubstr("buffer 0 of the source, rank 0, has 2015 bytes, and the plan needs 2016"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.target.ranks[0][0].bytes = 0; }), HasSubstr("has 0 bytes"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.target.ranks[0].clear(); }), HasSubstr("names buffer 0"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.source.ranks.clear(); }), HasSubstr("reads rank 0"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.source.ranks[0][0].host = nullptr; }),
              HasSubstr("neither memory"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.expected_sums.resize(2); }),
              HasSubstr("expected sums of 2 layers"));
  EXPECT_THAT(complaint([](PoolCopy& c) { c.expected_sums.resize(3); }), HasSubstr("0 expected sums"));
  EXPECT_THAT(complaint([&](PoolCopy& c) {
                c.source = from.memory_on(here);
                c.target = to.memory_on(there);
              }),
              HasSubstr("unsupported: pool copy, part 0: source and target are both device memory"));
  EXPECT_TRUE(to.bytes == before);
}

TEST(LayeredCopy, ACancelEndsAtAGranuleAndNoLaterEventIsGiven) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const PoolCopy copy = pages(from, to, {0, 2, 5}, {1, 0, 3});
  const auto wanted = expected(copy, from, to, [](std::uint32_t layer) { return layer == 7; });
  auto running = LayeredCopy::start(parts(copy), by_steps(), nullptr).value();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(running.step());
  running.cancel();
  EXPECT_FALSE(running.step());
  EXPECT_EQ(running.state(), LayeredCopyState::kCancelled);
  EXPECT_THAT(running.whole_layers(), ElementsAre(7));
  EXPECT_TRUE(running.wait_layer(7).ok()) << "whole it stays";
  EXPECT_TRUE(running.wait_layer(8).ok()) << "no pool has it";
  EXPECT_EQ(running.wait_layer(9).code, Code::kCancelled);
  EXPECT_EQ(running.wait().code, Code::kCancelled);
  EXPECT_TRUE(to.bytes == wanted);
}

TEST(LayeredCopy, ACancelAfterTheEndChangesNothing) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  InlineExecutor executor;
  auto running = LayeredCopy::start(parts(pages(from, to, {0}, {1})), {}, &executor).value();
  running.cancel();
  EXPECT_EQ(running.state(), LayeredCopyState::kDone);
  EXPECT_TRUE(running.wait_layer(12).ok());
}

// Cancelled at any time while threads copy: each layer is whole or has no event, and a waiter is woken.
TEST(LayeredCopy, ACancelAmidThreadsLeavesEveryLayerWholeOrWithoutEvent) {
  ThreadExecutor executor(2);
  TestPool from(shape(), "page_first", 1);
  for (int round = 0; round < 50; ++round) {
    TestPool to(shape(), "layer_first", 0);
    const TestPool before = to;
    const PoolCopy copy = pages(from, to, {0, 1, 2, 3, 4, 5}, {1, 0, 3, 2, 5, 4});
    LayeredCopyOptions options;
    options.piece_bytes = 1;
    auto running = LayeredCopy::start(parts(copy), options, &executor).value();
    const std::uint32_t layers[] = {7, 9, 12};
    static_cast<void>(running.wait_layer(layers[round % 3], SteadyClock().now()));
    running.cancel();
    const auto whole = running.whole_layers();
    static_cast<void>(running.wait());
    EXPECT_EQ(running.whole_layers(), whole) << "no event after cancel() returned";
    for (const LayerCopy& layer : copy.plan->layers) {
      const bool is_whole = std::ranges::find(whole, layer.layer) != whole.end();
      EXPECT_EQ(running.wait_layer(layer.layer).ok(), is_whole);
      if (!is_whole) continue;
      const auto wanted = expected(copy, from, before, [&](std::uint32_t id) { return id == layer.layer; });
      for (const CopyNest& nest : layer.nests)
        for (const std::uint64_t granule : copy.target_granules) {
          const std::uint64_t at = nest.target.offset + granule * nest.target.page;
          EXPECT_TRUE(std::equal(
              wanted[nest.target.buffer].begin() + static_cast<std::ptrdiff_t>(at),
              wanted[nest.target.buffer].begin() + static_cast<std::ptrdiff_t>(at + nest.target.page),
              to.bytes[nest.target.buffer].begin() + static_cast<std::ptrdiff_t>(at)));
        }
    }
  }
}

TEST(LayeredCopy, AnExecutorThatGoesAwayEndsTheCopy) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const auto before = to.bytes;
  HoldingExecutor executor;
  LayeredCopyOptions options;
  options.piece_bytes = 1;
  auto dropped = LayeredCopy::start(parts(pages(from, to, {0, 2}, {1, 0})), options, &executor).value();
  EXPECT_EQ(executor.tasks.size(), 2U);
  executor.tasks.pop_back();
  EXPECT_EQ(dropped.state(), LayeredCopyState::kRunning) << "one is left to do it all";
  executor.tasks.clear();
  EXPECT_EQ(dropped.state(), LayeredCopyState::kFailed);
  EXPECT_EQ(dropped.wait_layer(7).code, Code::kUnavailable);
  EXPECT_TRUE(to.bytes == before);
}

TEST(LayeredCopy, ACopyThatIsDroppedTouchesNothingWhenItsTasksRunLater) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "layer_first", 0);
  const auto before = to.bytes;
  HoldingExecutor executor;
  { const auto dropped = LayeredCopy::start(parts(pages(from, to, {0, 2}, {1, 0})), {}, &executor).value(); }
  executor.run_all();
  EXPECT_TRUE(to.bytes == before);
}

// A recurrent state beside keys: the layer that both have is there when both are.
TEST(LayeredCopy, ALayerIsThereWhenAllPoolsHaveIt) {
  TestPool keys(shape(), "page_first", 1);
  TestPool keys_there(shape(), "layer_first", 0);
  const PoolShape states = pool(0, {1, 9}, {tensor("conv", 1, 6, 3, 2), tensor("temporal", 1, 2, 4, 4)});
  TestPool state(states, "page_first", 2);
  TestPool state_there(states, "layer_first", 0);
  const PoolCopy first = pages(keys, keys_there, {3}, {2});
  const PoolCopy second = pages(state, state_there, {0, 5}, {5, 0});
  const auto wanted_keys = expected(first, keys, keys_there);
  const auto wanted_states = expected(second, state, state_there);
  auto running = LayeredCopy::start(parts(first, second), by_steps(), nullptr).value();
  std::vector<std::vector<std::uint32_t>> seen;
  while (running.step()) seen.push_back(running.whole_layers());
  using List = std::vector<std::uint32_t>;
  EXPECT_THAT(seen, ElementsAre(List{}, List{1}, List{1, 7}, List{1, 7}, List{1, 7}, List{1, 7, 9},
                                List{1, 7, 9, 12}));
  EXPECT_TRUE(keys_there.bytes == wanted_keys && state_there.bytes == wanted_states);
}

TEST(LayeredCopy, APlanWithoutCutsMakesEveryLayerWaitForAllOfIt) {
  TestPool from(shape(), "page_first", 1);
  TestPool to(shape(), "record", 0);
  PoolCopy copy = pages(from, to, {1, 2}, {2, 3});
  copy.plan = plan_of(from, to, {0, CopyScope::kWhole});
  const auto wanted = expected(copy, from, to);
  auto running = LayeredCopy::start(parts(copy), by_steps(), nullptr).value();
  EXPECT_FALSE(running.layer_ready(0));
  EXPECT_TRUE(running.step());
  EXPECT_FALSE(running.layer_ready(7));
  EXPECT_TRUE(running.step());
  EXPECT_TRUE(running.layer_ready(7) && running.layer_ready(0));
  EXPECT_TRUE(to.bytes == wanted);
}

TEST(LayeredCopy, HeadsOfTwoRanksAreMergedIntoOne) {
  const PoolShape whole = pool(2, {0, 1}, {tensor("k", 2, 4, 3, 2), tensor("latent", 2, 1, 5, 2)});
  PoolShape half = whole;
  half.tensors[0].heads = 2;
  TestPool rank0(half, "layer_first", 1);
  TestPool rank1(half, "layer_first", 2);
  TestPool to(whole, "page_first", 0);
  PoolCopy copy;
  copy.plan = std::make_shared<const CopyPlan>(
      plan_reshard(whole, rank0.layout, to.layout, {.source_ranks = 2}).value());
  copy.source = rank0.memory();
  copy.source.ranks.push_back(rank1.memory().ranks[0]);
  copy.target = to.memory();
  copy.source_granules = {4, 1};
  copy.target_granules = {0, 3};
  InlineExecutor executor;
  auto running = LayeredCopy::start(parts(copy), {}, &executor).value();
  ASSERT_TRUE(running.wait().ok());
  const CountedOut halves(half, rank0.layout.layout, kPages);
  const CountedOut wholes(whole, to.layout.layout, kPages);
  std::uint64_t compared = 0;
  for (const auto& [element, place] : wholes.places()) {
    auto [t, layer, page, token, head, dim] = element;
    if (page != 0 && page != 3) continue;
    const bool second = t == 0 && head >= 2;
    const auto there =
        halves.places().at({t, layer, page == 0 ? 4 : 1, token, second ? head - 2 : head, dim});
    const auto& rank = (second ? rank1 : rank0).bytes;
    ASSERT_EQ(to.bytes[place.first][place.second], rank[there.first][there.second]);
    ++compared;
  }
  EXPECT_EQ(compared, 2U * 2 * 2 * (4 * 3 + 5));
}

TEST(LayeredCopy, SumsOfAStoreAreExpectedByItsLoadAndDamageIsNamed) {
  TestPool engine(shape(), "layer_first", 1);
  TestPool host(shape(), "page_head", 0);
  ThreadExecutor executor(2);
  LayeredCopyOptions options;
  options.piece_bytes = 64;
  options.sums = PlanSide::kSource;
  const std::vector<std::uint64_t> mine = {5, 0, 2};
  const std::vector<std::uint64_t> theirs = {0, 1, 4};
  auto store = LayeredCopy::start(parts(pages(engine, host, mine, theirs)), options, &executor).value();
  ASSERT_TRUE(store.wait().ok());
  PoolCopy back = pages(host, engine, theirs, mine);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    const auto sums = store.sums(0, layer);
    back.expected_sums.emplace_back(sums.begin(), sums.end());
  }
  // Granule 1 of layer 9: k then v, as they stand in the engine's pool.
  std::uint32_t sum = 0;
  const auto out = plan_of(engine, host);
  for (const CopyNest& nest : out->layers[1].nests)
    sum = crc32c(ByteView(engine.bytes[0]).subspan(nest.source.offset, nest.bytes()), sum);
  EXPECT_EQ(store.sums(0, 1)[1], sum);

  options.sums = PlanSide::kTarget;
  const auto engine_before = engine.bytes;
  EXPECT_TRUE(LayeredCopy::start(parts(back), options, &executor).value().wait().ok());
  EXPECT_TRUE(engine.bytes == engine_before);
  const CopySide& damaged = back.plan->layers[1].nests[0].source;
  host.bytes[damaged.buffer][damaged.offset + 4 * damaged.page] ^= std::byte{1};
  auto load = LayeredCopy::start(parts(back), options, &executor).value();
  const Status status = load.wait();
  EXPECT_EQ(status.code, Code::kDataCorrupt);
  EXPECT_THAT(status.message, HasSubstr("layer 9 of source granule 4"));
  EXPECT_EQ(load.wait_layer(9).code, Code::kDataCorrupt);
  EXPECT_EQ(load.state(), LayeredCopyState::kFailed);
}

// ---- By streams of a device that cannot be looked into ----

TEST(LayeredCopyByStreams, LoadsAndStoresEqualCopiesInHostMemory) {
  for (const char* layout : {"layer_first", "page_first", "page_head", "llama_v_transposed"}) {
    TestPool host(shape(), layout, 1);
    TestPool engine(shape(), "vllm_nhd", 0);
    HeldDevice device(1 << 16);
    device.let_all_go();
    engine.put_on(device);
    ThreadExecutor executor(2);
    PoolCopy load = pages(host, engine, {0, 1, 5}, {4, 2, 3});
    const auto wanted = expected(load, host, engine);
    load.target = engine.memory_on(device);
    LayeredCopyOptions options;
    options.piece_bytes = 64;
    options.in_flight_bytes = 128;
    options.sums = PlanSide::kSource;
    auto loading = LayeredCopy::start(parts(load), options, &executor).value();
    ASSERT_TRUE(loading.wait().ok());
    engine.take_from(device);
    EXPECT_TRUE(engine.bytes == wanted);

    TestPool again(shape(), layout, 0);
    PoolCopy store = pages(engine, again, {4, 2, 3}, {0, 1, 5});
    const auto wanted_again = expected(store, engine, again);
    store.source = engine.memory_on(device);
    options.sums = PlanSide::kTarget;
    auto storing = LayeredCopy::start(parts(store), options, &executor).value();
    ASSERT_TRUE(storing.wait().ok());
    EXPECT_TRUE(again.bytes == wanted_again);
    for (std::size_t layer = 0; layer < 3; ++layer)
      EXPECT_TRUE(std::ranges::equal(storing.sums(0, layer), loading.sums(0, layer)));
  }
}

TEST(LayeredCopyByStreams, ALayerIsThereWhenItsCopiesHaveEndedAndNotWhenTheyWereSubmitted) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  PoolCopy load = pages(host, engine, {0, 1}, {4, 2});
  load.target = engine.memory_on(device);
  LayeredCopyOptions options = by_steps();
  options.piece_bytes = 1 << 10;  // a layer at a time
  auto loading = LayeredCopy::start(parts(load), options, nullptr).value();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loading.step());
  EXPECT_EQ(device.held(), 3U);
  EXPECT_TRUE(loading.step()) << "nothing to do but wait, and it does not wait";
  EXPECT_THAT(loading.whole_layers(), ElementsAre());
  device.let_go(2);
  EXPECT_TRUE(loading.step());
  EXPECT_THAT(loading.whole_layers(), ElementsAre(7, 9));
  EXPECT_EQ(loading.wait_layer(12, SteadyClock().now()).code, Code::kDeadlineExceeded);
  device.let_go(1);
  EXPECT_FALSE(loading.step());
  EXPECT_TRUE(loading.wait_layer(12).ok());
}

TEST(LayeredCopyByStreams, OnlySoMuchIsOnItsWayAndACancelWaitsForIt) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  ThreadExecutor executor(1);
  PoolCopy load = pages(host, engine, {0, 1, 2, 3}, {4, 2, 0, 1});
  load.target = engine.memory_on(device);
  LayeredCopyOptions options;
  options.piece_bytes = 1;
  options.in_flight_bytes = 100;  // a granule of a layer has 112
  auto loading = LayeredCopy::start(parts(load), options, &executor).value();
  while (device.held() < 1) std::this_thread::yield();
  for (int granule = 0; granule < 4; ++granule) {
    while (device.held() < 1) std::this_thread::yield();
    EXPECT_EQ(device.held(), 1U);
    device.let_go(1);
  }
  EXPECT_TRUE(loading.wait_layer(7).ok());
  while (device.held() < 1) std::this_thread::yield();
  loading.cancel();
  EXPECT_EQ(loading.wait_layer(9).code, Code::kCancelled) << "told at once";
  EXPECT_EQ(loading.state(), LayeredCopyState::kRunning) << "the device still writes";
  EXPECT_EQ(loading.wait(SteadyClock().now()).code, Code::kDeadlineExceeded);
  device.let_go(1);
  EXPECT_EQ(loading.wait().code, Code::kCancelled);
  EXPECT_EQ(device.held(), 0U);
  EXPECT_THAT(loading.whole_layers(), ElementsAre(7));
}

TEST(LayeredCopyByStreams, ALayerThatBecomesWholeAfterACancelHasNoEvent) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  PoolCopy load = pages(host, engine, {0}, {4});
  load.target = engine.memory_on(device);
  auto loading = LayeredCopy::start(parts(load), by_steps(), nullptr).value();
  EXPECT_TRUE(loading.step());
  EXPECT_TRUE(loading.step());
  device.let_go(1);
  EXPECT_TRUE(loading.step());
  loading.cancel();
  device.let_all_go();
  EXPECT_FALSE(loading.step());
  EXPECT_EQ(loading.wait().code, Code::kCancelled);
  EXPECT_THAT(loading.whole_layers(), ElementsAre(7));
}

TEST(LayeredCopyByStreams, ADeviceThatFailsEndsTheCopyAndNoLaterEventIsGiven) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  device.fail_after(5);  // layer 7, and half of 9
  device.let_all_go();
  InlineExecutor executor;
  PoolCopy load = pages(host, engine, {0, 1, 2, 3}, {4, 2, 0, 1});
  load.target = engine.memory_on(device);
  LayeredCopyOptions options;
  options.piece_bytes = 1;
  auto loading = LayeredCopy::start(parts(load), options, &executor).value();
  EXPECT_EQ(loading.wait().code, Code::kIoError);
  EXPECT_EQ(loading.state(), LayeredCopyState::kFailed);
  EXPECT_TRUE(loading.wait_layer(7).ok());
  EXPECT_EQ(loading.wait_layer(9).message, "the device failed");
  EXPECT_EQ(loading.wait_layer(12).code, Code::kIoError);
  EXPECT_THAT(loading.whole_layers(), ElementsAre(7));
}

TEST(LayeredCopyByStreams, DamageIsFoundBeforeTheDeviceIsGivenTheBytes) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  PoolCopy load = pages(host, engine, {0, 1}, {4, 2});
  load.target = engine.memory_on(device);
  load.expected_sums.assign(3, {1, 2});
  auto loading = LayeredCopy::start(parts(load), by_steps(), nullptr).value();
  EXPECT_TRUE(loading.step());
  EXPECT_EQ(device.held(), 0U);
  EXPECT_EQ(loading.wait().code, Code::kDataCorrupt);
}

TEST(LayeredCopyByStreams, AStreamOfTheEnginesIsUsedWhereOneIsGiven) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HeldDevice device(1 << 16);
  const auto stream = device.open_stream().value();
  std::byte note{};
  const DeviceCopy before[] = {{&note, 0, 1}};
  ASSERT_TRUE(stream->submit(CopyDirection::kToHost, before).ok());
  PoolCopy load = pages(host, engine, {0}, {4});
  load.target = engine.memory_on(device);
  LayeredCopyOptions options = by_steps();
  options.stream = stream.get();
  auto loading = LayeredCopy::start(parts(load), options, nullptr).value();
  EXPECT_TRUE(loading.step());
  device.let_go(1);
  EXPECT_TRUE(loading.step());
  EXPECT_FALSE(loading.layer_ready(7)) << "what the engine put there goes first";
  device.let_all_go();
  while (loading.step()) continue;
  EXPECT_TRUE(loading.wait().ok());
}

TEST(LayeredCopyByStreams, MemoryThatADeviceShowsIsCopiedAsHostMemory) {
  TestPool host(shape(), "page_first", 1);
  TestPool engine(shape(), "layer_first", 0);
  HostDevice device(1 << 16);
  engine.put_on(device);
  PoolCopy load = pages(host, engine, {0, 1}, {4, 2});
  const auto wanted = expected(load, host, engine);
  load.target = engine.memory_on(device);
  InlineExecutor executor;
  auto loading = LayeredCopy::start(parts(load), {}, &executor).value();
  EXPECT_TRUE(loading.wait().ok());
  engine.take_from(device);
  EXPECT_TRUE(engine.bytes == wanted);
}

}  // namespace
}  // namespace tiercel
