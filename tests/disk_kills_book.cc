#include "disk_kills_book.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace tiercel::kills {

std::string_view count_name(Count count) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Count::kNumber)> kNames = {
      "openings", "audits", "found",    "promised",  "evicted", "matches", "stores",
      "durable",  "loads",  "removals", "unsettled", "clears",  "epochs",  "flushes",
      "fetches",  "closes", "regions",  "checks",    "refused"};
  return kNames[static_cast<std::size_t>(count)];
}

Result<OpenBook> OpenBook::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return error(Code::kIoError, fmt::format("book {}: {}", path, std::strerror(errno)));
  void* mapped = MAP_FAILED;
  if (::ftruncate(fd, sizeof(Book)) == 0)
    mapped = ::mmap(nullptr, sizeof(Book), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapped == MAP_FAILED)
    return error(Code::kIoError, fmt::format("book {}: {}", path, std::strerror(errno)));
  return OpenBook(static_cast<Book*>(mapped));
}

OpenBook::OpenBook(OpenBook&& other) noexcept : book_(other.book_) { other.book_ = nullptr; }

OpenBook::~OpenBook() {
  if (book_ != nullptr) ::munmap(book_, sizeof(Book));
}

}  // namespace tiercel::kills
