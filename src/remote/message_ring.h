// One ring of tiercel/connector.h, from its writer's and from its reader's end. The other end is in another
// process and is not trusted: its position is checked before it is believed, and a message is copied out
// before anything in it is looked at, so that it cannot change between the check and the use.
//
// Threads: one writes, one reads; each end keeps its own position in private memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace tiercel {

// Where a ring lies in shared memory.
struct RingPlace {
  std::byte* bytes = nullptr;
  std::uint64_t size = 0;         // a power of two
  std::uint64_t* tail = nullptr;  // the writer's position
  std::uint64_t* head = nullptr;  // the reader's
};

class RingWriter final {
 public:
  enum class Put : std::uint8_t {
    kPut,
    kFull,      // nothing was written
    kNonsense,  // the reader's position cannot be one
  };
  RingWriter() = default;
  explicit RingWriter(const RingPlace& place) : place_(place) {}  // of an empty ring
  // Whoever would fit at every position: larger ones could wait for ever, with the ring empty.
  std::uint64_t message_bytes_max() const { return place_.size / 2; }
  // Published when it is put. Requires: a multiple of 8 bytes, at most message_bytes_max().
  Put put(ByteView message);

 private:
  RingPlace place_;
  std::uint64_t tail_ = 0, head_ = 0;
};

class RingReader final {
 public:
  enum class Take : std::uint8_t { kTaken, kEmpty, kNonsense };
  RingReader() = default;
  explicit RingReader(const RingPlace& place) : place_(place) {}
  // The next message, copied; its room is the writer's again. Fillers are passed over.
  Take take(std::vector<std::byte>& message);
  // What was wrong, with the numbers; once there was nonsense there is nothing else.
  const std::string& nonsense() const { return nonsense_; }

 private:
  Take wrong(std::string what);

  RingPlace place_;
  std::uint64_t head_ = 0, tail_ = 0;
  bool after_filler_ = false;
  std::string nonsense_;
};

}  // namespace tiercel
