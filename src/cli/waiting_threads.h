// How the threads of a parallel loop wait for each other.
//
// By default OpenMP threads spin. On a machine with other work, a spinning thread takes the CPU
// from the thread it waits for: a single busy process made training ten times slower. Sleeping at
// once costs up to 0.1 ms per loop, the time an idle CPU of a virtual machine takes to wake.
#pragma once

#include "cli/exported.h"

namespace mpt {

// Re-executes the program so that waiting threads spin for about 0.1 ms and then sleep; the OpenMP
// runtime reads this setting before main. Does nothing if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set,
// or if re-executing fails.
MPT_EXPORTED void let_waiting_threads_sleep(char** argv);

}  // namespace mpt
