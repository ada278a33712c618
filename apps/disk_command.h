// `tiercel disk`: a look into the file or drive of a disk tier, its verification, and one namespace's end.
//
// Threads: main thread only.
#pragma once

#include "command.h"

namespace tiercel::apps {

// `check` ends with kExitDamaged, its report printed, when something that a cache would find is damaged.
Command disk_command(CLI::App& parent);

}  // namespace tiercel::apps
