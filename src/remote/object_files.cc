#include "remote/object_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/crc32c.h"

namespace tiercel {
namespace {

constexpr std::uint64_t kTrailerMagic = 0x4a424f4c43524554;  // "TERCLOBJ" in memory
constexpr std::uint32_t kTrailerVersion = 1;
constexpr std::string_view kMarkerPath = "tiercel-posix-store";
constexpr std::string_view kMarkerText = "tiercel posix store 1\n";
constexpr unsigned kPlacesMax = 4096;
constexpr int kNotWanted = ECANCELED;
constexpr unsigned kFileMode = 0600;

std::string text_of(int reason) {
  return std::strerror(reason);  // NOLINT(concurrency-mt-unsafe): one of fixed texts
}

RemoteOutcome outcome_of(int failure) {
  switch (failure) {
    case 0:
      return RemoteOutcome::kOk;
    case ENOENT:
      return RemoteOutcome::kAbsent;
    case kNotWanted:
      return RemoteOutcome::kCancelled;
    case ENOSPC:
    case EDQUOT:
      return RemoteOutcome::kNoRoom;
    case EFBIG:
      return RemoteOutcome::kTooLarge;
    case ESTALE:
    case ENOTCONN:
    case ENODEV:
    case ENXIO:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ETIMEDOUT:
    case EROFS:
    case EACCES:
    case EPERM:
      return RemoteOutcome::kDown;
    default:
      return RemoteOutcome::kFailed;
  }
}

// What file systems say that have no files without a name, or kernels without /proc.
bool no_unnamed(int failure) {
  return failure == EOPNOTSUPP || failure == EISDIR || failure == EINVAL || failure == ENOENT ||
         failure == ENOSYS || failure == EPERM || failure == EXDEV;
}

}  // namespace

std::vector<std::byte> encode_object_trailer(const ObjectTrailer& trailer, std::string_view name) {
  std::vector<std::byte> bytes;
  append_le(bytes, kTrailerMagic);
  append_le(bytes, kTrailerVersion);
  append_le(bytes, trailer.crc);
  append_le(bytes, trailer.length);
  append_le(bytes, crc32c(as_byte_view(name)));
  bytes.resize(kObjectTrailerBytes - 4);
  append_le(bytes, crc32c(bytes));
  return bytes;
}

Result<ObjectTrailer> parse_object_trailer(ByteView bytes, std::string_view name) {
  ObjectTrailer trailer;
  trailer.crc = load_le<std::uint32_t>(bytes.data() + 12);
  trailer.length = load_le<std::uint64_t>(bytes.data() + 16);
  if (!std::ranges::equal(bytes, encode_object_trailer(trailer, name)))
    return error(Code::kDataCorrupt,
                 fmt::format("file of object '{}': its trailer is torn, damaged or another "
                             "object's; it is removed",
                             name));
  return trailer;
}

std::string object_path(std::string_view name) {
  return fmt::format("{:02x}/o-{}", crc32c(as_byte_view(name)) & 0xFF, name);
}

// The folder as it was opened, and our place in it. Both stay for as long as something is under way in it.
struct ObjectFiles::Folder {
  Folder(int of, const PosixCalls& by) : fd(of), calls(by) {}
  ~Folder() {
    if (lock >= 0) calls.close(lock);
    calls.close(fd);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const int fd;
  const PosixCalls& calls;
  std::string place;  // "writing/w3"; "": there is none for us
  int lock = -1;
};

// An open file, and the folder that it was opened in.
struct ObjectFiles::File {
  File() = default;
  ~File() {
    if (fd >= 0) folder->calls.close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int open(FolderPtr in, const std::string& path, int flags) {
    folder = std::move(in);
    const SystemResult<int> opened = folder->calls.open(folder->fd, path, flags, kFileMode);
    if (!opened) return opened.error();
    fd = *opened;
    return 0;
  }
  FolderPtr folder;
  int fd = -1;
};

// ---- The folder ----

namespace {

// 0; ENOTEMPTY: it is something else's; or an errno.
int check_marker(const PosixCalls& calls, int folder, bool create) {
  const SystemResult<int> file =
      calls.open(folder, std::string(kMarkerPath), create ? O_RDWR | O_CREAT : O_RDONLY, kFileMode);
  if (!file) return file.error();
  std::byte text[64];
  const SystemResult<std::uint64_t> got = calls.read(*file, 0, text);
  int failure = got ? 0 : got.error();
  // Nothing in it: whoever made it was killed before it could write.
  if (got && *got == 0 && create)
    failure = calls.write(*file, 0, as_byte_view(kMarkerText));
  else if (got && !std::ranges::equal(ByteView(text).first(*got), as_byte_view(kMarkerText)))
    failure = ENOTEMPTY;
  calls.close(*file);
  return failure;
}

tl::unexpected<Status> refused(const std::string& folder, std::string_view what, int reason) {
  if (reason == ENOTEMPTY)
    return error(
        Code::kInvalidArgument,
        fmt::format("posix store '{}': '{}' says that it is something else's, or of another version; give "
                    "a folder of its own",
                    folder, kMarkerPath));
  return error(Code::kUnavailable,
               fmt::format("posix store '{}': {}: {}; the folder above it must be there, and "
                           "this user must be able to write to it",
                           folder, what, text_of(reason)));
}

}  // namespace

ObjectFiles::ObjectFiles(std::string folder, const PosixCalls& calls)
    : path_(std::move(folder)), calls_(calls) {}

ObjectFiles::~ObjectFiles() = default;

ObjectFiles::FolderPtr ObjectFiles::root() const {
  const MutexLock lock(mutex_);
  return root_;
}

void ObjectFiles::set_root(FolderPtr root) {
  const MutexLock lock(mutex_);
  root_.swap(root);
}

Result<std::unique_ptr<ObjectFiles>> ObjectFiles::open(const std::string& folder, const PosixCalls& calls) {
  std::unique_ptr<ObjectFiles> files(new ObjectFiles(folder, calls));
  if (const int failed = calls.make_folder(AT_FDCWD, folder); failed != 0 && failed != EEXIST)
    return refused(folder, "to make it", failed);
  const SystemResult<int> opened = calls.open(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0);
  if (!opened) return refused(folder, "to open it", opened.error());
  auto root = std::make_shared<Folder>(*opened, calls);
  if (const int failed = check_marker(calls, *opened, true); failed != 0)
    return refused(folder, "its mark", failed);
  TIERCEL_RETURN_IF_ERROR(files->claim_place(*root));
  files->set_root(std::move(root));
  return files;
}

void ObjectFiles::reopen() {
  const SystemResult<int> opened = calls_.open(AT_FDCWD, path_, O_RDONLY | O_DIRECTORY, 0);
  if (!opened) return;
  auto root = std::make_shared<Folder>(*opened, calls_);
  // Where nothing is mounted now the mark is missing, too: the disk below must not be filled instead.
  if (check_marker(calls_, *opened, false) != 0) return;
  // Another place, also where it is the same folder, which nobody can tell. Without one it is still good to
  // read from.
  static_cast<void>(claim_place(*root));
  set_root(std::move(root));
}

// A place of its own for files that are not whole yet, so that what a killed process leaves has a known name.
// Places are taken from 0 on; those that nobody has any more are cleaned on the way.
Result<void> ObjectFiles::claim_place(Folder& folder) const {
  if (const int failed = calls_.make_folder(folder.fd, "writing"); failed != 0 && failed != EEXIST)
    return refused(path_, "the folder 'writing'", failed);
  for (unsigned place = 0; place < kPlacesMax; ++place) {
    int lock = -1;
    const bool ours = clean_place(folder, place, folder.lock < 0 ? O_RDWR | O_CREAT : O_RDWR, lock);
    if (ours && folder.lock < 0) {
      folder.place = fmt::format("writing/w{}", place);
      folder.lock = lock;
    } else if (lock >= 0) {
      calls_.close(lock);
    } else if (folder.lock >= 0) {
      return {};  // beyond the last one
    }
  }
  if (folder.lock >= 0) return {};
  return refused(
      path_, fmt::format("a place in 'writing' (all {} are locked, or it has no locks)", kPlacesMax), EBUSY);
}

// True: it was nobody's, is locked now and has nothing in it.
bool ObjectFiles::clean_place(const Folder& folder, unsigned place, int flags, int& lock) const {
  const std::string path = fmt::format("writing/w{}", place);
  const SystemResult<int> file = calls_.open(folder.fd, path + ".lock", flags, kFileMode);
  if (!file) return false;
  lock = *file;
  if (calls_.lock(lock) != 0) return false;
  for (unsigned thread = 0; thread < kObjectThreadsMax; ++thread)
    calls_.remove(folder.fd, fmt::format("{}.{}", path, thread));
  return true;
}

// ---- Reading ----

// `failure`: of a call; an error without one means that the file is no object, or not this one.
Result<ObjectTrailer> ObjectFiles::trailer_of(const File& file, const std::string& name, int& failure) const {
  std::byte bytes[kObjectTrailerBytes] = {};
  const SystemResult<std::uint64_t> size = calls_.size(file.fd);
  failure = size ? 0 : size.error();
  if (!size) return error(Code::kIoError, text_of(failure));
  if (*size < kObjectTrailerBytes) return error(Code::kDataCorrupt, "it is shorter than a trailer");
  const SystemResult<std::uint64_t> got = calls_.read(file.fd, *size - kObjectTrailerBytes, bytes);
  failure = got ? 0 : got.error();
  if (!got || *got != sizeof bytes) return error(Code::kIoError, "its trailer cannot be read");
  Result<ObjectTrailer> trailer = parse_object_trailer(bytes, name);
  if (trailer && trailer->length != *size - kObjectTrailerBytes)
    return error(Code::kDataCorrupt, "it has not the length that its trailer says");
  return trailer;
}

// Whether there is a whole one. What is damaged is removed; `failure` 0: it is absent.
bool ObjectFiles::there(const FolderPtr& root, const std::string& name, std::uint64_t& bytes,
                        int& failure) const {
  const std::string path = object_path(name);
  File file;
  failure = file.open(root, path, O_RDONLY);
  if (failure == ENOENT) failure = 0;
  if (file.fd < 0) return false;
  const Result<ObjectTrailer> trailer = trailer_of(file, name, failure);
  if (trailer) bytes = trailer->length;
  if (!trailer && failure == 0) calls_.remove(file.folder->fd, path);
  return trailer.has_value();
}

RemoteResult ObjectFiles::exists(const std::string& name) const {
  std::uint64_t bytes = 0;
  int failure = 0;
  if (there(root(), name, bytes, failure)) return {RemoteOutcome::kOk, bytes};
  return {failure == 0 ? RemoteOutcome::kAbsent : outcome_of(failure), 0};
}

RemoteResult ObjectFiles::get(const std::string& name, std::uint64_t bytes, ObjectMemory& memory,
                              MutableByteView buffer) const {
  const std::string path = object_path(name);
  File file;
  if (const int failed = file.open(root(), path, O_RDONLY); failed != 0) return {outcome_of(failed), 0};
  int failure = 0;
  const Result<ObjectTrailer> trailer = trailer_of(file, name, failure);
  if (!trailer && failure != 0) return {outcome_of(failure), 0};
  bool whole = trailer.has_value();
  if (whole && trailer->length != bytes) return {RemoteOutcome::kWrongSize, 0};
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; whole && at < bytes;) {
    const MutableByteView part = buffer.first(std::min<std::uint64_t>(buffer.size(), bytes - at));
    const SystemResult<std::uint64_t> got = calls_.read(file.fd, at, part);
    if (!got) return {outcome_of(got.error()), 0};
    whole = *got == part.size();
    if (whole && !memory.copy_to(at, part, crc)) return {RemoteOutcome::kCancelled, 0};
    at += part.size();
  }
  if (whole && crc == trailer->crc) return {RemoteOutcome::kOk, bytes};
  calls_.remove(file.folder->fd, path);  // it would stand in the way of a whole one
  return {RemoteOutcome::kAbsent, 0};
}

// ---- Writing ----

int ObjectFiles::make_in(const Folder& root, const std::string& folder) const {
  const int failed = calls_.make_folder(root.fd, folder);
  if (failed == ENOENT) return ESTALE;  // the one above it was removed; there may be another of its name
  return failed == EEXIST ? 0 : failed;
}

int ObjectFiles::create(const FolderPtr& root, const std::string& path, const std::string& name, bool unnamed,
                        File& file) const {
  const std::string folder = object_path(name).substr(0, 2);
  if (!unnamed) {
    calls_.remove(root->fd, path);  // of an attempt of this thread that could not be removed then
    if (const int failed = make_in(*root, folder); failed != 0) return failed;
    return file.open(root, path, O_WRONLY | O_CREAT | O_EXCL);
  }
  int failed = file.open(root, folder, O_WRONLY | O_TMPFILE);
  if (failed != ENOENT) return failed;
  failed = make_in(*root, folder);
  return failed != 0 ? failed : file.open(root, folder, O_WRONLY | O_TMPFILE);
}

int ObjectFiles::fill(const File& file, const std::string& name, std::uint64_t bytes, ObjectMemory& memory,
                      MutableByteView buffer) const {
  std::uint32_t crc = 0;
  for (std::uint64_t at = 0; at < bytes;) {
    const MutableByteView part = buffer.first(std::min<std::uint64_t>(buffer.size(), bytes - at));
    if (!memory.copy_from(at, part, crc)) return kNotWanted;
    if (const int failed = calls_.write(file.fd, at, part); failed != 0) return failed;
    at += part.size();
  }
  return calls_.write(file.fd, bytes, encode_object_trailer({bytes, crc}, name));
}

int ObjectFiles::publish(const File& file, const std::string& temporary, const std::string& name,
                         bool unnamed, bool replace) const {
  const std::string path = object_path(name);
  if (replace) return calls_.rename(file.folder->fd, temporary, path);
  const auto link = [&] {
    return unnamed ? calls_.link_unnamed(file.fd, file.folder->fd, path)
                   : calls_.link(file.folder->fd, temporary, path);
  };
  int failed = link();
  if (failed == EEXIST) {  // somebody was faster, or it is damaged and has just been removed
    std::uint64_t bytes = 0;
    if (there(file.folder, name, bytes, failed)) return 0;
    if (failed == 0) failed = link();
    if (failed == EEXIST) failed = 0;  // faster again
  }
  // Without hard links: puts that cross are two whole files, and one of them stays.
  const bool no_links = failed == EPERM || failed == EOPNOTSUPP || failed == ENOSYS || failed == EMLINK;
  return !unnamed && no_links ? calls_.rename(file.folder->fd, temporary, path) : failed;
}

RemoteOutcome ObjectFiles::put(const std::string& name, std::uint64_t bytes, bool replace,
                               ObjectMemory& memory, MutableByteView buffer, unsigned thread) const {
  const FolderPtr root = this->root();  // one for all of it: reopen() may find another meanwhile
  std::uint64_t present = 0;
  int failed = 0;
  if (!replace && there(root, name, present, failed)) return RemoteOutcome::kOk;
  if (failed != 0) return outcome_of(failed);
  const std::string temporary = fmt::format("{}.{}", root->place, thread);
  // No file without a name can replace another: those have one until they are whole.
  if (!replace && unnamed_files_) {
    File file;
    failed = create(root, temporary, name, true, file);
    if (failed == 0) {
      failed = fill(file, name, bytes, memory, buffer);
      if (failed != 0) return failed == ENOENT ? RemoteOutcome::kFailed : outcome_of(failed);
      failed = publish(file, temporary, name, true, false);
    }
    if (!no_unnamed(failed)) return outcome_of(failed);
    unnamed_files_ = false;
  }
  if (root->place.empty()) return RemoteOutcome::kDown;  // as after every such end, one is asked for
  File file;
  failed = create(root, temporary, name, false, file);
  if (failed == 0) failed = fill(file, name, bytes, memory, buffer);
  if (failed == 0) failed = publish(file, temporary, name, false, replace);
  if (file.fd >= 0) calls_.remove(file.folder->fd, temporary);
  return failed == ENOENT ? RemoteOutcome::kFailed : outcome_of(failed);
}

RemoteOutcome ObjectFiles::remove(const std::string& name) const {
  return outcome_of(calls_.remove(root()->fd, object_path(name)));
}

}  // namespace tiercel
