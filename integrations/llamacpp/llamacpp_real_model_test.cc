// A model that people use, where it was fetched: SmolLM2-135M-Instruct.
#include <filesystem>
#include <ostream>
#include <string>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::size_t kPrompt = 1100;
constexpr Shape kShape{.tokens = 2048};

// A manual of numbered rules, and a question.
Text manual(const llama_model* model) {
  std::string text = "You are the assistant of a workshop. These are its rules.\n";
  for (int rule = 1; rule < 80; ++rule)
    text += "Rule " + std::to_string(rule) + ": whoever borrows tool number " +
            std::to_string(rule * 7 % 80) + " brings it back to shelf " + std::to_string(rule * 13 % 40) +
            " before the evening.\n";
  Text tokens(text.size());
  const int count =
      llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<std::int32_t>(text.size()),
                     tokens.data(), static_cast<std::int32_t>(tokens.size()), true, true);
  EXPECT_GT(count, static_cast<int>(kPrompt));
  tokens.resize(kPrompt);
  return tokens;
}

class LlamaRealModel : public testing::Test {
 protected:
  void SetUp() override {
    path_ = real_model_path();
    if (path_.empty() || !std::filesystem::exists(path_))
      GTEST_SKIP() << "skipped: 2 cases, the model was not fetched";
  }
  // A new context and the store opened again, as in another process.
  Turn ask(const Folder& folder, Mode mode, const Text& prompt) const {
    Engine engine = attach(path_, kShape, mode);
    EXPECT_TRUE(engine.cache->use(open_store(options_of(folder))).ok());
    return right_turn(engine, 0, prompt);
  }
  static StoreOptions options_of(const Folder& folder) {
    StoreOptions options = store_options(folder.store());
    options.cache_bytes = 128 * kMiB;
    options.host_bytes = 96 * kMiB;
    return options;
  }
  std::string path_;
};

TEST_F(LlamaRealModel, ExactModeIsBitwiseAfterAReopening) {
  const Folder folder;
  const Text prompt = manual(load_model(path_));
  EXPECT_EQ(ask(folder, Mode::kExact, prompt).prefilled.computed_tokens, kPrompt);
  const Turn again = ask(folder, Mode::kExact, prompt);
  EXPECT_EQ(again.prefilled.restored.tokens, 1024U);
  EXPECT_EQ(again.prefilled.restored.disk_tokens, 1024U);
  EXPECT_EQ(again.prefilled.computed_tokens, kPrompt - 1024);
}

TEST_F(LlamaRealModel, FastModeSaysTheSameAfterAReopening) {
  const Folder folder;
  const Text prompt = manual(load_model(path_));
  ask(folder, Mode::kFast, prompt);
  const Turn again = ask(folder, Mode::kFast, prompt);
  EXPECT_EQ(again.prefilled.restored.tokens, 1088U);
  EXPECT_TRUE(same_choices(plain_of(path_, kShape).answer(prompt), again.answer));
}

}  // namespace
}  // namespace tiercel::llamacpp
