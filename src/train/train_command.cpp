#include "train/train_command.h"

#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_parts.h"
#include "checkpoint/checkpoint_state.h"
#include "checkpoint/checkpoint_store.h"
#include "config/cautions.h"
#include "config/run_config_json.h"
#include "config/run_copies.h"
#include "config/run_data.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "core/check.h"
#include "core/io/directory_lock.h"
#include "core/io/file_system.h"
#include "core/json/json_parse.h"
#include "core/text/counted.h"
#include "device/backends.h"
#include "device/profiling.h"
#include "ranks/communicator.h"
#include "ranks/launch_environment.h"
#include "train/initial_weights.h"
#include "train/reports/gemm_rate.h"
#include "train/reports/profile_table.h"
#include "train/reports/run_report.h"
#include "train/resources/memory_fit.h"
#include "train/resources/run_place.h"
#include "train/resume/resume_check.h"
#include "train/step/same_on_all_ranks.h"
#include "train/step/training_model.h"
#include "train/stop_signal.h"
#include "train/trainer.h"

namespace mpt {
namespace {

// Checks this before anything is written.
void require_something_to_resume(FileSystem& fs, const RunConfig& config,
                                 const std::string& resume) {
  if (resume.empty() || resume == "auto") return;
  if (resume == "latest") {
    if (CheckpointStore(fs, checkpoint_directory(config), {}).list().empty())
      throw error("--resume latest: {} has no checkpoint; --resume auto would start a new run",
                  checkpoint_directory(config));
  } else if (!has_optional_file(fs, in_directory(resume, kStateName))) {
    throw error(
        "--resume {}: not a checkpoint: {}; expected auto, latest or the directory of a "
        "checkpoint, such as {}/step_00001000",
        resume,
        fs.is_directory(resume) ? fmt::format("{} is missing", kStateName) : "no such directory",
        checkpoint_directory(config));
  }
}

// Returns the verified checkpoint to continue from; nullopt for a new run. `resume` is "", "auto",
// "latest" or a path. Collective.
std::optional<std::string> checkpoint_to_resume(FileSystem& fs, const RunConfig& config,
                                                const std::string& resume, Communicator& ranks) {
  if (resume.empty()) {
    require_new_run(fs, config);
    return std::nullopt;
  }
  if (resume != "auto" && resume != "latest") {
    verify_together(fs, resume, ranks);
    return resume;
  }
  const CheckpointStore store(fs, checkpoint_directory(config), {});
  std::optional<std::string> latest = store.latest_good(ranks);
  if (!latest && !store.list().empty())
    throw error("--resume {}: all checkpoints in {} are corrupt; move them away to start a new run",
                resume, checkpoint_directory(config));
  return latest;
}

// Returns the state that `resume` will most likely continue from; verification finds any errors
// later.
std::optional<TrainState> peek_at_state(FileSystem& fs, const RunConfig& config,
                                        const std::string& resume) {
  if (resume.empty()) return std::nullopt;
  const CheckpointStore store(fs, checkpoint_directory(config), {});
  std::vector<CheckpointInfo> candidates{{.path = resume}};
  if (resume == "auto" || resume == "latest") candidates = store.list();
  for (auto newest = candidates.rbegin(); newest != candidates.rend(); ++newest) {
    try {
      return store.read_state(newest->path);
    } catch (const Error&) {
      continue;
    }
  }
  return std::nullopt;
}

// Assigns the machine's GPUs to its ranks in order, starting at device.gpu. If each rank sees only
// one GPU (CUDA_VISIBLE_DEVICES, Slurm's --gpus-per-task), it uses that one.
DeviceConfig device_of_rank(DeviceConfig device, const LaunchEnvironment& environment) {
  const bool sees_one = environment.local_size > 1 && no_cuda_device(int(device.gpu)).empty() &&
                        !no_cuda_device(int(device.gpu) + 1).empty();
  if (environment.size > 1 && !sees_one) device.gpu += environment.local_rank;
  return device;
}

// Ranks other than 0 log only warnings and errors.
void quieten_unless_leading(const LaunchEnvironment& environment) {
  if (environment.rank > 0 && spdlog::get_level() < spdlog::level::warn)
    spdlog::set_level(spdlog::level::warn);
}

// Only rank 0 writes to the run's directory.
void start_directory(FileSystem& fs, const RunConfig& config, std::optional<DirectoryLock>& lock) {
  const std::string directory = run_directory(config);
  fs.create_directories(directory);
  lock.emplace(directory);
}
void write_resolved_config(FileSystem& fs, const RunConfig& config) {
  const std::string resolved = json_text(resolved_json(config), 2) + "\n";
  write_file_atomically(fs, run_directory(config) + "/config.json", bytes_of(resolved));
}

// Writes the run's files other than checkpoints and metrics.
void write_run_files(FileSystem& fs, const RunConfig& config,
                     const std::optional<std::string>& checkpoint) {
  write_resolved_config(fs, config);
  if (!checkpoint) remove_data_files(fs, config);
  keep_data_files(fs, config);
}

// Makes the newest checkpoint one of this continuation, even if it is killed before it saves.
void set_later_checkpoints_aside(FileSystem& fs, const RunConfig& config, int64_t step) {
  CheckpointStore(fs, checkpoint_directory(config), {}).set_aside_after(step);
}

// Returns `config` with at least `least` steps, so that a short run can be profiled.
RunConfig with_steps(RunConfig config, int64_t least) {
  if (total_steps(config) >= least) return config;
  config.train.steps = least;
  config.train.tokens.reset();
  config.train.chinchilla.reset();
  return config;
}

// Says how to continue a stopped run from `checkpoint`; "" if no step was finished.
std::string stop_report(const RunConfig& config, const TrainCommand& command,
                        const std::string& checkpoint) {
  if (checkpoint.empty())
    return "no step finished, so nothing is saved; the same command starts the run again";
  const bool own = checkpoint.starts_with(checkpoint_directory(config) + "/");
  return fmt::format("saved in {}. Continue with the same --config{} and --resume {}", checkpoint,
                     command.overrides.empty() ? "" : ", the same --set",
                     own ? "latest" : checkpoint);
}

class TrainingRun {
 public:
  struct Options {
    std::string config;  // the file
    int64_t sharing;     // ranks, including this one, that share the device's memory
  };
  TrainingRun(const RunConfig& config, Device& device, Communicator& ranks, Options options)
      : given_(config), device_(device), ranks_(ranks), options_(std::move(options)) {}
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  TrainEnd run(const TrainCommand& command) {
    choose_rows(command.resume);
    prepare();
    if (command.resume.empty()) initial_ = initial_weights(fs_, config(), ranks_);
    on_first([&] {
      require_something_to_resume(fs_, config(), command.resume);
      start_directory(fs_, config(), lock_);
    });
    require_shared_directory();
    const std::optional<std::string> checkpoint =
        checkpoint_to_resume(fs_, config(), command.resume, ranks_);
    if (checkpoint) move_to_phase_of(*checkpoint);
    print_start("written to " + run_directory(config()));
    on_first([&] {
      if (checkpoint) check_run_tokenizer(fs_, config(), *checkpoint);
      warn_of_little_disk(config(), device_, checkpoint ? Checkpoints::kSome : Checkpoints::kNone);
    });
    start_from(checkpoint);
    on_first([&] {
      write_run_files(fs_, chosen_.front().config, checkpoint);
      if (checkpoint) set_later_checkpoints_aside(fs_, config(), trainer_->current_step());
      write_report(command.program);
    });
    const StopSignal stop(voice());
    while (trainer_->run()) {
      if (phase_ + 1 < chosen_.size()) {
        begin_next_phase();
        continue;
      }
      const int64_t skipped = trainer_->skipped_steps();
      spdlog::log(skipped > 0 ? spdlog::level::warn : spdlog::level::info,
                  "{}: complete at step {} of {}{}", config().name, trainer_->current_step(),
                  total_steps(config()),
                  skipped > 0 ? fmt::format("; {} made no update", counted(skipped, "step")) : "");
      return TrainEnd::kComplete;
    }
    spdlog::info("{}: stopped by a signal at step {} of {}; {}", config().name,
                 trainer_->current_step(), total_steps(config()),
                 stop_report(config(), command, trainer_->last_checkpoint()));
    if (!ranks_.is_single()) StopSignal::ignore_termination();
    return TrainEnd::kStopped;
  }

