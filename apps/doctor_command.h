// `tiercel doctor`: what this machine can do, and a remedy for what it cannot.
//
// Threads: main thread only.
#pragma once

#include "command.h"

namespace tiercel::apps {

Command doctor_command(CLI::App& parent);

}  // namespace tiercel::apps
