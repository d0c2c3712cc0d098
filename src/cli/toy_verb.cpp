#include <memory>

#include "cli/options.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "train/toy.h"

namespace mpt {

void add_toy_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand(
      "toy", "Fit numbers stored in BF16 to targets, by additive steps, multiplicative ones and both");
  const auto options = std::make_shared<ToyOptions>();
  add_text(*verb, "--output", options->output, "directory, new or empty")->required();
  add_choices(*verb, "--regimes", options->regimes, "what is fitted [all]");
  add_choices(*verb, "--rules", options->rules, "how [all]");
  add_choice(*verb, "--loss", options->loss,
             "entry_quartic: mean of c d^4 over draws; frobenius: square of the mean of sqrt(c) d^2");
  add_choice(*verb, "--format", options->weights, "what weights are rounded to after each step: bf16, fp32");
  add_choice(*verb, "--sampling", options->sampling,
             "entries of a step: drawn with replacement (replacement), or each once (full)");
  constexpr int64_t kMost = 1 << 24;
  add_count(*verb, "--batch", options->batch, {.least = 1, .most = kMost}, "draws a step");
  add_count(*verb, "--steps", options->steps, {.least = 1, .most = kMost}, "");
  add_count(*verb, "--points", options->points, {.least = 1, .most = kMost},
            "losses recorded, evenly spaced over the steps");
  constexpr CountRange kExponents{.least = -100, .most = 100};
  add_count(*verb, "--log2-rate-from", options->log2_rate_from, kExponents,
            "binary logarithm of the lowest rate");
  add_count(*verb, "--log2-rate-to", options->log2_rate_to, kExponents, "and of the highest");
  add_count(*verb, "--rates-per-doubling", options->rates_per_doubling, {.least = 1, .most = 64},
            "evenly spaced in their logarithm");
  add_seed(*verb, options->seed, "of targets and draws");
  add_count(*verb, "--seeds", options->seeds, {.least = 1, .most = 10'000},
            "seeds, from --seed on; losses are their means");
  add_threads(*verb, options->threads);
  verb->add_flag_callback(
      "--overwrite", [options] { options->overwrite = Overwrite::kYes; }, "replace an earlier result");
  verb->callback([options] { write_output(toy_table(run_toy(posix_file_system(), *options))); });
}

}  // namespace mpt
