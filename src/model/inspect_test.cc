#include "model/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/spec_json.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

ModelSpec example(const std::string& name) {
  const auto text = text_of_file(std::string(TIERCEL_SOURCE_DIR) + "/examples/specs/" + name);
  return read_spec_json(text, name).value();
}

TEST(Inspect, JsonHasEachFieldWhereItsKindHasIt) {
  const std::string text = inspect_json(example("every_kind.json"));
  EXPECT_EQ(text.find('\n'), std::string::npos) << "one object, one line";
  const Json json = Json::parse(text);
  EXPECT_EQ(json["groups"][0], Json::parse(R"({"kind": "full", "layers": [3, 7], "replicated": true,
      "components": [{"name": "latent", "shape": [40], "dtype": "bf16", "bytes_per_layer": 80}],
      "page_bytes": 10240})"));
  EXPECT_EQ(json["groups"][1]["window_tokens"], 100);
  EXPECT_EQ(json["groups"][1]["page_bytes"], 8192);
  EXPECT_EQ(json["groups"][2]["snapshot_bytes"], 4 * (96 * 3 * 2 + 2 * 16 * 16 * 4));
  EXPECT_FALSE(json["groups"][2].contains("page_bytes"));
  EXPECT_EQ(json["groups"][3]["of"], "full");
  EXPECT_FALSE(json["groups"][3].contains("optional"));
  EXPECT_EQ(json["groups"][4]["optional"], true);
  EXPECT_EQ(json["no_cache_layers"], Json::array({8}));
  EXPECT_EQ(json["draft_layers"], Json::array({9}));
  EXPECT_EQ(json["tp"], 2);
  EXPECT_EQ(json["page_tokens"], 64);
}

TEST(Inspect, JsonGivesTheRatioOfCompressedGroupsOnly) {
  ModelSpec spec = example("full.json");
  EXPECT_FALSE(Json::parse(inspect_json(spec))["groups"][0].contains("tokens_per_entry"));
  spec.groups[0].tokens_per_entry = 4;
  EXPECT_EQ(Json::parse(inspect_json(spec))["groups"][0]["tokens_per_entry"], 4);
}

TEST(Inspect, JsonOfOpaqueRecordsHasNoShape) {
  const Json component = Json::parse(inspect_json(example("opaque.json")))["groups"][0]["components"][0];
  EXPECT_EQ(component, Json::parse(R"({"name": "record", "opaque": true, "bytes_per_layer": 1048576})"));
}

TEST(Inspect, TextNamesGroupsClassesAndTheNamespace) {
  const StorageForm form = make_storage_form(example("hybrid.json")).value();
  const std::string text = inspect_text(form, false);
  for (const char* part :
       {"hybrid-composite: pages of 512 tokens, tp 1", "window 4096",
        "conv [8192, 3] bf16, temporal [32, 128, 128] f32", "layers of 2: 0-2, 4-6,", "window4096",
        "last 8 pages before a resume point", "1 GiB holds 256 pages", "131072 tokens",
        "model=hybrid-composite", "form_version=1", "storage form sha256:"})
    EXPECT_THAT(text, HasSubstr(part));
  EXPECT_THAT(text, Not(HasSubstr("\x1b"))) << "colours only where asked for";
  EXPECT_THAT(inspect_text(form, true), HasSubstr("\x1b[1m"));
}

TEST(Inspect, NamesFromOutsideCannotForgeLines) {
  ModelSpec spec = example("full.json");
  spec.model_type = "a\nform_version=2\x1b[2J";
  const std::string text = inspect_text(make_storage_form(spec).value(), false);
  EXPECT_THAT(text, Not(HasSubstr("\nform_version=2")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace tiercel
