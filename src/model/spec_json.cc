#include "model/spec_json.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

using Json = nlohmann::json;
using Keys = std::initializer_list<std::string_view>;

constexpr std::string_view kVersionKey = "tiercel_spec";
constexpr std::uint64_t kVersion = 1;

// One object of the text. `where` names it in messages: "", "groups[2].".
class Reader final {
 public:
  Reader(const Json& object, std::string_view file, std::string where)
      : object_(object), file_(file), where_(std::move(where)) {}

  tl::unexpected<Status> fault(std::string_view key, std::string_view why) const {
    return error(Code::kInvalidArgument, fmt::format("{}: {}{}: {}", file_, where_, key, why));
  }
  const Json* find(std::string_view key) const {
    const auto found = object_.find(key);
    return found == object_.end() ? nullptr : &*found;
  }
  Result<const Json*> need(std::string_view key) const {
    if (const Json* value = find(key)) return value;
    return fault(key, "is missing");
  }
  Result<void> only(Keys keys) const {
    for (const auto& [key, value] : object_.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        return fault(printable(key), fmt::format("unknown key: wanted one of {}", fmt::join(keys, ", ")));
    return {};
  }
  Result<std::uint64_t> number(std::string_view key, const Json& value, std::uint64_t most = kSizeMax) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      return fault(key, fmt::format("wanted an integer from 0 to {}, is {}", most, describe(value)));
    return value.get<std::uint64_t>();
  }
  Result<std::uint64_t> number(std::string_view key) const {
    TIERCEL_ASSIGN_OR_RETURN(const Json* value, need(key));
    return number(key, *value);
  }
  Result<std::uint64_t> number_or(std::string_view key, std::uint64_t absent,
                                  std::uint64_t most = kSizeMax) const {
    const Json* value = find(key);
    return value == nullptr ? absent : number(key, *value, most);
  }
  Result<bool> flag(std::string_view key) const {  // absent: false
    const Json* value = find(key);
    if (value == nullptr) return false;
    if (!value->is_boolean()) return fault(key, fmt::format("wanted true or false, is {}", describe(*value)));
    return value->get<bool>();
  }
  Result<std::string> text(std::string_view key) const {
    TIERCEL_ASSIGN_OR_RETURN(const Json* value, need(key));
    if (!value->is_string()) return fault(key, fmt::format("wanted a text, is {}", describe(*value)));
    return value->get<std::string>();
  }
  Result<const Json*> list(std::string_view key) const {
    TIERCEL_ASSIGN_OR_RETURN(const Json* value, need(key));
    if (!value->is_array()) return fault(key, fmt::format("wanted a list, is {}", describe(*value)));
    return value;
  }
  Result<Reader> object(std::string_view key, const Json& value) const {
    if (!value.is_object()) return fault(key, fmt::format("wanted an object, is {}", describe(value)));
    return Reader(value, file_, fmt::format("{}{}.", where_, key));
  }
  // Ids and [first, last] runs of them.
  Result<std::vector<std::uint32_t>> layers(std::string_view key) const;

 private:
  const Json& object_;
  std::string_view file_;
  std::string where_;
};

Result<std::vector<std::uint32_t>> Reader::layers(std::string_view key) const {
  TIERCEL_ASSIGN_OR_RETURN(const Json* value, list(key));
  std::vector<std::uint32_t> layers;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const Json& each = (*value)[i];
    const std::string field = fmt::format("{}[{}]", key, i);
    const bool run = each.is_array() && each.size() == 2;
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t first,
                             number(field, run ? each[0] : each, kMaxLayerIds - 1));
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t last, number(field, run ? each[1] : each, kMaxLayerIds - 1));
    if (last < first) return fault(field, fmt::format("wanted [first, last], is [{}, {}]", first, last));
    // Ascending, each once: so that a text of many runs cannot name more layers than there are.
    if (!layers.empty() && first <= layers.back())
      return fault(field,
                   fmt::format("layer {} after {}: wanted ascending ids, each once", first, layers.back()));
    for (std::uint64_t layer = first; layer <= last; ++layer)
      layers.push_back(static_cast<std::uint32_t>(layer));
  }
  return layers;
}

Result<std::vector<std::uint64_t>> read_numbers(const Reader& reader, const char* field) {
  TIERCEL_ASSIGN_OR_RETURN(const Json* list, reader.list(field));
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < list->size(); ++i) {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t number,
                             reader.number(fmt::format("{}[{}]", field, i), (*list)[i]));
    numbers.push_back(number);
  }
  return numbers;
}

