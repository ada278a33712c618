// Copies of bytes that will not be read again soon: a processor that writes past its caches need not read the
// target first, nor push out what others use. Copies of many short pieces ask for the next one's bytes while
// this one is copied, since no processor guesses where it lies.
//
// Threads: pure functions, on ranges that do not overlap. Bytes written past the caches are seen by other
// threads and processes in order with what this thread writes after copy_fence(), and not before it.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"

namespace tiercel {

enum class WritePath : std::uint8_t {
  kCached,
  kPastCache,  // where the processor can, and the copy is long enough to gain from it; else as kCached
};

// Copies `from` to `to`. kPastCache: copy_fence() before anybody is told. Cost: 1.0 to 1.4 times as fast as
// memcpy of memory that lies in no cache.
void copy_bytes(std::byte* to, ByteView from, WritePath path);

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::size_t length = 0;
};

// Copies the first `count` pieces, and asks for number i + ahead while it copies number i: for that more of
// them may be given. Requires: count ≤ pieces.size(). Cost: of copy_bytes(), and a few nanoseconds a piece.
void copy_pieces(std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead, WritePath path);

// Orders everything this thread has written past the caches before what it writes from now on. Cost: waits
// for those writes.
void copy_fence();

namespace detail {

// Exposed so that all bodies are compared in a test and in the bench.
enum class CopyBody : std::uint8_t {
  kPlain,       // any processor: the library's copy
  kVectors128,  // x86: 16 bytes at once, and so on
  kVectors256,
  kVectors512,
};
inline constexpr CopyBody kCopyBodies[] = {CopyBody::kPlain, CopyBody::kVectors128, CopyBody::kVectors256,
                                           CopyBody::kVectors512};
bool copy_has(CopyBody body);
CopyBody best_copy_body();
// Requires: copy_has(body).
void copy_by(CopyBody body, std::byte* to, ByteView from, WritePath path);
void copy_pieces_by(CopyBody body, std::span<const CopyPiece> pieces, std::size_t count, std::size_t ahead,
                    WritePath path);

}  // namespace detail

}  // namespace tiercel
