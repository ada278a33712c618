// `tiercel bench`: how near each part comes to what the machine allows, measured side by side.
//
// Threads: main thread only.
#pragma once

#include "command.h"

namespace tiercel::apps {

Command bench_command(CLI::App& parent);

}  // namespace tiercel::apps
