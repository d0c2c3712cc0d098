// The verb `import`: a Hugging Face directory of a LLaMA or Qwen3 → a checkpoint with only weights.
//
//   config.json                                        hugging_face_config.h
//   model.safetensors, or its index and shards         hugging_face_weights.h
//   tokenizer.model, or tokenizer.json, or             copied, if one exists
//   tokenizer.tiktoken with its settings
//
// Among other files, tokenizer_config.json and added_tokens.json are read for settings of the
// tokenizer, and generation_config.json for the ids of BOS, EOS and padding. Weights are kept
// exactly, unless another format is requested.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "weights/weight_source.h"

namespace mpt {

enum class ImportTokenizer : uint8_t { kCopy, kLeave };

struct ImportOptions {
  std::string directory{};
  std::string output{};
  Overwrite overwrite = Overwrite::kNo;
  std::optional<WeightFormat> weights{};  // none: bf16 if all are BF16, else fp32
  std::vector<std::string> overrides{};   // "precision.x=y"
  std::optional<int64_t> seq_len{};       // tokens of context; none: max_position_embeddings
  std::vector<std::string> ignored{};     // keys of config.json
  ImportTokenizer tokenizer = ImportTokenizer::kCopy;
};

struct ImportedModel {
  RunConfig config;
  WeightChanges changes;
  std::optional<int64_t> context;  // max_position_embeddings
  std::string tokenizer;           // the copied file; "" if none
  std::string note;                // a one-line remark on the tokenizer
};

ImportedModel import_model(FileSystem& fs, const ImportOptions& options);

}  // namespace mpt
