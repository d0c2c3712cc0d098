#include "config/run_config.h"
#include "core/json/config_fields.h"

namespace mpt {

void BatchConfig::fields(Fields& f) {
  f.optional("seq_len", seq_len,
             {.minimum = 1, .maximum = 1 << 20, .doc = "T, tokens in one sequence (row)"});
  f.optional("tokens_per_step", tokens_per_step,
             {.minimum = 1,
              .maximum = 1 << 30,
              .doc = "positions in one optimizer step, a multiple of seq_len"});
  f.optional("micro_batch_rows", micro_batch_rows,
             {.minimum = 0,
              .maximum = 1 << 30,
              .doc = "rows per forward and backward pass, a divisor of the rows per step; 0 = "
                     "the most that fit the device's free memory, a whole step if it does; the "
                     "number is recorded, and a resumed run keeps it"});
}

void TrainConfig::fields(Fields& f) {
  f.optional("steps", steps,
             {.minimum = 1,
              .maximum = 1e9,
              .doc = "length in optimizer steps; excludes tokens and chinchilla"});
  f.optional("tokens", tokens,
             {.minimum = 1,
              .maximum = 1e18,
              .doc = "length in tokens, rounded up to whole steps; where phases have steps of "
                     "other sizes, to steps of their mean"});
  f.optional("chinchilla", chinchilla,
             {.exclusive_minimum = 0,
              .maximum = 1e6,
              .doc = "length in multiples of 20 tokens per parameter, rounded up to whole steps"});
  f.optional("init_from", init_from,
             {.doc = "start from the weights of this checkpoint, run or imported model, in any "
                     "stored format, rather than from random ones; a resumed run continues from "
                     "its own checkpoints"});
  f.optional(
      "init_from_other_rope", init_from_other_rope,
      {.doc = "accept weights of init_from that were trained with another "
              "model.rope_theta or model.rope_scaling, as for training on with a longer context"});
  f.optional("nonfinite_policy", nonfinite_policy,
             {.doc = "what to do on a loss or gradient norm that is not finite: stop; skip_step: "
                     "skip the update; rollback: return to the last checkpoint and continue with "
                     "the data after the step"});
  f.optional(
      "max_skipped_steps", max_skipped_steps,
      {.minimum = 1,
       .maximum = 1e9,
       .only_with = only_with("nonfinite_policy", nonfinite_policy, {NonfinitePolicy::kSkipStep}),
       .doc = "steps in a row whose loss or gradient norm is not finite after which the run "
              "ends with an error, because its weights are ruined"});
  f.optional("max_rollbacks", max_rollbacks,
             {.minimum = 1,
              .maximum = 1e6,
              .doc = "maximum rollbacks without a new checkpoint; one more is an error"});
  f.optional("activation_recompute", activation_recompute,
             {.doc = "block: keep only the input of each block and recompute the rest in the "
                     "backward pass"});
  f.optional("loss_chunk_rows", loss_chunk_rows,
             {.minimum = 0,
              .maximum = 1 << 30,
              .doc = "positions whose logits are in memory at a time; 0 = automatic"});
  f.optional("z_loss", z_loss,
             {.minimum = 0,
              .maximum = 1,
              .doc = "c of c log(sum of e^logits)^2, whose gradient is added to that of the "
                     "loss, so that logits stay small; the loss in logs is without it; 0 = off"});
  f.optional("ema_decay", ema_decay,
             {.minimum = 0,
              .exclusive_maximum = 1,
              .doc = "keep an exponential moving average of weights in FP32, in which each step "
                     "has this times the weight of the next; `checkpoint average --ema` writes "
                     "it; 0 = none"});
  f.optional("spike_policy", spike_policy,
             {.doc = "what to do on a spike, a step whose loss or gradient norm is far above the "
                     "running mean: off; warn; skip_step: skip the update; rollback: return to the "
                     "last checkpoint and continue with the data after the step; stop"});
  f.optional("spike_z", spike_z,
             {.exclusive_minimum = 0,
              .maximum = 1e6,
              .only_with = only_with("spike_policy", spike_policy,
                                     {SpikePolicy::kWarn, SpikePolicy::kSkipStep,
                                      SpikePolicy::kRollback, SpikePolicy::kStop}),
              .doc = "standard deviations above the mean of spike_window steps from which on a "
                     "loss or gradient norm is a spike"});
  f.optional("spike_window", spike_window,
             {.minimum = 2,
              .maximum = 1 << 16,
              .only_with = only_with("spike_policy", spike_policy,
                                     {SpikePolicy::kWarn, SpikePolicy::kSkipStep,
                                      SpikePolicy::kRollback, SpikePolicy::kStop}),
              .doc = "number of the last steps without spikes that a step is compared with; the "
                     "guard begins when there are as many"});
}

void EvalConfig::fields(Fields& f) {
  f.optional("every_steps", every_steps,
             {.minimum = 0, .maximum = 1e9, .doc = "0 = only at the end"});
  f.optional(
      "tokens", tokens,
      {.minimum = 1,
       .maximum = 1e18,
       .doc = "tokens of each validation set per evaluation at most, up to the end of a row"});
  f.optional("galore_batch_rows", galore_batch_rows,
             {.minimum = 0,
              .maximum = 1 << 30,
              .doc = "rows per batch of val_loss_family, the GaLore-style average: the sum of n "
                     "batch means over n + 1; 0 = those of a micro-batch, of a step if "
                     "batch.micro_batch_rows is 0",
              .former = "family_batch_rows"});
  f.optional("samples_every", samples_every,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "steps between texts that the model writes into log and samples.jsonl, also "
                     "at the end; 0 = none; they need the data's tokenizer"});
  f.optional("sample_prompts", sample_prompts,
             {.doc = "texts that the model continues; \"\" = a text from its beginning"});
  f.optional("sample_tokens", sample_tokens,
             {.minimum = 1, .maximum = 1 << 20, .doc = "maximum new tokens of each text"});
  f.optional("sample_temperature", sample_temperature,
             {.minimum = 0,
              .maximum = 1e6,
              .doc = "0 = always the most likely token; the draws are those of the run's seed"});
}

