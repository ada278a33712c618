#include "model/spec.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/checked.h"

namespace tiercel {
namespace {

using Outcome = Result<void>;

struct DTypeRow {
  DType dtype;
  std::uint64_t bytes;
  std::string_view name;
  std::array<std::string_view, 4> other_names;
};
constexpr std::array<DTypeRow, 5> kDTypes = {{
    {DType::kBf16, 2, "bf16", {"bfloat16"}},
    {DType::kFp16, 2, "fp16", {"float16", "half"}},
    {DType::kFp8, 1, "fp8", {"float8", "float8_e4m3fn", "fp8_e4m3", "float8_e5m2"}},
    {DType::kF32, 4, "f32", {"float32", "fp32", "float"}},
    {DType::kU8, 1, "u8", {"uint8"}},
}};
const DTypeRow& row_of(DType dtype) {
  const auto index = static_cast<std::size_t>(dtype);
  TIERCEL_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype);
  return kDTypes[index];
}

template <typename... Arguments>
tl::unexpected<Status> fault(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  return error(Code::kInvalidArgument, fmt::format(text, std::forward<Arguments>(arguments)...));
}

std::string_view need_name(Need need) {
  switch (need) {
    case Need::kRequired:
      return "required";
    case Need::kSparse:
      return "sparse";
    case Need::kOptional:
      return "optional";
  }
  return "unknown";
}

// What a kind fixes about a group; one overload per kind, so that a new kind has to answer.
struct KindFacts {
  std::uint32_t order;  // place among the groups of a spec
  bool may_compress;    // tokens_per_entry above 1
};
struct KindFactsOf {
  KindFacts operator()(const FullKind&) const { return {0, true}; }
  KindFacts operator()(const WindowKind&) const { return {1, false}; }
  KindFacts operator()(const StateKind&) const { return {2, false}; }
  KindFacts operator()(const FollowerKind&) const { return {3, true}; }
};
struct NeedFits {
  Need need;
  bool operator()(const FullKind&) const { return need == Need::kRequired; }
  bool operator()(const WindowKind&) const { return need == Need::kSparse; }
  bool operator()(const StateKind&) const { return need == Need::kSparse; }
  bool operator()(const FollowerKind&) const { return need != Need::kSparse; }
};

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

Outcome check_layers(std::string_view field, const std::vector<std::uint32_t>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] >= kMaxLayerIds)
      return fault("{}: layer {} is out of range: wanted ids below {}", field, layers[i], kMaxLayerIds);
    if (i > 0 && layers[i] <= layers[i - 1])
      return fault("{}: layer {} after {}: wanted ascending ids, each once", field, layers[i], layers[i - 1]);
  }
  return {};
}

Outcome check_sections(std::string_view field, const Component& component) {
  if (component.sections.empty()) return {};
  std::optional<std::uint64_t> sum = 0;
  for (const std::uint64_t section : component.sections) sum = sum ? checked_add(*sum, section) : sum;
  if (sum != component.shape.front() || component.shape.size() < 2)
    return fault("{}: sections {} must be together the first of at least two axes, which has {}", field,
                 fmt::join(component.sections, " + "), component.shape.front());
  return {};
}

Outcome check_component(std::string_view where, const Component& component) {
  if (!is_name(component.name))
    return fault("{}: a component's name must be 1 to 64 of a-z, 0-9 and _", where);
  const auto field = fmt::format("{}, component {}", where, component.name);
  if (component.bytes_per_layer > kSizeMax) return fault("{}: bytes pass 2^63 - 1", field);
  if (!component.dtype) {
    if (!component.shape.empty() || !component.sections.empty())
      return fault("{}: an opaque component has no shape and no sections", field);
    if (component.bytes_per_layer == 0) return fault("{}: bytes must be positive", field);
    return {};
  }
  if (component.shape.empty() || component.shape.size() > 8)
    return fault("{}: shape must have 1 to 8 axes, has {}", field, component.shape.size());
  const auto bytes = shape_bytes(component.shape, *component.dtype);
  if (!bytes) return fault("{}: shape {} passes 2^63 - 1 bytes", field, fmt::join(component.shape, " x "));
  if (*bytes != component.bytes_per_layer)
    return fault("{}: {} bytes per layer, but its shape has {}", field, component.bytes_per_layer, *bytes);
  return check_sections(field, component);
}

