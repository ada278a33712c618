// Tokens of one sequence as a batch for llama_decode.
//
// Threads: values; none.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <llama.h>

namespace tiercel::llamacpp {

inline constexpr std::int32_t kDecodeAborted = 2, kDecodeNoSlot = 1;  // what llama_decode answers

// Tokens at positions from, from + 1, …; `output`: logits of the last one are wanted.
class TokenBatch {
 public:
  TokenBatch(llama_seq_id sequence, std::span<const llama_token> tokens, llama_pos from, bool output)
      : sequence_(sequence),
        tokens_(tokens.begin(), tokens.end()),
        positions_(tokens.size()),
        sequences_(tokens.size(), 1),
        ids_(tokens.size(), &sequence_),
        outputs_(tokens.size(), 0) {
    for (llama_pos& position : positions_) position = from++;
    if (output && !outputs_.empty()) outputs_.back() = 1;
  }
  TokenBatch(const TokenBatch&) = delete;
  TokenBatch& operator=(const TokenBatch&) = delete;

  // Points into this.
  llama_batch get() {
    llama_batch batch{};
    batch.n_tokens = static_cast<std::int32_t>(tokens_.size());
    batch.token = tokens_.data();
    batch.pos = positions_.data();
    batch.n_seq_id = sequences_.data();
    batch.seq_id = ids_.data();
    batch.logits = outputs_.data();
    return batch;
  }

 private:
  llama_seq_id sequence_;
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<std::int32_t> sequences_;
  std::vector<llama_seq_id*> ids_;
  std::vector<std::int8_t> outputs_;
};

}  // namespace tiercel::llamacpp
