#include "transfer/fragment_copy.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "model/test_pools.h"

namespace tiercel {
namespace {

constexpr std::byte kUntouched{0xA5};
constexpr WritePath kPaths[] = {WritePath::kCached, WritePath::kPastCache};

std::vector<std::byte> random_bytes(std::uint64_t seed, std::size_t count) {
  Prng prng(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
  return bytes;
}

// A granule's runs, one after the other as the nest says.
std::vector<Fragment> runs_of(const CopyPlan& plan, const CopyNest& nest, std::uint64_t source,
                              std::uint64_t target) {
  const auto base = [](const CopySide& side, std::uint64_t granule, std::uint64_t per_page) {
    return side.offset + granule / per_page * side.page + granule % per_page * side.granule;
  };
  std::vector<Fragment> runs = {{base(nest.source, source, plan.source_per_page),
                                 base(nest.target, target, plan.target_per_page), nest.length}};
  for (std::uint32_t i = 0; i < nest.loop_count; ++i) {
    std::vector<Fragment> more;
    for (const Fragment& run : runs)
      for (std::uint64_t n = 0; n < nest.loops[i].count; ++n)
        more.push_back({run.source_offset + n * nest.loops[i].source_step,
                        run.target_offset + n * nest.loops[i].target_step, run.length});
    runs = more;
  }
  return runs;
}

// What a nest must do, a run at a time.
void by_definition(const CopyPlan& plan, const CopyNest& nest, NestMemory memory, GranuleLists granules) {
  for (std::size_t i = 0; i < granules.source.size(); ++i)
    for (const Fragment& run : runs_of(plan, nest, granules.source[i], granules.target[i]))
      std::copy_n(memory.source + run.source_offset, run.length, memory.target + run.target_offset);
}

struct Case {
  CopyPlan plan;
  CopyNest nest;
  std::vector<std::uint64_t> source, target;  // granules
};

// Three granules of two runs of `length`, with gaps between all of them, shifted against each other.
Case shifted(std::uint64_t length, std::uint64_t source_shift, std::uint64_t target_shift) {
  Case c;
  c.plan.source_granules = c.plan.target_granules = 8;
  c.nest.length = length;
  c.nest.loop_count = 1;
  c.nest.loops[0] = {2, length + 3, length + 1};
  c.nest.source = {0, 0, source_shift, 2 * length + 5, 0};
  c.nest.target = {0, 0, target_shift, 2 * length + 2, 0};
  c.source = {5, 0, 3};
  c.target = {1, 7, 4};
  return c;
}

std::uint64_t end_of(const CopySide& side, std::uint64_t granules, std::uint64_t bytes) {
  return side.offset + granules * side.page + bytes;
}

// Compares every body and path, the sums, and the list of fragments with the definition.
void expect_copies(const Case& c, std::uint64_t seed) {
  const std::vector<std::byte> from =
      random_bytes(seed, end_of(c.nest.source, c.plan.source_granules, 4 * c.nest.bytes() + 64));
  const std::size_t room = end_of(c.nest.target, c.plan.target_granules, 4 * c.nest.bytes() + 64);
  std::vector<std::byte> wanted(room, kUntouched);
  by_definition(c.plan, c.nest, {from.data(), wanted.data()}, {c.source, c.target});
  for (const WritePath path : kPaths) {
    for (const detail::CopyBody body : detail::kCopyBodies) {
      if (!detail::copy_has(body)) continue;
      std::vector<std::byte> to(room, kUntouched);
      detail::copy_fragments_by(body, c.plan, c.nest, {from.data(), to.data()}, {c.source, c.target}, path);
      copy_fence();
      ASSERT_TRUE(to == wanted) << c.nest.length << " by body " << static_cast<int>(body);
    }
    std::vector<std::uint32_t> sums(c.source.size(), 7);
    std::vector<std::byte> to(room, kUntouched);
    copy_fragments(c.plan, c.nest, {from.data(), to.data()}, {c.source, c.target}, path, PlanSide::kSource,
                   sums);
    copy_fence();
    ASSERT_TRUE(to == wanted) << c.nest.length << " with sums";
    for (std::size_t i = 0; i < sums.size(); ++i) {
      auto runs = runs_of(c.plan, c.nest, c.source[i], c.target[i]);
      std::ranges::sort(runs, {}, &Fragment::source_offset);
      std::uint32_t sum = 7;
      for (const Fragment& run : runs)
        sum = crc32c(ByteView(from).subspan(run.source_offset, run.length), sum);
      ASSERT_EQ(sums[i], sum) << c.nest.length;
    }
  }
  std::vector<Fragment> fragments;
  append_fragments(c.plan, c.nest, {c.source, c.target}, fragments);
  std::vector<std::byte> to(room, kUntouched);
  for (const Fragment& f : fragments)
    std::copy_n(from.data() + f.source_offset, f.length, to.data() + f.target_offset);
  ASSERT_TRUE(to == wanted) << c.nest.length << " as fragments";
}

TEST(FragmentCopy, EveryLengthAndAlignmentByEveryBodyIsTheRunsOneByOne) {
  for (std::uint64_t length = 0; length <= 300; ++length)
    for (std::uint64_t shift = length % 5; shift < 64; shift += 9)
      ASSERT_NO_FATAL_FAILURE(expect_copies(shifted(length, shift, shift * 5 % 64), length));
  for (const std::uint64_t length : {511U, 512U, 1023U, 1152U, 2048U, 4160U, 32768U, 32769U, 70000U})
    for (const std::uint64_t shift : {0U, 1U, 63U})
      ASSERT_NO_FATAL_FAILURE(expect_copies(shifted(length, shift, 64 - shift), length));
}

TEST(FragmentCopy, LoopsOfAnyDepthAndOrderAreWalked) {
  Prng prng(5);
  for (int round = 0; round < 300; ++round) {
    Case c;
    c.plan.source_per_page = 1 + prng.below(3);
    c.plan.target_per_page = 1 + prng.below(2);
    c.nest.length = 1 + prng.below(round % 2 == 0 ? 8 : 700);
    c.nest.loop_count = static_cast<std::uint32_t>(prng.below(5));
    // Each axis lies around those before it on the target; on the source in an order of its own.
    std::uint64_t source_extent = c.nest.length;
    std::uint64_t target_extent = c.nest.length;
    std::vector<CopyLoop> loops;
    for (std::uint32_t i = 0; i < c.nest.loop_count; ++i) {
      loops.push_back({1 + prng.below(3), source_extent + prng.below(2) * 3, target_extent + prng.below(2)});
      source_extent = loops.back().source_step * loops.back().count;
      target_extent = loops.back().target_step * loops.back().count;
    }
    std::ranges::reverse(loops);
    if (loops.size() > 1 && loops[0].count == loops[1].count)
      std::swap(loops[0].source_step, loops[1].source_step);
    std::ranges::copy(loops, c.nest.loops.begin());
    c.nest.source = {0, 0, prng.below(9), source_extent * c.plan.source_per_page, source_extent};
    c.nest.target = {0, 0, prng.below(9), target_extent * c.plan.target_per_page + 3, target_extent};
    c.source = {0, 2, 1, 6};
    c.target = {3, 4, 5, 0};  // runs of them are dense on one side, on both, or on none
    c.plan.source_granules = c.plan.target_granules = 8;
    ASSERT_NO_FATAL_FAILURE(expect_copies(c, static_cast<std::uint64_t>(round)));
  }
}

TEST(FragmentCopy, TransposedElementsOfEveryLengthArriveWhateverTheCounts) {
  for (const std::uint64_t length : {1U, 2U, 3U, 4U, 8U, 16U})
    for (const std::uint64_t rows : {2U, 31U, 64U, 70U})
      for (const std::uint64_t columns : {2U, 33U, 65U}) {
        Case c;
        c.nest.length = length;
        c.nest.loop_count = 3;
        c.nest.loops[0] = {2, columns * rows * length + 64, columns * (rows + 1) * length};
        c.nest.loops[1] = {columns, length, (rows + 1) * length};
        c.nest.loops[2] = {rows, columns * length, length};
        c.nest.source = {0, 0, 3, 2 * c.nest.loops[0].source_step, 0};
        c.nest.target = {0, 0, 1, 2 * c.nest.loops[0].target_step, 0};
        c.plan.source_granules = c.plan.target_granules = 8;
        c.source = {1, 0};
        c.target = {0, 2};
        ASSERT_NO_FATAL_FAILURE(expect_copies(c, rows));
      }
}

// More pieces than are collected at once; some of them grow by their neighbours.
TEST(FragmentCopy, HundredsOfGranulesInAnyOrderAreCopiedOnce) {
  Prng prng(6);
  for (const std::uint64_t length : {70U, 300U, 1100U, 5000U}) {
    Case c = shifted(length, 0, 0);
    c.nest.loop_count = static_cast<std::uint32_t>(length % 200 != 0);
    c.nest.source.page = c.nest.target.page = c.nest.loop_count == 0 ? length : 2 * length + 7;
    c.plan.source_granules = c.plan.target_granules = 400;
    c.source.clear();
    c.target.clear();
    for (std::uint64_t target = 0; target < 400; ++target) {
      c.target.push_back(target);
      c.source.push_back(prng.below(3) == 0 || target == 0 ? prng.below(400) : (c.source.back() + 1) % 400);
    }
    ASSERT_NO_FATAL_FAILURE(expect_copies(c, length));
  }
}

TEST(FragmentCopy, GranulesThatLieTogetherOnBothSidesAreOneFragment) {
  Case c = shifted(100, 0, 0);
  c.nest.loop_count = 0;
  c.nest.source.page = c.nest.target.page = 100;
  c.source = {2, 3, 4, 0, 6, 7};
  c.target = {0, 1, 2, 3, 5, 7};
  std::vector<Fragment> fragments = {{9, 9, 9}};
  append_fragments(c.plan, c.nest, {c.source, c.target}, fragments);
  const std::vector<Fragment> wanted = {
      {9, 9, 9}, {200, 0, 300}, {0, 300, 100}, {600, 500, 100}, {700, 700, 100}};
  EXPECT_EQ(fragments, wanted);
}

// Between any two named layouts, whole pages and single tokens: every element arrives, and the sums that a
// copy makes in the order of its source are those that the copy back makes in the order of its target.
TEST(FragmentCopy, BetweenAnyTwoLayoutsElementsArriveAndSumsComeBack) {
  int pairs = 0;
  for (const PoolShape& shape : small_pools())
    for (const Layout& a : named_layouts())
      for (const Layout& b : named_layouts()) {
        const auto here = lay_out(shape, a, 3);
        const auto there = lay_out(shape, b, 4);
        ASSERT_TRUE(here && there);
        const auto out = plan_copy(*here, *there);
        const auto back = plan_copy(*there, *here);
        ASSERT_TRUE(out && back);
        const auto buffers = [](const PoolLayout& pool, std::uint64_t seed) {
          std::vector<std::vector<std::byte>> all;
          all.reserve(pool.buffer_bytes.size());
          for (const std::uint64_t bytes : pool.buffer_bytes)
            all.push_back(seed == 0 ? std::vector<std::byte>(bytes) : random_bytes(seed + all.size(), bytes));
          return all;
        };
        const auto from = buffers(*here, 1);
        auto middle = buffers(*there, 0);
        auto to = buffers(*here, 0);
        const std::vector<std::uint64_t> mine = {0, 1, 2};
        const std::vector<std::uint64_t> theirs = {3, 0, 2};
        for (std::size_t layer = 0; layer < out->layers.size(); ++layer) {
          std::vector<std::uint32_t> there_sums(3);
          std::vector<std::uint32_t> here_sums(3);
          for (const CopyNest& nest : out->layers[layer].nests)
            copy_fragments(*out, nest, {from[nest.source.buffer].data(), middle[nest.target.buffer].data()},
                           {mine, theirs}, WritePath::kCached, PlanSide::kSource, there_sums);
          for (const CopyNest& nest : back->layers[layer].nests)
            copy_fragments(*back, nest, {middle[nest.source.buffer].data(), to[nest.target.buffer].data()},
                           {theirs, mine}, WritePath::kCached, PlanSide::kTarget, here_sums);
          ASSERT_EQ(there_sums, here_sums) << a.name << " and " << b.name;
        }
        const CountedOut counted(shape, a, 3);
        for (const auto& [element, place] : counted.places())
          for (std::uint64_t i = 0; i < shape.tensors[std::get<0>(element)].element_bytes; ++i)
            ASSERT_EQ(to[place.first][place.second + i], from[place.first][place.second + i])
                << a.name << b.name;
        ++pairs;
      }
  EXPECT_GT(pairs, 1000);
}

}  // namespace
}  // namespace tiercel
