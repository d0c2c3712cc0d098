// Causal attention in FP64, directly from the formulas, with a bound on the error of fp32
// arithmetic.
//
//   S = scale Q K^T, P = softmax(S, causal, within documents if there are several), O = P V
//   dV = P^T dO, dP = dO V^T, dS = P (dP - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q
// Every result comes with a first-order bound on the error of an fp32 evaluation in any order of
// summation: a sum of n terms costs n 2^-24 of the sum of their sizes. Intermediate rounding to a
// narrower type adds to it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace mpt::test {

struct HeadShape {
  int64_t tokens, dim;
};

// [rows, cols] in FP64.
struct Matrix64 {
  int64_t rows = 0, cols = 0;
  std::vector<double> data;

  Matrix64(int64_t r, int64_t c) : rows(r), cols(c), data(size_t(r * c)) {}
  double& operator()(int64_t r, int64_t c) { return data[size_t(r * cols + c)]; }
  double operator()(int64_t r, int64_t c) const { return data[size_t(r * cols + c)]; }
};

struct Bounded {
  Matrix64 value, error;
  Bounded(int64_t rows, int64_t cols) : value(rows, cols), error(rows, cols) {}
};

struct HeadInputs {
  Matrix64 q, k, v, d_out;
  explicit HeadInputs(HeadShape s)
      : q(s.tokens, s.dim), k(s.tokens, s.dim), v(s.tokens, s.dim), d_out(s.tokens, s.dim) {}
};

// Relative errors of values that are stored before they are reused.
struct StoredRoundings {
  double out = 0;      // O, as the backward pass reads it
  double operand = 0;  // P and dS, as GEMMs read them
  double d_p = 0;      // dP
};

class NaiveAttention {
 public:
  static constexpr double kUnit = 0x1p-24;  // of an fp32 rounding
  // Roundings in addition to those of long sums: scaling, exponential (2 ulp = 4 units), its
  // argument, the division.
  static constexpr double kFew = 12;

  NaiveAttention(HeadShape shape, const HeadInputs& in, const StoredRoundings& stored,
                 std::span<const int32_t> document_begin = {})
      : shape_(shape),
        scale_(1 / std::sqrt(double(shape.dim))),
        in_(in),
        stored_(stored),
        document_begin_(document_begin),
        out(shape.tokens, shape.dim),
        lse(shape.tokens, 1),
        d_q(shape.tokens, shape.dim),
        d_k(shape.tokens, shape.dim),
        d_v(shape.tokens, shape.dim),
        p_(shape.tokens, shape.tokens),
        d_s_(shape.tokens, shape.tokens) {
    for (int64_t i = 0; i < shape_.tokens; ++i) forward_row(i);
    for (int64_t i = 0; i < shape_.tokens; ++i) score_gradients(i);
    for (int64_t j = 0; j < shape_.tokens; ++j) input_gradients(j);
  }

 private:
  HeadShape shape_;
  double scale_;
  const HeadInputs& in_;
  StoredRoundings stored_;
  std::span<const int32_t> document_begin_;

 public:
  Bounded out, lse, d_q, d_k, d_v;

 private:
  Bounded p_;  // its error is relative
  Bounded d_s_;

  // Returns the first key that query i sees.
  [[nodiscard]] int64_t first(int64_t i) const {
    return document_begin_.empty() ? 0 : document_begin_[size_t(i)];
  }

  struct Sum {
    double value = 0, size = 0;
    void add(double x) {
      value += x;
      size += std::fabs(x);
    }
  };
  [[nodiscard]] Sum dot(const Matrix64& a, int64_t i, const Matrix64& b, int64_t j) const {
    Sum sum;
    for (int64_t d = 0; d < shape_.dim; ++d) sum.add(a(i, d) * b(j, d));
    return sum;
  }

  void forward_row(int64_t i) {
    double top = -INFINITY, score_error = 0;
    for (int64_t j = first(i); j <= i; ++j) {
      const Sum s = dot(in_.q, i, in_.k, j);
      p_.value(i, j) = scale_ * s.value;
      top = std::max(top, p_.value(i, j));
      score_error = std::max(score_error, (double(shape_.dim) + 4) * kUnit * scale_ * s.size);
    }
    double total = 0, range = 0;
    for (int64_t j = first(i); j <= i; ++j) {
      range = std::max(range, std::fabs(p_.value(i, j)) + std::fabs(top));
      total += p_.value(i, j) = std::exp(p_.value(i, j) - top);
    }
    // Every score may be off by score_error; subtracting the maximum or lse rounds once more; the
    // normalizer contributes the same again.
    const double relative =
        2 * (score_error + (range + std::log(total)) * kUnit) + (double(i + 1) + kFew) * kUnit;
    lse.value(i, 0) = top + std::log(total);
    lse.error(i, 0) =
        score_error + (double(i + 1) + kFew + std::fabs(top) + std::log(total)) * kUnit;
    for (int64_t j = first(i); j <= i; ++j) {
      p_.value(i, j) /= total;
      p_.error(i, j) = relative;
    }
    for (int64_t d = 0; d < shape_.dim; ++d) {
      Sum o;
      for (int64_t j = first(i); j <= i; ++j) o.add(p_.value(i, j) * in_.v(j, d));
      out.value(i, d) = o.value;
      out.error(i, d) = (relative + stored_.operand + (double(i + 1) + kFew) * kUnit) * o.size;
    }
  }

  void score_gradients(int64_t i) {
    Sum delta;
    double delta_error = 0;
    for (int64_t d = 0; d < shape_.dim; ++d) {
      delta.add(in_.d_out(i, d) * out.value(i, d));
      delta_error +=
          std::fabs(in_.d_out(i, d)) * (out.error(i, d) + stored_.out * std::fabs(out.value(i, d)));
    }
    delta_error += double(shape_.dim) * kUnit * delta.size;
    for (int64_t j = first(i); j <= i; ++j) {
      const Sum dp = dot(in_.d_out, i, in_.v, j);
      const double p = p_.value(i, j), difference = dp.value - delta.value;
      d_s_.value(i, j) = p * difference;
      d_s_.error(i, j) = p * ((p_.error(i, j) + 2 * kUnit) * std::fabs(difference) +
                              double(shape_.dim) * kUnit * dp.size +
                              stored_.d_p * std::fabs(dp.value) + delta_error);
    }
  }

  void input_gradients(int64_t j) {
    const int64_t n = shape_.tokens;
    for (int64_t d = 0; d < shape_.dim; ++d) {
      for (int64_t i = 0; i <= j; ++i) add_product(d_q, j, d, d_score(j, i, in_.k(i, d)));
      for (int64_t i = j; i < n; ++i) {
        add_product(d_k, j, d, d_score(i, j, in_.q(i, d)));
        const double p = p_.value(i, j);
        add_product(d_v, j, d, {p, p * (p_.error(i, j) + stored_.operand), in_.d_out(i, d)});
      }
    }
  }
  struct Term {
    double factor, factor_error, x;
  };
  [[nodiscard]] Term d_score(int64_t i, int64_t j, double x) const {
    const double d_s = scale_ * d_s_.value(i, j);
    return {d_s, scale_ * d_s_.error(i, j) + stored_.operand * std::fabs(d_s), x};
  }
  void add_product(Bounded& sum, int64_t row, int64_t col, Term t) const {
    sum.value(row, col) += t.factor * t.x;
    sum.error(row, col) +=
        (t.factor_error + std::fabs(t.factor) * (double(shape_.tokens) + kFew) * kUnit) *
        std::fabs(t.x);
  }
};

}  // namespace mpt::test
