// States of any content, read as every version, with and without V: whatever they are, parsing reads nothing
// beyond them and believes no number in them; what is accepted lies inside, is cut inside, and is exactly
// what emitting would have written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "sequence_state.h"

namespace {

using namespace tiercel::llamacpp;  // NOLINT: a program of one file
using Bytes = std::vector<std::uint8_t>;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "sequence_state_fuzz: %s\n", what);
  std::abort();
}

void check_refused(const tiercel::Status& status) {
  check(status.code == TIERCEL_DATA_CORRUPT, "refused as damaged");
  check(!status.message.empty() && status.message.find('\n') == std::string::npos, "in one line");
}

// Rows begin where the frame of the one before ended, and end inside the state.
void check_inside(const AttentionSection& section, std::size_t at, std::size_t size) {
  const AttentionLayout& layout = section.layout;
  const std::uint64_t cells = section.positions.size();
  std::uint64_t low = at;
  const auto check_rows = [&](const StateTensor& tensor, std::size_t rows) {
    check(tensor.row_bytes > 0 && rows >= low && rows <= size, "a tensor begins inside");
    check(cells <= (size - rows) / tensor.row_bytes, "a tensor ends inside");
    low = rows + cells * tensor.row_bytes;
  };
  check(cells > 0 && section.stream < layout.streams, "there are cells");
  check(section.key_rows.size() == layout.keys.size(), "a place for each K");
  check(section.value_rows.size() == layout.values.size(), "a place for each V");
  for (std::size_t i = 0; i < layout.keys.size(); ++i) check_rows(layout.keys[i], section.key_rows[i]);
  for (std::size_t i = 0; i < layout.values.size(); ++i) check_rows(layout.values[i], section.value_rows[i]);
  check(section.end >= low && section.end <= size, "the section ends inside");
  check(section.end - at == attention_bytes(layout, cells), "the section has its size");
}

// All pieces of all positions lie inside, and are together each row once.
void check_pieces(const AttentionSection& section, const RowOfPosition& rows, Bytes& state) {
  const auto cells = static_cast<std::uint32_t>(section.positions.size());
  std::vector<tiercel_segment> pieces;
  for (std::uint32_t i = 0; i < section.layout.keys.size(); ++i)
    append_key_pieces(section, rows, i, 0, cells, state.data(), pieces);
  for (std::uint32_t i = 0; i < section.layout.values.size(); ++i)
    append_value_pieces(section, rows, i, 0, cells, state.data(), pieces);
  std::uint64_t bytes = 0;
  for (const tiercel_segment& piece : pieces) {
    const auto offset = static_cast<std::size_t>(static_cast<std::uint8_t*>(piece.data) - state.data());
    check(offset <= section.end && piece.size <= section.end - offset, "a piece lies inside");
    bytes += piece.size;
  }
  check(bytes == cells * section.layout.token_bytes(), "the pieces are the rows");
}

// Emitted over other bytes, with the rows copied: the section again.
void check_frame(const AttentionSection& section, std::size_t at, const Bytes& state) {
  const AttentionLayout& layout = section.layout;
  const auto cells = static_cast<std::uint32_t>(section.positions.size());
  Bytes again(section.end, 0xCD);
  const AttentionSection frame = frame_attention(layout, section.stream, cells, section.sequence, again, at);
  check(frame.end == section.end && frame.positions == section.positions, "the frame is as large");
  check(frame.key_rows == section.key_rows && frame.value_rows == section.value_rows,
        "rows have their places");
  const auto copy = [&](const StateTensor& tensor, std::size_t rows) {
    std::memcpy(again.data() + rows, state.data() + rows, cells * tensor.row_bytes);
  };
  for (std::size_t i = 0; i < layout.keys.size(); ++i) copy(layout.keys[i], frame.key_rows[i]);
  for (std::size_t i = 0; i < layout.values.size(); ++i) copy(layout.values[i], frame.value_rows[i]);
  check(std::equal(again.begin() + static_cast<std::ptrdiff_t>(at), again.end(),
                   state.begin() + static_cast<std::ptrdiff_t>(at)),
        "the frame is the same bytes");
}

void check_section(Bytes& state, std::size_t at, int version, bool values) {
  const auto section = parse_attention(state, at, version, values);
  if (!section) return check_refused(section.status());
  check_inside(*section, at, state.size());
  const auto rows = RowOfPosition::of(section->positions);
  if (!rows) return check_refused(rows.status());
  check_pieces(*section, *rows, state);
  // Emitting puts positions in order.
  if (std::is_sorted(section->positions.begin(), section->positions.end())) check_frame(*section, at, state);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // A copy of exactly this size: a sanitizer sees the first byte read beyond it.
  Bytes state(data, data + size);
  if (const tiercel::Status status = check_sequence_header(state); !status.ok()) check_refused(status);
  for (const int version : {3, 4})
    for (const bool values : {true, false}) check_section(state, kSequenceHeaderBytes, version, values);
  return 0;
}
