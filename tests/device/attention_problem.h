// Inputs and outputs of both passes of attention, and the results required of every implementation.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "device/attention.h"
#include "device/expect_rounded.h"
#include "device/naive_attention.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {

// With guards between and after the rows.
struct AttentionProblem {
  struct Draw {
    double spread = 1.0;  // of queries and keys
    int64_t padding = 3;  // elements between rows; if 0, none between those of log_sum_exp either
  };

  AttentionShape shape;
  DType dtype;
  HostMatrix qkv, out, log_sum_exp, d_out, d_qkv;
  std::vector<int32_t> document_begin{};  // [B T], or none

  AttentionProblem(const AttentionShape& s, DType type) : AttentionProblem(s, type, Draw{}) {}
  AttentionProblem(const AttentionShape& s, DType type, const Draw& draw)
      : shape(s),
        dtype(type),
        qkv(type, {s.batch * s.seq_len, s.qkv_width(), draw.padding}),
        out(type, {s.batch * s.seq_len, s.heads * s.head_dim, draw.padding}),
        log_sum_exp(DType::kF32, {s.batch * s.heads, s.seq_len, draw.padding}),
        d_out(type, {s.batch * s.seq_len, s.heads * s.head_dim, draw.padding}),
        d_qkv(type, {s.batch * s.seq_len, s.qkv_width(), draw.padding}) {
    Draws draws(41);
    qkv.fill([&](int64_t, int64_t c) {
      return draws.bell(c < first_column(s, QkvPart::kV) ? draw.spread : 1.0);
    });
    d_out.fill([&](int64_t, int64_t) { return draws.bell(1); });
    for (HostMatrix* written : {&out, &d_qkv}) written->fill([](int64_t, int64_t) { return NAN; });
    log_sum_exp.fill([](int64_t, int64_t) { return NAN; });
  }
  // Splits every sequence at these positions, each one token later than in the previous one.
  void cut_at(const std::vector<int64_t>& positions) {
    shape.scope = AttentionScope::kDocument;
    for (int64_t b = 0; b < shape.batch; ++b)
      for (int64_t t = 0; t < shape.seq_len; ++t) {
        int64_t begin = 0;
        for (const int64_t p : positions)
          if (p + b <= t) begin = std::max(begin, p + b);
        document_begin.push_back(int32_t(begin));
      }
  }
  [[nodiscard]] Tensor documents() const {
    const auto n = std::ssize(document_begin);
    if (n == 0) return {};
    auto* const data = const_cast<int32_t*>(document_begin.data());
    return {reinterpret_cast<std::byte*>(data), DType::kI32, 1, n, n};
  }
  [[nodiscard]] std::span<const int32_t> documents_of(int64_t sequence) const {
    if (document_begin.empty()) return {};
    return std::span(document_begin)
        .subspan(size_t(sequence * shape.seq_len), size_t(shape.seq_len));
  }
  [[nodiscard]] AttentionForward forward() const {
    return {shape, qkv, out, log_sum_exp, documents()};
  }
  [[nodiscard]] AttentionBackward backward() const {
    return {shape, qkv, out, log_sum_exp, d_out, d_qkv, documents()};
  }
  [[nodiscard]] HeadInputs head_inputs(int64_t sequence, int64_t head) const {
    HeadInputs in({shape.seq_len, shape.head_dim});
    const int64_t first = head * shape.head_dim, keys = column_of(QkvPart::kK, head),
                  values = column_of(QkvPart::kV, head);
    for (int64_t t = 0; t < shape.seq_len; ++t)
      for (int64_t d = 0; d < shape.head_dim; ++d) {
        const int64_t row = sequence * shape.seq_len + t;
        in.q(t, d) = qkv.at(row, first + d);
        in.k(t, d) = qkv.at(row, keys + d);
        in.v(t, d) = qkv.at(row, values + d);
        in.d_out(t, d) = d_out.at(row, first + d);
      }
    return in;
  }
  // First column of the keys or values that a query head reads.
  [[nodiscard]] int64_t column_of(QkvPart part, int64_t query_head) const {
    return first_column(shape, part) + query_head / shape.readers() * shape.head_dim;
  }
};

struct AttentionSlice {
  const HostMatrix& matrix;
  int64_t row, col;
  const char* name;
};

inline void expect_within(const Bounded& expected, const AttentionSlice& found, DType dtype) {
  for (int64_t t = 0; t < expected.value.rows; ++t)
    for (int64_t d = 0; d < expected.value.cols; ++d)
      ASSERT_TRUE(is_rounded(found.matrix.at(found.row + t, found.col + d), expected.value(t, d),
                             expected.error(t, d), dtype))
          << found.name << " of token " << t << " dim " << d;
}

