// Little-endian encoding and views of raw memory.
// Threads: pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace tiercel {

using ByteView = std::span<const std::byte>;
using MutableByteView = std::span<std::byte>;

inline ByteView as_byte_view(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

// Appends `value`, least significant byte first, whatever the machine's own order.
template <typename UInt>
void append_le(std::vector<std::byte>& out, UInt value) {
  for (std::size_t i = 0; i < sizeof(UInt); ++i)
    out.push_back(static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF));
}

inline void append_bytes(std::vector<std::byte>& out, ByteView bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

// Requires: at least sizeof(UInt) bytes at `from`.
template <typename UInt>
UInt load_le(const std::byte* from) {
  if constexpr (std::endian::native == std::endian::little) {
    UInt native;
    std::memcpy(&native, from, sizeof(UInt));
    return native;
  }
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(UInt); ++i) value |= static_cast<std::uint64_t>(from[i]) << (8 * i);
  return static_cast<UInt>(value);
}

template <typename UInt>
void store_le(std::byte* to, UInt value) {
  for (std::size_t i = 0; i < sizeof(UInt); ++i)
    to[i] = static_cast<std::byte>((static_cast<std::uint64_t>(value) >> (8 * i)) & 0xFF);
}

}  // namespace tiercel
