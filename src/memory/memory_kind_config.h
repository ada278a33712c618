// The options of memory_kind.h out of an extra configuration: JSON or TOML text with an object in it.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tiercel {

enum class ConfigSyntax : unsigned char { kJson, kToml };

// What it says of memory; its other keys are somebody else's.
struct ExtraConfig {
  std::optional<std::string> memory, allocator, backend;
};

// `where` begins every message. Errors: invalid_argument, one line: malformed, no object, a value that is no
// text.
Result<ExtraConfig> parse_extra_config(std::string_view text, ConfigSyntax syntax, std::string_view where);

}  // namespace tiercel
