// Conversations that begin alike and branch at odd places: each gets what it shares with those before it.
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint64_t kTrunk = 11;
constexpr std::size_t kShared[] = {100, 333, 700};

struct Expected {  // restored, of models that keep only pages
  std::uint32_t fast, exact;
};
constexpr Expected kRestored[] = {{96, 64}, {320, 320}, {688, 640}};

class LlamaBranches : public testing::TestWithParam<const char*> {
 protected:
  Engine engine(Mode mode, const Folder& folder) const {
    Engine made = attach_tiny(GetParam(), {.sequences = 4}, mode);
    EXPECT_TRUE(made.cache->use(open_store(folder.store())).ok());
    return made;
  }
};

// The trunk, three branches off it, and the first one again.
TEST_P(LlamaBranches, EachRestoresWhatItSharesAndSaysWhatPlainLlamaSays) {
  const Folder folder;
  Engine four = engine(Mode::kExact, folder);
  const bool pages_only = four.cache->sequence_kind() == SequenceKind::kAttention;
  const Text trunk = text_of(four.model(), kTrunk, 1000);
  EXPECT_EQ(right_turn(four, 0, trunk).prefilled.restored.tokens, 0U);
  for (std::size_t i = 0; i < std::size(kShared); ++i) {
    SCOPED_TRACE(std::to_string(kShared[i]) + " tokens are shared");
    const Text branch = branch_of(four.model(), kTrunk, kShared[i], 20 + i, 900);
    const Turn done = right_turn(four, static_cast<llama_seq_id>(i + 1), branch);
    EXPECT_TRUE(!pages_only || done.prefilled.restored.tokens == kRestored[i].exact)
        << done.prefilled.restored.tokens;
    EXPECT_LE(done.prefilled.restored.tokens, kRestored[i].exact);
  }
  EXPECT_EQ(right_turn(four, 0, trunk).prefilled.restored.tokens, four.longest(trunk.size()));
}

TEST_P(LlamaBranches, ASecondQuestionOverTheSameTextFindsASnapshotAtTheBranch) {
  const Folder folder;
  Engine four = engine(Mode::kExact, folder);
  for (const std::uint64_t question : {1U, 2U, 3U, 4U})
    right_turn(four, 1, branch_of(four.model(), kTrunk, 333, 30 + question, 500));
  const Turn fifth = right_turn(four, 2, branch_of(four.model(), kTrunk, 333, 99, 500));
  EXPECT_EQ(fifth.prefilled.restored.tokens, 320U) << "the store saw this branch four times";
}

class LlamaFastBranches : public LlamaBranches {};

TEST_P(LlamaFastBranches, FastModeComputesWhatIsNewWithTheSamePieces) {
  const Folder folder;
  Engine four = engine(Mode::kFast, folder);
  const bool pages_only = four.cache->sequence_kind() == SequenceKind::kAttention;
  const Text trunk = text_of(four.model(), kTrunk, 1000);
  const Pieces pieces = turn(four, 0, trunk).prefilled.pieces;
  for (std::size_t i = 0; i < std::size(kShared); ++i) {
    SCOPED_TRACE(std::to_string(kShared[i]) + " tokens are shared");
    const Text branch = branch_of(four.model(), kTrunk, kShared[i], 20 + i, 900);
    const auto restored = four.cache->restore(2, branch);  // nothing of it is saved: the trunk's pages alone
    ASSERT_TRUE(restored.ok()) << restored.status().to_string();
    EXPECT_TRUE(!pages_only || restored->tokens == kRestored[i].fast) << restored->tokens;
    EXPECT_LE(restored->tokens, kRestored[i].fast);
    const std::uint32_t kept = restored->tokens;
    ASSERT_EQ(decode(four.context.get(), 2, std::span(branch).subspan(kept), kept), 0);
    const Answer wanted = four.plain().continued(trunk, pieces, kept, branch, {900 - kept});
    EXPECT_TRUE(same_bits(wanted, answer_of(four.context.get(), 2, branch.size())))
        << kept << " tokens restored";
  }
}

std::string name_of(const testing::TestParamInfo<const char*>& each) { return each.param; }
INSTANTIATE_TEST_SUITE_P(Each, LlamaBranches, testing::ValuesIn(kExactModels), name_of);
INSTANTIATE_TEST_SUITE_P(Each, LlamaFastBranches, testing::ValuesIn(kTinyModels), name_of);

}  // namespace
}  // namespace tiercel::llamacpp
