// What a matrix product's algorithm depends on: everything of a call but the addresses and their contents.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "device/gemm.h"

namespace mpt {

// A row-major operand as it is stored. Where its address is not known yet, it counts as aligned.
struct GemmOperand {
  DType dtype;
  int64_t rows, cols;
  int64_t stride;     // of rows, elements
  int64_t alignment;  // of its address, bytes: kVectorBytes or an element's

  static constexpr int64_t kVectorBytes = 16;  // of the widest access

  static GemmOperand of(const Tensor& tensor);
  [[nodiscard]] int64_t bytes() const { return ((rows - 1) * stride + cols) * size_of(dtype); }
  auto operator<=>(const GemmOperand&) const = default;
};

struct GemmKey {
  GemmOperand a, b, d;
  Transpose transpose_a, transpose_b;
  Accumulate accumulate;
  Multiply multiply;  // kFull where the operands leave no choice

  static GemmKey of(const GemmCall& call);
  [[nodiscard]] bool fp8() const { return is_fp8(a.dtype); }
  // "bf16[512,2048] x bf16[1024,2048]^T -> fp32[512,1024] added"
  [[nodiscard]] std::string name() const;
  auto operator<=>(const GemmKey&) const = default;
};

// Throws LogicError unless cuBLASLt has products of these types and layouts.
void check_supported(const GemmKey& key);

}  // namespace mpt
