#include "model/hf_config_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"
#include "model/json_text.h"

namespace tiercel::hf {

ModelReader::ModelReader(const ConfigFields& fields, const ConfigFields& outer, const HfOptions& options,
                         const ModelRule& rule, std::uint32_t layers)
    : fields_(fields), outer_(outer), options_(options), rule_(rule), layers_(layers) {}

tl::unexpected<Status> ModelReader::too_large(const std::string& from) const {
  return fields_.fault(from, "a size passes 2^63 - 1");
}

Result<Amount> ModelReader::amount(const ConfigFields& fields, std::string_view key) const {
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t value, fields.count(key));
  return Amount{value, std::string(key)};
}

Result<Amount> ModelReader::sum(const Amount& a, const Amount& b) const {
  Amount made{0, fmt::format("{} + {}", a.from, b.from)};
  const auto value = checked_add(a.value, b.value);
  if (!value) return too_large(made.from);
  made.value = *value;
  return made;
}

Result<Amount> ModelReader::product(const Amount& a, const Amount& b) const {
  Amount made{0, fmt::format("{} x {}", a.from, b.from)};
  const auto value = checked_mul(a.value, b.value);
  if (!value) return too_large(made.from);
  made.value = *value;
  return made;
}

Result<Amount> ModelReader::quotient(const Amount& whole, const Amount& parts) const {
  if (whole.value % parts.value != 0)
    return fields_.fault(whole.from,
                         fmt::format("{} is no multiple of {} ({})", whole.value, parts.value, parts.from));
  return Amount{whole.value / parts.value, fmt::format("{} / {}", whole.from, parts.from)};
}

Result<Amount> ModelReader::per_rank(const Amount& whole) const {
  if (whole.value % options_.tp != 0)
    return fields_.fault(whole.from,
                         fmt::format("{} does not divide over --tp {}", whole.value, options_.tp));
  return Amount{whole.value / options_.tp, whole.from};
}

Result<Amount> ModelReader::taps(const Amount& kernel) const {
  if (kernel.value < 2)
    return fields_.fault(kernel.from, fmt::format("wanted a kernel of at least 2, is {}", kernel.value));
  return Amount{kernel.value - 1, kernel.from};
}

Result<void> ModelReader::append(Tensors& tensors, std::string_view name, std::initializer_list<Amount> shape,
                                 DType dtype) const {
  Component component{std::string(name), {}, dtype, 0};
  std::string from;
  for (const Amount& axis : shape) {
    component.shape.push_back(axis.value);
    if (!axis.from.empty()) from += (from.empty() ? "" : ", ") + axis.from;
  }
  const auto bytes = shape_bytes(component.shape, dtype);
  if (!bytes) return too_large(from);
  component.bytes_per_layer = *bytes;
  tensors.components.push_back(std::move(component));
  if (tensors.from.find(from) == std::string::npos) tensors.from += (tensors.from.empty() ? "" : ", ") + from;
  return {};
}

Result<DType> ModelReader::model_dtype() const {
  for (const ConfigFields* fields : {&fields_, &outer_})
    for (const char* key : {"dtype", "torch_dtype"})
      if (fields->has(key)) {
        TIERCEL_ASSIGN_OR_RETURN(const std::string name, fields->text(key));
        if (const auto dtype = dtype_from_name(name)) return *dtype;
        return fields->fault(key, fmt::format("\"{}\" is no known dtype", printable(name)));
      }
  return DType::kBf16;
}

Result<DType> ModelReader::temporal_dtype() const {
  if (options_.state_dtype) return *options_.state_dtype;
  for (const char* key : {"mamba_ssm_dtype", "mamba_ssm_cache_dtype"})
    if (fields_.has(key)) {
      TIERCEL_ASSIGN_OR_RETURN(const std::string name, fields_.text(key));
      if (const auto dtype = dtype_from_name(name)) return *dtype;
      return fields_.fault(key, fmt::format("\"{}\" is no known dtype", printable(name)));
    }
  return DType::kF32;
}

Result<Amount> ModelReader::query_heads() const {
  Amount heads{rule_.query_heads, "num_attention_heads"};
  if (rule_.query_heads == 0 || fields_.has("num_attention_heads")) {
    TIERCEL_ASSIGN_OR_RETURN(heads, amount("num_attention_heads"));
  }
  TIERCEL_RETURN_IF_ERROR(per_rank(heads));
  return heads;
}

Result<Amount> ModelReader::kv_heads() const {
  if (fields_.has("num_key_value_heads")) return amount("num_key_value_heads");
  if (rule_.kv_heads != 0 && !fields_.has("num_attention_heads"))
    return Amount{rule_.kv_heads, "num_key_value_heads"};
  return query_heads();
}

Result<Amount> ModelReader::head_dim() const {
  if (fields_.has("head_dim")) return amount("head_dim");
  if (rule_.head_dim != 0) return Amount{rule_.head_dim, "head_dim"};
  TIERCEL_ASSIGN_OR_RETURN(const Amount hidden, amount("hidden_size"));
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, query_heads());
  return quotient(hidden, heads);
}

Result<Tensors> ModelReader::kv_tensors(const Amount& kv, const Amount& k_dim, const Amount& v_dim) const {
  TIERCEL_RETURN_IF_ERROR(query_heads());
  Amount heads{1, kv.from};
  if (kv.value >= options_.tp) {
    TIERCEL_ASSIGN_OR_RETURN(heads, per_rank(kv));
  } else if (options_.tp % kv.value != 0) {
    return fields_.fault(kv.from,
                         fmt::format("{} heads cannot be copied evenly over --tp {}", kv.value, options_.tp));
  }
  Tensors tensors;
  tensors.replicated = kv.value == 1;
  TIERCEL_RETURN_IF_ERROR(append(tensors, "k", {heads, k_dim}, kv_dtype()));
  TIERCEL_RETURN_IF_ERROR(append(tensors, "v", {heads, v_dim}, kv_dtype()));
  return tensors;
}

