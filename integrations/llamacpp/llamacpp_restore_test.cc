// Each kind of memory, both modes, every length around the borders of pages, tiles, windows and
// micro-batches: saved in one sequence or context, restored in another. Exact mode: every logit is that of
// plain llama.cpp. Fast mode: of llama.cpp computing the same pieces.
#include <algorithm>
#include <numeric>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kLengths[] = {0,   1,   2,   15,  16,  17,  31,  32,  33,  63,  64,  65,
                                      127, 128, 129, 191, 192, 193, 511, 512, 513, 575, 576, 577};
constexpr std::uint32_t kBorders[] = {1,   16,  17,  63,  64,  65,  127, 128,
                                      129, 192, 193, 512, 513, 576, 577, 640};
constexpr std::uint32_t kSaved = 704;  // the longer prompt; a multiple of 64

constexpr Shape kFour{.sequences = 4};
constexpr Shape kUnified{.tokens = 2048, .sequences = 4, .unified = true};
constexpr Shape kAlone{};

struct Crossing {  // from where to where
  const char* name;
  Shape from, to;
  llama_seq_id from_sequence, to_sequence;
};
constexpr Crossing kCrossings[] = {
    {"SplitToAlone", kFour, kAlone, 3, 0},
    {"UnifiedToSplit", kUnified, kFour, 1, 2},
    {"AloneToUnified", kAlone, kUnified, 0, 2},
};

using Case = std::tuple<const char*, Mode>;
std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(std::get<0>(info.param)) +
         (std::get<1>(info.param) == Mode::kExact ? "_exact" : "_fast");
}

class LlamaRestore : public testing::TestWithParam<Case> {
 protected:
  const char* model() const { return std::get<0>(GetParam()); }
  Mode mode() const { return std::get<1>(GetParam()); }
  Engine engine(const Shape& shape, const std::shared_ptr<Store>& store) const {
    Engine made = attach_tiny(model(), shape, mode());
    EXPECT_TRUE(made.cache->use(store).ok());
    return made;
  }
};

// Restores by hand and computes the rest in one call: nothing is saved, so that what is restored is always
// what the saving run computed.
struct ByHand {
  Restored restored;
  Answer answer;
};
ByHand restore_and_compute(Engine& engine, llama_seq_id sequence, const Text& prompt) {
  auto restored = engine.cache->restore(sequence, prompt);
  EXPECT_TRUE(restored.ok()) << restored.status().to_string();
  if (!restored) return {};
  EXPECT_EQ(engine.last_position(sequence), static_cast<llama_pos>(restored->tokens) - 1);
  if (prompt.empty()) return {*restored, {}};
  EXPECT_EQ(
      decode(engine.context.get(), sequence, std::span(prompt).subspan(restored->tokens), restored->tokens),
      0);
  return {*restored, answer_of(engine.context.get(), sequence, prompt.size())};
}

// Whether a call of the saving run ended there.
bool is_border(const Pieces& pieces, std::uint32_t length) {
  std::uint32_t at = 0;
  for (const std::uint32_t piece : pieces) {
    if (at >= length) break;
    at += piece;
  }
  return at == length;
}

void expect_length(const Engine& engine, const Restored& restored, const Pieces& saved) {
  if (engine.cache->sequence_kind() == SequenceKind::kAttention) {
    EXPECT_EQ(restored.tokens, restored.limit) << restored.note;
  } else {
    EXPECT_LE(restored.tokens, restored.limit);
    EXPECT_TRUE(is_border(saved, restored.tokens)) << restored.tokens;
  }
}

// A prefix of what `saver` saved, in `engine`.
void judge_prefix(Engine& engine, llama_seq_id sequence, const Text& saved, const Pieces& pieces,
                  std::uint32_t length) {
  SCOPED_TRACE(std::to_string(length) + " tokens of a longer prompt");
  const Text prompt(saved.begin(), saved.begin() + length);
  if (engine.exact()) {
    const Turn done = right_turn(engine, sequence, prompt);
    if (engine.cache->sequence_kind() == SequenceKind::kAttention)
      expect_length(engine, done.prefilled.restored, pieces);
    return;
  }
  const ByHand done = restore_and_compute(engine, sequence, prompt);
  expect_length(engine, done.restored, pieces);
  if (prompt.empty()) return;
  const std::uint32_t kept = done.restored.tokens;
  const Answer wanted = engine.plain().continued(saved, pieces, kept, prompt, {length - kept});
  EXPECT_TRUE(same_as_split(engine, kept, wanted, done.answer)) << kept << " tokens restored";
}

