// The typed config of a run: one struct per section, read from JSON with includes and overrides,
// and validated as a whole.
//
//   RunConfig config = load_run_config("350m_bf16.json", {"optimizer.lr_additive=2e-3"});
//
// Guarantees: a config returned by load_run_config() has passed validate(); its resolved_json()
// (run_config_json.h), read again, gives an equal config; every message names the key path and
// where the key was written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "core/enum_names.h"
#include "core/json/config_struct.h"
#include "device/backends.h"
#include "model/llama_config.h"
#include "optim/optimizer_config.h"
#include "optim/schedule.h"
#include "precision/precision_config.h"
#include "ranks/transport_kind.h"

namespace mpt {

struct BatchConfig {
  int64_t seq_len = 1024;
  int64_t tokens_per_step = 131072;
  int64_t micro_batch_rows = 0;

  bool operator==(const BatchConfig&) const = default;

  [[nodiscard]] int64_t rows_per_step() const { return tokens_per_step / seq_len; }
  // All rows of a step unless a number of rows is set.
  [[nodiscard]] int64_t rows_per_micro_batch() const {
    return micro_batch_rows ? micro_batch_rows : rows_per_step();
  }
  [[nodiscard]] int64_t micro_batches() const { return rows_per_step() / rows_per_micro_batch(); }

  void fields(Fields& f);
};

enum class NonfinitePolicy : uint8_t { kStop, kSkipStep, kRollback };
template <>
struct EnumNames<NonfinitePolicy> {
  static constexpr std::array<std::string_view, 3> kNames{"stop", "skip_step", "rollback"};
};

enum class SpikePolicy : uint8_t { kOff, kWarn, kSkipStep, kRollback, kStop };
template <>
struct EnumNames<SpikePolicy> {
  static constexpr std::array<std::string_view, 5> kNames{"off", "warn", "skip_step", "rollback",
                                                          "stop"};
};

enum class ActivationRecompute : uint8_t { kNone, kBlock };
template <>
struct EnumNames<ActivationRecompute> {
  static constexpr std::array<std::string_view, 2> kNames{"none", "block"};
};

struct TrainConfig {
  std::optional<int64_t> steps{};  // exactly one of these three
  std::optional<int64_t> tokens{};
  std::optional<double> chinchilla{};
  std::optional<std::string> init_from{};
  bool init_from_other_rope = false;
  NonfinitePolicy nonfinite_policy = NonfinitePolicy::kStop;
  int64_t max_rollbacks = 3;
  int64_t max_skipped_steps = 10;
  ActivationRecompute activation_recompute = ActivationRecompute::kNone;
  int64_t loss_chunk_rows = 0;
  double z_loss = 0;
  double ema_decay = 0;
  SpikePolicy spike_policy = SpikePolicy::kOff;
  double spike_z = 6;
  int64_t spike_window = 128;

  bool operator==(const TrainConfig&) const = default;

  void fields(Fields& f);
};

struct EvalConfig {
  int64_t every_steps = 1000;
  int64_t tokens = 10'000'000;
  int64_t galore_batch_rows = 0;
  int64_t samples_every = 0;
  std::vector<std::string> sample_prompts{""};
  int64_t sample_tokens = 64;
  double sample_temperature = 0.8;

  bool operator==(const EvalConfig&) const = default;

  void fields(Fields& f);
};

struct CheckpointConfig {
  int64_t every_steps = 1000;
  int64_t keep_last = 2;
  int64_t keep_every_steps = 0;
  bool async = true;
  std::string on_commit{};

  bool operator==(const CheckpointConfig&) const = default;

  void fields(Fields& f);
};

struct LogConfig {
  int64_t every_steps = 1;
  double every_seconds = 10;
  bool tensorboard = false;
  int64_t update_statistics = 0;

  bool operator==(const LogConfig&) const = default;

  void fields(Fields& f);
};

// auto: the GPU if the program was built with CUDA and finds one, else the CPU.
enum class DeviceType : uint8_t { kAuto, kCpu, kCuda };
template <>
struct EnumNames<DeviceType> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cpu", "cuda"};
};

