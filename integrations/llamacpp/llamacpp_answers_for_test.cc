#include "llamacpp_answers_for_test.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

namespace tiercel::llamacpp {
namespace {

std::vector<float> last_logits(llama_context* context) {
  const auto words =
      static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context))));
  const float* logits = llama_get_logits_ith(context, -1);
  if (logits == nullptr) return {};
  return {logits, logits + words};
}

std::string difference(const std::vector<float>& wanted, const std::vector<float>& got) {
  if (wanted.size() != got.size())
    return std::to_string(wanted.size()) + " logits are wanted, " + std::to_string(got.size()) + " there";
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  };
  std::size_t first = got.size(), count = 0;
  float largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (same(wanted[i], got[i])) continue;
    first = std::min(first, i);
    ++count;
    largest = std::max(largest, std::fabs(wanted[i] - got[i]));
  }
  if (count == 0) return "";
  std::array<char, 160> text{};
  std::snprintf(text.data(), text.size(), "logit %zu: wanted %a, got %a; %zu of %zu differ, by %g at most",
                first, static_cast<double>(wanted[first]), static_cast<double>(got[first]), count, got.size(),
                static_cast<double>(largest));
  return text.data();
}

}  // namespace

testing::AssertionResult same_bits(const Answer& wanted, const Answer& got) {
  for (std::size_t row = 0; row < std::max(wanted.logits.size(), got.logits.size()); ++row) {
    if (row >= wanted.logits.size() || row >= got.logits.size())
      return testing::AssertionFailure()
             << wanted.logits.size() << " rows of logits are wanted, " << got.logits.size() << " there";
    const std::string text = difference(wanted.logits[row], got.logits[row]);
    if (!text.empty())
      return testing::AssertionFailure()
             << (row == 0 ? "after the prompt: " : "after step " + std::to_string(row) + ": ") << text;
  }
  if (wanted.steps != got.steps) return testing::AssertionFailure() << "the same logits, other tokens";
  return testing::AssertionSuccess();
}

testing::AssertionResult same_choices(const Answer& wanted, const Answer& got) {
  for (const auto& row : got.logits)
    for (const float logit : row)
      if (!std::isfinite(logit)) return testing::AssertionFailure() << "a logit is " << logit;
  if (wanted.logits.size() != got.logits.size() || got.logits.empty())
    return testing::AssertionFailure() << "no logits";
  if (wanted.steps != got.steps || greedy(wanted.logits.back()) != greedy(got.logits.back()))
    return testing::AssertionFailure() << "another token is chosen: " << testing::PrintToString(wanted.steps)
                                       << " were wanted, " << testing::PrintToString(got.steps) << " are";
  return testing::AssertionSuccess();
}

llama_token greedy(std::span<const float> logits) {
  return static_cast<llama_token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

int decode(llama_context* context, llama_seq_id sequence, std::span<const llama_token> tokens,
           std::size_t position) {
  llama_batch batch = llama_batch_init(static_cast<std::int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<std::int32_t>(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = static_cast<llama_pos>(position + i);
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequence;
    batch.logits[i] = i + 1 == tokens.size() ? 1 : 0;
  }
  const int code = llama_decode(context, batch);
  llama_batch_free(batch);
  return code;
}

Answer answer_of(llama_context* context, llama_seq_id sequence, std::size_t position) {
  Answer answer;
  answer.logits.push_back(last_logits(context));
  for (std::size_t step = 0; step < kSteps && !answer.logits.back().empty(); ++step) {
    const llama_token next = greedy(answer.logits.back());
    answer.steps.push_back(next);
    EXPECT_EQ(decode(context, sequence, {&next, 1}, position + step), 0);
    answer.logits.push_back(last_logits(context));
  }
  return answer;
}

Plain::Plain(const std::string& model_path, const Shape& shape)
    : context_(make_context(load_model(model_path), shape.params())) {}

// Calls of these sizes from `from` on, until `until` is reached. Returns: where they came to.
std::size_t Plain::call(const Text& prompt, std::size_t from, const Pieces& pieces, std::size_t until) {
  for (const std::uint32_t piece : pieces) {
    if (from >= until) break;
    EXPECT_LE(from + piece, prompt.size());
    EXPECT_EQ(decode(context_.get(), 0, std::span(prompt).subspan(from, piece), from), 0);
    from += piece;
  }
  return from;
}

Answer Plain::compute(const Question& question) {
  const std::uint32_t kept = question.kept;
  llama_memory_t memory = llama_get_memory(context_.get());
  llama_memory_clear(memory, true);
  const std::size_t there = call(question.saved, 0, question.saved_pieces, kept);
  EXPECT_GE(there, kept);
  if (there > kept) {
    EXPECT_TRUE(llama_memory_seq_rm(memory, 0, static_cast<llama_pos>(kept), -1))
        << "restored at " << kept << ", where no call of the saving run ended";
  }
  EXPECT_EQ(call(question.prompt, kept, question.pieces, question.prompt.size()), question.prompt.size());
  return answer_of(context_.get(), 0, question.prompt.size());
}

const Answer& Plain::continued(const Text& saved, const Pieces& saved_pieces, std::uint32_t kept,
                               const Text& prompt, const Pieces& pieces) {
  const Question question{saved, saved_pieces, kept, prompt, pieces};
  auto known = remembered_.find(question);
  if (known == remembered_.end()) known = remembered_.emplace(question, compute(question)).first;
  return known->second;
}

const Answer& Plain::in_pieces(const Text& prompt, const Pieces& pieces) {
  return continued({}, {}, 0, prompt, pieces);
}

const Answer& Plain::answer(const Text& prompt) {
  return in_pieces(prompt, {static_cast<std::uint32_t>(prompt.size())});
}

Plain& plain_of(const std::string& model_path, const Shape& shape) {
  static auto* const kAll = new std::map<std::pair<std::string, Shape>, std::unique_ptr<Plain>>;
  std::unique_ptr<Plain>& plain = (*kAll)[{model_path, shape}];
  if (plain == nullptr) plain = std::make_unique<Plain>(model_path, shape);
  return *plain;
}

}  // namespace tiercel::llamacpp
