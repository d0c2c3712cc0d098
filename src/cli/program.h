// The command line of mpretrain: verbs, options, exit statuses.
//
// Results go to standard output, everything else (log, progress, errors) to standard error. Exit
// status: 0 success, 1 bad input or environment failure, 2 wrong usage, 3 a bug of the program, 75
// a run was stopped by a signal and can be resumed (EX_TEMPFAIL of sysexits.h).
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace mpt {

// What main calls lies in a shared library where the program is packaged.
#define MPT_EXPORTED [[gnu::visibility("default")]]

// `arguments` excludes the program's name. Returns the exit status; never throws.
MPT_EXPORTED int run_command_line(std::vector<std::string> arguments);

// The verbs of the program, by subject. Each function adds some to the command line; a verb runs
// once its command line was parsed without error.

// The exit status of a run stopped by a signal; a verb throws CLI::RuntimeError with it.
inline constexpr int kStoppedStatus = 75;

void add_train_verbs(CLI::App& program);       // train, plan, report, schema
void add_data_verbs(CLI::App& program);        // tokenizer, tokenize
void add_model_verbs(CLI::App& program);       // eval, generate, export
void add_generate_verb(CLI::App& program);     // generate, for add_model_verbs()
void add_weight_verbs(CLI::App& program);      // import, convert
void add_checkpoint_verbs(CLI::App& program);  // checkpoint list, verify, prune
void add_average(CLI::App& checkpoint);        // checkpoint average
void add_toy_verb(CLI::App& program);          // toy

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
