// A step in words, for whoever looks for a mistake: what was asked, what came back.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "sim/scene.h"

namespace tiercel::sim {

// Several lines, each ended: the action, new operations, completions, events, a match's answer.
std::string describe_step(const Scene& scene);

}  // namespace tiercel::sim
