// SHA-256 (FIPS 180-4). Long and irregular input by OpenSSL; many short messages of one length, as keys of
// pages are, by the processor's own instructions where it has them, several messages in step.
//
// Threads: pure functions; a Sha256 is used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/bytes.h"

namespace tiercel {

using Digest = std::array<std::byte, 32>;

class Sha256 final {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(ByteView bytes);
  // The digest of all bytes since construction or the last finish; the object starts afresh.
  Digest finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Digest sha256(ByteView bytes);

inline constexpr std::size_t kSha256BlockBytes = 64;
// So many messages are hashed in step. One alone waits for each instruction's result; four take little more
// than half of four times as long.
inline constexpr std::size_t kSha256Lanes = 4;

// Length of a message of `bytes` bytes with the padding that ends it: whole blocks.
constexpr std::size_t sha256_padded_bytes(std::size_t bytes) {
  return (bytes + 1 + 8 + kSha256BlockBytes - 1) / kSha256BlockBytes * kSha256BlockBytes;
}
// Writes the padding behind the first `bytes` of `message`. Requires: message is exactly so long.
void sha256_pad(MutableByteView message, std::size_t bytes);
// Sets digests[i] to the digest of the first `bytes` of messages[i]. Requires: 1 to kSha256Lanes messages of
// sha256_padded_bytes(bytes), padding in place; as many digests. Cost: the blocks and nothing else.
void sha256_padded(std::span<const std::byte* const> messages, std::size_t bytes, std::span<Digest> digests);

// A run of messages of one length, each of which holds the digest of the one before: pages of one prompt.
struct Sha256Chain {
  std::byte* messages = nullptr;  // `count` of them, padding in place, one right behind the other
  Digest* digests = nullptr;      // the first message's parent, then room for `count` more
};
// Where a message holds its parent. What stands there before the call is ignored, and may be overwritten.
inline constexpr std::size_t kSha256ParentAt = 1;
// Sets digests[i + 1] of each chain to the digest of its message i behind digests[i]. Requires: 1 to
// kSha256Lanes chains; bytes ≥ 33. Cost: the blocks; the chains are hashed in step.
void sha256_chained(std::span<const Sha256Chain> chains, std::size_t bytes, std::size_t count);

// Bytes that this thread has hashed so far by any of these functions, without padding: shows that a known
// prefix is not hashed again.
std::uint64_t sha256_bytes_hashed();

namespace detail {
// Exposed so that both bodies are compared in a test. Where the processor lacks the instructions those by
// hardware have no effect and say false.
bool sha256_padded_hardware(std::span<const std::byte* const> messages, std::size_t bytes,
                            std::span<Digest> digests);
void sha256_padded_portable(std::span<const std::byte* const> messages, std::size_t bytes,
                            std::span<Digest> digests);
bool sha256_chained_hardware(std::span<const Sha256Chain> chains, std::size_t bytes, std::size_t count);
void sha256_chained_portable(std::span<const Sha256Chain> chains, std::size_t bytes, std::size_t count);
}  // namespace detail

}  // namespace tiercel
