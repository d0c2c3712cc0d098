// The typed config of a run: one struct per section, read from JSON with includes and overrides,
// and validated as a whole.
//
//   RunConfig config = load_run_config("350m_bf16.json", {"optimizer.lr_additive=2e-3"});
//
// Guarantees: a config that load_run_config() returns has passed validate(); resolved_json() of it,
// read again, gives an equal config; every message names the key path and where the key was
// written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/data_config.h"
#include "core/json/config_fields.h"
#include "core/json/config_reader.h"
#include "core/json/json_document.h"
#include "device/backends.h"
#include "model/llama_config.h"
#include "optim/optimizer_config.h"
#include "optim/schedule.h"
#include "precision/precision_config.h"

namespace mpt {

struct BatchConfig {
  int64_t seq_len = 1024;
  int64_t tokens_per_step = 131072;
  int64_t micro_batch_rows = 0;

  bool operator==(const BatchConfig&) const = default;

  [[nodiscard]] int64_t rows_per_step() const { return tokens_per_step / seq_len; }
  // A whole step as long as no number of rows is chosen.
  [[nodiscard]] int64_t rows_per_micro_batch() const {
    return micro_batch_rows ? micro_batch_rows : rows_per_step();
  }
  [[nodiscard]] int64_t micro_batches() const { return rows_per_step() / rows_per_micro_batch(); }

  template <class V>
  void fields(V& v) {
    v.optional("seq_len", seq_len,
               {.minimum = 1, .maximum = 1 << 20, .doc = "T, tokens in one sequence (row)"});
    v.optional("tokens_per_step", tokens_per_step,
               {.minimum = 1,
                .maximum = 1 << 30,
                .doc = "positions in one optimizer step, a multiple of seq_len"});
    v.optional("micro_batch_rows", micro_batch_rows,
               {.minimum = 0,
                .maximum = 1 << 30,
                .doc = "rows per forward and backward pass, a divisor of the rows per step; 0 = "
                       "the most that fit the device's free memory, a whole step if it does; the "
                       "number is recorded, and a resumed run keeps it"});
  }
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
  NonfinitePolicy nonfinite_policy = NonfinitePolicy::kStop;
  int64_t max_rollbacks = 3;
  ActivationRecompute activation_recompute = ActivationRecompute::kNone;
  int64_t loss_chunk_rows = 0;
  double z_loss = 0;
  double ema_decay = 0;
  SpikePolicy spike_policy = SpikePolicy::kOff;
  double spike_z = 6;
  int64_t spike_window = 128;

  bool operator==(const TrainConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("steps", steps,
               {.minimum = 1,
                .maximum = 1e9,
                .doc = "length in optimizer steps; excludes tokens and chinchilla"});
    v.optional("tokens", tokens,
               {.minimum = 1,
                .maximum = 1e18,
                .doc = "length in tokens, rounded up to whole steps; where phases have steps of "
                       "other sizes, to steps of their mean"});
    v.optional(
        "chinchilla", chinchilla,
        {.exclusive_minimum = 0,
         .maximum = 1e6,
         .doc = "length in multiples of 20 tokens per parameter, rounded up to whole steps"});
    v.optional("init_from", init_from,
               {.doc = "start from the weights of this checkpoint, run or imported model, in any "
                       "stored format, rather than from random ones; a resumed run goes on from "
                       "its own checkpoints"});
    v.optional("nonfinite_policy", nonfinite_policy,
               {.doc = "what to do on a loss or gradient norm that is not finite: stop; skip_step: "
                       "skip the update; rollback: return to the last checkpoint and continue with "
                       "the data after the step"});
    v.optional("max_rollbacks", max_rollbacks,
               {.minimum = 1,
                .maximum = 1e6,
                .doc = "maximum rollbacks without a new checkpoint; one more is an error"});
    v.optional("activation_recompute", activation_recompute,
               {.doc = "block: keep only the input of each block and recompute the rest in the "
                       "backward pass"});
    v.optional("loss_chunk_rows", loss_chunk_rows,
               {.minimum = 0,
                .maximum = 1 << 30,
                .doc = "positions whose logits are in memory at a time; 0 = automatic"});
    v.optional("z_loss", z_loss,
               {.minimum = 0,
                .maximum = 1,
                .doc = "c of c log(sum of e^logits)^2, whose gradient is added to that of the "
                       "loss, so that logits stay small; the loss in logs is without it; 0 = off"});
    v.optional("ema_decay", ema_decay,
               {.minimum = 0,
                .exclusive_maximum = 1,
                .doc = "keep an exponential moving average of weights in FP32, in which each step "
                       "has this times the weight of the next; `checkpoint average --ema` writes "
                       "it; 0 = none"});
    v.optional("spike_policy", spike_policy,
               {.doc = "what to do on a step whose loss or gradient norm stands out of those "
                       "before it: off; warn; skip_step: skip the update; rollback: return to the "
                       "last checkpoint and continue with the data after the step; stop"});
    v.optional("spike_z", spike_z,
               {.exclusive_minimum = 0,
                .maximum = 1e6,
                .only_with = only_with("spike_policy", spike_policy,
                                       {SpikePolicy::kWarn, SpikePolicy::kSkipStep,
                                        SpikePolicy::kRollback, SpikePolicy::kStop}),
                .doc = "standard deviations above the mean of spike_window steps from which on a "
                       "loss or gradient norm is a spike"});
    v.optional("spike_window", spike_window,
               {.minimum = 2,
                .maximum = 1 << 16,
                .only_with = only_with("spike_policy", spike_policy,
                                       {SpikePolicy::kWarn, SpikePolicy::kSkipStep,
                                        SpikePolicy::kRollback, SpikePolicy::kStop}),
                .doc = "number of the last steps without spikes that a step is compared with; the "
                       "guard begins when there are as many"});
  }
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