TEST_P(LlamaRestore, EachPrefixOfALongerPromptInAnotherSequenceOfTheContext) {
  const Folder folder;
  Engine four = engine(kFour, open_store(folder.store()));
  const Text saved = text_of(four.model(), 1, kSaved);
  const Turn first = right_turn(four, 0, saved);
  EXPECT_EQ(first.prefilled.restored.tokens, 0U);
  for (const std::uint32_t length : kLengths) judge_prefix(four, 2, saved, first.prefilled.pieces, length);
}

TEST_P(LlamaRestore, EachPrefixOfALongerPromptInAnotherContext) {
  for (const Crossing& crossing : kCrossings) {
    SCOPED_TRACE(crossing.name);
    const Folder folder;
    const auto store = open_store(folder.store());
    Engine from = engine(crossing.from, store);
    const Text saved = text_of(from.model(), 1, kSaved);
    const Turn first = right_turn(from, crossing.from_sequence, saved);
    Engine to = engine(crossing.to, store);
    for (const std::uint32_t length : kBorders)
      judge_prefix(to, crossing.to_sequence, saved, first.prefilled.pieces, length);
  }
}

// The first prompt in one sequence, then the second in another one.
struct Two {
  Turn first, second;
};
Two one_after_the_other(Engine& engine, const Text& first, const Text& second) {
  Turn one = right_turn(engine, 0, first);
  EXPECT_EQ(one.prefilled.restored.tokens, 0U) << "of a text that nobody saw";
  Turn two = right_turn(engine, 1, second);
  if (!engine.exact() && !second.empty()) {
    const std::uint32_t kept = two.prefilled.restored.tokens;
    EXPECT_TRUE(
        same_bits(engine.plain().continued(first, one.prefilled.pieces, kept, second, two.prefilled.pieces),
                  two.answer))
        << kept << " tokens restored";
  }
  return {std::move(one), std::move(two)};
}

TEST_P(LlamaRestore, TheSamePromptAgainAtEachLength) {
  const Folder folder;
  Engine four = engine(kFour, open_store(folder.store()));
  for (const std::uint32_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " tokens");
    const Text prompt = text_of(four.model(), 1000 + length, length);
    const Two two = one_after_the_other(four, prompt, prompt);
    EXPECT_EQ(two.second.prefilled.restored.tokens, four.longest(length))
        << two.second.prefilled.restored.note;
  }
}

TEST_P(LlamaRestore, OneTokenMoreThanWasSavedAtEachLength) {
  const Folder folder;
  Engine four = engine(kFour, open_store(folder.store()));
  for (const std::uint32_t length :
       {0U, 1U, 15U, 16U, 63U, 64U, 65U, 127U, 128U, 191U, 192U, 511U, 512U, 575U, 576U}) {
    SCOPED_TRACE(std::to_string(length) + " tokens and one more");
    const Text longer = text_of(four.model(), 2000 + length, length + 1);
    const Two two = one_after_the_other(four, Text(longer.begin(), longer.end() - 1), longer);
    if (four.cache->sequence_kind() != SequenceKind::kAttention) continue;
    // Of what was computed by small kernels, exact mode saves nothing.
    const std::uint32_t whole =
        four.exact() ? tiled_tokens(length, four.shape.micro_batch) / 64 * 64 : length / 16 * 16;
    EXPECT_EQ(two.second.prefilled.restored.tokens, std::min(whole, four.longest(length + 1)));
  }
}

