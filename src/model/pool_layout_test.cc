#include "model/pool_layout.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "model/test_pools.h"

namespace tiercel {
namespace {

Place place_of(const PoolLayout& pool, const Element& element) {
  const auto [t, layer, page, token, head, dim] = element;
  const TensorPlace& place = pool.places[t];
  return {place.first_buffer + static_cast<std::uint32_t>(layer) * place.layer_buffers,
          place.offset + layer * place.layer + page * place.page + token * place.token + head * place.head +
              dim * place.dim};
}

// Compares each element of the pool with the place that counting out gives it, and the bytes of the buffers.
void expect_counted_out(const PoolLayout& pool) {
  const CountedOut counted(pool.shape, pool.layout, pool.pages);
  for (const auto& [element, place] : counted.places())
    ASSERT_EQ(place_of(pool, element), place) << layout_text(pool.layout);
  for (std::uint32_t b = 0; b < pool.buffer_bytes.size(); ++b) {
    const auto bytes = counted.bytes().find(b);
    ASSERT_EQ(pool.buffer_bytes[b], bytes == counted.bytes().end() ? 0 : bytes->second)
        << layout_text(pool.layout);
  }
  for (const auto& [buffer, bytes] : counted.bytes()) {
    ASSERT_TRUE(buffer < pool.buffer_bytes.size() || bytes == 0);
  }
}

// The bytes of each object of a page are exactly the elements of that component and page, in ascending order
// of memory, in as few runs as they lie in.
void expect_segments(const PoolLayout& pool) {
  const CountedOut counted(pool.shape, pool.layout, pool.pages);
  for (std::uint64_t page = 0; page < pool.pages; ++page) {
    std::vector<std::map<Place, std::uint64_t>> elements(pool.shape.tensors.size());
    for (const auto& [element, place] : counted.places())
      if (std::get<2>(element) == page)
        elements[std::get<0>(element)][place] = pool.shape.tensors[std::get<0>(element)].element_bytes;
    const auto objects = page_segments(pool, page);
    ASSERT_EQ(objects.size(), pool.shape.tensors.size());
    for (std::size_t t = 0; t < objects.size(); ++t) {
      std::vector<Segment> runs;
      for (const auto& [place, bytes] : elements[t]) {
        if (!runs.empty() && runs.back().buffer == place.first &&
            runs.back().offset + runs.back().length == place.second)
          runs.back().length += bytes;
        else
          runs.push_back({place.first, place.second, bytes});
      }
      ASSERT_EQ(objects[t].segments.size(), runs.size()) << layout_text(pool.layout);
      ASSERT_TRUE(objects[t].segments == runs) << layout_text(pool.layout);
      ASSERT_EQ(segments_per_page(pool)[t], runs.size());
      ASSERT_EQ(objects[t].component, pool.shape.tensors[t].component);
    }
  }
}

TEST(PoolLayout, EveryNamedLayoutIsTheIndexOrderThatItsAxesSay) {
  int refused = 0;
  for (const PoolShape& shape : small_pools())
    for (const Layout& layout : named_layouts())
      for (const std::uint64_t pages : {0U, 1U, 3U})
        for (const std::uint64_t alignment : {1U, 16U}) {
          Layout aligned = layout;
          aligned.page_alignment = alignment;
          const auto pool = lay_out(shape, aligned, pages);
          if (!pool) {
            EXPECT_NE(pool.error().message.find("stands outside of component"), std::string::npos);
            ++refused;
            continue;
          }
          expect_counted_out(*pool);
          expect_segments(*pool);
        }
  // Opaque bytes beside keys have no tokens: none of the named layouts puts tokens outside of components.
  EXPECT_EQ(refused, 0);
}

// All 720 orders of the axes, with each number of axes that have buffers.
TEST(PoolLayoutExhaustive, AnyOrderOfTheAxesIsTheIndexOrderThatItSays) {
  Layout layout;
  layout.name = "any";
  layout.order = {Axis::kComponent, Axis::kLayer, Axis::kPage, Axis::kToken, Axis::kHead, Axis::kDim};
  int laid_out = 0;
  int refused = 0;
  do {
    for (layout.buffer_axes = 0; layout.buffer_axes <= 2; ++layout.buffer_axes) {
      if (!validate(layout).ok()) continue;
      for (const PoolShape& shape : small_pools()) {
        const auto pool = lay_out(shape, layout, 2);
        if (!pool) {
          ++refused;
          continue;
        }
        ++laid_out;
        expect_counted_out(*pool);
        expect_segments(*pool);
        if (HasFatalFailure()) return;
      }
    }
  } while (std::next_permutation(layout.order.begin(), layout.order.end()));
  EXPECT_GT(laid_out, 8000);
  EXPECT_GT(refused, 500);
}

TEST(PoolLayout, TheOrdersThatUsersKnowGiveTheirFormulas) {
  constexpr std::uint64_t kHeads = 2048;  // bytes of one token of one layer and component
  const PoolShape shape = pool(64, {0, 1, 2}, {tensor("k", 64, 8, 128, 2), tensor("v", 64, 8, 128, 2)});
  const std::uint64_t pages = 5;
  const std::uint64_t half = 3 * pages * 64 * 8 * 128 * 2;  // v_offset = L × T × H × D × size
  const auto of = [&](const char* name) {
    return lay_out(shape, layout_from_text(name).value(), pages).value();
  };
  {
    const PoolLayout layer_first = of("layer_first");
    const auto objects = page_segments(layer_first, 2);
    ASSERT_EQ(objects[0].segments.size(), 3U);
    EXPECT_EQ(objects[0].segments[1], (Segment{0, (pages * 64 + 128) * kHeads, 64 * kHeads}));
    EXPECT_EQ(objects[1].segments[1].offset, objects[0].segments[1].offset + half);
  }
  for (const char* name : {"page_first", "page_first_direct", "page_head"}) {
    const auto objects = page_segments(of(name), 2);
    ASSERT_EQ(objects[0].segments.size(), 1U);
    EXPECT_EQ(objects[0].segments[0], (Segment{0, 384 * kHeads, 192 * kHeads}));
    EXPECT_EQ(objects[1].segments[0].offset, objects[0].segments[0].offset + half);
    EXPECT_TRUE(is_page_aligned(of(name), 4096));
  }
  EXPECT_EQ(of("page_first_kv_split").buffer_bytes, (std::vector<std::uint64_t>{half, half}));
  EXPECT_EQ(of("vllm_nhd").buffer_bytes.size(), 3U);
  EXPECT_EQ(of("llama").buffer_bytes.size(), 6U);
}

TEST(PoolLayout, PagesAreAlignedWhereTheLayoutSaysSo) {
  const PoolShape shape = pool(2, {0, 1}, {tensor("k", 2, 2, 3, 2), tensor("v", 2, 2, 3, 2)});
  EXPECT_FALSE(is_page_aligned(lay_out(shape, layout_from_text("page_first").value(), 4).value(), 4096));
  const PoolLayout aligned = lay_out(shape, layout_from_text("page_first;align=4096").value(), 4).value();
  EXPECT_EQ(aligned.places[0].page, 4096U);
  EXPECT_EQ(page_segments(aligned, 3)[1].segments.front().offset, 4 * 4096U + 3 * 4096U);
  // Its pages begin at multiples and are not one long: direct I/O needs both.
  EXPECT_FALSE(is_page_aligned(aligned, 4096));
  EXPECT_TRUE(is_page_aligned(aligned, 8));
}

TEST(PoolLayout, AnAxisOutsideOfComponentsMustBeEquallyLongForAll) {
  const PoolShape shape = pool(2, {0}, {tensor("k", 2, 2, 3, 2), tensor("v", 2, 1, 3, 2)});
  const auto refused = lay_out(shape, layout_from_text("layer,page,head,component,token,dim").value(), 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_NE(refused.error().message.find(
                "its axis head stands outside of component, but component k has 2 and v has 1"),
            std::string::npos)
      << refused.error().message;
}

TEST(PoolLayout, SizesBeyondTheLargestAreRefusedBeforeAnythingIsReserved) {
  const PoolShape shape = pool(64, {0, 1}, {tensor("k", 64, 8, 128, 2), tensor("v", 64, 8, 128, 2)});
  const std::uint64_t page = shape.page_bytes();
  for (const Layout& layout : named_layouts()) {
    EXPECT_TRUE(lay_out(shape, layout, (std::uint64_t{1} << 62) / page));
    const auto refused = lay_out(shape, layout, (std::uint64_t{1} << 63) / page);
    ASSERT_FALSE(refused) << layout.name;
    EXPECT_NE(refused.error().message.find("pass 2^63 - 1 bytes"), std::string::npos);
    EXPECT_FALSE(lay_out(shape, layout, UINT64_MAX));
  }
}

// H12 for offsets: pools whose rows and totals pass 2 and 4 GiB.
TEST(PoolLayout, OffsetsPastTwoAndFourGibibytesAreExact) {
  for (const std::uint64_t bytes :
       {(1ULL << 31) - 1, 1ULL << 31, (1ULL << 31) + 1, (1ULL << 32) - 1, 1ULL << 32, (1ULL << 32) + 4096}) {
    const PoolShape shape = pool(1, {0, 1}, {tensor("k", 1, 1, bytes, 1), tensor("v", 1, 1, bytes, 1)});
    const PoolLayout layer_first = lay_out(shape, layout_from_text("layer_first").value(), 3).value();
    EXPECT_EQ(total_bytes(layer_first), 12 * bytes);
    EXPECT_EQ(page_segments(layer_first, 2)[1].segments.back(), (Segment{0, 11 * bytes, bytes}));
    const PoolLayout page_first = lay_out(shape, layout_from_text("page_first").value(), 3).value();
    EXPECT_EQ(page_segments(page_first, 2)[1].segments, (std::vector<Segment>{{0, 10 * bytes, 2 * bytes}}));
  }
}

}  // namespace
}  // namespace tiercel
