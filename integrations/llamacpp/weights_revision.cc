#include "weights_revision.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sha256.h"

namespace tiercel::llamacpp {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::size_t kHashDigits = 64;
constexpr std::size_t kRememberedBytesMax = 1024;
// The coarsest clock of a file system that is in use (FAT). Local ones take ticks of some milliseconds.
constexpr std::int64_t kClockCoarseNs = 2'000'000'000;
constexpr std::int64_t kSecondNs = 1'000'000'000;

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

std::string reason(int error) { return std::generic_category().message(error); }

Status io_error(const std::string& path, const std::string& why) {
  return {TIERCEL_IO_ERROR, fmt::format("model file {}: {}", path, why)};
}

// What tells that a file is still the one that was read.
struct Identity {
  std::uint64_t size = 0, inode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  bool operator==(const Identity&) const = default;
};

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * kSecondNs + std::int64_t{time.tv_nsec};
}

Result<Identity> identify(const File& file, const std::string& path) {
  struct stat is {};
  if (::fstat(file.get(), &is) != 0) return io_error(path, reason(errno));
  if (!S_ISREG(is.st_mode)) return io_error(path, "wanted a regular file, got something else");
  return Identity{static_cast<std::uint64_t>(is.st_size), static_cast<std::uint64_t>(is.st_ino),
                  nanoseconds(is.st_mtim), nanoseconds(is.st_ctim)};
}

// Of all that can be read; `bytes`: how much that was.
Result<std::string> hash_content(const File& file, const std::string& path, const ReadProgress& progress,
                                 std::uint64_t& bytes) {
  std::vector<std::uint8_t> piece(kReadBytes);
  Sha256 hash;
  for (;;) {
    const ssize_t got = ::read(file.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, reason(errno));
    if (got == 0) break;
    hash.update(std::span(piece).first(static_cast<std::size_t>(got)));
    bytes += static_cast<std::uint64_t>(got);
    if (progress) progress(path, bytes);
  }
  return hex(hash.finish());
}

// ---- what is remembered ----

std::string remembered_path(const std::string& path) { return path + ".tiercel-sha256"; }

std::string identity_text(const Identity& identity) {
  return fmt::format("tiercel-sha256 1\nsize {}\ninode {}\nmtime_ns {}\nctime_ns {}\nbegan_ns ",
                     identity.size, identity.inode, identity.mtime_ns, identity.ctime_ns);
}

std::string read_text(const std::string& path) {
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  std::string text(kRememberedBytesMax, '\0');
  const ssize_t got = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text;
}

bool is_hash(std::string_view text) {
  return text.size() == kHashDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// Empty: none, or not of this content for sure.
std::string remembered_hash(const std::string& path, const Identity& identity) {
  constexpr std::string_view kHashName = "\nsha256 ";
  const std::string text = read_text(remembered_path(path));
  const std::string known = identity_text(identity);
  if (!text.starts_with(known)) return {};
  std::int64_t began_ns = 0;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data() + known.size(), end, began_ns);
  if (number.ec != std::errc()) return {};
  // Nearer, a change after `began` could have left all times as they are.
  if (identity.ctime_ns < 0 || began_ns < identity.ctime_ns || began_ns - identity.ctime_ns < kClockCoarseNs)
    return {};
  std::string_view rest(number.ptr, static_cast<std::size_t>(end - number.ptr));
  if (!rest.starts_with(kHashName) || !rest.ends_with('\n')) return {};
  rest.remove_prefix(kHashName.size());
  rest.remove_suffix(1);
  return is_hash(rest) ? std::string(rest) : std::string();
}

bool write_all(const File& file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(file.get(), text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
  return true;
}

// Best effort: next time it is read again. Not synced: a text that a crash cut off is not believed.
void remember(const std::string& path, const std::string& text) {
  const std::string target = remembered_path(path);
  std::string unfinished = target + ".XXXXXX";
  const File file(::mkostemp(unfinished.data(), O_CLOEXEC));
  if (!file) return;
  if (!write_all(file, text) || ::fchmod(file.get(), 0644) != 0 ||
      ::rename(unfinished.c_str(), target.c_str()) != 0)
    ::unlink(unfinished.c_str());
}

// ---- a file ----

std::int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

struct Hashed {
  std::uint64_t size = 0;
  std::string hash;
};

Result<Hashed> hash_file(const std::string& path, const ReadProgress& progress) {
  const std::int64_t began_ns = now_ns();
  // Not blocking: a pipe of that name would wait for a writer.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file && (errno == ENOENT || errno == ENOTDIR))
    return Status{TIERCEL_NOT_FOUND, fmt::format("model file {}: {}", path, reason(errno))};
  if (!file) return io_error(path, reason(errno));
  const Result<Identity> before = identify(file, path);
  if (!before) return before.status();
  std::string hash = remembered_hash(path, *before);
  if (!hash.empty()) return Hashed{before->size, std::move(hash)};
  std::uint64_t bytes = 0;
  Result<std::string> read = hash_content(file, path, progress, bytes);
  if (!read) return read.status();
  const Result<Identity> after = identify(file, path);
  if (!after) return after.status();
  if (*before != *after || bytes != before->size)
    return io_error(path, "changes while it is read; try again when nobody writes to it");
  remember(path, fmt::format("{}{}\nsha256 {}\n", identity_text(*before), began_ns, *read));
  return Hashed{before->size, *std::move(read)};
}

}  // namespace

Result<std::string> weights_revision(std::span<const std::string> paths, const ReadProgress& progress) {
  if (paths.empty()) return Status{TIERCEL_INVALID_ARGUMENT, "model files: wanted at least one, got none"};
  std::string text = "tiercel-weights-1\n";
  for (const std::string& path : paths) {
    Result<Hashed> file = hash_file(path, progress);
    if (!file) return file.status();
    if (paths.size() == 1) return file->hash;
    text += fmt::format("{} {}\n", file->size, file->hash);
  }
  return hex(sha256(text));
}

}  // namespace tiercel::llamacpp
