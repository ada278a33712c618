// What a model says after a prompt, to the bit: the logits of the last token and of a few greedy steps behind
// it; and what plain llama.cpp says, computed in one call or in given pieces.
//
// Threads: one.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "llamacpp_models_for_test.h"

namespace tiercel::llamacpp {

using Pieces = std::vector<std::uint32_t>;

inline constexpr std::size_t kSteps = 3;

struct Answer {
  std::vector<std::vector<float>> logits;  // of the last token of the prompt, then of each step
  Text steps;                              // chosen greedily
};

// Fails with the place of the first difference, both values, and how many differ.
testing::AssertionResult same_bits(const Answer& wanted, const Answer& got);

// All numbers are finite, and each token chosen is the same.
testing::AssertionResult same_choices(const Answer& wanted, const Answer& got);

llama_token greedy(std::span<const float> logits);

// One llama_decode of these tokens at `position`. Returns: what llama_decode returned.
int decode(llama_context* context, llama_seq_id sequence, std::span<const llama_token> tokens,
           std::size_t position);

// The answer of a sequence whose last `position` tokens have just been computed; it has kSteps more
// afterwards.
Answer answer_of(llama_context* context, llama_seq_id sequence, std::size_t position);

// llama.cpp without a cache: a context of one sequence. What was asked once is remembered.
class Plain {
 public:
  Plain(const std::string& model_path, const Shape& shape);

  // All of it in one llama_decode, as a program does that knows nothing of caches.
  const Answer& answer(const Text& prompt);
  // In these calls.
  const Answer& in_pieces(const Text& prompt, const Pieces& pieces);
  // The first `kept` tokens as `saved_pieces` of `saved` computed them, the others of `prompt` in `pieces`.
  const Answer& continued(const Text& saved, const Pieces& saved_pieces, std::uint32_t kept,
                          const Text& prompt, const Pieces& pieces);

 private:
  struct Question {
    Text saved;
    Pieces saved_pieces;
    std::uint32_t kept = 0;
    Text prompt;
    Pieces pieces;
    auto operator<=>(const Question&) const = default;
  };
  Answer compute(const Question& question);
  std::size_t call(const Text& prompt, std::size_t from, const Pieces& pieces, std::size_t until);

  Context context_;
  std::map<Question, Answer> remembered_;
};

// One for each model and shape, kept for the life of the process.
Plain& plain_of(const std::string& model_path, const Shape& shape = {});

}  // namespace tiercel::llamacpp
