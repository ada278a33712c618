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

// The same of an open file, which stays open; `name` is for the error.
Result<std::string> read_text(std::FILE* file, const std::string& name, std::size_t limit);

}  // namespace tiercel
