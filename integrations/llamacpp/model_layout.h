// What a context keeps of a sequence, found by the self-test: which memory kind, the layout of its state, and
// the spec that Tiercel stores it under.
//
// Threads: those of llama_context.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tiercel/llamacpp.hpp>

#include "sequence_state.h"

namespace tiercel::llamacpp {

inline constexpr std::uint64_t kWholePieceBytes = 1ULL << 20;
inline constexpr std::size_t kLengthBytes = 8;  // before a snapshot or a whole state: how long it is

struct ModelLayout {
  SequenceKind kind = SequenceKind::kWhole;
  int version = 0;                 // of the state: 3 or 4; 0: another
  bool has_attention = false;      // the state has an attention section, with layers or without
  bool has_values = false;         // the attention section has tensors of V
  std::optional<bool> transposed;  // V, where an attention section was understood
  AttentionLayout attention;       // no layers: all of them are windowed
  // Of the tail: window cells, then recurrent states, which have the same size at each length.
  bool has_window = false, window_has_values = false;
  std::uint64_t tail_bytes_max = 0;  // with one stream
  std::string why_whole;             // kWhole: what was not understood
  // Hash of what the two tokens came to. What changes any bit of it (weights, adapters, environment variables
  // of llama.cpp, kernels), named in the identity or not, separates what is cached.
  std::string fingerprint;
  // A snapshot's record: u64 length, then so many bytes at most, zeros behind. 0: no snapshots.
  std::uint64_t snapshot_bytes() const { return tail_bytes_max == 0 ? 0 : kLengthBytes + tail_bytes_max; }
};

// Computes two tokens in sequence 0 (empty, and empty again), and looks at their state. Not understood, or
// `whole`, is kWhole. Errors: internal, cancelled (llama_decode), unsupported (no memory).
Result<ModelLayout> probe_layout(llama_context* context, bool whole);

// The spec: one class of pages (when there are layers), one of snapshots (when there are); kWhole: one class
// of pieces.
Result<Spec> make_spec(const ModelLayout& layout, std::uint32_t page_tokens);

// The sequence's state. Empty: llama.cpp gave none.
std::vector<std::uint8_t> read_state(llama_context* context, llama_seq_id sequence,
                                     llama_state_seq_flags flags);

// The tail of a state for one stream, as records keep it, and for `streams` of them, as the context wants it.
// data_corrupt: it is not as the layout says, or larger than a record.
Result<std::vector<std::uint8_t>> pack_tail(const ModelLayout& layout, std::span<const std::uint8_t> tail);
Result<std::vector<std::uint8_t>> unpack_tail(const ModelLayout& layout, std::span<const std::uint8_t> packed,
                                              std::uint32_t streams);

}  // namespace tiercel::llamacpp
