// Models with recurrent states, alone or beside attention.
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "model/hf_config_reader.h"
#include "model/json_text.h"

namespace tiercel::hf {
namespace {

Result<Tensors> mamba1(const ModelReader& reader, const Amount& inner, const Amount& state,
                       const Amount& kernel) {
  TIERCEL_ASSIGN_OR_RETURN(const Amount channels, reader.per_rank(inner));
  TIERCEL_ASSIGN_OR_RETURN(const Amount taps, reader.taps(kernel));
  TIERCEL_ASSIGN_OR_RETURN(const DType conv, reader.model_dtype());
  TIERCEL_ASSIGN_OR_RETURN(const DType temporal, reader.temporal_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "conv", {channels, taps}, conv));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "temporal", {channels, state}, temporal));
  return tensors;
}

struct Mamba2 {
  Amount heads;
  Amount head_dim;
  Amount groups;
  Amount state;
  Amount kernel;
};

Result<Tensors> mamba2(const ModelReader& reader, const Mamba2& shape) {
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.per_rank(shape.heads));
  Amount groups = shape.groups;
  if (groups.value != 1) {  // a single group is copied to every rank
    TIERCEL_ASSIGN_OR_RETURN(groups, reader.per_rank(shape.groups));
  }
  TIERCEL_ASSIGN_OR_RETURN(const Amount inner, reader.product(heads, shape.head_dim));
  TIERCEL_ASSIGN_OR_RETURN(const Amount one_side, reader.product(groups, shape.state));
  TIERCEL_ASSIGN_OR_RETURN(const Amount both_sides, reader.sum(one_side, one_side));
  TIERCEL_ASSIGN_OR_RETURN(const Amount channels, reader.sum(inner, both_sides));
  TIERCEL_ASSIGN_OR_RETURN(const Amount taps, reader.taps(shape.kernel));
  TIERCEL_ASSIGN_OR_RETURN(const DType conv, reader.model_dtype());
  TIERCEL_ASSIGN_OR_RETURN(const DType temporal, reader.temporal_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "conv", {channels, taps}, conv));
  tensors.components.back().sections = {inner.value, one_side.value, one_side.value};  // x, B, C
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "temporal", {heads, shape.head_dim, shape.state}, temporal));
  return tensors;
}

// The five fields of a Mamba 2 model, under whatever names.
Result<Tensors> mamba2_named(const ModelReader& reader, const std::array<std::string_view, 5>& keys) {
  Mamba2 shape;
  TIERCEL_ASSIGN_OR_RETURN(shape.heads, reader.amount(keys[0]));
  TIERCEL_ASSIGN_OR_RETURN(shape.head_dim, reader.amount(keys[1]));
  TIERCEL_ASSIGN_OR_RETURN(shape.groups, reader.amount(keys[2]));
  TIERCEL_ASSIGN_OR_RETURN(shape.state, reader.amount(keys[3]));
  TIERCEL_ASSIGN_OR_RETURN(shape.kernel, reader.amount(keys[4]));
  return mamba2(reader, shape);
}

