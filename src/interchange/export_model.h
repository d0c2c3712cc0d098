// Writes a model for other programs: as a Hugging Face directory that transformers'
// LlamaForCausalLM loads (Qwen3ForCausalLM with qk_norm), or as a GGUF file (export_gguf.h).
//
//   config.json  generation_config.json  model.safetensors
//   tokenizer.model  tokenizer.json  tokenizer_config.json  special_tokens_map.json
//
// The tokenizer's files are included if it is known: for a SentencePiece model, tokenizer.json only
// if that gives the same ids; a tokenizer.json unchanged; a tiktoken file as tokenizer.tiktoken
// with its settings next to it. Weights are FP32 if the masters are FP32, else BF16, decoded from
// scaled formats, or their codes (weight_file.h). Padding is omitted. The directory appears whole
// or not at all.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/enum_names.h"
#include "core/io/file_system.h"
#include "core/io/output_directory.h"
#include "text/tokenizer.h"
#include "weights/loaded_model.h"

namespace mpt {

enum class ExportFormat : uint8_t { kHf, kHfCodes, kGguf };
template <>
struct EnumNames<ExportFormat> {
  static constexpr std::array<std::string_view, 3> kNames{"hf", "hf-codes", "gguf"};
};

// Type of the matrices of a GGUF file. kStored: FP32 if the masters are FP32, else BF16.
enum class MatrixType : uint8_t { kStored, kF32, kBF16, kF16 };
template <>
struct EnumNames<MatrixType> {
  static constexpr std::array<std::string_view, 4> kNames{"stored", "f32", "bf16", "f16"};
};

struct ExportOptions {
  std::string output{};  // directory, or file for kGguf
  ExportFormat format = ExportFormat::kHf;
  MatrixType type = MatrixType::kStored;
  Overwrite overwrite = Overwrite::kNo;
  bool prepend_bos = false;  // whether readers of the tokenizer start texts with BOS
  // Tokens of the longest text, as stated in the files (max_position_embeddings); none: those of a
  // row in training.
  std::optional<int64_t> context{};
};

// Returns how the weights must be loaded.
ModelUse use_of_export(const ExportOptions& options);

// Throws Error if the output cannot be written: if the directory is not empty, or the file exists;
// with Overwrite::kYes, if they are anything but an earlier export.
void check_export_output(FileSystem& fs, const ExportOptions& options);

// `tokenizer` may be null. Throws Error like check_export_output(). `model` was loaded for
// use_of_export().
void export_model(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                  const ExportOptions& options);

// Returns the ids for config.json: each from the source of an imported model, else from the
// tokenizer, which may be null. If there are several BOS or padding tokens, for which transformers
// takes one number, the first in [0, vocab_size).
SpecialIds special_ids(const SourceTexts& source, const Tokenizer* tokenizer, int64_t vocab_size);
// Returns the ids for an exported tokenizer, each a number or null: its own, else the first of the
// source's for which it has a piece, else the first in [0, tokens): the exported tokenizer may have
// more tokens than pieces.
SpecialIds special_pieces(const SourceTexts& source, const Tokenizer& tokenizer, int64_t tokens);
int64_t context_of_export(const RunConfig& config, const ExportOptions& options);

// config.json of the export.
nlohmann::ordered_json hugging_face_config(const RunConfig& config, const SpecialIds& ids,
                                           const ExportOptions& options);

}  // namespace mpt
