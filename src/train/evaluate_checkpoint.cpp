#include "train/evaluate_checkpoint.h"

#include <algorithm>
#include <filesystem>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "data/file_list.h"
#include "train/checkpoint.h"
#include "train/loaded_model.h"
#include "train/run_data.h"

namespace mpt {
namespace {

// Shards that the run names must be there; what is wrong with others is told where they are opened.
void require_validation_files(const LoadedModel& model) {
  for (const std::string& pattern : model.config.data.validation)
    if (!names_a_file(pattern))
      throw error("{}: data.validation of its run, {}, is not found from {}; name the shards with --data",
                  model.checkpoint, pattern, std::filesystem::current_path().string());
}

RunConfig with_options(const LoadedModel& model, const EvaluateCheckpointOptions& options) {
  RunConfig config = model.config;
  for (const std::string& pattern : options.data)
    if (!names_a_file(pattern))
      throw error("--data {}: no such file, and no file matches it as a pattern", pattern);
  if (options.data.empty())
    require_validation_files(model);
  else
    config.data.validation = options.data;
  config.eval.tokens = options.tokens.value_or(config.eval.tokens);
  const std::string tokenizer = find_tokenizer(config, "", model.checkpoint).path;
  if (tokenizer.empty() && !config.data.tokenizer.empty())
    spdlog::warn("{} is gone: the data is not checked against the tokenizer of the run",
                 config.data.tokenizer);
  config.data.tokenizer = tokenizer;
  // Before another micro-batch, on which it must not depend.
  config.eval.family_batch_rows =
      options.family_batch_rows > 0 ? options.family_batch_rows : family_batch_rows(config);
  if (options.micro_batch_rows > 0) config.batch.micro_batch_rows = options.micro_batch_rows;
  return config;
}

}  // namespace

CheckpointEvaluation evaluate_checkpoint(FileSystem& fs, const EvaluateCheckpointOptions& options) {
  if (options.tokens.value_or(1) < 1) throw error("tokens is {}; accepted are 1 and above", *options.tokens);
  if (options.micro_batch_rows < 0)
    throw error("micro_batch_rows is {}; accepted are 0 (as in training) and above",
                options.micro_batch_rows);
  if (options.family_batch_rows < 0)
    throw error("family_batch_rows is {}; accepted are 0 (as in the run) and above",
                options.family_batch_rows);
  const LoadedModel model = load_model(fs, options.checkpoint, options.device, ModelUse::kEvaluate);
  const RunConfig config = with_options(model, options);
  const auto source = open_validation_data(config);
  if (source == nullptr)
    throw error("{}: its config has no data.validation; name shards to evaluate on with --data",
                model.checkpoint);
  const int64_t rows = std::min(config.batch.rows_per_micro_batch(), source->sequences());
  const BatchShape shape{rows, config.batch.seq_len};
  Llama llama(config.model,
              {.micro_batch = shape,
               .storage = model.storage(),
               .loss_chunk_rows = default_loss_chunk_rows(config.model, shape, model.device->backend()),
               .keep = Keep::kNothing,
               .fp8 = fp8_of(config.precision),
               .multiply = multiply_of(config.precision)},
              *model.weights, *model.device, *model.allocator);
  if (const std::vector<NamedTensor> scales = llama.named_states(); !scales.empty())
    load_part_of_verified_checkpoint(fs, model.checkpoint, whole_parts(scales), *model.device);
  llama.weights_changed();
  return {
      .checkpoint = model.checkpoint,
      .step = model.step,
      .evaluation = evaluate(
          llama, *source,
          {.rows_per_batch = rows, .tokens = config.eval.tokens, .family_rows = family_batch_rows(config)})};
}

}  // namespace mpt
