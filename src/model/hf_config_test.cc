#include "model/hf_config.h"

#include <map>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/json_text.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

Json fixture(const std::string& name) {
  const auto text = text_of_file(std::string(TIERCEL_SOURCE_DIR) + "/tests/fixtures/models/" + name);
  return Json::parse(text);
}

HfOptions options_of(const Json& each) {
  const Json given = each.value("options", Json::object());
  HfOptions options;
  options.page_tokens = given.value("page_tokens", std::uint64_t{16});
  options.tp = given.value("tp", std::uint64_t{1});
  options.dtype = dtype_from_name(given.value("dtype", "bf16")).value_or(DType::kU8);  // none reads as u8
  if (given.contains("state_dtype"))
    options.state_dtype = dtype_from_name(given["state_dtype"].get<std::string>());
  return options;
}

Result<ModelSpec> read(const Json& config, const Json& each) {
  const HfOptions options = options_of(each);
  auto base = read_hf_config(config.dump(), "config.json", options);
  if (!base || !each.contains("draft_config")) return base;
  auto draft = read_hf_config(each["draft_config"].dump(), "draft.json", options);
  if (!draft) return draft;
  return with_draft(*std::move(base), *draft, "draft.json");
}

Json with_type(Json config, const std::string& model_type) {
  config["model_type"] = model_type;
  return config;
}