  // Profiles a new run and writes nothing. `profile` must be the device's.
  void profile(int64_t steps, Profile& profile) {
    const double rate =
        measured_gemm_rate(device_);  // before the trainer reserves scratch of its own
    choose_rows("");
    prepare();
    print_start("profile only, nothing is written");
    start_from(std::nullopt);
    const StopSignal stop(voice());
    trainer_->run_unrecorded(kUnprofiledSteps);
    profile.clear();
    trainer_->run_unrecorded(steps);
    const int64_t profiled = trainer_->current_step() - kUnprofiledSteps;
    if (profiled < steps) throw error("stopped by a signal at step {}", trainer_->current_step());
    if (ranks_.is_root()) std::cout << profile_table(profile, {.steps = steps, .gemm_rate = rate});
  }

 private:
  [[nodiscard]] const RunConfig& config() const { return chosen_[phase_].config; }
  // Chooses rows for every phase, and the first phase to train. Collective.
  void choose_rows(const std::string& resume) {
    memory_ = free_memory(device_, options_.sharing);
    std::optional<TrainState> state;
    if (ranks_.is_root()) state = peek_at_state(fs_, given_, resume);
    const std::vector<RunPhase> phases = run_phases(given_);
    for (size_t i = 0; i < phases.size(); ++i)
      chosen_.push_back(choose_rows_together(phases[i].config, device_, ranks_, memory_,
                                             shared(state ? rows_of(*state, i) : RecordedRows{})));
    for (ChosenRows& chosen : chosen_)
      for (size_t i = 0; i < chosen.config.phases.size(); ++i)
        chosen.config.phases[i].batch = chosen_[i].config.batch;
    const size_t phase = state ? phase_to_continue(phases, *state) : 0;
    phase_ = static_cast<size_t>(ranks_.gather_numbers(static_cast<int64_t>(phase)).front());
  }
  // Returns those of rank 0. Collective.
  std::optional<RecordedRows> shared(RecordedRows rows) {
    for (int64_t* number : {&rows.step, &rows.micro_batch, &rows.galore_batch})
      *number = ranks_.gather_numbers(*number).front();
    return rows.step > 0 ? std::optional(rows) : std::nullopt;
  }
  // Allocates memory and opens the data, in which no rank waits for another.
  void prepare() {
    ranks_.together([&] {
      for (const ChosenRows& chosen : chosen_) {
        require_rows(chosen.config.batch, ranks_.size());
        require_memory(chosen, device_, ranks_, memory_);
      }
      trainer_.emplace(config(), device_, fs_, ranks_, phase_);
    });
    check_same_start(ranks_, config(), trainer_->training_data());
  }
  // Handles a newer checkpoint having looked usable.
  void move_to_phase_of(const std::string& checkpoint) {
    const size_t phase =
        phase_to_continue(run_phases(given_), read_checkpoint_state(fs_, checkpoint));
    if (phase == phase_) return;
    phase_ = phase;
    prepare();
  }
  void begin_next_phase() {
    const std::string checkpoint = trainer_->last_checkpoint();
    ++phase_;
    prepare();
    for (const std::string& line : phase_lines(config(), device_, start_with("")))
      spdlog::info(line);
    trainer_->resume(checkpoint);
    agree_on_gemms(ranks_, device_);
  }
  [[nodiscard]] RunStart start_with(const std::string& place) const {
    return {.config = options_.config,
            .place = place,
            .training = trainer_->training_data(),
            .validation = trainer_->validation_data(),
            .ranks = ranks_,
            .memory = memory_,
            .rows = chosen_[phase_].reason};
  }
  // `place`: where the run is written; empty if nowhere.
  void print_start(const std::string& place) {
    for (const std::string& line : start_lines(config(), device_, start_with(place)))
      spdlog::info(line);
    const std::string both = ranks_.is_root() ? text_of_shards_in_both(config().data) : "";
    if (!both.empty()) spdlog::warn("data: {}", both);
    if (ranks_.is_root())
      for (const std::string& caution : cautions(given_)) spdlog::warn("{}", caution);
    if (spdlog::should_log(spdlog::level::debug))
      spdlog::debug("plan of this run\n{}", plan_report(config(), device_, ranks_));
  }
  [[nodiscard]] StopSignal::Voice voice() const {
    return ranks_.is_root() ? StopSignal::Voice::kSpeaks : StopSignal::Voice::kSilent;
  }
  void on_first(const std::function<void()>& work) {
    ranks_.together([&] {
      if (ranks_.is_root()) work();
    });
  }
  // Ranks write their parts of a checkpoint into one directory.
  void require_shared_directory() {
    if (ranks_.is_single()) return;
    const std::string path = run_directory(config()) + "/.shared_by_ranks";
    std::string mark;
    on_first([&] {
      mark = fmt::format("{} {}", ::getpid(),
                         std::chrono::steady_clock::now().time_since_epoch().count());
      write_file_atomically(fs_, path, bytes_of(mark));
    });
    mark = ranks_.gather_texts(mark).front();
    ranks_.together([&] {
      if (!fs_.exists(path) || fs_.read_file(path) != mark)
        throw error(
            "{} is not the directory that rank 0 writes to: all ranks need one file system for it",
            std::filesystem::absolute(run_directory(config())).string());
    });
    on_first([&] { fs_.remove_file(path); });
  }
  void write_report(const std::string& program) {
    const std::string report = json_text(report_json(config(), device_, ranks_, program), 2) + "\n";
    write_file_atomically(fs_, run_directory(config()) + "/report.json", bytes_of(report));
  }
  void start_from(const std::optional<std::string>& checkpoint) {
    if (checkpoint) trainer_->resume(*checkpoint);
    agree_on_gemms(ranks_, device_);
    if (!checkpoint) return start_new();
    spdlog::info("start: continuing from {} at step {}", *checkpoint, trainer_->current_step());
  }

