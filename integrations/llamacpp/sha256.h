// SHA-256, by OpenSSL.
//
// Threads: any; a Sha256 is used by one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tiercel::llamacpp {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Ends the program where OpenSSL has no SHA-256: nothing could be told apart without it.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::uint8_t> bytes);
  Sha256Digest finish();  // once

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

Sha256Digest sha256(std::span<const std::uint8_t> bytes);
Sha256Digest sha256(const std::string& text);
// 64 hex digits.
std::string hex(const Sha256Digest& digest);

}  // namespace tiercel::llamacpp
