// A weight matrix in its stored format: the tensors that hold its codes and scales.
//
// Scaled formats store codes and scales only; no copy in higher precision exists. The headers in
// codecs/ describe the pieces of each format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/block_range.h"
#include "core/enum_names.h"
#include "core/named_tensor.h"
#include "core/tensor.h"
#include "device/memory.h"

namespace mpt {

inline constexpr MemoryPurpose kWeightMemory{"weights"};  // in their stored format

// Defined by the list in weight_formats.h.
enum class WeightFormat : uint8_t;
inline constexpr WeightFormat kDefaultWeights{1};  // bf16

// --- options of specific formats -----------------------------------------------------------------

// Scales of FP8 blocks: powers of two, or the paper's literal FP16 quotient (docs/numerics.md
// "Scale drag" explains why the first is the default).
enum class Fp8ScaleMode : uint8_t { kPow2, kFp16 };
template <>
struct EnumNames<Fp8ScaleMode> {
  static constexpr std::array<std::string_view, 2> kNames{"pow2", "fp16"};
};

// sticky: scales move by powers of two, and only when necessary; live: every encoding derives all
// scales anew.
enum class Nvfp4ScaleMode : uint8_t { kSticky, kLive };
template <>
struct EnumNames<Nvfp4ScaleMode> {
  static constexpr std::array<std::string_view, 2> kNames{"sticky", "live"};
};

struct WeightEncoding {
  WeightFormat format = kDefaultWeights;
  int64_t fp8_block_size = 128;
  Fp8ScaleMode fp8_scale_mode = Fp8ScaleMode::kPow2;
  Nvfp4ScaleMode nvfp4_scale_mode = Nvfp4ScaleMode::kSticky;

  bool operator==(const WeightEncoding&) const = default;
};

// --- stored layout of a matrix -------------------------------------------------------------------

// One scale for `block` consecutive elements of a row; the last block may be shorter.
struct BlockScaleLayout {
  DType dtype;
  int64_t block;
};

struct EncodedLayout {
  DType codes;
  int64_t elements_per_code = 1;  // adjacent in a row
  int64_t whole = 1;              // the codes of a row cover a multiple of this many elements
  std::optional<BlockScaleLayout> block_scales{};
  bool tensor_scale = false;  // FP32

  // Columns of codes and scales for the first `elements` of a row.
  [[nodiscard]] constexpr int64_t code_cols(int64_t elements) const {
    return (elements + whole - 1) / whole * whole / elements_per_code;
  }
  [[nodiscard]] constexpr int64_t scale_cols(int64_t elements) const {
    return (elements + block_scales->block - 1) / block_scales->block;
  }
};

struct EncodedTensor {
  WeightEncoding encoding;
  int64_t rows = 0, cols = 0;  // logical; codes and scales past them are zero
  int rank = 2;                // 1: a vector, saved with shape [cols]
  Tensor codes, block_scales, tensor_scale;

  [[nodiscard]] int64_t elements() const { return rows * cols; }
  // Tensors that hold the logical elements, by their names in checkpoints: "<name>",
  // "<name>_block_scales", "<name>_tensor_scale".
  [[nodiscard]] std::vector<NamedTensor> pieces(const std::string& name) const;
  // Total size of those pieces.
  [[nodiscard]] int64_t logical_bytes() const;
};

// For codecs: throws LogicError unless the tensor has the format `expected`.
void check_format(const EncodedTensor& t, std::string_view expected);

// View of a plain fp32 or bf16 tensor.
EncodedTensor encoded_view(const Tensor& logical, int rank = 2);

struct EncodedShape {
  int64_t rows, cols;                    // logical
  int64_t physical_rows, physical_cols;  // stored
  int rank = 2;
};
// Allocates a zero-filled tensor.
EncodedTensor allocate_encoded(const WeightEncoding& encoding, const EncodedShape& shape,
                               MemoryPurpose purpose, Allocator& allocator);

// --- ranges of update blocks ---------------------------------------------------------------------

// span_of() of every piece with elements in the range. The tensor's scale belongs to no range.
std::vector<Tensor> spans_of(const EncodedTensor& tensor, BlockRange range);

// The part of every piece of EncodedTensor::pieces() that belongs to `range`: its codes and block
// scales, plus the tensor's scale with the first update block. Disjoint ranges that cover a tensor
// cover every element of every piece exactly once.
std::vector<TensorPart> parts_of(const EncodedTensor& tensor, const std::string& name,
                                 BlockRange range);

}  // namespace mpt
