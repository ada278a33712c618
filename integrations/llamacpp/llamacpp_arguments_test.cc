// What a program may do wrong, and what it may do at an odd moment: an error that says why, or no cache;
// never a wrong state, and nothing stored that the sequence does not hold.
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

class LlamaArguments : public testing::Test {
 protected:
  void SetUp() override {
    store_ = open_store(folder_.store());
    ASSERT_NE(store_, nullptr);
  }
  Engine engine(const char* name, Mode mode, const Shape& shape = {.sequences = 2}) const {
    Engine made = attach_tiny(name, shape, mode);
    EXPECT_TRUE(made.cache->use(store_).ok());
    return made;
  }
  std::uint64_t stored_now() const { return store_->node().disk_stats()->appended; }

  Folder folder_;
  std::shared_ptr<Store> store_;
};

// Of a text, in a new sequence of the same context: must be right, whatever was tried before.
void expect_right_later(Engine& engine, const Text& prompt) {
  const Turn done = turn(engine, 1, prompt);
  EXPECT_TRUE(engine.exact() ? same_bits(engine.plain().answer(prompt), done.answer)
                             : same_choices(engine.plain().answer(prompt), done.answer))
      << done.prefilled.restored.tokens << " tokens restored";
}

TEST_F(LlamaArguments, ASequenceThatHoldsSomethingElseIsEmptiedFirst) {
  for (const char* name : {"llama", "llama_swa", "mamba", "lfm2"}) {
    SCOPED_TRACE(name);
    Engine two = engine(name, Mode::kExact);
    const Text a = text_of(two.model(), 1, 400), b = text_of(two.model(), 2, 300);
    right_turn(two, 0, a);
    right_turn(two, 0, b);
    EXPECT_EQ(right_turn(two, 0, a).prefilled.restored.tokens, two.longest(400));
    const auto restored = two.cache->restore(0, b);
    ASSERT_TRUE(restored.ok());
    EXPECT_EQ(two.last_position(0), static_cast<llama_pos>(restored->tokens) - 1);
    EXPECT_EQ(two.cache->restore(0, text_of(two.model(), 3, 100))->tokens, 0U);
    EXPECT_EQ(two.last_position(0), -1);
    EXPECT_EQ(two.last_position(1), -1) << "the other sequence was never used";
  }
}

TEST_F(LlamaArguments, AnotherSequenceKeepsWhatItHolds) {
  for (const char* name : {"llama", "llama_swa", "mamba", "lfm2"}) {
    for (const bool unified : {false, true}) {
      SCOPED_TRACE(std::string(name) + (unified ? ", unified" : ", split"));
      Engine two = engine(name, Mode::kFast, {.tokens = 2048, .sequences = 2, .unified = unified});
      const Text kept = text_of(two.model(), 1, 200), other = text_of(two.model(), 2, 300);
      ASSERT_EQ(decode(two.context.get(), 0, kept, 0), 0);
      for (int i = 0; i < 3; ++i) turn(two, 1, other);
      EXPECT_EQ(two.last_position(0), 199);
      const llama_token next = 5;
      ASSERT_EQ(decode(two.context.get(), 0, {&next, 1}, 200), 0);
      Text all = kept;
      all.push_back(next);
      EXPECT_TRUE(same_choices(two.plain().in_pieces(all, {200, 1}), answer_of(two.context.get(), 0, 201)));
    }
  }
}

// Cells of another sequence in front move those of this one: what was computed then is not the plain result.
TEST_F(LlamaArguments, ExactModeBesideAnotherSequenceInOneCacheIsPlainOrNothing) {
  for (const char* name : {"llama", "llama_swa", "lfm2", "granite_hybrid", "mla"}) {
    SCOPED_TRACE(name);
    const Shape shape{.tokens = 2048, .sequences = 2, .unified = true};
    Engine two = engine(name, Mode::kExact, shape);
    const Text front = text_of(two.model(), 1, 24), prompt = text_of(two.model(), 2, 400);
    ASSERT_EQ(decode(two.context.get(), 0, front, 0), 0);
    const Answer beside = turn(two, 1, prompt).answer;
    EXPECT_TRUE(same_bits(beside, turn(two, 1, prompt).answer)) << "the same arrangement again";
    Engine alone = engine(name, Mode::kExact);
    right_turn(alone, 0, prompt);  // what was stored beside must not come back here
    EXPECT_TRUE(same_bits(beside, turn(two, 1, prompt).answer))
        << "what was stored alone must not come back beside";
  }
}