void CheckpointConfig::fields(Fields& f) {
  f.optional("every_steps", every_steps,
             {.minimum = 0, .maximum = 1e9, .doc = "0 = only at the end"});
  f.optional("keep_last", keep_last,
             {.minimum = 1, .maximum = 1e9, .doc = "number of newest checkpoints to keep"});
  f.optional("keep_every_steps", keep_every_steps,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "also keep checkpoints whose step is a multiple of this, itself a multiple "
                     "of every_steps; 0 = none"});
  f.optional("async", async, {.doc = "write checkpoints while training continues"});
  f.optional(
      "on_commit", on_commit,
      {.doc =
           "command that /bin/sh runs in parallel with training after a checkpoint is saved, with "
           "its directory in $MPRETRAIN_CHECKPOINT and its step in $MPRETRAIN_STEP; "
           "what it prints is in on_commit.log of the run; empty: none"});
}

void LogConfig::fields(Fields& f) {
  f.optional("every_steps", every_steps,
             {.minimum = 1, .maximum = 1e9, .doc = "least steps between log lines"});
  f.optional("every_seconds", every_seconds,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "least seconds between log lines; first, last, evaluated and skipped steps "
                     "have theirs at any time; 0 = a line every every_steps steps"});
  f.optional("tensorboard", tensorboard,
             {.doc = "also write event files for TensorBoard into the run's directory"});
  f.optional("update_statistics", update_statistics,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "steps between records of update statistics (which updates changed the "
                     "stored weight) and FP8 scales; 0 = none",
              .former = "update_survival"});
}

