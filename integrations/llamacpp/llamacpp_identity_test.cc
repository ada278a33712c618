// H04: what changes the bytes of a page is another namespace. Nothing of one is ever restored in another,
// both can be told apart in print, and the first one's pages are still hit afterwards.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kSaved = 320;
constexpr Shape kBase{};

class LlamaIdentity : public testing::Test {
 protected:
  void SetUp() override {
    path_ = tiny_model_path("llama");
    store_ = open_store(folder_.store());
    ASSERT_NE(store_, nullptr);
  }
  Engine engine(const std::string& path, const Shape& shape, Mode mode, const Adjust& adjust = {}) {
    Engine made = attach(path, shape, mode, adjust);
    EXPECT_TRUE(made.cache->use(store_).ok());
    return made;
  }
  static Text prompt_of(const Engine& engine) { return text_of(engine.model(), 1, kSaved); }

  // The first one saves, the other one finds nothing and saves, both find their own and answer as ever.
  void expect_apart(Engine& first, Engine& other, const std::string& named) {
    const Text prompt = prompt_of(first);
    right_turn(first, 0, prompt);
    const Turn foreign = right_turn(other, 0, prompt);
    EXPECT_EQ(foreign.prefilled.restored.tokens, 0U) << "of another namespace's pages";
    for (Engine* engine : {&first, &other})
      EXPECT_EQ(right_turn(*engine, 0, prompt).prefilled.restored.tokens, engine->longest(kSaved))
          << "its own";
    EXPECT_NE(first.cache->namespace_text(), other.cache->namespace_text());
    EXPECT_NE(other.cache->namespace_text().find(named), std::string::npos)
        << other.cache->namespace_text() << "\ndoes not name " << named;
    EXPECT_EQ(first.cache->namespace_text().find(named), std::string::npos) << first.cache->namespace_text();
  }
  void expect_apart(const Shape& shape, const std::string& named) {
    Engine first = engine(path_, kBase, Mode::kExact), other = engine(path_, shape, Mode::kExact);
    expect_apart(first, other, named);
  }
  void expect_apart(const Adjust& adjust, const std::string& named) {
    Engine first = engine(path_, kBase, Mode::kExact), other = engine(path_, kBase, Mode::kExact, adjust);
    expect_apart(first, other, named);
  }
  // The same field in both, with another value: what they differ in, as printed.
  static std::string first_difference(const Engine& a, const Engine& b) {
    const std::string x = a.cache->namespace_text(), y = b.cache->namespace_text();
    std::size_t at = 0;
    while (at < x.size() && at < y.size() && x[at] == y[at]) ++at;
    const std::size_t line = y.rfind('\n', at);
    return y.substr(line == std::string::npos ? 0 : line + 1, 40);
  }

  Folder folder_;
  std::string path_;
  std::shared_ptr<Store> store_;
};

TEST_F(LlamaIdentity, TheSameAgainIsTheSameAndHits) {
  Engine first = engine(path_, kBase, Mode::kExact),
         second = engine(path_, {.tokens = 2048, .sequences = 3}, Mode::kExact);
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(first.cache->namespace_text(), second.cache->namespace_text());
  EXPECT_EQ(right_turn(second, 2, prompt_of(second)).prefilled.restored.tokens, second.longest(kSaved));
}

TEST_F(LlamaIdentity, KeysOfAnotherTypeOfAsManyBytes) {
  Engine first = engine(path_, kBase, Mode::kExact),
         other = engine(path_, {.type_k = GGML_TYPE_BF16}, Mode::kExact);
  EXPECT_EQ(first.cache->token_bytes(), other.cache->token_bytes()) << "the point of this test";
  expect_apart(first, other, "bf16");
}

TEST_F(LlamaIdentity, ValuesOfAnotherTypeOfAsManyBytes) { expect_apart({.type_v = GGML_TYPE_BF16}, "bf16"); }

