// What FP8 operands ask of a device: casts with a scale per tensor, and the update of the scales
// (docs/numerics.md "FP8 GEMMs"). Written once over Exec (fp8_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <string_view>

#include "device/ops_registry.h"
#include "precision/precision_config.h"

namespace mpt {

// Every dimension of every operand must be a multiple of it: what FP8 GEMMs of GPUs take (docs/numerics.md
// "FP8 GEMMs on a GPU").
inline constexpr int64_t kFp8Multiple = 16;

// Where a tensor that is cast again and again keeps its scale: single numbers in device memory.
struct Fp8Slot {
  float* scale = nullptr;       // of the next cast
  float* amax = nullptr;        // staging: gathers the largest |x| until the scale is updated
  float* used_scale = nullptr;  // of the bytes that were cast last
  float* scale_inv = nullptr;   // 1 / used_scale: what GEMMs of those bytes are multiplied by
};

enum class Fp8CastKind : uint8_t {
  kFold,    // training: with the slot's scale, the amax is gathered
  kNoFold,  // evaluation: with the slot's scale, no amax is seen
  kAgain    // the same bytes once more, with the scale they had; nothing of the slot changes
};

struct Fp8CastCall {
  EncodedTensor source;           // [rows, cols] fp32, bf16 or scaled weights, which are decoded on the way
  Format through = Format::kF32;  // kBF16: values are rounded to bf16 before anything else
  // e4m3 or e5m2: enc(float(x) * scale), the same codes in both. No rows: not wanted; one of them must be.
  Tensor target{};      // [rows, cols]
  Tensor transposed{};  // [cols, rows]
  Fp8Slot slot;
  Fp8CastKind kind = Fp8CastKind::kFold;

  [[nodiscard]] DType format() const { return target.rows > 0 ? target.dtype : transposed.dtype; }
};

// Throws LogicError if the targets' shapes or types do not go with the source's.
void check_targets(const Fp8CastCall& call);

// All slots of one direction at a time.
struct Fp8RollCall {
  Tensor history;    // [L, slots] fp32, oldest to newest from row 1 on; row 0 is where amaxes gather
  Tensor scale;      // [1, slots] fp32
  Tensor last_amax;  // [1, slots] fp32: what the latest update saw; 0 if nothing was cast
  Tensor frozen;     // [1, slots] int32: updates that an infinite amax in the history kept from the scale
  float scaled_max;  // largest value of the format, times 2^-margin
  AmaxAlgorithm algorithm;
};

// What reads a source of casts: Fp8Ops those in memory. Another one may compute the values, and takes from
// the call's source its shape alone (shape_of_source()).
class Fp8Casts {
 public:
  virtual ~Fp8Casts() = default;
  virtual void cast(const Fp8CastCall& call) = 0;
  // Folds the largest |x| of what cast() would see into the slot's amax, and does nothing else.
  virtual void gather_amax(const Fp8CastCall& call) = 0;
};

inline EncodedTensor shape_of_source(int64_t rows, int64_t cols) {
  EncodedTensor source;
  source.rows = rows, source.cols = cols;
  return source;
}

class Fp8Ops : public Fp8Casts {
 public:
  static constexpr std::string_view kFamily = "operations on FP8 operands";
  struct Options {};

  // Sets the slot's scale from its amax (docs/numerics.md "Current scaling") and clears that. `max_value`:
  // the largest of the target's format.
  virtual void scale_from_amax(const Fp8Slot& slot, float max_value) = 0;
  virtual void roll(const Fp8RollCall& call) = 0;
};

template <>
std::unique_ptr<Fp8Ops> make_cpu_ops(const Fp8Ops::Options&);

}  // namespace mpt