Outcome check_follower(const ModelSpec& spec, std::string_view where, const Group& group) {
  const auto* follower = std::get_if<FollowerKind>(&group.kind);
  if (follower == nullptr) return {};
  if (follower->of >= spec.groups.size() || !std::holds_alternative<FullKind>(spec.groups[follower->of].kind))
    return fault("{}: of: wanted the index of a full group, got {}", where, follower->of);
  const Group& followed = spec.groups[follower->of];
  // A draft model may keep whole tokens beside a compressed base; index keys may not.
  if (group.need == Need::kRequired && followed.tokens_per_entry != group.tokens_per_entry)
    return fault("{}: tokens_per_entry is {}, but the group it follows has {}", where, group.tokens_per_entry,
                 followed.tokens_per_entry);
  return {};
}

Outcome check_group(const ModelSpec& spec, std::string_view where, const Group& group) {
  if (group.layers.empty()) return fault("{}: layers: wanted at least one", where);
  TIERCEL_RETURN_IF_ERROR(check_layers(fmt::format("{}: layers", where), group.layers));
  if (!std::visit(NeedFits{group.need}, group.kind))
    return fault("{}: a {} group cannot be {}", where, kind_name(group.kind), need_name(group.need));
  if (const auto* window = std::get_if<WindowKind>(&group.kind))
    if (window->tokens == 0 || window->tokens > kSizeMax)
      return fault("{}: window_tokens must be positive and below 2^63, is {}", where, window->tokens);
  const auto facts = std::visit(KindFactsOf{}, group.kind);
  if (group.tokens_per_entry == 0 || (group.tokens_per_entry > 1 && !facts.may_compress))
    return fault("{}: tokens_per_entry is {}: wanted 1, or more in full groups and their followers", where,
                 group.tokens_per_entry);
  if (group.components.empty()) return fault("{}: components: wanted at least one", where);
  std::set<std::string_view> names;
  for (const Component& component : group.components) {
    TIERCEL_RETURN_IF_ERROR(check_component(where, component));
    if (!names.insert(component.name).second) return fault("{}: component {} twice", where, component.name);
  }
  if (std::all_of(group.components.begin(), group.components.end(),
                  [](const Component& component) { return component.bytes_per_layer == 0; }))
    return fault("{}: components: bytes must be positive in at least one", where);
  return check_follower(spec, where, group);
}

// Ratios first: a page must hold whole entries of every group before any size means anything.
Outcome check_page_tokens(const ModelSpec& spec) {
  if (spec.page_tokens == 0 || spec.page_tokens > kSizeMax)
    return fault("page_tokens must be positive and below 2^63, is {}", spec.page_tokens);
  std::uint64_t multiple = 1;
  for (const Group& group : spec.groups) {
    const auto product =
        checked_mul(multiple / std::gcd(multiple, group.tokens_per_entry), group.tokens_per_entry);
    if (!product) return fault("tokens_per_entry: their least common multiple passes 2^63 - 1");
    multiple = *product;
  }
  if (spec.page_tokens % multiple != 0)
    return fault(
        "page_tokens is {}: wanted a multiple of {}, the least common multiple of all tokens_per_entry",
        spec.page_tokens, multiple);
  return {};
}

Outcome check_order(const ModelSpec& spec) {
  const auto rank = [](const Group& group) {
    const std::uint32_t order = std::visit(KindFactsOf{}, group.kind).order;
    return std::pair(order, group.need == Need::kOptional);
  };
  for (std::size_t i = 1; i < spec.groups.size(); ++i) {
    const Group& before = spec.groups[i - 1];
    const Group& group = spec.groups[i];
    if (rank(before) > rank(group) ||
        (rank(before) == rank(group) && before.layers.front() > group.layers.front()))
      return fault(
          "groups[{}] must come before groups[{}]: the order is full, window, state, follower, optional "
          "follower, and by lowest layer within a kind",
          i, i - 1);
  }
  return {};
}

Outcome check_topology(const Topology& topology) {
  const std::uint64_t limit = 65535;
  if (topology.tp == 0 || topology.pp == 0 || topology.cp == 0)
    return fault("topology: tp, pp and cp must be positive, are {}, {}, {}", topology.tp, topology.pp,
                 topology.cp);
  if (topology.tp > limit || topology.pp > limit || topology.cp > limit ||
      std::uint64_t{topology.tp} * topology.pp > limit ||
      std::uint64_t{topology.tp} * topology.pp * topology.cp > limit)
    return fault("topology: tp {} x pp {} x cp {} is above {} shards", topology.tp, topology.pp, topology.cp,
                 limit);
  return {};
}

