// Work for a block device in tests: aligned memory, and a batch that runs to its end.
//
// Threads: one.
#pragma once

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/prng.h"
#include "os/block_device.h"

namespace tiercel {

// Bytes at a multiple of a block.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::uint64_t size)
      : size_(size), data_(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, size))) {
    std::memset(data_, 0, size_);
  }
  ~AlignedBytes() { std::free(data_); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }
  void fill(Prng& prng) const {
    for (std::uint64_t i = 0; i < size_; i += 8) {
      const std::uint64_t value = prng.next();
      std::memcpy(data_ + i, &value, 8);
    }
  }

 private:
  std::uint64_t size_;
  std::byte* data_;
};

// Submits all, however often the device is full, and waits for every end; by id.
inline std::map<std::uint64_t, Status> run_to_the_end(BlockDevice& device,
                                                      const std::vector<BlockRequest>& work) {
  std::map<std::uint64_t, Status> ends;
  const auto collect = [&] {
    for (BlockDone& done : device.drain())
      EXPECT_TRUE(ends.emplace(done.id, std::move(done.status)).second)
          << "an end was told twice: " << done.id;
  };
  for (const BlockRequest& request : work)
    while (!device.submit(request)) {
      device.wait(std::chrono::seconds(10));
      collect();
    }
  while (ends.size() < work.size()) {
    device.wait(std::chrono::seconds(10));
    collect();
  }
  device.wait(std::chrono::hours(1));  // nothing is under way: at once
  EXPECT_TRUE(device.drain().empty());
  return ends;
}

inline void expect_ok(const std::map<std::uint64_t, Status>& ends) {
  for (const auto& [id, status] : ends) EXPECT_TRUE(status.ok()) << id << ": " << status.to_string();
}

}  // namespace tiercel
