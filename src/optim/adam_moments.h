// Running means of gradients and of their squares, and the Adam direction computed from them.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/bf16.h"
#include "core/host_device.h"
#include "core/scalar_math.h"
#include "optim/rule.h"
#include "optim/update/shared_divisor.h"

namespace mpt {

// Bias correction of a mean that started at 0; correction is 1 - beta^t.
struct BiasCorrection {
  MPT_HD static float corrected(float x, SharedDivisor correction) {
    return quotient(x, correction);
  }
};

// Update of the running means in FP32, rounded once, on store.
struct EmaOnce : BiasCorrection {
  MPT_HD static float mean(float beta, float one_minus_beta, float g, float m) {
    return std::fma(one_minus_beta, g, beta * m);
  }
  MPT_HD static float mean_square(float beta, float one_minus_beta, float g, float v) {
    return std::fma(g, one_minus_beta * g, beta * v);
  }
};
// Rounds after every operation, like eager BF16 code: m.mul_(b).add_(g, alpha = 1 - b).
struct EmaPerOp : BiasCorrection {
  MPT_HD static float mean(float beta, float one_minus_beta, float g, float m) {
    return rounded_to<bf16>(rounded_to<bf16>(beta * m) + one_minus_beta * g);
  }
  MPT_HD static float mean_square(float beta, float one_minus_beta, float g, float v) {
    return rounded_to<bf16>(rounded_to<bf16>(beta * v) + g * (one_minus_beta * g));
  }
};
// Skips the divisions in steps whose corrections have reached 1.
template <class Ema>
struct Settled : Ema {
  MPT_HD static float corrected(float x, SharedDivisor) { return x; }
};

// 1 - beta^t in FP32; 1 without bias correction.
inline SharedDivisor bias_correction(bool corrects, float beta, int64_t t) {
  return SharedDivisor::of(corrects ? float(1.0 - std::pow(double(beta), double(t))) : 1.0f);
}

// A running mean without bias correction.
struct MeanGradient {
  float decay, one_minus_decay;  // 1.0f - decay, evaluated in FP32

  static MeanGradient of(double decay) { return {float(decay), 1.0f - float(decay)}; }
  template <class Ema>
  MPT_HD float next(float g, float m) const {
    return Ema::mean(decay, one_minus_decay, g, m);
  }
};

// Keys of every rule of the Adam family.
struct AdamConfig : AdditiveConfig {
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  bool bias_correction = true;

  bool operator==(const AdamConfig&) const = default;

  void fields(Fields& f);
};

// Moments shared by the rules of the Adam family.
struct AdamMoments {
  float beta1, beta2;
  float one_minus_beta1, one_minus_beta2;  // 1.0f - beta, evaluated in FP32
  SharedDivisor correction1, correction2;  // 1 - beta^t; 1 without bias correction
  float eps;

  static AdamMoments at(const AdamConfig& config, int64_t t) {
    const float beta1 = float(config.beta1), beta2 = float(config.beta2);
    return {.beta1 = beta1,
            .beta2 = beta2,
            .one_minus_beta1 = 1.0f - beta1,
            .one_minus_beta2 = 1.0f - beta2,
            .correction1 = bias_correction(config.bias_correction, beta1, t),
            .correction2 = bias_correction(config.bias_correction, beta2, t),
            .eps = float(config.eps)};
  }

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
  [[nodiscard]] MPT_HD bool settled() const {
    return correction1.value == 1.0f && correction2.value == 1.0f;
  }
};

}  // namespace mpt
