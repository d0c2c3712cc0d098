#include "inference/weight_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/float_format.h"
#include "core/progress.h"
#include "precision/weight_formats.h"

namespace mpt {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kStagingBytes = int64_t{16} << 20;

// --- codes ---------------------------------------------------------------------------------------

void require_codes(const WeightEncoding& encoding, const std::string& what) {
  if (!is_scaled(encoding.format))
    throw error(
        "{}: its weights are {}, which has no codes; --format hf-codes takes block_fp8, nvfp4 and "
        "mxfp8, --format hf all",
        what, name_of(encoding.format));
  if (encoding.format == WeightFormat::kNvfp4 &&
      encoding.nvfp4_scale_mode != Nvfp4ScaleMode::kSticky)
    throw error(
        "{}: its nvfp4_scale_mode is {}, whose steps other programs round differently; --format "
        "hf-codes takes sticky, --format hf both",
        what, name_of(encoding.nvfp4_scale_mode));
}

// Readers know no block that ends within a row.
void require_whole_blocks(const ParamSpec& spec, const WeightEncoding& encoding,
                          const std::string& what) {
  const int64_t block = layout_of(encoding).block_scales->block;
  if (spec.cols % block != 0)
    throw error(
        "{}: {} has {} columns, which is no multiple of the {} elements that share a scale, as "
        "--format hf-codes requires; use --format hf",
        what, spec.name, spec.cols, block);
}

FileTensor as_is(std::string name, StoredType type, const Tensor& source) {
  return {{std::move(name), type, {source.rows, source.cols}}, source, Conversion::kNone};
}

// `name` without ".weight", to which the file's names are appended.
void add_codes(const std::string& name, const EncodedTensor& weight,
               std::vector<FileTensor>& tensors) {
  const bool packed = weight.encoding.format == WeightFormat::kNvfp4;
  tensors.push_back(as_is(name + (packed ? ".weight_packed" : ".weight"),
                          stored_type(weight.codes.dtype), weight.codes));
  FileTensor scales = as_is(name + ".weight_scale", StoredType::kF8E4M3, weight.block_scales);
  if (weight.encoding.format == WeightFormat::kMxfp8) scales.info.type = StoredType::kU8;
  if (weight.encoding.format == WeightFormat::kBlockFp8) {
    scales.info.type = StoredType::kF32;
    scales.conversion = Conversion::kF16ToF32;
  }
  tensors.push_back(std::move(scales));
  if (packed)
    tensors.push_back({{name + ".weight_global_scale", StoredType::kF32, {1}},
                       weight.tensor_scale,
                       Conversion::kReciprocal});
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

// Scales of tensors are powers of two, so that their reciprocals are exact.
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
      require_codes(weight.encoding, what);
      require_whole_blocks(spec, weight.encoding, what);
      add_codes(spec.name.substr(0, spec.name.rfind('.')), weight, tensors);
      continue;
    }
    const NamedTensor plain{spec.name, logical_view(spec, weights.compute(int64_t(i))),
                            spec.rank()};
    tensors.push_back({{plain.name, stored_type(plain.tensor.dtype), plain.shape()}, plain.tensor});
  }
  return tensors;
}

ordered_json quantization_config(const WeightEncoding& encoding, bool tied) {
  const bool nvfp4 = encoding.format == WeightFormat::kNvfp4;
  const bool mxfp8 = encoding.format == WeightFormat::kMxfp8;
  const char* format = nvfp4   ? "nvfp4-pack-quantized"
                       : mxfp8 ? "mxfp8-quantized"
                               : "float-quantized";
  ordered_json weights{{"num_bits", nvfp4 ? 4 : 8},
                       {"type", "float"},
                       {"symmetric", true},
                       {"dynamic", false},
                       {"strategy", nvfp4 ? "tensor_group" : "group"},
                       {"group_size", layout_of(encoding).block_scales->block},
                       {"scale_dtype", nvfp4   ? "torch.float8_e4m3fn"
                                       : mxfp8 ? "torch.uint8"
                                               : "torch.float32"}};
  const ordered_json group{{"targets", {"Linear"}},
                           {"weights", std::move(weights)},
                           {"input_activations", nullptr},
                           {"output_activations", nullptr},
                           {"format", format}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", tied ? ordered_json::array() : ordered_json::array({"lm_head"})},
          {"kv_cache_scheme", nullptr},
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
