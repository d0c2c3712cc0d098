// Mean loss over a fixed set of validation tokens: the same number for any batch size and any
// number of ranks.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/sequence_source.h"
#include "model/llama.h"

namespace mpt {

struct Evaluation {
  double loss = 0;         // nats per predicted token, token-weighted
  double galore_loss = 0;  // see galore_loss()
  int64_t tokens = 0;      // predicted

  [[nodiscard]] double perplexity() const { return std::exp(loss); }
};

struct EvaluationOptions {
  int64_t rows_per_batch;  // at most the model's micro-batch
  int64_t tokens;  // budget in positions, rounded up to whole sequences; at most all of the source
  int64_t galore_batch_rows;                     // sequences per batch of galore_loss()
  Communicator& ranks = Communicator::single();  // ranks that share the work
};

// The loss that the evaluation of GaLore, and of code derived from it, reports for the same data.
// Its batch counter starts at 1, so the loss is
//
//   sum of the n batches' mean losses / (n + 1)
//
// A batch is `rows` consecutive sequences (the last may be shorter); its mean is over its predicted
// tokens. Batches without predicted tokens are excluded from sum and n; in GaLore's code they make
// the result NaN.
double galore_loss(std::span<const double> loss_sums, std::span<const int64_t> valid_targets,
                   int64_t rows);

// Mean loss over the first sequences of the source (which should not be shuffled), summed in FP64
// over tokens, then over sequences. Throws Error if no token is predicted.
Evaluation evaluate(Llama& model, const SequenceSource& source, const EvaluationOptions& options);

// Validation loss of a checkpoint, on its run's data or on other shards.

struct EvaluateCheckpointOptions {
  std::string checkpoint;         // a checkpoint, or a run's directory
  std::vector<std::string> data;  // shards: files or globs; empty: the run's validation data
  std::optional<int64_t> tokens;  // token budget; none: the run's
  int64_t micro_batch_rows = 0;   // 0: the run's
  int64_t galore_batch_rows = 0;  // 0: the run's
  DeviceConfig device{};
};

struct CheckpointEvaluation {
  std::string checkpoint;
  int64_t step = 0;
  Evaluation evaluation;
};

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options);

}  // namespace mpt
