// Times the algorithms that could compute a product, on operands of random values: the power that zeros save
// would flatter whatever uses most.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "device/cuda/gemm_key.h"

struct CUstream_st;

namespace mpt {

struct GemmAddresses {
  void *a, *b, *d;
};

struct GemmTuningCase {
  GemmKey key;
  size_t candidates;
  // Enqueues the product by that candidate in the stream; false if it cannot.
  std::function<bool(const GemmAddresses&, size_t candidate)> run;
};

struct GemmTuningResult {
  size_t best;               // the first candidate unless another is clearly faster
  double first_us, best_us;  // medians of the first candidate and of that one
};

// Nothing, and a warning, where there is no memory for another set of operands. Waits for the stream.
std::optional<GemmTuningResult> time_candidates(const GemmTuningCase& tuned, CUstream_st* stream);

}  // namespace mpt
