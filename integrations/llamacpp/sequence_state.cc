#include "sequence_state.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tiercel::llamacpp {
namespace {

static_assert(std::endian::native == std::endian::little, "a state is little-endian, and numbers are copied");

constexpr std::size_t kCellBytes = 12;
constexpr std::size_t kTensorHeadBytes = 12;  // of both forms

// Of our own mistakes only: what comes from outside is refused with a Status.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "tiercel: sequence state: required: %s\n", what);
  std::abort();
}

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}
std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

Status differs(std::size_t at, std::string_view field, std::string_view wanted, std::uint64_t got) {
  return {TIERCEL_DATA_CORRUPT,
          fmt::format("sequence state: offset {}: {}: wanted {}, got {}", at, field, wanted, got)};
}

// Numbers one behind the other. The first that is not there or not as wanted is kept as the error, and ends
// reading: from then on all numbers are 0.
class Reader {
 public:
  Reader(std::span<const std::uint8_t> state, std::size_t at) : state_(state), at_(at) {
    if (at > state.size()) refuse("start", fmt::format("at most {}", state.size()), at);
  }

  bool ok() const { return error_.ok(); }
  const Status& error() const { return error_; }
  std::size_t at() const { return at_; }
  std::size_t left() const { return state_.size() - at_; }

  template <typename T>
  T take(std::string_view field) {
    T value = 0;
    if (!ok()) return value;
    if (left() < sizeof value) {
      refuse(field, fmt::format("{} bytes", sizeof value), left());
      return value;
    }
    std::memcpy(&value, state_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  // A number of least … most.
  template <typename T>
  T take(std::string_view field, std::uint64_t least, std::uint64_t most) {
    const T value = take<T>(field);
    // Negative ones become large.
    const auto number = static_cast<std::uint64_t>(value);
    if (!ok() || (number >= least && number <= most)) return value;
    at_ -= sizeof value;
    refuse(field, least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most), number);
    return 0;
  }
  // Whether `count` things of `bytes` each are there; passes over nothing.
  bool has(std::string_view field, std::uint64_t count, std::uint64_t bytes) {
    if (!ok()) return false;
    const std::uint64_t wanted = times(count, bytes);
    if (wanted > left()) refuse(field, fmt::format("{} × {} bytes", count, bytes), left());
    return ok();
  }
  // Of what has() found.
  void pass(std::uint64_t bytes) { at_ += static_cast<std::size_t>(bytes); }
  void refuse(std::string_view field, std::string_view wanted, std::uint64_t got) {
    if (ok()) error_ = differs(at_, field, wanted, got);
  }

 private:
  std::span<const std::uint8_t> state_;
  std::size_t at_;
  Status error_;
};

void parse_cells(Reader& in, std::uint32_t cells, AttentionSection& section) {
  if (!in.has("cells", cells, kCellBytes)) return;
  section.positions.reserve(cells);
  for (std::uint32_t i = 0; i < cells && in.ok(); ++i) {
    section.positions.push_back(in.take<std::int32_t>("position"));
    in.take<std::uint32_t>("sequences of a cell", 1, 1);
    const auto sequence = in.take<std::int32_t>("sequence");
    if (i == 0) section.sequence = sequence;
    if (sequence != section.sequence)
      in.refuse("sequence", fmt::format("{} as of the first cell", section.sequence),
                static_cast<std::uint32_t>(sequence));
  }
}

void parse_head(Reader& in, int version, std::uint32_t& layers, AttentionLayout& layout) {
  layout.transposed = in.take<std::uint32_t>("transposed", 0, 1) == 1;
  layers = in.take<std::uint32_t>("layers", 0, kLayersMax);
  if (version == 3) return;
  const auto of_keys = in.take<std::uint32_t>("rotation of K");
  const auto of_values = in.take<std::uint32_t>("rotation of V");
  layout.rotation = {of_keys, of_values};
}

// A tensor and its rows, which are passed over.
StateTensor parse_tensor(Reader& in, std::uint32_t cells, bool transposed, std::size_t& rows) {
  StateTensor tensor;
  tensor.type = in.take<std::int32_t>("type", 0, static_cast<std::uint64_t>(kTensorTypeMax));
  if (transposed) {
    tensor.element_bytes = in.take<std::uint32_t>("bytes of an element", 1, UINT32_MAX);
    tensor.width = in.take<std::uint32_t>("width", 1, UINT32_MAX);
    tensor.row_bytes = std::uint64_t{tensor.element_bytes} * tensor.width;
  } else {
    tensor.row_bytes = in.take<std::uint64_t>("bytes of a row", 1, UINT64_MAX);
  }
  rows = in.at();
  if (in.has("rows", cells, tensor.row_bytes)) in.pass(cells * tensor.row_bytes);
  return tensor;
}

void parse_stream(Reader& in, std::uint32_t cells, int version, bool values, AttentionSection& section) {
  AttentionLayout& layout = section.layout;
  std::uint32_t layers = 0;
  parse_cells(in, cells, section);
  parse_head(in, version, layers, layout);
  for (std::uint32_t i = 0; i < layers && in.ok(); ++i)
    layout.keys.push_back(parse_tensor(in, cells, false, section.key_rows.emplace_back()));
  for (std::uint32_t i = 0; values && i < layers && in.ok(); ++i)
    layout.values.push_back(parse_tensor(in, cells, layout.transposed, section.value_rows.emplace_back()));
}

// Numbers one behind the other; the caller knows that there is room.
class Writer {
 public:
  Writer(std::span<std::uint8_t> state, std::size_t at) : state_(state), at_(at) {}
  std::size_t at() const { return at_; }
  template <typename T>
  void put(T value) {
    std::memcpy(state_.data() + at_, &value, sizeof value);
    at_ += sizeof value;
  }
  void pass(std::uint64_t bytes) { at_ += static_cast<std::size_t>(bytes); }

