#include "model_layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <ggml.h>

#include "sha256.h"
#include "token_batch.h"

namespace tiercel::llamacpp {
namespace {

constexpr int kVersion =
    LLAMA_STATE_SEQ_VERSION == 3 || LLAMA_STATE_SEQ_VERSION == 4 ? LLAMA_STATE_SEQ_VERSION : 0;

using Bytes = std::vector<std::uint8_t>;
using View = std::span<const std::uint8_t>;

bool equal(View a, View b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

Status compute_two_tokens(llama_context* context) {
  constexpr std::array<llama_token, 2> kTokens{0, 1};
  const std::int32_t code = llama_decode(context, TokenBatch(0, kTokens, 0, true).get());
  if (code == 0) return {};
  llama_memory_seq_rm(llama_get_memory(context), 0, -1, -1);
  if (code == kDecodeAborted) return {TIERCEL_CANCELLED, "llama.cpp: the abort callback ended llama_decode"};
  return {TIERCEL_INTERNAL,
          fmt::format("llama.cpp: llama_decode of two tokens in sequence 0 answered {}", code)};
}

// Whether what is emitted for `section` is what was parsed, byte for byte.
bool emits_the_same(const AttentionSection& section, std::size_t begin, View state, std::int32_t sequence) {
  Bytes copy(state.begin(), state.end());
  const AttentionSection framed =
      frame_attention(section.layout, section.stream, static_cast<std::uint32_t>(section.positions.size()),
                      sequence, copy, begin);
  return framed.end == section.end && framed.key_rows == section.key_rows &&
         framed.value_rows == section.value_rows && equal(copy, state);
}

// The attention section at `begin`, if it is understood, and `fits` says of what follows that it may.
template <typename Fits>
std::optional<AttentionSection> understood(View state, std::size_t begin, std::int32_t sequence, Fits fits) {
  for (const bool values : {true, false}) {
    auto section = parse_attention(state, begin, kVersion, values);
    if (section && emits_the_same(*section, begin, state, sequence) && fits(*section))
      return *std::move(section);
  }
  return {};
}

struct TwoStates {
  Bytes full, partial;
};

// The window cells at the head of the tail, if there are any, and what a record must hold.
std::string probe_tail(const llama_model* model, const TwoStates& states, std::uint32_t streams,
                       ModelLayout& layout) {
  const std::size_t tail = states.partial.size() - kSequenceHeaderBytes;
  const std::int32_t window = llama_model_n_swa(model);
  if (window <= 0) {
    layout.tail_bytes_max = tail;
    return "";
  }
  const auto section =
      understood(states.partial, kSequenceHeaderBytes, 0,
                 [&](const AttentionSection& found) { return found.layout.streams == streams; });
  if (!section) return "the window cells are not laid out as expected";
  layout.has_window = true;
  layout.window_has_values = !section->layout.values.empty();
  AttentionLayout one = section->layout;
  one.streams = 1;
  // Of the model, not of this context: a record has one size wherever it is restored. A context longer than
  // the model was made for may have more in its window; then it has no snapshots.
  const auto cells = static_cast<std::uint64_t>(std::min(window, llama_model_n_ctx_train(model)));
  layout.tail_bytes_max = attention_bytes(one, cells) + (states.partial.size() - section->end);
  return "";
}

// Returns: why it is not understood; empty: it is.
std::string understand(const llama_model* model, const TwoStates& states, ModelLayout& layout) {
  if (kVersion == 0) return fmt::format("its version is {}", LLAMA_STATE_SEQ_VERSION);
  layout.version = kVersion;
  if (llama_model_is_recurrent(model)) {
    layout.kind = SequenceKind::kTail;
    layout.tail_bytes_max = states.full.size() - kSequenceHeaderBytes;
    return equal(states.full, states.partial) ? "" : "a recurrent state has parts of other kinds";
  }
  const auto base = understood(states.full, kSequenceHeaderBytes, 0, [&](const AttentionSection& found) {
    const View rest = View(states.full).subspan(found.end);
    return rest.empty() ? equal(states.full, states.partial)
                        : equal(rest, View(states.partial).subspan(kSequenceHeaderBytes));
  });
  if (!base) return "the attention cells are not laid out as expected";
  layout.has_attention = true;
  layout.attention = base->layout;
  layout.has_values = !base->layout.values.empty();
  layout.transposed = base->layout.transposed;
  if (base->end == states.full.size()) {
    if (llama_model_n_swa(model) > 0) return "window cells are not apart from the others";
    layout.kind = SequenceKind::kAttention;
    return "";
  }
  layout.kind = base->layout.keys.empty() ? SequenceKind::kTail : SequenceKind::kAttentionAndTail;
  return probe_tail(model, states, base->layout.streams, layout);
}

// Rows and tail without what names the sequence and the streams: these differ between contexts that may
// share.
std::string fingerprint(const TwoStates& states, const ModelLayout& layout) {
  Sha256 hash;
  const View full = states.full;
  std::size_t rest = kSequenceHeaderBytes;
  if (layout.has_attention) {
    const auto base = parse_attention(full, rest, layout.version, layout.has_values);
    if (!base) return "";  // it was understood a moment ago
    for (std::size_t i = 0; i < base->key_rows.size(); ++i)
      hash.update(full.subspan(base->key_rows[i], 2 * layout.attention.keys[i].row_bytes));
    for (std::size_t i = 0; i < base->value_rows.size(); ++i)
      hash.update(full.subspan(base->value_rows[i], 2 * layout.attention.values[i].row_bytes));
    rest = base->end;
  }
  if (const auto tail = pack_tail(layout, full.subspan(rest))) hash.update(*tail);
  return hex(hash.finish());
}

// ---- the spec ----

tiercel_dtype dtype_of(std::int32_t type) {
  switch (type) {
    case GGML_TYPE_F32:
      return TIERCEL_DTYPE_F32;
    case GGML_TYPE_F16:
      return TIERCEL_DTYPE_FP16;
    case GGML_TYPE_BF16:
      return TIERCEL_DTYPE_BF16;
    default:
      return TIERCEL_DTYPE_U8;  // blocks of a quantised type: bytes
  }
}

Status add_tensor(SpecBuilder& builder, std::uint32_t group, const char* name, const StateTensor& tensor,
                  std::uint32_t page_tokens) {
  auto options = sized<tiercel_component_options>();
  options.name = name;
  std::uint64_t shape = tensor.row_bytes;
  if (tensor.element_bytes != 0) {  // element by element, a page's tokens each: not a row for each token
    options.opaque_bytes = tensor.row_bytes * page_tokens;
  } else {
    options.dtype = dtype_of(tensor.type);
    shape /= options.dtype == TIERCEL_DTYPE_F32 ? 4 : options.dtype == TIERCEL_DTYPE_U8 ? 1 : 2;
    options.shape = &shape;
    options.shape_count = 1;
  }
  return builder.component(group, options);
}

// Layers of equal shape are a group; layers are numbered as the state lists them.
Status add_page_groups(SpecBuilder& builder, const AttentionLayout& layout, std::uint32_t page_tokens) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> groups;  // by their first layer
  const auto same = [&](std::uint32_t a, std::uint32_t b) {
    return layout.keys[a] == layout.keys[b] &&
           (layout.values.empty() || layout.values[a] == layout.values[b]);
  };
  for (std::uint32_t layer = 0; layer < layout.keys.size(); ++layer) {
    const auto like = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return same(group.first, layer); });
    (like != groups.end() ? like->second : groups[layer]).push_back(layer);
  }
  for (const auto& [first, layers] : groups) {
    auto options = sized<tiercel_group_options>();
    options.kind = TIERCEL_GROUP_FULL;
    const auto group = builder.group(layers, options);
    if (!group) return group.status();
    if (Status status = add_tensor(builder, *group, "k", layout.keys[first], page_tokens); !status.ok())
      return status;
    if (layout.values.empty()) continue;
    if (Status status = add_tensor(builder, *group, "v", layout.values[first], page_tokens); !status.ok())
      return status;
  }
  return {};
}