TEST_F(LlamaArguments, SavingOtherTokensThanTheSequenceHoldsStoresNothing) {
  for (const Mode mode : {Mode::kExact, Mode::kFast}) {
    for (const char* name : {"llama", "lfm2", "mamba"}) {
      SCOPED_TRACE(std::string(name) + (mode == Mode::kExact ? " exact" : " fast"));
      Engine two = engine(name, mode);
      const Text held = text_of(two.model(), 1, 320), other = text_of(two.model(), 2, 320);
      turn(two, 0, held);
      ASSERT_TRUE(two.cache->prefill(0, held).ok());  // without the steps of turn()
      const std::uint64_t before = stored_now();
      for (const std::size_t length : {319U, 100U, 0U}) {
        const auto saved = two.cache->save(0, std::span(held).first(length));
        EXPECT_EQ(saved.status().code, TIERCEL_INVALID_ARGUMENT) << length << " tokens of 320";
      }
      Text longer = held;
      longer.push_back(1);
      EXPECT_EQ(two.cache->save(0, longer).status().code, TIERCEL_INVALID_ARGUMENT)
          << "one more than it holds";
      const auto saved = two.cache->save(0, other);  // as many, but others
      EXPECT_TRUE(!saved.ok() || saved->pages + saved->snapshots == 0)
          << saved->pages << " pages, " << saved->snapshots << " snapshots";
      EXPECT_TRUE(saved.ok() || saved.status().code == TIERCEL_INVALID_ARGUMENT);
      EXPECT_TRUE(store_->flush().ok());
      EXPECT_EQ(stored_now(), before);
      expect_right_later(two, other);
      expect_right_later(two, held);
    }
  }
}

TEST_F(LlamaArguments, SavingWhatWasCutInTheMiddleIsRefused) {
  Engine two = engine("llama", Mode::kFast);
  const Text held = text_of(two.model(), 1, 320);
  ASSERT_EQ(decode(two.context.get(), 0, held, 0), 0);
  ASSERT_TRUE(llama_memory_seq_rm(llama_get_memory(two.context.get()), 0, 100, 200));
  const auto saved = two.cache->save(0, held);
  EXPECT_EQ(saved.status().code, TIERCEL_INVALID_ARGUMENT) << saved.status().to_string();
  EXPECT_EQ(two.cache->save(0, Text(held.begin(), held.begin() + 220)).status().code,
            TIERCEL_INVALID_ARGUMENT);
  expect_right_later(two, held);
}

// What a context that shifts does when it is full: 0 … 99 stay, 200 … move down.
TEST_F(LlamaArguments, AfterAShiftOfPositionsNothingIsStoredAsIfItHadBeenComputedThere) {
  Engine two = engine("llama", Mode::kExact);
  const Text held = text_of(two.model(), 1, 320);
  ASSERT_TRUE(two.cache->prefill(0, held).ok());
  llama_memory_t memory = llama_get_memory(two.context.get());
  ASSERT_TRUE(llama_memory_seq_rm(memory, 0, 100, 200));
  llama_memory_seq_add(memory, 0, 200, -1, -100);
  Text shifted(held.begin(), held.begin() + 100);
  shifted.insert(shifted.end(), held.begin() + 200, held.end());
  const auto saved = two.cache->save(0, shifted);
  EXPECT_TRUE(!saved.ok() || saved->pages == 0);
  expect_right_later(two, shifted);
}