// mamba_d_head may be "auto": the inner size over the heads.
Result<Amount> granite_head_dim(const ModelReader& reader, const Amount& heads) {
  constexpr std::string_view kKey = "mamba_d_head";
  const ConfigFields& fields = reader.fields();
  const auto text = fields.text(kKey);
  if (text && *text != "auto")
    return fields.fault(kKey,
                        fmt::format("wanted a positive integer or \"auto\", is \"{}\"", printable(*text)));
  if (!text && fields.has(kKey)) return reader.amount(kKey);
  if (fields.has("mamba_d_ssm")) {
    TIERCEL_ASSIGN_OR_RETURN(const Amount inner, reader.amount("mamba_d_ssm"));
    return reader.quotient(inner, heads);
  }
  TIERCEL_ASSIGN_OR_RETURN(const Amount expand, reader.amount("mamba_expand"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, reader.amount("hidden_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount inner, reader.product(expand, hidden));
  return reader.quotient(inner, heads);
}

Result<void> add_granite_mamba(ModelReader& reader, const Layers& layers) {
  if (layers.empty()) return {};
  Mamba2 shape;
  TIERCEL_ASSIGN_OR_RETURN(shape.heads, reader.amount("mamba_n_heads"));
  TIERCEL_ASSIGN_OR_RETURN(shape.head_dim, granite_head_dim(reader, shape.heads));
  TIERCEL_ASSIGN_OR_RETURN(shape.groups, reader.amount("mamba_n_groups"));
  TIERCEL_ASSIGN_OR_RETURN(shape.state, reader.amount("mamba_d_state"));
  TIERCEL_ASSIGN_OR_RETURN(shape.kernel, reader.amount("mamba_d_conv"));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, mamba2(reader, shape));
  reader.add(StateKind{}, layers, tensors);
  return {};
}

Result<void> add_attention(ModelReader& reader, const Layers& layers) {
  if (layers.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.standard_kv());
  reader.add(FullKind{}, layers, tensors);
  return {};
}

// K and V of models that have a head_dim of their own for attention.
Result<void> add_attention(ModelReader& reader, const Layers& layers, const Result<Amount>& head_dim) {
  if (layers.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, head_dim);
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.kv_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, reader.kv_tensors(heads, dim, dim));
  reader.add(FullKind{}, layers, tensors);
  return {};
}

enum NemotronLayer : std::size_t { kMamba, kAttention, kMlp, kMoe };

Result<std::vector<std::size_t>> nemotron_layers(const ModelReader& reader) {
  constexpr std::string_view kKey = "hybrid_override_pattern";
  constexpr std::string_view kLetters = "M*-E";  // in the order of NemotronLayer
  constexpr std::array<std::string_view, 4> kNames = {"mamba", "attention", "mlp", "moe"};
  const ConfigFields& fields = reader.fields();
  if (!fields.has(kKey) && fields.has("layers_block_type"))
    return fields.choices("layers_block_type", reader.layers(), kNames);
  TIERCEL_ASSIGN_OR_RETURN(const std::string pattern, fields.text(kKey));
  if (pattern.size() != reader.layers())
    return fields.fault(kKey, fmt::format("has {} letters for {} layers (num_hidden_layers)", pattern.size(),
                                          reader.layers()));
  std::vector<std::size_t> layers;
  for (const char letter : pattern) {
    const auto place = kLetters.find(letter);
    if (place == std::string_view::npos)
      return fields.fault(kKey, fmt::format("letter {} is \"{}\": none of M, *, -, E", layers.size(),
                                            letter >= ' ' && letter <= '~' ? letter : '?'));
    layers.push_back(place);
  }
  return layers;
}

Result<Tensors> gated_delta(const ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const Amount all_keys, reader.amount("linear_num_key_heads"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount all_values, reader.amount("linear_num_value_heads"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount key_dim, reader.amount("linear_key_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount value_dim, reader.amount("linear_value_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount kernel, reader.amount("linear_conv_kernel_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount key_heads, reader.per_rank(all_keys));
  TIERCEL_ASSIGN_OR_RETURN(const Amount value_heads, reader.per_rank(all_values));
  TIERCEL_ASSIGN_OR_RETURN(const Amount keys, reader.product(key_heads, key_dim));
  TIERCEL_ASSIGN_OR_RETURN(const Amount queries_and_keys, reader.sum(keys, keys));
  TIERCEL_ASSIGN_OR_RETURN(const Amount values, reader.product(value_heads, value_dim));
  TIERCEL_ASSIGN_OR_RETURN(const Amount channels, reader.sum(queries_and_keys, values));
  TIERCEL_ASSIGN_OR_RETURN(const Amount taps, reader.taps(kernel));
  TIERCEL_ASSIGN_OR_RETURN(const DType conv, reader.model_dtype());
  TIERCEL_ASSIGN_OR_RETURN(const DType temporal, reader.temporal_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "conv", {channels, taps}, conv));
  tensors.components.back().sections = {keys.value, keys.value, values.value};  // q, k, v
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "temporal", {value_heads, value_dim, key_dim}, temporal));
  return tensors;
}

Result<Tensors> kimi_delta(const ModelReader& reader, const ConfigFields& linear) {
  TIERCEL_ASSIGN_OR_RETURN(const Amount all_heads, reader.amount(linear, "num_heads"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.amount(linear, "head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount kernel, reader.amount(linear, "short_conv_kernel_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.per_rank(all_heads));
  TIERCEL_ASSIGN_OR_RETURN(const Amount one, reader.product(heads, dim));
  TIERCEL_ASSIGN_OR_RETURN(const Amount channels, reader.product({3, "q, k, v"}, one));
  TIERCEL_ASSIGN_OR_RETURN(const Amount taps, reader.taps(kernel));
  TIERCEL_ASSIGN_OR_RETURN(const DType conv, reader.model_dtype());
  TIERCEL_ASSIGN_OR_RETURN(const DType temporal, reader.temporal_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "conv", {channels, taps}, conv));
  tensors.components.back().sections = {one.value, one.value, one.value};  // q, k, v
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "temporal", {heads, dim, dim}, temporal));
  return tensors;
}

// kda_layers and full_attn_layers count from 1 and together name each layer once.
Result<std::vector<std::size_t>> kimi_layers(const ModelReader& reader, const ConfigFields& linear) {
  constexpr std::array<std::string_view, 2> kKeys = {"full_attn_layers", "kda_layers"};
  constexpr std::size_t kUnnamed = kKeys.size();
  std::vector<std::size_t> types(reader.layers(), kUnnamed);
  for (std::size_t k = 0; k < kKeys.size(); ++k) {
    TIERCEL_ASSIGN_OR_RETURN(const auto numbers, linear.numbers(kKeys[k]));
    for (const std::uint64_t number : numbers) {
      if (number < 1 || number > reader.layers())
        return linear.fault(kKeys[k],
                            fmt::format("layer {} is out of range: wanted 1 to {}", number, reader.layers()));
      if (types[number - 1] != kUnnamed)
        return linear.fault(kKeys[k], fmt::format("layer {} is named twice", number));
      types[number - 1] = k;
    }
  }
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i] == kUnnamed)
      return linear.fault(kKeys[1], fmt::format("layer {} is neither here nor in {}", i + 1, kKeys[0]));
  return types;
}

}  // namespace

