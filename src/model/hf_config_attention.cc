// Models with K and V: full everywhere, windows in some layers, layers that own none.
#include <array>
#include <map>

#include <fmt/format.h>

#include "model/hf_config_reader.h"

namespace tiercel::hf {
namespace {

// Values of layer_types in models of full and window layers.
constexpr std::array<std::string_view, 2> kFullOrWindow = {"full_attention", "sliding_attention"};
constexpr std::size_t kFull = 0;
constexpr std::size_t kWindow = 1;

// Which layer is full and which window, one value a layer.
using LayerTypes = std::vector<std::size_t>;

Result<void> add_split(ModelReader& reader, const LayerTypes& types, const Tensors& tensors) {
  reader.add(FullKind{}, reader.layers_where(types, kFull), tensors);
  return reader.add_window(reader.layers_where(types, kWindow), tensors);
}

Result<void> add_split(ModelReader& reader, const LayerTypes& types) {
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.standard_kv());
  return add_split(reader, types, tensors);
}

Result<void> add_full(ModelReader& reader) { return add_split(reader, LayerTypes(reader.layers(), kFull)); }

Result<LayerTypes> listed_types(const ModelReader& reader) {
  return reader.fields().choices("layer_types", reader.layers(), kFullOrWindow);
}

LayerTypes even_window(const ModelReader& reader) {
  LayerTypes types;
  for (std::uint32_t i = 0; i < reader.layers(); ++i) types.push_back(i % 2 == 0 ? kWindow : kFull);
  return types;
}

Result<LayerTypes> periodic_types(const ModelReader& reader) {
  if (reader.fields().has("layer_types")) return listed_types(reader);
  const std::string_view key =
      reader.fields().has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t period, reader.fields().count_or(key, reader.rule().period));
  LayerTypes types;
  for (std::uint64_t i = 0; i < reader.layers(); ++i)
    types.push_back((i + 1) % period == 0 ? kFull : kWindow);
  return types;
}

// The last num_kv_shared_layers layers read what an earlier layer wrote.
Result<LayerTypes> without_shared_tail(const ModelReader& reader, LayerTypes types) {
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t shared, reader.fields().count_or_zero("num_kv_shared_layers"));
  if (shared >= types.size())
    return reader.fields().fault(
        "num_kv_shared_layers",
        fmt::format("{} of {} layers: wanted at least one that owns its K and V", shared, types.size()));
  constexpr std::size_t kNothing = 2;
  for (std::size_t i = types.size() - shared; i < types.size(); ++i) types[i] = kNothing;
  return types;
}

}  // namespace

Result<void> read_full_or_window(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  if (fields.has("layer_types")) {
    TIERCEL_ASSIGN_OR_RETURN(const LayerTypes types, listed_types(reader));
    return add_split(reader, types);
  }
  TIERCEL_ASSIGN_OR_RETURN(const bool use_window, fields.flag_or("use_sliding_window", true));
  if (!use_window) return add_full(reader);
  return read_all_window(reader);
}

Result<void> read_all_window(ModelReader& reader) {
  if (!reader.fields().has("sliding_window")) return add_full(reader);
  return add_split(reader, LayerTypes(reader.layers(), kWindow));
}

Result<void> read_window_above(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const bool use_window, reader.fields().flag_or("use_sliding_window", false));
  if (!use_window) return add_full(reader);
  if (!reader.fields().has("max_window_layers"))
    return reader.fields().fault("max_window_layers", "is missing: use_sliding_window is true");
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t first, reader.fields().count_or_zero("max_window_layers"));
  LayerTypes types;
  for (std::uint64_t i = 0; i < reader.layers(); ++i) types.push_back(i < first ? kFull : kWindow);
  return add_split(reader, types);
}

Result<void> read_even_window(ModelReader& reader) { return add_split(reader, even_window(reader)); }

Result<void> read_even_window_unless_listed(ModelReader& reader) {
  if (!reader.fields().has("layer_types")) return read_even_window(reader);
  TIERCEL_ASSIGN_OR_RETURN(const LayerTypes types, listed_types(reader));
  return add_split(reader, types);
}

Result<void> read_periodic_full(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const LayerTypes types, periodic_types(reader));
  return add_split(reader, types);
}

Result<void> read_periodic_full_shared_tail(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(LayerTypes types, periodic_types(reader));
  TIERCEL_ASSIGN_OR_RETURN(types, without_shared_tail(reader, std::move(types)));
  return add_split(reader, types);
}

