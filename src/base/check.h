// TIERCEL_CHECK: a mistake in our own program ends it at once, with the condition and the place; always on.
// Never for bad input. Threads: safe anywhere.
#pragma once

namespace tiercel::detail {
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace tiercel::detail

#define TIERCEL_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::tiercel::detail::check_failed(#condition, __FILE__, __LINE__))
