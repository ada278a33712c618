#include "trace/generator.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace tiercel {
namespace {

// What the two published traces are like (the traces' own README has the whole table).
struct Published {
  double mean_blocks, used_once, ideal_ratio, full_share, requests_per_second;
};
constexpr Published kConversation{23.98, 0.7585, 0.3664, 0.0098, 3.40};
constexpr Published kSynthetic{30.52, 0.5845, 0.6396, 0.0533, 3.907};

void expect_like(std::string_view text, const Published& published) {
  const TraceStatistics got = statistics_of(generate(*parse_generator(text)).requests);
  const auto close = [&](std::string_view what, double is, double should) {
    EXPECT_NEAR(is, should, 0.10 * should) << text << ": " << what;
  };
  const auto ratio = [](std::uint64_t a, std::uint64_t b) {
    return static_cast<double>(a) / static_cast<double>(b);
  };
  close("mean blocks", ratio(got.blocks, got.requests), published.mean_blocks);
  close("used once", ratio(got.used_once, got.unique_blocks), published.used_once);
  close("ideal hit ratio", ratio(got.ideal_hits, got.blocks), published.ideal_ratio);
  close("full hits", ratio(got.full_hits, got.requests), published.full_share);
  close("requests per second", 1000 * ratio(got.requests, got.duration_ms), published.requests_per_second);
}

TEST(Generator, IsLikeThePublishedTraces) {
  expect_like("conversation", kConversation);
  expect_like("synthetic", kSynthetic);
}

TEST(Generator, RepeatsAfterSomeTimeAsTheyDo) {
  // Medians of the time between two uses of a block: 114 s and 59 s; within a factor of two.
  for (const auto& [text, median_s] : {std::pair("conversation", 114.0), std::pair("synthetic", 59.0)}) {
    std::unordered_map<std::uint64_t, std::uint64_t> last;
    std::vector<std::uint64_t> gaps;
    for (const TraceRequest& request : generate(*parse_generator(text)).requests)
      for (std::size_t i = 1; i < request.blocks.size();
           ++i) {  // not the first block, which may be everybody's
        const auto [at, fresh] = last.try_emplace(request.blocks[i], request.timestamp_ms);
        if (!fresh) gaps.push_back(request.timestamp_ms - std::exchange(at->second, request.timestamp_ms));
      }
    std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
    const double got_s = static_cast<double>(gaps[gaps.size() / 2]) / 1000;
    EXPECT_GT(got_s, median_s / 2) << text;
    EXPECT_LT(got_s, median_s * 2) << text;
  }
}

TEST(Generator, MakesWhatTheReaderAccepts) {
  for (const char* spec : {"conversation:700:5", "synthetic:700:5", "conversation:1:0", "synthetic:1:0"}) {
    const Trace made = generate(*parse_generator(spec));
    std::string text;
    for (const TraceRequest& r : made.requests)
      text += fmt::format(R"({{"timestamp":{},"input_length":{},"output_length":{},"hash_ids":[{}]}})"
                          "\n",
                          r.timestamp_ms, r.input_length, r.output_length, fmt::join(r.blocks, ","));
    TextSource source(text);
    TraceReader reader(source, spec, TraceReader::OnDamage::kStop);
    std::uint64_t next_id = 0, time = 0;
    for (const TraceRequest& expected : made.requests) {
      const auto got = reader.next();
      ASSERT_TRUE(got.has_value()) << got.error().message;
      ASSERT_EQ(**got, expected);
      EXPECT_GE(expected.timestamp_ms, time);
      time = expected.timestamp_ms;
      for (const std::uint64_t block : expected.blocks) {
        EXPECT_LE(block, next_id);
        next_id = std::max(next_id, block + 1);
      }
    }
  }
}

TEST(Generator, IsAFunctionOfItsSeed) {
  EXPECT_EQ(generate(*parse_generator("conversation:500:3")).requests,
            generate(*parse_generator("conversation:500:3")).requests);
  EXPECT_NE(generate(*parse_generator("conversation:500:3")).requests,
            generate(*parse_generator("conversation:500:4")).requests);
  EXPECT_EQ(generate(*parse_generator("synthetic:321:3")).requests.size(), 321U);
}

TEST(Generator, ReadsItsOwnName) {
  EXPECT_EQ(*parse_generator("conversation"), (GeneratorSpec{TraceKind::kConversation, 12'031, 1}));
  EXPECT_EQ(*parse_generator("synthetic"), (GeneratorSpec{TraceKind::kSynthetic, 3'993, 1}));
  EXPECT_EQ(*parse_generator("synthetic:10:18446744073709551615"),
            (GeneratorSpec{TraceKind::kSynthetic, 10, UINT64_MAX}));
  EXPECT_EQ(generator_text(*parse_generator("conversation:20")), "conversation:20:1");
  for (const char* bad :
       {"", "chat", "conversation:", "conversation:0", "conversation:10000001",
        "conversation:1:", "conversation:1:x", "conversation:1:-1", "conversation:1:2:3", "synthetic:1e3"})
    EXPECT_FALSE(parse_generator(bad).has_value()) << bad;
}

}  // namespace
}  // namespace tiercel