// An implementation: how it runs a problem, and its intermediate roundings in addition to that of
// the stored O.
struct AttentionUnderTest {
  std::function<void(AttentionProblem&)> run;  // both passes
  double bf16_operand = 0;                     // StoredRoundings with bf16 storage
  double bf16_d_p = 0;
  double bf16_reader = 0;  // of each reader's share of dK and dV, if readers share keys
};

// Contribution of one of several readers of the same keys, stored before it is added.
inline void store_reader(Bounded& part, double rounding) {
  for (size_t i = 0; i < part.value.data.size(); ++i)
    part.error.data[i] += rounding * (std::fabs(part.value.data[i]) + part.error.data[i]);
}

// Adds the contribution of another reader of the same keys; each addition rounds once.
inline void add_reader(Bounded& sum, const Bounded& more) {
  for (size_t i = 0; i < sum.value.data.size(); ++i) {
    sum.value.data[i] += more.value.data[i];
    sum.error.data[i] +=
        more.error.data[i] +
        NaiveAttention::kUnit * (std::fabs(sum.value.data[i]) + std::fabs(more.value.data[i]));
  }
}

inline void expect_all_heads(const AttentionProblem& p, const AttentionUnderTest& tested) {
  const AttentionShape& s = p.shape;
  StoredRoundings stored{.out = unit_of(p.dtype)};
  if (p.dtype == DType::kBF16) stored.operand = tested.bf16_operand, stored.d_p = tested.bf16_d_p;
  Bounded d_k(s.seq_len, s.head_dim), d_v(s.seq_len, s.head_dim);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      SCOPED_TRACE(fmt::format("sequence {} head {}", b, h));
      const HeadInputs in = p.head_inputs(b, h);
      NaiveAttention naive({s.seq_len, s.head_dim}, in, stored, p.documents_of(b));
      if (s.readers() > 1 && p.dtype == DType::kBF16)
        for (Bounded* const part : {&naive.d_k, &naive.d_v})
          store_reader(*part, tested.bf16_reader);
      const int64_t row = b * s.seq_len, col = h * s.head_dim;
      ASSERT_NO_FATAL_FAILURE(expect_within(naive.out, {p.out, row, col, "O"}, p.dtype));
      ASSERT_NO_FATAL_FAILURE(expect_within(naive.d_q, {p.d_qkv, row, col, "dQ"}, p.dtype));
      if (h % s.readers() == 0) {
        d_k = naive.d_k, d_v = naive.d_v;
      } else {
        add_reader(d_k, naive.d_k), add_reader(d_v, naive.d_v);
      }
      if (h % s.readers() == s.readers() - 1) {
        ASSERT_NO_FATAL_FAILURE(
            expect_within(d_k, {p.d_qkv, row, p.column_of(QkvPart::kK, h), "dK"}, p.dtype));
        ASSERT_NO_FATAL_FAILURE(
            expect_within(d_v, {p.d_qkv, row, p.column_of(QkvPart::kV, h), "dV"}, p.dtype));
      }
      for (int64_t t = 0; t < s.seq_len; ++t)
        ASSERT_NEAR(p.log_sum_exp.at(b * s.heads + h, t), naive.lse.value(t, 0),
                    naive.lse.error(t, 0))
            << t;
    }
}

inline void expect_nothing_else_written(const AttentionProblem& p) {
  for (const HostMatrix* written : {&p.out, &p.log_sum_exp, &p.d_qkv})
    EXPECT_TRUE(written->padding_untouched());
}

// --- cases for every implementation --------------------------------------------------------------

inline void expect_forward_and_backward(const AttentionUnderTest& tested, AttentionProblem& p) {
  SCOPED_TRACE(fmt::format("{} B {} T {} H {} of {} D {}", name_of(p.dtype), p.shape.batch,
                           p.shape.seq_len, p.shape.heads, p.shape.key_value_heads,
                           p.shape.head_dim));
  const HostMatrix qkv = p.qkv, d_out = p.d_out;
  tested.run(p);
  ASSERT_NO_FATAL_FAILURE(expect_all_heads(p, tested));
  expect_nothing_else_written(p);
  EXPECT_EQ(p.qkv, qkv);
  EXPECT_EQ(p.d_out, d_out);
}

