// Every pool of every published model in every named layout, with the models' real components and entries,
// against the brute-force statement of the index order. The models stand beside the checkout, in
// ../shared/models; without them the cases are counted as skipped, and our own specs remain.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include <gtest/gtest.h>

#include "model/copy_plan.h"
#include "model/hf_config.h"
#include "model/record_runs.h"
#include "model/spec_json.h"
#include "model/test_pools.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

std::filesystem::path source() { return TIERCEL_SOURCE_DIR; }

std::vector<std::filesystem::path> json_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent))
    if (entry.path().extension() == ".json" && entry.path().filename() != "expected.json")
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// The least page that the model takes, so that everything can be counted out.
std::optional<StorageForm> form_of(const std::filesystem::path& file, std::uint32_t tp) {
  const std::string text = text_of_file(file);
  for (const std::uint64_t page_tokens : {2U, 128U}) {
    HfOptions options;
    options.page_tokens = page_tokens;
    options.tp = tp;
    const auto spec = is_spec_json(text) ? read_spec_json(text, "spec", page_tokens)
                                         : read_hf_config(text, "config", options);
    if (spec) return make_storage_form(*spec).value();
  }
  return std::nullopt;
}

// The same pool with its elements run together along `dim`, which is the innermost axis of every named layout
// but one, and of that one for K: what is left is what layouts can get wrong.
PoolShape with_short_dims(PoolShape shape) {
  for (TensorShape& tensor : shape.tensors) {
    if (tensor.dim % 2 != 0) continue;
    tensor.element_bytes *= tensor.dim / 2;
    tensor.dim = 2;
  }
  return shape;
}

std::uint64_t elements(const PoolShape& shape) {
  std::uint64_t count = 0;
  for (const TensorShape& tensor : shape.tensors)
    count += tensor.tokens * tensor.heads * tensor.dim * shape.layers.size();
  return count;
}

// Few enough layers and channels to be counted out, the first and the last layer among them; the heads of
// attention are all there.
PoolShape thinned(PoolShape shape) {
  constexpr std::uint64_t kElementsMax = 12'000;
  for (TensorShape& tensor : shape.tensors) {
    if (tensor.heads <= 256) continue;
    tensor.heads = 256;
    tensor.sections.clear();
  }
  while (elements(shape) > kElementsMax && shape.layers.size() > 3)
    shape.layers.erase(shape.layers.begin() + static_cast<std::ptrdiff_t>(shape.layers.size() / 2));
  return shape;
}

void expect_places(const PoolLayout& pool, const CountedOut& counted) {
  for (const auto& [element, place] : counted.places()) {
    const auto [t, layer, page, token, head, dim] = element;
    const TensorPlace& at = pool.places[t];
    ASSERT_EQ(at.first_buffer + layer * at.layer_buffers, place.first);
    ASSERT_EQ(
        at.offset + layer * at.layer + page * at.page + token * at.token + head * at.head + dim * at.dim,
        place.second);
  }
}

// What a plan moves, counted in elements: each source byte of page 1 to the place of the same element of page
// 0.
void expect_plan(const CopyPlan& plan, const CountedOut& from, const CountedOut& to, const PoolShape& shape) {
  std::map<Place, std::pair<Place, std::uint64_t>> wanted;  // target → source and bytes
  for (const auto& [element, place] : from.places()) {
    auto [t, layer, page, token, head, dim] = element;
    if (page == 1)
      wanted[to.places().at({t, layer, 0, token, head, dim})] = {place, shape.tensors[t].element_bytes};
  }
  std::size_t moved = 0;
  for (const LayerCopy& layer : plan.layers)
    for (const CopyNest& nest : layer.nests)
      for (std::uint64_t fragment = 0; fragment < nest.fragments(); ++fragment) {
        std::uint64_t s = nest.source.offset + nest.source.page;
        std::uint64_t t = nest.target.offset;
        std::uint64_t rest = fragment;
        for (std::uint32_t loop = nest.loop_count; loop-- > 0;) {
          s += rest % nest.loops[loop].count * nest.loops[loop].source_step;
          t += rest % nest.loops[loop].count * nest.loops[loop].target_step;
          rest /= nest.loops[loop].count;
        }
        for (std::uint64_t done = 0; done < nest.length; ++moved) {
          const auto at = wanted.find({nest.target.buffer, t + done});
          ASSERT_NE(at, wanted.end());
          ASSERT_EQ(at->second.first, Place(nest.source.buffer, s + done));
          done += at->second.second;
          ASSERT_LE(done, nest.length);
        }
      }
  ASSERT_EQ(moved, wanted.size()) << "every element once";
}

