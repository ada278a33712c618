#include "model/spec_json.h"

#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/storage_form.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

std::filesystem::path examples() { return std::filesystem::path(TIERCEL_SOURCE_DIR) / "examples" / "specs"; }

ModelSpec example(const char* name) {
  auto spec = read_spec_json(text_of_file(examples() / name), name);
  EXPECT_TRUE(spec) << spec.error().message;
  return *std::move(spec);
}

TEST(SpecJson, EveryExampleIsReadAndWrittenBackToTheSameSpec) {
  std::set<std::string> kinds;
  for (const auto& entry : std::filesystem::directory_iterator(examples())) {
    const ModelSpec spec = example(entry.path().filename().c_str());
    for (const Group& group : spec.groups) kinds.insert(std::string(kind_name(group.kind)));
    const auto again = read_spec_json(write_spec_json(spec), "again");
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, spec) << entry.path();
    EXPECT_TRUE(make_storage_form(spec)) << entry.path();
    EXPECT_TRUE(is_spec_json(text_of_file(entry.path())));
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"follower", "full", "state", "window"}))
      << "a kind without an example";
}

// 48 layers; the state group exactly that of Qwen3-Next: conv 8192 x 3 bf16 and temporal 32 x 128 x 128 f32.
TEST(SpecJson, TheHybridExampleHasTheSizesThatItStates) {
  const ModelSpec spec = example("hybrid.json");
  ASSERT_EQ(spec.groups.size(), 3U);
  EXPECT_EQ(spec.page_tokens, 512U);
  EXPECT_EQ(spec.groups[0].layers.size(), 4U);
  EXPECT_EQ(spec.groups[1].layers.size(), 8U);
  EXPECT_EQ(spec.groups[2].layers.size(), 36U);
  EXPECT_EQ(group_bytes(spec, spec.groups[0]), 4U * 512 * (2 * 2 * 256 * 2));
  EXPECT_EQ(group_bytes(spec, spec.groups[1]), 8U * 512 * (2 * 2 * 256 * 2));
  EXPECT_EQ(group_bytes(spec, spec.groups[2]), 36U * (8192 * 3 * 2 + 32 * 128 * 128 * 4));
  const StorageForm form = make_storage_form(spec).value();
  EXPECT_EQ(form.classes[1].window_pages(), 8U);
}

TEST(SpecJson, AnotherPageSizeChangesPagesAndNoSnapshotsOrOpaqueRecords) {
  const auto hybrid = read_spec_json(text_of_file(examples() / "hybrid.json"), "h", 64).value();
  EXPECT_EQ(hybrid.page_tokens, 64U);
  EXPECT_EQ(group_bytes(hybrid, hybrid.groups[2]), group_bytes(example("hybrid.json"), hybrid.groups[2]));
  const auto opaque = read_spec_json(text_of_file(examples() / "opaque.json"), "o", 512).value();
  EXPECT_EQ(group_bytes(opaque, opaque.groups[0]), 1048576U);
  const auto none = read_spec_json(text_of_file(examples() / "hybrid.json"), "h", 0);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("page_tokens"));
}

struct Fault {
  const char* pointer;  // what is replaced; the value "-" removes it
  Json value;
  const char* names;
};

