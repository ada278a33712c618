// The end of the log: segments of a region without a footer, one behind the other.
//
// Threads: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "disk/recovery.h"

namespace tiercel::disk {

class TailScan final {
 public:
  TailScan(Recovery& recovery, std::uint32_t region);
  // First directories alone, as far as they are in order; then what of it is whole, with the names at hand
  // that any directory or footer tells.
  void read();
  TailFound accept();
  TailFound as_it_stands() const;  // whole or not, without what marks leave out
  const std::vector<Directory>& chain() const { return chain_; }

 private:
  // The directory at that block, if it is the next of this use of the region. Errors: why not.
  Result<Directory> directory_at(std::uint32_t block);
  Status in_order(const SegmentHead& head, std::uint32_t block) const;
  bool is_mark(const SegmentHead& head) const;
  void take(Directory directory);
  bool is_left_out(const Descriptor& descriptor) const;
  TailFound place() const;  // where it ends, and why; no entries
  // Its records' blocks in one read, unless they are too many.
  Recovery::BlocksRead read_payload(const Directory& directory) const;
  bool counts(const Descriptor& descriptor, bool verify, const Recovery::BlocksRead& payload) const;
  bool same_records(const Directory& directory, const Recovery::BlocksRead& payload) const;

  Recovery& recovery_;
  std::uint32_t region_;
  std::uint64_t life_;
  std::uint64_t epoch_ = 0;       // of the segment before
  std::uint64_t next_at_ = 0;     // the next segment's first number, or lower
  std::uint64_t durable_at_ = 0;  // of that opening: what it wrote up to there is whole
  std::vector<Directory> chain_;
  std::size_t settled_ = 0;  // of the chain: what of it counts, a later opening has written down
  std::unordered_set<std::uint32_t> left_out_;  // first blocks of what did not
  std::string end_;                             // why it goes on no further; empty: the region does not
};

}  // namespace tiercel::disk
