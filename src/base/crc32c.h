// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, initial and final inversion; RFC 3720 appendix B.4
// has test vectors). Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/copy.h"

namespace tiercel {

// The checksum of `bytes`; or, with the checksum of earlier bytes as `crc`, that of both in a row.
// Cost: about twice as fast as memcpy where the processor has wide carry-less multiplication; less on others.
std::uint32_t crc32c(ByteView bytes, std::uint32_t crc = 0);

// Copies `from` to `to` and returns crc32c(from, crc), each byte read once: the sum is of the very bytes that
// were written. `path` as for copy_bytes(); `more_follows`: what lies behind `from` will be read next, and is
// asked for early. Cost: that of the copy. Requires: the ranges do not overlap.
std::uint32_t crc32c_copy(std::byte* to, ByteView from, std::uint32_t crc, WritePath path,
                          bool more_follows = false);
// The same, while `next` is asked for line by line: for many short pieces. Requires: `next` not empty.
std::uint32_t crc32c_copy(std::byte* to, ByteView from, std::uint32_t crc, WritePath path, ByteView next);

namespace detail {

// Exposed so that all bodies are compared in a test.
enum class Crc32cBody : std::uint8_t {
  kTables,      // any processor: eight table look-ups per eight bytes
  kWords,       // x86: the CRC instruction
  kVectors128,  // x86: carry-less multiplication, 16 bytes at once
  kVectors512,  // the same, 64 bytes at once
};
inline constexpr Crc32cBody kCrc32cBodies[] = {Crc32cBody::kTables, Crc32cBody::kWords,
                                               Crc32cBody::kVectors128, Crc32cBody::kVectors512};
bool crc32c_has(Crc32cBody body);
// `to` may be null: no copy. `ahead`: so many bytes further on what is asked for meanwhile lies.
// Requires: crc32c_has(body).
std::uint32_t crc32c_by(Crc32cBody body, std::byte* to, ByteView from, std::uint32_t crc, WritePath path,
                        std::ptrdiff_t ahead = 1024);

// The x86 bodies, on the checksum's inverted state (crc32c_x86.cc).
bool crc32c_x86_has(Crc32cBody body);
std::uint32_t crc32c_x86(Crc32cBody body, std::byte* to, ByteView from, std::uint32_t state, WritePath path,
                         std::ptrdiff_t ahead);

}  // namespace detail

}  // namespace tiercel
