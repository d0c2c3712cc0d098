// The formulas of a LLaMA in a second, plain version, over any scalar: double gives values,
// complex<double> gives derivatives exact to FP64 rounding by the complex step f'(x) = Im f(x + ih)
// / h, with h so small that h^2 vanishes.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/llama_config.h"

namespace mpt::test {

using Complex = std::complex<double>;

inline double real_of(double x) { return x; }
inline double real_of(Complex x) { return x.real(); }

// d f / d x_i for every i; f maps vector<Complex> to Complex.
template <class F>
std::vector<double> complex_step(const std::vector<double>& x, const F& f) {
  constexpr double kStep = 1e-100;
  std::vector<Complex> point(x.begin(), x.end());
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    point[i] = {x[i], kStep};
    gradient[i] = f(point).imag() / kStep;
    point[i] = x[i];
  }
  return gradient;
}

template <class S>
S dot(std::span<const S> a, std::span<const S> b) {
  S sum(0);
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// y = x W^T of one row; W is [out, in], row-major.
template <class S>
std::vector<S> reference_linear(const std::vector<S>& x, std::span<const S> weight) {
  std::vector<S> y(weight.size() / x.size());
  for (size_t o = 0; o < y.size(); ++o) y[o] = dot<S>(x, weight.subspan(o * x.size(), x.size()));
  return y;
}

template <class S>
std::vector<S> reference_rms_norm(const std::vector<S>& x, std::span<const S> gain, double eps) {
  const S rms = std::sqrt(dot<S>(x, x) / double(x.size()) + eps);
  std::vector<S> y(x.size());
  for (size_t c = 0; c < x.size(); ++c) y[c] = gain[c] * x[c] / rms;
  return y;
}

template <class S>
S reference_swiglu(S gate, S up) {
  return gate / (1.0 + std::exp(-gate)) * up;
}

struct HeadShape {
  int64_t heads, head_dim;
  double theta = 10000;
  int64_t readers = 1;    // query heads per key head
  RopeScaling scaling{};  // of theta's frequencies
};

// By wavelengths, as documented by transformers.
inline double reference_frequency(const HeadShape& shape, int64_t i) {
  const double plain = 1 / std::pow(shape.theta, double(2 * i) / double(shape.head_dim));
  const RopeScaling& s = shape.scaling;
  if (s.rope_type == RopeType::kDefault) return plain;
  if (s.rope_type == RopeType::kLinear) return plain / s.factor;
  const double wavelength = 2 * std::acos(-1.0) / plain,
               original = double(s.original_max_position_embeddings);
  if (wavelength < original / s.high_freq_factor) return plain;
  if (wavelength > original / s.low_freq_factor) return plain / s.factor;
  const double smooth =
      (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * plain / s.factor + smooth * plain;
}

// Norms every head of a row [H D].
template <class S>
std::vector<S> reference_head_norm(const std::vector<S>& x, std::span<const S> gain, double eps) {
  std::vector<S> y;
  for (auto head = x.begin(); head != x.end(); head += int64_t(gain.size())) {
    const std::vector<S> normed =
        reference_rms_norm<S>({head, head + int64_t(gain.size())}, gain, eps);
    y.insert(y.end(), normed.begin(), normed.end());
  }
  return y;
}

// Rotates every head of a row [H D] at `position`.
template <class S>
std::vector<S> reference_rope(const std::vector<S>& x, const HeadShape& shape, double position) {
  const int64_t half = shape.head_dim / 2;
  std::vector<S> y(x);
  for (int64_t h = 0; h < shape.heads; ++h)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * reference_frequency(shape, i);
      const auto low = size_t(h * shape.head_dim + i), high = low + size_t(half);
      y[low] = x[low] * std::cos(angle) - x[high] * std::sin(angle);
      y[high] = x[high] * std::cos(angle) + x[low] * std::sin(angle);
    }
  return y;
}

template <class S>
std::vector<S> reference_softmax(std::vector<S> z) {
  const double top = real_of(*std::ranges::max_element(z, {}, [](S x) { return real_of(x); }));
  S sum(0);
  for (S& x : z) sum += x = std::exp(x - top);
  for (S& x : z) x /= sum;
  return z;
}

// Returns the new token's output, [H D]: its query over the keys and values of all tokens so far,
// including its own.
template <class S>
std::vector<S> reference_attention(const std::vector<S>& query,
                                   std::span<const std::vector<S>> keys,
                                   std::span<const std::vector<S>> values, const HeadShape& shape) {
  std::vector<S> out(query.size(), S(0));
  for (int64_t h = 0; h < shape.heads; ++h) {
    const auto first = size_t(h * shape.head_dim), dim = size_t(shape.head_dim);
    const size_t first_key = size_t(h / shape.readers) * dim;
    const auto head = [&](const std::vector<S>& row, size_t begin) {
      return std::span<const S>(row).subspan(begin, dim);
    };
    std::vector<S> scores;
    for (const auto& key : keys)
      scores.push_back(dot<S>(head(query, first), head(key, first_key)) /
                       std::sqrt(double(shape.head_dim)));
    const std::vector<S> p = reference_softmax(scores);
    for (size_t t = 0; t < keys.size(); ++t)
      for (size_t d = 0; d < dim; ++d) out[first + d] += p[t] * values[t][first_key + d];
  }
  return out;
}

// Returns 0 for the target -1.
template <class S>
S reference_cross_entropy(const std::vector<S>& logits, int32_t target) {
  if (target < 0) return S(0);
  const double top = real_of(*std::ranges::max_element(logits, {}, [](S x) { return real_of(x); }));
  S sum(0);
  for (const S& z : logits) sum += std::exp(z - top);
  return std::log(sum) + top - logits[size_t(target)];
}

}  // namespace mpt::test
