#include "os/block_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/sizes.h"
#include "os/mapping.h"
#include "os/text_file.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kStatBlockBytes = 512;
constexpr std::size_t kLocksTextMax = 4U << 20;
constexpr unsigned kMode = 0600;
constexpr int kLockTurns = 200;       // together a second
constexpr int kDeadLockTurns = 6000;  // half a minute
constexpr unsigned kLockTurnMicroseconds = 5000;
constexpr int kTurns = 4;  // the file was renamed or removed between opening and locking it

std::string error_text(int number) { return std::generic_category().message(number); }

// What stands there instead of a file or a drive.
std::string_view kind_name(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  return "something else";
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A number in front of `end`; moves behind it.
bool number_until(std::string_view& text, char end, int base, std::uint64_t& value) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, base);
  const auto used = static_cast<std::size_t>(read.ptr - text.data());
  if (read.ec != std::errc{} || used >= text.size() || text[used] != end) return false;
  text.remove_prefix(used + 1);
  return true;
}

// The next word; moves behind it.
std::string_view word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::size_t length = std::min(text.find(' '), text.size());
  const std::string_view found = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return found;
}

}  // namespace

// "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF"; one that waits has "->" behind its number.
int lock_owner_in(std::string_view locks, unsigned major, unsigned minor, std::uint64_t inode) {
  while (!locks.empty()) {
    const std::size_t length = std::min(locks.find('\n'), locks.size());
    std::string_view line = locks.substr(0, length);
    locks.remove_prefix(std::min(length + 1, locks.size()));
    word(line);
    if (word(line) != "FLOCK") continue;
    word(line);
    word(line);
    const std::string_view process = word(line);
    std::uint64_t on_major = 0, on_minor = 0, on_inode = 0;
    if (!number_until(line, ':', 16, on_major) || !number_until(line, ':', 16, on_minor) ||
        !number_until(line, ' ', 10, on_inode))
      continue;
    if (on_major != major || on_minor != minor || on_inode != inode) continue;
    int pid = 0;
    std::from_chars(process.data(), process.data() + process.size(), pid);
    if (pid > 0) return pid;
  }
  return 0;
}

// One open under way.
class BlockFileOpening {
 public:
  BlockFileOpening(const BlockFileOptions& options, const BlockCalls& calls)
      : options_(options), calls_(calls) {}

  Result<BlockFile> open() {
    TIERCEL_RETURN_IF_ERROR(check_options());
    file_.path_ = options_.path;
    file_.read_only_ = options_.read_only;
    for (int turn = 0; turn < kTurns; ++turn) {
      struct stat there {};
      const bool found = ::stat(options_.path.c_str(), &there) == 0;
      if (!found && errno != ENOENT) return refused(Code::kUnavailable, error_text(errno));
      auto opened = found ? existing(there) : absent();
      if (!opened) return tl::unexpected(std::move(opened.error()));
      if (!*opened) continue;
      if (auto direct = try_direct(); !direct) {
        if (file_.created_) ::unlink(options_.path.c_str());
        return tl::unexpected(std::move(direct.error()));
      }
      return std::move(file_);
    }
    return refused(Code::kUnavailable, "it is being replaced over and over by somebody else");
  }

 private:
  tl::unexpected<Status> refused(Code code, std::string_view why) const {
    return error(code, fmt::format("disk file {}: {}", options_.path, why));
  }

  Result<void> check_options() const {
    if (options_.path.empty() || options_.path.find('\0') != std::string::npos)
      return error(Code::kInvalidArgument,
                   "disk file: wanted the path of a file or a block device, got none");
    if (options_.bytes % kBlockBytes != 0 || options_.bytes > kSizeMax)
      return refused(Code::kInvalidArgument,
                     fmt::format("size: wanted a multiple of {} bytes, got {}", kBlockBytes, options_.bytes));
    if (options_.create && (options_.bytes == 0 || options_.read_only))
      return refused(Code::kInvalidArgument,
                     "to be created it needs a size, and cannot be opened for reading only");
    return {};
  }