// Returns where documents begin, in rows of some tokens: everywhere, at and around the edges of
// tiles, one long document between short ones, nowhere.
inline std::vector<std::vector<int64_t>> document_cuts(int64_t tokens) {
  std::vector<int64_t> everywhere;
  for (int64_t t = 1; t < tokens; ++t) everywhere.push_back(t);
  return {everywhere, {63, 64, 65}, {1, 64, 128}, {5, 127, 190}, {tokens - 1}, {}};
}

inline void expect_within_documents(const AttentionUnderTest& tested, const AttentionShape& shape,
                                    DType dtype) {
  for (const std::vector<int64_t>& cuts : document_cuts(shape.seq_len)) {
    SCOPED_TRACE(fmt::format("cut at {}", fmt::join(cuts, ", ")));
    AttentionProblem p(shape, dtype, {.padding = 8});
    p.cut_at(cuts);
    ASSERT_NO_FATAL_FAILURE(expect_forward_and_backward(tested, p));
  }
}

// One document per row has the bits of no documents.
inline void expect_one_document_is_a_row(const AttentionUnderTest& tested,
                                         const AttentionShape& shape, DType dtype) {
  AttentionProblem rows(shape, dtype), documents(shape, dtype);
  documents.cut_at({});
  tested.run(rows);
  tested.run(documents);
  EXPECT_EQ(rows.out, documents.out);
  EXPECT_EQ(rows.log_sum_exp, documents.log_sum_exp);
  EXPECT_EQ(rows.d_qkv, documents.d_qkv);
}

// Query heads per key head: 2, 3, and all.
inline std::vector<AttentionShape> grouped_shapes(int64_t tokens, int64_t head_dim) {
  std::vector<AttentionShape> shapes;
  for (const auto& [heads, key_value_heads] : {std::pair{4, 2}, {6, 2}, {3, 1}})
    shapes.push_back({.batch = 2,
                      .seq_len = tokens,
                      .heads = heads,
                      .key_value_heads = key_value_heads,
                      .head_dim = head_dim});
  return shapes;
}

// Scores far beyond the range of exp: +-1e4.
inline void expect_large_scores(const AttentionUnderTest& tested, DType dtype) {
  AttentionProblem p({.batch = 1, .seq_len = 100, .heads = 2, .key_value_heads = 2, .head_dim = 16},
                     dtype, {.spread = 70.0});
  double largest = 0;
  const HeadInputs in = p.head_inputs(0, 0);
  for (int64_t d = 0; d < 16; ++d) largest += std::fabs(in.q(0, d) * in.k(0, d)) / 4;
  ASSERT_GT(largest, 1e4);
  tested.run(p);
  for (int64_t t = 0; t < 100; ++t) {
    for (int64_t c = 0; c < 32; ++c) ASSERT_TRUE(std::isfinite(p.out.at(t, c)));
    for (int64_t c = 0; c < 96; ++c) ASSERT_TRUE(std::isfinite(p.d_qkv.at(t, c)));
  }
  expect_all_heads(p, tested);
}

// One key far above the rest takes all of the probability; far below, none.
inline AttentionProblem run_one_dominant_key(const AttentionUnderTest& tested, float score) {
  AttentionProblem p({.batch = 1, .seq_len = 60, .heads = 1, .key_value_heads = 1, .head_dim = 8},
                     DType::kF32);
  p.qkv.fill([&](int64_t t, int64_t c) {
    if (c < 8) return c == 0 ? std::sqrt(8.0f) : 0.0f;    // Q
    if (c < 16) return t == 20 && c == 8 ? score : 0.0f;  // K
    return t == 20 ? 7.0f : 1.0f;                         // V
  });
  tested.run(p);
  expect_all_heads(p, tested);
  return p;
}

// No token sees a later one: changing the last tokens preserves the bits of the rows before them.
inline void expect_causal(const AttentionUnderTest& tested, DType dtype) {
  AttentionProblem p({.batch = 1, .seq_len = 100, .heads = 2, .key_value_heads = 2, .head_dim = 24},
                     dtype),
      q = p;
  for (int64_t t = 60; t < 100; ++t)
    for (int64_t c = 0; c < 144; ++c) q.qkv.set(t, c, -3 * q.qkv.at(t, c) + 1);
  tested.run(p);
  tested.run(q);
  for (int64_t t = 0; t < 100; ++t)
    for (int64_t c = 0; c < 48; ++c) {
      if (t < 60) {
        ASSERT_EQ(p.out.bits(t, c), q.out.bits(t, c)) << t << "," << c;
      } else if (dtype == DType::kF32) {
        ASSERT_NE(p.out.bits(t, c), q.out.bits(t, c)) << t << "," << c;
      }
    }
}

}  // namespace mpt::test
