// model.safetensors of an export: the decoded weights, or the codes as stored.
//
// Codes are laid out for the compressed-tensors library (docs/formats.md "Codes").
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "weights/loaded_model.h"

namespace mpt {

enum class Conversion : uint8_t { kNone, kF16ToF32, kReciprocal };

struct FileTensor {
  StoredTensorInfo info;
  Tensor source;
  Conversion conversion = Conversion::kNone;
};

// Returns every parameter by name, in the type it is read in.
std::vector<FileTensor> decoded_file(const WeightStore& weights);

// Returns codes and scales of linear layers, everything else decoded. Errors name what such a file
// cannot represent exactly; `what` is the checkpoint.
std::vector<FileTensor> code_file(const WeightStore& weights, const std::string& what);

// Returns how a reader decodes code_file(): `quantization_config` of config.json. Readers treat a
// tied head as a linear layer too, one without codes.
nlohmann::ordered_json quantization_config(const WeightEncoding& encoding);

void write_weight_file(FileSystem& fs, const std::string& path, Device& device,
                       const std::vector<FileTensor>& tensors);

}  // namespace mpt
