// A matrix of weights in its stored format: the pieces of memory that hold it.
//
// Scaled formats store codes and scales and nothing else; no copy of higher precision exists. What the pieces
// are, each format says in its header of codecs/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/blocks.h"
#include "core/enum_names.h"
#include "core/tensor.h"
#include "device/memory.h"

namespace mpt {

inline constexpr MemoryPurpose kWeightMemory{"weights"};  // as they are stored

// One of the list in weight_formats.h.
enum class WeightFormat : uint8_t;
inline constexpr WeightFormat kDefaultWeights{1};  // bf16

// --- options of single formats ---------------------------------------------------------------------------

// Scales of FP8 blocks: powers of two, or the paper's literal FP16 quotient (docs/numerics.md "Scale drag"
// says why the first is the default).
enum class Fp8ScaleMode : uint8_t { kPow2, kFp16 };
template <>
struct EnumNames<Fp8ScaleMode> {
  static constexpr std::array<std::string_view, 2> kNames{"pow2", "fp16"};
};

// sticky: scales move by powers of two and only when they must; live: all derived again at every encoding.
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

// --- what a format stores of a matrix --------------------------------------------------------------------

// One scale for `block` consecutive elements of a row; the last block may be shorter.
struct BlockScaleLayout {
  DType dtype;
  int64_t block;
};

struct EncodedLayout {
  DType codes;
  int64_t elements_per_code = 1;  // neighbours of a row
  int64_t whole = 1;              // rows have codes for a multiple of so many elements
  std::optional<BlockScaleLayout> block_scales{};
  bool tensor_scale = false;  // FP32

  // Columns of the pieces that belong to the first `elements` of a row.
  [[nodiscard]] constexpr int64_t code_cols(int64_t elements) const {
    return (elements + whole - 1) / whole * whole / elements_per_code;
  }
  [[nodiscard]] constexpr int64_t scale_cols(int64_t elements) const {
    return (elements + block_scales->block - 1) / block_scales->block;
  }
};

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

// Of codecs, which are for tensors of one format.
void check_format(const EncodedTensor& t, std::string_view expected);

// An fp32 or bf16 tensor as it stands.
EncodedTensor encoded_view(const Tensor& logical, int rank = 2);

struct EncodedShape {
  int64_t rows, cols;                    // logical
  int64_t physical_rows, physical_cols;  // stored
  int rank = 2;
};
// All zero.
EncodedTensor allocate_encoded(const WeightEncoding& encoding, const EncodedShape& shape,
                               MemoryPurpose purpose, Allocator& allocator);

// --- ranges of update blocks -----------------------------------------------------------------------------

// span_of() for every piece that the elements of the range are encoded in. The scale of the tensor belongs to
// no range.
std::vector<Tensor> spans_of(const EncodedTensor& tensor, BlockRange range);

// What `range` is of every piece of EncodedTensor::pieces(): codes and block scales of its elements, and the
// tensor's scale with the first update block. Ranges that cover a tensor once have every element of every
// piece once.
std::vector<TensorPart> parts_of(const EncodedTensor& tensor, const std::string& name, BlockRange range);

}  // namespace mpt
