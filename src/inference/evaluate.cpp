#include "inference/evaluate.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <vector>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_store.h"
#include "config/run_inputs.h"
#include "core/check.h"
#include "core/io/file_system.h"
#include "core/progress.h"
#include "data/dataloader.h"
#include "inference/loaded_model.h"

namespace mpt {
namespace {

// Sums of the losses of sequences [slice.first, slice.first + slice.rows).
std::vector<double> losses_of(Llama& model, const SequenceSource& source,
                              const EvaluationOptions& options, RowSlice slice) {
  Progress progress({.label = "evaluate", .total = slice.rows});
  std::vector<double> sums;
  for (int64_t done = 0; done < slice.rows; done += options.rows_per_batch) {
    const Batch batch =
        read_batch(source, slice.first + done, std::min(options.rows_per_batch, slice.rows - done));
    model.evaluate({batch.tokens, batch.targets, batch.document_begin});
    const std::span<const float> losses = model.token_losses();
    for (int64_t row = 0; row < batch.rows; ++row) {
      const std::span of_row = losses.subspan(size_t(row * batch.seq_len), size_t(batch.seq_len));
      sums.push_back(std::accumulate(of_row.begin(), of_row.end(), 0.0));
    }
    progress.update(done + batch.rows);
  }
  progress.clear();
  return sums;
}

// Gathers every rank's part of `sequences`.
std::vector<double> gathered(Communicator& ranks, std::vector<double> mine, int64_t sequences) {
  const auto most = size_t((sequences + ranks.size() - 1) / ranks.size());
  mine.resize(most);
  std::vector<double> padded(most * size_t(ranks.size())), all;
  ranks.gather_host(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(padded)));
  for (int64_t rank = 0; rank < ranks.size(); ++rank) {
    const auto first = padded.begin() + rank * std::ssize(mine);
    all.insert(all.end(), first, first + slice_of(sequences, rank, ranks.size()).rows);
  }
  return all;
}

}  // namespace

double galore_loss(std::span<const double> loss_sums, std::span<const int64_t> valid_targets,
                   int64_t rows) {
  check(rows > 0 && loss_sums.size() == valid_targets.size(),
        "batches of {} rows of {} losses and {} counts", rows, loss_sums.size(),
        valid_targets.size());
  double means = 0;
  int64_t batches = 0;
  for (size_t first = 0; first < loss_sums.size(); first += size_t(rows)) {
    const size_t count = std::min(size_t(rows), loss_sums.size() - first);
    const auto losses = loss_sums.subspan(first, count);
    const auto targets = valid_targets.subspan(first, count);
    const int64_t tokens = std::accumulate(targets.begin(), targets.end(), int64_t{0});
    if (tokens == 0) continue;
    means += std::accumulate(losses.begin(), losses.end(), 0.0) / double(tokens);
    ++batches;
  }
  return means / double(batches + 1);
}

Evaluation evaluate(Llama& model, const SequenceSource& source, const EvaluationOptions& options) {
  const int64_t wanted = (options.tokens + source.seq_len() - 1) / source.seq_len();
  const int64_t sequences = std::min(wanted, source.sequences());
  Evaluation result;
  std::vector<int64_t> targets;
  for (int64_t i = 0; i < sequences; ++i) targets.push_back(source.valid_targets(i));
  result.tokens = std::accumulate(targets.begin(), targets.end(), int64_t{0});
  if (result.tokens == 0)
    throw error("the validation data has no token to predict in its first {} rows", sequences);
  const RowSlice slice = slice_of(sequences, options.ranks.rank(), options.ranks.size());
  const std::vector<double> sums =
      gathered(options.ranks, losses_of(model, source, options, slice), sequences);
  model.end_evaluation();
  result.loss = std::accumulate(sums.begin(), sums.end(), 0.0) / double(result.tokens);
  result.galore_loss = galore_loss(sums, targets, options.galore_batch_rows);
  return result;
}

namespace {

// Checks that shards named by the run exist; problems of other shards are reported when they are
// opened.
void require_validation_files(const LoadedModel& model) {
  for (const std::string& pattern : model.config.data.validation)
    if (!names_a_file(pattern))
      throw error(
          "{}: data.validation of its run, {}, was not found (from {}); name the shards with "
          "--data",
          model.checkpoint, pattern, std::filesystem::current_path().string());
}

RunConfig with_options(const LoadedModel& model, const EvaluateCheckpointOptions& options) {
  RunConfig config = model.config;
  for (const std::string& pattern : options.data)
    if (!names_a_file(pattern))
      throw error("--data {}: no such file, and no file matches it as a glob", pattern);
  if (options.data.empty())
    require_validation_files(model);
  else
    config.data.validation = options.data;
  config.eval.tokens = options.tokens.value_or(config.eval.tokens);
  const std::string tokenizer = find_tokenizer(config, "", model.checkpoint).path;
  if (tokenizer.empty() && !config.data.tokenizer.empty())
    spdlog::warn("{} no longer exists: the data is not checked against the run's tokenizer",
                 config.data.tokenizer);
  config.data.tokenizer = tokenizer;
  // Computed before another micro-batch, on which it must not depend.
  config.eval.galore_batch_rows =
      options.galore_batch_rows > 0 ? options.galore_batch_rows : galore_batch_rows(config);
  if (options.micro_batch_rows > 0) config.batch.micro_batch_rows = options.micro_batch_rows;
  return config;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options) {
  if (options.tokens.value_or(1) < 1)
    throw error("tokens is {}; expected 1 or more", *options.tokens);
  if (options.micro_batch_rows < 0)
    throw error("micro_batch_rows is {}; expected 0 (as in training) or more",
                options.micro_batch_rows);
  if (options.galore_batch_rows < 0)
    throw error("galore_batch_rows is {}; expected 0 (as in the run) or more",
                options.galore_batch_rows);
  const LoadedModel model = load_model(fs, options.checkpoint, options.device, ModelUse::kEvaluate);
  const RunConfig config = with_options(model, options);
  const auto source = open_validation_data(config);
  if (source == nullptr)
    throw error("{}: its config has no data.validation; name shards to evaluate on with --data",
                model.checkpoint);
  const int64_t rows = std::min(config.batch.rows_per_micro_batch(), source->sequences());
  const BatchShape shape{rows, config.batch.seq_len};
  Llama llama(
      config.model,
      {.micro_batch = shape,
       .storage = model.storage(),
       .loss_chunk_rows = default_loss_chunk_rows(config.model, shape, model.device->backend()),
       .keep = Keep::kNothing,
       .fp8 = fp8_of(config.precision),
       .multiply = multiply_of(config.precision),
       .weight_codes = weight_codes_of(config.device, model.device->backend()),
       .attention = config.data.attention},
      *model.weights, *model.device, *model.allocator);
  if (const std::vector<NamedTensor> scales = llama.named_states(); !scales.empty())
    load_part_of_verified_checkpoint(fs, model.checkpoint, whole_parts(scales), *model.device);
  llama.update_casts();
  return {.checkpoint = model.checkpoint,
          .step = model.step,
          .evaluation = evaluate(llama, *source,
                                 {.rows_per_batch = rows,
                                  .tokens = config.eval.tokens,
                                  .galore_batch_rows = galore_batch_rows(config)})};
}

}  // namespace mpt
