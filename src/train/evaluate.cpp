#include "train/evaluate.h"

#include <algorithm>

#include "core/check.h"
#include "core/progress.h"
#include "data/dataloader.h"

namespace mpt {

Evaluation evaluate(Llama& model, const SequenceSource& source, const EvaluationOptions& options) {
  const int64_t wanted = (options.tokens + source.seq_len() - 1) / source.seq_len();
  const int64_t sequences = std::min(wanted, source.sequences());
  Progress progress({.label = "evaluate", .total = sequences});
  Evaluation result;
  double sum = 0;
  for (int64_t first = 0; first < sequences; first += options.rows_per_batch) {
    const Batch batch = read_batch(source, first, std::min(options.rows_per_batch, sequences - first));
    model.evaluate({batch.tokens, batch.targets});
    for (const float loss : model.token_losses()) sum += double(loss);
    result.tokens += batch.valid_targets;
    progress.update(first + batch.rows);
  }
  progress.clear();
  if (result.tokens == 0)
    throw error("the validation data has no token to predict in its first {} rows", sequences);
  result.loss = sum / double(result.tokens);
  return result;
}

}  // namespace mpt
