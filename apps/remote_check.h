// `tiercel doctor --remote URL`: whether a remote store can be used from here, tried and not concluded: its
// connector is started, one object is put, read back and removed. What is wrong stands in words, with what to
// do.
//
// Threads: main thread only.
#pragma once

#include <string>

#include <tl/expected.hpp>

#include "command.h"
#include "os/machine_report.h"

namespace tiercel::apps {

// The check `remote`. Takes 2 MiB, and as long as the store does: half a minute at most. Errors: an address
// that makes no sense.
tl::expected<Check, Refusal> check_remote(const std::string& url);

}  // namespace tiercel::apps
