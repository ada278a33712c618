// A drive in memory for unit tests: operations end in the order in which they came, when they are drained;
// they can be held back, made to fail, and what was not flushed can be lost. The simulator's drive is worse.
//
// Threads: one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "os/block_device.h"

namespace tiercel {

class TestBlockDevice final : public BlockDevice {
 public:
  // Time passes on `clock` only in wait() while operations are held back.
  TestBlockDevice(std::uint64_t size_bytes, ManualClock& clock) : size_bytes_(size_bytes), clock_(clock) {}

  std::uint64_t size_bytes() const override { return size_bytes_; }

  bool submit(BlockRequest request) override {
    const std::uint64_t bytes = request.bytes();
    TIERCEL_CHECK(request.offset % kBlockBytes == 0 && bytes % kBlockBytes == 0);
    TIERCEL_CHECK((bytes == 0) == (request.work == BlockWork::kFlush));
    TIERCEL_CHECK(request.offset <= size_bytes_ && bytes <= size_bytes_ - request.offset);
    if (queue_.size() >= room) return false;
    done_so_far.push_back({request.work, request.offset, bytes});
    if (request.work == BlockWork::kWrite) written_bytes += bytes;
    if (request.work == BlockWork::kRead) read_bytes += bytes;
    queue_.push_back(std::move(request));
    return true;
  }

  std::vector<BlockDone> drain() override {
    std::vector<BlockDone> ends;
    std::deque<BlockRequest> kept;
    for (BlockRequest& request : queue_) {
      if (cut_ == 0 && held && held(request)) {
        kept.push_back(std::move(request));
        continue;
      }
      Status status = failure ? failure(request) : Status{};
      if (cut_ > 0) {
        --cut_;
        status = {Code::kIoError, "the power was cut"};
      }
      if (status.ok()) perform(request);
      ends.push_back({request.id, std::move(status)});
    }
    queue_ = std::move(kept);
    return ends;
  }

  void wait(Duration at_most) override {
    const bool all_held =
        held && std::all_of(queue_.begin(), queue_.end(), [&](const BlockRequest& r) { return held(r); });
    if (!queue_.empty() && all_held) clock_.advance(at_most);
  }

  // What was not flushed is gone; what is under way fails.
  void cut_power() {
    cut_ = queue_.size();
    cached_.clear();
  }
  std::size_t under_way() const { return queue_.size(); }

  // As they stand, flushed or not.
  std::vector<std::byte> bytes(std::uint64_t offset, std::uint64_t length) const {
    std::vector<std::byte> out(length);
    for (std::uint64_t i = 0; i < length; ++i) {
      const Block* block = find((offset + i) / kBlockBytes);
      if (block != nullptr) out[i] = (*block)[(offset + i) % kBlockBytes];
    }
    return out;
  }
  void damage(std::uint64_t offset) {
    Block block{};
    if (const Block* there = find(offset / kBlockBytes)) block = *there;
    block[offset % kBlockBytes] ^= std::byte{0x40};
    cached_.erase(offset / kBlockBytes);
    kept_[offset / kBlockBytes] = block;
  }
  void overwrite(std::uint64_t offset, const std::vector<std::byte>& bytes) {
    for (std::uint64_t i = 0; i < bytes.size(); ++i) {
      const std::uint64_t number = (offset + i) / kBlockBytes;
      if (cached_.contains(number)) kept_[number] = cached_[number];
      cached_.erase(number);
      kept_[number][(offset + i) % kBlockBytes] = bytes[i];
    }
  }

  struct Seen {
    BlockWork work;
    std::uint64_t offset, bytes;
  };
  std::vector<Seen> done_so_far;  // submitted, in order
  std::uint64_t written_bytes = 0, read_bytes = 0;
  std::size_t room = SIZE_MAX;                         // operations under way at most
  std::function<bool(const BlockRequest&)> held;       // not ended yet
  std::function<Status(const BlockRequest&)> failure;  // how it ends; nothing happens where it is not ok

 private:
  using Block = std::array<std::byte, kBlockBytes>;
  const Block* find(std::uint64_t number) const {
    if (const auto it = cached_.find(number); it != cached_.end()) return &it->second;
    if (const auto it = kept_.find(number); it != kept_.end()) return &it->second;
    return nullptr;
  }

  void perform(const BlockRequest& request) {
    if (request.work == BlockWork::kFlush) {
      for (auto& [number, block] : cached_) kept_[number] = block;
      cached_.clear();
      return;
    }
    std::uint64_t at = request.offset;
    for (const BlockPiece& piece : request.pieces) {
      for (std::uint64_t done = 0; done < piece.length;) {
        const std::uint64_t in_block = at % kBlockBytes;
        const std::uint64_t step = std::min(kBlockBytes - in_block, piece.length - done);
        if (request.work == BlockWork::kWrite) {
          Block block{};
          if (const Block* there = find(at / kBlockBytes)) block = *there;
          if (piece.data != nullptr)
            std::memcpy(block.data() + in_block, piece.data + done, step);
          else
            std::memset(block.data() + in_block, 0, step);
          cached_[at / kBlockBytes] = block;
        } else if (piece.data != nullptr) {
          const Block* there = find(at / kBlockBytes);
          if (there != nullptr)
            std::memcpy(piece.data + done, there->data() + in_block, step);
          else
            std::memset(piece.data + done, 0, step);
        }
        done += step;
        at += step;
      }
    }
  }

  std::uint64_t size_bytes_;
  ManualClock& clock_;
  std::deque<BlockRequest> queue_;
  std::size_t cut_ = 0;                                     // of the queue's first operations
  std::unordered_map<std::uint64_t, Block> kept_, cached_;  // by block: flushed, and not yet
};

}  // namespace tiercel
