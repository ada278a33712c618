// The bytes behind slots. Records are addressed by their spans (memory/space.h) and a position inside the
// record; nobody else computes an address.
//
// Threads: view() may be called from copy threads for different records at once; a record is written by one
// task at a time. ThinArena is for one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "memory/space.h"

namespace tiercel {

class Arena {
 public:
  virtual ~Arena() = default;
  virtual std::uint64_t size_bytes() const = 0;
  // How many of a record's payload bytes are really kept (all of them, except in a thin arena).
  virtual std::uint64_t payload_kept(std::uint64_t payload_bytes) const = 0;
  // Contiguous memory for the record's bytes from `position` on: at most `length`, fewer where a span ends
  // (the caller goes on from there), never empty for a valid position. Requires: position + length within the
  // spans, and within header + kept payload.
  virtual MutableByteView view(std::span<const ArenaSpan> record, std::uint64_t position,
                               std::uint64_t length) = 0;
  // The record's bytes may be forgotten.
  virtual void discard(std::span<const ArenaSpan> record) = 0;
};

// Plain bytes: its own, or somebody else's mapping (which must outlive it).
class ByteArena final : public Arena {
 public:
  explicit ByteArena(std::uint64_t bytes);
  explicit ByteArena(MutableByteView external);
  std::uint64_t size_bytes() const override { return bytes_.size(); }
  std::uint64_t payload_kept(std::uint64_t payload_bytes) const override { return payload_bytes; }
  MutableByteView view(std::span<const ArenaSpan> record, std::uint64_t position,
                       std::uint64_t length) override;
  void discard(std::span<const ArenaSpan>) override {}

 private:
  std::unique_ptr<std::byte[]> own_;
  MutableByteView bytes_;
};

// Any size, keeping the header and the first `payload_bytes_max` of each record's payload only: replays of
// models whose caches would not fit this machine, and sizes past 4 GiB in tests.
class ThinArena final : public Arena {
 public:
  ThinArena(std::uint64_t size_bytes, std::uint64_t payload_bytes_max);
  std::uint64_t size_bytes() const override { return size_bytes_; }
  std::uint64_t payload_kept(std::uint64_t payload_bytes) const override;
  MutableByteView view(std::span<const ArenaSpan> record, std::uint64_t position,
                       std::uint64_t length) override;
  void discard(std::span<const ArenaSpan> record) override;

 private:
  std::uint64_t size_bytes_;
  std::uint64_t payload_bytes_max_;
  std::unordered_map<std::uint64_t, std::vector<std::byte>>
      records_;  // by offset of the first span; grows to the furthest byte viewed
};

}  // namespace tiercel
