// The file of a store, for damage: where its records lie (docs/format.md, "Records" and "Disk log"), and bits
// to flip.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tiercel/tiercel.hpp>

namespace tiercel::llamacpp {

struct DiskRecord {
  std::uint64_t at = 0;  // in the file: its header
  std::uint64_t header_bytes = 0, payload_bytes = 0;
  tiercel_key key{};
  std::uint32_t class_id = 0;
};

class LogFile {
 public:
  // The one large file of a store's folder.
  explicit LogFile(const std::string& folder);
  const std::string& path() const { return path_; }
  std::uint64_t size() const;
  // In the order of the file. Blocks that only look like a record are none.
  std::vector<DiskRecord> records() const;
  // Where anything but zeros was written last.
  std::uint64_t used() const;
  void flip(std::uint64_t at, unsigned bit) const;
  void overwrite(std::uint64_t at, std::uint64_t bytes) const;  // with zeros
  void cut(std::uint64_t size) const;

 private:
  std::string path_;
};

// The same bytes under another name: what a test damages.
void copy_store(const std::string& from, const std::string& to);

}  // namespace tiercel::llamacpp
