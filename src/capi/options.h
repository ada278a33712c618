// Structs and lists that cross the ABI: sizes checked before anything is read, nothing beyond what the caller
// says is touched.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/status.h"
#include "capi/answer.h"

namespace tiercel::capi {

// Most entries of any list that goes in: as many as a chain has pages (node/options.h).
inline constexpr std::uint64_t kListMax = std::uint64_t{1} << 22;

// Of a struct that says to have `size` bytes where the library's has `known`. Errors: invalid_argument: no
// multiple of eight, absurd, or an unknown byte beyond `known` is not zero.
Answer check_size(std::string_view name, const void* given, std::uint64_t size, std::uint64_t known);

// The caller's options over `defaults`, which stand where its struct is shorter. Errors: invalid_argument.
template <typename T>
Answer read_options(std::string_view name, const T* given, T& options) {
  static_assert(std::is_trivially_copyable_v<T> && alignof(T) == alignof(std::uint64_t));
  if (given == nullptr) return invalid(fmt::format("{}: options are NULL", name));
  std::uint64_t size = 0;
  std::memcpy(&size, given, sizeof size);
  TIERCEL_RETURN_UNLESS_OK(check_size(name, given, size, sizeof(T)));
  std::memcpy(static_cast<void*>(&options), given,
              static_cast<std::size_t>(std::min<std::uint64_t>(size, sizeof(T))));
  options.size = sizeof(T);
  return {};
}

// The same where NULL means all defaults.
template <typename T>
Answer read_optional(std::string_view name, const T* given, T& options) {
  return given == nullptr ? Answer{} : read_options(name, given, options);
}

// Fills what fits of the caller's sized struct; the rest of it becomes zero, its `size` stays.
template <typename T>
Answer write_sized(std::string_view name, const T& value, T* out) {
  if (out == nullptr) return invalid(fmt::format("{}: the struct to fill is NULL", name));
  std::uint64_t size = 0;
  std::memcpy(&size, out, sizeof size);
  if (size < sizeof size || size % sizeof size != 0 || size > (1U << 20))
    return invalid(fmt::format("{}: size is {}; set it to sizeof of the struct", name, size));
  const auto known = static_cast<std::size_t>(std::min<std::uint64_t>(size, sizeof(T)));
  std::memcpy(static_cast<void*>(out), &value, known);
  std::memcpy(static_cast<void*>(out), &size, sizeof size);
  if (size > known)
    std::memset(reinterpret_cast<char*>(out) + known, 0, static_cast<std::size_t>(size) - known);
  return {};
}

// A list that goes in: NULL only when empty, no more entries than `most`.
template <typename T>
Answer read_list(std::string_view name, const T* list, std::uint64_t count, std::span<const T>& out,
                 std::uint64_t most = kListMax) {
  if (list == nullptr && count != 0) return invalid(fmt::format("{}: NULL with a count of {}", name, count));
  if (count > most) return invalid(fmt::format("{}: {} entries, at most {}", name, count, most));
  out = count == 0 ? std::span<const T>() : std::span<const T>(list, static_cast<std::size_t>(count));
  return {};
}

// A list that comes out: what fits of `values`, their number in *count.
template <typename T>
Answer write_list(std::string_view name, std::span<const T> values, T* out, std::uint64_t capacity,
                  std::uint64_t* count) {
  if (count == nullptr) return invalid(fmt::format("{}: count is NULL", name));
  if (out == nullptr && capacity != 0)
    return invalid(fmt::format("{}: the array is NULL with a capacity of {}", name, capacity));
  const std::uint64_t fits = std::min<std::uint64_t>(capacity, values.size());
  std::copy_n(values.begin(), fits, out);
  *count = values.size();
  return {};
}

Answer read_bytes(std::string_view name, const tiercel_bytes& bytes, std::uint64_t size_max,
                  std::string& out);
// NULL: empty. Errors: invalid_argument: longer than 64 KiB.
Answer read_text(std::string_view name, const char* text, std::string& out);
// Cut to fit, ended by NUL, the rest zero.
void write_text(std::string_view text, std::span<char> out);

// Of a field kept for later versions. Errors: invalid_argument.
Answer check_reserved(std::string_view name, std::uint64_t reserved);

// Requires: value of a closed enumeration of the ABI. Errors: invalid_argument naming it.
Answer check_enum(std::string_view name, std::uint32_t value, std::uint32_t first, std::uint32_t last);

}  // namespace tiercel::capi