TEST_F(LlamaIdentity, KeysAndValuesOfF32) {
  expect_apart({.type_k = GGML_TYPE_F32, .type_v = GGML_TYPE_F32}, "f32");
}

TEST_F(LlamaIdentity, KeysOfOneTypeAndValuesOfAnotherAndTheOtherWayRound) {
  Engine first = engine(path_, {.type_k = GGML_TYPE_BF16}, Mode::kExact),
         other = engine(path_, {.type_v = GGML_TYPE_BF16}, Mode::kExact);
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
  EXPECT_EQ(first_difference(first, other).rfind("dtype", 0), 0U) << first_difference(first, other);
}

TEST_F(LlamaIdentity, BasesOfRope) {
  Engine first = engine(path_, kBase, Mode::kExact),
         other = engine(path_, {.rope_base = 20000}, Mode::kExact);
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
  EXPECT_EQ(right_turn(first, 0, prompt_of(first)).prefilled.restored.tokens, first.longest(kSaved));
  EXPECT_EQ(first_difference(first, other).rfind("rope", 0), 0U) << first_difference(first, other);
}

// What nobody names separates, too: here the file that is named is not the one that was loaded.
TEST_F(LlamaIdentity, WeightsThatAreNotThoseOfTheNamedFile) {
  Engine first = engine(path_, kBase, Mode::kExact);
  const auto named = [&](ContextOptions& options) { options.model_files = {path_}; };
  Engine other = engine(tiny_model_path("llama_b"), kBase, Mode::kExact, named);
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
  EXPECT_EQ(first_difference(first, other).rfind("probe", 0), 0U) << first_difference(first, other);
}

TEST_F(LlamaIdentity, WithoutFlashAttention) { expect_apart({.flash = false}, "transposed"); }

TEST_F(LlamaIdentity, OtherMicroBatchesInExactMode) { expect_apart({.micro_batch = 128}, "128"); }

TEST_F(LlamaIdentity, ExactAndFast) {
  Engine first = engine(path_, kBase, Mode::kExact), other = engine(path_, kBase, Mode::kFast);
  expect_apart(first, other, "fast");
}

TEST_F(LlamaIdentity, OtherWeightsOfTheSameShapeAndName) {
  const std::string a = folder_.file("a"), b = folder_.file("b");
  std::filesystem::create_directories(a);
  std::filesystem::create_directories(b);
  std::filesystem::copy_file(path_, a + "/llama.gguf");
  std::filesystem::copy_file(tiny_model_path("llama_b"), b + "/llama.gguf");
  Engine first = engine(a + "/llama.gguf", kBase, Mode::kExact),
         other = engine(b + "/llama.gguf", kBase, Mode::kExact);
  EXPECT_EQ(first.cache->token_bytes(), other.cache->token_bytes());
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
  EXPECT_EQ(right_turn(first, 0, prompt_of(first)).prefilled.restored.tokens, first.longest(kSaved));
  EXPECT_EQ(first_difference(first, other).rfind("weights", 0), 0U) << first_difference(first, other);
  Engine copy = engine(path_, kBase, Mode::kExact);  // the same bytes in another place
  EXPECT_EQ(copy.cache->namespace_text(), first.cache->namespace_text());
  EXPECT_EQ(right_turn(copy, 0, prompt_of(copy)).prefilled.restored.tokens, copy.longest(kSaved));
}

TEST_F(LlamaIdentity, TheSameFileWithOtherContentLater) {
  const std::string path = folder_.file("model.gguf");
  std::filesystem::copy_file(path_, path);
  std::string before;
  {
    Engine first = engine(path, kBase, Mode::kExact);
    right_turn(first, 0, prompt_of(first));
    before = first.cache->namespace_text();
  }
  std::filesystem::copy_file(tiny_model_path("llama_b"), path,
                             std::filesystem::copy_options::overwrite_existing);
  // A model that is loaded stays what it was; the weights are those of the file as it is now.
  Engine other = attach(path, kBase, Mode::kExact);
  EXPECT_NE(other.cache->namespace_text(), before) << "the remembered hash was believed";
}