 private:
  std::span<std::uint8_t> state_;
  std::size_t at_;
};

std::size_t write_tensor(Writer& out, const StateTensor& tensor, bool transposed, std::uint32_t cells) {
  out.put(tensor.type);
  if (transposed) {
    out.put(tensor.element_bytes);
    out.put(tensor.width);
  } else {
    out.put(tensor.row_bytes);
  }
  const std::size_t rows = out.at();
  out.pass(cells * tensor.row_bytes);
  return rows;
}

void write_stream(Writer& out, std::uint32_t cells, AttentionSection& section) {
  const AttentionLayout& layout = section.layout;
  for (std::uint32_t i = 0; i < cells; ++i) {
    const auto position = static_cast<std::int32_t>(i);
    section.positions.push_back(position);
    out.put(position);
    out.put(std::uint32_t{1});
    out.put(section.sequence);
  }
  out.put(std::uint32_t{layout.transposed});
  out.put(static_cast<std::uint32_t>(layout.keys.size()));
  for (const std::uint32_t number : layout.rotation) out.put(number);
  for (const StateTensor& tensor : layout.keys)
    section.key_rows.push_back(write_tensor(out, tensor, false, cells));
  for (const StateTensor& tensor : layout.values)
    section.value_rows.push_back(write_tensor(out, tensor, layout.transposed, cells));
}

// Rows that lie one behind the other.
struct Run {
  std::uint32_t row, count;
};
std::vector<Run> runs_of(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t first,
                         std::uint32_t count) {
  require(first <= section.positions.size() && count <= section.positions.size() - first,
          "positions of the section");
  std::vector<Run> runs;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t row = rows[first + i];
    if (!runs.empty() && runs.back().row + runs.back().count == row)
      ++runs.back().count;
    else
      runs.push_back({row, 1});
  }
  return runs;
}

// Pieces of one call.
class Pieces {
 public:
  explicit Pieces(std::vector<tiercel_segment>& pieces) : pieces_(pieces), before_(pieces.size()) {}
  void append(std::uint8_t* data, std::uint64_t size) {
    if (pieces_.size() > before_) {
      tiercel_segment& last = pieces_.back();
      if (static_cast<std::uint8_t*>(last.data) + last.size == data) {
        last.size += size;
        return;
      }
    }
    pieces_.push_back({data, size});
  }

 private:
  std::vector<tiercel_segment>& pieces_;
  std::size_t before_;
};

// Tables of `cells` elements of `bytes` each, one behind the other: runs of each.
void append_tables(std::uint8_t* data, std::uint64_t tables, std::uint64_t cells, std::uint64_t bytes,
                   std::span<const Run> runs, std::vector<tiercel_segment>& pieces) {
  Pieces out(pieces);
  for (std::uint64_t t = 0; t < tables; ++t)
    for (const Run& run : runs) out.append(data + (t * cells + run.row) * bytes, run.count * bytes);
}

}  // namespace

std::uint64_t AttentionLayout::token_bytes() const {
  std::uint64_t sum = 0;
  for (const StateTensor& tensor : keys) sum = add(sum, tensor.row_bytes);
  for (const StateTensor& tensor : values) sum = add(sum, tensor.row_bytes);
  return sum;
}