Result<Component> read_component(const Reader& reader) {
  TIERCEL_RETURN_IF_ERROR(reader.only({"name", "shape", "dtype", "sections", "opaque_bytes"}));
  Component component;
  TIERCEL_ASSIGN_OR_RETURN(component.name, reader.text("name"));
  if (reader.find("opaque_bytes") != nullptr) {
    for (const char* key : {"shape", "dtype", "sections"})
      if (reader.find(key) != nullptr) return reader.fault(key, "an opaque component has none");
    TIERCEL_ASSIGN_OR_RETURN(component.bytes_per_layer, reader.number("opaque_bytes"));
    return component;
  }
  TIERCEL_ASSIGN_OR_RETURN(const std::string dtype, reader.text("dtype"));
  component.dtype = dtype_from_name(dtype);
  if (!component.dtype)
    return reader.fault("dtype",
                        fmt::format("wanted bf16, fp16, fp8, f32 or u8, is \"{}\"", printable(dtype)));
  TIERCEL_ASSIGN_OR_RETURN(component.shape, read_numbers(reader, "shape"));
  if (reader.find("sections") != nullptr) {
    TIERCEL_ASSIGN_OR_RETURN(component.sections, read_numbers(reader, "sections"));
  }
  const auto bytes = shape_bytes(component.shape, *component.dtype);
  if (!bytes) return reader.fault("shape", "its bytes pass 2^63 - 1");
  component.bytes_per_layer = *bytes;
  return component;
}

Result<void> read_kind(const Reader& reader, Group& group) {
  constexpr std::array<std::string_view, 4> kOfOneKind = {"window_tokens", "of", "optional",
                                                          "tokens_per_entry"};
  TIERCEL_ASSIGN_OR_RETURN(const std::string kind, reader.text("kind"));
  const auto refuse_others = [&](Keys own) -> Result<void> {
    for (const std::string_view key : kOfOneKind)
      if (reader.find(key) != nullptr && std::find(own.begin(), own.end(), key) == own.end())
        return reader.fault(key, fmt::format("a {} group has none", kind));
    return {};
  };
  if (kind == "full") {
    group.kind = FullKind{};
    return refuse_others({"tokens_per_entry"});
  }
  if (kind == "window") {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t tokens, reader.number("window_tokens"));
    group.kind = WindowKind{tokens};
    group.need = Need::kSparse;
    return refuse_others({"window_tokens"});
  }
  if (kind == "state") {
    group.kind = StateKind{};
    group.need = Need::kSparse;
    return refuse_others({});
  }
  if (kind == "follower") {
    TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t of, reader.number_or("of", 0, UINT32_MAX));
    TIERCEL_ASSIGN_OR_RETURN(const bool optional, reader.flag("optional"));
    group.kind = FollowerKind{static_cast<std::uint32_t>(of)};
    group.need = optional ? Need::kOptional : Need::kRequired;
    return refuse_others({"of", "optional", "tokens_per_entry"});
  }
  return reader.fault("kind",
                      fmt::format("wanted full, window, state or follower, is \"{}\"", printable(kind)));
}

Result<Group> read_group(const Reader& reader) {
  TIERCEL_RETURN_IF_ERROR(reader.only(
      {"kind", "layers", "components", "replicated", "window_tokens", "of", "optional", "tokens_per_entry"}));
  Group group;
  TIERCEL_RETURN_IF_ERROR(read_kind(reader, group));
  TIERCEL_ASSIGN_OR_RETURN(group.layers, reader.layers("layers"));
  TIERCEL_ASSIGN_OR_RETURN(group.replicated, reader.flag("replicated"));
  TIERCEL_ASSIGN_OR_RETURN(group.tokens_per_entry, reader.number_or("tokens_per_entry", 1));
  TIERCEL_ASSIGN_OR_RETURN(const Json* components, reader.list("components"));
  for (std::size_t i = 0; i < components->size(); ++i) {
    TIERCEL_ASSIGN_OR_RETURN(const Reader each,
                             reader.object(fmt::format("components[{}]", i), (*components)[i]));
    TIERCEL_ASSIGN_OR_RETURN(auto component, read_component(each));
    group.components.push_back(std::move(component));
  }
  return group;
}

Result<Topology> read_topology(const Reader& top) {
  const Json* value = top.find("topology");
  if (value == nullptr) return Topology{};
  TIERCEL_ASSIGN_OR_RETURN(const Reader reader, top.object("topology", *value));
  TIERCEL_RETURN_IF_ERROR(reader.only({"tp", "pp", "cp"}));
  const auto ranks = [&](std::string_view key) { return reader.number_or(key, 1, UINT32_MAX); };
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t tp, ranks("tp"));
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t pp, ranks("pp"));
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t cp, ranks("cp"));
  return Topology{static_cast<std::uint32_t>(tp), static_cast<std::uint32_t>(pp),
                  static_cast<std::uint32_t>(cp)};
}

