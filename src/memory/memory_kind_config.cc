#include "memory/memory_kind_config.h"

#include <utility>

#define TOML_EXCEPTIONS 0
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>

#include "model/json_text.h"

namespace tiercel {
namespace {

tl::unexpected<Status> bad(std::string_view where, std::string_view why) {
  return error(Code::kInvalidArgument, fmt::format("{}: {}", where, why));
}

tl::unexpected<Status> no_text(std::string_view where, std::string_view key, std::string_view got) {
  return bad(where, fmt::format("{}: wanted a name in quotes, got {}", key, got));
}

Result<ExtraConfig> from_json(std::string_view text, std::string_view where) {
  const Result<nlohmann::json> parsed = parse_json(text);
  if (!parsed) return bad(where, parsed.error().message);
  if (!parsed->is_object()) return bad(where, fmt::format("wanted a JSON object, got {}", describe(*parsed)));
  ExtraConfig config;
  for (const auto& [key, slot] :
       {std::pair{"memory", &config.memory}, std::pair{"allocator", &config.allocator},
        std::pair{"backend", &config.backend}}) {
    const auto found = parsed->find(key);
    if (found == parsed->end()) continue;
    if (!found->is_string()) return no_text(where, key, describe(*found));
    *slot = found->get<std::string>();
  }
  return config;
}

// The parser of the library recurses for each bracket and each '.', and knows no bound that is ours.
bool nests_too_deep(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kMaxJsonDepth) return true;
  }
  return false;
}

Result<ExtraConfig> from_toml(std::string_view text, std::string_view where) {
  if (text.size() > kMaxJsonBytes)
    return bad(where, fmt::format("wanted at most {} bytes of TOML, got {}", kMaxJsonBytes, text.size()));
  if (nests_too_deep(text))
    return bad(where, fmt::format("TOML nested deeper than {} levels", kMaxJsonDepth));
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed)
    return bad(where, fmt::format("no TOML: line {}: {}", parsed.error().source().begin.line,
                                  printable(parsed.error().description(), 200)));
  ExtraConfig config;
  for (const auto& [key, slot] :
       {std::pair{"memory", &config.memory}, std::pair{"allocator", &config.allocator},
        std::pair{"backend", &config.backend}}) {
    const toml::node* found = parsed.table().get(key);
    if (found == nullptr) continue;
    const std::optional<std::string> value = found->value_exact<std::string>();
    if (!value) return no_text(where, key, "something else");
    *slot = *value;
  }
  return config;
}

}  // namespace

Result<ExtraConfig> parse_extra_config(std::string_view text, ConfigSyntax syntax, std::string_view where) {
  return syntax == ConfigSyntax::kJson ? from_json(text, where) : from_toml(text, where);
}

}  // namespace tiercel
