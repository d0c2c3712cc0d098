#include "interchange/exported_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/float_format.h"
#include "core/progress.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kStagingBytes = int64_t{16} << 20;

// --- codes ---------------------------------------------------------------------------------------

// The library's layout for weights of a format.
struct CodeLayout {
  const char* format;
  const char* strategy;
  int bits;
  const char* scale_dtype;
  StoredType scales;
  Conversion of_scales = Conversion::kNone;
};

std::optional<CodeLayout> layout_of_codes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kNvfp4:
      return CodeLayout{"nvfp4-pack-quantized", "tensor_group",      4,
                        "torch.float8_e4m3fn",  StoredType::kF8E4M3, {}};
    case WeightFormat::kBlockFp8:
      return CodeLayout{"float-quantized", "group",          8,
                        "torch.float32",   StoredType::kF32, Conversion::kF16ToF32};
    case WeightFormat::kMxfp8:
      return CodeLayout{"mxfp8-quantized", "group", 8, "torch.uint8", StoredType::kU8, {}};
    default:
      return std::nullopt;
  }
}

CodeLayout required_layout(const WeightEncoding& encoding, const std::string& what) {
  const std::optional<CodeLayout> layout = layout_of_codes(encoding.format);
  if (!layout)
    throw error(
        "{}: its weights are {}, which has no codes in this layout; --format hf-codes takes "
        "block_fp8, nvfp4 and mxfp8, --format hf all",
        what, name_of(encoding.format));
  if (encoding.format == WeightFormat::kNvfp4 &&
      encoding.nvfp4_scale_mode != Nvfp4ScaleMode::kSticky)
    throw error(
        "{}: its nvfp4_scale_mode is {}, whose steps other programs round differently; --format "
        "hf-codes takes sticky, --format hf both",
        what, name_of(encoding.nvfp4_scale_mode));
  return *layout;
}

// Readers do not support blocks that end within a row.
void require_whole_blocks(const ParamSpec& spec, const WeightEncoding& encoding,
                          const std::string& what) {
  const int64_t block = layout_of(encoding).block_scales->block;
  if (spec.cols % block != 0)
    throw error(
        "{}: {} has {} columns, which is no multiple of the {} elements that share a scale, as "
        "--format hf-codes requires; use --format hf",
        what, spec.name, spec.cols, block);
}

// `name` excludes ".weight"; the file's names are appended to it.
void add_codes(const std::string& name, const EncodedTensor& weight, const CodeLayout& layout,
               std::vector<FileTensor>& tensors) {
  const auto add = [&](const char* suffix, StoredType type, const Tensor& source,
                       Conversion conversion) {
    const std::vector<int64_t> shape{source.rows, source.cols};
    tensors.push_back({{name + suffix, type, shape}, source, conversion});
  };
  const bool packed = weight.tensor_scale.rows > 0;
  add(packed ? ".weight_packed" : ".weight", stored_type(weight.codes.dtype), weight.codes,
      Conversion::kNone);
  add(".weight_scale", layout.scales, weight.block_scales, layout.of_scales);
  if (!packed) return;
  add(".weight_global_scale", StoredType::kF32, weight.tensor_scale, Conversion::kReciprocal);
  tensors.back().info.shape = {1};
}

// --- writing -------------------------------------------------------------------------------------

std::vector<std::byte> as_f32(std::span<const std::byte> halves) {
  std::vector<std::byte> floats(2 * halves.size());
  for (size_t i = 0; i < halves.size(); i += sizeof(uint16_t)) {
    uint16_t code;
    std::memcpy(&code, halves.data() + i, sizeof code);
    const float value = fp16_decode(code);
    std::memcpy(floats.data() + 2 * i, &value, sizeof value);
  }
  return floats;
}

