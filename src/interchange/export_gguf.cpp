#include "interchange/export_gguf.h"

#include <algorithm>
#include <array>

#include <spdlog/spdlog.h>

#include "core/bf16.h"
#include "core/check.h"
#include "core/float_format.h"
#include "core/progress.h"
#include "interchange/gguf_tokenizer.h"
#include "model/formulas/rope_table.h"
#include "precision/dispatch.h"

namespace mpt {
namespace {

constexpr const char* kEnding = ".gguf";
constexpr const char* kGgufFrequencies = "rope_freqs.weight";

// --- model ---------------------------------------------------------------------------------------

const char* architecture_of(const LlamaConfig& config) {
  return config.qk_norm ? "qwen3" : "llama";
}

void add_model(GgufMetadata& metadata, const LlamaConfig& config, int64_t context) {
  const std::string prefix = fmt::format("{}.", architecture_of(config));
  const auto count = [&](const char* key, int64_t value) {
    metadata.add(prefix + key, static_cast<uint32_t>(value));
  };
  const auto real = [&](const char* key, double value) {
    metadata.add(prefix + key, static_cast<float>(value));
  };
  count("vocab_size", config.vocab_size);
  count("context_length", context);
  count("embedding_length", config.hidden_size);
  count("block_count", config.num_hidden_layers);
  count("feed_forward_length", config.intermediate_size);
  count("attention.head_count", config.num_attention_heads);
  count("attention.head_count_kv", config.key_value_heads());
  count("attention.key_length", config.head_dim());
  count("attention.value_length", config.head_dim());
  real("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  count("rope.dimension_count", config.head_dim());
  real("rope.freq_base", config.rope_theta);
  if (config.rope_scaling.rope_type != RopeType::kLinear) return;
  metadata.add(prefix + "rope.scaling.type", "linear");
  real("rope.scaling.factor", config.rope_scaling.factor);
}

StoredType type_of(MatrixType type, DType storage) {
  switch (type) {
    case MatrixType::kStored:
      return stored_type(storage);
    case MatrixType::kF32:
      return StoredType::kF32;
    case MatrixType::kBF16:
      return StoredType::kBF16;
    case MatrixType::kF16:
      return StoredType::kF16;
  }
  throw LogicError("unknown type of matrices");
}

// Returns llama.cpp's id of a file type, for files whose matrices have that type.
uint32_t file_type(StoredType matrices) {
  if (matrices == StoredType::kF32) return 0;
  return matrices == StoredType::kF16 ? 1 : 32;
}

void require_known_rotation(const LlamaConfig& config, const std::string& what) {
  if (config.qk_norm && config.rope_scaling.rope_type == RopeType::kLlama3)
    throw error(
        "{}: llama.cpp's qwen3, which has qk_norm, does not know rope_scaling.rope_type llama3; "
        "expected default or linear, or --format hf",
        what);
}

void warn_of_layers(const LlamaConfig& config) {
  constexpr int64_t kMostLayers = 512;  // LLAMA_MAX_LAYERS
  if (config.num_hidden_layers > kMostLayers)
    spdlog::warn("model.num_hidden_layers is {}: llama.cpp as it is built by default reads {}",
                 config.num_hidden_layers, kMostLayers);
}

// --- tensors -------------------------------------------------------------------------------------

std::string gguf_layer_name(std::string_view name) {
  constexpr std::array<std::array<std::string_view, 2>, 11> kNames{
      {{"input_layernorm", "attn_norm"},
       {"self_attn.q_proj", "attn_q"},
       {"self_attn.k_proj", "attn_k"},
       {"self_attn.v_proj", "attn_v"},
       {"self_attn.o_proj", "attn_output"},
       {"self_attn.q_norm", "attn_q_norm"},
       {"self_attn.k_norm", "attn_k_norm"},
       {"post_attention_layernorm", "ffn_norm"},
       {"mlp.gate_proj", "ffn_gate"},
       {"mlp.up_proj", "ffn_up"},
       {"mlp.down_proj", "ffn_down"}}};
  for (const auto& [ours, theirs] : kNames)
    if (name == fmt::format("{}.weight", ours)) return fmt::format("{}.weight", theirs);
  throw LogicError(fmt::format("no GGUF name of a layer's {}", name));
}

bool is_rotated(std::string_view name) {
  return name.ends_with(".q_proj.weight") || name.ends_with(".k_proj.weight");
}

// Returns one row as FP32.
std::vector<float> row_of(const LoadedModel& model, const Tensor& tensor, int64_t row) {
  std::vector<std::byte> bytes(size_t(tensor.cols * size_of(tensor.dtype)));
  model.device->download(tensor.row_range(row, 1), bytes.data());
  return dispatch(tensor.dtype, [&]<class T>(T) {
    std::vector<float> values(size_t(tensor.cols));
    const T* stored = reinterpret_cast<const T*>(bytes.data());
    std::transform(stored, stored + tensor.cols, values.begin(), [](T x) { return to_float(x); });
    return values;
  });
}

uint16_t f16_of(float x, const std::string& name) {
  const uint16_t code = fp16_nearest(x);
  if ((code & 0x7FFF) >= 0x7C00)
    throw error("{}: has the value {}, F16 ends at 65504; use --type bf16 or f32", name, x);
  return code;
}

template <class T, class F>
void append_as(GgufWriter& writer, const std::vector<float>& values, const F& convert) {
  std::vector<T> converted(values.size());
  std::transform(values.begin(), values.end(), converted.begin(), convert);
  writer.append(std::as_bytes(std::span(converted)));
}

void append_row(GgufWriter& writer, const std::vector<float>& values,
                const StoredTensorInfo& info) {
  if (info.type == StoredType::kF32)
    writer.append(std::as_bytes(std::span(values)));
  else if (info.type == StoredType::kBF16)
    append_as<bf16>(writer, values, [](float x) { return bf16_nearest(x); });
  else
    append_as<uint16_t>(writer, values, [&](float x) { return f16_of(x, info.name); });
}

std::vector<StoredTensorInfo> infos_of(const std::vector<NamedTensor>& tensors, StoredType matrices,
                                       const std::vector<float>& divisors) {
  std::vector<StoredTensorInfo> infos;
  for (const NamedTensor& named : tensors)
    infos.push_back(
        {gguf_name(named.name), named.rank == 1 ? StoredType::kF32 : matrices, named.shape()});
  if (!divisors.empty())
    infos.push_back({kGgufFrequencies, StoredType::kF32, {std::ssize(divisors)}});
  return infos;
}

void write_tensors(GgufWriter& writer, const LoadedModel& model,
                   const std::vector<NamedTensor>& tensors,
                   const std::vector<StoredTensorInfo>& infos) {
  const LlamaConfig& config = model.config.model;
  int64_t total = 0, done = 0;
  for (const StoredTensorInfo& info : infos) total += info.bytes();
  Progress progress({.label = "export weights", .total = total});
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& tensor = tensors[i].tensor;
    const bool rotated = !config.qk_norm && is_rotated(tensors[i].name);
    for (int64_t row = 0; row < tensor.rows; ++row) {
      const int64_t source = rotated ? rotated_row(row, config.head_dim()) : row;
      append_row(writer, row_of(model, tensor, source), infos[i]);
      progress.update(done += infos[i].bytes() / tensor.rows);
    }
  }
}

}  // namespace

// --- file ----------------------------------------------------------------------------------------

void check_gguf_output(FileSystem& fs, const ExportOptions& options) {
  const std::string& path = options.output;
  if (names_descriptor(followed(path))) return;
  if (!path.ends_with(kEnding) || path.size() == std::string_view(kEnding).size())
    throw error("--output '{}': --format gguf writes one file; expected a name ending in {}", path,
                kEnding);
  if (fs.is_directory(path)) throw error("{}: is a directory; expected a file", path);
  if (fs.kind(path) == FileKind::kRegular && options.overwrite == Overwrite::kNo)
    throw error("{}: already exists; choose another name, or replace it with --overwrite", path);
  check_replaces_its_kind(fs, path, "GGUF", "a GGUF file");
}

ModelUse use_of_gguf(MatrixType type) {
  const bool from_fp32 = type == MatrixType::kF32 || type == MatrixType::kF16;
  return from_fp32 ? ModelUse::kExportFp32 : ModelUse::kExport;
}

GgufMetadata gguf_metadata(const RunConfig& config, const SourceTexts& source,
                           const Tokenizer* tokenizer, const ExportOptions& options) {
  GgufMetadata metadata;
  metadata.add("general.architecture", std::string_view(architecture_of(config.model)));
  metadata.add("general.name", std::string_view(config.name));
  metadata.add("general.alignment", static_cast<uint32_t>(kGgufAlignment));
  add_model(metadata, config.model, context_of_export(config, options));
  if (tokenizer == nullptr)
    metadata.add("tokenizer.ggml.model", "no_vocab");
  else
    add_tokenizer(metadata, *tokenizer, special_pieces(source, *tokenizer, config.model.vocab_size),
                  config.model.vocab_size, options.prepend_bos);
  return metadata;
}

std::string gguf_name(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (name == "model.embed_tokens.weight") return "token_embd.weight";
  if (name == "model.norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  check(name.starts_with(kLayers), "no GGUF name of {}", name);
  const std::string_view rest = name.substr(kLayers.size());
  const size_t dot = rest.find('.');
  return fmt::format("blk.{}.{}", rest.substr(0, dot), gguf_layer_name(rest.substr(dot + 1)));
}

int64_t rotated_row(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

std::vector<float> gguf_frequency_divisors(const LlamaConfig& config) {
  if (config.rope_scaling.rope_type != RopeType::kLlama3) return {};
  LlamaConfig plain = config;
  plain.rope_scaling = {};
  std::vector<float> divisors;
  for (int64_t i = 0; i < config.head_dim() / 2; ++i)
    divisors.push_back(
        static_cast<float>(rotary_frequency(plain, i) / rotary_frequency(config, i)));
  return divisors;
}

void export_gguf(FileSystem& fs, const LoadedModel& model, const Tokenizer* tokenizer,
                 const ExportOptions& options) {
  check_gguf_output(fs, options);
  require_known_rotation(model.config.model, model.checkpoint);
  warn_of_layers(model.config.model);
  const StoredType matrices = type_of(options.type, model.storage());
  GgufMetadata metadata = gguf_metadata(model.config, model.source, tokenizer, options);
  metadata.add("general.file_type", file_type(matrices));
  const std::vector<NamedTensor> tensors = model.weights->decoded_tensors();
  const std::vector<float> divisors = gguf_frequency_divisors(model.config.model);
  const std::vector<StoredTensorInfo> infos = infos_of(tensors, matrices, divisors);
  GgufWriter writer(fs, options.output, metadata, infos);
  write_tensors(writer, model, tensors, infos);
  writer.append(std::as_bytes(std::span(divisors)));
  writer.commit();
}

}  // namespace mpt
