#include "model/inspect.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/sizes.h"
#include "model/identity.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Json component_json(const Component& component) {
  Json json = {{"name", component.name}};
  if (component.dtype) {
    json["shape"] = component.shape;
    json["dtype"] = dtype_name(*component.dtype);
  } else {
    json["opaque"] = true;
  }
  json["bytes_per_layer"] = component.bytes_per_layer;
  return json;
}

// The fields that only one kind has.
struct AddKindFields {
  Json& json;
  void operator()(const FullKind&) const {}
  void operator()(const WindowKind& window) const { json["window_tokens"] = window.tokens; }
  void operator()(const StateKind&) const {}
  void operator()(const FollowerKind&) const { json["of"] = "full"; }
};

Json group_json(const ModelSpec& spec, const Group& group) {
  Json json = {{"kind", kind_name(group.kind)}, {"layers", group.layers}, {"components", Json::array()}};
  for (const Component& component : group.components) json["components"].push_back(component_json(component));
  json["replicated"] = group.replicated;
  std::visit(AddKindFields{json}, group.kind);
  if (group.need == Need::kOptional) json["optional"] = true;
  if (group.tokens_per_entry > 1) json["tokens_per_entry"] = group.tokens_per_entry;
  const bool state = std::holds_alternative<StateKind>(group.kind);
  json[state ? "snapshot_bytes" : "page_bytes"] = group_bytes(spec, group);
  return json;
}

// "0-2, 4, 6-8".
std::string condensed(const std::vector<std::uint32_t>& layers) {
  std::string text;
  for (const LayerIdRun& run : runs_of(layers)) {
    text += text.empty() ? "" : ", ";
    text += run.last == run.first ? fmt::format("{}", run.first) : fmt::format("{}-{}", run.first, run.last);
  }
  return text;
}

// Text for people -------------------------------------------------------------------------------------------

// A table whose columns are as wide as their widest cell; numbers stand to the right.
class Table {
 public:
  Table(std::vector<std::string> header, std::vector<bool> right) : right_(std::move(right)) {
    rows_.push_back(std::move(header));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text(std::string_view bold, std::string_view plain) const {
    std::vector<std::size_t> widths(right_.size());
    for (const auto& row : rows_)
      for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t c = 0; c < row.size(); ++c)
        line += right_[c] ? fmt::format("  {:>{}}", row[c], widths[c])
                          : fmt::format("  {:<{}}", row[c], widths[c]);
      line.erase(line.find_last_not_of(' ') + 1);
      out += &row == &rows_.front() ? fmt::format("{}{}{}\n", bold, line, plain) : line + "\n";
    }
    return out;
  }

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;
};

struct Style {
  std::string_view bold;
  std::string_view dim;
  std::string_view plain;
};

std::string shapes(const Group& group) {
  std::string text;
  for (const Component& component : group.components) {
    text += text.empty() ? "" : ", ";
    if (component.dtype)
      text += fmt::format("{} [{}] {}", component.name, fmt::join(component.shape, ", "),
                          dtype_name(*component.dtype));
    else
      text += fmt::format("{} opaque {}", component.name, format_size(component.bytes_per_layer));
  }
  return text;
}

std::string kind_text(const Group& group) {
  std::string text(kind_name(group.kind));
  if (const auto* window = std::get_if<WindowKind>(&group.kind)) text += fmt::format(" {}", window->tokens);
  if (group.tokens_per_entry > 1) text += fmt::format(" 1:{}", group.tokens_per_entry);
  if (group.need == Need::kOptional) text += ", optional";
  return text;
}

// Bytes of one token: of a page, divided. Not whole for compressed groups, nothing for opaque ones and
// states.
std::string token_bytes(const ModelSpec& spec, const Group& group) {
  const bool opaque = std::any_of(group.components.begin(), group.components.end(),
                                  [](const Component& component) { return !component.dtype; });
  if (opaque || std::holds_alternative<StateKind>(group.kind)) return "-";
  const std::uint64_t bytes = group_bytes(spec, group);
  if (bytes % spec.page_tokens == 0) return fmt::format("{}", bytes / spec.page_tokens);
  return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(spec.page_tokens));
}

std::string group_table(const ModelSpec& spec, const Style& style) {
  Table table({"#", "kind", "layers", "B/token", "page", "snapshot", "ranks", "one layer, one rank"},
              {true, false, true, true, true, true, false, false});
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    const Group& group = spec.groups[i];
    const bool state = std::holds_alternative<StateKind>(group.kind);
    const std::string bytes = format_size(group_bytes(spec, group));
    table.add({fmt::format("{}", i), kind_text(group), fmt::format("{}", group.layers.size()),
               token_bytes(spec, group), state ? "-" : bytes, state ? bytes : "-",
               group.replicated ? "same" : "own", shapes(group)});
  }
  std::string text = table.text(style.bold, style.plain);
  for (std::size_t i = 0; i < spec.groups.size(); ++i)
    text += fmt::format("  layers of {}: {}\n", i, condensed(spec.groups[i].layers));
  return text;
}