Result<void> read_nemotron_h(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const auto types, nemotron_layers(reader));
  const auto head_dim = [&]() -> Result<Amount> {
    for (const char* key : {"head_dim", "attention_head_dim"})
      if (reader.fields().has(key)) return reader.amount(key);
    return Amount{128, "head_dim"};
  };
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.layers_where(types, kAttention), head_dim()));
  const Layers mamba = reader.layers_where(types, kMamba);
  if (mamba.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors,
                           mamba2_named(reader, {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                                 "ssm_state_size", "conv_kernel"}));
  reader.add(StateKind{}, mamba, tensors);
  return {};
}

Result<void> read_granite_hybrid(ModelReader& reader) {
  constexpr std::array<std::string_view, 2> kTypes = {"mamba", "attention"};
  const ConfigFields& fields = reader.fields();
  const bool blocks = !fields.has("layer_types") && fields.has("layers_block_type");
  TIERCEL_ASSIGN_OR_RETURN(const auto types, fields.choices(blocks ? "layers_block_type" : "layer_types",
                                                            reader.layers(), kTypes));
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.layers_where(types, 1)));
  return add_granite_mamba(reader, reader.layers_where(types, 0));
}

Result<void> read_bamba(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const auto layers, reader.partition("attn_layer_indices"));
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, layers.listed));
  return add_granite_mamba(reader, layers.others);
}

