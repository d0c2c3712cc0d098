#include "evaluation/tasks/tasks_of_checkpoint.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "evaluation/tasks/evaluate_tasks.h"
#include "weights/loaded_model.h"
#include "weights/model_tokenizer.h"

namespace mpt {
namespace {

std::vector<Task> load_tasks(const TasksOptions& options, const Tokenizer& tokenizer,
                             const RequestOptions& requests) {
  std::vector<Task> tasks;
  for (const auto& [name, files] : options.tasks) {
    const std::optional<TaskKind> kind = enum_from_name<TaskKind>(name);
    if (!kind) throw error("'{}' is no task; expected one of: {}", name, all_names<TaskKind>());
    tasks.push_back(load_task({*kind, files, options.examples}, tokenizer, requests));
    if (const Task& task = tasks.back(); task.truncated > 0)
      spdlog::warn(
          "{}: {} of {} rows are longer than the model's context of {} tokens and lose their "
          "beginning",
          name, task.truncated, task.requests.size(), requests.context);
  }
  return tasks;
}

// Returns rows as short as these tasks allow, in batches of as many tokens as the run's.
BatchShape shape_for(std::span<const Task> tasks, const BatchConfig& batch, int64_t given_rows) {
  constexpr int64_t kMultiple = 16;
  int64_t longest = 1, most = 1;
  for (const Task& task : tasks) {
    most = std::max(most, std::ssize(task.requests));
    for (const TaskRequest& request : task.requests)
      longest = std::max(longest, std::ssize(request.tokens) - 1);
  }
  const int64_t seq_len =
      std::min((longest + kMultiple - 1) / kMultiple * kMultiple, batch.seq_len);
  const int64_t tokens = batch.rows_per_micro_batch() * batch.seq_len;
  const int64_t rows = given_rows > 0 ? given_rows : std::max<int64_t>(tokens / seq_len, 1);
  return {std::min(rows, most), seq_len};
}

}  // namespace

TasksOfCheckpoint evaluate_tasks(FileSystem& fs, const TasksOptions& options) {
  const LoadedModel model =
      load_model(fs, options.checkpoint, options.device, ModelUse::kAsExported);
  const RunConfig& config = model.config;
  const TokenizerFile file = find_tokenizer(model, options.tokenizer);
  const std::vector<Task> tasks =
      load_tasks(options, load_tokenizer(config, file),
                 {.context = config.batch.seq_len,
                  .prepend_bos = options.prepend_bos.value_or(file.prepend_bos)});
  const BatchShape shape = shape_for(tasks, config.batch, options.micro_batch_rows);
  Llama llama(
      config.model,
      {.micro_batch = shape,
       .storage = model.storage(),
       .loss_chunk_rows = default_loss_chunk_rows(config.model, shape, model.device->backend()),
       .keep = Keep::kNothing},
      *model.weights, *model.device, *model.allocator);
  llama.update_casts();
  TasksOfCheckpoint found{.checkpoint = model.checkpoint, .step = model.step, .results = {}};
  for (const Task& task : tasks) found.results.push_back(evaluate_task(llama, task, shape));
  return found;
}

}  // namespace mpt
