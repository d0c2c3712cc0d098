#include "device/cuda/gemm_key.h"

#include <algorithm>

#include "core/check.h"

namespace mpt {
namespace {

std::string name_of_operand(const GemmOperand& x) {
  return fmt::format("{}[{},{}]{}{}", name_of(x.dtype), x.rows, x.cols,
                     x.stride == x.cols ? "" : fmt::format(" {} apart", x.stride),
                     x.alignment == GemmOperand::kVectorBytes ? "" : " unaligned");
}

const char* mark_of(Transpose transpose) { return transpose == Transpose::kYes ? "^T" : ""; }

const char* mark_of(Multiply multiply) {
  switch (multiply) {
    case Multiply::kTf32:
      return " by TF32";
    case Multiply::kFastFp8:
      return " by fast FP8";
    default:
      return "";
  }
}

Multiply multiply_of(const GemmCall& call) {
  const bool tf32 = call.multiply == Multiply::kTf32 && call.a.dtype == DType::kF32;
  const bool fast = call.multiply == Multiply::kFastFp8 && is_fp8(call.a.dtype);
  return tf32 || fast ? call.multiply : Multiply::kFull;
}

}  // namespace

GemmOperand GemmOperand::of(const Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  return {.dtype = tensor.dtype,
          .rows = tensor.rows,
          .cols = tensor.cols,
          .stride = std::max(tensor.stride, tensor.cols),  // a single row's means nothing
          .alignment = address % kVectorBytes == 0 ? kVectorBytes : size_of(tensor.dtype)};
}

GemmKey GemmKey::of(const GemmCall& call) {
  return {.a = GemmOperand::of(call.a),
          .b = GemmOperand::of(call.b),
          .d = GemmOperand::of(call.d),
          .transpose_a = call.transpose_a,
          .transpose_b = call.transpose_b,
          .accumulate = call.accumulate,
          .multiply = multiply_of(call)};
}

std::string GemmKey::name() const {
  return fmt::format("{}{} x {}{} -> {}{}{}", name_of_operand(a), mark_of(transpose_a), name_of_operand(b),
                     mark_of(transpose_b), name_of_operand(d), accumulate == Accumulate::kYes ? " added" : "",
                     mark_of(multiply));
}

void check_supported(const GemmKey& key) {
  const DType a = key.a.dtype, b = key.b.dtype, d = key.d.dtype;
  check(key.fp8() || (a == b && (a == DType::kBF16 || d == DType::kF32)),
        "matrix product of {} and {} into {} on a GPU: two of fp32 into fp32, two of bf16 or of FP8 into "
        "either",
        name_of(a), name_of(b), name_of(d));
  check(!key.fp8() || (key.transpose_a == Transpose::kNo && key.transpose_b == Transpose::kYes),
        "{} on a GPU: FP8 operands are taken as [m,k] and [n,k]^T only", key.name());
}

}  // namespace mpt
