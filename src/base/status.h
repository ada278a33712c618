// Outcomes: twelve codes, a message that says what, where, wanted, got and the remedy, and Result<T> for "a
// value or why not". Threads: plain values.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace tiercel {

// One table for C++, C, Python and the wire. Who acts:
enum class Code : unsigned char {
  kOk = 0,
  kInvalidArgument,     // the caller's mistake: the request makes no sense
  kFailedPrecondition,  // the caller's mistake: not in this state
  kNotFound,            // ordinary: nothing there
  kAlreadyExists,       // ordinary: already there (already_present, being_written)
  kCancelled,           // ordinary: somebody asked for it
  kResourceExhausted,   // retry or ask for less: a budget or a queue is full
  kUnavailable,         // retry later
  kDeadlineExceeded,    // ran out of time
  kIoError,             // the copy is unusable: go to the next tier
  kDataCorrupt,         // the copy was damaged and has been dropped
  kUnsupported,         // not built (yet)
  kInternal,            // ours: please report
};
std::string_view code_name(Code code);  // "invalid_argument"

struct [[nodiscard]] Status {
  Code code = Code::kOk;
  std::string message;  // one line, no trailing newline

  bool ok() const { return code == Code::kOk; }
  std::string to_string() const;  // "invalid_argument: tp must be ..."
  friend bool operator==(const Status&, const Status&) = default;
};

template <typename T>
using Result = tl::expected<T, Status>;

inline tl::unexpected<Status> error(Code code, std::string message) {
  return tl::unexpected<Status>(Status{code, std::move(message)});
}

namespace detail {
inline Status status_of(Status status) { return status; }
template <typename T>
Status status_of(const Result<T>& result) {
  return result ? Status{} : result.error();
}
}  // namespace detail

}  // namespace tiercel

// Returns the status or unexpected status of `expression` from this function when it is not ok.
#define TIERCEL_RETURN_IF_ERROR(expression)                                                     \
  do {                                                                                          \
    if (auto tiercel_status_ = ::tiercel::detail::status_of(expression); !tiercel_status_.ok()) \
      return ::tl::unexpected<::tiercel::Status>(std::move(tiercel_status_));                   \
  } while (false)

#define TIERCEL_CONCAT_INNER(a, b) a##b
#define TIERCEL_CONCAT(a, b) TIERCEL_CONCAT_INNER(a, b)
// `declaration` = the value of `expression`, or returns its error from this function.
#define TIERCEL_ASSIGN_OR_RETURN(declaration, expression)              \
  auto TIERCEL_CONCAT(tiercel_result_, __LINE__) = (expression);       \
  if (!TIERCEL_CONCAT(tiercel_result_, __LINE__))                      \
    return ::tl::unexpected<::tiercel::Status>(                        \
        std::move(TIERCEL_CONCAT(tiercel_result_, __LINE__).error())); \
  declaration = std::move(*TIERCEL_CONCAT(tiercel_result_, __LINE__))  // NOLINT(bugprone-macro-parentheses)
