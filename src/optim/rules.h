// The update rules, one element at a time, in the order of operations of docs/numerics.md, to the bit.
//
// A rule holds the scalars of one step of one tensor, already rounded to FP32.
//   advance<Ema>(w, g, state, scale)  updates the states in place and returns the move that the weight shall
//                               make; the additive direction, without its decay, is multiplied by scale
//   moved(w, move)              the weight after it, before it is rounded to its storage
//   change(w, move)             the same as a difference, for compensated storage (kahan.h)
//   only(branch, move)          the part of a move that one of its kBranches makes; all of it for kBoth
//   limit_change(w, y)          y such that w + y keeps the rule's bound of weights
//   settled()                   its moments need no correction any more: advance<Settled<Ema>>() does the
//   same
// Where an option is off its bounds are infinite, so that no branch stands in the inner loop. Nothing is
// contracted: fma is written where it is meant.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"
#include "optim/survival.h"

namespace mpt {

// A mean over t steps, which began at 0, without its bias: correction is 1 - beta^t.
struct BiasCorrection {
  MPT_HD static float corrected(float x, float correction) { return x / correction; }
};

// How running means advance. Once: in FP32, to be rounded when they are stored.
struct EmaOnce : BiasCorrection {
  MPT_HD static float mean(float beta, float one_minus_beta, float g, float m) {
    return std::fma(one_minus_beta, g, beta * m);
  }
  MPT_HD static float mean_square(float beta, float one_minus_beta, float g, float v) {
    return std::fma(g, one_minus_beta * g, beta * v);
  }
};
// After every operation, as eager BF16 code does: m.mul_(b).add_(g, alpha = 1 - b).
struct EmaPerOp : BiasCorrection {
  MPT_HD static float mean(float beta, float one_minus_beta, float g, float m) {
    return rounded_to<bf16>(rounded_to<bf16>(beta * m) + one_minus_beta * g);
  }
  MPT_HD static float mean_square(float beta, float one_minus_beta, float g, float v) {
    return rounded_to<bf16>(rounded_to<bf16>(beta * v) + g * (one_minus_beta * g));
  }
};
// From some step on every correction is 1, and dividing by it takes time for nothing.
template <class Ema>
struct Settled : Ema {
  MPT_HD static float corrected(float x, float) { return x; }
};

// Moments shared by the rules of the Adam family.
struct AdamMoments {
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;  // 1.0f - beta, evaluated in FP32
  float correction1, correction2;          // 1 - beta^t; 1 without bias correction
  float eps;

  // m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2
  template <class Ema>
  MPT_HD void update(float g, float& m, float& v) const {
    m = Ema::mean(beta1, one_minus_beta1, g, m);
    second<Ema>(g, v);
  }
  template <class Ema>
  MPT_HD void second(float g, float& v) const {
    v = Ema::mean_square(beta2, one_minus_beta2, g, v);
  }
  // sqrt(v^) + eps
  template <class Ema>
  MPT_HD float root(float v) const {
    return std::sqrt(Ema::corrected(v, correction2)) + eps;
  }
  template <class Ema>
  MPT_HD float direction(float m, float v) const {
    return Ema::corrected(m, correction1) / root<Ema>(v);
  }
  [[nodiscard]] MPT_HD bool settled() const { return correction1 == 1.0f && correction2 == 1.0f; }
};

// AdamW (Loshchilov and Hutter) as docs/numerics.md "AdamW": w' = w - lr (m^ / (sqrt(v^) + eps) + wd w).
struct AdamW {
  static constexpr std::array<std::string_view, 2> kStates{"m", "v"};
  static constexpr int kFactors = 0, kBranches = 1;
  using Move = float;

  AdamMoments moments;
  float lr, weight_decay;

  template <class Ema>
  MPT_HD float advance(float w, float g, float* state, float scale = 1.0f) const {
    moments.update<Ema>(g, state[0], state[1]);
    return std::fma(w, weight_decay, scale * moments.direction<Ema>(state[0], state[1]));
  }
  [[nodiscard]] MPT_HD bool settled() const { return moments.settled(); }
  MPT_HD float moved(float w, float dir) const { return std::fma(-lr, dir, w); }
  MPT_HD float change(float, float dir) const { return -(lr * dir); }
  MPT_HD static float only(Branch, float dir) { return dir; }
  MPT_HD static float limit_change(float, float y) { return y; }
};

// Madam (Bernstein et al., "Learning compositional functions via multiplicative weight updates") as
// docs/numerics.md "Madam": w' = w e^x, x = -lr sign(w) g / sqrt(v^), so that signs stay and so does 0.
struct Madam {
  static constexpr std::array<std::string_view, 1> kStates{"v"};
  static constexpr int kFactors = 0, kBranches = 1;
  using Move = float;

  float beta2, one_minus_beta2, correction2;
  float lr;
  float direction_bound;  // of g / sqrt(v^)
  float weight_bound;

  // Of lr direction_bound: as far as the series of exp_minus_one holds.
  static constexpr double kMostExponent = 0.25;