Result<void> read_falcon_h1(ModelReader& reader) {
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.all_layers()));
  return add_granite_mamba(reader, reader.all_layers());
}

Result<void> read_zamba2(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  Layers hybrid;
  if (!fields.has("layers_block_type") && fields.has("hybrid_layer_ids")) {
    TIERCEL_ASSIGN_OR_RETURN(const auto layers, reader.partition("hybrid_layer_ids"));
    hybrid = layers.listed;
  } else {
    constexpr std::array<std::string_view, 2> kTypes = {"mamba", "hybrid"};
    TIERCEL_ASSIGN_OR_RETURN(const auto types, fields.choices("layers_block_type", reader.layers(), kTypes));
    hybrid = reader.layers_where(types, 1);
  }
  // Attention reads two hidden states side by side.
  const auto head_dim = [&]() -> Result<Amount> {
    if (fields.has("attention_head_dim")) return reader.amount("attention_head_dim");
    TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, reader.amount("hidden_size"));
    TIERCEL_ASSIGN_OR_RETURN(const Amount twice, reader.sum(hidden, hidden));
    TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.query_heads());
    return reader.quotient(twice, heads);
  };
  if (!hybrid.empty()) TIERCEL_RETURN_IF_ERROR(add_attention(reader, hybrid, head_dim()));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors,
                           mamba2_named(reader, {"n_mamba_heads", "mamba_headdim", "mamba_ngroups",
                                                 "mamba_d_state", "mamba_d_conv"}));
  reader.add(StateKind{}, reader.all_layers(), tensors);
  return {};
}

Result<void> read_jamba(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  constexpr std::array<std::string_view, 2> kTypes = {"mamba", "attention"};
  std::vector<std::size_t> types(reader.layers(), 0);
  if (fields.has("layers_block_type")) {
    TIERCEL_ASSIGN_OR_RETURN(types, fields.choices("layers_block_type", reader.layers(), kTypes));
  } else {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t period, fields.count("attn_layer_period"));
    if (!fields.has("attn_layer_offset")) return fields.fault("attn_layer_offset", "is missing");
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t offset, fields.count_or_zero("attn_layer_offset"));
    if (offset >= period)
      return fields.fault("attn_layer_offset",
                          fmt::format("{} is not below attn_layer_period {}", offset, period));
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = i % period == offset ? 1 : 0;
  }
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.layers_where(types, 1)));
  const Layers mamba = reader.layers_where(types, 0);
  if (mamba.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount expand, reader.amount("mamba_expand"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, reader.amount("hidden_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount inner, reader.product(expand, hidden));
  TIERCEL_ASSIGN_OR_RETURN(const Amount state, reader.amount("mamba_d_state"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount kernel, reader.amount("mamba_d_conv"));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, mamba1(reader, inner, state, kernel));
  reader.add(StateKind{}, mamba, tensors);
  return {};
}

Result<void> read_mamba(ModelReader& reader) {
  const auto inner_size = [&]() -> Result<Amount> {
    if (reader.fields().has("intermediate_size")) return reader.amount("intermediate_size");
    TIERCEL_ASSIGN_OR_RETURN(const Amount expand, reader.amount("expand"));
    TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, reader.amount("hidden_size"));
    return reader.product(expand, hidden);
  };
  TIERCEL_ASSIGN_OR_RETURN(const Amount inner, inner_size());
  TIERCEL_ASSIGN_OR_RETURN(const Amount state, reader.amount("state_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount kernel, reader.amount("conv_kernel"));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, mamba1(reader, inner, state, kernel));
  reader.add(StateKind{}, reader.all_layers(), tensors);
  return {};
}

Result<void> read_mamba2(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, mamba2_named(reader, {"num_heads", "head_dim", "n_groups",
                                                                        "state_size", "conv_kernel"}));
  reader.add(StateKind{}, reader.all_layers(), tensors);
  return {};
}

Result<void> read_gated_delta(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  constexpr std::array<std::string_view, 2> kTypes = {"linear_attention", "full_attention"};
  std::vector<std::size_t> types(reader.layers(), 0);
  if (fields.has("layer_types")) {
    TIERCEL_ASSIGN_OR_RETURN(types, fields.choices("layer_types", reader.layers(), kTypes));
  } else {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t period,
                             fields.count_or("full_attention_interval", reader.rule().period));
    for (std::size_t i = 0; i < types.size(); ++i) types[i] = (i + 1) % period == 0 ? 1 : 0;
  }
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.layers_where(types, 1)));
  const Layers linear = reader.layers_where(types, 0);
  if (linear.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, gated_delta(reader));
  reader.add(StateKind{}, linear, tensors);
  return {};
}

