#include "trace/trace.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/check.h"

namespace tiercel {
namespace {

using OnDamage = TraceReader::OnDamage;

Result<Trace> read_text(std::string_view text, OnDamage on_damage = OnDamage::kStop) {
  TextSource source(text);
  TraceReader reader(source, "test", on_damage);
  Trace trace;
  for (;;) {
    TIERCEL_ASSIGN_OR_RETURN(auto request, reader.next());
    if (!request) break;
    trace.requests.push_back(std::move(*request));
  }
  trace.skipped_lines = reader.skipped();
  return trace;
}

std::string line(std::uint64_t time, std::uint64_t input, std::string_view ids) {
  return fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": 5, "hash_ids": [{}]}})", time,
                     input, ids);
}

// The message about line 1 of a text that must be refused.
std::string refusal(std::string_view text) {
  const Result<Trace> trace = read_text(text);
  if (trace) return "accepted";
  const std::string prefix = "trace test line 1: ";
  EXPECT_TRUE(trace.error().message.starts_with(prefix)) << trace.error().message;
  return trace.error().message.substr(std::min(prefix.size(), trace.error().message.size()));
}

TEST(TraceReader, ReadsTheFourFields) {
  const auto trace = read_text(line(7, 1030, "0, 1, 9") + "\n" + line(8, 512, "0") + "\n");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[0], (TraceRequest{7, 1030, 5, {0, 1, 9}}));
  EXPECT_EQ(trace->requests[0].full_blocks(), 2U);
  EXPECT_EQ(trace->requests[1].full_blocks(), 1U);
}

TEST(TraceReader, AcceptsEveryWayThatLinesEnd) {
  const std::string a = line(1, 10, "0"), b = line(2, 10, "1");
  for (const std::string& text : {fmt::format("{}\n{}\n", a, b), fmt::format("{}\n{}", a, b),
                                  fmt::format("{}\r\n{}\r\n", a, b), fmt::format("{}\n\n  \n{}\n\n", a, b)}) {
    const auto trace = read_text(text);
    ASSERT_TRUE(trace.has_value()) << trace.error().message;
    EXPECT_EQ(trace->requests.size(), 2U);
  }
  for (const std::string text : {"", "\n", "\r\n\n"}) EXPECT_EQ(read_text(text)->requests.size(), 0U);
}

TEST(TraceReader, IgnoresFieldsThatItDoesNotKnow) {
  const auto trace = read_text(
      R"({"chat": {"hash_ids": [-1], "x": [[1.5]]}, "timestamp": 1, "hash_ids": [4], "input_length": 3, )"
      R"("output_length": 0, "type": null})");
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_EQ(trace->requests[0].blocks, std::vector<std::uint64_t>{4});
}

TEST(TraceReader, SaysWhatIsWrongWithADamagedLine) {
  EXPECT_EQ(refusal("{"), "not a JSON object (at byte 2)");
  EXPECT_EQ(refusal(line(1, 10, "0") + "x"), "not a JSON object (at byte 74)");
  EXPECT_EQ(refusal("[1]"), "wanted one JSON object, got a list");
  EXPECT_EQ(refusal("3"), "wanted one JSON object, got a number");
  EXPECT_EQ(refusal(R"({"timestamp": 1, "input_length": 1, "hash_ids": [1]})"),
            "field 'output_length' is missing");
  EXPECT_EQ(refusal(R"({"timestamp": 1, "timestamp": 1})"), "field 'timestamp' is given twice");
  EXPECT_EQ(refusal(R"({"timestamp": -1})"), "timestamp must be a whole number from 0, got -1");
  EXPECT_EQ(refusal(R"({"timestamp": 1.5})"), "timestamp must be a whole number from 0, got 1.5");
  EXPECT_EQ(refusal(R"({"timestamp": "1"})"), "timestamp must be a whole number from 0, got a string");
  EXPECT_EQ(refusal(R"({"timestamp": 99999999999999})"),
            "timestamp is 99999999999999, above the most that is accepted (9000000000000)");
  EXPECT_EQ(refusal(R"({"input_length": 18446744073709551616})"),
            "input_length must be a whole number from 0, got 18446744073709551616");
  EXPECT_EQ(refusal(R"({"hash_ids": 3})"), "hash_ids must be a list of whole numbers, got a number");
  EXPECT_EQ(refusal(R"({"hash_ids": {}})"), "hash_ids must be a list of whole numbers, got an object");
  EXPECT_EQ(refusal(line(1, 1000, "0, -4")), "hash_ids must hold whole numbers from 0, got -4");
  EXPECT_EQ(refusal(line(1, 1000, "0, [1]")), "hash_ids must hold whole numbers from 0, got a list");
  EXPECT_EQ(refusal(line(1, 10, "9223372036854775808")),
            "hash_ids has 9223372036854775808, which is above 2^63 - 1");
  EXPECT_EQ(refusal(std::string("{}\0{}", 5)), "a NUL byte at position 2");
}