Result<Tensors> ModelReader::standard_kv() const {
  TIERCEL_ASSIGN_OR_RETURN(const Amount heads, kv_heads());
  TIERCEL_ASSIGN_OR_RETURN(const Amount dim, head_dim());
  return kv_tensors(heads, dim, dim);
}

Layers ModelReader::all_layers() const {
  Layers all(layers_);
  std::iota(all.begin(), all.end(), std::uint32_t{0});
  return all;
}

Layers ModelReader::layers_where(const std::vector<std::size_t>& choices, std::size_t place) const {
  Layers layers;
  for (std::uint32_t i = 0; i < layers_; ++i)
    if (choices[i] == place) layers.push_back(i);
  return layers;
}

Result<ModelReader::Partition> ModelReader::partition(std::string_view key) const {
  TIERCEL_ASSIGN_OR_RETURN(const auto numbers, fields_.numbers(key));
  std::vector<bool> listed(layers_);
  for (const std::uint64_t layer : numbers) {
    if (layer >= layers_)
      return fields_.fault(key, fmt::format("layer {} is out of range: there are {}", layer, layers_));
    if (listed[layer]) return fields_.fault(key, fmt::format("layer {} is named twice", layer));
    listed[layer] = true;
  }
  Partition made;
  for (std::uint32_t i = 0; i < layers_; ++i) (listed[i] ? made.listed : made.others).push_back(i);
  return made;
}

void ModelReader::add(GroupKind kind, const Layers& layers, const Tensors& tensors,
                      std::uint64_t tokens_per_entry) {
  if (layers.empty()) return;
  for (Group& group : groups_) {
    if (group.kind != kind || group.tokens_per_entry != tokens_per_entry ||
        group.replicated != tensors.replicated || group.components != tensors.components)
      continue;
    group.layers.insert(group.layers.end(), layers.begin(), layers.end());
    return;
  }
  Group group;
  const bool sparse = std::holds_alternative<WindowKind>(kind) || std::holds_alternative<StateKind>(kind);
  group.kind = kind;
  group.need = sparse ? Need::kSparse : Need::kRequired;
  group.layers = layers;
  group.components = tensors.components;
  group.replicated = tensors.replicated;
  group.tokens_per_entry = tokens_per_entry;
  groups_.push_back(std::move(group));
  from_.push_back(tensors.from);
}

Result<void> ModelReader::add_window(const Layers& layers, const Tensors& tensors) {
  if (layers.empty()) return {};
  TIERCEL_ASSIGN_OR_RETURN(const Amount window, amount("sliding_window"));
  add(WindowKind{window.value}, layers, tensors);
  return {};
}

Result<std::vector<std::uint32_t>> ModelReader::draft_layers() const {
  const std::string_view key =
      fields_.has("num_nextn_predict_layers") ? "num_nextn_predict_layers" : "mtp_num_hidden_layers";
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t count, fields_.count_or_zero(key));
  if (count > kMaxLayers) return fields_.fault(key, fmt::format("{} is above {}", count, kMaxLayers));
  std::vector<std::uint32_t> layers(count);
  std::iota(layers.begin(), layers.end(), layers_);
  return layers;
}

// Followers were added with the layers of what they follow: the full group with the same tokens_per_entry,
// and of several that one which has the follower's first layer.
void ModelReader::resolve_followers(ModelSpec& spec) const {
  for (Group& group : spec.groups) {
    auto* follower = std::get_if<FollowerKind>(&group.kind);
    if (follower == nullptr) continue;
    for (std::uint32_t i = 0; i < spec.groups.size(); ++i) {
      const Group& full = spec.groups[i];
      if (std::holds_alternative<FullKind>(full.kind) && full.tokens_per_entry == group.tokens_per_entry &&
          std::binary_search(full.layers.begin(), full.layers.end(), group.layers.front()))
        follower->of = i;
    }
  }
}

Result<void> ModelReader::check_sizes(const ModelSpec& spec) const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (!try_group_bytes(spec, groups_[i]))
      return fields_.fault(from_[i], fmt::format("{} layers (num_hidden_layers) of a page of {} tokens "
                                                 "(--page-tokens) pass 2^63 - 1 bytes",
                                                 groups_[i].layers.size(), spec.page_tokens));
  return {};
}

Result<ModelSpec> ModelReader::finish(std::string model_type) && {
  ModelSpec spec;
  spec.model_type = std::move(model_type);
  spec.page_tokens = options_.page_tokens;
  spec.topology.tp = static_cast<std::uint32_t>(options_.tp);
  TIERCEL_ASSIGN_OR_RETURN(spec.draft_layers, draft_layers());
  std::vector<bool> owns(layers_);
  for (Group& group : groups_) {
    std::sort(group.layers.begin(), group.layers.end());
    for (const std::uint32_t layer : group.layers) owns[layer] = true;
  }
  for (std::uint32_t i = 0; i < layers_; ++i)
    if (!owns[i]) spec.no_cache_layers.push_back(i);
  TIERCEL_RETURN_IF_ERROR(check_sizes(spec));
  spec.groups = std::move(groups_);
  std::stable_sort(spec.groups.begin(), spec.groups.end(), [](const Group& a, const Group& b) {
    return std::pair(a.kind.index(), a.layers.front()) < std::pair(b.kind.index(), b.layers.front());
  });
  resolve_followers(spec);
  if (Status status = validate(spec); !status.ok())
    return error(status.code, fmt::format("{}: {}", fields_.file(), status.message));
  return spec;
}

}  // namespace tiercel::hf
