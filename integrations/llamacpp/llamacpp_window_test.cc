// Window models: a cache of full size, and one that is a ring of the window's size.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr Shape kRing{.tokens = 2048, .full_window = false};

class LlamaWindow : public testing::TestWithParam<const char*> {
 protected:
};

TEST_P(LlamaWindow, ExactModeRefusesARing) {
  const Status refusal = attach_refusal(tiny_model_path(GetParam()), kRing, Mode::kExact);
  EXPECT_EQ(refusal.code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(refusal.message.find("swa_full"), std::string::npos) << "what to do: " << refusal.message;
}

// A restored window has fewer cells than the plain run's; among several threads they are divided elsewhere.
TEST_P(LlamaWindow, ExactModeWantsOneThread) {
  llama_context_params params = Shape{}.params();
  params.n_threads = 2;
  const Context context = make_context(tiny_model(GetParam()), params);
  ContextOptions options;
  options.model_files = {tiny_model_path(GetParam())};
  options.mode = Mode::kExact;
  const auto refused = ContextCache::attach(context.get(), params, options);
  EXPECT_EQ(refused.status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(refused.status().message.find("n_threads"), std::string::npos) << refused.status().message;
}

TEST(LlamaWindowThreads, ThoseThatAreSetLaterEndRestoring) {
  const Folder folder;
  Engine engine = attach_tiny("llama_swa", {}, Mode::kExact);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  const Text prompt = text_of(engine.model(), 1, 400);
  right_turn(engine, 0, prompt);
  llama_set_n_threads(engine.context.get(), 2, 2);
  const auto restored = engine.cache->restore(0, prompt);
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->tokens, 0U);
  EXPECT_NE(restored->note.find("n_threads"), std::string::npos) << restored->note;
  llama_set_n_threads(engine.context.get(), 1, 1);
  EXPECT_EQ(right_turn(engine, 0, prompt).prefilled.restored.tokens, engine.longest(400));
}

// With 64 rows and more the cells' places count. Restored window cells stand at the start.
TEST_P(LlamaWindow, ExactModeIsBitwiseOrSaysWhyNot) {
  const std::string path = tiny_model_path(GetParam());
  const Shape shape{.tokens = 2048};
  if (const Status refusal = attach_refusal(path, shape, Mode::kExact); !refusal.ok()) {
    EXPECT_EQ(refusal.code, TIERCEL_INVALID_ARGUMENT);
    EXPECT_NE(refusal.message.find("window"), std::string::npos) << refusal.message;
    EXPECT_NE(refusal.message.find("fast"), std::string::npos) << "what to do: " << refusal.message;
    EXPECT_NE(llama_model_n_swa(load_model(path)) % 64, 0);
    return;
  }
  const Folder folder;
  Engine engine = attach(path, shape, Mode::kExact);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  for (const std::uint32_t length : {100U, 128U, 200U, 256U, 300U, 700U, 1200U}) {
    const Text prompt = text_of(engine.model(), 40 + length, length);
    right_turn(engine, 0, prompt);
    Text longer = prompt;
    longer.resize(length + 150, 7);
    right_turn(engine, 0, longer);
    EXPECT_EQ(right_turn(engine, 0, prompt).prefilled.restored.tokens, engine.longest(length));
  }
}

TEST_P(LlamaWindow, ARolledRingIsRestoredInFastModeWithTheSameChoices) {
  const Folder folder;
  Engine engine = attach_tiny(GetParam(), kRing, Mode::kFast);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  for (const std::uint32_t length :
       {90U, 127U, 129U, 300U, 700U, 1000U, 1500U}) {  // the ring has rolled from some on
    SCOPED_TRACE(std::to_string(length) + " tokens");
    const Text prompt = text_of(engine.model(), 60 + length, length);
    const Turn first = turn(engine, 0, prompt), again = turn(engine, 0, prompt);
    EXPECT_EQ(again.prefilled.restored.tokens, engine.longest(length));
    EXPECT_TRUE(same_choices(first.answer, again.answer));
    Text longer = prompt;
    longer.resize(length + 100, 7);
    const Turn goes_on = turn(engine, 0, longer);
    EXPECT_GT(goes_on.prefilled.restored.tokens, 0U);
    EXPECT_TRUE(same_choices(engine.plain().answer(longer), goes_on.answer));
  }
}

TEST_P(LlamaWindow, ARingRestoresWhatAFullCacheSavedAndTheOtherWayRound) {
  const Folder folder;
  const auto store = open_store(folder.store());
  Engine ring = attach_tiny(GetParam(), kRing, Mode::kFast),
         full = attach_tiny(GetParam(), {.tokens = 2048}, Mode::kFast);
  for (Engine* engine : {&ring, &full}) ASSERT_TRUE(engine->cache->use(store).ok());
  for (const bool ring_first : {true, false}) {
    SCOPED_TRACE(ring_first ? "ring first" : "full first");
    Engine& first = ring_first ? ring : full;
    Engine& second = ring_first ? full : ring;
    const Text prompt = text_of(ring.model(), ring_first ? 91 : 92, 900);
    turn(first, 0, prompt);
    const Turn done = turn(second, 0, prompt);
    EXPECT_TRUE(same_choices(second.plain().answer(prompt), done.answer))
        << done.prefilled.restored.tokens << " restored";
  }
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaWindow, testing::Values("llama_swa", "llama_swa96", "lfm2_swa"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tiercel::llamacpp
