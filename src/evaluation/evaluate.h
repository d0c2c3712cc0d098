// Mean loss over a fixed set of validation tokens: the same number for any batch size and any
// number of ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "config/run_data.h"
#include "core/io/file_system.h"
#include "model/llama.h"
#include "ranks/communicator.h"
#include "text/text_bytes.h"

namespace mpt {

struct Evaluation {
  double loss = 0;                        // nats per predicted token, token-weighted
  double galore_loss = 0;                 // see galore_loss()
  int64_t tokens = 0;                     // predicted
  std::optional<double> bits_per_byte{};  // if the text of all these tokens is known

  [[nodiscard]] double perplexity() const { return std::exp(loss); }
};

struct NamedEvaluation {
  std::string name;
  Evaluation evaluation;
};
struct ValidationResult {
  Evaluation all;                       // of all sets as if they were one
  std::vector<NamedEvaluation> sets{};  // one per set; empty if the only one has no name
};

// Returns the fields of metrics.jsonl and `mpretrain eval --json`: val_loss, val_loss_family,
// val_perplexity, val_bits_per_byte and val_tokens over all sets, and the same for each under
// "validation".
nlohmann::ordered_json validation_json(const ValidationResult& result);

// Thrown by evaluate() on all ranks if one of them left it or failed.
struct EvaluationLeft : std::exception {
  std::exception_ptr failure;  // of this rank; null if it is another's, or there is none
};

struct EvaluationOptions {
  int64_t rows_per_batch;  // at most the model's micro-batch
  // Budget of a set in positions, rounded up to whole sequences; at most all of the set.
  int64_t tokens;
  int64_t galore_batch_rows;  // sequences per batch of galore_loss()
  // Text of the data's tokenizer. Unknown bytes cause a warning, once; null: not requested.
  const TextBytes* text = nullptr;
  Communicator& ranks = Communicator::single();  // ranks that share the work
  // Polled between batches; if true, this rank leaves its part of the set, and all ranks leave the
  // evaluation after it. None: the evaluation runs to completion.
  std::function<bool()> leave{};
};

// Returns the loss that the evaluation of GaLore, and of code derived from it, reports for the same
// data. Its batch counter starts at 1, so the loss is
//
//   sum of the n batches' mean losses / (n + 1)
//
// A batch is `rows` consecutive sequences (the last may be shorter); its mean is over its predicted
// tokens. Batches without predicted tokens are excluded from sum and n; in GaLore's code they make
// the result NaN.
double galore_loss(std::span<const double> loss_sums, std::span<const int64_t> valid_targets,
                   int64_t rows);

// Reads all data that this rank reads in evaluate(), in any evaluation of a run. Throws Error,
// naming the shard, if a token cannot be read or is outside the vocabulary, and if no token is
// predicted.
void check_validation_data(std::span<const ValidationSet> sets, int64_t tokens,
                           const Communicator& ranks = Communicator::single());

// Returns the mean loss over the first sequences of each set (which should not be shuffled), summed
// in FP64 over tokens, then over sequences. Throws Error if no token is predicted, EvaluationLeft
// if a rank leaves or fails.
ValidationResult evaluate(Llama& model, std::span<const ValidationSet> sets,
                          const EvaluationOptions& options);

// Returns the text bytes of the config's data, by its tokenizer (tokenizer_of()).
TextBytes text_of_data(const DataConfig& data);

}  // namespace mpt
