// The verbs of the program, by what they work on. Each function adds some to the command line; a verb runs
// when its command line has been read without fault.
#pragma once

#include <CLI/CLI.hpp>

namespace mpt {

// The exit status of a run that a signal stopped; a verb gives it to CLI::RuntimeError.
inline constexpr int kStoppedStatus = 75;

void add_train_verbs(CLI::App& program);       // train, plan, schema
void add_data_verbs(CLI::App& program);        // tokenizer, tokenize
void add_model_verbs(CLI::App& program);       // eval, generate, export
void add_checkpoint_verbs(CLI::App& program);  // checkpoint list, verify, prune
void add_toy_verb(CLI::App& program);          // toy

}  // namespace mpt
