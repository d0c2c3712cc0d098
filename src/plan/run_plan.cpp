#include "plan/run_plan.h"

#include <algorithm>
#include <functional>

#include <spdlog/spdlog.h>

#include "config/batch_plan.h"
#include "config/cautions.h"
#include "config/run_data.h"
#include "config/run_device.h"
#include "core/check.h"
#include "core/text/counted.h"
#include "core/text/units.h"
#include "evaluation/evaluate.h"
#include "plan/step_work.h"
#include "train/initial_weights.h"
#include "train/reports/gemm_rate.h"
#include "train/step/training_model.h"
#include "train/trainer.h"

namespace mpt {
namespace {

class Planner {
 public:
  Planner(const ChosenRows& chosen, Device& device, const Communicator& ranks,
          const PlanOptions& options)
      : chosen_(chosen), config_(chosen.config), device_(device), ranks_(ranks), options_(options) {
    plan_.rows = chosen.reason;
  }

  RunPlan run() {
    const std::string missing = why_unavailable(config_.device);
    refuse_with(missing);
    passes([&] { require_compute(config_, backend_of(config_.device)); });
    plan_memory();
    plan_data();
    plan_disk();
    if (options_.saved == Checkpoints::kNone)
      passes([&] { static_cast<void>(initial_weights(posix_file_system(), config_)); });
    plan_.time = missing.empty() ? estimated_time() : TimeEstimate{.basis = missing};
    return std::move(plan_);
  }

 private:
  void refuse_with(const std::string& problem) {
    if (!problem.empty()) plan_.problems.push_back(problem);
  }
  // Runs a check of `train`; an Error becomes a problem. Returns whether it passed.
  bool passes(const std::function<void()>& check) {
    try {
      check();
      return true;
    } catch (const Error& problem) {
      refuse_with(problem.what());
      return false;
    }
  }

  void plan_memory() {
    const FreeMemory memory = free_memory(device_, ranks_sharing(device_, ranks_));
    const BatchPlan step = batch_plan(config_.batch, ranks_.rank(), ranks_.size());
    plan_.micro_batch = step.micro_batch_rows;
    plan_.micro_batches = step.most_micro_batches;
    plan_.needed = planned_memory(config_, device_, ranks_).total();
    if (memory.known()) {
      plan_.available = memory.bytes;
      plan_.largest_micro_batch = largest_micro_batch(config_, device_, ranks_, memory);
    }
    plan_.on_gpus = rows_on_gpus(config_, device_, ranks_);
    passes([&] { require_memory(chosen_, device_, ranks_, memory); });
    plan_later_phases(memory);
    passes([&] {
      for (const RunPhase& phase : run_phases(config_))
        require_rows(phase.config.batch, ranks_.size());
    });
  }

  void plan_later_phases(const FreeMemory& memory) {
    const std::vector<RunPhase> phases = run_phases(config_);
    for (size_t i = 1; i < phases.size(); ++i) {
      const ChosenRows later = choose_rows(phases[i].config, device_, ranks_, memory);
      plan_.needed = std::max(plan_.needed, planned_memory(later.config, device_, ranks_).total());
      passes([&] { require_memory(later, device_, ranks_, memory); });
    }
  }

  // Checks shards even if the tokenizer is missing, to report all problems at once.
  void plan_data() {
    RunConfig config = config_;
    const bool tokenizer = passes([&] {
      if (const auto found = open_tokenizer(config)) plan_.tokenizer_pieces = found->vocab_size();
    });
    if (!tokenizer) config.data.tokenizer.clear();
    plan_.training.named = !config.data.train.empty();
    plan_.validation.named = !config.data.validation.empty();
    const bool training =
        passes([&] { plan_training(*open_training_data(config, options_.scanned_tokens)); });
    const bool validation = passes([&] {
      const std::vector<ValidationSet> sets = open_validation_data(config);
      for (const ValidationSet& set : sets) count(*set.rows, plan_.validation);
      check_validation_data(sets, config.eval.tokens);
    });
    plan_.lacks_data = !tokenizer || !training || !validation;
  }
  void plan_training(const Mixture& data) {
    for (const Corpus& corpus : data.corpora()) count(*corpus.rows, plan_.training);
    plan_.epochs = epochs_of(config_, data);
  }
  static void count(const SequenceSource& source, PlannedShards& shards) {
    shards.tokens += source.tokens();
    shards.sequences += source.sequences();
  }

  void plan_disk() {
    plan_.disk = disk_of(config_, device_);
    if (options_.saved == Checkpoints::kNone)
      passes([&] { require_new_run(posix_file_system(), config_); });
    passes([&] { find_room(config_, plan_.disk, options_.saved); });
  }

