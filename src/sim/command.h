// The command line of tiercel-sim. Exit status: 0 clean, 3 a checker fired (the last line says which), 2
// usage, 4 with --fault and nothing caught.
//
// Threads: one thread.
#pragma once

namespace tiercel::sim {

int command(int argc, char** argv);

}  // namespace tiercel::sim
