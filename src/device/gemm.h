// GEMMs: D[m,n] = op(A) op(B), optionally added to D. Always with FP32 accumulation.
//
// FP8 operands (both or none; e4m3 with e4m3 or e5m2, as on GPUs) represent their codes' values
// times scale_inv, which is applied to the sum: D = (scale_inv_a scale_inv_b) op(A) op(B).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "device/memory.h"

namespace mpt {

enum class Transpose : uint8_t { kNo, kYes };
enum class Accumulate : uint8_t { kNo, kYes };

// Precision of GEMMs on a GPU; a CPU always uses the more exact way.
enum class Multiply : uint8_t {
  kFull,     // fp32 operands unrounded; FP8 partial sums promoted to FP32 regularly
  kTf32,     // fp32 operands only: rounded to TF32's 10 mantissa bits
  kFastFp8,  // FP8 operands only: sums stay in the tensor core's own accumulator
};

// FP8 operand layouts that a backend's GEMMs support.
enum class Fp8Layout : uint8_t {
  kAny,
  // only a as [m,k] and b as [n,k], as on Hopper (docs/numerics.md "FP8 GEMMs on a GPU")
  kRowsOfK
};

// Alignment in bytes of an FP8 operand's scale; cuBLASLt 13.1 refuses less.
inline constexpr int64_t kScaleAlignment = 16;

struct GemmCall {
  Tensor a;  // [m,k], or [k,m] when transposed
  Tensor b;  // [k,n], or [n,k] when transposed
  Tensor d;  // [m,n]
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;
  Accumulate accumulate = Accumulate::kNo;
  Multiply multiply = Multiply::kFull;
  const float* scale_inv_a = nullptr;  // in device memory, aligned to kScaleAlignment; null: 1
  const float* scale_inv_b = nullptr;

  [[nodiscard]] int64_t m() const { return d.rows; }
  [[nodiscard]] int64_t n() const { return d.cols; }
  [[nodiscard]] int64_t k() const { return transpose_a == Transpose::kNo ? a.cols : a.rows; }
};

// The algorithm that a backend uses for a kind of GEMM, to be stored and reused: another algorithm
// may add in a different order and so give different bits.
struct GemmChoice {
  std::string key;        // types, shape and layout of the GEMM, readable
  std::string algorithm;  // backend-specific, with the library and machine it is valid for

  bool operator==(const GemmChoice&) const = default;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Takes from `allocator` the scratch needed by the largest of `calls`. Call again before larger
  // ones.
  virtual void reserve(Allocator& allocator, std::span<const GemmCall> calls) = 0;
  // Throws LogicError if the shapes disagree, D is neither fp32 nor bf16, or the operand types
  // cannot be combined.
  virtual void run(const GemmCall& call) = 0;
  [[nodiscard]] virtual Fp8Layout fp8_layout() const { return Fp8Layout::kAny; }
  // Choices made so far, sorted by key; empty for backends that make none.
  [[nodiscard]] virtual std::vector<GemmChoice> choices() const { return {}; }
  // Adopts stored choices, now and for later reservations. Ignores choices for another library or
  // machine with a warning.
  virtual void restore(std::span<const GemmChoice> /*choices*/) {}
};

constexpr bool is_fp8(DType dtype) { return dtype == DType::kE4M3 || dtype == DType::kE5M2; }

// One multiplication and one addition per m n k term.
inline double flops_of(const GemmCall& call) {
  return 2.0 * double(call.m()) * double(call.n()) * double(call.k());
}

void check_shapes(const GemmCall& call);

}  // namespace mpt
