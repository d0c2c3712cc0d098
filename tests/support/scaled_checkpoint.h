// Checkpoints of small random models whose linear layers are stored in any format.
#pragma once

#include <string>

#include "checkpoint/checkpoint_files.h"
#include "config/run_config_json.h"
#include "interchange/export_model.h"
#include "precision/weight_formats.h"
#include "support/model_checkpoint.h"
#include "support/temp_directory.h"
#include "weights/model_tokenizer.h"

namespace mpt::test {

struct ScaledModel {
  LlamaConfig model{.hidden_size = 64,
                    .intermediate_size = 96,
                    .num_hidden_layers = 2,
                    .num_attention_heads = 4,
                    .vocab_size = kSmallVocab};
  WeightEncoding linears{};
  std::string tokenizer{};
  int64_t seq_len = 64;

  [[nodiscard]] RunConfig config() const {
    RunConfig config =
        CheckpointedModel{.model = model, .seq_len = seq_len, .tokenizer = tokenizer}.config();
    config.precision.weights = linears.format;
    config.precision.fp8_block_size = linears.fp8_block_size;
    config.precision.fp8_scale_mode = linears.fp8_scale_mode;
    config.precision.nvfp4_scale_mode = linears.nvfp4_scale_mode;
    if (linears.format != WeightFormat::kF32) config.precision.compute = ComputeFormat::kBF16;
    return config;
  }
};

inline void write_scaled_checkpoint(const std::string& directory, const ScaledModel& saved) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const bool fp32 = saved.linears.format == WeightFormat::kF32;
  const DType storage = fp32 ? DType::kF32 : DType::kBF16;
  const WeightStore store(llama_parameters(saved.model),
                          {.storage = storage,
                           .gradient = storage,
                           .linears = saved.linears,
                           .gradients = Gradients::kNone},
                          *device, *allocator);
  initialize_weights(store, 0.3, 11, *device);
  FileSystem& fs = posix_file_system();
  fs.create_directories(directory);
  CheckpointWriter writer(fs, *device);
  writer.begin({.directory = directory,
                .name = rank_file_name(0, 1),
                .resting = whole_parts(store.named_tensors())});
  const std::vector<CheckpointFile> files{writer.wait()};
  write_checkpoint_state(fs, directory,
                         {.step = 7,
                          .cursor = 14,
                          .seed = 1,
                          .config = resolved_json(saved.config()),
                          .extra = nlohmann::json::object(),
                          .tokens = 14 * saved.seq_len},
                         files);
}

// A checkpoint and its exports.
struct ScaledExport {
  TempDirectory directory;
  std::string checkpoint = directory / "checkpoint";

  explicit ScaledExport(const ScaledModel& model) { write_scaled_checkpoint(checkpoint, model); }

  // Returns the path of the export.
  std::string run(const std::string& name, ExportOptions options = {}) const {
    options.output = directory / name;
    const LoadedModel model =
        load_model(posix_file_system(), checkpoint, {.type = DeviceType::kCpu, .threads = 1},
                   use_of_export(options));
    const TokenizerFile file = find_tokenizer(model.config, "");
    if (file.path.empty()) {
      export_model(posix_file_system(), model, nullptr, options);
    } else {
      const Tokenizer tokenizer = load_tokenizer(model.config, file);
      export_model(posix_file_system(), model, &tokenizer, options);
    }
    return options.output;
  }
};

}  // namespace mpt::test
