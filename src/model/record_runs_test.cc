#include "model/record_runs.h"

#include <gtest/gtest.h>

#include "model/test_specs.h"

namespace tiercel {
namespace {

TEST(RecordRuns, APoolsBytesStandWhereTheRecordOrderPutsThem) {
  const StorageForm made = indexed_form();
  const ClassForm& cls = made.classes.at(0);
  const std::uint64_t head = 16;       // bytes
  const std::uint64_t run = 4 * head;  // tokens × heads
  const auto kv_runs =
      record_runs(cls, lay_out(pool_shape(made, 0), layout_from_text("layer_first").value(), 3).value());
  ASSERT_TRUE(kv_runs);
  ASSERT_EQ(kv_runs->size(), 4U);      // layer 0: k, v; layer 2: k, v
  const std::uint64_t half = 6 * run;  // layers × pages: where v begins
  EXPECT_EQ((*kv_runs)[0], (RecordRun{0, run, 0, 0, 0, run}));
  EXPECT_EQ((*kv_runs)[1], (RecordRun{run, run, 1, 0, half, run}));
  EXPECT_EQ((*kv_runs)[2], (RecordRun{2 * run, run, 0, 0, 3 * run, run}));
  EXPECT_EQ((*kv_runs)[3], (RecordRun{3 * run, run, 1, 0, half + 3 * run, run}));
  const auto index_runs =
      record_runs(cls, lay_out(pool_shape(made, 1), layout_from_text("page_first").value(), 3).value());
  ASSERT_TRUE(index_runs);
  ASSERT_EQ(index_runs->size(), 1U);
  EXPECT_EQ((*index_runs)[0], (RecordRun{4 * run, 8, 0, 0, 0, 8}));  // behind k and v of the same layer
  EXPECT_EQ(cls.record_bytes, 4 * run + 8);
}

TEST(RecordRuns, HeadsOutsideOfTokensAreCutIntoTheRecordsOrder) {
  const StorageForm made = indexed_form();
  const auto runs = record_runs(
      made.classes.at(0), lay_out(pool_shape(made, 0), layout_from_text("page_head").value(), 1).value());
  ASSERT_TRUE(runs);
  EXPECT_EQ(runs->size(), 2 * 2 * 2 * 2U);  // layers, components, tokens, heads: no two meet in both orders
  for (std::size_t i = 1; i < runs->size(); ++i)
    EXPECT_EQ((*runs)[i].payload_offset, (*runs)[i - 1].payload_offset + (*runs)[i - 1].length);
}

TEST(RecordRuns, PoolsOfOtherModelsAreRefusedInWords) {
  const StorageForm made = indexed_form();
  const Layout layout = layout_from_text("layer_first").value();
  PoolShape shape = pool_shape(made, 0);
  const auto refused = [&](const PoolShape& pool, const char* words) {
    const auto runs = record_runs(made.classes.at(0), lay_out(pool, layout, 1).value());
    ASSERT_FALSE(runs) << words;
    EXPECT_EQ(runs.error().code, Code::kInvalidArgument);
    EXPECT_NE(runs.error().message.find(words), std::string::npos) << runs.error().message;
  };
  PoolShape other = shape;
  other.group = 7;
  refused(other, "its group 7 is none of the class's");
  other = shape;
  other.tensors[0].heads = 4;
  refused(other, "component k of layer 0 has 128 bytes a page, in the class 64");
  other = shape;
  other.layers = {0, 1};
  refused(other, "component k of layer 1 has 64 bytes a page, in the class none");
}

TEST(RecordRuns, MoreThanAnybodyCouldUseAreRefusedBeforeTheyAreMade) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 2;
  spec.groups.push_back(
      group(FullKind{}, Need::kRequired, {0}, {component("v", {1, 2 * kRecordRunsMax}, DType::kU8)}));
  const StorageForm form = make_storage_form(spec).value();
  const auto runs_in = [&](const char* layout) {
    return record_runs(form.classes.at(0),
                       lay_out(pool_shape(form, 0), layout_from_text(layout).value(), 1).value());
  };
  EXPECT_EQ(runs_in("llama")->size(), 1U);
  const auto transposed = runs_in("llama_v_transposed");
  ASSERT_FALSE(transposed);
  EXPECT_EQ(transposed.error().code, Code::kResourceExhausted);
}

TEST(RecordRuns, AComponentWithoutBytesHasNoRun) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 2;
  spec.groups.push_back(
      group(StateKind{}, Need::kSparse, {0, 1},
            {component("conv", {6, 3}, DType::kBf16), component("temporal", {0, 4, 4}, DType::kF32)}));
  const auto made = make_storage_form(spec);
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->classes.at(0).record_bytes, 2 * 6 * 3 * 2U);
  EXPECT_EQ(made->classes.at(0).layers.at(1).components.size(), 1U);
  const PoolLayout pool =
      lay_out(pool_shape(*made, 0), layout_from_text("page_first_kv_split").value(), 4).value();
  EXPECT_EQ(pool.buffer_bytes, (std::vector<std::uint64_t>{288, 0}));
  EXPECT_TRUE(page_segments(pool, 3).at(1).segments.empty());
  EXPECT_EQ(record_runs(made->classes.at(0), pool)->size(), 1U);
  spec.groups[0].components[0] = component("conv", {0, 3}, DType::kBf16);
  const auto empty = make_storage_form(spec);
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("bytes must be positive in at least one"), std::string::npos)
      << empty.error().message;
}

}  // namespace
}  // namespace tiercel