struct RetentionWords {
  std::string operator()(const RequiredRetention&) const { return "every page needed"; }
  std::string operator()(const WindowRetention& window) const {
    return fmt::format("last {} page{} before a resume point", window.pages, window.pages == 1 ? "" : "s");
  }
  std::string operator()(const StateRetention&) const { return "one snapshot at a resume point"; }
  std::string operator()(const OptionalRetention&) const { return "may be absent"; }
};

std::string class_table(const StorageForm& form, const Style& style) {
  Table table({"class", "record", "shards", "class-set", "groups", "1 GiB holds", "needed"},
              {false, true, true, true, false, true, false});
  for (const ClassForm& each : form.classes) {
    const std::uint64_t records = kGiB / each.set_bytes();
    const std::string holds = each.is_state() ? fmt::format("{} snapshots", records)
                                              : fmt::format("{} tokens", records * form.spec.page_tokens);
    table.add({each.name, format_size(each.record_bytes), fmt::format("{}", each.shards),
               format_size(each.set_bytes()), fmt::format("{}", fmt::join(each.groups, ",")), holds,
               std::visit(RetentionWords{}, each.retention)});
  }
  return table.text(style.bold, style.plain);
}

// What one resume point costs beside the pages that every prefix shares.
std::string totals(const StorageForm& form) {
  std::uint64_t required = form.page_bytes_required();
  std::uint64_t sparse = 0;
  for (const ClassForm& each : form.classes) {
    // A window longer than any memory is cut at what a 64-bit size can say.
    const auto bytes = each.is_window() ? checked_mul(each.set_bytes(), each.window_pages())
                                        : std::optional(each.is_state() ? each.set_bytes() : 0);
    sparse = checked_add(sparse, bytes.value_or(kSizeMax)).value_or(kSizeMax);
  }
  std::string text = fmt::format("  a page, all ranks: {} required", format_size(required));
  if (required != 0)
    text += fmt::format("; 1 GiB holds {} pages = {} tokens", kGiB / required,
                        kGiB / required * form.spec.page_tokens);
  text += "\n";
  if (sparse != 0)
    text += fmt::format("  a resume point, all ranks: {} of windows and states beside its pages\n",
                        format_size(sparse));
  return text;
}

std::string hex(const Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::string indented(std::string_view lines, const Style& style) {
  std::string text;
  while (!lines.empty()) {
    const auto line = lines.substr(0, lines.find('\n'));
    // An identity field that only an open can fill is empty here.
    if (!line.ends_with('=')) text += fmt::format("  {}{}{}\n", style.dim, line, style.plain);
    lines.remove_prefix(line.size() + 1);
  }
  return text;
}

// The two halves of a namespace, as far as a configuration knows them.
std::string namespace_text(const StorageForm& form, const Style& style) {
  ContentIdentity identity;
  identity.model = form.spec.model_type;
  identity.page_tokens = form.spec.page_tokens;
  if (const auto dtype = form.spec.groups.front().components.front().dtype)
    identity.dtype = dtype_name(*dtype);
  std::string text = fmt::format(
      "\n{}Namespace: content identity{} (weights, quantisation, rope, adapter, tenant: said at open)\n",
      style.bold, style.plain);
  text += indented(canonical_text(identity), style);
  text += fmt::format("\n{}Namespace: storage form{} sha256:{}\n", style.bold, style.plain,
                      hex(form.fingerprint));
  return text + indented(form.canonical, style);
}

}  // namespace

std::string inspect_json(const ModelSpec& spec) {
  Json json = {{"model_type", spec.model_type},
               {"page_tokens", spec.page_tokens},
               {"tp", spec.topology.tp},
               {"groups", Json::array()}};
  for (const Group& group : spec.groups) json["groups"].push_back(group_json(spec, group));
  json["no_cache_layers"] = spec.no_cache_layers;
  json["draft_layers"] = spec.draft_layers;
  return json.dump();
}

std::string inspect_text(const StorageForm& form, bool colour) {
  const ModelSpec& spec = form.spec;
  const Style style = colour ? Style{"\x1b[1m", "\x1b[2m", "\x1b[0m"} : Style{};
  std::string text = fmt::format("{}{}{}: pages of {} tokens, tp {}\n\n", style.bold,
                                 printable(spec.model_type), style.plain, spec.page_tokens, spec.topology.tp);
  text += fmt::format("{}Groups{} (bytes of one rank)\n", style.bold, style.plain) + group_table(spec, style);
  if (!spec.no_cache_layers.empty())
    text += fmt::format("  layers without a cache: {}\n", condensed(spec.no_cache_layers));
  if (!spec.draft_layers.empty()) text += fmt::format("  draft layers: {}\n", condensed(spec.draft_layers));
  text += fmt::format("\n{}Classes{} (what is stored and dropped together)\n", style.bold, style.plain);
  text += class_table(form, style) + "\n" + totals(form);
  return text + namespace_text(form, style);
}

}  // namespace tiercel