std::string ids(const std::vector<std::uint32_t>& layers) {
  std::string text;
  for (const auto& [first, last] : runs_of(layers))
    text += fmt::format("{}{}", text.empty() ? "" : ",",
                        first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  return text;
}

// A group as good.json writes it.
std::string text_of(const ModelSpec& spec, const Group& group) {
  std::string text(kind_name(group.kind));
  if (const auto* window = std::get_if<WindowKind>(&group.kind)) text += fmt::format(" {}", window->tokens);
  if (group.tokens_per_entry > 1) text += fmt::format(" 1:{}", group.tokens_per_entry);
  if (group.need == Need::kOptional) text += " optional";
  if (group.replicated) text += " same";
  text += fmt::format(" {}:", ids(group.layers));
  for (const Component& component : group.components)
    text += fmt::format(" {}[{}]{}", component.name, fmt::join(component.shape, ","),
                        component.dtype ? dtype_name(*component.dtype) : "?");
  return text + fmt::format(" = {}", group_bytes(spec, group));
}

TEST(HfConfig, EveryModelTypeGivesTheGeometryWorkedOutByHand) {
  std::set<std::string> seen;
  for (const Json& each : fixture("good.json")) {
    for (const std::string model_type : each.at("model_types")) {
      seen.insert(model_type);
      const std::string where = each["name"].get<std::string>() + ", " + model_type;
      const auto spec = read(with_type(each.at("config"), model_type), each);
      ASSERT_TRUE(spec) << where << ": " << spec.error().message;
      std::vector<std::string> groups;
      for (const Group& group : spec->groups) groups.push_back(text_of(*spec, group));
      EXPECT_EQ(groups, each.at("groups").get<std::vector<std::string>>()) << where;
      EXPECT_EQ(ids(spec->no_cache_layers), each.value("no_cache_layers", "")) << where;
      EXPECT_EQ(ids(spec->draft_layers), each.value("draft_layers", "")) << where;
      EXPECT_EQ(spec->model_type, model_type);
      EXPECT_EQ(validate(*spec), Status{}) << where;
    }
  }
  for (const std::string_view model_type : hf_model_types())
    EXPECT_TRUE(seen.contains(std::string(model_type))) << "no case for " << model_type;
}

TEST(HfConfig, FollowersFollowTheGroupOfTheirRatio) {
  for (const Json& each : fixture("good.json")) {
    const auto spec = read(with_type(each.at("config"), each.at("model_types").at(0)), each);
    ASSERT_TRUE(spec);
    for (const Group& group : spec->groups)
      if (const auto* follower = std::get_if<FollowerKind>(&group.kind);
          follower && group.need == Need::kRequired) {
        const Group& full = spec->groups.at(follower->of);
        EXPECT_EQ(full.tokens_per_entry, group.tokens_per_entry);
        EXPECT_TRUE(
            std::includes(full.layers.begin(), full.layers.end(), group.layers.begin(), group.layers.end()));
      }
  }
}

TEST(HfConfig, TheSameFieldsInsideTextConfigGiveTheSameGeometry) {
  for (const Json& each : fixture("good.json")) {
    const Json inner = with_type(each.at("config"), each.at("model_types").at(0));
    // Decoys outside: only the dtype may stand there, and the outer model_type is printed.
    const Json outer = {{"model_type", "outer"},       {"text_config", inner}, {"num_hidden_layers", 77},
                        {"num_attention_heads", "no"}, {"sliding_window", 3},  {"layer_types", 5}};
    auto plain = read(inner, each);
    auto nested = read(outer, each);
    ASSERT_TRUE(plain && nested) << each["name"];
    EXPECT_EQ(nested->model_type, "outer");
    nested->model_type = plain->model_type;
    EXPECT_EQ(*nested, *plain) << each["name"];
  }
}

TEST(HfConfig, TheDtypeMayStandOutsideAndTheInnerOneWins) {
  Json config = {{"model_type", "outer"},
                 {"torch_dtype", "float32"},
                 {"text_config",
                  {{"model_type", "mamba"},
                   {"num_hidden_layers", 1},
                   {"intermediate_size", 8},
                   {"state_size", 2},
                   {"conv_kernel", 4}}}};
  const auto conv = [&] {
    return read_hf_config(config.dump(), "c", {}).value().groups[0].components[0].dtype;
  };
  EXPECT_EQ(conv(), DType::kF32);
  config["text_config"]["torch_dtype"] = "float16";
  EXPECT_EQ(conv(), DType::kFp16);
  config["text_config"]["dtype"] = "bfloat16";
  EXPECT_EQ(conv(), DType::kBf16);
}

TEST(HfConfig, EveryBadConfigurationIsRefusedByNamingItsField) {
  std::map<std::string, Json> bases;
  for (const Json& each : fixture("good.json"))
    bases[each["name"]] = with_type(each["config"], each["model_types"].at(0));
  for (const Json& each : fixture("bad.json")) {
    Json config = bases.at(each.at("of"));
    config.update(each.value("set", Json::object()));
    for (const std::string key : each.value("unset", Json::array())) config.erase(key);
    const auto spec = read(config, each);
    ASSERT_FALSE(spec) << each.dump();
    const std::string& message = spec.error().message;
    EXPECT_EQ(spec.error().code, Code::kInvalidArgument) << message;
    EXPECT_TRUE(message.starts_with("config.json: ") || message.starts_with("draft.json: ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string name : each.at("names")) EXPECT_THAT(message, HasSubstr(name)) << each.dump();
  }
}

// Whatever stands in a field's place: either the field is not read, and nothing changes, or it is named.
TEST(HfConfig, AFieldOfAnotherTypeIsNamedOrNotRead) {
  const Json strange[] = {"7", 1.5, -1, true, Json::array({Json::array()}), Json::object(), UINT64_MAX};
  std::size_t refused = 0;
  for (const Json& each : fixture("good.json")) {
    const Json config = with_type(each.at("config"), each.at("model_types").at(0));
    const ModelSpec plain = read(config, each).value();
    for (const auto& [key, value] : config.items())
      for (const Json& other : strange) {
        if (value.type() == other.type() || (value.is_number_integer() && other == -1)) continue;
        Json changed = config;
        changed[key] = other;
        const auto spec = read(changed, each);
        if (!spec) {
          EXPECT_THAT(spec.error().message, HasSubstr(key)) << each["name"];
          ++refused;
        } else if (key != "model_type") {
          EXPECT_EQ(*spec, plain) << each["name"] << ": " << key << " = " << other;
        }
      }
  }
  EXPECT_GT(refused, 1000U);
}

TEST(HfConfig, AMissingFieldIsNamedOrHasADefault) {
  for (const Json& each : fixture("good.json")) {
    const Json config = with_type(each.at("config"), each.at("model_types").at(0));
    for (const auto& [key, value] : config.items()) {
      Json absent = config;
      absent.erase(key);
      Json null = config;
      null[key] = nullptr;
      const auto without = read(absent, each);
      const auto with_null = read(null, each);
      ASSERT_EQ(without.has_value(), with_null.has_value()) << each["name"] << ": " << key;
      if (without)
        EXPECT_EQ(*without, *with_null) << "null is absent: " << key;
      else
        EXPECT_EQ(without.error(), with_null.error());
    }
  }
}

TEST(HfConfig, EveryDegreeOfParallelismIsReadOrRefused) {
  for (const Json& each : fixture("good.json"))
    for (std::uint64_t tp = 1; tp <= 16; ++tp) {
      HfOptions options = options_of(each);
      options.tp = tp;
      const auto spec =
          read_hf_config(with_type(each["config"], each["model_types"].at(0)).dump(), "c", options);
      if (spec)
        EXPECT_EQ(spec->topology.tp, tp);
      else
        EXPECT_THAT(spec.error().message, HasSubstr(fmt::format("--tp {}", tp)));
    }
}

constexpr const char* kLlama = R"("model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 1,
  "head_dim": 8)";

TEST(HfConfig, BareInfinityAndNanAreReadAndAreNoNumbers) {
  EXPECT_TRUE(read_hf_config(fmt::format(R"({{{}, "time_step_limit": [0.0, Infinity, -Infinity, NaN],
      "text": "NaN \" Infinity", "x": {{"y":NaN}}}})",
                                         kLlama),
                             "c", {}));
  for (const char* bare : {"NaN", "Infinity", "-Infinity"}) {
    const auto refused =
        read_hf_config(fmt::format(R"({{{}, "num_key_value_heads": {}}})", kLlama, bare), "c", {});
    ASSERT_FALSE(refused) << "a bare literal is neither an integer nor null";
    EXPECT_THAT(refused.error().message,
                HasSubstr(fmt::format("num_key_value_heads: wanted a positive integer, is {}", bare)));
  }
  for (const char* zero : {"0e0", "-0e0", "0e000000", "-0E000000"})  // how the reader spells bare literals
    EXPECT_THAT(read_hf_config(fmt::format(R"({{{}, "num_key_value_heads": {}}})", kLlama, zero), "c", {})
                    .error()
                    .message,
                HasSubstr("0.0"));
  const auto after = read_hf_config("{\"x\": [NaN, Infinity], \"y\" 1}", "c", {});
  EXPECT_THAT(after.error().message, HasSubstr("line 1, column 28")) << "literals do not move what follows";
  for (const char* bad : {"1NaN", "NaN5", "nan", "Infinityy", "+Infinity", "--Infinity", "NaN NaN", "0.NaN"})
    EXPECT_FALSE(read_hf_config(fmt::format(R"({{{}, "x": {}}})", kLlama, bad), "c", {})) << bad;
}

