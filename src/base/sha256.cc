#include "base/sha256.h"

#include <algorithm>

#include <openssl/evp.h>

#include "base/check.h"

namespace tiercel {

namespace {
thread_local std::uint64_t bytes_hashed = 0;
}  // namespace

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  TIERCEL_CHECK(context_->evp != nullptr);
  TIERCEL_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;

void Sha256::update(ByteView bytes) {
  bytes_hashed += bytes.size();
  TIERCEL_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

Digest Sha256::finish() {
  Digest digest;
  unsigned int length = 0;
  TIERCEL_CHECK(EVP_DigestFinal_ex(context_->evp, reinterpret_cast<unsigned char*>(digest.data()), &length) ==
                1);
  TIERCEL_CHECK(length == digest.size());
  TIERCEL_CHECK(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1);
  return digest;
}

Digest sha256(ByteView bytes) {
  thread_local Sha256 hasher;
  hasher.update(bytes);
  return hasher.finish();
}

void sha256_pad(MutableByteView message, std::size_t bytes) {
  TIERCEL_CHECK(message.size() == sha256_padded_bytes(bytes));
  message[bytes] = std::byte{0x80};
  std::fill(message.begin() + static_cast<std::ptrdiff_t>(bytes) + 1, message.end() - 8, std::byte{0});
  const std::uint64_t bits = std::uint64_t{8} * bytes;
  for (std::size_t i = 0; i < 8; ++i)  // most significant byte first
    message[message.size() - 1 - i] = static_cast<std::byte>((bits >> (8 * i)) & 0xFF);
}

void sha256_padded(std::span<const std::byte* const> messages, std::size_t bytes, std::span<Digest> digests) {
  if (detail::sha256_padded_hardware(messages, bytes, digests))
    bytes_hashed += bytes * messages.size();
  else
    detail::sha256_padded_portable(messages, bytes, digests);
}

void detail::sha256_padded_portable(std::span<const std::byte* const> messages, std::size_t bytes,
                                    std::span<Digest> digests) {
  TIERCEL_CHECK(messages.size() == digests.size());
  for (std::size_t i = 0; i < messages.size(); ++i) digests[i] = sha256(ByteView(messages[i], bytes));
}

void sha256_chained(std::span<const Sha256Chain> chains, std::size_t bytes, std::size_t count) {
  TIERCEL_CHECK(bytes >= kSha256ParentAt + sizeof(Digest));
  if (detail::sha256_chained_hardware(chains, bytes, count))
    bytes_hashed += bytes * count * chains.size();
  else
    detail::sha256_chained_portable(chains, bytes, count);
}

void detail::sha256_chained_portable(std::span<const Sha256Chain> chains, std::size_t bytes,
                                     std::size_t count) {
  for (const Sha256Chain& chain : chains)
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* message = chain.messages + i * sha256_padded_bytes(bytes);
      std::copy(chain.digests[i].begin(), chain.digests[i].end(), message + kSha256ParentAt);
      chain.digests[i + 1] = sha256(ByteView(message, bytes));
    }
}

std::uint64_t sha256_bytes_hashed() { return bytes_hashed; }

}  // namespace tiercel
