#include "memory/memory_kind_config.h"

#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "memory/toml_text.h"
#include "model/json_text.h"

namespace tiercel {
namespace {

tl::unexpected<Status> bad(std::string_view where, std::string_view why) {
  return error(Code::kInvalidArgument, fmt::format("{}: {}", where, why));
}

}  // namespace

Result<ExtraConfig> parse_extra_config(std::string_view text, ConfigSyntax syntax, std::string_view where) {
  const Result<nlohmann::json> parsed = syntax == ConfigSyntax::kJson ? parse_json(text) : parse_toml(text);
  if (!parsed) return bad(where, parsed.error().message);
  if (!parsed->is_object()) return bad(where, fmt::format("wanted a JSON object, got {}", describe(*parsed)));
  ExtraConfig config;
  for (const auto& [key, slot] :
       {std::pair{"memory", &config.memory}, std::pair{"allocator", &config.allocator},
        std::pair{"backend", &config.backend}}) {
    const auto found = parsed->find(key);
    if (found == parsed->end()) continue;
    if (!found->is_string())
      return bad(where, fmt::format("{}: wanted a name in quotes, got {}", key, describe(*found)));
    *slot = found->get<std::string>();
  }
  return config;
}

}  // namespace tiercel
