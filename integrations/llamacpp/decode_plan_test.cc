#include "decode_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tiercel::llamacpp {
namespace {

using Tokens = std::vector<std::uint32_t>;

// ---- a second statement of the rules: token by token, by trying ----

enum class Kernel : std::uint8_t { kOneRow, kFewRows, kTile };

Kernel kernel_of(std::uint32_t rows) {
  if (rows == 1) return Kernel::kOneRow;
  return rows < 64 ? Kernel::kFewRows : Kernel::kTile;
}

// Of every token, when plain llama.cpp computes the prompt.
std::vector<Kernel> plain_kernels(std::uint32_t prompt_tokens, std::uint32_t micro_batch) {
  std::vector<Kernel> kernels;
  for (std::uint32_t from = 0; from < prompt_tokens; from += micro_batch) {
    const std::uint32_t rows = std::min(micro_batch, prompt_tokens - from);
    kernels.insert(kernels.end(), rows, kernel_of(rows));
  }
  return kernels;
}

// For every length: whether any pieces at all compute the tokens behind it by the kernels of the plain run,
// and the tokens before it, which are stored, were computed as tiles.
std::vector<bool> restorable(std::uint32_t prompt_tokens, std::uint32_t micro_batch) {
  const std::vector<Kernel> plain = plain_kernels(prompt_tokens, micro_batch);
  std::vector<bool> ok(prompt_tokens + 1);
  ok[prompt_tokens] = true;
  for (std::uint32_t from = prompt_tokens; from-- > 0;) {
    const bool tile = from % 64 == 0;  // others cannot begin there
    const std::uint32_t most = std::min(prompt_tokens - from, tile ? micro_batch : 63);
    for (std::uint32_t rows = 1; rows <= most && plain[from + rows - 1] == plain[from]; ++rows)
      if (kernel_of(rows) == plain[from] && ok[from + rows]) ok[from] = true;
  }
  const auto tiles = std::find_if(plain.begin(), plain.end(), [](Kernel k) { return k != Kernel::kTile; });
  for (std::uint32_t n = static_cast<std::uint32_t>(tiles - plain.begin()) + 1; n <= prompt_tokens; ++n)
    ok[n] = false;
  return ok;
}

// What is wrong with the pieces of exact mode; empty: nothing.
std::string wrong_exact(const PlanInput& input, std::uint32_t restored, const Tokens& stops,
                        const std::vector<Kernel>& plain) {
  const Tokens pieces = decode_pieces(input, restored, stops);
  const auto fault = [&](const char* what) {
    return fmt::format("{}: {} tokens, micro-batch {}, restored {}, stops {}: pieces {}", what,
                       input.prompt_tokens, input.micro_batch, restored, stops, pieces);
  };
  std::set<std::uint32_t> ends;
  std::uint32_t at = restored;
  for (const std::uint32_t rows : pieces) {
    if (rows == 0 || rows > input.micro_batch || rows > input.prompt_tokens - at) return fault("size");
    if (rows >= 64 && at % 64 != 0) return fault("a tile begins between");
    for (std::uint32_t token = at; token < at + rows; ++token)
      if (plain[token] != kernel_of(rows)) return fault("another kernel");
    at += rows;
    ends.insert(at);
  }
  if (at != input.prompt_tokens) return fault("sum");
  for (const std::uint32_t stop : stops) {
    const bool between = stop > restored && stop < input.prompt_tokens;
    if (between && may_snapshot_at(input, stop) && !ends.contains(stop)) return fault("a stop was passed");
  }
  return {};
}

PlanInput exact(std::uint32_t prompt_tokens, std::uint32_t micro_batch) {
  return {prompt_tokens, micro_batch, 16, true};
}
PlanInput fast(std::uint32_t prompt_tokens, std::uint32_t micro_batch = 512, std::uint32_t page = 16) {
  return {prompt_tokens, micro_batch, page, false};
}

Tokens ascending(Tokens stops) {
  std::sort(stops.begin(), stops.end());
  return stops;
}

// ---- examples ----

TEST(DecodePlan, ExactNeedsWholeTilesAndWholeMicroBatches) {
  EXPECT_EQ(why_not_exact(512, 2048), "");
  EXPECT_EQ(why_not_exact(128, 128), "");
  EXPECT_EQ(why_not_exact(192, 384), "");
  EXPECT_EQ(why_not_exact(64, 512),
            "n_ubatch: wanted a multiple of 64, 128 at least, got 64; set it, or use the fast mode");
  EXPECT_NE(why_not_exact(500, 2000), "");
  EXPECT_NE(why_not_exact(0, 0), "");
  EXPECT_NE(why_not_exact(512, 0), "");
  EXPECT_EQ(why_not_exact(512, 1000),
            "n_batch: wanted a multiple of n_ubatch 512, got 1000; set it, or use the fast mode");
  EXPECT_NE(why_not_exact(512, 256), "");
}

TEST(DecodePlan, OnlyASmallLastMicroBatchIsNotTiled) {
  EXPECT_EQ(tiled_tokens(0, 512), 0U);
  EXPECT_EQ(tiled_tokens(1, 512), 0U);
  EXPECT_EQ(tiled_tokens(63, 512), 0U);
  EXPECT_EQ(tiled_tokens(64, 512), 64U);
  EXPECT_EQ(tiled_tokens(512, 512), 512U);
  EXPECT_EQ(tiled_tokens(513, 512), 512U);
  EXPECT_EQ(tiled_tokens(575, 512), 512U);
  EXPECT_EQ(tiled_tokens(576, 512), 576U);
  EXPECT_EQ(tiled_tokens(1000, 512), 1000U);
}

TEST(DecodePlan, TheLastTokenIsAlwaysComputed) {
  EXPECT_EQ(longest_restore(fast(0)), 0U);
  EXPECT_EQ(longest_restore(fast(1)), 0U);
  EXPECT_EQ(longest_restore(fast(16)), 0U);
  EXPECT_EQ(longest_restore(fast(17)), 16U);
  EXPECT_EQ(longest_restore(exact(0, 512)), 0U);
  EXPECT_EQ(longest_restore(exact(1, 512)), 0U);
  EXPECT_EQ(longest_restore(exact(64, 512)), 0U);
  EXPECT_EQ(longest_restore(exact(513, 512)), 512U) << "one token was computed by itself, and is again";
  EXPECT_EQ(longest_restore(exact(512, 512)), 448U);
  EXPECT_EQ(longest_restore(exact(600, 512)), 512U);
  EXPECT_EQ(longest_restore(exact(640, 512)), 576U);
}

TEST(DecodePlan, APieceGivesUpATileRatherThanLeaveFewRows) {
  // 202 = 128 + 74 in the plain run; from 64 on, 128 + 10 would compute ten tokens by another kernel.
  EXPECT_EQ(decode_pieces(exact(202, 128), 64, {}), (Tokens{64, 74}));
  EXPECT_EQ(decode_pieces(exact(202, 128), 0, {}), (Tokens{128, 74}));
  EXPECT_EQ(decode_pieces(exact(202, 128), 128, {}), (Tokens{74}));
}

TEST(DecodePlan, ASmallRestIsAPieceByItself) {
  EXPECT_EQ(decode_pieces(exact(522, 512), 512, {}), (Tokens{10}));
  EXPECT_EQ(decode_pieces(exact(522, 512), 64, {}), (Tokens{448, 10}));
  EXPECT_EQ(decode_pieces(exact(522, 512), 64, Tokens{512}), (Tokens{448, 10}));
  EXPECT_EQ(decode_pieces(exact(1, 512), 0, {}), (Tokens{1}));
  EXPECT_EQ(decode_pieces(exact(0, 512), 0, {}), Tokens{});
}

TEST(DecodePlan, ExactStopsWhereTilesBegin) {
  EXPECT_EQ(decode_pieces(exact(1000, 512), 0, Tokens{64, 100, 640, 960}), (Tokens{64, 512, 64, 360}))
      << "100 is no multiple of 64, and 960 leaves 40 tokens";
  EXPECT_FALSE(may_snapshot_at(exact(1000, 512), 960));
  EXPECT_TRUE(may_snapshot_at(exact(1024, 512), 1024)) << "for a longer prompt";
  EXPECT_FALSE(may_snapshot_at(exact(1024, 512), 1088));
  EXPECT_FALSE(may_snapshot_at(exact(1024, 512), 0));
}

TEST(DecodePlan, FastStopsAtPagesAndGoesOnFromThere) {
  EXPECT_EQ(decode_pieces(fast(1100), 16, {}), (Tokens{512, 512, 60}));
  EXPECT_EQ(decode_pieces(fast(1100), 16, Tokens{16, 33, 48, 48, 1088, 1100}),
            (Tokens{32, 512, 512, 16, 12}));
  EXPECT_EQ(decode_pieces(fast(100, 0), 98, {}), (Tokens{1, 1})) << "a micro-batch of none is one";
  EXPECT_EQ(decode_pieces(fast(100), 100, {}), Tokens{});
  EXPECT_EQ(decode_pieces(fast(100), 200, {}), Tokens{});
  EXPECT_TRUE(may_snapshot_at(fast(96), 96));
  EXPECT_FALSE(may_snapshot_at(fast(96), 40));
  EXPECT_FALSE(may_snapshot_at(fast(96), 112));
}

TEST(DecodePlan, PagesOfEverySizeArePartsOfTheUnit) {
  for (const std::uint32_t page : {16U, 32U, 64U}) {
    EXPECT_EQ(restore_unit({.page_tokens = page, .exact = true}), 64U);
    EXPECT_EQ(restore_unit({.page_tokens = page, .exact = false}), page);
  }
}

TEST(DecodePlanDeathTest, ExactPiecesFromElsewhereAreOurMistake) {
  EXPECT_DEATH(decode_pieces(exact(1000, 512), 16, {}), "restored length");
  EXPECT_DEATH(decode_pieces(exact(1000, 512), 960, {}), "restored length");
  EXPECT_DEATH(longest_restore(exact(1000, 100)), "micro-batch");
}

// ---- every case up to a few micro-batches ----

constexpr std::uint32_t kTokensMost = 1500;
constexpr std::uint32_t kMicroBatches[] = {128, 192, 512};

TEST(DecodePlanExhaustive, NoLongerLengthCanBeRestored) {
  for (const std::uint32_t micro_batch : kMicroBatches) {
    for (std::uint32_t n = 0; n <= kTokensMost; ++n) {
      const std::vector<bool> ok = restorable(n, micro_batch);
      std::uint32_t longest = 0;
      for (std::uint32_t length = 0; length < n; length += 64)
        if (ok[length]) longest = length;
      ASSERT_EQ(longest_restore(exact(n, micro_batch)), longest) << n << " tokens, " << micro_batch;
      for (std::uint32_t length = 0; length <= longest; length += 64) ASSERT_TRUE(n == 0 || ok[length]);
    }
  }
}

TEST(DecodePlanExhaustive, SnapshotsAreWhereThisPromptStopsAndALongerOneGoesOn) {
  for (const std::uint32_t micro_batch : kMicroBatches) {
    for (std::uint32_t n = 0; n <= kTokensMost; ++n) {
      const PlanInput input = exact(n, micro_batch);
      const std::vector<bool> ok = restorable(n, micro_batch);
      for (std::uint32_t length = 0; length <= n + 64; ++length) {
        const bool may = may_snapshot_at(input, length);
        ASSERT_EQ(may, length > 0 && length <= n && length % 64 == 0 && ok[length])
            << n << " tokens, " << micro_batch << ", at " << length;
        if (may) {
          ASSERT_LE(length, longest_restore(exact(n + micro_batch, micro_batch)));
        }
      }
    }
  }
}

TEST(DecodePlanExhaustive, EveryTokenKeepsItsKernel) {
  const unsigned seed = 20260;
  std::mt19937 random(seed);
  std::uniform_int_distribution<std::uint32_t> odd(1, 63);
  for (const std::uint32_t micro_batch : kMicroBatches) {
    for (std::uint32_t n = 0; n <= kTokensMost; ++n) {
      const PlanInput input = exact(n, micro_batch);
      const std::vector<Kernel> plain = plain_kernels(n, micro_batch);
      Tokens every(n / 64 + 2);
      for (std::uint32_t i = 0; i < every.size(); ++i) every[i] = 64 * i;
      for (std::uint32_t restored = 0; restored <= longest_restore(input); restored += 64) {
        Tokens some;
        for (const std::uint32_t stop : every)
          if (random() % 4 == 0) some.push_back(random() % 4 == 0 ? stop + odd(random) : stop);
        ASSERT_EQ(wrong_exact(input, restored, {}, plain), "");
        ASSERT_EQ(wrong_exact(input, restored, every, plain), "");
        ASSERT_EQ(wrong_exact(input, restored, some, plain), "") << "seed " << seed;
      }
    }
  }
}

TEST(DecodePlanExhaustive, FastHasAsFewPiecesAsMicroBatchesAndStopsAllow) {
  for (const std::uint32_t page : {16U, 32U, 64U}) {
    for (const std::uint32_t micro_batch : {1U, 7U, 64U, 100U}) {
      for (std::uint32_t n = 0; n <= 160; ++n) {
        const PlanInput input = fast(n, micro_batch, page);
        std::uint32_t longest = 0;
        for (std::uint32_t length = 0; length < n; ++length)
          if (length % page == 0) longest = length;
        ASSERT_EQ(longest_restore(input), longest);
        for (std::uint32_t restored = 0; restored <= n; ++restored) {
          const Tokens stops = {page, page + 1, 2 * page, 5 * page};
          Tokens wanted;
          std::uint32_t from = restored;
          for (const std::uint32_t end : {page, 2 * page, 5 * page, n})
            for (; from < std::min(end, n); from += wanted.back())
              wanted.push_back(std::min(micro_batch, std::min(end, n) - from));
          ASSERT_EQ(decode_pieces(input, restored, stops), wanted) << n << " from " << restored;
        }
      }
    }
  }
}

// ---- large ones, at random ----

RC_GTEST_PROP(DecodePlanRandom, LongPromptsKeepTheirKernels, ()) {
  const std::uint32_t micro_batch = 64 * *rc::gen::inRange(2U, 65U);
  // Near a border half of the time.
  const std::uint32_t about = *rc::gen::inRange(0U, 20'000U);
  const std::uint32_t n = *rc::gen::element(about, about - about % micro_batch + *rc::gen::inRange(0U, 130U));
  const PlanInput input = exact(n, micro_batch);
  const std::uint32_t restored = 64 * *rc::gen::inRange(0U, longest_restore(input) / 64 + 1);
  Tokens stops = *rc::gen::container<Tokens>(rc::gen::inRange(0U, n + 100));
  for (std::size_t i = 0; i < stops.size(); i += 2) stops[i] -= stops[i] % 64;
  RC_ASSERT(wrong_exact(input, restored, ascending(stops), plain_kernels(n, micro_batch)) == "");
}

RC_GTEST_PROP(DecodePlanRandom, FastPiecesSumUpAndEndAtStops, ()) {
  const PlanInput input =
      fast(*rc::gen::inRange(0U, 100'000U), *rc::gen::inRange(1U, 5000U), *rc::gen::element(16U, 32U, 64U));
  const std::uint32_t restored = *rc::gen::inRange(0U, input.prompt_tokens + 1);
  const Tokens stops =
      ascending(*rc::gen::container<Tokens>(rc::gen::inRange(0U, input.prompt_tokens + 100)));
  const Tokens pieces = decode_pieces(input, restored, stops);
  std::set<std::uint32_t> ends;
  std::uint32_t at = restored;
  for (const std::uint32_t piece : pieces) {
    RC_ASSERT(piece > 0 && piece <= input.micro_batch);
    ends.insert(at += piece);
  }
  RC_ASSERT(at == input.prompt_tokens);
  for (const std::uint32_t stop : stops)
    RC_ASSERT(stop <= restored || stop >= at || stop % input.page_tokens != 0 || ends.contains(stop));
}

}  // namespace
}  // namespace tiercel::llamacpp
