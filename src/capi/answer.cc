#include "capi/answer.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <system_error>

namespace tiercel::capi {

static_assert(static_cast<int>(Code::kInvalidArgument) == TIERCEL_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::kFailedPrecondition) == TIERCEL_FAILED_PRECONDITION);
static_assert(static_cast<int>(Code::kNotFound) == TIERCEL_NOT_FOUND);
static_assert(static_cast<int>(Code::kAlreadyExists) == TIERCEL_ALREADY_EXISTS);
static_assert(static_cast<int>(Code::kCancelled) == TIERCEL_CANCELLED);
static_assert(static_cast<int>(Code::kResourceExhausted) == TIERCEL_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(Code::kUnavailable) == TIERCEL_UNAVAILABLE);
static_assert(static_cast<int>(Code::kDeadlineExceeded) == TIERCEL_DEADLINE_EXCEEDED);
static_assert(static_cast<int>(Code::kIoError) == TIERCEL_IO_ERROR);
static_assert(static_cast<int>(Code::kDataCorrupt) == TIERCEL_DATA_CORRUPT);
static_assert(static_cast<int>(Code::kUnsupported) == TIERCEL_UNSUPPORTED);
static_assert(static_cast<int>(Code::kInternal) == TIERCEL_INTERNAL);

Answer::Answer(Status status)
    : code(static_cast<tiercel_status>(status.code)), message(std::move(status.message)) {}

namespace {
tiercel_status write(tiercel_status code, std::string_view message, tiercel_error* error) noexcept {
  if (error == nullptr) return code;
  error->code = code;
  error->reserved = 0;
  const std::size_t length = std::min(message.size(), sizeof error->message - 1);
  std::memcpy(error->message, message.data(), length);
  std::memset(error->message + length, 0, sizeof error->message - length);
  return code;
}
}  // namespace

tiercel_status report(const Answer& answer, tiercel_error* error) noexcept {
  if (answer.ok()) return TIERCEL_OK;
  return write(answer.code, answer.message, error);
}

tiercel_status report_exception(tiercel_error* error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return write(TIERCEL_RESOURCE_EXHAUSTED, "no memory for this call; ask for less", error);
  } catch (const std::system_error& what) {
    const bool scarce = what.code() == std::errc::resource_unavailable_try_again;
    return write(scarce ? TIERCEL_RESOURCE_EXHAUSTED : TIERCEL_INTERNAL,
                 scarce ? "no thread for this call; ask for fewer, or raise ulimit -u" : what.what(), error);
  } catch (const std::exception& what) {
    return write(TIERCEL_INTERNAL, what.what(), error);
  } catch (...) {
    return write(TIERCEL_INTERNAL, "an unknown exception", error);
  }
}

}  // namespace tiercel::capi