Result<ModelSpec> read_spec(const Reader& reader, std::optional<std::uint64_t> page_tokens) {
  TIERCEL_RETURN_IF_ERROR(reader.only(
      {kVersionKey, "model_type", "page_tokens", "topology", "groups", "no_cache_layers", "draft_layers"}));
  TIERCEL_ASSIGN_OR_RETURN(const std::uint64_t version, reader.number(kVersionKey));
  if (version != kVersion)
    return reader.fault(kVersionKey, fmt::format("wanted {}, is {}", kVersion, version));
  ModelSpec spec;
  TIERCEL_ASSIGN_OR_RETURN(spec.model_type, reader.text("model_type"));
  TIERCEL_ASSIGN_OR_RETURN(spec.page_tokens, reader.number("page_tokens"));
  if (page_tokens) spec.page_tokens = *page_tokens;
  TIERCEL_ASSIGN_OR_RETURN(spec.topology, read_topology(reader));
  TIERCEL_ASSIGN_OR_RETURN(const Json* groups, reader.list("groups"));
  for (std::size_t i = 0; i < groups->size(); ++i) {
    TIERCEL_ASSIGN_OR_RETURN(const Reader each, reader.object(fmt::format("groups[{}]", i), (*groups)[i]));
    TIERCEL_ASSIGN_OR_RETURN(auto group, read_group(each));
    spec.groups.push_back(std::move(group));
  }
  if (reader.find("no_cache_layers") != nullptr) {
    TIERCEL_ASSIGN_OR_RETURN(spec.no_cache_layers, reader.layers("no_cache_layers"));
  }
  if (reader.find("draft_layers") != nullptr) {
    TIERCEL_ASSIGN_OR_RETURN(spec.draft_layers, reader.layers("draft_layers"));
  }
  return spec;
}

// Writing
// ----------------------------------------------------------------------------------------------------

using Ordered = nlohmann::ordered_json;

Ordered layers_json(const std::vector<std::uint32_t>& layers) {
  Ordered json = Ordered::array();
  for (const LayerIdRun& run : runs_of(layers))
    if (run.last == run.first)
      json.push_back(run.first);
    else
      json.push_back({run.first, run.last});
  return json;
}

struct WriteKind {
  Ordered& json;
  Need need;
  void operator()(const FullKind&) const {}
  void operator()(const WindowKind& window) const { json["window_tokens"] = window.tokens; }
  void operator()(const StateKind&) const {}
  void operator()(const FollowerKind& follower) const {
    json["of"] = follower.of;
    if (need == Need::kOptional) json["optional"] = true;
  }
};

Ordered group_json(const Group& group) {
  Ordered json = {{"kind", kind_name(group.kind)}};
  std::visit(WriteKind{json, group.need}, group.kind);
  if (group.tokens_per_entry > 1) json["tokens_per_entry"] = group.tokens_per_entry;
  if (group.replicated) json["replicated"] = true;
  json["layers"] = layers_json(group.layers);
  json["components"] = Ordered::array();
  for (const Component& component : group.components) {
    Ordered each = {{"name", component.name}};
    if (component.dtype) {
      each["shape"] = component.shape;
      each["dtype"] = dtype_name(*component.dtype);
      if (!component.sections.empty()) each["sections"] = component.sections;
    } else {
      each["opaque_bytes"] = component.bytes_per_layer;
    }
    json["components"].push_back(std::move(each));
  }
  return json;
}

}  // namespace

bool is_spec_json(std::string_view text) {
  const auto json = parse_json(text);
  return json && json->is_object() && json->contains(kVersionKey);
}

Result<ModelSpec> read_spec_json(std::string_view text, std::string_view file,
                                 std::optional<std::uint64_t> page_tokens) {
  const auto json = parse_json(text);
  if (!json) return error(json.error().code, fmt::format("{}: {}", file, json.error().message));
  if (!json->is_object())
    return error(Code::kInvalidArgument,
                 fmt::format("{}: wanted a JSON object, is {}", file, describe(*json)));
  TIERCEL_ASSIGN_OR_RETURN(auto spec, read_spec(Reader(*json, file, ""), page_tokens));
  if (Status status = validate(spec); !status.ok())
    return error(status.code, fmt::format("{}: {}", file, status.message));
  return spec;
}

std::string write_spec_json(const ModelSpec& spec) {
  Ordered json = {
      {kVersionKey, kVersion}, {"model_type", spec.model_type}, {"page_tokens", spec.page_tokens}};
  json["topology"] = {{"tp", spec.topology.tp}, {"pp", spec.topology.pp}, {"cp", spec.topology.cp}};
  json["groups"] = Ordered::array();
  for (const Group& group : spec.groups) json["groups"].push_back(group_json(group));
  json["no_cache_layers"] = layers_json(spec.no_cache_layers);
  json["draft_layers"] = layers_json(spec.draft_layers);
  return json.dump(2) + "\n";
}

}  // namespace tiercel
