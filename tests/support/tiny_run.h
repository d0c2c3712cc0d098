// Runs that take milliseconds: a config of a few thousand parameters over small shards of unequal
// sizes.
#pragma once

#include <string>
#include <vector>

#include "config/run_config_json.h"
#include "config/run_device.h"
#include "config/run_paths.h"
#include "core/io/safetensors.h"
#include "data/document_index.h"
#include "data/token_shard.h"
#include "device/device.h"
#include "support/draws.h"
#include "support/stored_values.h"
#include "train/trainer.h"

namespace mpt::test {

inline constexpr int64_t kTinyVocab = 61;

inline void write_random_shard(const std::string& path, int64_t tokens, uint64_t seed,
                               int64_t vocab = kTinyVocab) {
  Draws draws(seed);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(int32_t(draws.index(vocab)));
  TokenShardWriter writer(path, TokenWidth::kUint16);
  writer.append(ids);
  writer.commit();
  std::vector<uint64_t> starts;  // of documents of 1 to 24 tokens
  for (int64_t start = 0; start < tokens; start += 1 + int64_t(draws.index(24)))
    starts.push_back(uint64_t(start));
  write_document_index(index_path_of(path), starts, tokens);
}

// Overrides for rows of several documents that do not see each other.
inline const std::vector<std::string> kDocumentOverrides{"data.attention=document",
                                                         "data.packing=best_fit"};

// Writes three training shards of unequal sizes, 890 tokens in total: 55 sequences of 16 per epoch,
// a little over 9 steps of 6.
inline void write_tiny_data(const std::string& directory) {
  write_random_shard(directory + "/train_0.bin", 301, 1);
  write_random_shard(directory + "/train_1.bin", 77, 2);
  write_random_shard(directory + "/train_2.bin", 512, 3);
  write_random_shard(directory + "/val_0.bin", 150, 4);
}

inline constexpr int64_t kTinySteps = 24;

// The text of a config for that data; `more` is appended to its keys (", \"key\": …").
inline std::string tiny_config_text(const std::string& directory, const std::string& name) {
  return fmt::format(R"({{
    "name": "{1}", "output_dir": "{0}/runs", "seed": 7,
    "model": {{"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
              "vocab_size": 61, "initializer_range": 0.1}},
    "data": {{"train": "{0}/train_*.bin", "validation": "{0}/val_*.bin"}},
    "batch": {{"seq_len": 16, "tokens_per_step": 96, "micro_batch_rows": 3}},
    "optimizer": {{"rule": "m_plus_adam", "lr_additive": 1e-2, "lr_multiplicative": 1e-2}},
    "train": {{"steps": {2}}},
    "eval": {{"every_steps": 5, "tokens": 100}},
    "checkpoint": {{"every_steps": 1, "keep_last": 100}}
  }})",
                     directory, name, kTinySteps);
}

// Overrides for a model that uses every variation of LLaMAs.
inline const std::vector<std::string> kFamilyOverrides{
    "model.num_key_value_heads=2",        "model.head_dim=16",
    "model.tie_word_embeddings=true",     "model.qk_norm=true",
    "model.rope_scaling.factor=4",        "model.rope_scaling.original_max_position_embeddings=32",
    "model.rope_scaling.rope_type=llama3"};
inline std::vector<std::string> with_family(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), kFamilyOverrides.begin(), kFamilyOverrides.end());
  return overrides;
}

inline RunConfig tiny_config(const std::string& directory, const std::string& name,
                             const std::vector<std::string>& overrides = {}) {
  JsonDocument document =
      JsonDocument::of_value(Json::parse(tiny_config_text(directory, name)), name);
  for (const std::string& text : overrides) document.set(text);
  return parse_run_config(document);
}

// Trains to the end, from the start or from a checkpoint.
inline void train_on(Device& device, const RunConfig& config, const std::string& from = "",
                     FileSystem& fs = posix_file_system()) {
  posix_file_system().create_directories(run_directory(config));
  Trainer trainer(config, device, fs);
  from.empty() ? trainer.initialize() : trainer.resume(from);
  trainer.run();
}
inline void train(const RunConfig& config, const std::string& from = "",
                  FileSystem& fs = posix_file_system()) {
  train_on(*make_device(config.device), config, from, fs);
}

inline std::string checkpoint_path(const RunConfig& config, int64_t step) {
  return fmt::format("{}/step_{:08}", checkpoint_directory(config), step);
}

// Bytes of every weight and state at a step.
inline std::string tensors_at(const RunConfig& config, int64_t step) {
  return posix_file_system().read_file(checkpoint_path(config, step) +
                                       "/rank_00000_of_00001.safetensors");
}

// Values of an FP32 or BF16 tensor saved by a single rank.
inline std::vector<float> saved_values(const RunConfig& config, int64_t step,
                                       const std::string& name) {
  const SafetensorsReader file(posix_file_system(),
                               checkpoint_path(config, step) + "/rank_00000_of_00001.safetensors");
  return file_values(file, name);
}

// The metrics without the values that depend on a clock.
inline std::string metrics_of(const RunConfig& config) {
  std::string text;
  for (auto& [step, record] : read_metrics(posix_file_system(), metrics_path(config))) {
    nlohmann::json kept = record;
    kept.erase("tokens_per_second");
    kept.erase("step_seconds");
    text += kept.dump() + "\n";
  }
  return text;
}

}  // namespace mpt::test
