#include "capi/arena_segments.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

#include "memory/record.h"
#include "model/layout.h"
#include "model/pool_layout.h"
#include "model/pool_shape.h"
#include "model/spec_json.h"

namespace tiercel::capi {
namespace {

// Two required groups in one class (the second follows the first and has a hole), a window, a state; two
// ranks.
StorageForm hybrid() {
  constexpr std::string_view kSpec = R"({"tiercel_spec": 1, "model_type": "t", "page_tokens": 4,
    "topology": {"tp": 2}, "groups": [
      {"kind": "full", "layers": [0, 2, 5], "components": [
        {"name": "k", "shape": [2, 4], "dtype": "bf16"}, {"name": "v", "shape": [2, 3], "dtype": "bf16"}]},
      {"kind": "window", "window_tokens": 9, "layers": [1], "components": [
        {"name": "k", "shape": [2, 4], "dtype": "bf16"}, {"name": "v", "shape": [2, 4], "dtype": "bf16"}]},
      {"kind": "state", "layers": [3, 4], "components": [
        {"name": "conv", "shape": [3], "dtype": "f32"}, {"name": "temporal", "shape": [2, 8], "dtype": "f32"}]},
      {"kind": "follower", "of": 0, "layers": [2], "components": [{"name": "i", "shape": [2, 2], "dtype": "u8"}]}]})";
  auto spec = read_spec_json(kSpec, "t");
  EXPECT_TRUE(spec) << spec.error().to_string();
  return make_storage_form(*std::move(spec)).value();
}

// The offset in the class's payload of each byte of a group's page, in the writer's own order: stated by the
// index order of the layout alone.
std::vector<std::uint64_t> payload_in_order(const StorageForm& form, const ClassForm& cls,
                                            std::uint32_t group, const Layout& layout) {
  const PoolLayout pool = lay_out(pool_shape(form, group), layout, 1).value();
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> by_place;
  for (std::size_t i = 0; i < pool.shape.tensors.size(); ++i) {
    const TensorShape& shape = pool.shape.tensors[i];
    const TensorPlace& place = pool.places[i];
    for (std::size_t l = 0; l < pool.shape.layers.size(); ++l) {
      std::uint64_t at = 0;
      for (const LayerRun& layer : cls.layers)
        for (const ComponentRun& run : layer.components)
          if (layer.layer == pool.shape.layers[l] && run.group == group && run.component == shape.component)
            at = run.offset;
      for (std::uint64_t t = 0; t < shape.tokens; ++t)
        for (std::uint64_t h = 0; h < shape.heads; ++h)
          for (std::uint64_t d = 0; d < shape.dim; ++d)
            for (std::uint64_t b = 0; b < shape.element_bytes; ++b)
              by_place[{place.first_buffer + static_cast<std::uint32_t>(l) * place.layer_buffers,
                        place.offset + l * place.layer + t * place.token + h * place.head + d * place.dim +
                            b}] = at++;
    }
  }
  std::vector<std::uint64_t> out;
  out.reserve(by_place.size());
  for (const auto& [place, offset] : by_place) out.push_back(offset);
  return out;
}

TEST(ArenaSegments, EveryNamedLayoutGivesEachByteOnceInTheWritersOrder) {
  const StorageForm form = hybrid();
  const FormTable table(FormId(1), form);
  for (const Layout& layout : named_layouts())
    for (const ClassForm& cls : form.classes) {
      SCOPED_TRACE(layout.name + " " + cls.name);
      const auto fragments = named_runs_of(table, cls.id.value(), layout.name);
      ASSERT_TRUE(fragments) << fragments.error().to_string();
      std::vector<std::uint64_t> got, wanted;
      for (const NamedRun& each : *fragments)
        for (std::uint64_t b = 0; b < each.length; ++b) got.push_back(each.offset + b);
      for (const std::uint32_t group : cls.groups) {
        const auto part = payload_in_order(form, cls, group, layout);
        wanted.insert(wanted.end(), part.begin(), part.end());
      }
      EXPECT_EQ(got, wanted);
      std::vector<std::uint64_t> whole(cls.record_bytes);
      std::iota(whole.begin(), whole.end(), 0U);
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, whole);
    }
}

TEST(ArenaSegments, PiecesAreNamedAsTheRunsOfTheFormAre) {
  const StorageForm form = hybrid();
  const FormTable table(FormId(1), form);
  for (const ClassForm& cls : form.classes)
    for (const std::string_view layout : {"record", "layer_first", "page_head"}) {
      const auto fragments = named_runs_of(table, cls.id.value(), layout).value();
      const auto& runs = table.classes[cls.id.value()].runs;
      for (const NamedRun& each : fragments)
        EXPECT_TRUE(std::any_of(runs.begin(), runs.end(),
                                [&](const tiercel_run_info& run) {
                                  return run.layer == each.layer && run.component == each.component &&
                                         run.offset <= each.offset &&
                                         each.offset + each.length <= run.offset + run.length;
                                }))
            << cls.name << " layer " << each.layer;
    }
}

TEST(ArenaSegments, ALayerFirstPageIsOnePieceForEachComponentOfEachLayer) {
  const FormTable table(FormId(1), hybrid());
  const auto fragments = named_runs_of(table, 0, "layer_first").value();
  ASSERT_EQ(fragments.size(), 7U) << "k and v of three layers, and i of one";
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(fragments[i].component, fragments[0].component);
  EXPECT_EQ(fragments[0].layer, 0U);
  EXPECT_EQ(fragments[2].layer, 5U);
}

TEST(ArenaSegments, LayoutsThatAreNoneAreRefusedInWords) {
  const FormTable table(FormId(1), hybrid());
  const auto unknown = named_runs_of(table, 0, "layer_frist");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Code::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("layer_first"), std::string::npos) << unknown.error().to_string();
}

TEST(ArenaSegments, PiecesEndWhereASpanDoesAndLieBehindTheHeader) {
  const std::vector<NamedRun> fragments = {{10, 20, 1, 7}, {0, 10, 0, 7}};
  const std::vector<ArenaSpan> spans = {{1000, 76}, {5000, 4}, {200, 100}};
  const auto pieces = file_segments(fragments, 64, spans, 1'000'000, 9);
  ASSERT_EQ(pieces.size(), 4U);
  const auto is = [&](std::size_t i, std::uint64_t offset, std::uint64_t length, std::uint64_t payload) {
    EXPECT_EQ(pieces[i].offset, offset) << i;
    EXPECT_EQ(pieces[i].length, length) << i;
    EXPECT_EQ(pieces[i].payload_offset, payload) << i;
    EXPECT_EQ(pieces[i].fd, 9);
    EXPECT_EQ(pieces[i].layer, 7U);
  };
  is(0, 1'001'074, 2, 10);
  is(1, 1'005'000, 4, 12);
  is(2, 1'000'200, 14, 16);
  is(3, 1'001'064, 10, 0);
  EXPECT_EQ(pieces[2].component, 1U);
}

TEST(ArenaSegments, OffsetsPastFourGibibytesAreExact) {
  constexpr std::uint64_t kFar = std::uint64_t{5} << 30;
  const std::vector<NamedRun> fragments = {{kFar, 8, 0, 0}};
  const std::vector<ArenaSpan> spans = {{std::uint64_t{1} << 40, 2 * kFar}};
  const auto pieces = file_segments(fragments, 64, spans, 4096, 3);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].offset, (std::uint64_t{1} << 40) + 4096 + 64 + kFar);
}

}  // namespace
}  // namespace tiercel::capi
