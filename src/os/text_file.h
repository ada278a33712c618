// A file of text as a whole, bounded.
//
// Threads: pure but for the file.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

#include "base/status.h"

namespace tiercel {

// The bytes of the file at `path`, at most `limit` and one more, so that a caller sees that there are too
// many. Errors: io_error with the path and the system's reason.
Result<std::string> read_text_file(const std::string& path, std::size_t limit);

// A configuration that is read while something else waits: the bytes of a regular file at `path`, never a
// part of them, and never blocking on whoever writes into a pipe. Errors: io_error as above; invalid_argument
// when it is no regular file or has more than `limit` bytes.
Result<std::string> read_config_file(const std::string& path, std::size_t limit = 1U << 20);

// The same as read_text_file() of an open file, which stays open; `name` is for the error.
Result<std::string> read_text(std::FILE* file, const std::string& name, std::size_t limit);

}  // namespace tiercel