TEST(TraceReader, WantsOneIdForEachBlock) {
  EXPECT_EQ(refusal(line(1, 1024, "0, 1, 2")),
            "input_length 1024 needs 2 hash_ids (one per 512 tokens), got 3");
  EXPECT_EQ(refusal(line(1, 1025, "0, 1")), "input_length 1025 needs 3 hash_ids (one per 512 tokens), got 2");
  EXPECT_EQ(read_text(line(1, 0, ""))->requests[0].blocks.size(), 0U);
}

TEST(TraceReader, WantsPrefixChainedIds) {
  EXPECT_EQ(refusal(line(1, 1000, "3, 3")),
            "hash_ids has 3 after 3, elsewhere after nothing: ids must be prefix-chained");
  const auto two = read_text(line(1, 1000, "1, 2") + "\n" + line(2, 1000, "3, 2"));
  ASSERT_FALSE(two.has_value());
  EXPECT_EQ(two.error().message,
            "trace test line 2: hash_ids has 2 after 3, elsewhere after 1: ids must be prefix-chained");
  // What a refused line said about ids does not count.
  const auto skipped = read_text(
      line(1, 1000, "1, 2") + "\n" + line(2, 1000, "7, 2") + "\n" + line(3, 1000, "1, 7"), OnDamage::kSkip);
  ASSERT_TRUE(skipped.has_value());
  EXPECT_EQ(skipped->requests.size(), 2U);
}

TEST(TraceReader, CountsDamagedLinesWhenAskedTo) {
  const auto trace = read_text(fmt::format("nonsense\n{}\n{{}}\n\n{}\n[", line(1, 10, "0"), line(2, 10, "1")),
                               OnDamage::kSkip);
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->skipped_lines, 3U);
}

TEST(TraceReader, PassesOverALineThatIsTooLong) {
  std::string text(kTraceLineBytesMax + 1, ' ');
  text += "\n" + line(1, 10, "0");
  EXPECT_EQ(refusal(text), "the line is longer than 16777216 bytes");
  const auto trace = read_text(text, OnDamage::kSkip);
  EXPECT_EQ(trace->requests.size(), 1U);
  EXPECT_EQ(trace->skipped_lines, 1U);
}

TEST(TraceReader, TakesDeepNestingInItsStride) {
  EXPECT_EQ(refusal(R"({"x": )" + std::string(1 << 20, '[')), "not a JSON object (at byte 1048583)");
}

TEST(TraceReader, NamesAFileThatCannotBeRead) {
  const auto missing = read_trace("/nonexistent/trace.jsonl", OnDamage::kStop);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().message,
            "trace /nonexistent/trace.jsonl: cannot be opened: No such file or directory");
  const auto folder = read_trace(TIERCEL_SOURCE_DIR, OnDamage::kStop);
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().code, Code::kIoError);
}

TEST(TraceStatistics, OfTheRealTracesAreThePublishedOnes) {
  const std::filesystem::path folder = std::filesystem::path(TIERCEL_SOURCE_DIR) / ".." / "shared" / "traces";
  struct Case {
    const char* file;
    std::uint64_t requests, blocks, unique, hits, full, tokens;
  };
  const Case cases[] = {{"conversation_trace.jsonl", 12'031, 288'500, 182'790, 105'710, 118, 144'793'823},
                        {"synthetic_trace.jsonl", 3'993, 121'877, 43'924, 77'953, 213, 61'194'628}};
  if (!std::filesystem::exists(folder)) {
    fmt::print("skipped: 2 cases, ../shared is not present\n");
    return;
  }
  for (const Case& expected : cases) {
    const auto trace = read_trace((folder / expected.file).string(), OnDamage::kStop);
    ASSERT_TRUE(trace.has_value()) << trace.error().message;
    const TraceStatistics got = statistics_of(trace->requests);
    EXPECT_EQ(got.requests, expected.requests);
    EXPECT_EQ(got.blocks, expected.blocks);
    EXPECT_EQ(got.unique_blocks, expected.unique);
    EXPECT_EQ(got.ideal_hits, expected.hits);
    EXPECT_EQ(got.full_hits, expected.full);
    EXPECT_EQ(got.tokens, expected.tokens);
  }
}

}  // namespace
}  // namespace tiercel
