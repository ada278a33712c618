#include "model/storage_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/test_specs.h"

namespace tiercel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec spec_of(std::vector<Group> groups, std::uint32_t tp = 2) {
  ModelSpec spec;
  spec.model_type = "test";
  spec.page_tokens = 16;
  spec.topology = {tp, 1, 1};
  spec.groups = std::move(groups);
  return spec;
}
std::vector<std::string> names_of(const StorageForm& form) {
  std::vector<std::string> names;
  names.reserve(form.classes.size());
  for (const ClassForm& each : form.classes) names.push_back(each.name);
  return names;
}

// Every retention, sharded and replicated.
ModelSpec everything() {
  return spec_of({
      group(FullKind{}, Need::kRequired, {1, 3}, kv()),
      group(FullKind{}, Need::kRequired, {2}, {component("latent", {12}, DType::kBf16)}, true),
      group(WindowKind{100}, Need::kSparse, {0}, kv()),
      group(WindowKind{33}, Need::kSparse, {2}, kv()),
      group(WindowKind{100}, Need::kSparse, {5}, kv(1)),
      group(StateKind{}, Need::kSparse, {4}, {component("temporal", {4, 4}, DType::kF32)}),
      group(FollowerKind{1}, Need::kRequired, {2}, {component("index_k", {16}, DType::kFp8)}, true),
      group(FollowerKind{0}, Need::kOptional, {6}, kv()),
  });
}

TEST(StorageForm, GroupsOfOneRetentionAndShardingFormOneClassInAFixedOrder) {
  const StorageForm form = make_storage_form(everything()).value();
  EXPECT_THAT(names_of(form),
              ElementsAre("full", "full.replicated", "window33", "window100", "state", "draft"));
  EXPECT_THAT(form.classes[1].groups, ElementsAre(1U, 6U))
      << "index keys are required: they join the full groups";
  EXPECT_THAT(form.classes[3].groups, ElementsAre(2U, 4U)) << "equal windows, unequal shapes: one class";
  for (std::size_t i = 0; i < form.classes.size(); ++i) EXPECT_EQ(form.classes[i].id.value(), i);
  EXPECT_TRUE(form.classes[0].required());
  EXPECT_TRUE(form.classes[2].sparse() && form.classes[2].is_window());
  EXPECT_TRUE(form.classes[4].sparse() && form.classes[4].is_state());
  EXPECT_TRUE(form.classes[5].optional());
  EXPECT_EQ(form.classes[0].shards, 2U);
  EXPECT_EQ(form.classes[1].shards, 1U);
  EXPECT_TRUE(form.has_required());
}

TEST(StorageForm, RecordsAreDenseAndOneLayerIsOneRun) {
  const StorageForm form = make_storage_form(everything()).value();
  const ClassForm& full = form.classes[0];
  EXPECT_EQ(full.record_bytes, 2U * 64 * 16);
  EXPECT_EQ(full.set_bytes(), 2U * full.record_bytes);
  ASSERT_EQ(full.layers.size(), 2U);
  EXPECT_EQ(full.layers[1], (LayerRun{3, 1024, 1024, {{0, 0, 1024, 512}, {0, 1, 1536, 512}}}));
  const ClassForm& replicated = form.classes[1];
  EXPECT_THAT(replicated.layers, ElementsAre(LayerRun{2, 0, 640, {{1, 0, 0, 384}, {6, 0, 384, 256}}}))
      << "a layer of two groups is still one run";
  EXPECT_EQ(form.page_bytes_required(), full.set_bytes() + replicated.set_bytes());
  for (const ClassForm& each : form.classes) {
    std::uint64_t end = 0;
    for (const LayerRun& run : each.layers) {
      EXPECT_EQ(run.offset, end);
      for (const ComponentRun& part : run.components) {
        EXPECT_EQ(part.offset, end);
        end += part.length;
      }
      EXPECT_EQ(end, run.offset + run.length);
    }
    EXPECT_EQ(end, each.record_bytes);
  }
}

TEST(StorageForm, RecordBytesAreTheGroupBytes) {
  const StorageForm form = make_storage_form(everything()).value();
  for (const ClassForm& each : form.classes) {
    std::uint64_t bytes = 0;
    for (const std::uint32_t index : each.groups) bytes += group_bytes(form.spec, form.spec.groups[index]);
    EXPECT_EQ(bytes, each.record_bytes) << each.name;
  }
}

TEST(StorageForm, AWindowNeedsThePagesThatHoldItsTokensButOne) {
  for (const auto& [tokens, pages] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{{1, 0},
                                                                                          {2, 1},
                                                                                          {17, 1},
                                                                                          {18, 2},
                                                                                          {32, 2},
                                                                                          {33, 2},
                                                                                          {34, 3},
                                                                                          {4096, 256},
                                                                                          {4097, 256},
                                                                                          {4098, 257}}) {
    const StorageForm form =
        make_storage_form(spec_of({group(WindowKind{tokens}, Need::kSparse, {0}, kv())})).value();
    EXPECT_EQ(form.classes[0].window_pages(), pages) << tokens;
    EXPECT_FALSE(form.has_required());
    EXPECT_EQ(form.page_bytes_required(), 0U);
  }
}

