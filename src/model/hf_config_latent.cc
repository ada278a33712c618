// Models that keep one compressed latent a token, the same on every rank.
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "model/hf_config_reader.h"

namespace tiercel::hf {
namespace {

constexpr std::uint64_t kIndexBlock = 128;  // values under one scale of an index key, and of a packed latent
constexpr std::uint64_t kV4Block = 64;      // values under one scale of a packed latent of DeepSeek V4

Result<void> append_index_keys(const ModelReader& reader, Tensors& tensors) {
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.amount("index_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount scales, reader.quotient(dim, {kIndexBlock, "values per scale"}));
  tensors.replicated = true;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "index_k", {dim}, DType::kFp8));
  return reader.append(tensors, "index_k_scale", {{scales.value, ""}}, DType::kF32);
}

Result<Tensors> packed_latent(const ModelReader& reader) {
  TIERCEL_RETURN_IF_ERROR(reader.query_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Amount rank, reader.amount("kv_lora_rank"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount rope, reader.amount("qk_rope_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount scales, reader.quotient(rank, {kIndexBlock, "values per scale"}));
  Tensors tensors;
  tensors.replicated = true;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent", {rank}, DType::kFp8));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent_scale", {{scales.value, ""}}, DType::kF32));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "rope", {rope}, DType::kBf16));
  return tensors;
}

Result<Tensors> v4_latent(const ModelReader& reader) {
  TIERCEL_RETURN_IF_ERROR(reader.query_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.head_dim());
  Tensors tensors;
  tensors.replicated = true;
  if (reader.kv_dtype() != DType::kFp8) {
    TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent", {dim}, reader.kv_dtype()));
    return tensors;
  }
  TIERCEL_ASSIGN_OR_RETURN(const Amount rope, reader.amount("qk_rope_head_dim"));
  if (rope.value >= dim.value)
    return reader.fields().fault("qk_rope_head_dim",
                                 fmt::format("{} is not below head_dim {}", rope.value, dim.value));
  const Amount rest{dim.value - rope.value, "head_dim - qk_rope_head_dim"};
  TIERCEL_ASSIGN_OR_RETURN(const Amount scales, reader.quotient(rest, {kV4Block, "values per scale"}));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent", {rest}, DType::kFp8));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent_scale", {{scales.value + 1, ""}}, DType::kU8));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "rope", {rope}, DType::kBf16));
  return tensors;
}

// The ratio of each base layer; entries past num_hidden_layers belong to draft layers.
Result<std::vector<std::uint64_t>> compress_ratios(const ModelReader& reader) {
  constexpr std::string_view kKey = "compress_ratios";
  const ConfigFields& fields = reader.fields();
  TIERCEL_ASSIGN_OR_RETURN(auto ratios, fields.numbers(kKey));
  if (ratios.size() < reader.layers())
    return fields.fault(kKey, fmt::format("has {} entries for {} layers (num_hidden_layers)", ratios.size(),
                                          reader.layers()));
  for (std::size_t i = 0; i < ratios.size(); ++i)
    if (ratios[i] != 0 && ratios[i] != 4 && ratios[i] != 128)
      return fields.fault(fmt::format("{}[{}]", kKey, i), fmt::format("{} is none of 0, 4, 128", ratios[i]));
  ratios.resize(reader.layers());
  return ratios;
}

// The compressor's running rows: a window of the tokens that it has not folded into an entry yet.
Result<Tensors> compressor_state(const ModelReader& reader, bool overlapping) {
  Tensors tensors;
  tensors.replicated = true;
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, reader.head_dim());
  TIERCEL_ASSIGN_OR_RETURN(const Amount row, reader.product({overlapping ? 4U : 2U, "rows"}, dim));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "compress_state", {row}, DType::kF32));
  if (!overlapping) return tensors;
  TIERCEL_ASSIGN_OR_RETURN(const Amount index_dim, reader.amount("index_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount index_row, reader.product({4, "rows"}, index_dim));
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "index_compress_state", {index_row}, DType::kF32));
  return tensors;
}

}  // namespace

Result<Tensors> latent_tensors(const ModelReader& reader) {
  TIERCEL_RETURN_IF_ERROR(reader.query_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Amount rank, reader.amount("kv_lora_rank"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount rope, reader.amount("qk_rope_head_dim"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount both, reader.sum(rank, rope));
  Tensors tensors;
  tensors.replicated = true;
  TIERCEL_RETURN_IF_ERROR(reader.append(tensors, "latent", {both}, reader.kv_dtype()));
  return tensors;
}

Result<void> read_latent(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const Tensors tensors, latent_tensors(reader));
  reader.add(FullKind{}, reader.all_layers(), tensors);
  return {};
}

Result<void> read_sparse_latent(ModelReader& reader) {
  const bool packed = reader.kv_dtype() == DType::kFp8;
  TIERCEL_ASSIGN_OR_RETURN(const Tensors latent, packed ? packed_latent(reader) : latent_tensors(reader));
  reader.add(FullKind{}, reader.all_layers(), latent);

  Layers indexed = reader.all_layers();
  if (reader.fields().has("indexer_types")) {
    constexpr std::array<std::string_view, 2> kTypes = {"full", "shared"};
    TIERCEL_ASSIGN_OR_RETURN(const auto types,
                             reader.fields().choices("indexer_types", reader.layers(), kTypes));
    indexed = reader.layers_where(types, 0);
  }
  Tensors index;
  TIERCEL_RETURN_IF_ERROR(append_index_keys(reader, index));
  reader.add(FollowerKind{}, indexed, index);
  return {};
}

Result<void> read_deepseek_v4(ModelReader& reader) {
  TIERCEL_ASSIGN_OR_RETURN(const auto ratios, compress_ratios(reader));
  TIERCEL_ASSIGN_OR_RETURN(const Tensors latent, v4_latent(reader));
  TIERCEL_RETURN_IF_ERROR(reader.add_window(reader.all_layers(), latent));
  std::uint64_t multiple = 1;
  for (const std::uint64_t ratio : {std::uint64_t{4}, std::uint64_t{128}}) {
    Layers layers;
    for (std::uint32_t i = 0; i < reader.layers(); ++i)
      if (ratios[i] == ratio) layers.push_back(i);
    if (layers.empty()) continue;
    multiple = std::lcm(multiple, ratio);
    const bool overlapping = ratio == 4;
    reader.add(FullKind{}, layers, latent, ratio);
    TIERCEL_ASSIGN_OR_RETURN(const Tensors state, compressor_state(reader, overlapping));
    reader.add(WindowKind{overlapping ? 2 * ratio : ratio}, layers, state);
    if (!overlapping) continue;
    Tensors index;
    TIERCEL_RETURN_IF_ERROR(append_index_keys(reader, index));
    reader.add(FollowerKind{}, layers, index, ratio);
  }
  if (reader.options().page_tokens % multiple != 0)
    return reader.fields().fault(
        "compress_ratios", fmt::format("--page-tokens {} is no multiple of {}, the least common multiple of "
                                       "the ratios in use",
                                       reader.options().page_tokens, multiple));
  return {};
}

}  // namespace tiercel::hf
