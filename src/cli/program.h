// The command line of mpretrain: verbs, options, exit statuses.
//
// Results go to standard output, everything else (log, progress, errors) to standard error. Exit
// status: 0 success, 1 bad input or environment failure, 2 wrong usage, 3 a bug of the program, 75
// a run was stopped by a signal and can be resumed (EX_TEMPFAIL of sysexits.h).
#pragma once

#include <string>
#include <vector>

#include "cli/exported.h"

namespace mpt {

// `arguments` excludes the program's name. Returns the exit status; never throws.
MPT_EXPORTED int run_command_line(std::vector<std::string> arguments);

// Opens something at the standard descriptors that a daemon or a shell has closed (`>&-`), so that
// no file of the program takes their numbers. Reading such an input or writing such an output is an
// error; text written to such a standard error is lost. Call before anything is opened.
MPT_EXPORTED void hold_standard_descriptors();

}  // namespace mpt