TEST(HfConfig, TextsThatAreNoConfigurationAreRefusedAtOnce) {
  struct Case {
    std::string text;
    const char* names;
  };
  const std::size_t deepest = kMaxJsonDepth - 1;  // inside one object
  const Case cases[] = {
      {"{\"x\": " + std::string(deepest, '[') + std::string(deepest, ']') + "}", "model_type"},
      {"{\"x\": " + std::string(deepest + 1, '[') + std::string(deepest + 1, ']') + "}", "nested deeper"},
      {"", "no JSON"},
      {"{", "no JSON"},
      {"[]", "object"},
      {"7", "object"},
      {"NaN", "object"},
      {"\"x\"", "object"},
      {"null", "object"},
      {"{\"a\": \"\xff\"}", "no JSON"},
      {fmt::format("{{{}}} x", kLlama), "no JSON"},
      {fmt::format("{{{}, \"head_dim\": 8}}", kLlama), "head_dim is given twice"},
      {std::string(1'000'000, '['), "nested deeper"},
      {"{\"model_type\": " + std::string(100, '[') + std::string(100, ']') + "}", "nested deeper"},
      {std::string(kMaxJsonBytes + 1, ' '), "longer"},
      {"{\"model_type\": \"ll\\nama\"}", "ll\\x0aama"},
  };
  for (const Case& each : cases) {
    const auto spec = read_hf_config(each.text, "file name", {});
    ASSERT_FALSE(spec) << each.names;
    EXPECT_THAT(spec.error().message, StartsWith("file name: "));
    EXPECT_THAT(spec.error().message, HasSubstr(each.names));
    EXPECT_EQ(spec.error().message.find('\n'), std::string::npos);
    EXPECT_LT(spec.error().message.size(), 500U);
  }
}

TEST(HfConfig, TheLargestModelThatIsAllowed) {
  Json config = Json::parse(fmt::format("{{{}}}", kLlama));
  config["num_hidden_layers"] = kMaxLayers;
  config["num_nextn_predict_layers"] = kMaxLayers;
  const auto spec = read_hf_config(config.dump(), "c", {});
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->groups[0].layers.size(), kMaxLayers);
  EXPECT_EQ(spec->draft_layers.back(), 2 * kMaxLayers - 1);
}

}  // namespace
}  // namespace tiercel