  template <class V>
  void fields(V& v) {
    v.optional("every_steps", every_steps,
               {.minimum = 0, .maximum = 1e9, .doc = "0 = only at the end"});
    v.optional(
        "tokens", tokens,
        {.minimum = 1,
         .maximum = 1e18,
         .doc = "tokens of each validation set per evaluation at most, up to the end of a row"});
    v.optional("galore_batch_rows", galore_batch_rows,
               {.minimum = 0,
                .maximum = 1 << 30,
                .doc = "rows per batch of val_loss_family, the GaLore-style average: the sum of n "
                       "batch means over n + 1; 0 = those of a micro-batch, of a step if "
                       "batch.micro_batch_rows is 0",
                .former = "family_batch_rows"});
    v.optional("samples_every", samples_every,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "steps between texts that the model writes into log and samples.jsonl, also "
                       "at the end; 0 = none; they need the data's tokenizer"});
    v.optional("sample_prompts", sample_prompts,
               {.doc = "texts that the model continues; \"\" = a text from its beginning"});
    v.optional("sample_tokens", sample_tokens,
               {.minimum = 1, .maximum = 1 << 20, .doc = "maximum new tokens of each text"});
    v.optional("sample_temperature", sample_temperature,
               {.minimum = 0,
                .maximum = 1e6,
                .doc = "0 = always the most likely token; the draws are those of the run's seed"});
  }
};

struct CheckpointConfig {
  int64_t every_steps = 1000;
  int64_t keep_last = 2;
  int64_t keep_every_steps = 0;
  bool async = true;
  std::string on_commit{};

  bool operator==(const CheckpointConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("every_steps", every_steps,
               {.minimum = 0, .maximum = 1e9, .doc = "0 = only at the end"});
    v.optional("keep_last", keep_last,
               {.minimum = 1, .maximum = 1e9, .doc = "number of newest checkpoints to keep"});
    v.optional("keep_every_steps", keep_every_steps,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "also keep checkpoints whose step is a multiple of this, itself a multiple "
                       "of every_steps; 0 = none"});
    v.optional("async", async, {.doc = "write checkpoints while training continues"});
    v.optional(
        "on_commit", on_commit,
        {.doc = "command that /bin/sh runs beside training after a checkpoint is saved, with "
                "its directory in $MPRETRAIN_CHECKPOINT and its step in $MPRETRAIN_STEP; "
                "what it prints is in on_commit.log of the run; empty: none"});
  }
};

struct LogConfig {
  int64_t every_steps = 1;
  double every_seconds = 10;
  bool tensorboard = false;
  int64_t update_statistics = 0;

  bool operator==(const LogConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("every_steps", every_steps,
               {.minimum = 1, .maximum = 1e9, .doc = "least steps between log lines"});
    v.optional("every_seconds", every_seconds,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "least seconds between log lines; first, last, evaluated and skipped steps "
                       "have theirs at any time; 0 = a line every every_steps steps"});
    v.optional("tensorboard", tensorboard,
               {.doc = "also write event files for TensorBoard into the run's directory"});
    v.optional("update_statistics", update_statistics,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "steps between records of update statistics (which updates changed the "
                       "stored weight) and FP8 scales; 0 = none",
                .former = "update_survival"});
  }
};

