// Writes a model as one GGUF file, for llama.cpp (docs/formats.md "GGUF").
//
// The architecture is `llama`, or `qwen3` for a model with qk_norm. Matrices are F32, BF16 or F16,
// gains F32. Padding is omitted. The file appears whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "interchange/export_model.h"
#include "interchange/gguf.h"

namespace mpt {

// Throws Error if the name is not that of a GGUF file, or the file already exists; with
// Overwrite::kYes, if the existing file is not a GGUF file.
void check_gguf_output(FileSystem& fs, const ExportOptions& options);

// Throws Error like check_gguf_output(), and naming the part of the model or its tokenizer that
// llama.cpp would compute differently.
void export_gguf(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                 const ExportOptions& options);

// Returns how weights must be loaded for a file of that type.
ModelUse use_of_gguf(MatrixType type);

// Returns the metadata of the file. `tokenizer` may be null.
GgufMetadata gguf_metadata(const RunConfig& config, const SourceTexts& source,
                           const Tokenizer* tokenizer, const ExportOptions& options);

// Returns a tensor's name in the file: "blk.0.attn_q.weight" for
// "model.layers.0.self_attn.q_proj.weight".
std::string gguf_name(std::string_view name);

// Returns the row of a query or key matrix that becomes row `row` of the file. llama.cpp's `llama`
// rotates neighbors, this program elements i and i + D/2 of a head.
int64_t rotated_row(int64_t row, int64_t head_dim);

// Returns the divisor of each of the D/2 frequencies; empty if they are all the same.
std::vector<float> gguf_frequency_divisors(const LlamaConfig& config);

}  // namespace mpt
