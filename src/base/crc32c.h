// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78, initial and final inversion; RFC 3720 appendix B.4
// has test vectors). Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace tiercel {

// The checksum of `bytes`; or, with the checksum of earlier bytes as `crc`, that of both in a row.
// Cost: the processor's own instruction where it has one, else eight table look-ups per eight bytes.
std::uint32_t crc32c(ByteView bytes, std::uint32_t crc = 0);

namespace detail {
std::uint32_t crc32c_portable(ByteView bytes,
                              std::uint32_t crc);  // exposed so that both bodies are compared in a test
}

}  // namespace tiercel
