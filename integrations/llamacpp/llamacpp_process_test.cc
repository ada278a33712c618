// Other processes: what one saved another one restores; one that is killed while it saves; two that save the
// same conversation.
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "llamacpp_puppet_for_test.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kLengths[] = {1, 16, 64, 65, 128, 129, 192, 513, 576, 577, 640, 704};
constexpr std::uint32_t kSaved = 704;
constexpr Shape kFour{.sequences = 4};

std::string line_of(const std::string& what, llama_seq_id sequence, std::uint64_t seed,
                    std::uint32_t tokens) {
  return what + " " + std::to_string(sequence) + " " + std::to_string(seed) + " " + std::to_string(tokens);
}

std::string open_line(const Folder& folder, std::uint64_t wait_ns = 60'000'000'000) {
  return "open " + folder.store() + " " + std::to_string(wait_ns);
}

class LlamaProcess : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = tiny_model_path(GetParam());
    // Exact mode is refused for this one: its window is no multiple of a tile.
    mode_ = std::string(GetParam()) == "llama_swa96" ? Mode::kFast : Mode::kExact;
  }
  Text text(std::uint64_t seed, std::uint32_t tokens) const {
    return text_of(load_model(path_), seed, tokens);
  }
  // What this process saves for the others.
  Pieces save(const Folder& folder, std::uint64_t seed) const {
    Engine engine = attach(path_, {}, mode_);
    EXPECT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    return right_turn(engine, 0, text(seed, kSaved)).prefilled.pieces;
  }
  // Its answer is that of plain llama.cpp (of other lengths' pieces fast mode may have restored any).
  void judge(const std::string& line, std::uint64_t seed, std::uint32_t tokens) const {
    const std::optional<PuppetAnswer> got = puppet_answer(line);
    ASSERT_TRUE(got.has_value()) << line.substr(0, 200);
    EXPECT_EQ(got->restored + got->computed, tokens);
    const Answer& wanted = plain_of(path_).answer(text(seed, tokens));
    EXPECT_TRUE(mode_ == Mode::kExact ? same_bits(wanted, got->answer) : same_choices(wanted, got->answer))
        << tokens << " tokens, " << got->restored << " restored";
  }
  std::string path_;
  Mode mode_ = Mode::kExact;
};

TEST_P(LlamaProcess, AnotherOneRestoresWhatThisOneSaved) {
  const Folder folder;
  save(folder, 1);
  Puppet other(path_, mode_, kFour);
  ASSERT_EQ(other.ask(open_line(folder)), "opened");
  std::uint32_t most = 0;
  for (const std::uint32_t length : kLengths) {
    const std::string line = other.ask(line_of("prefill", 2, 1, length));
    judge(line, 1, length);
    most = std::max(most, puppet_answer(line).value_or(PuppetAnswer{}).restored);
  }
  EXPECT_GE(most, 640U);
  EXPECT_EQ(other.end(), 0);
}

TEST_P(LlamaProcess, ThisOneRestoresWhatAnotherOneSavedAndGoesOn) {
  const Folder folder;
  {
    Puppet other(path_, mode_, kFour);
    ASSERT_EQ(other.ask(open_line(folder)), "opened");
    judge(other.ask(line_of("prefill", 3, 1, kSaved)), 1, kSaved);
    ASSERT_EQ(other.ask("close"), "closed");
    judge(other.ask(line_of("prefill", 3, 1, 100)), 1, 100);  // it goes on without
    EXPECT_EQ(other.end(), 0);
  }
  Engine engine = attach(path_, {}, mode_);
  ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
  EXPECT_EQ(right_turn(engine, 0, text(1, kSaved)).prefilled.restored.tokens, engine.longest(kSaved));
  EXPECT_GE(right_turn(engine, 0, text(1, kSaved + 200)).prefilled.restored.tokens, 640U);
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaProcess, testing::ValuesIn(kTinyModels),
                         [](const auto& each) { return std::string(each.param); });

// ---- two at a time ----

class LlamaTwoProcesses : public LlamaProcess {};

TEST_P(LlamaTwoProcesses, TheSecondGoesOnWithoutTheStoreThatTheFirstHolds) {
  const Folder folder;
  Puppet first(path_, mode_), second(path_, mode_);
  ASSERT_EQ(first.ask(open_line(folder)), "opened");
  const std::string refusal = second.ask(open_line(folder, 0));
  EXPECT_EQ(refusal.rfind("refused unavailable", 0), 0U) << refusal;
  EXPECT_NE(refusal.find(std::to_string(first.pid())), std::string::npos)
      << "who has it is not named: " << refusal;
  first.tell(line_of("prefill", 0, 1, kSaved));
  second.tell(line_of("prefill", 0, 1, kSaved));
  for (Puppet* puppet : {&first, &second}) {
    const std::string line = puppet->hear();
    judge(line, 1, kSaved);
    EXPECT_EQ(puppet_answer(line).value_or(PuppetAnswer{}).restored, 0U);
  }
}

