#include "decode_plan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

namespace tiercel::llamacpp {
namespace {

constexpr std::uint32_t kMicroBatchLeast = 2 * kTileRows;

// Of our own mistakes only.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tiercel: decode plan: required: %s\n", what);
  std::abort();
}

std::uint32_t rounded_down(std::uint32_t value, std::uint32_t unit) { return value - value % unit; }

// Appends pieces for [from, to) of one micro-batch at most. tiled: none of fewer than 64 rows; a piece gives
// up 64 rows for that where needed (from and the micro-batch are multiples of 64, so the next starts at one,
// too).
void append_pieces(std::uint32_t from, std::uint32_t to, std::uint32_t micro_batch, bool tiled,
                   std::vector<std::uint32_t>& pieces) {
  while (from < to) {
    const std::uint32_t left = to - from;
    std::uint32_t piece = std::min(left, micro_batch);
    if (tiled && left > piece && left - piece < kTileRows) piece -= kTileRows;
    pieces.push_back(piece);
    from += piece;
  }
}

}  // namespace

std::string why_not_exact(std::uint32_t micro_batch, std::uint32_t batch) {
  if (micro_batch < kMicroBatchLeast || micro_batch % kTileRows != 0)
    return fmt::format("n_ubatch: wanted a multiple of {}, {} at least, got {}; set it, or use the fast mode",
                       kTileRows, kMicroBatchLeast, micro_batch);
  if (batch == 0 || batch % micro_batch != 0)
    return fmt::format("n_batch: wanted a multiple of n_ubatch {}, got {}; set it, or use the fast mode",
                       micro_batch, batch);
  return {};
}

std::uint32_t tiled_tokens(std::uint32_t prompt_tokens, std::uint32_t micro_batch) {
  require(micro_batch > 0, "a micro-batch");
  const std::uint32_t last = prompt_tokens % micro_batch;
  return last < kTileRows ? prompt_tokens - last : prompt_tokens;
}

std::uint32_t restore_unit(const PlanInput& input) {
  return input.exact ? kTileRows : std::max(input.page_tokens, 1U);
}

std::uint32_t longest_restore(const PlanInput& input) {
  if (input.prompt_tokens < 2) return 0;
  if (!input.exact) return rounded_down(input.prompt_tokens - 1, restore_unit(input));
  require(why_not_exact(input.micro_batch, input.micro_batch).empty(), "a micro-batch of the exact mode");
  const std::uint32_t tiled = tiled_tokens(input.prompt_tokens, input.micro_batch);
  // A small rest is computed as in the plain run. Else 64 tokens are left to be computed as a tile, at least.
  if (tiled < input.prompt_tokens) return tiled;
  return rounded_down(tiled - kTileRows, restore_unit(input));
}

bool may_snapshot_at(const PlanInput& input, std::uint32_t length) {
  if (length == 0 || length % restore_unit(input) != 0) return false;
  // The whole prompt is for longer ones. (exact: a multiple of 64 has no small rest, all of it is tiled.)
  return length == input.prompt_tokens || length <= longest_restore(input);
}

std::vector<std::uint32_t> decode_pieces(const PlanInput& input, std::uint32_t restored,
                                         std::span<const std::uint32_t> stops) {
  require(!input.exact || (restored % restore_unit(input) == 0 && restored <= longest_restore(input)),
          "a restored length of the exact mode");
  const std::uint32_t micro_batch = std::max(input.micro_batch, 1U);
  const std::uint32_t tiled =
      input.exact ? tiled_tokens(input.prompt_tokens, micro_batch) : input.prompt_tokens;
  std::vector<std::uint32_t> pieces;
  std::uint32_t from = restored;
  for (const std::uint32_t stop : stops) {
    if (stop <= from || !may_snapshot_at(input, stop)) continue;
    append_pieces(from, stop, micro_batch, input.exact, pieces);
    from = stop;
  }
  append_pieces(from, tiled, micro_batch, input.exact, pieces);
  append_pieces(std::max(from, tiled), input.prompt_tokens, micro_batch, false, pieces);
  return pieces;
}

}  // namespace tiercel::llamacpp
