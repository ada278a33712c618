// A drive that is opened a second time once the memory is there that it will read into and write from: how
// large a node's arena may be follows from the index of the log on it, so the log comes first.
//
// Threads: as BlockDevice.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "os/block_device.h"

namespace tiercel::capi {

class LateDrive final : public BlockDevice {
 public:
  explicit LateDrive(std::unique_ptr<BlockDevice> drive)
      : drive_(std::move(drive)), size_bytes_(drive_->size_bytes()) {}

  std::uint64_t size_bytes() const override { return size_bytes_; }
  bool submit(BlockRequest request) override {
    const bool taken = drive_ != nullptr && drive_->submit(std::move(request));
    under_way_ += taken ? 1 : 0;
    return taken;
  }
  std::vector<BlockDone> drain() override {
    std::vector<BlockDone> ends = std::exchange(ended_, {});
    if (drive_ == nullptr) return ends;
    for (BlockDone& done : drive_->drain()) {
      --under_way_;
      ends.push_back(std::move(done));
    }
    return ends;
  }
  void wait(Duration at_most) override {
    if (ended_.empty() && drive_ != nullptr) drive_->wait(at_most);
  }

  // Waits for what is under way, then closes the drive. Until reopened() nothing is taken.
  void close() {
    while (under_way_ != 0) {
      drive_->wait(std::chrono::seconds(1));
      ended_ = drain();
    }
    drive_.reset();
  }
  // The same drive, of the same size.
  void reopened(std::unique_ptr<BlockDevice> drive) { drive_ = std::move(drive); }

 private:
  std::unique_ptr<BlockDevice> drive_;
  const std::uint64_t size_bytes_;
  std::uint64_t under_way_ = 0;
  std::vector<BlockDone> ended_;
};

}  // namespace tiercel::capi
