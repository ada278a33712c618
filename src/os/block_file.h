// A file or a raw drive, claimed: ours alone, all of its room taken, so that no later write can fail for want
// of it. Whatever cannot be as it was asked for is refused before anything is changed, and what was made is
// removed again: a file has its name only once it is whole, whenever the process dies.
//
// Threads: one opens and closes it; the rest is constant.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/block_calls.h"

namespace tiercel {

struct BlockFileOptions {
  std::string path;
  std::uint64_t bytes = 0;  // 0: what is there, all of it
  bool create = false;      // where nothing is; needs `bytes`
  bool read_only = false;   // beside other readers; nothing is changed
  bool direct = true;       // past the page cache, where that can be done
  bool sparse = false;      // for tests: no room is claimed
  // Called while room is claimed by writing zeros. Must not throw.
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

class BlockFile final {
 public:
  BlockFile() = default;  // of nothing
  BlockFile(BlockFile&& other) noexcept;
  BlockFile& operator=(BlockFile&& other) noexcept;
  ~BlockFile();

  // Locked until closed; readers share. A file that is made may be read and written by its owner only.
  // Errors: invalid_argument: a path or size that makes no sense, or no file or block device; not_found;
  // failed_precondition: another size than asked for, in use (with the process's number, where it can be
  // found), a drive that is mounted, a PATH.unfinished that no opening left; resource_exhausted: no room,
  // with what is free; unavailable: may not be opened; io_error. Cost: of a new file, the time of fallocate,
  // or of writing all of it where the file system has none.
  static Result<BlockFile> open(const BlockFileOptions& options,
                                const BlockCalls& calls = linux_block_calls());

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  std::uint64_t size_bytes() const { return bytes_; }
  bool read_only() const { return read_only_; }
  bool created() const { return created_; }
  bool direct() const { return direct_; }
  // What memory must be a multiple of to be read or written where it stands.
  std::uint64_t memory_alignment() const { return memory_alignment_; }
  // What is not as well as it could be, one line each.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  friend class BlockFileOpening;
  void swap(BlockFile& other) noexcept;

  int fd_ = -1;
  std::string path_;
  std::uint64_t bytes_ = 0;
  bool read_only_ = false, created_ = false, direct_ = false;
  std::uint64_t memory_alignment_ = 1;
  std::vector<std::string> notes_;
};

// The process that has a lock on the file of this device and inode, out of the text of /proc/locks; 0: it
// does not say.
int lock_owner_in(std::string_view locks, unsigned major, unsigned minor, std::uint64_t inode);

}  // namespace tiercel
