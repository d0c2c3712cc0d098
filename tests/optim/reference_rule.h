// The rules of docs/numerics.md written a second time, literally: branches where it has branches,
// frexp where it says frexp, no table, nothing disabled by an infinite bound. The oracle of the
// random tests.
#pragma once

#include <cmath>
#include <numbers>

#include "core/check.h"
#include "optim/flat_config.h"

namespace mpt::test {

struct ReferenceState {
  float m = 0, v = 0, v_e = 0;
};

inline float reference_clamp(float x, float lo, float hi) {
  return std::fmin(hi, std::fmax(lo, x));
}

struct ReferenceRule {
  const FlatConfig& config;
  const StepScalars& step;
  TensorScalars tensor;
  float additive_scale = 1.0f;  // of the direction, not of its decay

  [[nodiscard]] double lr_additive() const { return step.lr_factor * config.lr_additive; }
  [[nodiscard]] double lr_multiplicative() const {
    return step.lr_factor * config.lr_multiplicative;
  }
  [[nodiscard]] bool decays() const { return tensor.rank > 1 || config.weight_decay_norms; }
  [[nodiscard]] float correction(float beta) const {
    return config.bias_correction ? float(1.0 - std::pow(double(beta), double(step.t))) : 1.0f;
  }
  // Returns the additive direction; updates m and v.
  [[nodiscard]] float additive(float w, float g, ReferenceState& s) const {
    const float b1 = float(config.beta1), b2 = float(config.beta2);
    const float ob1 = 1.0f - b1, ob2 = 1.0f - b2;
    s.m = std::fma(ob1, g, b1 * s.m);
    s.v = std::fma(g, ob2 * g, b2 * s.v);
    const float dir = additive_scale * ((s.m / correction(b1)) /
                                        (std::sqrt(s.v / correction(b2)) + float(config.eps)));
    return decays() ? std::fma(w, float(config.weight_decay_additive), dir) : dir;
  }
  // Returns the direction of the additive twin; updates m and v.
  [[nodiscard]] float twin(float w, float g, ReferenceState& s) const {
    const float b1 = float(config.beta1), b2 = float(config.beta2);
    const float ob1 = 1.0f - b1, ob2 = 1.0f - b2;
    s.m = std::fma(ob1, g, b1 * s.m);
    s.v = std::fma(g, ob2 * g, b2 * s.v);
    const float sum = std::fma(float(config.gradient_ratio), g, s.m / correction(b1));
    const float dir =
        additive_scale * (sum / (std::sqrt(s.v / correction(b2)) + float(config.eps)));
    return decays() ? std::fma(w, float(config.weight_decay_additive), dir) : dir;
  }
  // Returns u, the limited relative step; updates v_e.
  [[nodiscard]] float relative_step(float w, float g, ReferenceState& s) const {
    const float b2 = float(config.beta2), ob2 = 1.0f - b2;
    const float ge = (float_of(0x3f317218) * w) * g;
    s.v_e = std::fma(ge, ob2 * ge, b2 * s.v_e);
    float n = ge / (std::sqrt(s.v_e / correction(b2)) + float(config.eps));
    const float g_max = float(config.clip_multiplicative_direction);
    if (g_max > 0) n = reference_clamp(n, -g_max, g_max);
    const float ut = -float(lr_multiplicative()) * n;
    float u = ut;
    if (config.relative_step == RelativeStep::kOverWeight)
      u = ut / std::fmax(std::fabs(w), float(config.tau));
    const float r_max = float(config.clip_relative_step);
    if (r_max > 0) u = reference_clamp(u, -(r_max - 1e-6f), r_max);
    const double d = config.clip_exponent_step;
    if (d > 0) u = reference_clamp(u, float(std::pow(2.0, -d) - 1), float(std::pow(2.0, d) - 1));
    return u;
  }
  [[nodiscard]] float decayed(float w, float u) const {
    const double wd = config.weight_decay_multiplicative;
    if (wd == 0 || !decays()) return u;
    const double amount = double(float(lr_multiplicative())) * wd;
    if (config.weight_decay_multiplicative_mode == MultiplicativeDecay::kScale)
      return u - float(amount);
    if (w == 0) return u;
    int e = 0;
    std::ignore = std::frexp(w, &e);
    const long double x = -(long double)(amount)*e;
    return std::fma(u, float(std::exp2(x)),
                    float(std::expm1(x * std::numbers::ln2_v<long double>)));
  }
  [[nodiscard]] float adamw(float w, float g, ReferenceState& s) const {
    return std::fma(-float(lr_additive()), additive(w, g, s), w);
  }
  [[nodiscard]] float m_plus_adam(float w, float g, ReferenceState& s) const {
    const float dir = additive(w, g, s);
    const float r = decayed(w, relative_step(w, g, s));
    const float w1 = std::fma(w, r, w);
    const float next = std::fma(-float(lr_additive()), dir, w1);
    const float w_max = float(config.clip_weight) * tensor.weight_unit;
    return config.clip_weight > 0 ? reference_clamp(next, -w_max, w_max) : next;
  }
  // Returns the direction of Lion; updates m.
  [[nodiscard]] float lion(float w, float g, ReferenceState& s) const {
    const float b1 = float(config.beta1), b2 = float(config.beta2);
    const float c = std::fma(1.0f - b1, g, b1 * s.m);
    s.m = std::fma(1.0f - b2, g, b2 * s.m);
    const float dir = additive_scale * float((c > 0) - (c < 0));
    return decays() ? std::fma(w, float(config.weight_decay_additive), dir) : dir;
  }
  // Returns E(x) of Madam's weight w.
  [[nodiscard]] float madam_factor(float w, float g, ReferenceState& s) const {
    const float b2 = float(config.beta2), ob2 = 1.0f - b2, bound = float(config.g_bound);
    s.v = std::fma(g, ob2 * g, b2 * s.v);
    const float den = std::sqrt(s.v / correction(b2));
    const float n = den > 0 ? reference_clamp(g / den, -bound, bound) : 0.0f;
    float x = -(float(lr_multiplicative()) * n);
    if (w < 0) x = -x;
    float e = 1.0f / 5040;
    for (const float coefficient : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f})
      e = std::fma(e, x, coefficient);
    return e * x;
  }
  [[nodiscard]] float madam(float w, float g, ReferenceState& s) const {
    const float w_max = float(config.p_scale) * tensor.weight_unit;
    return reference_clamp(std::fma(w, madam_factor(w, g, s), w), -w_max, w_max);
  }
  [[nodiscard]] float next(float w, float g, ReferenceState& s) const {
    if (config.rule == "adamw") return adamw(w, g, s);
    if (config.rule == "additive_twin") return std::fma(-float(lr_additive()), twin(w, g, s), w);
    if (config.rule == "lion") return std::fma(-float(lr_additive()), lion(w, g, s), w);
    if (config.rule == "madam") return madam(w, g, s);
    check(config.rule == "m_plus_adam", "no second version of {}", config.rule);
    return m_plus_adam(w, g, s);
  }
  // Returns the change of a compensated weight.
  [[nodiscard]] float change(float w, float g, ReferenceState& s) const {
    if (config.rule == "madam") return w * madam_factor(w, g, s);
    if (config.rule == "additive_twin") return -(float(lr_additive()) * twin(w, g, s));
    if (config.rule == "lion") return -(float(lr_additive()) * lion(w, g, s));
    const float scaled = -(float(lr_additive()) * additive(w, g, s));
    if (config.rule == "adamw") return scaled;
    return std::fma(w, decayed(w, relative_step(w, g, s)), scaled);
  }
};

}  // namespace mpt::test