// Layers whose FP8 weight codes, which FP8 GEMMs read, are in memory.
enum class Fp8WeightCodes : uint8_t { kAuto, kAllLayers, kOneLayer };
template <>
struct EnumNames<Fp8WeightCodes> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "all_layers", "one_layer"};
};

struct DeviceConfig {
  DeviceType type = DeviceType::kAuto;
  int64_t threads = 0;
  Bf16Dot bf16_dot = Bf16Dot::kAuto;
  int64_t gpu = 0;
  bool cuda_graph = true;
  bool autotune_gemms = true;
  CudaAttention cuda_attention = CudaAttention::kAuto;
  bool deterministic_attention = true;
  Fp8WeightCodes fp8_weight_codes = Fp8WeightCodes::kAuto;

  bool operator==(const DeviceConfig&) const = default;

  void fields(Fields& f);
};

// Placement of optimizer states. optimizer: each rank holds those of the update blocks it updates;
// none: every rank holds all.
enum class Sharding : uint8_t { kOptimizer, kNone };
template <>
struct EnumNames<Sharding> {
  static constexpr std::array<std::string_view, 2> kNames{"optimizer", "none"};
};

struct DistributedConfig {
  TransportKind transport = TransportKind::kAuto;
  Sharding sharding = Sharding::kOptimizer;
  Format gradient_reduce = Format::kF32;
  int64_t bucket_mib = 32;
  int64_t check_every_steps = 0;
  int64_t timeout_seconds = 600;

  bool operator==(const DistributedConfig&) const = default;

  void fields(Fields& f);
};

// A part of the run with its own sections; sections it omits are the run's.
struct PhaseConfig {
  double until = 1;  // fraction of the run
  PrecisionConfig precision{};
  OptimizerConfig optimizer{};
  BatchConfig batch{};

  bool operator==(const PhaseConfig&) const = default;

  void fields(Fields& f);
};

struct RunConfig {
  std::string name{};
  std::string output_dir = "runs";
  uint64_t seed = 1;
  LlamaConfig model{};
  DataConfig data{};
  BatchConfig batch{};
  PrecisionConfig precision{};
  OptimizerConfig optimizer{};
  ScheduleConfig schedule{};
  TrainConfig train{};
  std::vector<PhaseConfig> phases{};  // each with all sections
  EvalConfig eval{};
  CheckpointConfig checkpoint{};
  LogConfig log{};
  DeviceConfig device{};
  DistributedConfig distributed{};

  bool operator==(const RunConfig&) const = default;

  void fields(Fields& f);
};

// Reads the file that find_config() finds for `path`, applies `overrides` ("a.b=c") in order, and
// validates the config.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides = {});
// Validates a config built in code. Throws one Error that lists all problems, with single keys and
// with combinations. Configs from load_run_config() and parse_run_config() have already passed.
void validate(const RunConfig& config);
// Throws Error if the config names no training shards; only training needs them.
void require_training_data(const RunConfig& config);
// Throws Error if a step has fewer rows than there are ranks.
void require_rows(const BatchConfig& batch, int64_t ranks);

// Optimizer steps of the whole run.
int64_t total_steps(const RunConfig& config);

// A phase, or the whole run if it has no phases.
struct RunPhase {
  int64_t first_step = 0;  // steps done when it begins
  int64_t last_step = 0;
  RunConfig config;  // precision, optimizer and batch are those of the phase
};
std::vector<RunPhase> run_phases(const RunConfig& config);
// Returns the number of the phase that makes the step after `steps_done`; at the end of the run, of
// the last phase.
size_t phase_after(const std::vector<RunPhase>& phases, int64_t steps_done);
// Rows read by the first `steps` steps.
int64_t rows_of_steps(const RunConfig& config, int64_t steps);
// Positions in all steps.
int64_t total_tokens(const RunConfig& config);

// Rows of a val_loss_family batch, on any number of ranks.
int64_t galore_batch_rows(const RunConfig& config);

// Returns an existing path unchanged; ".json" may be omitted. A bare file name is also looked up in
// config_directories(). Throws Error listing the places searched and the nearest name found there.
std::string find_config(const std::string& path);
// ./configs, the installed configs, and those of the source tree in which the program was built.
// Includes not found next to the including file are also looked up there.
std::vector<std::string> config_directories();

}  // namespace mpt
