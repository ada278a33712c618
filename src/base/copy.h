// Copies of bytes that will not be read again soon: a processor that writes past its caches need not read the
// target first, nor push out what others use.
//
// Threads: pure functions, on ranges that do not overlap. Bytes written past the caches are seen by other
// threads and processes in order with what this thread writes after copy_fence(), and not before it.
#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace tiercel {

enum class WritePath : std::uint8_t {
  kCached,
  kPastCache,  // where the processor can, and the copy is long enough to gain from it; else as kCached
};

// Copies `from` to `to`. kPastCache: copy_fence() before anybody is told. Cost: 1.0 to 1.3 times as fast as
// memcpy of memory that lies in no cache.
void copy_bytes(std::byte* to, ByteView from, WritePath path);

// Orders everything this thread has written past the caches before what it writes from now on. Cost: waits
// for those writes.
void copy_fence();

}  // namespace tiercel
