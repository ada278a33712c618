// The measure itself: a wrong state shows in the answers of these models, and a different bit is seen.
#include <cmath>
#include <cstring>
#include <string>

#include "llamacpp_bed_for_test.h"

namespace tiercel::llamacpp {
namespace {

TEST(LlamaAnswers, TheFirstBitThatDiffersIsNamed) {
  const Answer a{{{1, 2, 3}, {0, 0, 1}}, {2}};
  Answer b = a;
  EXPECT_TRUE(same_bits(a, b));
  b.logits[1][1] = -0.0F;  // equal as a number
  const testing::AssertionResult different = same_bits(a, b);
  EXPECT_FALSE(different);
  EXPECT_NE(std::string(different.message()).find("after step 1: logit 1"), std::string::npos)
      << different.message();
  EXPECT_TRUE(same_choices(a, b));
  b.logits[1].clear();
  EXPECT_FALSE(same_bits(a, b));
  b = a;
  b.logits[0][0] = NAN;
  EXPECT_FALSE(same_choices(a, b));
  b = a;
  b.steps = {1};
  EXPECT_FALSE(same_bits(a, b));
  EXPECT_FALSE(same_choices(a, b));
  EXPECT_FALSE(same_bits(a, {}));
}

TEST(LlamaAnswers, ATokenFarBackChangesThemAndTheSameTextDoesNot) {
  for (const char* name : kTinyModels) {
    Plain& plain = plain_of(tiny_model_path(name));
    const Text text = text_of(tiny_model(name), 1, 600);
    const Answer wanted = plain.in_pieces(text, {600});
    EXPECT_TRUE(same_bits(wanted, Plain(tiny_model_path(name), {}).answer(text))) << name;
    for (const std::size_t back : {10U, 100U, 250U}) {
      Text other = text;
      other[other.size() - back] ^= 1;
      EXPECT_FALSE(same_bits(wanted, plain.in_pieces(other, {600})))
          << name << ": " << back << " tokens back";
    }
  }
}

// Why exact mode keeps to multiples of 64: the pieces count.
TEST(LlamaAnswers, OtherPiecesAreOtherBitsInModelsWithAttention) {
  Plain& plain = plain_of(tiny_model_path("llama"));
  const Text text = text_of(tiny_model("llama"), 1, 300);
  EXPECT_TRUE(same_bits(plain.in_pieces(text, {300}), plain.in_pieces(text, {128, 64, 108})));
  EXPECT_FALSE(same_bits(plain.in_pieces(text, {300}), plain.in_pieces(text, {288, 12})));
}

}  // namespace
}  // namespace tiercel::llamacpp
