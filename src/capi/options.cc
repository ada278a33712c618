#include "capi/options.h"

namespace tiercel::capi {

namespace {
constexpr std::uint64_t kStructMax = std::uint64_t{1} << 20;
constexpr std::uint64_t kTextMax = std::uint64_t{64} << 10;
}  // namespace

Answer check_size(std::string_view name, const void* given, std::uint64_t size, std::uint64_t known) {
  if (size < sizeof size || size % sizeof size != 0 || size > kStructMax)
    return invalid(fmt::format("{}: size is {}; set it to sizeof of the struct ({} in this library)", name,
                               size, known));
  if (size <= known) return {};
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::uint64_t at = known; at < size; ++at)
    if (bytes[at] != 0)
      return invalid(
          fmt::format("{}: size is {}, this library knows {} bytes, and byte {} is not zero: it asks for "
                      "something newer; "
                      "leave it zero or use a newer library",
                      name, size, known, at));
  return {};
}

Answer read_bytes(std::string_view name, const tiercel_bytes& bytes, std::uint64_t size_max,
                  std::string& out) {
  if (bytes.data == nullptr && bytes.size != 0)
    return invalid(fmt::format("{}: data is NULL with a size of {}", name, bytes.size));
  if (bytes.size > size_max)
    return invalid(fmt::format("{}: {} bytes, at most {}", name, bytes.size, size_max));
  if (bytes.size == 0)
    out.clear();
  else
    out.assign(static_cast<const char*>(bytes.data), static_cast<std::size_t>(bytes.size));
  return {};
}

Answer read_text(std::string_view name, const char* text, std::string& out) {
  out.clear();
  if (text == nullptr) return {};
  const std::size_t length = ::strnlen(text, kTextMax + 1);
  if (length > kTextMax) return invalid(fmt::format("{}: longer than {} bytes", name, kTextMax));
  out.assign(text, length);
  return {};
}

void write_text(std::string_view text, std::span<char> out) {
  const std::size_t length = std::min(text.size(), out.size() - 1);
  std::copy_n(text.begin(), length, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), '\0');
}

Answer check_reserved(std::string_view name, std::uint64_t reserved) {
  if (reserved == 0) return {};
  return invalid(fmt::format(
      "{}: reserved is {}, wanted 0: a newer library may give it a meaning; fill the struct with zeros first",
      name, reserved));
}

Answer check_enum(std::string_view name, std::uint32_t value, std::uint32_t first, std::uint32_t last) {
  if (value >= first && value <= last) return {};
  return invalid(fmt::format("{}: {} is unknown; wanted {} to {}", name, value, first, last));
}

}  // namespace tiercel::capi
