// FP8 scales of one direction (forward: inputs and weights; backward: gradients), one slot per
// operand, with the delayed or the current recipe (docs/numerics.md "FP8 GEMMs").
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/named_tensor.h"
#include "core/tensor.h"
#include "precision/fp8_ops.h"

namespace mpt {

struct Fp8ScalingOptions {
  std::string name;  // "forward"
  DType format;      // for all operands, e4m3 or e5m2
  int64_t slots;
  PrecisionConfig config;  // fp8_recipe and, for kDelayed, fp8_history, fp8_amax_algo, fp8_margin
};

// A tensor to cast, or part of a larger one.
struct Fp8Part {
  EncodedTensor source;
  Tensor target{}, transposed{};  // [rows, cols] and [cols, rows]; no rows: not wanted
  Format through = Format::kF32;  // see Fp8CastCall
};

// For telemetry.
struct Fp8SlotState {
  float scale = 1;         // for the next cast
  float last_amax = 0;     // at the latest update; 0: nothing was cast
  float history_amax = 0;  // largest amax considered by the next update
  int32_t frozen = 0;      // updates skipped since program start because of an infinite amax
};

class Fp8Scaling {
 public:
  Fp8Scaling(Fp8ScalingOptions options, Device& device, Allocator& allocator);

  // Casts the parts of one operand, which share slot i. The current recipe treats kFold and kNoFold
  // alike.
  void cast(int64_t i, std::span<const Fp8Part> parts, Fp8CastKind kind) {
    cast(i, parts, kind, *ops_);
  }
  // Same, with a different implementation of the casts.
  void cast(int64_t i, std::span<const Fp8Part> parts, Fp8CastKind kind, Fp8Casts& casts);
  // Returns the call that cast(i, part, kind) would make, for an operation that casts its own
  // output. nullopt for the current recipe, whose scale is known only once all values are.
  [[nodiscard]] std::optional<Fp8CastCall> call_ahead(int64_t i, const Fp8Part& part,
                                                      Fp8CastKind kind) const;
  // Updates slot i like cast(), without writing codes: cast() with kAgain writes them later, as
  // often as needed.
  void observe(int64_t i, std::span<const Fp8Part> parts, Fp8CastKind kind);
  // Device pointer to the factor for GEMMs that read slot i's codes.
  [[nodiscard]] const float* scale_inv(int64_t i) const { return slot(i).scale_inv; }
  // Amaxes gathered since the last roll(), fp32 [1, slots]; no rows for the current recipe.
  [[nodiscard]] Tensor gathered_amaxes() const {
    return delayed() ? history_.row_range(0, 1) : Tensor{};
  }
  // Updates all scales from the amaxes gathered since the last roll(). No-op for the current
  // recipe.
  void roll();

  // Restores the state before the first cast: scales of 1 and no amaxes.
  void reset();
  // "fp8_<name>_amax_history" [L, slots], "fp8_<name>_scale" [slots]; empty for the current recipe.
  // After loading them, repeating the last casts before the save gives the same bytes and history.
  [[nodiscard]] std::vector<NamedTensor> named_states() const;
  [[nodiscard]] std::vector<Fp8SlotState> slot_states() const;

 private:
  [[nodiscard]] Fp8Slot slot(int64_t i) const;
  [[nodiscard]] Fp8CastCall call_of(int64_t i, const Fp8Part& part, Fp8CastKind kind) const;
  // call_of() for a part with codes to write.
  [[nodiscard]] Fp8CastCall writing_call(int64_t i, const Fp8Part& part, Fp8CastKind kind) const;
  // Sets the scale from the parts themselves, for the current recipe.
  void fit_scale(int64_t i, std::span<const Fp8Part> parts, Fp8Casts& casts);
  [[nodiscard]] bool delayed() const { return options_.config.fp8_recipe == Fp8Recipe::kDelayed; }

  Fp8ScalingOptions options_;
  Device& device_;
  std::unique_ptr<Fp8Ops> ops_;
  Tensor history_;             // [L, slots] fp32; L = 1 for the current recipe
  Tensor scale_, used_scale_;  // [1, slots] fp32
  Tensor scale_inv_;           // [slots, 4] fp32; GEMMs read the first column: kScaleAlignment
  Tensor last_amax_;           // [1, slots] fp32
  Tensor frozen_;              // [1, slots] int32
};

}  // namespace mpt