// auto: the GPU if the program was built with CUDA and finds one, else the CPU.
enum class DeviceType : uint8_t { kAuto, kCpu, kCuda };
template <>
struct EnumNames<DeviceType> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "cpu", "cuda"};
};

// Of which layers the codes of weights that FP8 GEMMs read are in memory.
enum class Fp8WeightCodes : uint8_t { kAuto, kAllLayers, kOneLayer };
template <>
struct EnumNames<Fp8WeightCodes> {
  static constexpr std::array<std::string_view, 3> kNames{"auto", "all_layers", "one_layer"};
};

struct DeviceConfig {
  DeviceType type = DeviceType::kAuto;
  int64_t threads = 0;
  Bf16Products bf16_products = Bf16Products::kAuto;
  int64_t gpu = 0;
  bool cuda_graph = true;
  bool autotune_gemms = true;
  CudaAttention cuda_attention = CudaAttention::kAuto;
  bool deterministic_attention = true;
  Fp8WeightCodes fp8_weight_codes = Fp8WeightCodes::kAuto;

  bool operator==(const DeviceConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional("type", type, {.doc = "where the model runs; auto: on the GPU if there is one"});
    v.optional("threads", threads,
               {.minimum = 0,
                .maximum = 4096,
                .doc = "CPU threads; 0 = OMP_NUM_THREADS if set, else all"});
    v.optional("bf16_products", bf16_products,
               {.only_with = only_with("type", type, {DeviceType::kAuto, DeviceType::kCpu}),
                .doc = "how a CPU sums products of BF16 and FP8 numbers, in GEMMs and attention: "
                       "fma, as FP32 numbers, the same bits on every processor; amx_bf16 or "
                       "avx512_bf16, by these instructions, faster and with other low bits; auto: "
                       "the fastest where the run begins, and the same when it is resumed"});
    v.optional(
        "gpu", gpu,
        {.minimum = 0, .maximum = 1023, .doc = "index among the GPUs in CUDA_VISIBLE_DEVICES"});
    v.optional("cuda_graph", cuda_graph,
               {.doc = "capture a step as a graph and replay it; false to debug"});
    v.optional("autotune_gemms", autotune_gemms,
               {.doc = "time several algorithms for each GEMM at startup and keep the fastest",
                .former = "tune_products"});
    v.optional("cuda_attention", cuda_attention,
               {.doc = "auto: cuDNN where it supports the shape, else GEMMs"});
    v.optional("deterministic_attention", deterministic_attention,
               {.only_with = only_with("cuda_attention", cuda_attention,
                                       {CudaAttention::kAuto, CudaAttention::kCudnn}),
                .doc = "false: cuDNN's backward pass takes less memory, and its bits differ every "
                       "time, so a resumed run is not the one that was interrupted"});
    v.optional("fp8_weight_codes", fp8_weight_codes,
               {.doc = "codes of weights that FP8 GEMMs have in memory: all_layers, cast once a "
                       "step; one_layer, cast before each GEMM, for less memory; the same bits; "
                       "auto: one_layer on a GPU, all_layers on a CPU"});
  }
};

// Who holds optimizer states. optimizer: each rank those of the update blocks it updates; none:
// every rank holds all.
enum class Sharding : uint8_t { kOptimizer, kNone };
template <>
struct EnumNames<Sharding> {
  static constexpr std::array<std::string_view, 2> kNames{"optimizer", "none"};
};

struct DistributedConfig {
  Sharding sharding = Sharding::kOptimizer;
  Format gradient_reduce = Format::kF32;
  int64_t bucket_mib = 32;
  int64_t check_every_steps = 0;
  int64_t timeout_seconds = 600;

  bool operator==(const DistributedConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.optional(
        "sharding", sharding,
        {.doc = "optimizer: every rank holds the optimizer states of its share of the weights and "
                "updates that share (ZeRO-1); none: every rank holds all states"});
    v.optional("gradient_reduce", gradient_reduce,
               {.doc = "format in which ranks exchange gradients; sums are formed in fp32"});
    v.optional("bucket_mib", bucket_mib,
               {.minimum = 1,
                .maximum = 1 << 16,
                .doc = "minimum MiB of gradients to exchange at once, while others are still being "
                       "computed"});
    v.optional("check_every_steps", check_every_steps,
               {.minimum = 0,
                .maximum = 1e9,
                .doc = "steps between checks that all ranks hold bitwise equal weights; 0 = none"});
    v.optional("timeout_seconds", timeout_seconds,
               {.minimum = 1,
                .maximum = 1e6,
                .doc = "seconds to wait for a rank before it counts as lost"});
  }
};