  // e^x - 1 for |x| <= 1/4.
  MPT_HD static float exp_minus_one(float x) {
    float sum = 1.0f / 5040.0f;
    sum = std::fma(sum, x, 1.0f / 720.0f);
    sum = std::fma(sum, x, 1.0f / 120.0f);
    sum = std::fma(sum, x, 1.0f / 24.0f);
    sum = std::fma(sum, x, 1.0f / 6.0f);
    sum = std::fma(sum, x, 0.5f);
    sum = std::fma(sum, x, 1.0f);
    return sum * x;
  }
  template <class Ema>
  MPT_HD float advance(float w, float g, float* state, float /*scale*/ = 1.0f) const {
    state[0] = Ema::mean_square(beta2, one_minus_beta2, g, state[0]);
    const float root = std::sqrt(Ema::corrected(state[0], correction2));
    const float bounded = clamp_to(g / root, -direction_bound, direction_bound);
    const float n = root > 0.0f ? bounded : 0.0f;
    const float x = -(lr * n);
    return exp_minus_one(w < 0.0f ? -x : x);
  }
  [[nodiscard]] MPT_HD bool settled() const { return correction2 == 1.0f; }
  MPT_HD float moved(float w, float factor) const {
    return clamp_to(std::fma(w, factor, w), -weight_bound, weight_bound);
  }
  MPT_HD float change(float w, float factor) const { return w * factor; }
  MPT_HD static float only(Branch, float factor) { return factor; }
  MPT_HD float limit_change(float w, float y) const {
    return clamp_to(y, -weight_bound - w, weight_bound - w);
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

// The normalised direction of the multiplicative branch, from a second moment of its own for every weight.
struct DenseDirection {
  static constexpr std::array<std::string_view, 3> kStates{"m", "v", "v_e"};
  static constexpr int kFactors = 0;

  template <class Ema>
  MPT_HD static float of(const AdamMoments& moments, float ge, float& v_e) {
    moments.second<Ema>(ge, v_e);
    return ge / moments.root<Ema>(v_e);
  }
};

// The same from a factor that the projected second moment gives to a matrix or to each of its channels
// (apollo_e.h): it comes to the rule in place of v_e and is not stored.
struct ProjectedDirection {
  static constexpr std::array<std::string_view, 2> kStates{"m", "v"};
  static constexpr int kFactors = 1;

  template <class>
  MPT_HD static float of(const AdamMoments&, float ge, float factor) {
    return factor * ge;
  }
};

// Gradient with respect to the exponent of a weight, log2|w|.
MPT_HD float exponent_gradient(float w, float g) {
  const float kLn2 = 0x1.62e43p-1f;  // 3f317218
  return (kLn2 * w) * g;
}

// M+Adam (the paper's Algorithm 1 with every option of its appendix): an additive Adam step plus one along
// the gradient with respect to log2|w|, called multiplicative. Divided by rho, which is |w|, it is nearly
// Adam's step without momentum for large and small weights alike (multiplicative_branch_test.cpp).
template <class Decay, class Direction = DenseDirection>
struct MPlusAdam {
  static constexpr auto kStates = Direction::kStates;
  static constexpr int kFactors = Direction::kFactors, kBranches = 3;
  struct Move {
    float additive;  // direction, to be scaled with the additive rate
    float relative;  // change of w in multiples of w
  };

  AdamMoments moments;
  float lr_additive, weight_decay;
  float lr_multiplicative;
  float tau;                                    // smallest |w| in the relative step
  float direction_bound;                        // of the multiplicative direction
  float relative_step_low, relative_step_high;  // of the relative change of w
  float exponent_step_low, exponent_step_high;  // 2^-d - 1, 2^d - 1
  float weight_bound;
  Decay decay;

  template <class Ema>
  MPT_HD Move advance(float w, float g, float* state, float scale = 1.0f) const {
    moments.update<Ema>(g, state[0], state[1]);
    const float dir = std::fma(w, weight_decay, scale * moments.direction<Ema>(state[0], state[1]));
    const float direction = Direction::template of<Ema>(moments, exponent_gradient(w, g), state[2]);
    const float n = clamp_to(direction, -direction_bound, direction_bound);
    const float rho = max_of(std::fabs(w), tau);
    float u = (-lr_multiplicative * n) / rho;
    u = clamp_to(u, relative_step_low, relative_step_high);
    u = clamp_to(u, exponent_step_low, exponent_step_high);
    return {dir, decay(w, u)};
  }
  [[nodiscard]] MPT_HD bool settled() const { return moments.settled(); }
  MPT_HD float moved(float w, Move move) const {
    const float scaled = std::fma(w, move.relative, w);
    return clamp_to(std::fma(-lr_additive, move.additive, scaled), -weight_bound, weight_bound);
  }
  MPT_HD float change(float w, Move move) const {
    return std::fma(w, move.relative, -(lr_additive * move.additive));
  }
  MPT_HD static Move only(Branch branch, Move move) {
    return {branch == Branch::kMultiplicative ? 0.0f : move.additive,
            branch == Branch::kAdditive ? 0.0f : move.relative};
  }
  MPT_HD float limit_change(float w, float y) const {
    return clamp_to(y, -weight_bound - w, weight_bound - w);
  }
};

// The unrounded weight after one step.
template <class Ema = EmaOnce, class Rule>
MPT_HD float next_weight(const Rule& rule, float w, float g, float* state, float scale = 1.0f) {
  return rule.moved(w, rule.template advance<Ema>(w, g, state, scale));
}

}  // namespace mpt
