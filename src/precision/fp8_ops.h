// Operations on FP8 operands: casts with a per-tensor scale, and scale updates (docs/numerics.md
// "FP8 GEMMs"). Written once over Exec (fp8_ops_on.h) and instantiated per backend.
#pragma once

#include <memory>
#include <string_view>

#include "device/ops_registry.h"
#include "precision/precision_config.h"

namespace mpt {

// Every dimension of every operand must be a multiple of this, as FP8 GEMMs on GPUs require
// (docs/numerics.md "FP8 GEMMs on a GPU").
inline constexpr int64_t kFp8Multiple = 16;

// Scale state of a tensor that is cast repeatedly: scalars in device memory.
struct Fp8Slot {
  float* scale = nullptr;       // for the next cast
  float* amax = nullptr;        // accumulates the largest |x| until the scale is updated
  float* used_scale = nullptr;  // scale of the most recent cast
  float* scale_inv = nullptr;   // 1 / used_scale; GEMMs multiply by it
};

enum class Fp8CastKind : uint8_t {
  kFold,    // training: use the slot's scale, accumulate the amax
  kNoFold,  // evaluation: use the slot's scale, leave the amax
  kAgain    // repeat the last cast with its scale; the slot is unchanged
};

struct Fp8CastCall {
  EncodedTensor source;           // [rows, cols] fp32, bf16 or scaled weights (decoded on the fly)
  Format through = Format::kF32;  // kBF16: round values to bf16 first
  // e4m3 or e5m2: enc(float(x) * scale), the same codes in both targets. No rows: not wanted; at
  // least one target is required.
  Tensor target{};      // [rows, cols]
  Tensor transposed{};  // [cols, rows]
  Fp8Slot slot;
  Fp8CastKind kind = Fp8CastKind::kFold;

  [[nodiscard]] DType format() const { return target.rows > 0 ? target.dtype : transposed.dtype; }
};

// Throws LogicError if shapes or types of the targets do not match the source.
void check_targets(const Fp8CastCall& call);

// Rolls all slots of one direction (forward or backward).
struct Fp8RollCall {
  Tensor history;    // [L, slots] fp32: rows 1.. oldest to newest; row 0 accumulates
  Tensor scale;      // [1, slots] fp32
  Tensor last_amax;  // amax at the latest update; 0: nothing was cast
  Tensor frozen;     // updates skipped because of an infinite amax
  float scaled_max;  // largest value of the format, times 2^-margin
  AmaxAlgorithm algorithm;
};

// Casts a source. Fp8Ops reads it from memory; another implementation may compute the values and
// use only the source's shape (shape_of_source()).
class Fp8Casts {
 public:
  virtual ~Fp8Casts() = default;
  virtual void cast(const Fp8CastCall& call) = 0;
  // Folds the largest |x| that cast() would see into the slot's amax; changes nothing else.
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

  // Sets the slot's scale from its amax (docs/numerics.md "Current scaling") and clears the amax.
  // `max_value`: largest value of the target format.
  virtual void scale_from_amax(const Fp8Slot& slot, float max_value) = 0;
  // Records the slot's scale as that of the most recent cast, like cast().
  virtual void note_scale(const Fp8Slot& slot) = 0;
  virtual void roll(const Fp8RollCall& call) = 0;
};

template <>
std::unique_ptr<Fp8Ops> make_cpu_ops(const Fp8Ops::Options&);

}  // namespace mpt
