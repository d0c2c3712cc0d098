// Reports steps: each in a line of metrics.jsonl and, if enabled, in an event file; at intervals in
// a line of the log; on a terminal in a progress bar.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "config/run_config.h"
#include "core/progress.h"
#include "evaluation/evaluate.h"
#include "model/linears.h"
#include "optim/update_statistics.h"
#include "train/incidents/spike_guard.h"
#include "train/reports/metrics_log.h"
#include "train/run_samples.h"
#include "watch/event_file.h"

namespace mpt {

struct StepRecord {
  int64_t step = 0;    // from 1
  int64_t tokens = 0;  // predicted since the start of the run, including this step
  int64_t step_tokens = 0;
  double loss = 0;         // mean over the step's targets, nats
  double grad_norm = 0;    // before clipping
  double lr_factor = 0;    // factor of every learning rate, from the schedule
  bool skipped = false;    // loss or gradient norm not finite, or a spike: no update
  uint64_t data_hash = 0;  // of the step's rows; independent of ranks and micro-batches
  double seconds = 0;      // of the step, excluding evaluation and saving
  std::optional<Spike> spike{};
  std::optional<ValidationResult> validation{};
  std::vector<SampleText> samples{};                  // on steps of eval.samples_every
  std::vector<UpdateStatistics> update_statistics{};  // on steps of log.update_statistics
  std::vector<Fp8OperandState> fp8{};                 // after the step; on the same steps
};

// Only rank 0 of a run has one.
class RunLogger {
 public:
  struct Options {
    int64_t first_step;  // steps done before the first logged one
    int64_t total_steps;
    std::string attention{};  // in use; recorded unless empty
  };
  // Opens metrics.jsonl of the run, samples.jsonl if the run has or will have one, and an event
  // file if the config asks for one. `fs` and `config` must outlive this object.
  RunLogger(FileSystem& fs, const RunConfig& config, const Options& options);

  // Shows the current micro-batch in the progress bar if the step is slow.
  void micro_batch_begins(int64_t step, int64_t micro_batch, int64_t of);
  void record(const StepRecord& record);
  // Completes the record of a step made earlier in the run.
  void add_evaluation(int64_t step, const ValidationResult& result,
                      std::span<const SampleText> samples);
  void finish() { progress_.finish(); }
  // Later records replace those of steps above `step`.
  void mark_resume(int64_t step, const std::string& reason = "");
  // Like MetricsLog::sync(), for the other files as well.
  void sync();

 private:
  [[nodiscard]] nlohmann::ordered_json to_json(const StepRecord& record) const;
  void print_validation(int64_t step, const ValidationResult& result) const;
  void print_validation(int64_t step, const std::string& name, const Evaluation& mean) const;
  // Returns whether a step that ended `now` has a line in the log.
  [[nodiscard]] bool has_line(const StepRecord& record,
                              std::chrono::steady_clock::time_point now) const;
  [[nodiscard]] double main_rate(const StepRecord& record) const;
  [[nodiscard]] nlohmann::ordered_json recorded(int64_t step) const;
  void record_samples(int64_t step, std::span<const SampleText> samples);
  void print(const StepRecord& record);

  FileSystem& fs_;
  const RunConfig& config_;
  Options options_;
  MetricsLog metrics_;
  std::optional<MetricsLog> samples_;
  std::optional<EventFile> events_;
  Progress progress_;
  std::chrono::steady_clock::time_point step_begun_{};
  std::chrono::steady_clock::time_point last_line_{};
  double seconds_per_step_ = 0;  // running mean, weighted to recent steps
  int64_t seen_ = 0;
};

}  // namespace mpt
