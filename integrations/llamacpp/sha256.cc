#include "sha256.h"

#include <cstdio>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

namespace tiercel::llamacpp {

Sha256Digest sha256(std::span<const std::span<const std::uint8_t>> parts) {
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  Sha256Digest digest{};
  bool done = context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (const auto& part : parts)
    done = done && EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1;
  if (done && EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1) return digest;
  std::fprintf(stderr, "tiercel: OpenSSL has no SHA-256\n");  // nothing here could be told apart without it
  std::abort();
}

std::string hex(const Sha256Digest& digest) { return fmt::format("{:02x}", fmt::join(digest, "")); }

}  // namespace tiercel::llamacpp
