#include "evaluation/evaluate_checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <spdlog/spdlog.h>

#include "checkpoint/checkpoint_files.h"
#include "config/run_data.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/io/file_patterns.h"
#include "core/io/file_system.h"
#include "evaluation/evaluate.h"
#include "weights/loaded_model.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

// Checks that shards named by the run exist; problems of other shards are reported when they are
// opened.
void require_validation_files(const LoadedModel& model) {
  for (const auto& [name, files] : model.config.data.validation)
    for (const std::string& pattern : files)
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
    config.data.validation = {{"", options.data}};
  config.eval.tokens = options.tokens.value_or(config.eval.tokens);
  const std::string tokenizer = find_tokenizer(model, "").path;
  if (tokenizer.empty() && !config.data.tokenizer.empty())
    spdlog::warn("{} no longer exists: the data is not checked against the run's tokenizer",
                 config.data.tokenizer);
  config.data.tokenizer = tokenizer;
  // Computed before micro_batch_rows changes, on which it must not depend.
  config.eval.galore_batch_rows =
      options.galore_batch_rows > 0 ? options.galore_batch_rows : galore_batch_rows(config);
  if (options.micro_batch_rows > 0) config.batch.micro_batch_rows = options.micro_batch_rows;
  return config;
}

void check_options(const EvaluateCheckpointOptions& options) {
  if (options.tokens.value_or(1) < 1)
    throw error("tokens is {}; expected 1 or more", *options.tokens);
  if (options.micro_batch_rows < 0)
    throw error("micro_batch_rows is {}; expected 0 (as in training) or more",
                options.micro_batch_rows);
  if (options.galore_batch_rows < 0)
    throw error("galore_batch_rows is {}; expected 0 (as in the run) or more",
                options.galore_batch_rows);
}

CheckpointEvaluation evaluate_model(FileSystem& fs, const LoadedModel& model,
                                    const EvaluateCheckpointOptions& options) {
  const RunConfig config = with_options(model, options);
  const std::vector<ValidationSet> sets = open_validation_data(config);
  if (sets.empty())
    throw error("{}: its config has no data.validation; name shards to evaluate on with --data",
                model.checkpoint);
  int64_t most = 1;
  for (const ValidationSet& set : sets) most = std::max(most, set.rows->sequences());
  const int64_t rows = std::min(config.batch.rows_per_micro_batch(), most);
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
  const TextBytes text = text_of_data(config.data);
  const EvaluationOptions how{.rows_per_batch = rows,
                              .tokens = config.eval.tokens,
                              .galore_batch_rows = galore_batch_rows(config),
                              .text = &text};
  try {
    return {model.checkpoint, model.step, evaluate(llama, sets, how)};
  } catch (const EvaluationLeft& left) {
    std::rethrow_exception(left.failure);
  }
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options) {
  check_options(options);
  return with_checkpoint(fs, options.checkpoint, [&](const std::string& checkpoint) {
    return evaluate_model(
        fs, load_verified_model(fs, checkpoint, options.device, ModelUse::kEvaluate), options);
  });
}

}  // namespace mpt