TEST(SpecJson, EachMistakeIsNamed) {
  const Fault faults[] = {
      {"/tiercel_spec", 2, "tiercel_spec"},
      {"/tiercel_spec", "-", "tiercel_spec"},
      {"/model_type", "-", "model_type"},
      {"/model_type", 3, "model_type"},
      {"/page_tokens", "-", "page_tokens"},
      {"/page_tokens", 0, "page_tokens"},
      {"/page_tokens", -5, "page_tokens"},
      {"/page_tokens", 1.5, "page_tokens"},
      {"/page_tokens", true, "page_tokens"},
      {"/page_tokens", UINT64_MAX, "page_tokens"},
      {"/pages", 1, "pages: unknown key"},
      {"/topology/tp", 0, "tp"},
      {"/topology/tp", "2", "topology.tp"},
      {"/topology/dp", 2, "topology.dp: unknown key"},
      {"/topology", 2, "topology"},
      {"/groups", "-", "groups"},
      {"/groups", Json::object(), "groups"},
      {"/groups", Json::array(), "groups"},
      {"/groups/1", 7, "groups[1]"},
      {"/groups/0/kind", "fool", "groups[0].kind"},
      {"/groups/0/kind", "-", "groups[0].kind"},
      {"/groups/0/windows", 1, "groups[0].windows: unknown key"},
      {"/groups/0/window_tokens", 8, "groups[0].window_tokens: a full group has none"},
      {"/groups/1/window_tokens", "-", "groups[1].window_tokens"},
      {"/groups/1/tokens_per_entry", 4, "groups[1].tokens_per_entry"},
      {"/groups/2/optional", true, "groups[2].optional"},
      {"/groups/0/tokens_per_entry", 5, "tokens_per_entry"},
      {"/groups/3/of", 1, "of"},
      {"/groups/3/of", 77, "of"},
      {"/groups/3/of", "full", "groups[3].of"},
      {"/groups/4/optional", 1, "groups[4].optional"},
      {"/groups/0/replicated", "yes", "groups[0].replicated"},
      {"/groups/0/layers", "-", "groups[0].layers"},
      {"/groups/0/layers", 7, "groups[0].layers"},
      {"/groups/0/layers", Json::array(), "groups[0]"},
      {"/groups/0/layers", {7, 3}, "groups[0].layers[1]"},
      {"/groups/0/layers", {3, 3}, "groups[0].layers[1]"},
      {"/groups/0/layers", Json::array({Json::array({5, 3})}), "groups[0].layers[0]"},
      {"/groups/0/layers", Json::array({Json::array({1, 2, 3})}), "groups[0].layers[0]"},
      {"/groups/0/layers", Json::array({Json::array({0, 4000000000U})}), "groups[0].layers[0]"},
      {"/groups/0/layers", {"1"}, "groups[0].layers[0]"},
      {"/groups/0/components", Json::array(), "components"},
      {"/groups/0/components/0", 5, "groups[0].components[0]"},
      {"/groups/0/components/0/name", "K", "name"},
      {"/groups/0/components/0/name", "-", "groups[0].components[0].name"},
      {"/groups/0/components/0/dtype", "int4", "groups[0].components[0].dtype"},
      {"/groups/0/components/0/dtype", "-", "groups[0].components[0].dtype"},
      {"/groups/0/components/0/shape", Json::array(), "shape"},
      {"/groups/0/components/0/shape", {0}, "component"},
      {"/groups/0/components/0/shape", {-1}, "groups[0].components[0].shape[0]"},
      {"/groups/0/components/0/shape", {1ULL << 40, 1ULL << 40}, "groups[0].components[0].shape"},
      {"/groups/0/components/0/shape", {1, 1, 1, 1, 1, 1, 1, 1, 1}, "shape"},
      {"/groups/0/components/0/sections", {1, 1}, "sections 1 + 1 must be together the first"},
      {"/groups/0/components/0/sections", 3, "groups[0].components[0].sections"},
      {"/groups/0/components/0/opaque_bytes", 4, "groups[0].components[0].shape"},
      {"/groups/0/components/0/bytes", 4, "groups[0].components[0].bytes: unknown key"},
      {"/no_cache_layers", {3}, "no_cache_layers"},
      {"/draft_layers", 9, "draft_layers"},
  };
  const Json whole = Json::parse(text_of_file(examples() / "every_kind.json"));
  for (const Fault& fault : faults) {
    Json changed = whole;
    const Json::json_pointer pointer(fault.pointer);
    if (fault.value == "-")
      changed.at(pointer.parent_pointer()).erase(pointer.back());
    else
      changed[pointer] = fault.value;
    const auto spec = read_spec_json(changed.dump(), "spec file");
    ASSERT_FALSE(spec) << fault.pointer << " = " << fault.value;
    EXPECT_THAT(spec.error().message, StartsWith("spec file: "));
    EXPECT_THAT(spec.error().message, HasSubstr(fault.names)) << fault.pointer << " = " << fault.value;
    EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
  }
}

TEST(SpecJson, OnlyAnObjectWithTheVersionKeyIsASpec) {
  EXPECT_TRUE(is_spec_json(R"({"tiercel_spec": "whatever"})"));
  for (const char* other : {"", "{", "[]", "{}", R"({"model_type": "llama"})", R"(["tiercel_spec"])"})
    EXPECT_FALSE(is_spec_json(other)) << other;
  for (const char* bad : {"", "[]", "{", R"({"tiercel_spec": 1, "tiercel_spec": 1})"})
    EXPECT_FALSE(read_spec_json(bad, "f")) << bad;
}

}  // namespace
}  // namespace tiercel
