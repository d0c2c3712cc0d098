#include "evaluation/tasks/evaluate_tasks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/json/json_parse.h"
#include "core/progress.h"
#include "core/text/counted.h"
#include "weights/loaded_model.h"

namespace mpt {
namespace {

struct RequestScore {
  double log_likelihood = 0;
  bool is_greedy = false;
};

// Requests as rows, padded on the right.
struct RequestBatch {
  std::vector<int32_t> tokens, targets;  // [rows, T]
  std::vector<int64_t> scored;           // positions that have a target

  RequestBatch(std::span<const TaskRequest> requests, int64_t seq_len)
      : tokens(requests.size() * size_t(seq_len), 0), targets(tokens.size(), -1) {
    for (size_t row = 0; row < requests.size(); ++row)
      put(requests[row], int64_t(row) * seq_len, seq_len);
  }
  void put(const TaskRequest& request, int64_t first, int64_t seq_len) {
    const std::span<const int32_t> all = request.tokens;
    check(std::ssize(all) <= seq_len + 1, "{} tokens for a row of {}", all.size(), seq_len);
    std::ranges::copy(all.first(all.size() - 1), tokens.begin() + first);
    const int64_t begin = first + std::ssize(all) - request.continuation - 1;
    std::ranges::copy(all.last(size_t(request.continuation)), targets.begin() + begin);
    for (int64_t i = 0; i < request.continuation; ++i) scored.push_back(begin + i);
  }
};

void score_likelihoods(Llama& model, const RequestBatch& batch, int64_t seq_len,
                       std::span<RequestScore> scores) {
  (void)model.evaluate({batch.tokens, batch.targets});
  const std::span<const float> losses = model.token_losses();
  for (size_t row = 0; row < scores.size(); ++row) {
    const auto of_row = losses.subspan(row * size_t(seq_len), size_t(seq_len));
    scores[row].log_likelihood = -std::accumulate(of_row.begin(), of_row.end(), 0.0);
  }
}

void score_greedy(Llama& model, const RequestBatch& batch, int64_t seq_len,
                  std::span<RequestScore> scores) {
  for (RequestScore& score : scores) score.is_greedy = true;
  model.visit_logits(batch.scored, [&](size_t i, std::span<const float> logits) {
    const auto best = std::ranges::max_element(logits) - logits.begin();
    const int64_t at = batch.scored[i];
    if (best != batch.targets[size_t(at)]) scores[size_t(at / seq_len)].is_greedy = false;
  });
}

std::vector<RequestScore> scores_of(Llama& model, const Task& task, const BatchShape& batch) {
  const int64_t total = std::ssize(task.requests);
  Progress progress({.label = fmt::format("evaluate {}", name_of(task.kind)), .total = total});
  std::vector<RequestScore> scores(task.requests.size());
  for (int64_t done = 0; done < total; done += batch.rows) {
    const auto first = size_t(done), count = size_t(std::min(batch.rows, total - done));
    const RequestBatch rows(std::span(task.requests).subspan(first, count), batch.seq_len);
    const auto of_rows = std::span(scores).subspan(first, count);
    score_likelihoods(model, rows, batch.seq_len, of_rows);
    if (!is_multiple_choice(task.kind)) score_greedy(model, rows, batch.seq_len, of_rows);
    progress.update(done + int64_t(count));
  }
  progress.clear();
  return scores;
}

// Returns the index of the first maximum.
int64_t largest(std::span<const double> values) {
  return std::ranges::max_element(values) - values.begin();
}

ExampleResult result_of(const Task& task, const Task::Choices& example,
                        std::span<const RequestScore> scores) {
  ExampleResult result{.place = example.place, .answer = example.answer};
  std::vector<double> by_length;
  for (size_t i = 0; i < example.lengths.size(); ++i) {
    const double likelihood = scores[size_t(example.first) + i].log_likelihood;
    if (!std::isfinite(likelihood))
      throw error(
          "{}: the log-likelihood of continuation {} is {}; the model's weights are unusable",
          example.place, i, likelihood);
    result.log_likelihoods.push_back(likelihood);
    by_length.push_back(likelihood / double(example.lengths[i]));
  }
  result.chosen = largest(result.log_likelihoods);
  result.chosen_by_length = largest(by_length);
  result.is_greedy = !is_multiple_choice(task.kind) && scores[size_t(example.first)].is_greedy;
  return result;
}

template <class Value>
double mean(const std::vector<ExampleResult>& examples, Value value) {
  double sum = 0;
  for (const ExampleResult& example : examples) sum += double(value(example));
  return sum / double(examples.size());
}

}  // namespace

bool TaskResult::is_right(const ExampleResult& example) const {
  return is_multiple_choice(kind) ? example.chosen == example.answer : example.is_greedy;
}

double TaskResult::acc() const {
  return mean(examples, [this](const ExampleResult& example) { return is_right(example); });
}

std::optional<double> TaskResult::acc_norm() const {
  if (!is_multiple_choice(kind)) return std::nullopt;
  return mean(examples, [](const ExampleResult& e) { return e.chosen_by_length == e.answer; });
}

std::optional<double> TaskResult::perplexity() const {
  if (is_multiple_choice(kind)) return std::nullopt;
  return std::exp(-mean(examples, [](const ExampleResult& e) { return e.log_likelihoods[0]; }));
}

double standard_error(double share, int64_t n) {
  return n < 2 ? 0 : std::sqrt(share * (1 - share) / double(n - 1));
}

nlohmann::ordered_json tasks_json(std::span<const TaskResult> results) {
  nlohmann::ordered_json all;
  for (const TaskResult& result : results) {
    nlohmann::ordered_json& json = all[std::string(name_of(result.kind))];
    const auto add = [&](const std::string& name, double share) {
      json[name] = share;
      json[name + "_stderr"] = standard_error(share, std::ssize(result.examples));
    };
    add("acc", result.acc());
    if (const auto acc_norm = result.acc_norm()) add("acc_norm", *acc_norm);
    if (const auto perplexity = result.perplexity()) json["perplexity"] = *perplexity;
    json["examples"] = result.examples.size();
  }
  return all;
}

std::string summary_of(const TaskResult& result) {
  const auto share = [&](const char* name, double value) {
    return fmt::format("{} {:.4f} ± {:.4f}", name, value,
                       standard_error(value, std::ssize(result.examples)));
  };
  std::string text = share("acc", result.acc());
  if (const auto acc_norm = result.acc_norm()) text += " | " + share("acc_norm", *acc_norm);
  if (const auto perplexity = result.perplexity())
    text += fmt::format(" | perplexity {:.3f}", *perplexity);
  return text + " | on " + counted(std::ssize(result.examples), "example");
}

std::string details_of(const TaskResult& result) {
  std::string lines;
  for (const ExampleResult& example : result.examples) {
    nlohmann::ordered_json json{{"task", name_of(result.kind)},
                                {"place", example.place},
                                {"log_likelihoods", example.log_likelihoods}};
    if (is_multiple_choice(result.kind)) {
      json["answer"] = example.answer;
      json["chosen"] = example.chosen;
      json["chosen_by_length"] = example.chosen_by_length;
    } else {
      json["is_greedy"] = example.is_greedy;
    }
    lines += json_text(json) + "\n";
  }
  return lines;
}

TaskResult evaluate_task(Llama& model, const Task& task, const BatchShape& batch) {
  const std::vector<RequestScore> scores = scores_of(model, task, batch);
  TaskResult result{.kind = task.kind};
  for (const Task::Choices& example : task.examples)
    result.examples.push_back(result_of(task, example, scores));
  return result;
}

}  // namespace mpt
