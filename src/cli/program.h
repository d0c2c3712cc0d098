// The command line of mpretrain: its verbs, their options, and what a failure looks like.
//
// Results go to standard output, everything else (log, progress, errors) to standard error. Exit status: 0
// done, 1 something given is wrong or the environment failed, 2 wrong usage, 3 a bug of the program, 75 a run
// was stopped by a signal and can be resumed (EX_TEMPFAIL of sysexits.h).
#pragma once

#include <string>
#include <vector>

namespace mpt {

// `arguments` without the program's own name. Throws nothing.
int run_command_line(std::vector<std::string> arguments);

}  // namespace mpt
