// model.safetensors of an export: the decoded weights, or the codes as they are stored.
//
// Codes are laid out as the compressed-tensors library reads them (docs/formats.md "Codes").
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/io/safetensors.h"
#include "inference/loaded_model.h"

namespace mpt {

enum class Conversion : uint8_t { kNone, kF16ToF32, kReciprocal };

struct FileTensor {
  StoredTensorInfo info;
  Tensor source;
  Conversion conversion = Conversion::kNone;
};

// Every parameter by its name, in the type it is read in.
std::vector<FileTensor> decoded_file(const WeightStore& weights);

// Codes and scales of linear layers, everything else decoded. Errors name what such a file cannot
// hold to the bit; `what` is the checkpoint.
std::vector<FileTensor> code_file(const WeightStore& weights, const std::string& what);

// How a reader decodes code_file(): `quantization_config` of config.json. To readers a tied head is
// a linear layer too, one without codes.
nlohmann::ordered_json quantization_config(const WeightEncoding& encoding);

void write_weight_file(FileSystem& fs, const std::string& path, Device& device,
                       const std::vector<FileTensor>& tensors);

}  // namespace mpt
