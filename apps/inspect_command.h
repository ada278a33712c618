// `tiercel inspect`: what a model keeps, in print.
//
// Threads: main thread only.
#pragma once

#include "command.h"

namespace tiercel::apps {

Command inspect_command(CLI::App& parent);

}  // namespace tiercel::apps