TEST_F(LlamaIdentity, Tenants) {
  Engine first = engine(path_, kBase, Mode::kExact),
         other = engine(path_, kBase, Mode::kExact,
                        [](ContextOptions& options) { options.tenant = "somebody else"; });
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
  for (Engine* engine : {&first, &other})
    EXPECT_EQ(right_turn(*engine, 0, prompt_of(first)).prefilled.restored.tokens, engine->longest(kSaved));
  EXPECT_EQ(other.cache->namespace_text().find("somebody else"), std::string::npos) << "the salt is a secret";
}

TEST_F(LlamaIdentity, AnythingElseThatTheProgramNames) {
  expect_apart(
      [](ContextOptions& options) {
        options.other = {{"control_vector", "calm-3"}};
      },
      "control_vector");
}

TEST_F(LlamaIdentity, PairsThatJoinToTheSameText) {
  Engine first = engine(path_, kBase, Mode::kExact, [](ContextOptions& options) {
    options.other = {{"a", "b\nuser.c: d"}};
  });
  Engine other = engine(path_, kBase, Mode::kExact, [](ContextOptions& options) {
    options.other = {{"a", "b"}, {"c", "d"}};
  });
  right_turn(first, 0, prompt_of(first));
  EXPECT_EQ(right_turn(other, 0, prompt_of(other)).prefilled.restored.tokens, 0U);
}

TEST_F(LlamaIdentity, PagesOfAnotherSize) {
  expect_apart([](ContextOptions& options) { options.page_tokens = 32; }, "page_tokens: 32");
}

TEST_F(LlamaIdentity, WholeStatesAndPages) {
  expect_apart([](ContextOptions& options) { options.opaque = true; }, "whole");
}

TEST_F(LlamaIdentity, AdaptersByContentAndScale) {
  const auto write = [&](const char* name, const char* text) {
    std::FILE* file = std::fopen(folder_.file(name).c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs(text, file);
    std::fclose(file);
  };
  write("x.gguf", "one adapter");
  write("y.gguf", "another");
  std::vector<std::string> texts;
  for (const LoraAdapter& adapter :
       {LoraAdapter{folder_.file("x.gguf"), 1}, LoraAdapter{folder_.file("x.gguf"), 0.5F},
        LoraAdapter{folder_.file("y.gguf"), 1}}) {
    Engine with =
        engine(path_, kBase, Mode::kExact, [&](ContextOptions& options) { options.adapters = {adapter}; });
    EXPECT_EQ(right_turn(with, 0, prompt_of(with)).prefilled.restored.tokens, 0U);
    EXPECT_NE(with.cache->namespace_text().find("adapter"), std::string::npos);
    for (const std::string& text : texts) EXPECT_NE(with.cache->namespace_text(), text);
    texts.push_back(with.cache->namespace_text());
  }
  EXPECT_EQ(attach_refusal(path_, kBase, Mode::kExact,
                           [&](ContextOptions& options) {
                             options.adapters = {{folder_.file("z.gguf"), 1}};
                           })
                .code,
            TIERCEL_NOT_FOUND);
}

TEST_F(LlamaIdentity, ItNamesTheStateVersionTheBuildAndTheMachine) {
  Engine exact = engine(path_, kBase, Mode::kExact);
  const std::string text = exact.cache->namespace_text();
  for (const char* named :
       {"weights: ", "dtype: k=f16 v=f16", "rope: ", "attention: ", "mode: exact", "page_tokens: 16",
        "memory: pages", "build: llama ", "processor: ", "micro_batch: 512"})
    EXPECT_NE(text.find(named), std::string::npos) << named << " is missing in\n" << text;
  EXPECT_NE(text.find("state_version: " + std::to_string(LLAMA_STATE_SEQ_VERSION)), std::string::npos)
      << text;
}

}  // namespace
}  // namespace tiercel::llamacpp
