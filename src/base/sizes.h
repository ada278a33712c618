// Sizes as people write them: "32GiB", "64 KiB", "1048576".
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tiercel {

// Bytes named by `text`: a whole or decimal number and one of B, KiB, MiB, GiB, TiB (binary), KB, MB, GB, TB
// (decimal); no unit = bytes. Errors: invalid_argument with the text and the accepted forms.
Result<std::uint64_t> parse_size(std::string_view text);

// Short, for people: "12.0 MiB". Exact multiples print without a fraction.
std::string format_size(std::uint64_t bytes);

}  // namespace tiercel
