#include "capi/options.h"

#include <array>

#include <gtest/gtest.h>

#include "capi/test_program.h"

namespace tiercel::capi {
namespace {

struct Later {  // what a newer library's struct would be
  tiercel_cq_options known{};
  std::uint64_t unknown[2] = {};
};

TEST(CapiOptions, UnknownBytesOfALongerStructMustBeZero) {
  Later later;
  later.known.size = sizeof later;
  later.known.capacity = 7;
  tiercel_cq_options options{};
  EXPECT_EQ(read_options("x", &later.known, options).code, TIERCEL_OK);
  EXPECT_EQ(options.capacity, 7U);
  EXPECT_EQ(options.size, sizeof options);
  later.unknown[1] = std::uint64_t{1} << 63;
  const Answer refused = read_options("x", &later.known, options);
  EXPECT_EQ(refused.code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(refused.message.find("is not zero"), std::string::npos) << refused.message;
}

TEST(CapiOptions, AShorterStructGetsDefaultsBehindItsEnd) {
  auto given = sized<tiercel_match_options>();
  given.request = 5;
  given.limit_tokens = 3;
  given.size = offsetof(tiercel_match_options, limit_tokens);
  tiercel_match_options options{};
  options.limit_tokens = TIERCEL_NO_LIMIT;
  EXPECT_EQ(read_options("x", &given, options).code, TIERCEL_OK);
  EXPECT_EQ(options.request, 5U);
  EXPECT_EQ(options.limit_tokens, TIERCEL_NO_LIMIT);
}

TEST(CapiOptions, SizesThatMakeNoSenseAreRefused) {
  for (const std::uint64_t size : {0ULL, 7ULL, 12ULL, (1ULL << 20) + 8, ~0ULL - 7}) {
    tiercel_cq_options given{};
    given.size = size;
    tiercel_cq_options options{};
    EXPECT_EQ(read_options("x", &given, options).code, TIERCEL_INVALID_ARGUMENT) << size;
    EXPECT_EQ(write_sized("x", options, &given).code, TIERCEL_INVALID_ARGUMENT) << size;
  }
  tiercel_cq_options options{};
  EXPECT_EQ(read_options<tiercel_cq_options>("x", nullptr, options).code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(read_optional<tiercel_cq_options>("x", nullptr, options).code, TIERCEL_OK);
}

TEST(CapiOptions, AResultStructGetsWhatFitsAndZeroBeyond) {
  tiercel_form_info value{};
  value.page_tokens = 1;
  value.classes = 2;
  tiercel_form_info shorter{};
  shorter.size = offsetof(tiercel_form_info, classes);
  shorter.classes = 99;
  EXPECT_EQ(write_sized("x", value, &shorter).code, TIERCEL_OK);
  EXPECT_EQ(shorter.page_tokens, 1U);
  EXPECT_EQ(shorter.classes, 99U) << "beyond what the caller knows";
  EXPECT_EQ(shorter.size, offsetof(tiercel_form_info, classes));

  struct {
    tiercel_form_info known{};
    std::uint64_t newer = 99;
  } longer;
  longer.known.size = sizeof longer;
  EXPECT_EQ(write_sized("x", value, &longer.known).code, TIERCEL_OK);
  EXPECT_EQ(longer.known.classes, 2U);
  EXPECT_EQ(longer.newer, 0U);
}

TEST(CapiOptions, ListsAreCheckedBeforeTheyAreRead) {
  std::span<const std::uint64_t> out;
  const std::uint64_t one = 1;
  EXPECT_EQ(read_list<std::uint64_t>("x", nullptr, 0, out).code, TIERCEL_OK);
  EXPECT_EQ(read_list<std::uint64_t>("x", nullptr, 1, out).code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(read_list("x", &one, UINT64_MAX, out).code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(read_list("x", &one, 1, out).code, TIERCEL_OK);
  EXPECT_EQ(out.size(), 1U);
}

TEST(CapiOptions, WhatIsReservedMustBeZeroAndTheMessageSaysWhatToDo) {
  EXPECT_EQ(check_reserved("x", 0).code, TIERCEL_OK);
  const Answer refused = check_reserved("x", 3);
  EXPECT_EQ(refused.code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_NE(refused.message.find("x: reserved is 3, wanted 0"), std::string::npos) << refused.message;
}

TEST(CapiOptions, AListThatDoesNotFitSaysHowLongItIs) {
  const std::array<std::uint64_t, 3> values = {1, 2, 3};
  std::array<std::uint64_t, 3> out = {9, 9, 9};
  std::uint64_t count = 0;
  EXPECT_EQ(write_list<std::uint64_t>("x", values, out.data(), 2, &count).code, TIERCEL_OK);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(out, (std::array<std::uint64_t, 3>{1, 2, 9}));
  EXPECT_EQ(write_list<std::uint64_t>("x", values, nullptr, 1, &count).code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(write_list<std::uint64_t>("x", values, out.data(), 2, nullptr).code, TIERCEL_INVALID_ARGUMENT);
}

TEST(CapiOptions, TextsAreCutToFitAndEnded) {
  std::array<char, 4> out = {'x', 'x', 'x', 'x'};
  write_text("abcdef", out);
  EXPECT_STREQ(out.data(), "abc");
  write_text("a", out);
  EXPECT_EQ(out, (std::array<char, 4>{'a', 0, 0, 0}));
  std::string text = "old";
  EXPECT_EQ(read_text("x", nullptr, text).code, TIERCEL_OK);
  EXPECT_TRUE(text.empty());
  const std::string endless(70000, 'a');
  EXPECT_EQ(read_text("x", endless.c_str(), text).code, TIERCEL_INVALID_ARGUMENT);
}

TEST(CapiOptions, MessagesAreCutToTheErrorStruct) {
  tiercel_error error;
  std::memset(&error, 0xAB, sizeof error);
  EXPECT_EQ(report(invalid(std::string(2000, 'm')), &error), TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(error.code, TIERCEL_INVALID_ARGUMENT);
  EXPECT_EQ(std::strlen(error.message), sizeof error.message - 1);
  EXPECT_EQ(report(Answer{}, &error), TIERCEL_OK);
  EXPECT_EQ(error.code, TIERCEL_INVALID_ARGUMENT) << "success leaves it alone";
  EXPECT_EQ(report(invalid("why"), nullptr), TIERCEL_INVALID_ARGUMENT);
}

TEST(CapiOptions, WhatIsThrownBecomesACode) {
  tiercel_error error{};
  EXPECT_EQ(answer(&error, []() -> Answer { throw std::bad_alloc(); }), TIERCEL_RESOURCE_EXHAUSTED);
  EXPECT_EQ(answer(&error, []() -> Answer { throw std::length_error("too long"); }), TIERCEL_INTERNAL);
  EXPECT_STREQ(error.message, "too long");
  EXPECT_EQ(answer(&error, []() -> Answer { throw 3; }), TIERCEL_INTERNAL);
}

}  // namespace
}  // namespace tiercel::capi
