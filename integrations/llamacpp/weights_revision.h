// The revision of a model's weights: SHA-256 over its files, in the order given.
//
// One file: the SHA-256 of its content, as sha256sum prints it. Several: SHA-256 of the text
//   tiercel-weights-1\n
//   SIZE HASH\n          for each file, in order: decimal digits, 64 hex digits
//
// Reading a file of gigabytes takes seconds, so the hash of each is remembered in a small text beside it
// (NAME.tiercel-sha256), together with what tells that the file is still the one that was read:
//   tiercel-sha256 1
//   size BYTES
//   inode NUMBER
//   mtime_ns NANOSECONDS  last change of content
//   ctime_ns NANOSECONDS  last change of status
//   began_ns NANOSECONDS  the clock when reading began
//   sha256 HASH
// Where any of it differs, is damaged or is not there, the file is read again and the text replaced (by a
// rename; 0644). A file that had changed within two seconds before reading began is read again next time,
// too: clocks of file systems are that coarse, so that a change during the reading might not show. Where the
// text cannot be written, nothing is remembered.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include <tiercel/tiercel.hpp>

namespace tiercel::llamacpp {

// Called after each piece of a file that is read, with the bytes read of that file so far; not at all for
// files whose hash is remembered.
using ReadProgress = std::function<void(const std::string& path, std::uint64_t bytes)>;

// 64 hex digits. Errors, naming the path: not_found; io_error: unreadable, not a regular file, or changed
// while it was read; invalid_argument: no paths. Cost: reading what is not remembered.
Result<std::string> weights_revision(std::span<const std::string> paths, const ReadProgress& progress = {});

}  // namespace tiercel::llamacpp
