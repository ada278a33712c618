// JSON from outside, made safe before anybody looks at it: bounded in size and depth, each key once, and with
// the bare literals that published configurations contain.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace tiercel {

// Longer texts are refused unread: no configuration comes near it.
inline constexpr std::size_t kMaxJsonBytes = std::size_t{4} << 20;
inline constexpr int kMaxJsonDepth = 64;

// The value of `text`. The bare literals NaN, Infinity and -Infinity, which are not JSON but stand in
// published files, become the floating-point numbers that they name. Errors: invalid_argument, one line: no
// JSON (with line and column), too long, too deep, a key twice.
Result<nlohmann::json> parse_json(std::string_view text);

// `text` on one line and of bounded length, for messages: control characters escaped, a long tail cut.
std::string printable(std::string_view text, std::size_t limit = 60);

// A value as a message shows it: numbers and short texts as they stand (NaN and Infinity too), "a list",
// "an object".
std::string describe(const nlohmann::json& value);

}  // namespace tiercel
