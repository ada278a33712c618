// SHA-256 of bytes, by OpenSSL.
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tiercel::llamacpp {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Of all parts, one behind the other.
Sha256Digest sha256(std::span<const std::span<const std::uint8_t>> parts);
inline Sha256Digest sha256(std::span<const std::uint8_t> bytes) { return sha256(std::span(&bytes, 1)); }
// 64 hex digits.
std::string hex(const Sha256Digest& digest);

}  // namespace tiercel::llamacpp
