#include "sequence_state.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tiercel::llamacpp {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Positions = std::vector<std::int32_t>;

// ---- a second statement of the layout: what llama.cpp writes ----

struct WrittenTensor {
  std::int32_t type = 1;
  std::uint32_t element_bytes = 2, width = 4;
  std::size_t row_bytes() const { return std::size_t{element_bytes} * width; }
};

struct Written {
  int version = 3;
  bool transposed = false;
  std::uint32_t streams = 1, stream = 0;
  std::int32_t sequence = 0;
  Positions positions = {0, 1, 2};
  std::vector<WrittenTensor> keys = {{1, 2, 4}, {8, 1, 34}};
  std::vector<WrittenTensor> values = {{1, 2, 3}, {30, 2, 8}};
  Bytes tail = {};
};

// Names a byte: `tensor` counts K of all layers, then V of all.
std::uint8_t content(std::size_t tensor, std::int32_t position, std::size_t byte) {
  std::uint64_t x = (tensor << 40) ^ (static_cast<std::uint64_t>(position) << 20) ^ byte;
  x = (x ^ 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9;
  return static_cast<std::uint8_t>(x >> 37 ^ x >> 53);
}

template <typename T>
void put(Bytes& out, T value) {
  for (std::size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<std::uint8_t>(static_cast<std::uint64_t>(value) >> 8 * i));
}

void put_rows(Bytes& out, const WrittenTensor& tensor, std::size_t number, const Positions& positions) {
  put(out, tensor.type);
  put(out, std::uint64_t{tensor.row_bytes()});
  for (const std::int32_t position : positions)
    for (std::size_t byte = 0; byte < tensor.row_bytes(); ++byte)
      out.push_back(content(number, position, byte));
}
void put_columns(Bytes& out, const WrittenTensor& tensor, std::size_t number, const Positions& positions) {
  put(out, tensor.type);
  put(out, tensor.element_bytes);
  put(out, tensor.width);
  for (std::size_t element = 0; element < tensor.width; ++element)
    for (const std::int32_t position : positions)
      for (std::size_t byte = 0; byte < tensor.element_bytes; ++byte)
        out.push_back(content(number, position, element * tensor.element_bytes + byte));
}

Bytes write(const Written& w) {
  Bytes out;
  put(out, 0xaf143cd8U);
  put(out, w.sequence);
  put(out, w.streams);
  for (std::uint32_t s = 0; s < w.streams; ++s) {
    put(out, s == w.stream ? static_cast<std::uint32_t>(w.positions.size()) : 0U);
    if (s != w.stream) continue;
    for (const std::int32_t position : w.positions) {
      put(out, position);
      put(out, 1U);
      put(out, w.sequence);
    }
    put(out, w.transposed ? 1U : 0U);
    put(out, static_cast<std::uint32_t>(w.keys.size()));
    if (w.version == 4) {
      put(out, 11U);
      put(out, 22U);
    }
    std::size_t number = 0;
    for (const WrittenTensor& tensor : w.keys) put_rows(out, tensor, number++, w.positions);
    for (const WrittenTensor& tensor : w.values)
      (w.transposed ? put_columns : put_rows)(out, tensor, number++, w.positions);
  }
  out.insert(out.end(), w.tail.begin(), w.tail.end());
  return out;
}

// ---- helpers ----

Result<AttentionSection> parse(const Bytes& state, const Written& as) {
  return parse_attention(state, kSequenceHeaderBytes, as.version, !as.values.empty());
}

std::string describe(const Written& w) {
  return fmt::format("version {}, transposed {}, V {}, stream {} of {}, {} rows", w.version, w.transposed,
                     w.values.size(), w.stream, w.streams, w.positions.size());
}

Positions in_order(std::int32_t count) {
  Positions positions(static_cast<std::size_t>(count));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

// Every form, with rows in order and out of it, with a tail and without.
std::vector<Written> every_form() {
  std::vector<Written> forms;
  for (const int version : {3, 4})
    for (const bool transposed : {false, true})
      for (const bool values : {false, true})
        for (const std::uint32_t streams : {1U, 3U})
          for (const Positions& positions : {Positions{0}, in_order(5), Positions{3, 4, 0, 1, 2, 6, 5}})
            for (const std::size_t tail : {0U, 29U}) {
              Written w;
              w.version = version;
              w.transposed = transposed;
              if (!values) w.values.clear();
              w.streams = streams;
              w.stream = streams - 1 - tail % 2;
              if (streams == 1) w.stream = 0;
              w.sequence = static_cast<std::int32_t>(w.stream);
              w.positions = positions;
              w.tail.assign(tail, 0xEE);
              forms.push_back(w);
            }
  return forms;
}

// The error's field, or nothing when it was parsed.
std::string wrong(const Result<AttentionSection>& result) {
  if (result.ok()) return {};
  const Status status = result.status();
  EXPECT_EQ(status.code, TIERCEL_DATA_CORRUPT) << status.message;
  EXPECT_EQ(status.message.find('\n'), std::string::npos);
  const std::string start = "sequence state: offset ";
  EXPECT_TRUE(status.message.starts_with(start)) << status.message;
  const std::size_t field = status.message.find(": ", start.size()) + 2;
  return status.message.substr(field, status.message.find(": wanted ") - field);
}
std::string wrong(const Written& w) { return wrong(parse(write(w), w)); }

// Everything that was parsed lies inside the state, and in order.
void expect_inside(const AttentionSection& section, std::size_t at, std::size_t size) {
  std::size_t low = at;
  const auto rows = [&](const StateTensor& tensor, std::size_t offset) {
    ASSERT_GT(tensor.row_bytes, 0U);
    ASSERT_GE(offset, low + 12);
    ASSERT_LE(offset, size);
    ASSERT_LE(section.positions.size(), (size - offset) / tensor.row_bytes);
    low = offset + section.positions.size() * tensor.row_bytes;
  };
  const AttentionLayout& layout = section.layout;
  ASSERT_FALSE(section.positions.empty());
  ASSERT_LT(section.stream, layout.streams);
  ASSERT_EQ(section.key_rows.size(), layout.keys.size());
  ASSERT_EQ(section.value_rows.size(), layout.values.size());
  for (std::size_t i = 0; i < layout.keys.size(); ++i) rows(layout.keys[i], section.key_rows[i]);
  for (std::size_t i = 0; i < layout.values.size(); ++i) rows(layout.values[i], section.value_rows[i]);
  ASSERT_GE(section.end, low);
  ASSERT_LE(section.end, size);
  ASSERT_EQ(section.end - at, attention_bytes(layout, section.positions.size()));
}

// Pieces of all tensors for these positions, taken together: a record.
Bytes cut(Bytes& state, const AttentionSection& section, std::uint32_t first, std::uint32_t count) {
  const auto rows = RowOfPosition::of(section.positions);
  EXPECT_TRUE(rows.ok()) << rows.status().message;
  std::vector<tiercel_segment> pieces;
  for (std::uint32_t i = 0; i < section.layout.keys.size(); ++i)
    append_key_pieces(section, *rows, i, first, count, state.data(), pieces);
  for (std::uint32_t i = 0; i < section.layout.values.size(); ++i)
    append_value_pieces(section, *rows, i, first, count, state.data(), pieces);
  Bytes record;
  for (const tiercel_segment& piece : pieces) {
    const auto* const data = static_cast<const std::uint8_t*>(piece.data);
    EXPECT_TRUE(data >= state.data() && piece.size <= state.size() &&
                data + piece.size <= state.data() + state.size());
    record.insert(record.end(), data, data + piece.size);
  }
  return record;
}

// The same by the names of the bytes.
Bytes wanted_record(const Written& w, std::int32_t first, std::int32_t count) {
  Bytes record;
  std::size_t number = 0;
  const auto rows = [&](const WrittenTensor& t, bool transposed) {
    const std::size_t columns = transposed ? t.width : 1;
    const std::size_t bytes = t.row_bytes() / columns;
    for (std::size_t column = 0; column < columns; ++column)
      for (std::int32_t position = first; position < first + count; ++position)
        for (std::size_t byte = 0; byte < bytes; ++byte)
          record.push_back(content(number, position, column * bytes + byte));
    ++number;
  };
  for (const WrittenTensor& tensor : w.keys) rows(tensor, false);
  for (const WrittenTensor& tensor : w.values) rows(tensor, w.transposed);
  return record;
}

// ---- parsed and emitted ----

TEST(SequenceState, EveryFormIsParsedWhereItIs) {
  for (const Written& w : every_form()) {
    SCOPED_TRACE(describe(w));
    const Bytes state = write(w);
    ASSERT_TRUE(check_sequence_header(state).ok());
    const auto section = parse(state, w);
    ASSERT_TRUE(section.ok()) << section.status().message;
    expect_inside(*section, kSequenceHeaderBytes, state.size());
    EXPECT_EQ(section->layout.streams, w.streams);
    EXPECT_EQ(section->layout.transposed, w.transposed);
    EXPECT_EQ(section->layout.rotation.size(), w.version == 4 ? 2U : 0U);
    EXPECT_EQ(section->layout.keys.size(), w.keys.size());
    EXPECT_EQ(section->layout.values.size(), w.values.size());
    EXPECT_EQ(section->stream, w.stream);
    EXPECT_EQ(section->sequence, w.sequence);
    EXPECT_EQ(section->positions, w.positions);
    EXPECT_EQ(section->end, state.size() - w.tail.size());
    EXPECT_EQ(section->layout.token_bytes(), wanted_record(w, 0, 1).size());
  }
}

TEST(SequenceState, TensorsAreWhatWasWritten) {
  Written w;
  w.version = 4;
  w.transposed = true;
  const auto section = parse(write(w), w);
  ASSERT_TRUE(section.ok());
  EXPECT_EQ(section->layout.rotation, (std::vector<std::uint32_t>{11, 22}));
  EXPECT_EQ(section->layout.keys, (std::vector<StateTensor>{{1, 8, 0, 0}, {8, 34, 0, 0}}));
  EXPECT_EQ(section->layout.values, (std::vector<StateTensor>{{1, 6, 2, 3}, {30, 16, 2, 8}}));
}

// Emitting and putting the records of all positions gives the state that llama.cpp would write with rows in
// order.
TEST(SequenceState, WhatIsCutAndPutTogetherIsTheStateInOrder) {
  for (const Written& w : every_form()) {
    SCOPED_TRACE(describe(w));
    Bytes state = write(w);
    Written ordered = w;
    ordered.tail.clear();
    std::sort(ordered.positions.begin(), ordered.positions.end());
    const auto section = parse(state, w);
    ASSERT_TRUE(section.ok());
    const auto cells = static_cast<std::uint32_t>(w.positions.size());
    Bytes emitted(kSequenceHeaderBytes + attention_bytes(section->layout, cells), 0xCD);
    write_sequence_header(emitted, w.sequence);
    const AttentionSection frame =
        frame_attention(section->layout, w.stream, cells, w.sequence, emitted, kSequenceHeaderBytes);
    EXPECT_EQ(frame.end, emitted.size());
    const auto rows = RowOfPosition::of(frame.positions);
    ASSERT_TRUE(rows.ok());
    for (std::uint32_t first = 0; first < cells; first += 2) {  // pages of two, the last may be of one
      const std::uint32_t count = std::min(2U, cells - first);
      const Bytes record = cut(state, *section, first, count);
      std::vector<tiercel_segment> pieces;
      for (std::uint32_t i = 0; i < frame.layout.keys.size(); ++i)
        append_key_pieces(frame, *rows, i, first, count, emitted.data(), pieces);
      for (std::uint32_t i = 0; i < frame.layout.values.size(); ++i)
        append_value_pieces(frame, *rows, i, first, count, emitted.data(), pieces);
      std::size_t from = 0;
      for (const tiercel_segment& piece : pieces) {
        std::memcpy(piece.data, record.data() + from, piece.size);
        from += piece.size;
      }
      ASSERT_EQ(from, record.size());
    }
    EXPECT_EQ(emitted, write(ordered));
    const auto again = parse(emitted, ordered);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(again->layout, frame.layout);
    EXPECT_EQ(again->key_rows, frame.key_rows);
    EXPECT_EQ(again->value_rows, frame.value_rows);
    EXPECT_EQ(again->positions, frame.positions);
  }
}

TEST(SequenceState, AFrameTouchesNothingButItsPlace) {
  Written w;
  const auto section = parse(write(w), w);
  ASSERT_TRUE(section.ok());
  const std::uint64_t bytes = attention_bytes(section->layout, 3);
  Bytes state(5 + bytes + 7, 0xCD);
  const AttentionSection frame = frame_attention(section->layout, 0, 3, 0, state, 5);
  EXPECT_EQ(frame.end, 5 + bytes);
  EXPECT_EQ(Bytes(state.begin(), state.begin() + 5), Bytes(5, 0xCD));
  EXPECT_EQ(Bytes(state.end() - 7, state.end()), Bytes(7, 0xCD));
  for (std::size_t row : frame.key_rows) EXPECT_EQ(state[row], 0xCD) << "rows are left to the caller";
}

TEST(SequenceState, NoCellsNeedOnlyTheirCounts) {
  Written w;
  w.streams = 2;
  const auto section = parse(write(w), w);
  ASSERT_TRUE(section.ok());
  ASSERT_EQ(attention_bytes(section->layout, 0), 12U);
  Bytes state(12, 0xCD);
  EXPECT_EQ(frame_attention(section->layout, 1, 0, 7, state, 0).end, 12U);
  EXPECT_EQ(state, (Bytes{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(wrong(parse_attention(state, 0, 3, true)), "cells");
}

TEST(SequenceState, ALayoutWithoutLayersIsASection) {
  Written w;
  w.keys.clear();
  w.values.clear();
  w.tail = {1, 2, 3};
  const Bytes state = write(w);
  for (const bool values : {false, true}) {
    const auto section = parse_attention(state, kSequenceHeaderBytes, 3, values);
    ASSERT_TRUE(section.ok());
    EXPECT_EQ(section->layout.token_bytes(), 0U);
    EXPECT_EQ(section->end, state.size() - 3);
  }
}

TEST(SequenceState, SizesOfAnyLayoutSaturate) {
  AttentionLayout layout;
  layout.keys = {{1, UINT64_MAX - 1, 0, 0}, {1, 5, 0, 0}};
  EXPECT_EQ(layout.token_bytes(), UINT64_MAX);
  EXPECT_EQ(attention_bytes(layout, 1), UINT64_MAX);
  layout.keys = {{1, 1ULL << 40, 0, 0}};
  EXPECT_EQ(attention_bytes(layout, UINT32_MAX), UINT64_MAX);
  EXPECT_EQ(attention_bytes(layout, 2), (1ULL << 41) + 24 + 8 + 8 + 12);
}

// ---- whether there is V ----

TEST(SequenceState, WithoutValuesTheyAreLeftBehindTheSection) {
  Written w;
  const Bytes state = write(w);
  const auto section = parse_attention(state, kSequenceHeaderBytes, 3, false);
  ASSERT_TRUE(section.ok());
  const std::size_t of_values = 3 * (6 + 16) + 2 * 12;
  EXPECT_EQ(section->end, state.size() - of_values);
  EXPECT_TRUE(section->layout.values.empty());
}

TEST(SequenceState, ValuesThatAreNotThereAreNotFound) {
  Written w;
  w.values.clear();
  EXPECT_EQ(wrong(parse_attention(write(w), kSequenceHeaderBytes, 3, true)), "type") << "nothing follows";
  w.tail.assign(100, 0xEE);
  EXPECT_EQ(wrong(parse_attention(write(w), kSequenceHeaderBytes, 3, true)), "type") << "a tail follows";
}

// Both readings are possible then; the caller has the PARTIAL state to tell.
TEST(SequenceState, ATailThatLooksLikeValuesIsLeftToTheCaller) {
  Written w, without;
  without.values.clear();
  const Bytes whole = write(w), keys = write(without);
  without.tail.assign(whole.begin() + static_cast<std::ptrdiff_t>(keys.size()), whole.end());
  ASSERT_EQ(write(without), whole);
  const auto with_values = parse_attention(whole, kSequenceHeaderBytes, 3, true);
  const auto with_tail = parse_attention(whole, kSequenceHeaderBytes, 3, false);
  ASSERT_TRUE(with_values.ok() && with_tail.ok());
  EXPECT_EQ(whole.size() - with_values->end, 0U);
  EXPECT_EQ(whole.size() - with_tail->end, without.tail.size());
}

// ---- what is refused ----

TEST(SequenceState, WhatIsNotUnderstoodIsRefusedByName) {
  const auto changed = [](auto change) {
    Written w;
    change(w);
    return wrong(w);
  };
  EXPECT_EQ(changed([](Written&) {}), "");
  EXPECT_EQ(changed([](Written& w) { w.streams = 0; }), "streams");
  EXPECT_EQ(changed([](Written& w) { w.streams = 257; }), "streams");
  EXPECT_EQ(changed([](Written& w) { w.streams = 256; }), "");
  EXPECT_EQ(changed([](Written& w) { w.stream = 9; }), "cells") << "none in any stream";
  EXPECT_EQ(changed([](Written& w) { w.positions.clear(); }), "cells");
  EXPECT_EQ(changed([](Written& w) { w.keys[0].type = 61; }), "type");
  EXPECT_EQ(changed([](Written& w) { w.keys[1].type = -1; }), "type");
  EXPECT_EQ(changed([](Written& w) { w.values[1].type = INT32_MIN; }), "type");
  EXPECT_EQ(changed([](Written& w) { w.keys[0].width = 0; }), "bytes of a row");
  EXPECT_EQ(changed([](Written& w) { w.values[0].width = 0; }), "bytes of a row");
  EXPECT_EQ(changed([](Written& w) {
              w.transposed = true;
              w.values[0].width = 0;
            }),
            "width");
  EXPECT_EQ(changed([](Written& w) {
              w.transposed = true;
              w.values[0].element_bytes = 0;
            }),
            "bytes of an element");
  EXPECT_EQ(changed([](Written& w) { w.values.pop_back(); }), "type") << "V of some layers only";
  EXPECT_EQ(changed([](Written& w) { w.keys.assign(4097, {1, 1, 1}); }), "layers");
}

void set_number(Bytes& state, std::size_t at, std::uint32_t value) {
  ASSERT_LE(at + 4, state.size());
  for (std::size_t i = 0; i < 4; ++i) state[at + i] = static_cast<std::uint8_t>(value >> 8 * i);
}

TEST(SequenceState, CellsAreOfOneSequenceAndAlone) {
  const Written w;
  Bytes state = write(w);
  set_number(state, 16 + 12 + 4, 2);
  EXPECT_EQ(wrong(parse(state, w)), "sequences of a cell");
  state = write(w);
  set_number(state, 16 + 12 + 8, 5);
  EXPECT_EQ(wrong(parse(state, w)), "sequence");
  EXPECT_EQ(parse(state, w).status().message,
            "sequence state: offset 40: sequence: wanted 0 as of the first cell, got 5");
}

TEST(SequenceState, OneStreamHasTheCells) {
  Written w;
  w.streams = 2;
  Bytes state = write(w);
  ASSERT_EQ(wrong(parse(state, w)), "");
  // The count and all of the first stream again, in the place of the second's.
  const Bytes stream(state.begin() + 12, state.end() - 4);
  state.resize(state.size() - 4);
  state.insert(state.end(), stream.begin(), stream.end());
  EXPECT_EQ(wrong(parse(state, w)), "cells");
}

TEST(SequenceState, CellsWithMoreThanAPositionAreRefused) {
  const Written w;
  Bytes state = write(w);
  for (std::size_t cell = w.positions.size(); cell-- > 0;) {
    Bytes more;  // place in an image, and token
    for (const std::uint32_t number : {0U, 0U, static_cast<std::uint32_t>(100 + cell)}) put(more, number);
    state.insert(state.begin() + static_cast<std::ptrdiff_t>(16 + 12 * cell + 8), more.begin(), more.end());
  }
  EXPECT_EQ(wrong(parse(state, w)), "sequences of a cell");
}

TEST(SequenceState, TransposedIsYesOrNo) {
  const Written w;
  Bytes state = write(w);
  const std::size_t head = 16 + 12 * w.positions.size();
  set_number(state, head, 2);
  EXPECT_EQ(wrong(parse(state, w)), "transposed");
}

TEST(SequenceState, OtherVersionsAreNotTried) {
  const Bytes state = write({});
  for (const int version : {-1, 0, 2, 5})
    EXPECT_EQ(parse_attention(state, kSequenceHeaderBytes, version, true).status().code,
              TIERCEL_INVALID_ARGUMENT);
}

TEST(SequenceState, AStartBeyondTheStateIsRefused) {
  const Bytes state = write({});
  EXPECT_EQ(wrong(parse_attention(state, state.size(), 3, true)), "streams");
  EXPECT_EQ(wrong(parse_attention(state, state.size() + 1, 3, true)), "start");
  EXPECT_EQ(wrong(parse_attention(state, SIZE_MAX, 3, true)), "start");
  EXPECT_EQ(wrong(parse_attention({}, 0, 3, true)), "streams");
}

TEST(SequenceState, TheHeaderHasItsMagic) {
  Bytes state(kSequenceHeaderBytes);
  write_sequence_header(state, -2);
  EXPECT_EQ(state, (Bytes{0xd8, 0x3c, 0x14, 0xaf, 0xfe, 0xff, 0xff, 0xff}));
  EXPECT_TRUE(check_sequence_header(state).ok());
  for (std::size_t size = 0; size < state.size(); ++size)
    EXPECT_EQ(
        check_sequence_header(Bytes(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(size))).code,
        TIERCEL_DATA_CORRUPT);
  state[3] ^= 1;
  EXPECT_EQ(check_sequence_header(state).code, TIERCEL_DATA_CORRUPT);
}

// Of exactly these bytes: a sanitizer sees the first that is read beyond them.
void expect_error_or_inside(std::span<const std::uint8_t> state) {
  const Bytes exact(state.begin(), state.end());
  for (const int version : {3, 4}) {
    for (const bool values : {false, true}) {
      const auto section = parse_attention(exact, kSequenceHeaderBytes, version, values);
      if (section.ok())
        expect_inside(*section, kSequenceHeaderBytes, exact.size());
      else
        EXPECT_NE(wrong(section), "");
    }
  }
}

TEST(SequenceState, AStateThatIsCutOffAnywhereIsRefused) {
  for (const Written& w : every_form()) {
    if (!w.tail.empty()) continue;
    SCOPED_TRACE(describe(w));
    const Bytes state = write(w);
    for (std::size_t size = kSequenceHeaderBytes; size < state.size(); ++size) {
      const Bytes part(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_NE(wrong(parse(part, w)), "") << size;
      expect_error_or_inside(part);
    }
  }
}

TEST(SequenceState, HostileNumbersAnywhereAreRefusedOrStayInside) {
  for (const Written& w : every_form()) {
    if (w.positions.size() > 5 || !w.tail.empty()) continue;
    SCOPED_TRACE(describe(w));
    const Bytes state = write(w);
    const std::uint64_t hostile[] = {
        0,          1,           2,          3,          state.size(), 0x7FFFFFFF,     0x80000000,
        0xFFFFFFFF, 0x100000001, 1ULL << 62, 1ULL << 63, UINT64_MAX,   UINT64_MAX / 3, UINT64_MAX / 5 + 1};
    for (std::size_t at = kSequenceHeaderBytes; at < state.size(); ++at) {
      for (const std::uint64_t number : hostile) {
        for (const std::size_t bytes : {4U, 8U}) {
          Bytes changed = state;
          for (std::size_t i = 0; i < bytes && at + i < changed.size(); ++i)
            changed[at + i] = static_cast<std::uint8_t>(number >> 8 * i);
          expect_error_or_inside(changed);
        }
      }
    }
  }
}

RC_GTEST_PROP(SequenceStateRandom, DamagedStatesAreRefusedOrStayInside, ()) {
  const std::vector<Written> forms = every_form();
  Bytes state = write(forms[*rc::gen::inRange<std::size_t>(0, forms.size())]);
  const auto changes = *rc::gen::inRange(1, 12);
  for (int i = 0; i < changes; ++i)
    state[*rc::gen::inRange(kSequenceHeaderBytes, state.size())] = *rc::gen::arbitrary<std::uint8_t>();
  expect_error_or_inside(state);
}

// ---- positions ----

TEST(RowOfPosition, FindsEachPositionOnce) {
  for (const Positions& positions :
       {in_order(6), Positions{2, 0, 1}, Positions{5, 4, 3, 2, 1, 0}, Positions{}}) {
    const auto rows = RowOfPosition::of(positions);
    ASSERT_TRUE(rows.ok());
    for (std::uint32_t row = 0; row < positions.size(); ++row)
      EXPECT_EQ((*rows)[static_cast<std::uint32_t>(positions[row])], row);
  }
}

TEST(RowOfPosition, RefusesGapsAndRepetitionsAndNegativeOnes) {
  for (const Positions& positions :
       {Positions{1}, Positions{0, 2}, Positions{1, 2, 3}, Positions{0, 0}, Positions{0, 1, 1},
        Positions{-1, 0}, Positions{0, INT32_MIN}, Positions{INT32_MAX, 0}, Positions{2, 1, 2}})
    EXPECT_EQ(RowOfPosition::of(positions).status().code, TIERCEL_DATA_CORRUPT);
  EXPECT_EQ(
      RowOfPosition::of(Positions{0, 2}).status().message,
      "sequence state: row 1: position: wanted each of 0 to 1 once, got 2; sequences with gaps or shifted "
      "positions are not cut");
}

// ---- pieces ----

TEST(SequenceState, EveryPageHasTheBytesOfItsPositions) {
  for (const Written& w : every_form()) {
    SCOPED_TRACE(describe(w));
    Bytes state = write(w);
    const auto section = parse(state, w);
    ASSERT_TRUE(section.ok());
    const auto cells = static_cast<std::int32_t>(w.positions.size());
    for (std::int32_t first = 0; first < cells; ++first)
      for (std::int32_t count = 0; count <= cells - first; ++count)
        ASSERT_EQ(cut(state, *section, static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(count)),
                  wanted_record(w, first, count))
            << first << " + " << count;
  }
}

using Places = std::vector<std::pair<std::size_t, std::uint64_t>>;  // offset, bytes

// Places from the first row of the tensor on.
Places pieces_of(const Written& w, bool value, std::uint32_t first, std::uint32_t count) {
  Bytes state = write(w);
  const auto section = parse(state, w);
  EXPECT_TRUE(section.ok());
  const auto rows = RowOfPosition::of(section->positions);
  EXPECT_TRUE(rows.ok());
  std::vector<tiercel_segment> pieces;
  (value ? append_value_pieces : append_key_pieces)(*section, *rows, 0, first, count, state.data(), pieces);
  const std::uint8_t* const start = state.data() + (value ? section->value_rows : section->key_rows)[0];
  Places places;
  for (const tiercel_segment& piece : pieces)
    places.push_back({static_cast<std::size_t>(static_cast<std::uint8_t*>(piece.data) - start), piece.size});
  return places;
}

TEST(SequenceState, AdjacentPiecesAreOne) {
  Written w;  // a row of K has 8 bytes, of V 6: 3 elements of 2
  w.positions = in_order(5);
  EXPECT_EQ(pieces_of(w, false, 1, 3), (Places{{8, 24}}));
  EXPECT_EQ(pieces_of(w, true, 1, 3), (Places{{6, 18}}));
  EXPECT_EQ(pieces_of(w, true, 1, 0), Places{});
  w.transposed = true;
  EXPECT_EQ(pieces_of(w, true, 1, 3), (Places{{2, 6}, {12, 6}, {22, 6}}));
  EXPECT_EQ(pieces_of(w, true, 0, 5), (Places{{0, 30}})) << "all of every element";
  w.positions = {3, 4, 0, 1, 2};
  EXPECT_EQ(pieces_of(w, false, 0, 4), (Places{{16, 24}, {0, 8}}));
  EXPECT_EQ(pieces_of(w, true, 2, 3), (Places{{8, 2}, {0, 4}, {18, 2}, {10, 4}, {28, 2}, {20, 4}}));
  w.positions = {2, 1, 0};
  EXPECT_EQ(pieces_of(w, false, 0, 3), (Places{{16, 8}, {8, 8}, {0, 8}}));
}

TEST(SequenceState, PiecesOfAnEarlierCallStayApart) {
  Written w;
  w.positions = in_order(4);
  Bytes state = write(w);
  const auto section = parse(state, w);
  ASSERT_TRUE(section.ok());
  const auto rows = RowOfPosition::of(section->positions);
  ASSERT_TRUE(rows.ok());
  std::vector<tiercel_segment> pieces;
  append_key_pieces(*section, *rows, 0, 0, 2, state.data(), pieces);
  append_key_pieces(*section, *rows, 0, 2, 2, state.data(), pieces);
  ASSERT_EQ(pieces.size(), 2U) << "two objects in one list";
  EXPECT_EQ(pieces[0].size, 16U);
  EXPECT_EQ(pieces[1].size, 16U);
}

TEST(SequenceStateDeathTest, PlacesOutsideAreOurMistake) {
  Written w;
  Bytes state = write(w);
  const auto section = parse(state, w);
  ASSERT_TRUE(section.ok());
  const auto rows = RowOfPosition::of(section->positions);
  ASSERT_TRUE(rows.ok());
  std::vector<tiercel_segment> pieces;
  EXPECT_DEATH(append_key_pieces(*section, *rows, 2, 0, 1, state.data(), pieces), "a layer");
  EXPECT_DEATH(append_value_pieces(*section, *rows, 2, 0, 1, state.data(), pieces), "a layer");
  EXPECT_DEATH(append_key_pieces(*section, *rows, 0, 2, 2, state.data(), pieces), "positions");
  EXPECT_DEATH(append_key_pieces(*section, *rows, 0, 4, UINT32_MAX, state.data(), pieces), "positions");
  Bytes small(attention_bytes(section->layout, 3) - 1);
  EXPECT_DEATH(frame_attention(section->layout, 0, 3, 0, small, 0), "room");
  EXPECT_DEATH(frame_attention(section->layout, 0, 1, 0, small, small.size() + 1), "room");
  EXPECT_DEATH(frame_attention(section->layout, 1, 1, 0, small, 0), "a stream");
  EXPECT_DEATH(write_sequence_header(std::span(small).first(7), 0), "room");
}

}  // namespace
}  // namespace tiercel::llamacpp
