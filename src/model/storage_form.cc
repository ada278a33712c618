#include "model/storage_form.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "base/checked.h"

namespace tiercel {
namespace {

constexpr std::size_t kMaxClasses = 32;  // one presence bit each
constexpr std::string_view kFormVersion = "1";

tl::unexpected<Status> fault(std::string message) {
  return error(Code::kInvalidArgument, std::move(message));
}

// One overload per kind: what a group's kind and need make of its class.
struct RetentionOf {
  const ModelSpec& spec;
  Need need;
  Retention operator()(const FullKind&) const { return RequiredRetention{}; }
  Retention operator()(const WindowKind& window) const {
    return WindowRetention{window.tokens, ceil_div(window.tokens - 1, spec.page_tokens)};
  }
  Retention operator()(const StateKind&) const { return StateRetention{}; }
  Retention operator()(const FollowerKind&) const {
    if (need == Need::kOptional) return OptionalRetention{};
    return RequiredRetention{};
  }
};

// Order of classes in a form: required, window by size, state, optional; sharded before replicated.
struct ClassOrder {
  std::uint32_t retention;
  std::uint64_t window_tokens;
  bool replicated;
  auto operator<=>(const ClassOrder&) const = default;
};
struct RetentionOrder {
  std::pair<std::uint32_t, std::uint64_t> operator()(const RequiredRetention&) const { return {0, 0}; }
  std::pair<std::uint32_t, std::uint64_t> operator()(const WindowRetention& window) const {
    return {1, window.window_tokens};
  }
  std::pair<std::uint32_t, std::uint64_t> operator()(const StateRetention&) const { return {2, 0}; }
  std::pair<std::uint32_t, std::uint64_t> operator()(const OptionalRetention&) const { return {3, 0}; }
};
struct RetentionName {
  std::string operator()(const RequiredRetention&) const { return "full"; }
  std::string operator()(const WindowRetention& window) const {
    return fmt::format("window{}", window.window_tokens);
  }
  std::string operator()(const StateRetention&) const { return "state"; }
  std::string operator()(const OptionalRetention&) const { return "draft"; }
};
struct RetentionText {
  std::string operator()(const RequiredRetention&) const { return "required"; }
  std::string operator()(const WindowRetention& window) const {
    return fmt::format("window {}", window.window_tokens);
  }
  std::string operator()(const StateRetention&) const { return "state"; }
  std::string operator()(const OptionalRetention&) const { return "optional"; }
};

// Appends the runs of one layer at `offset`; false when a size passes 2^63 - 1.
bool append_layer(const ModelSpec& spec, ClassForm& form, std::uint32_t layer,
                  const std::vector<std::uint32_t>& groups) {
  LayerRun run{layer, form.record_bytes, 0, {}};
  for (const std::uint32_t index : groups) {
    const Group& group = spec.groups[index];
    for (std::uint32_t c = 0; c < group.components.size(); ++c) {
      const Component& component = group.components[c];
      const auto length = checked_mul(component.bytes_per_layer, entries_per_record(spec, group, component));
      if (!length) return false;
      if (*length == 0) continue;  // a component without bytes has no run
      const auto end = checked_add(run.length, *length);
      if (!end || !checked_add(run.offset, *end)) return false;
      run.components.push_back({index, c, run.offset + run.length, *length});
      run.length = *end;
    }
  }
  form.record_bytes += run.length;
  form.layers.push_back(std::move(run));
  return true;
}

Result<ClassForm> make_class(const ModelSpec& spec, std::size_t id, bool replicated,
                             const std::vector<std::uint32_t>& groups) {
  ClassForm form;
  const Group& first = spec.groups[groups.front()];
  form.id = ClassId(static_cast<std::uint16_t>(id));
  form.retention = std::visit(RetentionOf{spec, first.need}, first.kind);
  form.name = std::visit(RetentionName{}, form.retention) + (replicated ? ".replicated" : "");
  form.replicated = replicated;
  form.shards = replicated ? std::uint16_t{1} : static_cast<std::uint16_t>(spec.topology.shards());
  form.groups = groups;

  std::map<std::uint32_t, std::vector<std::uint32_t>> groups_of_layer;
  for (const std::uint32_t index : groups)
    for (const std::uint32_t layer : spec.groups[index].layers) groups_of_layer[layer].push_back(index);
  for (const auto& [layer, owners] : groups_of_layer)
    if (!append_layer(spec, form, layer, owners))
      return fault(fmt::format("class {}: its bytes of one record pass 2^63 - 1 (page_tokens {})", form.name,
                               spec.page_tokens));
  if (!checked_mul(form.record_bytes, form.shards))
    return fault(fmt::format("class {}: {} bytes a record times {} shards pass 2^63 - 1", form.name,
                             form.record_bytes, form.shards));
  return form;
}

void append_line(std::string& text, std::string_view field, std::string_view value) {
  text += fmt::format("{}={}\n", field, value);
}

std::string component_text(const Component& component) {
  if (!component.dtype) return fmt::format("opaque[{}]", component.bytes_per_layer);
  return fmt::format("{}[{}]", dtype_name(*component.dtype), fmt::join(component.shape, ","));
}

void append_class(std::string& text, const ModelSpec& spec, const ClassForm& form) {
  const std::string prefix = fmt::format("class {}", form.name);
  append_line(text, prefix + " retention", std::visit(RetentionText{}, form.retention));
  append_line(text, prefix + " sharding", form.replicated ? "replicated" : "per_rank");
  for (std::size_t i = 0; i < form.groups.size(); ++i) {
    const Group& group = spec.groups[form.groups[i]];
    const std::string field = fmt::format("{} group{}", prefix, i);
    append_line(text, field + " kind", kind_name(group.kind));
    append_line(text, field + " tokens_per_entry", std::to_string(group.tokens_per_entry));
    append_line(text, field + " layers", fmt::format("{}", fmt::join(group.layers, ",")));
    for (const Component& component : group.components)
      append_line(text, fmt::format("{} {}", field, component.name), component_text(component));
  }
}

// Geometry only: two models of the same shape share a form. A form whose classes are all replicated is the
// same for every topology.
std::string canonical_text_of(const StorageForm& form) {
  const ModelSpec& spec = form.spec;
  std::string text;
  append_line(text, "form_version", kFormVersion);
  append_line(text, "record_order", "layer,group,component,token,head,dim");
  append_line(text, "page_tokens", std::to_string(spec.page_tokens));
  append_line(text, "pages_per_record", std::to_string(spec.pages_per_record));
  const bool sharded = std::any_of(form.classes.begin(), form.classes.end(),
                                   [](const ClassForm& each) { return !each.replicated; });
  if (sharded) {
    append_line(text, "topology.tp", std::to_string(spec.topology.tp));
    append_line(text, "topology.pp", std::to_string(spec.topology.pp));
    append_line(text, "topology.cp", std::to_string(spec.topology.cp));
  }
  for (const ClassForm& each : form.classes) append_class(text, spec, each);
  return text;
}

// The lines of a canonical text as (field, value), in order.
std::vector<std::pair<std::string_view, std::string_view>> lines_of(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> lines;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    const auto equals = line.find('=');
    lines.emplace_back(line.substr(0, equals), line.substr(equals + 1));
    text.remove_prefix(line.size() + 1);
  }
  return lines;
}

const ClassForm* find_class(const StorageForm& form, std::string_view name) {
  for (const ClassForm& each : form.classes)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace

bool StorageForm::has_required() const {
  return std::any_of(classes.begin(), classes.end(), [](const ClassForm& each) { return each.required(); });
}

std::uint64_t StorageForm::page_bytes_required() const {
  std::uint64_t bytes = 0;
  for (const ClassForm& each : classes)
    if (each.required()) bytes += each.set_bytes();
  return bytes;
}

Result<StorageForm> make_storage_form(ModelSpec spec) {
  TIERCEL_RETURN_IF_ERROR(validate(spec));
  StorageForm form;
  form.spec = std::move(spec);

  std::map<ClassOrder, std::vector<std::uint32_t>> groups_of_class;
  for (std::uint32_t i = 0; i < form.spec.groups.size(); ++i) {
    const Group& group = form.spec.groups[i];
    const Retention retention = std::visit(RetentionOf{form.spec, group.need}, group.kind);
    const auto [order, window_tokens] = std::visit(RetentionOrder{}, retention);
    groups_of_class[{order, window_tokens, group.replicated}].push_back(i);
  }
  if (groups_of_class.size() > kMaxClasses)
    return fault(
        fmt::format("groups: {} classes: wanted at most {} (different windows make different classes)",
                    groups_of_class.size(), kMaxClasses));
  std::uint64_t all_bytes = 0;
  for (const auto& [order, groups] : groups_of_class) {
    TIERCEL_ASSIGN_OR_RETURN(auto made, make_class(form.spec, form.classes.size(), order.replicated, groups));
    const auto sum = checked_add(all_bytes, made.set_bytes());
    if (!sum) return fault("groups: the bytes of one page over all classes and shards pass 2^63 - 1");
    all_bytes = *sum;
    form.classes.push_back(std::move(made));
  }
  form.canonical = canonical_text_of(form);
  form.fingerprint = sha256(as_byte_view(form.canonical));
  return form;
}

std::optional<std::string> first_difference(const StorageForm& a, const StorageForm& b) {
  if (a.canonical == b.canonical) return std::nullopt;
  // A class more or less explains every line that follows from it, topology included.
  for (const auto* pair : {&a, &b}) {
    const StorageForm& other = pair == &a ? b : a;
    for (const ClassForm& each : pair->classes)
      if (find_class(other, each.name) == nullptr) return fmt::format("class {}", each.name);
  }
  for (const auto* pair : {&a, &b}) {
    const auto others = lines_of((pair == &a ? b : a).canonical);
    const std::map<std::string_view, std::string_view> other(others.begin(), others.end());
    for (const auto& [field, value] : lines_of(pair->canonical))
      if (const auto found = other.find(field); found == other.end() || found->second != value)
        return std::string(field);
  }
  return "component order";  // the same lines, so only their order is left to differ
}

}  // namespace tiercel