Result<AttentionSection> parse_attention(std::span<const std::uint8_t> state, std::size_t at, int version,
                                         bool values) {
  if (version != 3 && version != 4)
    return Status{TIERCEL_INVALID_ARGUMENT,
                  fmt::format("sequence state: version: wanted 3 or 4, got {}", version)};
  Reader in(state, at);
  AttentionSection section;
  section.layout.streams = in.take<std::uint32_t>("streams", 1, kStreamsMax);
  for (std::uint32_t s = 0; s < section.layout.streams && in.ok(); ++s) {
    // A second stream with cells would have a sequence in two places.
    const auto cells = in.take<std::uint32_t>("cells", 0, section.positions.empty() ? INT32_MAX : 0);
    if (cells == 0) continue;
    section.stream = s;
    parse_stream(in, cells, version, values, section);
  }
  if (section.positions.empty()) in.refuse("cells", "1 at least in one of the streams", 0);
  if (!in.ok()) return in.error();
  section.end = in.at();
  return section;
}

std::uint64_t attention_bytes(const AttentionLayout& layout, std::uint64_t cells) {
  const std::uint64_t counts = 4 * (1 + std::uint64_t{layout.streams});
  if (cells == 0) return counts;
  const std::uint64_t tensors = layout.keys.size() + layout.values.size();
  const std::uint64_t heads = 4 * (2 + layout.rotation.size()) + kTensorHeadBytes * tensors;
  return add(counts + heads, times(cells, add(kCellBytes, layout.token_bytes())));
}

AttentionSection frame_attention(const AttentionLayout& layout, std::uint32_t stream, std::uint32_t cells,
                                 std::int32_t sequence, std::span<std::uint8_t> state, std::size_t at) {
  require(stream < layout.streams && cells <= INT32_MAX, "a stream of the layout, positions of 31 bits");
  require(at <= state.size() && attention_bytes(layout, cells) <= state.size() - at, "room for the section");
  AttentionSection section;
  section.layout = layout;
  section.stream = stream;
  section.sequence = sequence;
  section.positions.reserve(cells);
  Writer out(state, at);
  out.put(layout.streams);
  for (std::uint32_t s = 0; s < layout.streams; ++s) {
    out.put(s == stream ? cells : 0);
    if (s == stream && cells > 0) write_stream(out, cells, section);
  }
  section.end = out.at();
  return section;
}

void write_sequence_header(std::span<std::uint8_t> state, std::int32_t sequence) {
  require(state.size() >= kSequenceHeaderBytes, "room for the header");
  Writer out(state, 0);
  out.put(kSequenceMagic);
  out.put(sequence);
}

Status check_sequence_header(std::span<const std::uint8_t> state) {
  Reader in(state, 0);
  in.take<std::uint32_t>("magic", kSequenceMagic, kSequenceMagic);
  in.take<std::int32_t>("sequence");
  return in.error();
}

Result<RowOfPosition> RowOfPosition::of(std::span<const std::int32_t> positions) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> rows(positions.size(), kNone);
  bool in_order = true;
  for (std::size_t row = 0; row < positions.size(); ++row) {
    const std::int32_t position = positions[row];
    const auto at = static_cast<std::size_t>(position);  // negative ones become large
    if (at >= positions.size() || rows[at] != kNone)
      return Status{
          TIERCEL_DATA_CORRUPT,
          fmt::format("sequence state: row {}: position: wanted each of 0 to {} once, got {}; sequences with "
                      "gaps or shifted positions are not cut",
                      row, positions.size() - 1, position)};
    rows[at] = static_cast<std::uint32_t>(row);
    in_order = in_order && at == row;
  }
  RowOfPosition result;
  if (!in_order) result.rows_ = std::move(rows);
  return result;
}

void append_key_pieces(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t layer,
                       std::uint32_t first, std::uint32_t count, std::uint8_t* state,
                       std::vector<tiercel_segment>& pieces) {
  require(layer < section.layout.keys.size(), "a layer of the section");
  append_tables(state + section.key_rows[layer], 1, section.positions.size(),
                section.layout.keys[layer].row_bytes, runs_of(section, rows, first, count), pieces);
}

void append_value_pieces(const AttentionSection& section, const RowOfPosition& rows, std::uint32_t layer,
                         std::uint32_t first, std::uint32_t count, std::uint8_t* state,
                         std::vector<tiercel_segment>& pieces) {
  require(layer < section.layout.values.size(), "a layer of the section that has V");
  const StateTensor& tensor = section.layout.values[layer];
  const bool transposed = section.layout.transposed;
  append_tables(state + section.value_rows[layer], transposed ? tensor.width : 1, section.positions.size(),
                transposed ? tensor.element_bytes : tensor.row_bytes, runs_of(section, rows, first, count),
                pieces);
}

}  // namespace tiercel::llamacpp