TEST_P(LlamaTwoProcesses, TheSecondWaitsForTheStoreAndRestoresWhatTheFirstSaved) {
  const Folder folder;
  Puppet first(path_, mode_), second(path_, mode_);
  ASSERT_EQ(first.ask(open_line(folder)), "opened");
  first.tell(line_of("prefill", 0, 1, kSaved));
  second.tell(open_line(folder));  // it waits while the first one computes and saves
  second.tell(line_of("prefill", 0, 1, kSaved));
  judge(first.hear(), 1, kSaved);
  ASSERT_EQ(first.ask("close"), "closed");
  ASSERT_EQ(second.hear(), "opened");
  const std::string line = second.hear();
  judge(line, 1, kSaved);
  EXPECT_EQ(puppet_answer(line).value_or(PuppetAnswer{}).restored, 640U);
}

TEST_P(LlamaTwoProcesses, BothSaveTheSameConversationByTurns) {
  const Folder folder;
  Puppet first(path_, mode_), second(path_, mode_);
  for (std::uint32_t turn = 1; turn <= 6; ++turn) {
    for (Puppet* puppet :
         {&first, &second}) {  // each tells and waits at once: the store decides who is first
      puppet->tell(open_line(folder));
      puppet->tell(line_of("prefill", 0, 1, 100 * turn));
      puppet->tell("close");
    }
    for (Puppet* puppet : {&first, &second}) {
      ASSERT_EQ(puppet->hear(), "opened");
      judge(puppet->hear(), 1, 100 * turn);
      ASSERT_EQ(puppet->hear(), "closed");
    }
  }
}

// ---- two contexts in one process ----

TEST_P(LlamaTwoProcesses, TwoContextsByTurnsOnOneStore) {
  const Folder folder;
  const auto store = open_store(folder.store());
  Engine first = attach(path_, {}, mode_), second = attach(path_, {.tokens = 2048, .sequences = 2}, mode_);
  for (Engine* engine : {&first, &second}) ASSERT_TRUE(engine->cache->use(store).ok());
  std::uint64_t restored = 0;
  for (std::uint64_t i = 0; i < 12; ++i) {
    Engine& engine = i % 2 == 0 ? first : second;
    const Text prompt = branch_of(engine.model(), 1, 100 * (i % 4), 40 + i % 5, 500);
    restored += right_turn(engine, 0, prompt).prefilled.restored.tokens;
  }
  EXPECT_GT(restored, 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaTwoProcesses, testing::Values("llama", "lfm2"),
                         [](const auto& each) { return std::string(each.param); });

// ---- one that is killed ----

class LlamaKilledProcess : public LlamaProcess {};

constexpr int kKills = 10;
constexpr std::uint64_t kTexts = 5;

// A process saves texts, of which some are flushed, and is killed after `replies` of them and a moment.
int save_and_be_killed(Puppet& puppet, std::uint64_t first_seed, std::mt19937& random) {
  for (std::uint64_t i = 0; i < kTexts; ++i)
    puppet.tell(line_of(i % 2 == 0 ? "save_on" : "prefill", 0, first_seed + i, 300));
  const auto replies = static_cast<int>(random() % (kTexts + 1));
  for (int i = 0; i < replies; ++i) EXPECT_FALSE(puppet.hear().empty());
  random.discard(random() % 2'000'000);  // a moment: some milliseconds
  puppet.kill_now();
  return replies;
}

TEST_P(LlamaKilledProcess, WhatIsRestoredAfterwardsIsRightAndWhatWasFlushedIsThere) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  const Folder folder;
  std::uint64_t restored_after_kills = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    const std::uint64_t seed =
        100 + static_cast<std::uint64_t>(kill) * 2;  // overlaps with what the last one saved
    Puppet puppet(path_, mode_);
    ASSERT_EQ(puppet.ask(open_line(folder)), "opened");
    const int replies = save_and_be_killed(puppet, seed, random);
    Engine engine = attach(path_, {}, mode_);
    ASSERT_TRUE(engine.cache->use(open_store(folder.store())).ok());
    for (std::uint64_t i = 0; i < kTexts; ++i) {
      const Turn done = right_turn(engine, 0, text(seed + i, 300));
      restored_after_kills += done.prefilled.restored.tokens;
      const bool flushed = i % 2 == 0 && static_cast<int>(i) < replies;
      EXPECT_TRUE(!flushed || done.prefilled.restored.tokens == engine.longest(300))
          << "text " << i << " was flushed";
    }
  }
  EXPECT_GT(restored_after_kills, 0U);
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaKilledProcess, testing::Values("llama", "lfm2"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace tiercel::llamacpp
