// Writes a model as one GGUF file, which llama.cpp runs (docs/formats.md "GGUF").
//
// The architecture is `llama`, or `qwen3` for a model with qk_norm. Matrices are F32, BF16 or F16,
// gains F32. Padding is omitted. The file appears whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/enum_names.h"
#include "core/io/gguf.h"
#include "inference/export_model.h"

namespace mpt {

// Throws Error if the name is not that of a GGUF file, or the file is there already; with
// Overwrite::kYes, if what is there is no GGUF file.
void check_gguf_output(FileSystem& fs, const ExportOptions& options);

// Throws Error as check_gguf_output(). Errors name what of the model or its tokenizer llama.cpp
// would compute differently.
void export_gguf(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                 const ExportOptions& options);

// How weights have to be loaded for a file of that type.
ModelUse use_of_gguf(MatrixType type);

// The metadata of the file. `tokenizer` may be null.
GgufMetadata gguf_metadata(const RunConfig& config, const SourceTexts& source,
                           const Tokenizer* tokenizer, const ExportOptions& options);

// A tensor's name in the file: "blk.0.attn_q.weight" of "model.layers.0.self_attn.q_proj.weight".
std::string gguf_name(std::string_view name);

// Row of a query or key matrix that is row `row` of the file. llama.cpp's `llama` rotates
// neighbours, this program element i and i + D/2 of a head.
int64_t rotated_row(int64_t row, int64_t head_dim);

// By how much each of the D/2 frequencies is divided; empty if they are all the same.
std::vector<float> gguf_frequency_divisors(const LlamaConfig& config);

}  // namespace mpt
