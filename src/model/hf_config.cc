#include "model/hf_config.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "model/hf_config_reader.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

using hf::ConfigFields;
using hf::ModelReader;
using hf::ModelRule;

// One row per model_type of the text part. Facts as in the published modelling files of the models.
constexpr auto kRules = std::to_array<ModelRule>({
    {.model_type = "llama", .read = hf::read_full_or_window},
    {.model_type = "mixtral", .read = hf::read_full_or_window},
    {.model_type = "granite", .read = hf::read_full_or_window},
    {.model_type = "phi3", .read = hf::read_full_or_window},
    {.model_type = "olmo2", .read = hf::read_full_or_window},
    {.model_type = "smollm3", .read = hf::read_full_or_window},
    {.model_type = "minimax_m2", .read = hf::read_full_or_window},
    {.model_type = "hunyuan_v1_dense", .read = hf::read_full_or_window},
    {.model_type = "hunyuan_v1_moe", .read = hf::read_full_or_window},
    {.model_type = "mistral", .read = hf::read_all_window},
    {.model_type = "qwen2", .read = hf::read_window_above},
    {.model_type = "qwen3", .read = hf::read_window_above},
    {.model_type = "qwen2_moe", .read = hf::read_window_above},
    {.model_type = "qwen3_moe", .read = hf::read_window_above},
    {.model_type = "mimo", .read = hf::read_window_above},
    {.model_type = "gpt_oss", .read = hf::read_even_window_unless_listed},
    {.model_type = "gemma2", .read = hf::read_even_window, .head_dim = 256},
    {.model_type = "gemma3_text",
     .read = hf::read_periodic_full,
     .head_dim = 256,
     .query_heads = 8,
     .kv_heads = 4,
     .period = 6},
    {.model_type = "cohere2", .read = hf::read_periodic_full, .period = 4},
    {.model_type = "gemma3n_text", .read = hf::read_periodic_full_shared_tail, .head_dim = 256, .period = 5},
    {.model_type = "gemma4_text", .read = hf::read_gemma4, .head_dim = 256, .period = 6},
    {.model_type = "mimo_v2_flash", .read = hf::read_mimo_v2},
    {.model_type = "hunyuan", .read = hf::read_hunyuan},
    {.model_type = "nemotron-nas", .read = hf::read_nemotron_nas},
    {.model_type = "deepseek_v2", .read = hf::read_latent},
    {.model_type = "deepseek_v3", .read = hf::read_latent},
    {.model_type = "kimi_k2", .read = hf::read_latent},
    {.model_type = "glm4_moe_lite", .read = hf::read_latent},
    {.model_type = "deepseek_v32", .read = hf::read_sparse_latent},
    {.model_type = "glm_moe_dsa", .read = hf::read_sparse_latent},
    {.model_type = "deepseek_v4", .read = hf::read_deepseek_v4},
    {.model_type = "minimax_m3", .read = hf::read_minimax_m3},
    {.model_type = "nemotron_h", .read = hf::read_nemotron_h},
    {.model_type = "granitemoehybrid", .read = hf::read_granite_hybrid},
    {.model_type = "bamba", .read = hf::read_bamba},
    {.model_type = "falcon_h1", .read = hf::read_falcon_h1},
    {.model_type = "zamba2", .read = hf::read_zamba2},
    {.model_type = "jamba", .read = hf::read_jamba},
    {.model_type = "mamba", .read = hf::read_mamba},
    {.model_type = "falcon_mamba", .read = hf::read_mamba},
    {.model_type = "mamba2", .read = hf::read_mamba2},
    {.model_type = "qwen3_next", .read = hf::read_gated_delta, .head_dim = 256, .period = 4},
    {.model_type = "qwen3_5", .read = hf::read_gated_delta, .head_dim = 256, .period = 4},
    {.model_type = "qwen3_5_text", .read = hf::read_gated_delta, .head_dim = 256, .period = 4},
    {.model_type = "qwen3_5_moe", .read = hf::read_gated_delta, .head_dim = 256, .period = 4},
    {.model_type = "qwen3_5_moe_text", .read = hf::read_gated_delta, .head_dim = 256, .period = 4},
    {.model_type = "kimi_linear", .read = hf::read_kimi_linear},
    {.model_type = "minimax_text_01", .read = hf::read_minimax},
    {.model_type = "minimax", .read = hf::read_minimax},
    {.model_type = "lfm2", .read = hf::read_lfm2},
    {.model_type = "lfm2_moe", .read = hf::read_lfm2},
});

Result<void> check_options(std::string_view file, const HfOptions& options) {
  if (options.tp == 0 || options.tp > kMaxRanks)
    return error(Code::kInvalidArgument,
                 fmt::format("{}: --tp: wanted 1 to {}, is {}", file, kMaxRanks, options.tp));
  if (options.page_tokens == 0)
    return error(Code::kInvalidArgument, fmt::format("{}: --page-tokens: wanted at least 1, is 0", file));
  return {};
}

