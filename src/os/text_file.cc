#include "os/text_file.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tiercel {

namespace {

tl::unexpected<Status> unreadable(const std::string& name, int code) {
  return error(Code::kIoError,
               name + ": cannot be read: " + std::error_code(code, std::generic_category()).message());
}

using OpenFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
OpenFile owned(std::FILE* file) {
  return {file, [](std::FILE* open) { return std::fclose(open); }};
}

}  // namespace

Result<std::string> read_text_file(const std::string& path, std::size_t limit) {
  const OpenFile file = owned(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return unreadable(path, errno);
  return read_text(file.get(), path, limit);
}

Result<std::string> read_config_file(const std::string& path, std::size_t limit) {
  // O_NONBLOCK: the open of a pipe would wait for its writer. Of a regular file it changes nothing.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return unreadable(path, errno);
  const OpenFile file = owned(::fdopen(fd, "rb"));
  if (file == nullptr) {
    const int code = errno;
    ::close(fd);
    return unreadable(path, code);
  }
  struct stat found {};
  if (::fstat(fd, &found) != 0) return unreadable(path, errno);
  if (S_ISDIR(found.st_mode)) return unreadable(path, EISDIR);
  if (!S_ISREG(found.st_mode))
    return error(Code::kInvalidArgument, path + ": wanted a regular file, got a pipe, socket or device");
  TIERCEL_ASSIGN_OR_RETURN(std::string text, read_text(file.get(), path, limit));
  if (text.size() > limit)
    return error(Code::kInvalidArgument,
                 path + ": more than " + std::to_string(limit) + " bytes: no configuration");
  return text;
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
