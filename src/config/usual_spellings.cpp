#include "config/usual_spellings.h"

#include <array>

#include "config/run_config.h"
#include "core/text/suggestion.h"

namespace mpt {
namespace {

constexpr auto kKeys = std::to_array<UsualSpelling>({
    {"lr", "optimizer.lr_additive"},
    {"learning_rate", "optimizer.lr_additive"},
    {"max_lr", "optimizer.lr_additive"},
    {"min_lr", "schedule.final_fraction"},
    {"betas", "optimizer.beta1"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"epsilon", "optimizer.eps"},
    {"weight_decay", "optimizer.weight_decay_additive"},
    {"wd", "optimizer.weight_decay_additive"},
    {"grad_clip", "optimizer.clip_grad_norm"},
    {"max_grad_norm", "optimizer.clip_grad_norm"},
    {"optimizer.name", "optimizer.rule"},
    {"optimizer.type", "optimizer.rule"},
    {"optim", "optimizer"},
    {"max_steps", "train.steps"},
    {"num_steps", "train.steps"},
    {"total_steps", "train.steps"},
    {"iterations", "train.steps"},
    {"max_iters", "train.steps"},
    {"epochs", "train.tokens"},
    {"num_epochs", "train.tokens"},
    {"max_tokens", "train.tokens"},
    {"training", "train"},
    {"batch.size", "batch.tokens_per_step"},
    {"batch_size", "batch.tokens_per_step"},
    {"global_batch_size", "batch.tokens_per_step"},
    {"micro_batch_size", "batch.micro_batch_rows"},
    {"gradient_accumulation_steps", "batch.micro_batch_rows"},
    {"block_size", "batch.seq_len"},
    {"context_length", "batch.seq_len"},
    {"seq_length", "batch.seq_len"},
    {"sequence_length", "batch.seq_len"},
    {"max_seq_len", "batch.seq_len"},
    {"dtype", "precision.weights"},
    {"bf16", "precision.weights"},
    {"fp8", "precision.weights"},
    {"nvfp4", "precision.weights"},
    {"scheduler", "schedule"},
    {"lr_scheduler", "schedule.shape"},
    {"warmup", "schedule.warmup_steps"},
    {"dataset", "data.train"},
    {"train_data", "data.train"},
    {"val_data", "data.validation"},
    {"data.val", "data.validation"},
    {"eval_every", "eval.every_steps"},
    {"eval_interval", "eval.every_steps"},
    {"eval_steps", "eval.every_steps"},
    {"save_every", "checkpoint.every_steps"},
    {"save_steps", "checkpoint.every_steps"},
    {"log_every", "log.every_steps"},
    {"logging_steps", "log.every_steps"},
    {"d_model", "model.hidden_size"},
    {"n_embd", "model.hidden_size"},
    {"dim", "model.hidden_size"},
    {"n_layer", "model.num_hidden_layers"},
    {"n_layers", "model.num_hidden_layers"},
    {"num_layers", "model.num_hidden_layers"},
    {"n_head", "model.num_attention_heads"},
    {"n_heads", "model.num_attention_heads"},
    {"num_heads", "model.num_attention_heads"},
    {"ffn_dim", "model.intermediate_size"},
    {"run_name", "name"},
    {"out_dir", "output_dir"},
});

constexpr auto kValues = std::to_array<UsualSpelling>({
    {"adam", "adamw"},
    {"m+adam", "m_plus_adam"},
    {"mplusadam", "m_plus_adam"},
    {"fp8", "block_fp8"},
    {"float8", "block_fp8"},
    {"float8", "fp8"},
    {"e4m3", "block_fp8"},
    {"block_fp8", "fp8"},
    {"fp4", "nvfp4"},
    {"bfloat16", "bf16"},
    {"float32", "fp32"},
    {"f32", "fp32"},
    {"float", "fp32"},
    {"sr", "stochastic"},
    {"rne", "nearest"},
    {"gpu", "cuda"},
    {"zero1", "optimizer"},
    {"cosine_annealing", "cosine"},
});

}  // namespace

const UsualSpellings& usual_spellings() {
  static constexpr UsualSpellings kAll{.keys = kKeys, .values = kValues};
  return kAll;
}

std::optional<std::string> config_key_meant_by(std::string_view word) {
  RunConfig config;
  const std::string key = plain_spelling(word);
  if (const auto usual = key_meant_by(key, kKeys)) return usual;
  for (const std::string& path : key_paths(Fields::of(config)))
    if (path == key || path.ends_with("." + key)) return path;
  return std::nullopt;
}

}  // namespace mpt