void DeviceConfig::fields(Fields& f) {
  f.optional("type", type, {.doc = "where the model runs; auto: on the GPU if there is one"});
  f.optional(
      "threads", threads,
      {.minimum = 0, .maximum = 4096, .doc = "CPU threads; 0 = OMP_NUM_THREADS if set, else all"});
  f.optional("bf16_dot", bf16_dot,
             {.only_with = only_with("type", type, {DeviceType::kAuto, DeviceType::kCpu}),
              .doc = "how a CPU sums dot products of BF16 and FP8 numbers, in GEMMs and attention: "
                     "fma, as FP32 numbers, the same bits on every processor; amx_bf16 or "
                     "avx512_bf16, by these instructions, faster and with other low bits; auto: "
                     "the fastest where the run begins, and the same when it is resumed",
              .former = "bf16_products"});
  f.optional(
      "gpu", gpu,
      {.minimum = 0, .maximum = 1023, .doc = "index among the GPUs in CUDA_VISIBLE_DEVICES"});
  f.optional("cuda_graph", cuda_graph,
             {.doc = "capture a step as a graph and replay it; false to debug"});
  f.optional("autotune_gemms", autotune_gemms,
             {.doc = "time several algorithms for each GEMM at startup and keep the fastest",
              .former = "tune_products"});
  f.optional("cuda_attention", cuda_attention,
             {.doc = "auto: cuDNN where it supports the shape, else GEMMs"});
  f.optional("deterministic_attention", deterministic_attention,
             {.only_with = only_with("cuda_attention", cuda_attention,
                                     {CudaAttention::kAuto, CudaAttention::kCudnn}),
              .doc = "false: cuDNN's backward pass takes less memory, and its bits differ every "
                     "time, so a resumed run is not the one that was interrupted"});
  f.optional("fp8_weight_codes", fp8_weight_codes,
             {.doc = "codes of weights that FP8 GEMMs have in memory: all_layers, cast once a "
                     "step; one_layer, cast before each GEMM, for less memory; the same bits; "
                     "auto: one_layer on a GPU, all_layers on a CPU"});
}

void DistributedConfig::fields(Fields& f) {
  f.optional("transport", transport,
             {.doc = "library that transfers tensors between ranks; auto: NCCL between GPUs, on "
                     "CPUs MPI if mpirun started the ranks and the program has it, else Gloo"});
  f.optional(
      "sharding", sharding,
      {.doc = "optimizer: every rank holds the optimizer states of its share of the weights and "
              "updates that share (ZeRO-1); none: every rank holds all states"});
  f.optional("gradient_reduce", gradient_reduce,
             {.doc = "format in which ranks exchange gradients; sums are formed in fp32"});
  f.optional("bucket_mib", bucket_mib,
             {.minimum = 1,
              .maximum = 1 << 16,
              .doc = "minimum MiB of gradients to exchange at once, while others are still being "
                     "computed"});
  f.optional("check_every_steps", check_every_steps,
             {.minimum = 0,
              .maximum = 1e9,
              .doc = "steps between checks that all ranks hold bitwise equal weights; 0 = none"});
  f.optional(
      "timeout_seconds", timeout_seconds,
      {.minimum = 1, .maximum = 1e6, .doc = "seconds to wait for a rank before it counts as lost"});
}

void PhaseConfig::fields(Fields& f) {
  f.required("until", until,
             {.exclusive_minimum = 0,
              .maximum = 1,
              .doc = "part of the run's steps with which this phase ends; 1 in the last phase"});
  f.section("precision", precision, "in place of the run's, all of it");
  f.section("optimizer", optimizer, "in place of the run's, all of it");
  f.section("batch", batch, "in place of the run's, all of it; seq_len is the same");
}

void RunConfig::fields(Fields& f) {
  f.required("name", name,
             {.doc = "name of the run's directory inside output_dir; no '/', no leading '.'"});
  f.optional("output_dir", output_dir, {.doc = "where runs are written"});
  f.optional("seed", seed,
             {.doc = "seed for initial weights, data order and every other random draw"});
  f.section("model", model, "LLaMA architecture");
  f.section("data", data, "token shards and how they are read");
  f.section("batch", batch, "tokens per step");
  f.section("precision", precision, "storage and compute formats");
  f.section("optimizer", optimizer, "optimizer and its hyperparameters");
  f.section("schedule", schedule, "factor applied to every learning rate, by update");
  f.section("train", train, "length of the run; exactly one of steps, tokens and chinchilla");
  f.optional("phases", phases,
             {.doc = "parts of the run with formats, an optimizer or a batch of their own, one "
                     "after the other: a list of {\"until\", \"precision\", \"optimizer\", "
                     "\"batch\"}; empty: the whole run is one"});
  f.section("eval", eval, "validation");
  f.section("checkpoint", checkpoint, "saving the training state");
  f.section("log", log, "log lines and records");
  f.section("device", device, "hardware to run on");
  f.section("distributed", distributed, "how ranks share the work; no effect with a single rank");
}

}  // namespace mpt
