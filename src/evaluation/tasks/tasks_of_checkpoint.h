// Evaluation of a checkpoint on tasks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/json/config_struct.h"
#include "evaluation/tasks/evaluate_tasks.h"

namespace mpt {

struct TasksOptions {
  std::string checkpoint;             // a checkpoint, or a run's directory
  NamedTexts tasks{};                 // files by the name of a TaskKind
  int64_t examples = 0;               // at most, per task; 0: all
  std::string tokenizer{};            // "": the run's
  std::optional<bool> prepend_bos{};  // none: as in the model's data
  int64_t micro_batch_rows = 0;       // 0: as many tokens as in training
  DeviceConfig device{};
};

struct TasksOfCheckpoint {
  std::string checkpoint;
  int64_t step = 0;
  std::vector<TaskResult> results;
};

// Reads all files before the model computes. Throws Error naming the problem, and if a
// log-likelihood is not finite.
TasksOfCheckpoint evaluate_tasks(FileSystem& fs, const TasksOptions& options);

}  // namespace mpt
