// The layout of llama.cpp's sequence state (llama_state_seq_get_data_ext), versions 3 and 4 of
// LLAMA_STATE_SEQ_VERSION: parsed, emitted, and cut into pages. Pure; calls nothing of llama.cpp.
//
//   state:      u32 magic · i32 sequence · sections
//   attention:  u32 streams · for each stream: u32 cells · if any: cell table · head · tensors
//   cell:       i32 position · u32 sequences (1) · i32 sequence
//   head:       u32 v_transposed · u32 layers · version 4: u32 rotation of K · u32 rotation of V
//   tensor:     i32 type · u64 bytes of a row · a row for each cell, in the order of the cell table
//   V, when transposed: i32 type · u32 bytes of an element · u32 width · for each of `width`: an element of
//               each cell
//   K of every layer comes first, then V of every layer that has one. All little-endian.
// Of a hybrid model (window or recurrent layers) the attention section is followed by a tail that belongs to
// one length; it is what the PARTIAL state consists of, and is not looked into here.
//
// The section does not tell whether its layers have V (those of MLA caches have none), and what follows K may
// be V or a tail. So the caller says which, and finds out by trying: parse_attention() with values first,
// then without; the one is right that leaves exactly the tail behind it (nothing, where all is attention:
// there the PARTIAL state is the whole one again).
//
// Sizes and counts come from outside: nothing is allocated or read before it was compared with what is there.
//
// Threads: values; none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace tiercel::llamacpp {

inline constexpr std::uint32_t kSequenceMagic = 0xaf143cd8;
inline constexpr std::size_t kSequenceHeaderBytes = 8;

// More than any context has; a larger number means that the layout is not understood.
inline constexpr std::uint32_t kStreamsMax = 256;
inline constexpr std::uint32_t kLayersMax = 4096;
inline constexpr std::int32_t kTensorTypeMax = 60;  // ggml has 43 of them

// One tensor of an attention section, without its rows.
struct StateTensor {
  std::int32_t type = 0;            // of ggml
  std::uint64_t row_bytes = 0;      // of one cell
  std::uint32_t element_bytes = 0;  // transposed V: row_bytes = width × element_bytes; else 0
  std::uint32_t width = 0;
  bool operator==(const StateTensor&) const = default;
};

// What of an attention section is the same for every sequence of a context.
struct AttentionLayout {
  std::uint32_t streams = 1;
  bool transposed = false;              // V
  std::vector<std::uint32_t> rotation;  // version 4: two numbers; version 3: none
  std::vector<StateTensor> keys;        // one a layer; none when every layer is windowed or recurrent
  std::vector<StateTensor> values;      // none, or as many as keys: other mixtures are not understood
  bool operator==(const AttentionLayout&) const = default;
  std::uint64_t token_bytes() const;  // rows of all tensors of one token; saturates
};

// An attention section inside a state: where the rows are.
struct AttentionSection {
  AttentionLayout layout;
  std::uint32_t stream = 0;             // that holds the cells
  std::int32_t sequence = 0;            // of every cell
  std::vector<std::int32_t> positions;  // of row i
  std::vector<std::size_t> key_rows;    // offset in the state of the first row of K of layer i
  std::vector<std::size_t> value_rows;  // of V
  std::size_t end = 0;                  // offset of what follows the section
};

// Parses the section at `at` of `state`. `version`: 3 or 4. `values`: whether every layer has V, or none (see
// above). Not understood, so errors: no cells (nothing tells the layout), cells in two streams or of two
// sequences. Cells of M-RoPE and n-gram models have 12 bytes more: from two cells on this is refused, too,
// but for rare token numbers, where what is left behind the section tells. What was parsed lies inside
// `state`. Errors: data_corrupt, naming offset and what was wanted; invalid_argument: the version. Cost:
// O(cells + layers).
Result<AttentionSection> parse_attention(std::span<const std::uint8_t> state, std::size_t at, int version,
                                         bool values);

// Bytes of a section of `cells` rows; saturates.
std::uint64_t attention_bytes(const AttentionLayout& layout, std::uint64_t cells);

// Writes everything of a section but its rows at `at` of `state`: cells 0 … cells−1 at positions
// 0 … cells−1, of `sequence`, in stream `stream`. The layout is one that was parsed: its version is told by
// `rotation`. Returns: where the rows go. Requires: at + attention_bytes() bytes in `state`.
AttentionSection frame_attention(const AttentionLayout& layout, std::uint32_t stream, std::uint32_t cells,
                                 std::int32_t sequence, std::span<std::uint8_t> state, std::size_t at);

// magic and sequence id. Requires: kSequenceHeaderBytes in `state`.
void write_sequence_header(std::span<std::uint8_t> state, std::int32_t sequence);
// Errors: data_corrupt: shorter, another magic.
Status check_sequence_header(std::span<const std::uint8_t> state);

// Where the row of each position is.
class RowOfPosition {
 public:
  // Every position of 0 … positions.size()−1 exactly once, else data_corrupt: nothing can be cut.
  static Result<RowOfPosition> of(std::span<const std::int32_t> positions);
  // Requires: position < positions.size().
  std::uint32_t operator[](std::uint32_t position) const {
    return rows_.empty() ? position : rows_[position];
  }

 private:
  std::vector<std::uint32_t> rows_;  // empty: row i is position i
};

// Appends the pieces of `state` that are positions [first, first + count) of one tensor, in the order of a
// record: K, and V that is not transposed, token by token; transposed V element by element, `count` tokens
// each. Adjacent pieces of one call are merged; what was in `pieces` before stays as it is, so that a list
// can hold several objects. `state`: its first byte, never touched here. Requires: the tensor and the
// positions are those of the section. Cost: O(count), transposed: O(count × width).
void append_key_pieces(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t layer,
                       std::uint32_t first, std::uint32_t count, std::uint8_t* state,
                       std::vector<tiercel_segment>& pieces);
void append_value_pieces(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t layer,
                         std::uint32_t first, std::uint32_t count, std::uint8_t* state,
                         std::vector<tiercel_segment>& pieces);

}  // namespace tiercel::llamacpp
