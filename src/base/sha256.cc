#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace tiercel {

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

}  // namespace tiercel