TEST_F(LlamaArguments, SequencesThatTheContextHasNot) {
  Engine two = engine("llama", Mode::kFast);
  const Text prompt = text_of(two.model(), 1, 50);
  for (const llama_seq_id sequence : {-1, 2, 1000}) {
    EXPECT_EQ(two.cache->restore(sequence, prompt).status().code, TIERCEL_INVALID_ARGUMENT) << sequence;
    EXPECT_EQ(two.cache->prefill(sequence, prompt).status().code, TIERCEL_INVALID_ARGUMENT) << sequence;
    EXPECT_EQ(two.cache->save(sequence, prompt).status().code, TIERCEL_INVALID_ARGUMENT) << sequence;
    two.cache->forget(sequence);
  }
}

TEST_F(LlamaArguments, APromptThatIsLongerThanTheContext) {
  Engine two = engine("llama", Mode::kFast);
  const Text prompt = text_of(two.model(), 1, 1025);
  EXPECT_EQ(two.cache->restore(0, prompt).status().code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(two.cache->prefill(0, prompt).status().code, TIERCEL_INVALID_ARGUMENT);
  const auto full = two.cache->prefill(0, Text(prompt.begin(), prompt.end() - 1));  // fits exactly
  ASSERT_TRUE(full.ok()) << full.status().to_string();
  const auto again = two.cache->prefill(1, Text(prompt.begin(), prompt.end() - 1));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->restored.tokens, 1008U);
}

TEST_F(LlamaArguments, AnEmptyPrompt) {
  Engine two = engine("llama", Mode::kFast);
  const auto restored = two.cache->restore(0, {});
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->tokens, 0U);
  const auto done = two.cache->prefill(0, {});
  EXPECT_TRUE(!done.ok() || done->computed_tokens == 0);
  EXPECT_EQ(two.last_position(0), -1);
}

TEST_F(LlamaArguments, WithoutAStoreItComputesAllAndStoresNothing) {
  Engine two = attach_tiny("lfm2", {.sequences = 2}, Mode::kExact);
  const Text prompt = text_of(two.model(), 1, 400);
  for (int i = 0; i < 2; ++i) {
    const Turn done = right_turn(two, 0, prompt);
    EXPECT_EQ(done.prefilled.restored.tokens, 0U);
    EXPECT_TRUE(done.prefilled.restored.missed.empty());
  }
  ASSERT_TRUE(two.cache->prefill(0, prompt).ok());
  const auto saved = two.cache->save(0, prompt);
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->pages + saved->snapshots + saved->bytes, 0U);
  EXPECT_FALSE(saved->note.empty());
  ASSERT_TRUE(two.cache->use(store_).ok());  // from now on
  right_turn(two, 0, prompt);
  EXPECT_EQ(right_turn(two, 1, prompt).prefilled.restored.tokens, two.longest(400));
  ASSERT_TRUE(two.cache->use(nullptr).ok());  // and no more
  EXPECT_EQ(right_turn(two, 1, prompt).prefilled.restored.tokens, 0U);
}

TEST_F(LlamaArguments, AStoreThatIsClosedMeanwhile) {
  for (const char* name : {"llama", "lfm2", "mamba"}) {
    SCOPED_TRACE(name);
    const Folder folder;
    const auto store = open_store(folder.store());
    Engine two = attach_tiny(name, {.sequences = 2}, Mode::kExact);
    ASSERT_TRUE(two.cache->use(store).ok());
    const Text prompt = text_of(two.model(), 1, 400);
    right_turn(two, 0, prompt);
    ASSERT_TRUE(store->close().ok());
    EXPECT_TRUE(store->close().ok()) << "idempotent";
    const Turn after = right_turn(two, 1, prompt);
    EXPECT_EQ(after.prefilled.restored.tokens, 0U);
    EXPECT_FALSE(after.prefilled.restored.note.empty());
    ASSERT_TRUE(two.cache->prefill(1, prompt).ok());
    const auto saved = two.cache->save(1, prompt);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_EQ(saved->tokens, 0U);
    EXPECT_FALSE(saved->note.empty());
    ASSERT_TRUE(two.cache->use(open_store(folder.store())).ok());
    EXPECT_EQ(right_turn(two, 0, prompt).prefilled.restored.tokens, two.longest(400))
        << "what was saved before is there";
  }
}

