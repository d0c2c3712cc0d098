// Key that a GEMM's algorithm depends on, and timing of candidate algorithms.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "device/gemm.h"

struct CUstream_st;

namespace mpt {

// A row-major operand as stored. An unknown address counts as aligned.
struct GemmOperand {
  DType dtype;
  int64_t rows, cols;
  int64_t stride;     // between rows, elements
  int64_t alignment;  // address alignment in bytes: kVectorBytes or an element's size

  static constexpr int64_t kVectorBytes = 16;  // widest access

  static GemmOperand of(const Tensor& tensor);
  [[nodiscard]] int64_t bytes() const { return ((rows - 1) * stride + cols) * size_of(dtype); }
  auto operator<=>(const GemmOperand&) const = default;
};

// Everything about a call except addresses and contents.
struct GemmKey {
  GemmOperand a, b, d;
  Transpose transpose_a, transpose_b;
  Accumulate accumulate;
  Multiply multiply;  // kFull if the operands leave no choice

  static GemmKey of(const GemmCall& call);
  [[nodiscard]] bool fp8() const { return is_fp8(a.dtype); }
  // "bf16[512,2048] x bf16[1024,2048]^T -> fp32[512,1024] added"
  [[nodiscard]] std::string name() const;
  auto operator<=>(const GemmKey&) const = default;
};

// Throws LogicError unless cuBLASLt has GEMMs of these types and layouts.
void check_supported(const GemmKey& key);

struct GemmAddresses {
  void *a, *b, *d;
};

struct GemmTuningCase {
  GemmKey key;
  size_t candidates;
  // Enqueues the GEMM with that candidate on the stream; false if it cannot.
  std::function<bool(const GemmAddresses&, size_t candidate)> run;
};

// The first candidate that no other is clearly faster than: by 3 % and by a microsecond. Anything
// less is noise, on which a run's bits should not depend. One that cannot run takes infinitely
// long.
size_t first_of_the_fastest(std::span<const double> microseconds);

struct GemmTuningResult {
  size_t best;               // first_of_the_fastest() of the medians
  double first_us, best_us;  // medians of the first candidate and of the best
};

// Times the candidates on random operands: zeros would save power and flatter the algorithms that
// draw most. Returns nullopt, with a warning, if there is no memory for another set of operands.
// Waits for the stream.
std::optional<GemmTuningResult> time_candidates(const GemmTuningCase& tuned, CUstream_st* stream);

}  // namespace mpt