// A part of the run with sections of its own; those that it does not give are the run's.
struct PhaseConfig {
  double until = 1;  // fraction of the run
  PrecisionConfig precision{};
  OptimizerConfig optimizer{};
  BatchConfig batch{};

  bool operator==(const PhaseConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.required("until", until,
               {.exclusive_minimum = 0,
                .maximum = 1,
                .doc = "part of the run's steps with which this phase ends; 1 in the last phase"});
    v.section("precision", precision, "in place of the run's, all of it");
    v.section("optimizer", optimizer, "in place of the run's, all of it");
    v.section("batch", batch, "in place of the run's, all of it; seq_len is the same");
  }
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
  std::vector<PhaseConfig> phases{};  // each with all its sections
  EvalConfig eval{};
  CheckpointConfig checkpoint{};
  LogConfig log{};
  DeviceConfig device{};
  DistributedConfig distributed{};

  bool operator==(const RunConfig&) const = default;

  template <class V>
  void fields(V& v) {
    v.required("name", name,
               {.doc = "name of the run's directory inside output_dir; no '/', no leading '.'"});
    v.optional("output_dir", output_dir, {.doc = "where runs are written"});
    v.optional("seed", seed,
               {.doc = "seed for initial weights, data order and every other random draw"});
    v.section("model", model, "LLaMA architecture");
    v.section("data", data, "token shards and how they are read");
    v.section("batch", batch, "tokens per step");
    v.section("precision", precision, "storage and compute formats");
    v.section("optimizer", optimizer, "optimizer and its hyperparameters");
    v.section("schedule", schedule, "factor applied to every learning rate, by update");
    v.section("train", train, "length of the run; exactly one of steps, tokens and chinchilla");
    v.optional("phases", phases,
               {.doc = "parts of the run with formats, an optimizer or a batch of their own, one "
                       "after the other: a list of {\"until\", \"precision\", \"optimizer\", "
                       "\"batch\"}; empty: the whole run is one"});
    v.section("eval", eval, "validation");
    v.section("checkpoint", checkpoint, "saving the training state");
    v.section("log", log, "log lines and records");
    v.section("device", device, "hardware to run on");
    v.section("distributed", distributed, "how ranks share the work; no effect with a single rank");
  }
};

// Reads the file that find_config() finds for `path`, applies `overrides` ("a.b=c") in order,
// validates.
RunConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides = {});
// The same for a parsed document, such as a checkpoint's resolved config.
RunConfig parse_run_config(JsonDocument document);

// For a config made in code: throws one Error that lists all problems, of single keys and of
// combinations. Configs from load_run_config() and parse_run_config() have already passed.
void validate(const RunConfig& config);
// Throws Error if the config names no training shards; only training needs them.
void require_training_data(const RunConfig& config);
// Throws Error if a step has fewer rows than there are ranks.
void require_rows(const BatchConfig& batch, int64_t ranks);

// Optimizer steps of the whole run.
int64_t total_steps(const RunConfig& config);

// A phase, or the whole run if it has none.
struct RunPhase {
  int64_t first_step = 0;  // steps done when it begins
  int64_t last_step = 0;
  RunConfig config;  // precision, optimizer and batch are those of the phase
};
std::vector<RunPhase> run_phases(const RunConfig& config);
// The number of the phase that makes the step after `steps_done`; at the end of the run, of the
// last.
size_t phase_after(const std::vector<RunPhase>& phases, int64_t steps_done);
// Rows that the first `steps` steps read.
int64_t rows_of_steps(const RunConfig& config, int64_t steps);
// Positions in all steps.
int64_t total_tokens(const RunConfig& config);

// Rows of a batch of val_loss_family, on any number of ranks.
int64_t galore_batch_rows(const RunConfig& config);

// Every key with its value, including defaults.
Json resolved_json(const RunConfig& config);
Json run_config_schema();
// The schema as configs/schema.json holds it.
std::string schema_text();

// Returns an existing path unchanged; ".json" may be omitted. A bare file name is also looked up in
// config_directories(). Throws Error listing the places searched and the nearest name there.
std::string find_config(const std::string& path);
// ./configs, the installed configs, and those of the source tree the program was built in. Includes
// not found beside the including file are also looked up there.
std::vector<std::string> config_directories();

// What a run config must satisfy beyond the type and range of each key.

// Checks combinations of keys: mutually exclusive keys, sizes that must divide. `document` tells
// where the keys were written. Every key of `config` must be in its range.
Problems clashes(const RunConfig& config, const JsonDocument& document);

}  // namespace mpt
