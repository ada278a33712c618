#include "sha256.h"

#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

namespace tiercel::llamacpp {

struct Sha256::Context {
  EVP_MD_CTX* openssl = EVP_MD_CTX_new();
  Context() { must(openssl != nullptr && EVP_DigestInit_ex(openssl, EVP_sha256(), nullptr) == 1); }
  ~Context() { EVP_MD_CTX_free(openssl); }
  static void must(bool done) {
    if (done) return;
    std::fprintf(stderr, "tiercel: OpenSSL gives no SHA-256\n");
    std::abort();
  }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;

void Sha256::update(std::span<const std::uint8_t> bytes) {
  Context::must(EVP_DigestUpdate(context_->openssl, bytes.data(), bytes.size()) == 1);
}

Sha256Digest Sha256::finish() {
  Sha256Digest digest{};
  Context::must(EVP_DigestFinal_ex(context_->openssl, digest.data(), nullptr) == 1);
  return digest;
}

Sha256Digest sha256(std::span<const std::uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Sha256Digest sha256(const std::string& text) {
  return sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

std::string hex(const Sha256Digest& digest) { return fmt::format("{:02x}", fmt::join(digest, "")); }

}  // namespace tiercel::llamacpp