  void start_new() {
    if (!initial_ || initial_weights_are_gone(fs_, *initial_, config(), ranks_))
      initial_ = initial_weights(fs_, config(), ranks_);
    if (!initial_) {
      trainer_->initialize();
      return spdlog::info("start: from initial weights, seed {}", config().seed);
    }
    trainer_->initialize_from(*initial_);
    spdlog::info("start: from the weights of {} (step {}, {}, hash {}), seed {}",
                 initial_->checkpoint, initial_->step, name_of(initial_->config.precision.weights),
                 initial_->hash, config().seed);
  }

  const RunConfig& given_;
  std::vector<ChosenRows> chosen_{};  // of each phase
  size_t phase_ = 0;
  Device& device_;
  Communicator& ranks_;
  Options options_;
  FreeMemory memory_{};  // before the run allocates any
  FileSystem& fs_ = posix_file_system();
  std::optional<DirectoryLock> lock_;
  std::optional<SavedWeights> initial_;  // from train.init_from, once found
  std::optional<Trainer> trainer_;
};

}  // namespace

TrainEnd run_train(const TrainCommand& command) {
  const LaunchEnvironment environment = launch_environment();
  quieten_unless_leading(environment);
  const RunConfig loaded = load_run_config(command.config, command.overrides);
  const RunConfig config = command.profile_steps
                               ? with_steps(loaded, kUnprofiledSteps + *command.profile_steps)
                               : loaded;
  const std::unique_ptr<Device> device = make_device(device_of_rank(config.device, environment));
  require_compute(config, device->backend());
  const int64_t sharing = device->backend() == Backend::kCpu ? environment.local_size : 1;
  std::optional<Profile> profile;
  std::optional<ProfilingDevice> profiling;
  if (command.profile_steps) profiling.emplace(*device, profile.emplace());
  Device& measured = profiling ? *profiling : *device;
  Communicator ranks =
      Communicator::connect(environment, std::chrono::seconds(config.distributed.timeout_seconds),
                            measured, config.distributed.transport);
  TrainingRun run(config, measured, ranks,
                  {.config = find_config(command.config), .sharing = sharing});
  TrainEnd end = TrainEnd::kComplete;
  ranks.or_abort([&] {
    if (profile)
      run.profile(*command.profile_steps, *profile);
    else
      end = run.run(command);
  });
  return end;
}

}  // namespace mpt