Outcome check(const ModelSpec& spec) {
  TIERCEL_RETURN_IF_ERROR(check_topology(spec.topology));
  if (spec.pages_per_record != 1)
    return fault("pages_per_record is {}: only 1 is built", spec.pages_per_record);
  if (spec.groups.empty()) return fault("groups: no layer keeps anything: wanted at least one group");
  TIERCEL_RETURN_IF_ERROR(check_layers("no_cache_layers", spec.no_cache_layers));
  TIERCEL_RETURN_IF_ERROR(check_layers("draft_layers", spec.draft_layers));
  std::set<std::uint32_t> owners;
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    TIERCEL_RETURN_IF_ERROR(check_group(spec, fmt::format("groups[{}]", i), spec.groups[i]));
    owners.insert(spec.groups[i].layers.begin(), spec.groups[i].layers.end());
  }
  for (const std::uint32_t layer : spec.no_cache_layers)
    if (owners.contains(layer)) return fault("no_cache_layers: layer {} is in a group too", layer);
  TIERCEL_RETURN_IF_ERROR(check_order(spec));
  TIERCEL_RETURN_IF_ERROR(check_page_tokens(spec));
  for (std::size_t i = 0; i < spec.groups.size(); ++i)
    if (!try_group_bytes(spec, spec.groups[i]))
      return fault("groups[{}]: its bytes of one page of page_tokens {} pass 2^63 - 1", i, spec.page_tokens);
  return {};
}

}  // namespace

std::uint64_t dtype_bytes(DType dtype) { return row_of(dtype).bytes; }
std::string_view dtype_name(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  constexpr std::string_view kTorch = "torch.";
  if (name.starts_with(kTorch)) name.remove_prefix(kTorch.size());
  if (name.empty()) return std::nullopt;
  for (const DTypeRow& row : kDTypes)
    if (row.name == name ||
        std::find(row.other_names.begin(), row.other_names.end(), name) != row.other_names.end())
      return row.dtype;
  return std::nullopt;
}

std::string_view kind_name(const GroupKind& kind) {
  struct Name {
    std::string_view operator()(const FullKind&) const { return "full"; }
    std::string_view operator()(const WindowKind&) const { return "window"; }
    std::string_view operator()(const StateKind&) const { return "state"; }
    std::string_view operator()(const FollowerKind&) const { return "follower"; }
  };
  return std::visit(Name{}, kind);
}

std::optional<std::uint64_t> shape_bytes(std::span<const std::uint64_t> shape, DType dtype) {
  std::uint64_t bytes = dtype_bytes(dtype);
  for (const std::uint64_t axis : shape) {
    const auto product = checked_mul(bytes, axis);
    if (!product) return std::nullopt;
    bytes = *product;
  }
  return bytes;
}

std::uint64_t entries_per_record(const ModelSpec& spec, const Group& group, const Component& component) {
  // An opaque component is a record's bytes already; a state has one entry, the snapshot.
  if (!component.dtype || std::holds_alternative<StateKind>(group.kind)) return 1;
  return spec.page_tokens / group.tokens_per_entry;
}

std::optional<std::uint64_t> try_group_bytes(const ModelSpec& spec, const Group& group) {
  std::uint64_t layer_bytes = 0;
  for (const Component& component : group.components) {
    const auto run = checked_mul(component.bytes_per_layer, entries_per_record(spec, group, component));
    const auto sum = run ? checked_add(layer_bytes, *run) : std::nullopt;
    if (!sum) return std::nullopt;
    layer_bytes = *sum;
  }
  return checked_mul(layer_bytes, group.layers.size());
}

std::uint64_t group_bytes(const ModelSpec& spec, const Group& group) {
  const auto bytes = try_group_bytes(spec, group);
  TIERCEL_CHECK(bytes.has_value());
  return *bytes;
}

std::vector<LayerIdRun> runs_of(const std::vector<std::uint32_t>& layers) {
  std::vector<LayerIdRun> runs;
  for (const std::uint32_t layer : layers)
    if (!runs.empty() && runs.back().last + 1 == layer)
      runs.back().last = layer;
    else
      runs.push_back({layer, layer});
  return runs;
}

Status validate(const ModelSpec& spec) {
  auto outcome = check(spec);
  return outcome ? Status{} : std::move(outcome.error());
}

}  // namespace tiercel
