#include "os/kernel_text.h"

#include <cstdio>
#include <utility>

namespace tiercel {

std::optional<std::string> read_kernel_text(const std::string& path) {
  std::FILE* stream = std::fopen(path.c_str(), "re");
  if (stream == nullptr) return std::nullopt;
  std::string text;
  char chunk[4096];
  for (std::size_t got = 0;
       text.size() < kKernelTextBytesMax && (got = std::fread(chunk, 1, sizeof chunk, stream)) > 0;)
    text.append(chunk, got);
  const bool whole = std::ferror(stream) == 0;
  std::fclose(stream);
  return whole ? std::optional(std::move(text)) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::string_view take_until(std::string_view& rest, char end) {
  const std::size_t at = rest.find(end);
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return taken;
}

std::optional<std::uint64_t> decimal(std::string_view text) {
  if (text.empty()) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(c - '0');
    value = value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : value * 10 + digit;
  }
  return value;
}

std::string_view line_after(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    std::string_view line = take_until(text, '\n');
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    if (line.empty() || std::string_view(": \t").find(line.front()) == std::string_view::npos) continue;
    return trimmed(line.substr(1));
  }
  return {};
}

std::string_view word_after(std::string_view text, std::string_view name) {
  const std::string_view line = line_after(text, name);
  return line.substr(0, line.find_first_of(" \t"));
}

}  // namespace tiercel
