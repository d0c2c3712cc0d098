// Checkpoints of small models for the verbs that use them: with golden weights or zeros, and a
// tokenizer trained on the fly.
#pragma once

#include <string>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_writer.h"
#include "config/run_config_json.h"
#include "core/io/file_system.h"
#include "model/golden_model.h"
#include "model/model_bench.h"
#include "text/tokenizer_training.h"
#include "weights/loaded_model.h"

namespace mpt::test {

// The device on which tests load models.
inline const DeviceConfig kOneThread{.type = DeviceType::kCpu, .threads = 1};

struct CheckpointedModel {
  LlamaConfig model;
  Format format = Format::kF32;
  int64_t seq_len = 16;
  std::string tokenizer{};
  int64_t step = 7;
  // Weights by name; if empty, all zero except the norms' gains.
  NamedValues weights{};

  [[nodiscard]] RunConfig config() const {
    RunConfig config;
    config.name = "small";
    config.model = model;
    config.data.tokenizer = tokenizer;
    config.batch = {.seq_len = seq_len, .tokens_per_step = 2 * seq_len};
    const bool fp32 = format == Format::kF32;
    config.precision.weights = fp32 ? WeightFormat::kF32 : WeightFormat::kBF16;
    config.precision.compute = fp32 ? ComputeFormat::kF32 : ComputeFormat::kBF16;
    config.precision.optimizer_state = config.precision.gradient = format;
    config.train.steps = 10;
    return config;
  }
};

// Writes the weights and one optimizer state, like a run.
inline void write_model_checkpoint(const std::string& directory, const CheckpointedModel& saved) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const DType storage = dtype_of(saved.format);
  const WeightStore store(llama_parameters(saved.model),
                          {.storage = storage, .gradient = storage, .gradients = Gradients::kNone},
                          *device, *allocator);
  initialize_weights(store, 0.0, 1, *device);
  std::vector<NamedTensor> tensors = store.named_tensors();
  for (const NamedTensor& named : tensors)
    if (!saved.weights.empty()) set_values(*device, named.tensor, saved.weights.at(named.name));
  tensors.push_back({"m/lm_head.weight", allocator->tensor({"optimizer state"}, storage, 3, 5), 2});
  FileSystem& fs = posix_file_system();
  fs.create_directories(directory);
  CheckpointWriter writer(fs, *device);
  writer.begin(
      {.directory = directory, .name = rank_file_name(0, 1), .resting = whole_parts(tensors)});
  const std::vector<CheckpointFile> files{writer.wait()};
  write_checkpoint_state(fs, directory,
                         {.step = saved.step,
                          .cursor = 14,
                          .seed = 1,
                          .config = resolved_json(saved.config()),
                          .extra = nlohmann::json::object(),
                          .tokens = saved.step * 2 * saved.seq_len},
                         files);
}

// The model of tests/golden/<name>.safetensors.
inline CheckpointedModel golden_checkpoint(const GoldenModel& golden, Format format) {
  return {.model = golden.config,
          .format = format,
          .seq_len = golden.batch.seq_len,
          .weights = golden.weights};
}

inline constexpr int64_t kSmallVocab = 300;

// Trains a tokenizer of 300 pieces: some words, the alphabet, bytes for everything else. Returns
// its path.
inline std::string train_small_tokenizer(const std::string& directory) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += "the weights of the model and the gradients of the loss, rounded.\n\n";
  write_file_atomically(posix_file_system(), directory + "/corpus.txt", bytes_of(text));
  TokenizerTrainingOptions options;
  options.corpus.patterns = {directory + "/corpus.txt"};
  options.output = directory + "/small.model";
  options.vocab_size = kSmallVocab;
  return train_tokenizer(options).path;
}

// Values of a fixed pseudo-random draw with standard deviation 0.3: every token has its own logits.
inline NamedValues random_weights(const LlamaConfig& config, uint64_t seed = 11) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const WeightStore store(
      llama_parameters(config),
      {.storage = DType::kF32, .gradient = DType::kF32, .gradients = Gradients::kNone}, *device,
      *allocator);
  initialize_weights(store, 0.3, seed, *device);
  NamedValues values;
  for (const NamedTensor& named : store.named_tensors())
    values[named.name] = values_of(*device, named.tensor);
  return values;
}

inline LlamaConfig small_config(int64_t vocab_size) {
  return {.hidden_size = 16,
          .intermediate_size = 20,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .vocab_size = vocab_size};
}

}  // namespace mpt::test
