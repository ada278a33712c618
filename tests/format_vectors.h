// The test vectors of docs/format.md, read from the page, for the tests that recompute them.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/sha256.h"
#include "model/key_chain.h"

namespace tiercel {

using Json = nlohmann::json;

inline std::string read_page() {
  std::FILE* file = std::fopen(TIERCEL_SOURCE_DIR "/docs/format.md", "rb");
  if (file == nullptr) return {};
  std::string text;
  char chunk[4096];
  for (std::size_t count = 0; (count = std::fread(chunk, 1, sizeof chunk, file)) > 0;)
    text.append(chunk, count);
  std::fclose(file);
  return text;
}

// The vectors of one kind; never empty.
inline std::vector<Json> vectors(std::string_view kind) {
  const std::string page = read_page();
  const std::string_view mark = "<!-- vectors -->\n```json\n";
  const std::size_t found_at = page.find(mark);
  std::vector<Json> found;
  if (found_at != std::string::npos) {
    const std::size_t start = found_at + mark.size();
    const std::string block = page.substr(start, page.find("\n```", start) - start);
    for (const Json& each : Json::parse(block))
      if (each.at("kind") == kind) found.push_back(each);
  }
  EXPECT_FALSE(found.empty()) << "docs/format.md has no vector of kind " << kind;
  return found;
}

inline std::string text_at(const Json& object, const char* name) {
  return object.at(name).get<std::string>();
}

inline std::vector<std::byte> bytes_of(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}
inline std::string hex_of(ByteView bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const std::byte b : bytes) {
    out += kDigits[std::to_integer<std::size_t>(b) >> 4];
    out += kDigits[std::to_integer<std::size_t>(b) & 15];
  }
  return out;
}
inline Digest digest_of(const Json& hex) {
  Digest digest{};
  const auto bytes = bytes_of(hex);
  EXPECT_EQ(bytes.size(), digest.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), digest.size()), digest.begin());
  return digest;
}
inline Key key_of(const Json& hex) {
  const auto bytes = bytes_of(hex);
  EXPECT_EQ(bytes.size(), 16U);
  Digest digest{};
  std::copy_n(bytes.begin(), std::min<std::size_t>(bytes.size(), 16), digest.begin());
  return key_from_digest(digest);
}

}  // namespace tiercel