TEST(StorageForm, AReplicatedFormIsTheSameForEveryTopology) {
  const auto latents = [](std::uint32_t tp) {
    return make_storage_form(spec_of({group(FullKind{}, Need::kRequired, {0},
                                            {component("latent", {8}, DType::kBf16)}, true)},
                                     tp))
        .value();
  };
  EXPECT_EQ(latents(2), latents(8));
  EXPECT_EQ(first_difference(latents(2), latents(8)), std::nullopt);
}

TEST(StorageForm, TheModelsNameIsNotPartOfTheForm) {
  ModelSpec other = everything();
  other.model_type = "other";
  EXPECT_EQ(make_storage_form(everything()).value(), make_storage_form(other).value());
}

TEST(StorageForm, DifferencesAreNamed) {
  struct Case {
    void (*change)(ModelSpec&);
    const char* name;
  };
  const Case cases[] = {
      {[](ModelSpec& s) { s.page_tokens = 32; }, "page_tokens"},
      {[](ModelSpec& s) { s.topology.tp = 4; }, "topology.tp"},
      {[](ModelSpec& s) { s.topology.cp = 2; }, "topology.cp"},
      {[](ModelSpec& s) { s.groups.pop_back(); }, "class draft"},
      {[](ModelSpec& s) { s.groups[3].kind = WindowKind{64}; }, "class window33"},
      {[](ModelSpec& s) {
         s.groups[0].layers = {1, 4};
       },
       "class full group0 layers"},
      {[](ModelSpec& s) { s.groups[0].components = kv(4); }, "class full group0 k"},
      {[](ModelSpec& s) {
         s.groups[0].components[1] = component("v", {2, 8}, DType::kFp16);
       },
       "class full group0 v"},
      {[](ModelSpec& s) {
         s.groups[5].components[0] = component("temporal", {4, 8}, DType::kF32);
       },
       "class state group0 temporal"},
      {[](ModelSpec& s) {
         s.groups[5].components = {{"blob", {}, std::nullopt, 64}};
       },
       "class state group0 temporal"},
      {[](ModelSpec& s) {
         s.groups[5].components.push_back({"blob", {}, std::nullopt, 64});
       },
       "class state group0 blob"},
  };
  const StorageForm form = make_storage_form(everything()).value();
  for (const Case& each : cases) {
    ModelSpec spec = everything();
    each.change(spec);
    const StorageForm other = make_storage_form(spec).value();
    EXPECT_FALSE(form == other) << each.name;
    EXPECT_THAT(first_difference(form, other), ::testing::Optional(HasSubstr(each.name)));
    EXPECT_TRUE(first_difference(other, form).has_value());
  }
}

TEST(StorageForm, SizesThatPassTheLimitOnlyTogetherAreRefused) {
  // Each group fits; two of them, or the shards of one, do not.
  const auto huge = [](std::uint64_t bytes) {
    return std::vector<Component>{{"blob", {}, std::nullopt, bytes}};
  };
  const auto together = make_storage_form(spec_of({group(FullKind{}, Need::kRequired, {0}, huge(1ULL << 62)),
                                                   group(FullKind{}, Need::kRequired, {1}, huge(1ULL << 62))},
                                                  1));
  ASSERT_FALSE(together);
  EXPECT_THAT(together.error().message, HasSubstr("class full"));
  const auto shards =
      make_storage_form(spec_of({group(FullKind{}, Need::kRequired, {0}, huge(1ULL << 62))}, 2));
  ASSERT_FALSE(shards);
  EXPECT_THAT(shards.error().message, HasSubstr("2 shards"));
  const auto classes = make_storage_form(spec_of({group(FullKind{}, Need::kRequired, {0}, huge(1ULL << 62)),
                                                  group(StateKind{}, Need::kSparse, {1}, huge(1ULL << 62))},
                                                 1));
  ASSERT_FALSE(classes);
  EXPECT_THAT(classes.error().message, HasSubstr("all classes"));
}

TEST(StorageForm, MoreThan32ClassesAreRefused) {
  std::vector<Group> groups;
  for (std::uint32_t i = 0; i < 33; ++i) groups.push_back(group(WindowKind{i + 1}, Need::kSparse, {i}, kv()));
  const auto form = make_storage_form(spec_of(groups));
  ASSERT_FALSE(form);
  EXPECT_THAT(form.error().message, HasSubstr("33 classes"));
  groups.pop_back();
  EXPECT_EQ(make_storage_form(spec_of(groups)).value().classes.size(), 32U);
}

}  // namespace
}  // namespace tiercel