// Records of a class are exactly what its pools' runs say, each byte once.
void expect_records(const StorageForm& form, const Layout& layout) {
  for (const ClassForm& cls : form.classes) {
    std::vector<RecordRun> runs;
    for (const std::uint32_t group : cls.groups) {
      const auto pool = record_runs(cls, lay_out(pool_shape(form, group), layout, 3).value());
      ASSERT_TRUE(pool) << pool.error().message;
      runs.insert(runs.end(), pool->begin(), pool->end());
    }
    std::sort(runs.begin(), runs.end(),
              [](const auto& a, const auto& b) { return a.payload_offset < b.payload_offset; });
    std::uint64_t next = 0;
    for (const RecordRun& run : runs) {
      ASSERT_EQ(run.payload_offset, next);
      next += run.length;
    }
    ASSERT_EQ(next, cls.record_bytes);
  }
}

void expect_model(const StorageForm& form) {
  for (const PoolShape& whole : pool_shapes(form)) {
    ASSERT_EQ(whole.page_bytes(), group_bytes(form.spec, form.spec.groups[whole.group]));
    const PoolShape shape = thinned(with_short_dims(whole));
    const Layout record = layout_from_text("record").value();
    const PoolLayout base = lay_out(shape, record, 2).value();
    const CountedOut base_counted(shape, record, 2);
    for (const Layout& layout : named_layouts()) {
      const PoolLayout pool = lay_out(shape, layout, 2).value();
      const CountedOut counted(shape, layout, 2);
      expect_places(pool, counted);
      expect_plan(plan_copy(pool, base).value(), counted, base_counted, shape);
      expect_plan(plan_copy(base, pool).value(), base_counted, counted, shape);
      // Of the real pool: sizes and segments.
      const PoolLayout real = lay_out(whole, layout, 3).value();
      EXPECT_EQ(total_bytes(real), 3 * whole.page_bytes());
      std::uint64_t bytes = 0;
      for (const PageObject& object : page_segments(real, 2))
        for (const Segment& segment : object.segments) bytes += segment.length;
      EXPECT_EQ(bytes, whole.page_bytes());
    }
  }
}

TEST(PoolModels, EveryPoolOfEveryPublishedModelIsWhereTheIndexOrderSays) {
  const auto files = json_files(source() / ".." / "shared" / "models");
  if (files.empty()) std::printf("skipped: 18 models, ../shared is not present\n");
  int models = 0;
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename().string());
    const auto form = form_of(file, 1);
    ASSERT_TRUE(form) << file;
    expect_model(*form);
    for (const Layout& layout : named_layouts()) expect_records(*form, layout);
    if (HasFatalFailure()) return;
    ++models;
  }
  if (!files.empty()) {
    EXPECT_GE(models, 18);
  }
}

TEST(PoolModels, EveryPoolOfOurOwnSpecsIsWhereTheIndexOrderSays) {
  int models = 0;
  for (const auto& file : json_files(source() / "examples" / "specs")) {
    SCOPED_TRACE(file.filename().string());
    const auto form = form_of(file, 1);
    ASSERT_TRUE(form);
    expect_model(*form);
    for (const Layout& layout : named_layouts()) expect_records(*form, layout);
    if (HasFatalFailure()) return;
    ++models;
  }
  EXPECT_GE(models, 2);
}

// The shapes that a file gives for several sizes of tensor parallelism are cuts of one whole: every pool of a
// published model goes from any of them to any other.
TEST(PoolModels, EveryPublishedModelGoesFromAnyShardingToAnyOther) {
  const Layout layout = layout_from_text("page_head").value();
  int plans = 0;
  const auto files = json_files(source() / ".." / "shared" / "models");
  if (files.empty()) std::printf("skipped: 18 models, ../shared is not present\n");
  for (const auto& file : files) {
    SCOPED_TRACE(file.filename().string());
    const auto whole = form_of(file, 1);
    ASSERT_TRUE(whole);
    for (const std::uint32_t a : {1U, 2U, 4U, 8U})
      for (const std::uint32_t b : {1U, 2U, 4U, 8U}) {
        const auto from = form_of(file, a);
        const auto to = form_of(file, b);
        if (!from || !to) continue;  // heads that this size does not divide
        for (std::uint32_t group = 0; group < whole->spec.groups.size(); ++group)
          for (const std::uint32_t rank : {0U, b - 1}) {
            const PoolLayout target = lay_out(pool_shape(*to, group), layout, 1).value();
            const auto plan =
                plan_reshard(pool_shape(*whole, group), lay_out(pool_shape(*from, group), layout, 1).value(),
                             target, {a, b, rank});
            ASSERT_TRUE(plan) << plan.error().message;
            EXPECT_EQ(plan->granule_bytes(), target.shape.page_bytes());
            ++plans;
          }
      }
  }
  if (!files.empty()) {
    EXPECT_GE(plans, 1000);
  }
}

}  // namespace
}  // namespace tiercel