Result<void> read_kimi_linear(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const ConfigFields linear, reader.fields().object("linear_attn_config"));
  TIERCEL_ASSIGN_OR_RETURN(const auto types, kimi_layers(reader, linear));
  if (const Layers full = reader.layers_where(types, 0); !full.empty()) {
    TIERCEL_ASSIGN_OR_RETURN(const Tensors latent, latent_tensors(reader));
    reader.add(FullKind{}, full, latent);
  }
  const Layers delta = reader.layers_where(types, 1);
  if (delta.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, kimi_delta(reader, linear));
  reader.add(StateKind{}, delta, tensors);
  return {};
}

// Lightning attention beside full attention.
Result<void> read_minimax(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  constexpr std::array<std::uint64_t, 2> kNumbers = {0, 1};
  constexpr std::array<std::string_view, 2> kNames = {"linear_attention", "full_attention"};
  const bool names = !fields.has("attn_type_list") && fields.has("layer_types");
  TIERCEL_ASSIGN_OR_RETURN(const auto types,
                           names ? fields.choices("layer_types", reader.layers(), kNames)
                                 : fields.choices("attn_type_list", reader.layers(), kNumbers));
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, reader.layers_where(types, 1)));
  const Layers lightning = reader.layers_where(types, 0);
  if (lightning.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount all_heads, reader.query_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, reader.per_rank(all_heads));
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.head_dim());
  TIERCEL_ASSIGN_OR_RETURN(const DType temporal, reader.temporal_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "temporal", {heads, dim, dim}, temporal));
  reader.add(StateKind{}, lightning, tensors);
  return {};
}

// Short convolutions beside full attention.
Result<void> read_lfm2(ModelReader& reader) {
  const ConfigFields& fields = reader.fields();
  constexpr std::array<std::string_view, 2> kTypes = {"conv", "full_attention"};
  Layers full;
  Layers convolution;
  if (!fields.has("layer_types") && fields.has("full_attn_idxs")) {
    TIERCEL_ASSIGN_OR_RETURN(const auto layers, reader.partition("full_attn_idxs"));
    full = layers.listed;
    convolution = layers.others;
  } else {
    TIERCEL_ASSIGN_OR_RETURN(const auto types, fields.choices("layer_types", reader.layers(), kTypes));
    full = reader.layers_where(types, 1);
    convolution = reader.layers_where(types, 0);
  }
  TIERCEL_RETURN_IF_ERROR(add_attention(reader, full));
  if (convolution.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, reader.amount("hidden_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount channels, reader.per_rank(hidden));
  TIERCEL_ASSIGN_OR_RETURN(const Amount kernel, reader.amount("conv_L_cache"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount taps, reader.taps(kernel));
  TIERCEL_ASSIGN_OR_RETURN(const DType conv, reader.model_dtype());
  Tensors tensors;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "conv", {channels, taps}, conv));
  reader.add(StateKind{}, convolution, tensors);
  return {};
}

}  // namespace tiercel::hf
