// Files of the source tree as text, for the tests of this folder.
//
// Threads: pure functions.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"

namespace tiercel {

// All bytes of a file. Requires: that it can be read.
inline std::string text_of_file(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rb"), [](std::FILE* open) { return std::fclose(open); });
  TIERCEL_CHECK(file != nullptr);
  std::string text;
  char buffer[1 << 14];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) text.append(buffer, got);
  return text;
}

}  // namespace tiercel
