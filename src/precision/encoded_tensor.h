// A matrix of weights in its stored format: the pieces of memory that hold it.
//
// Scaled formats store codes and scales and nothing else; no copy of higher precision exists.
//   fp32, bf16   codes [rows, cols]
//   block_fp8    codes [rows, cols] e4m3;  block_scales [rows, ceil(cols / B)] fp16
//   nvfp4        codes [rows, 8 ceil(cols / 16)] uint8, two elements a byte, the even one in the low nibble;
//                block_scales [rows, ceil(cols / 16)] e4m3;  tensor_scale [1, 1] fp32
#pragma once

#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "device/memory_plan.h"
#include "precision/precision_config.h"

namespace mpt {

inline constexpr int64_t kNvfp4Block = 16;

struct WeightEncoding {
  WeightFormat format = WeightFormat::kBF16;
  int64_t fp8_block_size = 128;
  Fp8ScaleMode fp8_scale_mode = Fp8ScaleMode::kPow2;
  Nvfp4ScaleMode nvfp4_scale_mode = Nvfp4ScaleMode::kSticky;

  bool operator==(const WeightEncoding&) const = default;
};

// Of the linear layers, as the config says.
WeightEncoding linear_encoding(const PrecisionConfig& config);

struct EncodedTensor {
  WeightEncoding encoding;
  int64_t rows = 0, cols = 0;  // elements, logical: codes and scales beyond them are zero
  int rank = 2;                // 1: a vector, saved with shape [cols]
  Tensor codes, block_scales, tensor_scale;

  [[nodiscard]] int64_t elements() const { return rows * cols; }
  // What holds the logical elements, by the names under which a checkpoint keeps it: "<name>",
  // "<name>_block_scales", "<name>_tensor_scale".
  [[nodiscard]] std::vector<NamedTensor> pieces(const std::string& name) const;
  // Bytes of those pieces.
  [[nodiscard]] int64_t logical_bytes() const;
};

// An fp32 or bf16 tensor as it stands.
EncodedTensor encoded_view(const Tensor& logical, int rank = 2);

struct EncodedShape {
  int64_t rows, cols;                    // logical
  int64_t physical_rows, physical_cols;  // stored
  int rank = 2;
};
// All zero.
EncodedTensor allocate_encoded(const WeightEncoding& encoding, const EncodedShape& shape, Purpose purpose,
                               Allocator& allocator);

}  // namespace mpt
