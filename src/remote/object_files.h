// The files of a store on a folder: one operation on one object at a time, each a few file calls. An object's
// file appears under its name in one step, with all its bytes and a trailer that says so; a reader believes
// no file without one.
//
//   FOLDER/tiercel-posix-store     what this folder is, and its version
//   FOLDER/xx/o-NAME               an object; xx: two hexadecimal digits out of the name's checksum
//   FOLDER/writing/wN.lock, wN.T   the place of one open store, and what its thread T writes at the moment
//
// Threads: any, each with its own number and buffer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "os/thread_annotations.h"
#include "remote/posix_calls.h"
#include "remote/remote_store.h"

namespace tiercel {

inline constexpr std::uint64_t kObjectTrailerBytes = 48;
inline constexpr unsigned kObjectThreadsMax = 16;

// What a file ends with (docs/format.md).
struct ObjectTrailer {
  std::uint64_t length = 0;  // of the bytes before it
  std::uint32_t crc = 0;     // of them
  friend bool operator==(const ObjectTrailer&, const ObjectTrailer&) = default;
};
std::vector<std::byte> encode_object_trailer(const ObjectTrailer& trailer, std::string_view name);
// Errors: data_corrupt: it is none, or of another object. Requires: kObjectTrailerBytes.
Result<ObjectTrailer> parse_object_trailer(ByteView bytes, std::string_view name);

// Below the folder: "3f/o-NAME".
std::string object_path(std::string_view name);

// The memory of an object, for as long as its batch is wanted.
class ObjectMemory {
 public:
  virtual ~ObjectMemory() = default;
  // The object's bytes from `offset` on are copied, `crc` goes on over them. False: wanted no more.
  virtual bool copy_from(std::uint64_t offset, MutableByteView to, std::uint32_t& crc) = 0;
  virtual bool copy_to(std::uint64_t offset, ByteView from, std::uint32_t& crc) = 0;
};

class ObjectFiles final {
 public:
  // Errors: as PosixStore::open().
  static Result<std::unique_ptr<ObjectFiles>> open(const std::string& folder, const PosixCalls& calls);
  ~ObjectFiles();
  ObjectFiles(const ObjectFiles&) = delete;
  ObjectFiles& operator=(const ObjectFiles&) = delete;

  RemoteResult exists(const std::string& name) const;
  // kCancelled: the memory was wanted no more.
  RemoteResult get(const std::string& name, std::uint64_t bytes, ObjectMemory& memory,
                   MutableByteView buffer) const;
  RemoteOutcome put(const std::string& name, std::uint64_t bytes, bool replace, ObjectMemory& memory,
                    MutableByteView buffer, unsigned thread) const;
  RemoteOutcome remove(const std::string& name) const;
  // After an operation ended kDown: the folder may have been mounted or made anew, and a place in the old one
  // is none in it.
  void reopen();

 private:
  struct Folder;
  struct File;
  using FolderPtr = std::shared_ptr<const Folder>;
  ObjectFiles(std::string folder, const PosixCalls& calls);
  FolderPtr root() const;
  void set_root(FolderPtr root);
  Result<void> claim_place(Folder& folder) const;
  bool clean_place(const Folder& folder, unsigned place, int flags, int& lock) const;
  Result<ObjectTrailer> trailer_of(const File& file, const std::string& name, int& failure) const;
  bool there(const FolderPtr& root, const std::string& name, std::uint64_t& bytes, int& failure) const;
  int make_in(const Folder& root, const std::string& folder) const;
  int create(const FolderPtr& root, const std::string& path, const std::string& name, bool unnamed,
             File& file) const;
  int fill(const File& file, const std::string& name, std::uint64_t bytes, ObjectMemory& memory,
           MutableByteView buffer) const;
  int publish(const File& file, const std::string& temporary, const std::string& name, bool unnamed,
              bool replace) const;

  const std::string path_;
  const PosixCalls& calls_;
  mutable std::atomic<bool> unnamed_files_{true};  // the file system has them, as far as is known
  mutable Mutex mutex_;
  FolderPtr root_ TIERCEL_GUARDED_BY(mutex_);
};

}  // namespace tiercel