  TimeEstimate estimated_time() {
    RunConfig config = config_;
    if (plan_.validation.tokens > 0)
      config.eval.tokens = std::min(config.eval.tokens, plan_.validation.tokens);
    return estimate_time(config, device_, ranks_.size());
  }

  const ChosenRows& chosen_;
  const RunConfig& config_;
  Device& device_;
  const Communicator& ranks_;
  PlanOptions options_;
  RunPlan plan_;
};

// Returns the commands that create missing data.
std::string how_to_make_data(const RunConfig& config) {
  const std::vector<std::string> files = config.data.all_files();
  const std::string first = files.empty() ? "data/" : files.front();
  const std::string directory = std::filesystem::path(first).parent_path().string();
  return fmt::format(
      "mpretrain tokenizer --input 'corpus/*.txt' --vocab-size {} --output tokenizer.model && "
      "mpretrain tokenize --input 'corpus/*.txt' --tokenizer tokenizer.model --output {} "
      "--validation-fraction 0.01",
      config.model.vocab_size, directory.empty() ? "." : directory);
}

std::string memory_text(const RunPlan& plan) {
  if (!plan.available)
    return fmt::format("{} needed; available memory unknown", format_bytes(double(plan.needed)));
  return fmt::format("{}: {} needed, {} available", plan.fits() ? "fits" : "does not fit",
                     format_bytes(double(plan.needed)), format_bytes(double(*plan.available)));
}

std::string rows_text(const RunPlan& plan) {
  return fmt::format("{} of {}{}", counted(plan.micro_batches, "micro-batch", "es"),
                     counted(plan.micro_batch, "row"),
                     plan.rows.empty() ? "" : fmt::format(" ({})", plan.rows));
}

// Values that batch.micro_batch_rows=0 would take on other devices.
std::string rows_on_gpus_text(const RowsOnGpus& on_gpus) {
  std::string text;
  for (const auto& [gigabytes, rows] : on_gpus.gpus)
    text += fmt::format("{}{} with {} GB", text.empty() ? "" : ", ",
                        rows > 0 ? std::to_string(rows) : "none", gigabytes);
  return text + " of free memory" +
         (on_gpus.counted_for == Backend::kCpu
              ? "; counted for a CPU, this program was built without CUDA"
              : "");
}

std::string duration_text(const RunConfig& config, const RunPlan& plan) {
  const TimeEstimate& time = plan.time;
  if (!time.seconds) return fmt::format("not estimated: {}", time.basis);
  const double tokens_per_second = double(config.batch.tokens_per_step) / time.seconds_per_step;
  const int64_t evaluated = evaluations(config);
  return fmt::format("{} (estimate): {} steps at {} tokens/s{}{}, {}", about(*time.seconds),
                     grouped(total_steps(config)), format_count(tokens_per_second),
                     config.phases.empty() ? "" : ", all as in the first phase",
                     evaluated == 0 ? "" : " and " + counted(evaluated, "evaluation"), time.basis);
}

std::string disk_text(const RunPlan& plan) {
  const PlannedDisk& disk = plan.disk;
  return fmt::format("{} per checkpoint, {} at the end, at most {} at a time; {}",
                     format_bytes(double(disk.checkpoint)), format_bytes(double(disk.kept)),
                     format_bytes(double(disk.at_most)),
                     disk.place.empty() ? "free space unknown"
                                        : fmt::format("{} free at {}",
                                                      format_bytes(double(disk.free)), disk.place));
}

std::string data_text(const RunConfig& config, const RunPlan& plan) {
  const std::string training = plan.training.tokens > 0 ? fmt::format("{} tokens to train on, {}",
                                                                      grouped(plan.training.tokens),
                                                                      epochs_text(plan.epochs))
                                                        : "no tokens to train on";
  const std::string validation =
      plan.validation.tokens > 0 ? fmt::format("{} to evaluate on", grouped(plan.validation.tokens))
      : plan.validation.named    ? "none to evaluate on"
                                 : "none to evaluate on (data.validation is empty)";
  const std::string both = plan.lacks_data ? "" : text_of_shards_in_both(config.data);
  return training + ", " + validation + (both.empty() ? "" : "; " + both);
}

std::string tokenizer_text(const RunConfig& config, const RunPlan& plan) {
  if (config.data.tokenizer.empty())
    return "none; model.vocab_size is " + grouped(config.model.vocab_size);
  if (!plan.tokenizer_pieces) return "cannot be used: " + config.data.tokenizer;
  return fmt::format("{}, {} pieces; model.vocab_size is {}", config.data.tokenizer,
                     grouped(*plan.tokenizer_pieces), grouped(config.model.vocab_size));
}

template <class T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json rows_json(const RunConfig& config, const RunPlan& plan) {
  nlohmann::ordered_json on_gpus = nlohmann::ordered_json::array();
  for (const auto& [gigabytes, rows] : plan.on_gpus.gpus)
    on_gpus.push_back({{"gigabytes", gigabytes}, {"micro_batch", rows}});
  return {{"step", config.batch.rows_per_step()},
          {"micro_batch", plan.micro_batch},
          {"micro_batches", plan.micro_batches},
          {"largest_micro_batch", or_null(plan.largest_micro_batch)},
          {"chosen", plan.rows.empty() ? nullptr : nlohmann::ordered_json(plan.rows)},
          {"on_gpus", on_gpus},
          {"on_gpus_counted_for", plan.on_gpus.counted_for == Backend::kCpu ? "cpu" : "cuda"}};
}

nlohmann::ordered_json shards_json(const PlannedShards& shards) {
  const bool found = shards.tokens > 0;
  return {{"named", shards.named},
          {"found", found},
          {"tokens", shards.tokens},
          {"sequences", shards.sequences}};
}

// A number if there is one corpus, else one per corpus.
nlohmann::ordered_json epochs_json(const std::vector<CorpusEpochs>& corpora) {
  if (corpora.empty()) return nullptr;
  if (corpora.size() == 1) return corpora.front().epochs;
  nlohmann::ordered_json by_name;
  for (const CorpusEpochs& one : corpora)
    by_name[one.corpus] = {{"part_of_rows", one.part_of_rows}, {"epochs", one.epochs}};
  return by_name;
}

nlohmann::ordered_json data_json(const RunConfig& config, const RunPlan& plan) {
  return {
      {"train", shards_json(plan.training)},
      {"validation", shards_json(plan.validation)},
      {"epochs", epochs_json(plan.epochs)},
      {"tokenizer", {{"path", config.data.tokenizer}, {"pieces", or_null(plan.tokenizer_pieces)}}},
      {"made_by", plan.lacks_data ? nlohmann::ordered_json(how_to_make_data(config)) : nullptr}};
}

nlohmann::ordered_json time_json(const TimeEstimate& time) {
  const auto if_estimated = [&](double value) {
    return time.seconds ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  return {{"seconds", or_null(time.seconds)},
          {"seconds_per_step", if_estimated(time.seconds_per_step)},
          {"flops_per_second", if_estimated(time.flops_per_second)},
          {"basis", time.basis}};
}

}  // namespace

RunPlan plan_of(const ChosenRows& chosen, Device& device, const Communicator& ranks,
                const PlanOptions& options) {
  return Planner(chosen, device, ranks, options).run();
}

std::string verdict(const RunConfig& config, const RunPlan& plan) {
  std::string text = "verdict\n";
  text += row("memory", "{}", memory_text(plan));
  text += row("micro-batches", "{}", rows_text(plan));
  text += row("rows on GPUs", "{}", rows_on_gpus_text(plan.on_gpus));
  text += row("duration", "{}", duration_text(config, plan));
  text += row("disk", "{}", disk_text(plan));
  text += row("data", "{}", data_text(config, plan));
  text += row("tokenizer", "{}", tokenizer_text(config, plan));
  for (const std::string& caution : cautions(config)) text += row("warning", "{}", caution);
  if (plan.problems.empty()) return text + row("start", "ready");
  text += row("start", "not ready, {}:", counted(std::ssize(plan.problems), "problem"));
  for (const std::string& problem : plan.problems) text += fmt::format("    - {}\n", problem);
  if (plan.lacks_data) text += fmt::format("  to make tokens: {}\n", how_to_make_data(config));
  return text;
}

nlohmann::ordered_json verdict_json(const RunConfig& config, const RunPlan& plan) {
  const PlannedDisk& disk = plan.disk;
  return {{"ready", plan.problems.empty()},
          {"problems", plan.problems},
          {"warnings", cautions(config)},
          {"fits", plan.available ? nlohmann::ordered_json(plan.fits()) : nullptr},
          {"needed_bytes", plan.needed},
          {"available_bytes", or_null(plan.available)},
          {"rows", rows_json(config, plan)},
          {"flops_per_token", flops_per_token(config.model, config.batch.seq_len)},
          {"flops_per_step", flops_per_step(config)},
          {"work", to_json(step_work(config.model, config.precision, config.batch.seq_len))},
          {"time", time_json(plan.time)},
          {"disk",
           {{"checkpoint_bytes", disk.checkpoint},
            {"kept_bytes", disk.kept},
            {"peak_bytes", disk.at_most},
            {"free_bytes", disk.place.empty() ? nlohmann::ordered_json(nullptr)
                                              : nlohmann::ordered_json(disk.free)},
            {"place", disk.place}}},
          {"data", data_json(config, plan)}};
}

}  // namespace mpt
