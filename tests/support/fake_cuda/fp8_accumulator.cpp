#include "support/fake_cuda/fp8_accumulator.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace fake_cuda::detail {
namespace {

constexpr int kFractionBits = 13;
constexpr size_t kTermsOfAnInstruction = 32, kTermsToPromotion = 128;

// The weight of the last bit that is kept when added to a value of this size.
double unit_beside(double size) { return std::ldexp(1.0, std::ilogb(size) - kFractionBits); }

// Truncates to a multiple of `unit`, a power of two.
double cut(double x, double unit) { return std::trunc(x / unit) * unit; }

double accumulated(double sum, std::span<const double> a, std::span<const double> b) {
  std::array<double, kTermsOfAnInstruction> terms;
  double largest = std::fabs(sum), all = sum;
  for (size_t i = 0; i < a.size(); ++i) {
    terms[i] = a[i] * b[i];
    largest = std::max(largest, std::fabs(terms[i]));
    all += terms[i];
  }
  if (largest == 0 || !std::isfinite(all)) return all;
  const double unit = unit_beside(largest);
  double next = cut(sum, unit);
  for (size_t i = 0; i < a.size(); ++i) next += cut(terms[i], unit);
  return next == 0 ? 0 : cut(next, unit_beside(std::fabs(next)));
}

double in_tensor_core(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); i += kTermsOfAnInstruction) {
    const size_t n = std::min(kTermsOfAnInstruction, a.size() - i);
    sum = accumulated(sum, a.subspan(i, n), b.subspan(i, n));
  }
  return sum;
}

}  // namespace

double fp8_dot(std::span<const double> a, std::span<const double> b, Promotion promotion) {
  if (promotion == Promotion::kNever) return in_tensor_core(a, b);
  float sum = 0;
  for (size_t i = 0; i < a.size(); i += kTermsToPromotion) {
    const size_t n = std::min(kTermsToPromotion, a.size() - i);
    sum += float(in_tensor_core(a.subspan(i, n), b.subspan(i, n)));
  }
  return double(sum);
}

}  // namespace fake_cuda::detail