Result<const ModelRule*> find_rule(const ConfigFields& fields) {
  constexpr std::string_view kKey = "model_type";
  TIERCEL_ASSIGN_OR_RETURN(const std::string model_type, fields.text(kKey));
  const auto* found = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const ModelRule& rule) { return rule.model_type == model_type; });
  if (found == kRules.end())
    return fields.fault(kKey, fmt::format("no rule for \"{}\" (a spec of your own can describe it: "
                                          "docs/guide/specs.md)",
                                          printable(model_type)));
  return found;
}

}  // namespace

Result<ModelSpec> read_hf_config(std::string_view text, std::string_view file, const HfOptions& options) {
  TIERCEL_RETURN_IF_ERROR(check_options(file, options));
  const auto json = parse_json(text);
  if (!json) return error(json.error().code, fmt::format("{}: {}", file, json.error().message));
  if (!json->is_object())
    return error(Code::kInvalidArgument,
                 fmt::format("{}: wanted a JSON object, is {}", file, describe(*json)));
  const ConfigFields outer(*json, file, "");
  TIERCEL_ASSIGN_OR_RETURN(std::string model_type, outer.text("model_type"));
  ConfigFields fields = outer;
  if (outer.has("text_config")) {
    TIERCEL_ASSIGN_OR_RETURN(fields, outer.object("text_config"));
  }
  TIERCEL_ASSIGN_OR_RETURN(const ModelRule* rule, find_rule(fields));
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t layers, fields.count("num_hidden_layers"));
  if (layers > kMaxLayers)
    return fields.fault("num_hidden_layers", fmt::format("{} is above {}", layers, kMaxLayers));
  ModelReader reader(fields, outer, options, *rule, static_cast<std::uint32_t>(layers));
  TIERCEL_RETURN_IF_ERROR(rule->read(reader));
  return std::move(reader).finish(std::move(model_type));
}

Result<ModelSpec> with_draft(ModelSpec base, const ModelSpec& draft, std::string_view draft_file) {
  const auto fault = [&](std::string_view why) {
    return error(Code::kInvalidArgument, fmt::format("{}: {}", draft_file, why));
  };
  std::uint32_t base_layers = 0;
  std::uint32_t draft_layers = 0;
  const auto extend = [](std::uint32_t& count, const std::vector<std::uint32_t>& layers) {
    if (!layers.empty()) count = std::max(count, layers.back() + 1);
  };
  for (const Group& group : base.groups)
    if (group.need != Need::kOptional) extend(base_layers, group.layers);
  extend(base_layers, base.no_cache_layers);
  for (const Group& group : draft.groups) extend(draft_layers, group.layers);
  extend(draft_layers, draft.no_cache_layers);

  const auto base_groups = static_cast<std::ptrdiff_t>(base.groups.size());
  for (Group group : draft.groups) {
    if (std::holds_alternative<StateKind>(group.kind))
      return fault("a draft model with a recurrent state cannot follow (--draft-config)");
    std::optional<std::uint32_t> of;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(base_groups); ++i) {
      const Group& full = base.groups[i];
      if (!std::holds_alternative<FullKind>(full.kind)) continue;
      if (!of || full.tokens_per_entry == group.tokens_per_entry) of = i;
      if (full.tokens_per_entry == group.tokens_per_entry) break;
    }
    if (!of) return fault("the base model has no full group that a draft could follow (--draft-config)");
    group.kind = FollowerKind{*of};
    group.need = Need::kOptional;
    for (std::uint32_t& layer : group.layers) layer += base_layers;
    // A follower has no window, so that a draft's full and window layers of one shape are one group.
    const auto same =
        std::find_if(base.groups.begin() + base_groups, base.groups.end(), [&](const Group& other) {
          return other.kind == group.kind && other.tokens_per_entry == group.tokens_per_entry &&
                 other.replicated == group.replicated && other.components == group.components;
        });
    if (same == base.groups.end()) {
      base.groups.push_back(std::move(group));
    } else {
      same->layers.insert(same->layers.end(), group.layers.begin(), group.layers.end());
      std::sort(same->layers.begin(), same->layers.end());
    }
  }
  std::stable_sort(base.groups.begin() + base_groups, base.groups.end(),
                   [](const Group& a, const Group& b) { return a.layers.front() < b.layers.front(); });
  base.draft_layers.clear();
  for (std::uint32_t i = 0; i < draft_layers; ++i) base.draft_layers.push_back(base_layers + i);
  if (Status status = validate(base); !status.ok()) return fault(status.message);
  return base;
}

std::vector<std::string_view> hf_model_types() {
  std::vector<std::string_view> types(kRules.size());
  std::transform(kRules.begin(), kRules.end(), types.begin(),
                 [](const ModelRule& rule) { return rule.model_type; });
  return types;
}

}  // namespace tiercel