TEST_F(LlamaArguments, EachTokenThatWasNotRestoredHasAReason) {
  for (const char* name : {"llama", "lfm2", "mamba"}) {
    SCOPED_TRACE(name);
    Engine two = engine(name, Mode::kExact);
    const Text prompt = text_of(two.model(), 1, 400);
    for (const std::uint32_t length : {400U, 400U, 300U, 130U, 20U}) {
      const auto restored = two.cache->restore(0, std::span(prompt).first(length));
      ASSERT_TRUE(restored.ok());
      std::uint64_t missed = 0;
      for (const Missed& each : restored->missed) {
        missed += each.tokens;
        EXPECT_FALSE(each.reason.empty());
        EXPECT_NE(each.reason, "unknown");
      }
      EXPECT_EQ(missed + restored->tokens, length);
      EXPECT_EQ(restored->host_tokens + restored->disk_tokens, restored->tokens);
      right_turn(two, 0, prompt);
    }
  }
}

TEST_F(LlamaArguments, ContextsThatAreRefused) {
  const std::string path = tiny_model_path("llama");
  EXPECT_EQ(ContextCache::attach(nullptr, llama_context_default_params(), {}).status().code,
            TIERCEL_INVALID_ARGUMENT);
  const auto code = [&](const Shape& shape, Mode mode, const Adjust& adjust = {}) {
    return attach_refusal(path, shape, mode, adjust).code;
  };
  EXPECT_EQ(code({}, Mode::kFast, [](ContextOptions& options) { options.model_files.clear(); }),
            TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(code({}, Mode::kFast, [](ContextOptions& options) { options.page_tokens = 24; }),
            TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(code({}, Mode::kFast,
                 [](ContextOptions& options) { options.model_files = {options.model_files[0] + "x"}; }),
            TIERCEL_NOT_FOUND);
  EXPECT_EQ(code({.micro_batch = 96}, Mode::kExact), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(code({.micro_batch = 64}, Mode::kExact), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(code({.micro_batch = 1}, Mode::kFast), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(code({.micro_batch = 96}, Mode::kFast), TIERCEL_OK);
  EXPECT_EQ(code({.micro_batch = 128}, Mode::kExact), TIERCEL_OK);
}

TEST_F(LlamaArguments, AttachingToASequenceThatIsInUse) {
  const Shape shape{.sequences = 2};
  const Context context = make_context(tiny_model("llama"), shape.params());
  const Text prompt = text_of(tiny_model("llama"), 1, 30);
  ContextOptions options;
  options.model_files = {tiny_model_path("llama")};
  ASSERT_EQ(decode(context.get(), 0, prompt, 0), 0);
  EXPECT_EQ(ContextCache::attach(context.get(), shape.params(), options).status().code,
            TIERCEL_FAILED_PRECONDITION);
  llama_memory_seq_rm(llama_get_memory(context.get()), 0, -1, -1);
  ASSERT_EQ(decode(context.get(), 1, prompt, 0), 0);  // another one may be
  EXPECT_TRUE(ContextCache::attach(context.get(), shape.params(), options).ok());
  EXPECT_EQ(llama_memory_seq_pos_max(llama_get_memory(context.get()), 0), -1)
      << "the self-test leaves nothing";
  EXPECT_EQ(llama_memory_seq_pos_max(llama_get_memory(context.get()), 1), 29)
      << "and touches no other sequence";
}

// A program without a cache must cut it, too.
TEST_F(LlamaArguments, APromptLongerThanABatch) {
  const Shape shape{.micro_batch = 128};
  llama_context_params params = shape.params();
  params.n_batch = 256;
  const Context context = make_context(tiny_model("llama"), params);
  ContextOptions options;
  options.model_files = {tiny_model_path("llama")};
  options.mode = Mode::kExact;
  auto cache = ContextCache::attach(context.get(), params, options);
  ASSERT_TRUE(cache.ok()) << cache.status().to_string();
  ASSERT_TRUE((*cache)->use(store_).ok());
  const Text prompt = text_of(tiny_model("llama"), 1, 700);
  for (const std::uint32_t restored : {0U, 640U}) {
    const auto done = (*cache)->prefill(0, prompt);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    EXPECT_EQ(done->restored.tokens, restored);
    for (const std::uint32_t piece : done->pieces) EXPECT_LE(piece, 128U);
    const Answer& wanted = plain_of(tiny_model_path("llama"), shape).in_pieces(prompt, {256, 256, 188});
    EXPECT_TRUE(same_bits(wanted, answer_of(context.get(), 0, prompt.size())));
  }
}

TEST_F(LlamaArguments, NoRoomBesideAnotherSequence) {
  for (const char* name : {"llama", "lfm2"}) {
    SCOPED_TRACE(name);
    Engine two = engine(name, Mode::kFast, {.tokens = 1024, .sequences = 2, .unified = true});
    const Text held = text_of(two.model(), 1, 700), prompt = text_of(two.model(), 2, 600);
    EXPECT_TRUE(two.cache->prefill(1, prompt).ok());
    EXPECT_TRUE(two.cache->restore(1, {}).ok());  // empties it
    ASSERT_EQ(decode(two.context.get(), 0, held, 0), 0);
    const auto refused =
        two.cache->prefill(1, prompt);  // what is restored fits no more than what is computed
    EXPECT_EQ(refused.status().code, TIERCEL_RESOURCE_EXHAUSTED) << refused.status().to_string();
    EXPECT_EQ(two.last_position(0), 699);
    llama_memory_seq_rm(llama_get_memory(two.context.get()), 0, -1, -1);
    EXPECT_GT(turn(two, 1, prompt).prefilled.restored.tokens, 0U);
  }
}

// The same tokens in the same places, computed in another way: exact mode cannot see that, so it stores
// nothing that it has not computed itself.
TEST_F(LlamaArguments, WhatTheProgramComputedIsNotSavedInExactMode) {
  Engine two = attach_tiny("llama", {.sequences = 2}, Mode::kExact);
  const Text prompt = text_of(two.model(), 2, 520);  // 512 are computed in tiles
  ASSERT_TRUE(two.cache->prefill(0, prompt).ok());
  llama_memory_seq_rm(llama_get_memory(two.context.get()), 0, 64, -1);
  for (std::size_t at = 64; at < prompt.size(); at += 8)
    ASSERT_EQ(decode(two.context.get(), 0, std::span(prompt).subspan(at, 8), at), 0);
  ASSERT_TRUE(two.cache->use(store_).ok());
  const auto saved = two.cache->save(0, prompt);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->tokens, 0U);
  EXPECT_EQ(saved->pages, 0U);
  EXPECT_EQ(right_turn(two, 1, prompt).prefilled.restored.tokens, 0U);
}

TEST_F(LlamaArguments, ASequenceThatWentOnDifferentlyIsSavedOnceItWasForgotten) {
  Engine two = engine("llama", Mode::kFast);
  const Text held = text_of(two.model(), 1, 320), other = branch_of(two.model(), 1, 100, 2, 320);
  ASSERT_TRUE(two.cache->prefill(0, held).ok());
  ASSERT_TRUE(llama_memory_seq_rm(llama_get_memory(two.context.get()), 0, 100, -1));
  ASSERT_EQ(decode(two.context.get(), 0, std::span(other).subspan(100), 100), 0);
  EXPECT_EQ(two.cache->save(0, other).status().code, TIERCEL_INVALID_ARGUMENT);
  two.cache->forget(0);
  const auto saved = two.cache->save(0, other);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->pages, 14U) << "96 tokens are the prompt's";
  for (const Text& prompt : {held, other}) expect_right_later(two, prompt);
}

TEST_F(LlamaArguments, TokensThatTheModelHasNot) {
  Engine two = engine("llama", Mode::kFast);
  const llama_token words = llama_vocab_n_tokens(llama_model_get_vocab(two.model()));
  for (const llama_token token : {-1, words, 1 << 30}) {
    Text prompt = text_of(two.model(), 1, 50);
    prompt[30] = token;
    EXPECT_EQ(two.cache->prefill(0, prompt).status().code, TIERCEL_INVALID_ARGUMENT) << token;
    EXPECT_EQ(two.cache->restore(0, prompt).status().code, TIERCEL_INVALID_ARGUMENT) << token;
  }
}

}  // namespace
}  // namespace tiercel::llamacpp
