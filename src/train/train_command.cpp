#include "train/train_command.h"

#include <iostream>

#include <spdlog/spdlog.h>

#include "core/check.h"
#include "core/file_system.h"
#include "train/report.h"
#include "train/run_config.h"
#include "train/run_lock.h"
#include "train/run_model.h"
#include "train/throughput.h"
#include "train/trainer.h"

namespace mpt {
namespace {

bool holds_a_run(FileSystem& fs, const RunConfig& config) {
  return fs.exists(metrics_path(config)) || fs.exists(checkpoint_directory(config));
}

// The checkpoint to continue from; none to start anew. `resume` is "", "auto", "latest" or a path.
std::optional<std::string> checkpoint_to_resume(FileSystem& fs, const RunConfig& config,
                                                const std::string& resume) {
  const std::string directory = run_directory(config);
  if (resume.empty()) {
    if (holds_a_run(fs, config))
      throw error(
          "{} already holds a run: continue it with --resume auto, or choose another name or output_dir",
          directory);
    return std::nullopt;
  }
  if (resume != "auto" && resume != "latest") return resume;
  const CheckpointStore store(fs, checkpoint_directory(config), {});
  std::optional<std::string> latest = store.latest_good();
  if (!latest && !store.list().empty())
    throw error("--resume {}: none of the checkpoints in {} is good; move them away to start anew", resume,
                checkpoint_directory(config));
  if (!latest && resume == "latest")
    throw error("--resume latest: {} has no good checkpoint; --resume auto would start anew",
                checkpoint_directory(config));
  return latest;
}

void print_start(const RunConfig& config, Device& device, const Trainer& trainer, const ProductRate& rate) {
  std::string text = model_report(config) + device_report(device) + memory_report(config, device);
  text += fmt::format("  {:<22} {:.1f} GFLOP/s measured; % of limit = {}\n", "product rate",
                      rate.flops_per_second / 1e9, rate.formula);
  text += fmt::format("data\n  {:<22} {} tokens, {} sequences an epoch\n", "training",
                      trainer.training_data().tokens(), trainer.training_data().sequences());
  if (const SequenceSource* validation = trainer.validation_data())
    text += fmt::format("  {:<22} {} tokens, at most {} an evaluation\n", "validation", validation->tokens(),
                        config.eval.tokens);
  else
    text += fmt::format("  {:<22} none: data.validation is empty, nothing will be evaluated\n", "validation");
  spdlog::info("{}: {}\n{}", config.name, run_directory(config), text);
}

}  // namespace

void run_train(const TrainCommand& command) {
  const RunConfig config = load_run_config(command.config, command.overrides);
  FileSystem& fs = posix_file_system();
  const std::unique_ptr<Device> device = make_device(config.device);
  require_memory(config, *device);
  const ProductRate rate = measured_product_rate(*device);
  Trainer trainer(config, *device, fs);
  const std::string directory = run_directory(config);
  fs.create_directories(directory);
  const RunLock lock(directory);
  const std::optional<std::string> checkpoint = checkpoint_to_resume(fs, config, command.resume);
  print_start(config, *device, trainer, rate);
  if (checkpoint) {
    trainer.resume(*checkpoint);
    spdlog::info("continuing from {} at step {}", *checkpoint, trainer.current_step());
  } else {
    trainer.initialize();
  }
  const std::string resolved = resolved_json(config).dump(2) + "\n";
  write_file_atomically(fs, directory + "/config.json", bytes_of(resolved));
  const bool complete = trainer.run(rate.flops_per_second);
  spdlog::info("{}: {} at step {} of {}", config.name, complete ? "complete" : "stopped by a signal",
               trainer.current_step(), total_steps(config));
}

void run_plan(const PlanCommand& command) {
  const RunConfig config = load_run_config(command.config, command.overrides);
  const std::unique_ptr<Device> device = make_planning_device(config.device);
  if (command.format == PlanFormat::kJson)
    std::cout << plan_json(config, *device).dump(2) << "\n";
  else
    std::cout << model_report(config) << device_report(*device) << memory_report(config, *device);
}

}  // namespace mpt
