// TOML 1.0 from outside as the JSON value that says the same: tables are objects, times are objects with the
// one key "datetime", so that nobody takes one for text. Strict and bounded in size and depth, as
// model/json_text.h is.
//
// The library for it that distributions have (toml++ 3.3) was tried: within a minute a fuzzer found texts on
// which it is undefined behaviour.
//
// Threads: pure functions.
#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace tiercel {

// Errors: invalid_argument, one line with the number of the text's: no TOML, too long, too deep, a key twice.
Result<nlohmann::json> parse_toml(std::string_view text);

}  // namespace tiercel