  // False: it is another file by now.
  Result<bool> existing(const struct stat& there) {
    const bool drive = S_ISBLK(there.st_mode);
    if (!drive && !S_ISREG(there.st_mode))
      return refused(Code::kInvalidArgument,
                     fmt::format("wanted a file or a block device, got {}", kind_name(there.st_mode)));
    const int access = (options_.read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOCTTY;
    const auto fd = calls_.open(options_.path, access | (drive && !options_.read_only ? O_EXCL : 0), 0);
    if (!fd && fd.error() == ENOENT) return false;
    if (!fd && drive && fd.error() == EBUSY)
      return refused(Code::kFailedPrecondition, "the drive is mounted or otherwise in use; choose another");
    if (!fd)
      return refused(Code::kUnavailable,
                     fmt::format("cannot be opened for {}: {}", options_.read_only ? "reading" : "writing",
                                 error_text(fd.error())));
    hold(*fd);
    file_.created_ = false;  // another turn may have begun to make one
    struct stat opened {};
    if (::fstat(*fd, &opened) != 0) return refused(Code::kIoError, error_text(errno));
    if (opened.st_ino != there.st_ino || opened.st_dev != there.st_dev) return false;
    TIERCEL_RETURN_IF_ERROR(lock(opened));
    struct stat now {};  // removed or replaced before it was locked
    if (::stat(options_.path.c_str(), &now) != 0 || now.st_ino != opened.st_ino ||
        now.st_dev != opened.st_dev)
      return false;
    TIERCEL_RETURN_IF_ERROR(drive ? drive_size() : file_size());
    // A second name that an opening left which died in between.
    const std::string unfinished = options_.path + ".unfinished";
    struct stat other {};
    if (!drive && !options_.read_only && opened.st_nlink > 1 && ::lstat(unfinished.c_str(), &other) == 0 &&
        other.st_ino == opened.st_ino && other.st_dev == opened.st_dev)
      ::unlink(unfinished.c_str());
    return true;
  }

  // Made under another name, that it takes off when it is whole; one left over by a process that died is
  // taken over. False: somebody else was quicker.
  Result<bool> absent() {
    if (!options_.create)
      return refused(Code::kNotFound, "it does not exist; create it, giving its size, or correct the path");
    struct stat link {};
    if (::lstat(options_.path.c_str(), &link) == 0)
      return refused(Code::kInvalidArgument, "it is a symbolic link to nothing; remove it or correct it");
    const std::string folder = folder_of(options_.path);
    struct stat parent {};
    if (::stat(folder.c_str(), &parent) != 0 || !S_ISDIR(parent.st_mode))
      return refused(Code::kNotFound, fmt::format("the folder {} does not exist; make it first", folder));
    const std::string unfinished = options_.path + ".unfinished";
    const auto fd =
        calls_.open(unfinished, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW | O_NONBLOCK, kMode);
    if (!fd)
      return refused(Code::kUnavailable,
                     fmt::format("{} cannot be created: {}", unfinished, error_text(fd.error())));
    hold(*fd);
    struct stat made {
    }, now{};
    if (::fstat(*fd, &made) != 0 || !S_ISREG(made.st_mode))
      return refused(Code::kInvalidArgument, fmt::format("{} is in the way; remove it", unfinished));
    TIERCEL_RETURN_IF_ERROR(lock(made));
    if (::stat(unfinished.c_str(), &now) != 0 || now.st_ino != made.st_ino) return false;
    TIERCEL_ASSIGN_OR_RETURN(const bool ours, left_over(made));
    if (!ours)
      return refused(Code::kFailedPrecondition,
                     fmt::format("{} is somebody else's; remove it or give another path", unfinished));
    Result<bool> finished = finish(unfinished, folder);
    if (!finished || !*finished) ::unlink(unfinished.c_str());
    return finished;
  }

  // Whether it was made just now, or looks like what an opening that died leaves: zeros at its front, of
  // which no other name is known.
  Result<bool> left_over(const struct stat& made) const {
    constexpr off_t kLookedAt = 1 << 20;
    if (made.st_size == 0) return true;
    std::vector<char> front(static_cast<std::size_t>(std::min(made.st_size, kLookedAt)));
    if (::pread(file_.fd_, front.data(), front.size(), 0) != static_cast<ssize_t>(front.size()))
      return refused(Code::kIoError, "what an opening before left of it cannot be read");
    return made.st_nlink == 1 && std::all_of(front.begin(), front.end(), [](char byte) { return byte == 0; });
  }

  Result<bool> finish(const std::string& unfinished, const std::string& folder) {
    if (::fcntl(file_.fd_, F_SETFL, 0) != 0 || ::fchmod(file_.fd_, kMode) != 0 ||
        ::ftruncate(file_.fd_, 0) != 0)
      return refused(Code::kUnavailable, fmt::format("cannot be created: {}", error_text(errno)));
    file_.bytes_ = options_.bytes;
    file_.created_ = true;
    TIERCEL_RETURN_IF_ERROR(claim(file_.bytes_));
    if (::ftruncate(file_.fd_, static_cast<off_t>(options_.bytes)) != 0 || ::fsync(file_.fd_) != 0)
      return refused(Code::kIoError, fmt::format("cannot be made {} long: {}", format_size(options_.bytes),
                                                 error_text(errno)));
    // link() never replaces what is there.
    if (::link(unfinished.c_str(), options_.path.c_str()) != 0 && errno == EEXIST) return false;
    struct stat own {
    }, named{};
    const bool there = ::stat(options_.path.c_str(), &named) == 0;
    if (::fstat(file_.fd_, &own) != 0 || (there && named.st_ino != own.st_ino)) return false;
    if (!there &&  // a file system without hard links
        ::rename(unfinished.c_str(), options_.path.c_str()) != 0)
      return refused(Code::kUnavailable, fmt::format("cannot be given its name: {}", error_text(errno)));
    ::unlink(unfinished.c_str());
    const auto parent = calls_.open(folder, O_RDONLY | O_CLOEXEC | O_DIRECTORY, 0);
    if (parent) {
      ::fsync(*parent);  // best effort: without it a crash may lose an empty file
      ::close(*parent);
    }
    return true;
  }

  void hold(int fd) {
    if (file_.fd_ >= 0) ::close(file_.fd_);
    file_.fd_ = fd;
  }

  struct Owner {
    int process = 0;    // 0: it cannot be seen from here
    bool dead = false;  // it has ended
  };
  static Owner owner_of(const struct stat& file) {
    const auto locks = read_text_file("/proc/locks", kLocksTextMax);
    Owner owner;
    if (locks) owner.process = lock_owner_in(*locks, major(file.st_dev), minor(file.st_dev), file.st_ino);
    if (owner.process == 0) return owner;
    const auto text = read_text_file(fmt::format("/proc/{}/stat", owner.process), kLocksTextMax);
    const std::size_t name_end = text ? text->rfind(") ") : std::string::npos;
    const bool whole = name_end != std::string::npos && name_end + 2 < text->size();
    owner.dead = !whole || (*text)[name_end + 2] == 'Z' || (*text)[name_end + 2] == 'X';
    return owner;
  }

  Result<void> lock(const struct stat& file) const {
    int failed = calls_.lock(file_.fd_, !options_.read_only);
    Owner owner;
    // The lock of a process that was killed goes when the kernel has ended that process's last operations,
    // which takes seconds when it is busy with something else, such as the blocks of a large file that was
    // removed.
    for (int turn = 0; failed == EWOULDBLOCK; ++turn) {
      owner = owner_of(file);
      if (turn >= (owner.dead ? kDeadLockTurns : owner.process == 0 ? kLockTurns : 0)) break;
      ::usleep(kLockTurnMicroseconds);
      failed = calls_.lock(file_.fd_, !options_.read_only);
    }
    if (failed == 0) return {};
    if (failed != EWOULDBLOCK)
      return refused(Code::kUnavailable, fmt::format("cannot be locked: {}", error_text(failed)));
    return refused(
        Code::kFailedPrecondition,
        fmt::format("in use by {}; end it, or give this one another path",
                    owner.process == 0 ? "another process"
                    : owner.process == ::getpid()
                        ? "this process already"
                        : fmt::format("process {}{}", owner.process, owner.dead ? ", which has ended" : "")));
  }

  Result<void> file_size() {
    struct stat now {};
    if (::fstat(file_.fd_, &now) != 0) return refused(Code::kIoError, error_text(errno));
    file_.bytes_ = static_cast<std::uint64_t>(now.st_size);
    if (options_.bytes != 0 && options_.bytes != file_.bytes_)
      return refused(Code::kFailedPrecondition,
                     fmt::format("wanted {} bytes, got a file of {}; it was left as it is: remove it, or ask "
                                 "for its size",
                                 options_.bytes, file_.bytes_));
    if (file_.bytes_ == 0 || file_.bytes_ % kBlockBytes != 0)
      return refused(Code::kFailedPrecondition,
                     fmt::format("size: wanted a multiple of {} bytes, got {}", kBlockBytes, file_.bytes_));
    const std::uint64_t claimed = static_cast<std::uint64_t>(now.st_blocks) * kStatBlockBytes;
    if (options_.read_only || claimed >= file_.bytes_) return {};
    return claim(file_.bytes_ - claimed);
  }

  Result<void> drive_size() {
    std::uint64_t bytes = 0;
    int sector = 0;
    if (::ioctl(file_.fd_, BLKGETSIZE64, &bytes) != 0 || ::ioctl(file_.fd_, BLKSSZGET, &sector) != 0)
      return refused(Code::kUnavailable,
                     fmt::format("the drive does not say its size: {}", error_text(errno)));
    if (sector <= 0 || kBlockBytes % static_cast<std::uint64_t>(sector) != 0)
      return refused(Code::kUnsupported,
                     fmt::format("the drive has blocks of {} bytes; wanted at most {}", sector, kBlockBytes));
    bytes = bytes / kBlockBytes * kBlockBytes;
    if (options_.bytes > bytes)
      return refused(Code::kFailedPrecondition, fmt::format("wanted {}, got a drive of {}",
                                                            format_size(options_.bytes), format_size(bytes)));
    file_.bytes_ = options_.bytes != 0 ? options_.bytes : bytes;
    return {};
  }

  // Room for all of it, of which so many bytes have none yet.
  Result<void> claim(std::uint64_t missing) {
    if (options_.sparse) return {};
    // Asked first: a file system would otherwise be filled to the brim before it says no.
    const auto free = calls_.free_bytes(file_.fd_);
    if (free && *free < missing) return no_room(ENOSPC);
    const int failed = calls_.allocate(file_.fd_, file_.bytes_);
    if (failed == 0) return {};
    if (failed != EOPNOTSUPP && failed != ENOSYS && failed != EINVAL) return no_room(failed);
    if (!file_.created_) {
      file_.notes_.push_back(
          "this file system cannot claim room for the file's holes: a write may find none");
      return {};
    }
    file_.notes_.push_back("this file system cannot claim room at once: all of the file was written");
    return write_all();
  }

  Result<void> write_all() {
    for (std::uint64_t done = 0; done < file_.bytes_;) {
      const auto written = calls_.write_zeros(file_.fd_, done, file_.bytes_ - done);
      if (!written && written.error() == EINTR) continue;
      if (!written) return no_room(written.error());
      if (*written == 0) return no_room(ENOSPC);
      done += *written;
      if (options_.progress) options_.progress(done, file_.bytes_);
    }
    if (::fsync(file_.fd_) != 0) return no_room(errno);
    return {};
  }

  tl::unexpected<Status> no_room(int number) const {
    if (number != ENOSPC && number != EDQUOT && number != EFBIG)
      return refused(Code::kIoError, fmt::format("no room can be claimed: {}", error_text(number)));
    const auto free = calls_.free_bytes(file_.fd_);
    return refused(Code::kResourceExhausted,
                   fmt::format("wanted {}, free on that file system are {} ({}); ask for less or make room",
                               format_size(file_.bytes_), free ? format_size(*free) : "too few bytes",
                               error_text(number)));
  }

  // Past the page cache, if one block can really be read so.
  Result<void> try_direct() {
    if (!options_.direct) return {};
    int failed = calls_.refused(BlockFeature::kDirect);
    if (failed == 0 && ::fcntl(file_.fd_, F_SETFL, O_DIRECT) != 0) failed = errno;
    if (failed == 0) {
      struct statx alignment {};
      std::uint64_t memory = kBlockBytes, offset = kBlockBytes;
      if (::statx(file_.fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &alignment) == 0 &&
          (alignment.stx_mask & STATX_DIOALIGN) != 0 && alignment.stx_dio_mem_align != 0) {
        memory = alignment.stx_dio_mem_align;
        offset = alignment.stx_dio_offset_align;
      }
      file_.memory_alignment_ = memory;
      if (memory > kBlockBytes || kBlockBytes % offset != 0) failed = EINVAL;
    }
    if (failed == 0) {
      TIERCEL_ASSIGN_OR_RETURN(const Mapping block, Mapping::open({.bytes = kBlockBytes}));
      if (::pread(file_.fd_, block.bytes().data(), kBlockBytes, 0) < 0 && errno == EINVAL) failed = EINVAL;
    }
    file_.direct_ = failed == 0;
    if (file_.direct_) return {};
    ::fcntl(file_.fd_, F_SETFL, 0);
    file_.memory_alignment_ = 1;
    file_.notes_.push_back(
        fmt::format("O_DIRECT is refused for {} ({}): reads and writes go through the page cache",
                    options_.path, error_text(failed)));
    return {};
  }

  const BlockFileOptions& options_;
  const BlockCalls& calls_;
  BlockFile file_;
};

BlockFile::BlockFile(BlockFile&& other) noexcept { swap(other); }

BlockFile& BlockFile::operator=(BlockFile&& other) noexcept {
  BlockFile now(std::move(other));
  swap(now);
  return *this;
}

void BlockFile::swap(BlockFile& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(read_only_, other.read_only_);
  std::swap(created_, other.created_);
  std::swap(direct_, other.direct_);
  std::swap(memory_alignment_, other.memory_alignment_);
  std::swap(notes_, other.notes_);
}

BlockFile::~BlockFile() {
  if (fd_ < 0) return;
  ::flock(fd_, LOCK_UN);  // a ring that knew the file may let go of it later than we do
  ::close(fd_);
}

Result<BlockFile> BlockFile::open(const BlockFileOptions& options, const BlockCalls& calls) {
  return BlockFileOpening(options, calls).open();
}

}  // namespace tiercel
