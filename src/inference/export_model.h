// Writes a model as a Hugging Face directory that transformers' LlamaForCausalLM loads, or
// Qwen3ForCausalLM with qk_norm.
//
//   config.json  generation_config.json  model.safetensors
//   tokenizer.model  tokenizer.json  tokenizer_config.json  special_tokens_map.json
//
// The files of the tokenizer are there if it is known, tokenizer.json only if it gives the same
// ids. Weights are FP32 if the masters are FP32, else BF16, decoded from scaled formats. Padding is
// omitted. The directory appears whole or not at all.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "core/io/atomic_output.h"
#include "core/io/file_system.h"
#include "data/tokenizer.h"
#include "inference/loaded_model.h"

namespace mpt {

struct ExportOptions {
  std::string output;  // directory
  Overwrite overwrite = Overwrite::kNo;
  bool prepend_bos = false;  // as written to tokenizer_config.json
};

// `tokenizer` may be null. Throws Error if the directory is not empty; with Overwrite::kYes, if it
// holds anything but an earlier export.
void export_model(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                  const ExportOptions& options);

// config.json of the export.
nlohmann::ordered_json hugging_face_config(const RunConfig& config, const Tokenizer* tokenizer);

}  // namespace mpt
