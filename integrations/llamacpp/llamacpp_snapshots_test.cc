// Snapshots and whole states: how many are taken, where, and that each length is restored right.
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "llamacpp_bed_for_test.h"
#include "llamacpp_disk_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kLengths[] = {1, 16, 17, 64, 65, 127, 128, 192, 193, 512, 576, 577};

void empty(const Engine& engine, llama_seq_id sequence) {
  llama_memory_seq_rm(llama_get_memory(engine.context.get()), sequence, -1, -1);
}

class LlamaWhole : public testing::TestWithParam<const char*> {
 protected:
  static Engine engine(const Shape& shape, Mode mode, const std::shared_ptr<Store>& store) {
    Engine made =
        attach_tiny(GetParam(), shape, mode, [](ContextOptions& options) { options.opaque = true; });
    EXPECT_EQ(made.cache->sequence_kind(), SequenceKind::kWhole);
    EXPECT_TRUE(made.cache->use(store).ok());
    return made;
  }
  static bool exact_is_refused() { return std::string(GetParam()) == "llama_swa96"; }
};

class LlamaExactWhole : public LlamaWhole {};

TEST_P(LlamaExactWhole, ExactModeRestoresTheLongestLengthOfTheSamePrompt) {
  const Folder folder;
  Engine four = engine({.sequences = 4}, Mode::kExact, open_store(folder.store()));
  for (const std::uint32_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " tokens");
    const Text prompt = text_of(four.model(), 3000 + length, length + 1);
    const Text shorter(prompt.begin(), prompt.end() - 1);
    EXPECT_EQ(right_turn(four, 0, shorter).prefilled.restored.tokens, 0U);
    empty(four, 0);  // of whole states it is not known whether other sequences' cells matter
    EXPECT_EQ(right_turn(four, 1, shorter).prefilled.restored.tokens, four.longest(length));
    empty(four, 1);
    right_turn(four, 2, prompt);
    empty(four, 2);
  }
}

TEST_P(LlamaWhole, FastModeRestoresWhatThePromptBeforeLeft) {
  const Folder folder;
  Engine four = engine({.sequences = 4}, Mode::kFast, open_store(folder.store()));
  for (const std::uint32_t length : kLengths) {
    SCOPED_TRACE(std::to_string(length) + " tokens");
    const Text prompt = text_of(four.model(), 3000 + length, length);
    const Turn first = turn(four, 0, prompt), second = turn(four, 1, prompt);
    EXPECT_EQ(second.prefilled.restored.tokens, four.longest(length));
    const Answer wanted = four.plain().continued(
        prompt, first.prefilled.pieces, second.prefilled.restored.tokens, prompt, second.prefilled.pieces);
    EXPECT_TRUE(same_as_split(four, second.prefilled.restored.tokens, wanted, second.answer));
  }
}

TEST_P(LlamaWhole, InAnotherContextAndAfterTheStoreWasReopened) {
  const Folder folder;
  const Mode mode = exact_is_refused() ? Mode::kFast : Mode::kExact;
  Text prompt;
  {
    Engine alone = engine({}, mode, open_store(folder.store()));
    prompt = text_of(alone.model(), 1, 640);
    right_turn(alone, 0, prompt);
  }
  Engine wider = engine({.tokens = 2048}, mode, open_store(folder.store()));
  EXPECT_EQ(right_turn(wider, 0, prompt).prefilled.restored.tokens, wider.longest(640));
  EXPECT_EQ(wider.cache->use(nullptr).code, TIERCEL_OK);
  // With other streams the state may be refused; then nothing is restored, and the answer is right.
  Engine four = engine({.sequences = 4}, mode, open_store(folder.store()));
  right_turn(four, 3, prompt);
}