Status add_opaque_group(SpecBuilder& builder, tiercel_group_kind kind, std::uint32_t layer, const char* name,
                        std::uint64_t bytes) {
  auto options = sized<tiercel_group_options>();
  options.kind = kind;
  const auto group = builder.group(std::span(&layer, 1), options);
  if (!group) return group.status();
  auto component = sized<tiercel_component_options>();
  component.name = name;
  component.opaque_bytes = bytes;
  return builder.component(*group, component);
}

// Where in a section the one stream that has cells begins, with its count, and ends.
std::pair<std::size_t, std::size_t> stream_range(const AttentionSection& section, std::size_t begin) {
  return {begin + 4 + 4 * std::size_t{section.stream},
          section.end - 4 * (std::size_t{section.layout.streams} - 1 - section.stream)};
}

// The section with its cells in stream 0 of `streams`, and what follows it.
Result<Bytes> restream(const ModelLayout& layout, View tail, std::uint32_t streams) {
  const auto section = parse_attention(tail, 0, layout.version, layout.window_has_values);
  if (!section) return section.status();
  const auto [from, to] = stream_range(*section, 0);
  Bytes out(4 + (to - from) + 4 * (std::size_t{streams} - 1) + (tail.size() - section->end));
  std::memcpy(out.data(), &streams, 4);
  std::copy(tail.begin() + static_cast<std::ptrdiff_t>(from), tail.begin() + static_cast<std::ptrdiff_t>(to),
            out.begin() + 4);
  std::copy(tail.begin() + static_cast<std::ptrdiff_t>(section->end), tail.end(),
            out.end() - static_cast<std::ptrdiff_t>(tail.size() - section->end));
  return out;
}

}  // namespace

