// A prefill that is given up in the middle: cancelled, and everything after it is as if it had not been.
#include <ostream>
#include <string>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

// Gives up at the given question (llama.cpp asks once for each node of the graph); counts them.
struct Patience {
  std::uint64_t questions = 0, most = UINT64_MAX;
  static bool gave_up(void* data) {
    auto* self = static_cast<Patience*>(data);
    return self->questions++ >= self->most;
  }
};

class LlamaCancel : public testing::TestWithParam<const char*> {
 protected:
  static Mode mode() { return std::string(GetParam()) == "llama_swa96" ? Mode::kFast : Mode::kExact; }
};

// How often it is asked while this prompt is computed.
std::uint64_t questions_of(Engine& engine, const Text& prompt) {
  Patience patience;
  llama_set_abort_callback(engine.context.get(), Patience::gave_up, &patience);
  EXPECT_TRUE(engine.cache->prefill(1, prompt).ok());
  llama_set_abort_callback(engine.context.get(), nullptr, nullptr);
  return patience.questions;
}

// Given up at question `most`. What is left must be a sequence that can be saved and gone on with.
void give_up_at(Engine& engine, const Text& prompt, std::uint64_t most) {
  Patience patience{.most = most};
  llama_set_abort_callback(engine.context.get(), Patience::gave_up, &patience);
  const auto done = engine.cache->prefill(1, prompt);
  llama_set_abort_callback(engine.context.get(), nullptr, nullptr);
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.status().code, TIERCEL_CANCELLED) << done.status().to_string();
  const llama_pos last = engine.last_position(1);
  EXPECT_GE(last, -1);
  EXPECT_LT(last, static_cast<llama_pos>(prompt.size()) - 1);
  const std::size_t there = static_cast<std::size_t>(last) + 1;
  const auto saved = engine.cache->save(1, std::span(prompt).first(there));
  EXPECT_TRUE(saved.ok()) << saved.status().to_string();
  ASSERT_EQ(decode(engine.context.get(), 1, std::span(prompt).subspan(there), there), 0);
  const Answer got = answer_of(engine.context.get(), 1, prompt.size());
  EXPECT_TRUE(same_choices(engine.plain().answer(prompt), got)) << "gone on with from " << there;
}

TEST_P(LlamaCancel, AtAnyMomentThenTheSamePromptIsRight) {
  const Shape shape{.tokens = 2048, .sequences = 2};
  Engine counted = attach_tiny(GetParam(), shape, mode());
  const Text prompt = text_of(counted.model(), 9, 1200);
  const std::uint64_t questions = questions_of(counted, prompt);
  for (const std::uint64_t part : {0U, 1U, 40U, 70U, 98U}) {  // per cent of the work
    SCOPED_TRACE("given up at " + std::to_string(part) + " per cent");
    const Folder folder;
    Engine engine = attach_tiny(GetParam(), shape, mode());
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    give_up_at(engine, prompt, part == 1 ? 1 : questions * part / 100);
    const Turn again = right_turn(engine, 1, prompt);
    if (part >= 60 && engine.cache->sequence_kind() == SequenceKind::kAttention) {
      EXPECT_GE(again.prefilled.restored.tokens, 512U) << "what was computed by then is saved";
    }
    EXPECT_EQ(right_turn(engine, 0, prompt).prefilled.restored.tokens, engine.longest(prompt.size()));
    EXPECT_TRUE(same_choices(engine.plain().answer(prompt), again.answer));
  }
}

TEST_P(LlamaCancel, InAPromptOfWhichAPartIsRestored) {
  const Shape shape{.tokens = 2048, .sequences = 2};
  const Folder folder;
  Engine engine = attach_tiny(GetParam(), shape, mode());
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  const Text prompt = text_of(engine.model(), 9, 1300);
  const Turn first = right_turn(engine, 0, Text(prompt.begin(), prompt.begin() + 700));
  EXPECT_EQ(first.prefilled.restored.tokens, 0U);
  give_up_at(engine, prompt, 20);
  right_turn(engine, 1, prompt);
  EXPECT_EQ(right_turn(engine, 1, prompt).prefilled.restored.tokens, engine.longest(prompt.size()));
}

TEST_P(LlamaCancel, WithoutAStore) {
  Engine engine = attach_tiny(GetParam(), {.sequences = 2}, mode());
  const Text prompt = text_of(engine.model(), 9, 600);
  give_up_at(engine, prompt, 30);
  right_turn(engine, 1, prompt);
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaCancel, testing::ValuesIn(kTinyModels),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tiercel::llamacpp
