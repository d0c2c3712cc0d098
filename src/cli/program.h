// The command line of mpretrain: verbs, options, exit statuses.
//
// Results go to standard output, everything else (log, progress, errors) to standard error. Exit
// status: 0 success, 1 bad input or environment failure, 2 wrong usage, 3 a bug of the program, 75
// a run was stopped by a signal and can be resumed (EX_TEMPFAIL of sysexits.h).
#pragma once

#include <string>
#include <vector>

namespace mpt {

// What main calls lies in a shared library where the program is packaged.
#define MPT_EXPORTED [[gnu::visibility("default")]]

// `arguments` excludes the program's name. Returns the exit status; never throws.
MPT_EXPORTED int run_command_line(std::vector<std::string> arguments);

// Puts something at the standard descriptors that a daemon or a shell has closed (`>&-`), so that
// no file of the program takes their numbers. Reading such an input or writing such an output is an
// error; what is written to such a standard error is lost. Call it before anything is opened.
MPT_EXPORTED void hold_standard_descriptors();

// How the threads of a parallel loop wait for each other.
//
// By default OpenMP threads spin. On a machine with other work, a spinning thread takes the CPU
// from the thread it waits for: a single busy process made training ten times slower. Sleeping at
// once costs up to 0.1 ms per loop, the time an idle CPU of a virtual machine takes to wake.

// Re-executes the program so that waiting threads spin for about 0.1 ms and then sleep; the OpenMP
// runtime reads this setting before main. Does nothing if OMP_WAIT_POLICY or GOMP_SPINCOUNT is set,
// or if re-executing fails.
MPT_EXPORTED void let_waiting_threads_sleep(char** argv);

}  // namespace mpt