std::vector<std::uint8_t> read_state(llama_context* context, llama_seq_id sequence,
                                     llama_state_seq_flags flags) {
  Bytes state(llama_state_seq_get_size_ext(context, sequence, flags));
  state.resize(llama_state_seq_get_data_ext(context, state.data(), state.size(), sequence, flags));
  return state;
}

Result<ModelLayout> probe_layout(llama_context* context, bool whole) {
  if (Status status = compute_two_tokens(context); !status.ok()) return status;
  const TwoStates states{read_state(context, 0, LLAMA_STATE_SEQ_FLAGS_NONE),
                         read_state(context, 0, LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)};
  llama_memory_seq_rm(llama_get_memory(context), 0, -1, -1);
  if (states.full.size() <= kSequenceHeaderBytes + 4)
    return Status{TIERCEL_UNSUPPORTED,
                  "llama.cpp: the context keeps nothing of a sequence (it shares another one's memory)"};
  ModelLayout layout;
  std::string why = understand(llama_get_model(context), states, layout);
  if (why.empty() && whole) why = "whole states were asked for";
  if (why.empty()) {
    layout.fingerprint = fingerprint(states, layout);
    return layout;
  }
  ModelLayout not_understood;
  not_understood.transposed = layout.transposed;  // as far as it was seen
  not_understood.why_whole = std::move(why);
  not_understood.fingerprint = hex(sha256(states.full));  // streams and the order of cells are part of it
  return not_understood;
}

Result<Spec> make_spec(const ModelLayout& layout, std::uint32_t page_tokens) {
  auto options = sized<tiercel_spec_options>();
  options.model_type = "llama.cpp";
  options.page_tokens = page_tokens;
  options.tp = options.pp = options.cp = 1;
  auto builder = SpecBuilder::create(options);
  if (!builder) return builder.status();
  const auto layers = static_cast<std::uint32_t>(layout.attention.keys.size());
  Status status;
  if (layout.kind == SequenceKind::kWhole)
    status = add_opaque_group(*builder, TIERCEL_GROUP_FULL, 0, "piece", kWholePieceBytes);
  else
    status = add_page_groups(*builder, layout.attention, page_tokens);
  if (status.ok() && layout.snapshot_bytes() != 0)
    status = add_opaque_group(*builder, TIERCEL_GROUP_STATE, layers, "snapshot", layout.snapshot_bytes());
  if (!status.ok()) return status;
  return builder->finish();
}

Result<std::vector<std::uint8_t>> pack_tail(const ModelLayout& layout, std::span<const std::uint8_t> tail) {
  auto packed =
      layout.has_window ? restream(layout, tail, 1) : Result<Bytes>(Bytes(tail.begin(), tail.end()));
  if (packed && packed->size() > layout.tail_bytes_max)
    return Status{TIERCEL_DATA_CORRUPT, fmt::format("llama.cpp: a snapshot of {} bytes, of {} at most",
                                                    packed->size(), layout.tail_bytes_max)};
  return packed;
}

Result<std::vector<std::uint8_t>> unpack_tail(const ModelLayout& layout, std::span<const std::uint8_t> packed,
                                              std::uint32_t streams) {
  if (!layout.has_window) return Bytes(packed.begin(), packed.end());
  return restream(layout, packed, streams);
}

}  // namespace tiercel::llamacpp