// Two states of one prefix, of other bits, as fast mode may compute them. What has lost a piece must go
// before the other one can be stored, and no piece of one comes back with a piece of the other.
TEST(LlamaWholePieces, AStateThatLostAPieceMakesRoomForAnother) {
  const Folder folder;
  StoreOptions options = store_options(folder.store());
  options.cache_bytes = 32 * kMiB;
  const auto engine_of = [](std::uint32_t micro_batch) {
    return attach_tiny("llama", {.tokens = 4096, .micro_batch = micro_batch}, Mode::kFast,
                       [](ContextOptions& chosen) { chosen.opaque = true; });
  };
  Engine tiles = engine_of(512), rows = engine_of(32);
  ASSERT_EQ(tiles.cache->namespace_text(), rows.cache->namespace_text()) << "the point of this test";
  const Text prompt = text_of(tiles.model(), 1, 2500);
  {
    const auto store = open_store(options);
    ASSERT_TRUE(tiles.cache->use(store).ok());
    turn(tiles, 0, prompt);
    ASSERT_TRUE(store->close().ok());
  }
  const LogFile log(folder.store());
  const std::vector<DiskRecord> records = log.records();
  ASSERT_EQ(records.size(), 2U) << "pieces of one state";
  log.flip(records[1].at + records[1].header_bytes + 1000, 3);
  ASSERT_TRUE(rows.cache->use(open_store(options)).ok());
  const Turn computed = turn(rows, 0, prompt);
  EXPECT_EQ(computed.prefilled.restored.tokens, 0U);
  const Turn restored = turn(rows, 0, prompt);
  EXPECT_EQ(restored.prefilled.restored.tokens, rows.longest(prompt.size()));
  EXPECT_TRUE(same_bits(computed.answer, restored.answer)) << "the end was computed in the same calls";
}

std::string name_of(const testing::TestParamInfo<const char*>& each) { return each.param; }
INSTANTIATE_TEST_SUITE_P(Each, LlamaWhole, testing::ValuesIn(kTinyModels), name_of);
INSTANTIATE_TEST_SUITE_P(Each, LlamaExactWhole, testing::ValuesIn(kExactModels), name_of);

// ---- snapshots ----

class LlamaSnapshots : public testing::TestWithParam<const char*> {
 protected:
};

// Ends of all calls but the last.
std::vector<std::uint32_t> inner_ends(const Prefilled& done) {
  std::vector<std::uint32_t> ends(done.pieces.size());
  std::partial_sum(done.pieces.begin(), done.pieces.end(), ends.begin());
  for (std::uint32_t& end : ends) end += done.restored.tokens;
  if (!ends.empty()) ends.pop_back();
  return ends;
}

TEST_P(LlamaSnapshots, NoMoreThanAskedForAndAtMultiplesOf64InExactMode) {
  for (const std::uint32_t most : {0U, 1U, 4U}) {
    SCOPED_TRACE("at most " + std::to_string(most));
    const Folder folder;
    Engine engine = attach_tiny(GetParam(), {.tokens = 2048}, Mode::kExact,
                                [&](ContextOptions& options) { options.snapshots_per_prompt = most; });
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    for (std::uint64_t i = 0; i < 5; ++i) {  // branches at many places, so that advice has much to say
      const Text prompt = branch_of(engine.model(), 70, 200 * i + 100, 80 + i, 1100);
      const Turn done = right_turn(engine, 0, prompt);
      EXPECT_LE(done.prefilled.snapshots, most);
      EXPECT_LE(done.prefilled.pieces.size(), 1100 / 512 + 1 + 2 * most)
          << "no call more than the stops ask for";
      for (const std::uint32_t end : inner_ends(done.prefilled)) EXPECT_EQ(end % 64, 0U);
      if (most == 0) {
        EXPECT_EQ(done.prefilled.restored.tokens, 0U);
      }
    }
  }
}

TEST_P(LlamaSnapshots, ATokenMoreThanAWholeNumberOfPagesLeavesNoSnapshotAtTheEndInFastMode) {
  const Folder folder;
  Engine engine = attach_tiny(GetParam(), {}, Mode::kFast);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  const Text prompt = text_of(engine.model(), 4, 330);
  turn(engine, 0, prompt);
  Text longer = prompt;
  longer.resize(500, 1);
  const auto restored = engine.cache->restore(0, longer);
  ASSERT_TRUE(restored.ok());
  EXPECT_EQ(restored->tokens, 320U) << "the last whole page before its end";
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaSnapshots,
                         testing::Values("llama_swa", "mamba", "lfm2", "lfm2_swa", "granite_hybrid"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tiercel::llamacpp
