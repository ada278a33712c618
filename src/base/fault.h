// Fault points: places where the simulator may make the system do the wrong thing on purpose, to prove that a
// checker sees it. In the library the macro is the constant false and the name does not survive compilation;
// only the simulator's second build of the same sources (TIERCEL_FAULTS) asks fault_active. Threads: set once
// before anything runs.
#pragma once

#ifdef TIERCEL_FAULTS
namespace tiercel {
bool fault_active(const char* name);  // defined by the test-only program
void pause_point();                   // too: what another process might do just then
}  // namespace tiercel
#define TIERCEL_FAULT(name) (::tiercel::fault_active(#name))
#define TIERCEL_PAUSE() (::tiercel::pause_point())
#else
#define TIERCEL_FAULT(name) false
#define TIERCEL_PAUSE() static_cast<void>(0)
#endif