// Scales of tensors are powers of two, so their reciprocals are exact.
std::vector<std::byte> reciprocal(std::span<const std::byte> bytes, const std::string& name) {
  float value;
  std::memcpy(&value, bytes.data(), sizeof value);
  const float inverse = 1 / value;
  if (!std::isnormal(inverse) || 1 / inverse != value)
    throw error("{}: the scale {} of the tensor has no exact reciprocal; use --format hf", name,
                value);
  std::vector<std::byte> result(sizeof inverse);
  std::memcpy(result.data(), &inverse, sizeof inverse);
  return result;
}

std::vector<std::byte> converted(std::vector<std::byte> bytes, const FileTensor& tensor) {
  switch (tensor.conversion) {
    case Conversion::kNone:
      return bytes;
    case Conversion::kF16ToF32:
      return as_f32(bytes);
    case Conversion::kReciprocal:
      return reciprocal(bytes, tensor.info.name);
  }
  throw LogicError("unknown conversion");
}

}  // namespace

std::vector<FileTensor> decoded_file(const WeightStore& weights) {
  std::vector<FileTensor> tensors;
  for (const NamedTensor& named : weights.decoded_tensors())
    tensors.push_back({{named.name, stored_type(named.tensor.dtype), named.shape()}, named.tensor});
  return tensors;
}

std::vector<FileTensor> code_file(const WeightStore& weights, const std::string& what) {
  std::vector<FileTensor> tensors;
  for (size_t i = 0; i < weights.specs().size(); ++i) {
    const ParamSpec& spec = weights.specs()[i];
    const EncodedTensor& weight = weights.master(int64_t(i));
    if (spec.kind == ParamKind::kLinear) {
      const CodeLayout layout = required_layout(weight.encoding, what);
      require_whole_blocks(spec, weight.encoding, what);
      add_codes(spec.name.substr(0, spec.name.rfind('.')), weight, layout, tensors);
      continue;
    }
    const NamedTensor plain{spec.name, logical_view(spec, weights.compute(int64_t(i))),
                            spec.rank()};
    tensors.push_back({{plain.name, stored_type(plain.tensor.dtype), plain.shape()}, plain.tensor});
  }
  return tensors;
}

ordered_json quantization_config(const WeightEncoding& encoding) {
  const CodeLayout layout = required_layout(encoding, "the checkpoint");
  ordered_json weights{{"num_bits", layout.bits},
                       {"type", "float"},
                       {"symmetric", true},
                       {"dynamic", false},
                       {"strategy", layout.strategy},
                       {"group_size", layout_of(encoding).block_scales->block},
                       {"scale_dtype", layout.scale_dtype}};
  const ordered_json group{{"targets", {"Linear"}},
                           {"weights", std::move(weights)},
                           {"input_activations", nullptr},
                           {"output_activations", nullptr},
                           {"format", layout.format}};
  return {{"quant_method", "compressed-tensors"},       {"format", layout.format},
          {"quantization_status", "compressed"},        {"config_groups", {{"group_0", group}}},
          {"ignore", ordered_json::array({"lm_head"})}, {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr}};
}

void write_weight_file(FileSystem& fs, const std::string& path, Device& device,
                       const std::vector<FileTensor>& tensors) {
  std::vector<StoredTensorInfo> infos;
  int64_t total = 0, done = 0;
  for (const FileTensor& tensor : tensors) {
    infos.push_back(tensor.info);
    total += tensor.source.elements() * size_of(tensor.source.dtype);
  }
  SafetensorsWriter writer(fs, path, infos, {{"format", "pt"}});
  Progress progress({.label = "export weights", .total = total});
  for (const FileTensor& tensor : tensors) {
    const Tensor& source = tensor.source;
    const int64_t row_bytes = source.cols * size_of(source.dtype);
    const int64_t band = std::clamp<int64_t>(kStagingBytes / row_bytes, 1, source.rows);
    for (int64_t row = 0; row < source.rows; row += band) {
      const int64_t rows = std::min(band, source.rows - row);
      std::vector<std::byte> bytes(size_t(rows * row_bytes));
      device.download(source.row_range(row, rows), bytes.data());
      writer.append(converted(std::move(bytes), tensor));
      progress.update(done += rows * row_bytes);
    }
  }
  writer.finish();
}

}  // namespace mpt
