// The update rules, one element at a time, in the exact order of operations that NUMERICS fixes to the bit.
//
// A rule holds the scalars of one step of one tensor, already rounded to FP32; next() takes the decoded
// weight and the scaled gradient, updates the moments in place and returns the new weight. Where an option is
// off its bounds are infinite, so that no branch stands in the inner loop. Nothing is contracted: fma is
// written where it is meant.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/host_device.h"
#include "core/scalar_math.h"

namespace mpt {

// Moments shared by the rules of the Adam family.
struct AdamMoments {
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;  // 1.0f - beta, evaluated in FP32
  float correction1, correction2;          // 1 - beta^t; 1 without bias correction
  float eps;

  // m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2
  MPT_HD void update(float g, float& m, float& v) const {
    m = std::fma(one_minus_beta1, g, beta1 * m);
    second(g, v);
  }
  MPT_HD void second(float g, float& v) const { v = std::fma(g, one_minus_beta2 * g, beta2 * v); }
  // sqrt(v^) + eps
  MPT_HD float root(float v) const { return std::sqrt(v / correction2) + eps; }
  MPT_HD float direction(float m, float v) const { return (m / correction1) / root(v); }
};

// AdamW (Loshchilov and Hutter) as NUMERICS "AdamW": w' = w - lr (m^ / (sqrt(v^) + eps) + wd w).
struct AdamW {
  static constexpr std::array<std::string_view, 2> kStates{"m", "v"};

  AdamMoments moments;
  float lr, weight_decay;

  MPT_HD float next(float w, float g, float* state) const {
    moments.update(g, state[0], state[1]);
    const float dir = std::fma(w, weight_decay, moments.direction(state[0], state[1]));
    return std::fma(-lr, dir, w);
  }
};

// Factors of the paper's multiplicative decay, which pulls the exponent e of a weight (0.5 <= |w| 2^-e < 1)
// towards 0: r = 2^x (1 + u) - 1 with x = -lr wd e, that is fma(u, 2^x, 2^x - 1). Tabulated on the host for
// every exponent.
struct ExponentDecay {
  static constexpr int kLowest = -148, kHighest = 128;
  static constexpr int kEntries = kHighest - kLowest + 1;

  const float* factor;            // [kEntries] 2^x
  const float* factor_minus_one;  // [kEntries] 2^x - 1

  // The exponent of frexp, subnormals included; 0 for w = 0, whose entry leaves u as it is; the highest for
  // Inf and NaN.
  MPT_HD static int exponent_of(float w) {
    const float magnitude = std::fabs(w);
    const bool subnormal = magnitude < 0x1p-126f;
    const float normal = subnormal ? magnitude * 0x1p32f : magnitude;
    const int exponent = static_cast<int>(bits_of(normal) >> 23) - 126 - (subnormal ? 32 : 0);
    return magnitude == 0.0f ? 0 : min_of(exponent, kHighest);
  }
  MPT_HD float operator()(float w, float u) const {
    const int entry = exponent_of(w) - kLowest;
    return std::fma(u, factor[entry], factor_minus_one[entry]);
  }
};

// r = u - lr wd: with it w (1 + r) = w (1 + u) - lr wd w. Nothing when wd = 0.
struct ScaleDecay {
  float amount;
  MPT_HD float operator()(float, float u) const { return u - amount; }
};

// M+Adam (the paper's Algorithm 1 with every option of its appendix): an additive Adam step plus a
// multiplicative one along the gradient with respect to log2|w|, so that updates survive where weights are
// large and stored coarsely.
template <class Decay>
struct MPlusAdam {
  static constexpr std::array<std::string_view, 3> kStates{"m", "v", "v_e"};

  AdamMoments moments;
  float lr_additive, weight_decay;
  float lr_multiplicative;
  float tau;                                    // smallest |w| in the relative step
  float direction_bound;                        // of the multiplicative direction
  float relative_step_low, relative_step_high;  // of the relative change of w
  float exponent_step_low, exponent_step_high;  // 2^-d - 1, 2^d - 1
  float weight_bound;
  Decay decay;

  MPT_HD float next(float w, float g, float* state) const {
    moments.update(g, state[0], state[1]);
    const float dir = std::fma(w, weight_decay, moments.direction(state[0], state[1]));
    const float kLn2 = 0x1.62e43p-1f;  // 3f317218
    const float ge = (kLn2 * w) * g;   // gradient with respect to the exponent
    moments.second(ge, state[2]);
    const float n = clamp_to(ge / moments.root(state[2]), -direction_bound, direction_bound);
    const float rho = max_of(std::fabs(w), tau);
    float u = (-lr_multiplicative * n) / rho;
    u = clamp_to(u, relative_step_low, relative_step_high);
    u = clamp_to(u, exponent_step_low, exponent_step_high);
    const float scaled = std::fma(w, decay(w, u), w);
    return clamp_to(std::fma(-lr_additive, dir, scaled), -weight_bound, weight_bound);
  }
};

}  // namespace mpt