TEST_P(LlamaRestore, AStoreThatWasClosedAndOpenedAgain) {
  const Folder folder;
  Pieces pieces;
  Text saved;
  {
    Engine alone = engine(kAlone, open_store(folder.store()));
    saved = text_of(alone.model(), 1, kSaved);
    pieces = right_turn(alone, 0, saved).prefilled.pieces;
  }
  Engine four = engine(kFour, open_store(folder.store()));
  judge_prefix(four, 1, saved, pieces, 577);
  judge_prefix(four, 2, saved, pieces, 640);
  const auto again = four.cache->restore(3, saved);
  ASSERT_TRUE(again.ok());
  EXPECT_GT(again->tokens, 0U) << again->note;
  EXPECT_EQ(again->host_tokens + again->disk_tokens, again->tokens);
}

INSTANTIATE_TEST_SUITE_P(Exact, LlamaRestore,
                         testing::Combine(testing::ValuesIn(kExactModels), testing::Values(Mode::kExact)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Fast, LlamaRestore,
                         testing::Combine(testing::ValuesIn(kTinyModels), testing::Values(Mode::kFast)),
                         name_of);

// ---- what only fast mode saves ----

// As a program does that generates: a token, a call.
void add_one_by_one(Engine& engine, llama_seq_id sequence, Text& said, std::size_t until) {
  while (said.size() < until) {
    const auto next = static_cast<llama_token>(said.size() % 100);
    ASSERT_EQ(decode(engine.context.get(), sequence, {&next, 1}, said.size()), 0);
    said.push_back(next);
  }
}

// A prompt of 100 tokens, generation to `lengths` one after the other, each saved.
void generate_and_restore(Engine& engine) {
  const bool pages_only = engine.cache->sequence_kind() == SequenceKind::kAttention;
  Text said = text_of(engine.model(), 5, 100);
  Pieces pieces = engine.cache->prefill(0, said)->pieces;
  for (const std::uint32_t length : {130U, 144U, 200U}) {
    SCOPED_TRACE(std::to_string(length) + " tokens");
    add_one_by_one(engine, 0, said, length);
    pieces.resize(pieces.size() + length - std::accumulate(pieces.begin(), pieces.end(), 0U), 1);
    const auto saved = engine.cache->save(0, said);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    const std::uint32_t whole = length / 16 * 16;
    EXPECT_EQ(saved->tokens, whole);
    Text longer = said;
    longer.push_back(7);
    const auto restored = engine.cache->restore(3, longer);
    ASSERT_TRUE(restored.ok());
    // A snapshot is of the length that the sequence has, or none is taken.
    const std::uint32_t kept = pages_only || whole == length ? whole : length == 200 ? 144 : 96;
    ASSERT_EQ(restored->tokens, kept);
    ASSERT_EQ(decode(engine.context.get(), 3, std::span(longer).subspan(kept), kept), 0);
    const Answer& wanted = engine.plain().continued(said, pieces, kept, longer, {length + 1 - kept});
    EXPECT_TRUE(same_as_split(engine, kept, wanted, answer_of(engine.context.get(), 3, length + 1)));
  }
}

TEST(LlamaRestoreGenerated, WhatWasGeneratedIsRestoredInFastModeToTheSameBits) {
  for (const char* name : kTinyModels) {
    SCOPED_TRACE(name);
    const Folder folder;
    Engine engine = attach_tiny(name, kFour, Mode::kFast);
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    generate_and_restore(engine);
  }
}

TEST(LlamaRestoreGenerated, WhatWasGeneratedIsPassedOverInExactMode) {
  const Folder folder;
  Engine engine = attach_tiny("llama", kFour, Mode::kExact);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  Text said = text_of(engine.model(), 5, 256);
  const Turn first = right_turn(engine, 0, said);
  said.insert(said.end(), first.answer.steps.begin(), first.answer.steps.end());
  add_one_by_one(engine, 0, said, 320);
  const auto saved = engine.cache->save(0, said);
  ASSERT_TRUE(saved.ok()) << saved.status().to_string();
  EXPECT_EQ(saved->pages, 0U);
  EXPECT_EQ(saved->tokens, 256U);
  const Turn second = right_turn(engine, 1, text_of(engine.model(), 5, 256));
  EXPECT_EQ(second.prefilled.restored.tokens, 192U);
  said.resize(600, 3);
  EXPECT_EQ(right_turn(engine, 2, said).prefilled.restored.tokens, 256U);
}

// Room that another sequence left is used again: later positions stand in earlier cells.
TEST(LlamaRestoreGenerated, CellsThatStandInAnotherOrderThanPositions) {
  for (const char* name : {"llama", "mla", "lfm2", "granite_hybrid"}) {
    SCOPED_TRACE(name);
    const Folder folder;
    Engine engine = attach_tiny(name, {.sequences = 2, .unified = true}, Mode::kFast);
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    const Text front = text_of(engine.model(), 1, 100), said = text_of(engine.model(), 2, 256);
    ASSERT_EQ(decode(engine.context.get(), 0, front, 0), 0);
    ASSERT_TRUE(engine.cache->prefill(1, std::span(said).first(100)).ok());
    ASSERT_TRUE(llama_memory_seq_rm(llama_get_memory(engine.context.get()), 0, -1, -1));
    ASSERT_EQ(decode(engine.context.get(), 1, std::span(said).subspan(100), 100), 0);
    const auto saved = engine.cache->save(1, said);
    ASSERT_TRUE(saved.ok()) << saved.status().to_string();
    EXPECT_EQ(saved->tokens, 256U);
    Text longer = said;
    longer.push_back(7);
    const Turn done = turn(engine, 0, longer);
    EXPECT_EQ(done.prefilled.restored.tokens, 256U);
    EXPECT_TRUE(same_choices(engine.plain().in_pieces(longer, {100, 156, 1}), done.answer));
  }
}

// The bits of plain llama.cpp are those of as many threads.
TEST(LlamaRestoreGenerated, TwoThreadsInExactMode) {
  for (const char* name : {"llama", "lfm2", "granite_hybrid"}) {
    SCOPED_TRACE(name);
    const Folder folder;
    Engine engine = attach_tiny(name, {.sequences = 2}, Mode::kExact);
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    const Context plain = make_context(tiny_model(name), Shape{}.params());
    for (llama_context* each : {engine.context.get(), plain.get()}) llama_set_n_threads(each, 2, 2);
    const Text saved = text_of(engine.model(), 9, kSaved);
    turn(engine, 0, saved);
    for (const std::uint32_t length : {65U, 193U, 577U, 704U}) {
      const Text prompt(saved.begin(), saved.begin() + length);
      llama_memory_clear(llama_get_memory(plain.get()), true);
      ASSERT_EQ(decode(plain.get(), 0, prompt, 0), 0);
      turn(engine, 1, prompt);
      const Turn again = turn(engine, 1, prompt);
      EXPECT_EQ(again.prefilled.restored.tokens, engine.longest(length));
      EXPECT_TRUE(same_bits(answer_of(plain.get(), 0, length), again.answer)) << length;
    }
  }
}

TEST(LlamaRestoreGenerated, PagesAndMicroBatchesOfOtherSizes) {
  for (const std::uint32_t page : {16U, 32U, 64U}) {
    for (const std::uint32_t micro_batch : {128U, 256U, 512U}) {
      SCOPED_TRACE("pages of " + std::to_string(page) + ", micro-batches of " + std::to_string(micro_batch));
      const Folder folder;
      Engine engine = attach_tiny("llama", {.sequences = 2, .micro_batch = micro_batch}, Mode::kExact,
                                  [&](ContextOptions& options) { options.page_tokens = page; });
      ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
      const Text saved = text_of(engine.model(), 3, kSaved);
      right_turn(engine, 0, saved);
      for (const std::uint32_t length : {130U, 193U, 257U, 319U, 320U, 511U, 577U, 704U}) {
        const Turn done = right_turn(engine, 1, Text(saved.begin(), saved.begin() + length));
        EXPECT_EQ(done.prefilled.restored.tokens, engine.longest(length)) << length;
      }
    }
  }
}

}  // namespace
}  // namespace tiercel::llamacpp
