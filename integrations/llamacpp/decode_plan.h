// How many tokens of a prompt to restore, and how to compute the rest. Pure.
//
// In llama.cpp's CPU kernels the bits of a token's result depend on how many rows (tokens) were computed with
// it: with flash attention there is a kernel for one row, one for 2 to 63 rows, and one for 64 rows and more;
// each of them gives every row the same bits whatever the number of rows, and the last one only where rows
// begin at the same cell modulo 64 (measured; docs/guide/llamacpp.md). Plain llama.cpp computes a prompt in
// micro-batches of n_ubatch, so only the last one can be small. A restored run is bitwise equal if each token
// that it computes, and each one that it restores, was computed by the same kernel as in the plain run.
//
// Threads: values; none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiercel::llamacpp {

inline constexpr std::uint32_t kTileRows = 64;

struct PlanInput {
  std::uint32_t prompt_tokens = 0;
  std::uint32_t micro_batch = 512;  // n_ubatch
  std::uint32_t page_tokens = 16;
  bool exact = false;
};

// Exact mode needs a micro-batch that is a multiple of 64, 128 at least, and a batch (n_batch) of whole
// micro-batches. Empty: it has both; else a line that says what to set. In exact mode the functions below
// require it of micro_batch.
std::string why_not_exact(std::uint32_t micro_batch, std::uint32_t batch);

// Of the tokens of the prompt that plain llama.cpp computes by the kernel of 64 rows and more: the first so
// many. (prompt_tokens, or the last multiple of the micro-batch when fewer than 64 are behind it.)
std::uint32_t tiled_tokens(std::uint32_t prompt_tokens, std::uint32_t micro_batch);

// Restored lengths: multiples of restore_unit(), at most longest_restore(). The last token is always
// computed. exact: 64 (pages of 16, 32 and 64 tokens are parts of it), and what is left of the tiled tokens
// is none or 64 at least: fewer would be computed by another kernel than in the plain run. fast: page_tokens.
std::uint32_t restore_unit(const PlanInput& input);
std::uint32_t longest_restore(const PlanInput& input);

// Whether a state at this length is worth keeping: decode_pieces() can stop there, or the prompt ends there,
// and this prompt or a longer one that begins with it can restore it.
bool may_snapshot_at(const PlanInput& input, std::uint32_t length);

// The calls of llama_decode that compute tokens [restored, prompt_tokens): the number of tokens of each.
// `stops`: lengths, ascending. A call ends at each that lies between both and is may_snapshot_at(); others
// are passed over. Each piece is at most one micro-batch. exact: pieces keep the kernel of the plain run for
// every token. Requires, exact: `restored` is a restored length as above.
std::vector<std::uint32_t> decode_pieces(const PlanInput& input, std::uint32_t restored,
                                         std::span<const std::uint32_t> stops);

}  // namespace tiercel::llamacpp