Result<void> read_gemma4(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(LayerTypes types, periodic_types(reader));
  TIERCEL_ASSIGN_OR_RETURN(types, without_shared_tail(reader, std::move(types)));
  if (const Layers full = reader.layers_where(types, kFull); !full.empty()) {
    TIERCEL_ASSIGN_OR_RETURN(const bool k_eq_v, reader.fields().flag_or("attention_k_eq_v", false));
    TIERCEL_ASSIGN_OR_RETURN(const Amount heads,
                             k_eq_v ? reader.amount("num_global_key_value_heads") : reader.kv_heads());
    TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.amount("global_head_dim"));
    TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.kv_tensors(heads, dim, dim));
    reader.add(FullKind{}, full, tensors);
  }
  const Layers window = reader.layers_where(types, kWindow);
  if (window.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.standard_kv());
  return reader.add_window(window, tensors);
}

Result<void> read_mimo_v2(ModelReader& reader) {
  constexpr std::array<std::uint64_t, 2> kPattern = {0, 1};  // full, window
  TIERCEL_ASSIGN_OR_RETURN(const LayerTypes types,
                           reader.fields().choices("hybrid_layer_pattern", reader.layers(), kPattern));
  if (const Layers full = reader.layers_where(types, kFull); !full.empty()) {
    TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.kv_heads());
    TIERCEL_ASSIGN_OR_RETURN(const Amount k_dim, reader.head_dim());
    TIERCEL_ASSIGN_OR_RETURN(const Amount v_dim, reader.amount("v_head_dim"));
    TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.kv_tensors(heads, k_dim, v_dim));
    reader.add(FullKind{}, full, tensors);
  }
  const Layers window = reader.layers_where(types, kWindow);
  if (window.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.amount("swa_num_key_value_heads"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount k_dim, reader.amount("swa_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount v_dim, reader.amount("swa_v_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.kv_tensors(heads, k_dim, v_dim));
  return reader.add_window(window, tensors);
}

// Cross-layer attention: the first layer of each run of cla_share_factor owns the K and V of all of it.
Result<void> read_hunyuan(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const bool shared, reader.fields().flag_or("use_cla", false));
  if (!shared) return add_full(reader);
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t factor, reader.fields().count("cla_share_factor"));
  Layers owners;
  for (std::uint32_t i = 0; i < reader.layers(); ++i)
    if (i % factor == 0) owners.push_back(i);
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.standard_kv());
  reader.add(FullKind{}, owners, tensors);
  return {};
}

Result<void> read_nemotron_nas(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const auto blocks, reader.fields().objects("block_configs", reader.layers()));
  std::map<std::uint64_t, Layers> layers_of_ratio;  // n_heads_in_group → layers
  for (std::uint32_t i = 0; i < reader.layers(); ++i) {
    TIERCEL_ASSIGN_OR_RETURN(const ConfigFields attention, blocks[i].object("attention"));
    TIERCEL_ASSIGN_OR_RETURN(const bool no_op, attention.flag_or("no_op", false));
    TIERCEL_ASSIGN_OR_RETURN(const bool linear, attention.flag_or("replace_with_linear", false));
    if (no_op || linear) continue;
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t ratio, attention.count("n_heads_in_group"));
    layers_of_ratio[ratio].push_back(i);
  }
  for (const auto& [ratio, layers] : layers_of_ratio) {
    TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.query_heads());
    TIERCEL_ASSIGN_OR_RETURN(const Amount kv, reader.quotient(heads, {ratio, "n_heads_in_group"}));
    TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.head_dim());
    TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.kv_tensors(kv, dim, dim));
    reader.add(FullKind{}, layers, tensors);
  }
  return {};
}

Result<void> read_minimax_m3(ModelReader& reader) {
  TIERCEL_RETURN_IF_ERROR(add_full(reader));
  if (!reader.fields().has("sparse_attention_config")) return {};
  constexpr std::array<std::uint64_t, 2> kFrequency = {0, 1};
  TIERCEL_ASSIGN_OR_RETURN(const ConfigFields sparse, reader.fields().object("sparse_attention_config"));
  TIERCEL_ASSIGN_OR_RETURN(const auto frequency,
                           sparse.choices("sparse_attention_freq", reader.layers(), kFrequency));
  const Layers layers = reader.layers_where(frequency, 1);
  if (layers.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.amount(sparse, "sparse_index_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const DType dtype, reader.model_dtype());
  Tensors index;
  index.replicated = true;
  TIERCEL_RETURN_IF_ERROR(reader.append(index, "index_k", {dim}, dtype));
  reader.add(FollowerKind{}, layers, index);
  return {};
}

}  // namespace tiercel::hf
