// The open cases that come with the models: every published configuration and what must be printed for it.
// They stand beside the checkout, in ../shared/models; without it the cases are counted as skipped.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model/hf_config.h"
#include "model/inspect.h"
#include "model/test_text.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;

std::filesystem::path models() {
  return std::filesystem::path(TIERCEL_SOURCE_DIR) / ".." / "shared" / "models";
}

// The cases of `folder`/expected.json, or nothing (said aloud) where there is no such file.
Json cases_of(const std::filesystem::path& folder, int count) {
  if (!std::filesystem::exists(folder / "expected.json")) {
    std::printf("skipped: %d cases, ../shared is not present\n", count);
    return Json::array();
  }
  Json cases = Json::parse(text_of_file(folder / "expected.json"));
  EXPECT_GE(cases.size(), static_cast<std::size_t>(count));
  return cases;
}

HfOptions options_of(const Json& each) {
  HfOptions options;
  options.dtype = dtype_from_name(each.at("dtype").get<std::string>()).value_or(DType::kU8);
  options.tp = each.at("tp");
  options.page_tokens = each.at("page_tokens");
  if (each.contains("state_dtype"))
    options.state_dtype = dtype_from_name(each["state_dtype"].get<std::string>());
  return options;
}

TEST(SharedModels, EveryExpectedCaseIsEqual) {
  for (const Json& each : cases_of(models(), 43)) {
    const std::string name = each.at("config");
    const auto spec = read_hf_config(text_of_file(models() / name), name, options_of(each));
    ASSERT_TRUE(spec) << spec.error().message;
    const Json printed = Json::parse(inspect_json(*spec));
    EXPECT_EQ(Json::diff(each.at("expected"), printed), Json::array())
        << name << " tp " << each.at("tp") << " " << each.at("dtype") << "\n"
        << printed.dump();
  }
}

TEST(SharedModels, EveryBadFileIsRefusedByNamingTheField) {
  for (const Json& each : cases_of(models() / "bad", 5)) {
    const std::string name = each.at("config");
    const auto spec = read_hf_config(text_of_file(models() / "bad" / name), name, options_of(each));
    ASSERT_FALSE(spec) << name;
    const std::string& message = spec.error().message;
    EXPECT_TRUE(message.starts_with(name + ": ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    const auto lower = [](std::string text) {
      std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
      return text;
    };
    const auto words = each.at("expected_error").get<std::vector<std::string>>();
    EXPECT_TRUE(std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return lower(message).find(lower(word)) != std::string::npos;
    })) << message;
  }
}

}  // namespace
}  // namespace tiercel
