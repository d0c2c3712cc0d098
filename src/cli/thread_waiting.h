// How the threads of a parallel loop wait for each other.
//
// By default the OpenMP runtime lets them spin. On a machine that runs anything else, a spinning thread takes
// the processor from the one it waits for: a single busy process made training ten times slower. Sleeping at
// once, though, costs up to a tenth of a millisecond a loop, which is how long a processor without work takes
// to wake on a virtual machine.
#pragma once

namespace mpt {

// Unless the environment says otherwise (OMP_WAIT_POLICY or GOMP_SPINCOUNT), starts this program once more
// with waiting threads that spin for about a tenth of a millisecond and then sleep: the runtime reads the
// setting before main. Goes on as it is if that cannot be done.
void let_waiting_threads_sleep(char** argv);

}  // namespace mpt
