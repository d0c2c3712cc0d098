// Accuracy of a model's continuations on published data sets, as computed by lm-eval on the
// exported model: with the values that `export` writes, in FP32 arithmetic (docs/numerics.md
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
#include "evaluation/tasks/task_requests.h"
#include "model/llama.h"

namespace mpt {

struct ExampleResult {
  std::string place;  // "file:line"
  int64_t answer = 0;
  std::vector<double> log_likelihoods{};  // sum over the tokens, for each continuation, nats
  // Multiple choice: the most likely continuation, and the one with the largest log-likelihood
  // divided by length; the first among equals.
  int64_t chosen = 0, chosen_by_length = 0;
  // Other tasks: whether every token of the continuation is the most likely one.
  bool is_greedy = false;
};

struct TaskResult {
  TaskKind kind{};
  std::vector<ExampleResult> examples{};

  [[nodiscard]] bool is_right(const ExampleResult& example) const;  // for acc()
  [[nodiscard]] double acc() const;
  [[nodiscard]] std::optional<double> acc_norm() const;    // multiple choice
  [[nodiscard]] std::optional<double> perplexity() const;  // other tasks: e^(- mean log-likelihood)
};

// Returns the standard error of a fraction of right answers among n: their standard deviation over
// sqrt(n), with n - 1 degrees of freedom; 0 for one example.
double standard_error(double share, int64_t n);

// {"hellaswag": {"acc": 0.31, "acc_stderr": 0.02, "acc_norm": 0.35, ..., "examples": 500}, ...}
nlohmann::ordered_json tasks_json(std::span<const TaskResult> results);
// "acc 0.3100 ± 0.0207 | acc_norm 0.3500 ± 0.0213 | on 500 examples"
std::string summary_of(const TaskResult& result);
// Returns a JSON object and a line end for each example (docs/formats.md "Details of tasks").
std::string details_of(const TaskResult& result);
inline constexpr std::string_view kDetailsBegin = R"({"task":")";

// `batch` has at most the model's rows and sequence length, and every request fits in it.
TaskResult evaluate_task(Llama& model, const Task& task, const BatchShape& batch);

}  // namespace mpt
