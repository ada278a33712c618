// How a call of the C ABI ends: a code of the ABI and a message, written into the caller's error struct. No
// exception passes this point.
//
// Threads: pure functions on plain values.
#pragma once

#include <string>
#include <utility>

#include <tiercel/types.h>

#include "base/status.h"

namespace tiercel::capi {

struct [[nodiscard]] Answer {
  tiercel_status code = TIERCEL_OK;
  std::string message;

  Answer() = default;
  Answer(tiercel_status wanted, std::string why) : code(wanted), message(std::move(why)) {}
  Answer(Status status);  // NOLINT(google-explicit-constructor): every Status is an answer
  bool ok() const { return code == TIERCEL_OK; }
};

inline Answer invalid(std::string why) { return {TIERCEL_INVALID_ARGUMENT, std::move(why)}; }
inline Answer unsupported(std::string why) { return {TIERCEL_UNSUPPORTED, std::move(why)}; }

// Fills `error` (may be null) when the answer is not ok. Returns: its code.
tiercel_status report(const Answer& answer, tiercel_error* error) noexcept;
// The same of the exception that is being handled.
tiercel_status report_exception(tiercel_error* error) noexcept;

// The frame of every call: `body` gives an Answer; what it throws becomes one.
template <typename Body>
tiercel_status answer(tiercel_error* error, const Body& body) noexcept {
  try {
    return report(body(), error);
  } catch (...) {
    return report_exception(error);
  }
}

}  // namespace tiercel::capi

// Returns the answer of `expression` from this function when it is not ok.
#define TIERCEL_RETURN_UNLESS_OK_AS(name, expression)                         \
  do {                                                                        \
    /* NOLINTNEXTLINE(bugprone-macro-parentheses): a name is declared */      \
    if (::tiercel::capi::Answer name = (expression); !name.ok()) return name; \
  } while (false)
#define TIERCEL_RETURN_UNLESS_OK(expression) \
  TIERCEL_RETURN_UNLESS_OK_AS(TIERCEL_CONCAT(tiercel_answer_, __COUNTER__), expression)
