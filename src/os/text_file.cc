#include "os/text_file.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

namespace tiercel {

namespace {

tl::unexpected<Status> unreadable(const std::string& name, int code) {
  return error(Code::kIoError,
               name + ": cannot be read: " + std::error_code(code, std::generic_category()).message());
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t limit) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(path.c_str(), "rbe"), [](std::FILE* open) { return std::fclose(open); });
  if (file == nullptr) return unreadable(path, errno);
  return read_text(file.get(), path, limit);
}

Result<std::string> read_text(std::FILE* file, const std::string& name, std::size_t limit) {
  std::string text;
  while (text.size() <= limit) {
    char buffer[1 << 16];
    const std::size_t got = std::fread(buffer, 1, std::min(sizeof buffer, limit + 1 - text.size()), file);
    if (got == 0) break;
    text.append(buffer, got);
  }
  if (std::ferror(file) != 0) return unreadable(name, errno);
  return text;
}

}  // namespace tiercel
