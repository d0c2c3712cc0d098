// Mean loss over a fixed set of validation tokens: the same number for any batch size and any number of
// ranks.
#pragma once

#include <cmath>
#include <cstdint>

#include "comm/collectives.h"
#include "data/sequence_source.h"
#include "model/llama.h"

namespace mpt {

struct Evaluation {
  double loss = 0;     // nats per predicted token, token-weighted
  int64_t tokens = 0;  // predicted

  [[nodiscard]] double perplexity() const { return std::exp(loss); }
};

struct EvaluationOptions {
  int64_t rows_per_batch;  // at most the model's micro-batch
  int64_t tokens;          // budget in positions, rounded up to whole sequences; at most all of the source
  Collectives* ranks = nullptr;  // that share the work; null: this one alone
};

// The first sequences of the source, in its order (which should not be shuffled), summed token by token in
// FP64, and then sequence by sequence. Throws Error if not a single token is predicted.
Evaluation evaluate(Llama& model, const SequenceSource& source, const EvaluationOptions& options);

}  // namespace mpt
