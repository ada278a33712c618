// SHA-256 (FIPS 180-4), by OpenSSL.
// Threads: pure functions; a Sha256 is used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

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

}  // namespace tiercel
