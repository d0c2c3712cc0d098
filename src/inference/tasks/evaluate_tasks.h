// How often a model finds the right continuation in published data sets, as lm-eval counts it on
// the exported model: on the values that `export` writes, computed with in FP32 (docs/numerics.md
// "Tasks"). Results do not depend on the number of rows of a batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "data/tasks/task_requests.h"
#include "model/llama.h"

namespace mpt {

struct ExampleResult {
  std::string place;  // "file:line"
  int64_t answer = 0;
  std::vector<double> log_likelihoods{};  // of the tokens of each continuation together, nats
  // Of multiple choice, the most likely continuation, and the one whose log-likelihood over its
  // length is largest; of equal ones the first.
  int64_t chosen = 0, chosen_by_length = 0;
  // Of others, whether every token of the continuation is the most likely one.
  bool is_greedy = false;
};

struct TaskResult {
  TaskKind kind{};
  std::vector<ExampleResult> examples{};

  [[nodiscard]] bool is_right(const ExampleResult& example) const;  // of acc()
  [[nodiscard]] double acc() const;
  [[nodiscard]] std::optional<double> acc_norm() const;    // of multiple choice
  [[nodiscard]] std::optional<double> perplexity() const;  // of others: e^(- mean log-likelihood)
};

// Standard error of a share of right answers among n: their standard deviation over sqrt(n), with
// n - 1 degrees of freedom. Of one example it is 0.
double standard_error(double share, int64_t n);

// {"hellaswag": {"acc": 0.31, "acc_stderr": 0.02, "acc_norm": 0.35, ..., "examples": 500}, ...}
nlohmann::ordered_json tasks_json(std::span<const TaskResult> results);
// "acc 0.3100 ± 0.0207 | acc_norm 0.3500 ± 0.0213 | on 500 examples"
std::string summary_of(const TaskResult& result);
// Of each example a JSON object and a line end (docs/formats.md "Details of tasks").
std::string details_of(const TaskResult& result);
inline constexpr std::string_view kDetailsBegin = R"({"task":")";

// `batch` is at most the model's rows, and its sequence length, to which every request fits.
TaskResult evaluate_task(Llama& model, const Task& task, const BatchShape& batch);

// The tasks of a checkpoint.

struct TasksOptions {
  std::string checkpoint;             // a checkpoint, or a run's directory
  NamedTexts tasks{};                 // files by the name of a TaskKind
  int64_t examples = 0;               // at most, of each task; 0: all
  std::string tokenizer{};            // "": that of the run
  std::optional<bool> prepend_bos{};  // none: as in the model's data
  int64_t micro_batch_rows = 0;       // 0: as many tokens as in training
  DeviceConfig device{};
};

struct TasksOfCheckpoint {
  std::string checkpoint;
  int64_t step = 0;
  std::vector<TaskResult> results;
};

// All files are read before the model computes. Throws Error naming what is wrong, and if a
// log-likelihood is not finite.
TasksOfCheckpoint evaluate_tasks(FileSystem& fs, const TasksOptions& options);

}  // namespace mpt
