// The verbs of the program, by subject. Each function adds some to the command line; a verb runs
// once its command line was parsed without error.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace mpt {

// The exit status of a run stopped by a signal; a verb throws CLI::RuntimeError with it.
inline constexpr int kStoppedStatus = 75;

void add_train_verbs(CLI::App& program);       // train, launch, plan, report, schema
void add_data_verbs(CLI::App& program);        // tokenizer, tokenize
void add_model_verbs(CLI::App& program);       // eval, generate, export
void add_generate_verb(CLI::App& program);     // generate, for add_model_verbs()
void add_weight_verbs(CLI::App& program);      // import, convert
void add_checkpoint_verbs(CLI::App& program);  // checkpoint list, verify, prune
void add_average(CLI::App& checkpoint);        // checkpoint average
void add_toy_verb(CLI::App& program);          // toy

// Describes the error in a command line. Reports an unknown option before a missing one, of which
// it may be a misspelling.
std::string complaint(const CLI::App& program, const CLI::ParseError& wrong);

}  // namespace mpt
