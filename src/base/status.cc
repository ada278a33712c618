#include "base/status.h"

#include <array>

namespace tiercel {

std::string_view code_name(Code code) {
  static constexpr std::array<std::string_view, 13> kNames = {"ok",
                                                              "invalid_argument",
                                                              "failed_precondition",
                                                              "not_found",
                                                              "already_exists",
                                                              "cancelled",
                                                              "resource_exhausted",
                                                              "unavailable",
                                                              "deadline_exceeded",
                                                              "io_error",
                                                              "data_corrupt",
                                                              "unsupported",
                                                              "internal"};
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string Status::to_string() const {
  std::string text(code_name(code));
  if (!message.empty()) text += ": " + message;
  return text;
}

}  // namespace tiercel
