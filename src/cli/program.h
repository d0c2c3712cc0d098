// The command line of mpretrain: its verbs, their options, and what a failure looks like.
//
// Results go to standard output, everything else (log, progress, errors) to standard error. Exit status: 0
// done, 1 something given is wrong or the environment failed, 2 wrong usage, 3 a bug of the program, 75 a run
// was stopped by a signal and can be resumed (EX_TEMPFAIL of sysexits.h).
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace mpt {

// `arguments` without the program's own name. Throws nothing.
int run_command_line(std::vector<std::string> arguments);

// The verbs of the program, by what they work on. Each function adds some to the command line; a verb runs
// when its command line has been read without fault.

// The exit status of a run that a signal stopped; a verb gives it to CLI::RuntimeError.
inline constexpr int kStoppedStatus = 75;

void add_train_verbs(CLI::App& program);       // train, plan, schema
void add_data_verbs(CLI::App& program);        // tokenizer, tokenize
void add_model_verbs(CLI::App& program);       // eval, generate, export
void add_checkpoint_verbs(CLI::App& program);  // checkpoint list, verify, prune
void add_toy_verb(CLI::App& program);          // toy

// How the threads of a parallel loop wait for each other.
//
// By default the OpenMP runtime lets them spin. On a machine that runs anything else, a spinning thread takes
// the processor from the one it waits for: a single busy process made training ten times slower. Sleeping at
// once, though, costs up to a tenth of a millisecond a loop, which is how long a processor without work takes
// to wake on a virtual machine.

// Unless the environment says otherwise (OMP_WAIT_POLICY or GOMP_SPINCOUNT), starts this program once more
// with waiting threads that spin for about a tenth of a millisecond and then sleep: the runtime reads the
// setting before main. Goes on as it is if that cannot be done.
void let_waiting_threads_sleep(char** argv);

}  // namespace mpt
