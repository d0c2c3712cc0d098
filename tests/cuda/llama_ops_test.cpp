// The LLaMA operations on a GPU: the tuned kernels against the generic ones and against the CPU,
// over widths that use every kernel and widths and alignments that use none, bit for bit if the
// order of sums is the same.
#include "model/llama_ops.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include <gtest/gtest.h>

#include "cuda/gpu.h"
#include "cuda/swiglu_bounds.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {
namespace {

constexpr double kFp32 = 0x1p-24;  // largest relative error of one FP32 rounding

// Two results that differ before rounding to the type may become neighbors in it.
double step_of(DType type) { return type == DType::kBF16 ? 0x1p-7 : 0x1p-23; }

// FP32 roundings in the longest chain of additions, in any of the compared orders.
double chain(int64_t terms) { return double(terms) / 32 + 96; }

enum class Where : uint8_t { kCpu, kGeneric, kTuned };
enum class Placement : uint8_t { kAligned, kShifted };  // shifted: by one element

using Call = std::function<void(LlamaOps&, std::span<const Tensor>)>;
using Matrices = std::vector<HostMatrix>;

// An operation and the matrices that it is called with, which have spare rows that it must not
// touch.
struct Trial {
  Matrices before;
  Call call;
  Placement placement = Placement::kAligned;
};

int64_t offset_of(const HostMatrix& m, Placement placement) {
  const DType type = m.view().dtype;
  const bool shifts =
      placement == Placement::kShifted && (type == DType::kF32 || type == DType::kBF16);
  return shifts ? size_of(type) : 0;
}

Matrices on_cpu(const Trial& trial) {
  Matrices after = trial.before;
  const std::vector<Tensor> views(after.begin(), after.end());
  trial.call(*make_ops<LlamaOps>({}), views);
  return after;
}

Matrices on_gpu(const Trial& trial, Where where) {
  Gpu gpu;
  const auto kernels = where == Where::kTuned ? LlamaKernels::kTuned : LlamaKernels::kGeneric;
  const auto ops = make_ops<LlamaOps>(gpu.ref(), {.kernels = kernels});
  Matrices after = trial.before;
  std::vector<Tensor> tensors;
  for (const HostMatrix& m : after) {
    Tensor tensor = m.view();
    const int64_t offset = offset_of(m, trial.placement);
    tensor.data = gpu.allocator().bytes({"data"}, int64_t(m.bytes().size()) + offset) + offset;
    gpu.write(tensor.data, m.bytes().data(), int64_t(m.bytes().size()));
    tensors.push_back(tensor);
  }
  trial.call(*ops, tensors);
  for (size_t i = 0; i < after.size(); ++i) gpu.fetch(tensors[i], after[i].view());
  return after;
}

// The tuned operation, which must give the same bits again, for any order of blocks and threads.
Matrices tuned(const Trial& trial) {
  const Matrices after = on_gpu(trial, Where::kTuned);
#ifdef MPT_FAKE_CUDA
  fake_cuda::set_order(fake_cuda::Order::kBackward);
#endif
  const Matrices again = on_gpu(trial, Where::kTuned);
#ifdef MPT_FAKE_CUDA
  fake_cuda::set_order(fake_cuda::Order::kForward);
#endif
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i] == again[i]) << "matrix " << i;
  return after;
}

HostMatrix random(DType type, int64_t rows, int64_t cols, uint64_t seed, double spread = 1) {
  HostMatrix m(type, {rows, cols});
  Draws draws(seed);
  m.fill([&](int64_t, int64_t) { return draws.bell(spread); });
  return m;
}

HostMatrix integers(const std::vector<int32_t>& values) {
  HostMatrix m(DType::kI32, {1, int64_t(values.size())});
  std::ranges::copy(values, m.view().as<int32_t>());
  return m;
}

using Bound = std::function<double(int64_t, int64_t)>;

// Live rows within the bound, the others unchanged bit for bit.
struct Comparison {
  const HostMatrix& got;
  const HostMatrix& want;
  const HostMatrix& before;
  int64_t live_rows;
};

void expect_close(const Comparison& c, const Bound& bound, const std::string& what) {
  const Tensor shape = c.got.view();
  for (int64_t row = 0; row < shape.rows; ++row)
    for (int64_t col = 0; col < shape.cols; ++col) {
      if (row >= c.live_rows) {
        ASSERT_EQ(c.got.bits(row, col), c.before.bits(row, col))
            << what << " touched (" << row << "," << col << ")";
        continue;
      }
      const double got = c.got.at(row, col), want = c.want.at(row, col);
      ASSERT_LE(std::abs(got - want), bound(row, col))
          << what << " at (" << row << "," << col << "): " << got << " for " << want;
    }
  EXPECT_TRUE(c.got.padding_untouched()) << what;
}

constexpr int64_t kSpare = 2;

struct Shape {
  DType storage;
  int64_t rows, cols;
  Placement placement = Placement::kAligned;
};

std::string shape_name(const testing::TestParamInfo<Shape>& info) {
  const Shape& s = info.param;
  return fmt::format("{}_{}x{}{}", name_of(s.storage), s.rows, s.cols,
                     s.placement == Placement::kShifted ? "_shifted" : "");
}

// Widths of one pack, of every team of warps, of none, and those that are no multiple of a pack.
std::vector<Shape> row_shapes() {
  std::vector<Shape> all;
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const int64_t cols : {8, 64, 512, 520, 768, 1024, 2048, 4096, 5472, 8192, 8200, 7, 509})
      all.push_back({storage, cols > 600 ? 3 : 19, cols});
    all.push_back({storage, 133, 64});
    all.push_back({storage, 0, 64});
    all.push_back({storage, 5, 512, Placement::kShifted});
  }
  return all;
}

class LlamaOpsOnGpu : public GpuTest {};

class LlamaOpsOnRows : public GpuTest, public testing::WithParamInterface<Shape> {
 protected:
  [[nodiscard]] HostMatrix input(uint64_t seed, double spread = 1) const {
    return random(s_.storage, s_.rows + kSpare, s_.cols, seed, spread);
  }
  [[nodiscard]] Tensor live(const Tensor& t) const { return t.row_range(0, s_.rows); }

  const Shape s_ = GetParam();
};

// --- RMSNorm -------------------------------------------------------------------------------------

class LlamaOpsNorm : public LlamaOpsOnRows {
 protected:
  enum : size_t { kResidual, kBranch, kSum, kOut, kInverse, kGain };

  [[nodiscard]] Trial forward(DType out, bool with_branch) const {
    const auto call = [this, with_branch](LlamaOps& ops, std::span<const Tensor> t) {
      ops.norm_forward({.residual = live(t[kResidual]),
                        .branch = with_branch ? live(t[kBranch]) : Tensor{},
                        .sum = with_branch ? live(t[kSum]) : Tensor{},
                        .out = live(t[kOut]),
                        .inv_rms = t[kInverse].columns(0, s_.rows),
                        .gain = t[kGain],
                        .eps = 1e-6f});
    };
    return {{input(1), input(2), input(3), random(out, s_.rows + kSpare, s_.cols, 4),
             random(DType::kF32, 1, s_.rows + kSpare, 5), random(s_.storage, 1, s_.cols, 6)},
            call,
            s_.placement};
  }
  void expect_forward(const Trial& trial, const Matrices& got, const Matrices& want) const {
    EXPECT_TRUE(got[kSum] == want[kSum]);
    const double terms = 2 * chain(s_.cols) * kFp32;
    for (int64_t r = 0; r < s_.rows + kSpare; ++r) {
      const double w = want[kInverse].at(0, r);
      if (r < s_.rows)
        EXPECT_NEAR(got[kInverse].at(0, r), w, terms * w);
      else
        EXPECT_EQ(got[kInverse].at(0, r), trial.before[kInverse].at(0, r));
    }
    const DType out = got[kOut].view().dtype;
    const Bound bound = [&](int64_t r, int64_t c) {
      return std::abs(want[kOut].at(r, c)) * (step_of(s_.storage) + step_of(out) + terms) * 1.01;
    };
    expect_close({got[kOut], want[kOut], trial.before[kOut], s_.rows}, bound, "y");
  }
};

TEST_P(LlamaOpsNorm, Forward) {
  for (const DType out : {s_.storage, DType::kF32})
    for (const bool with_branch : {false, true}) {
      const Trial trial = forward(out, with_branch);
      const Matrices got = tuned(trial);
      expect_forward(trial, got, on_gpu(trial, Where::kGeneric));
      expect_forward(trial, got, on_cpu(trial));
    }
}

TEST_P(LlamaOpsNorm, ForwardWithoutAnOutput) {
  const Trial stored = forward(s_.storage, true);
  Trial trial = stored;
  trial.call = [this](LlamaOps& ops, std::span<const Tensor> t) {
    ops.norm_forward({.residual = live(t[kResidual]),
                      .branch = live(t[kBranch]),
                      .sum = live(t[kSum]),
                      .out = {},
                      .inv_rms = t[kInverse].columns(0, s_.rows),
                      .gain = t[kGain],
                      .eps = 1e-6f});
  };
  const Matrices got = tuned(trial), want = tuned(stored);
  EXPECT_TRUE(got[kSum] == want[kSum]);
  EXPECT_TRUE(got[kInverse] == want[kInverse]);
  EXPECT_TRUE(got[kOut] == trial.before[kOut]);
}

TEST_P(LlamaOpsNorm, Backward) {
  enum : size_t { kDOut, kX, kInv, kG, kDx, kPartial, kDGain };
  for (const DType container : {DType::kF32, DType::kBF16})
    for (const Accumulate accumulate : {Accumulate::kYes, Accumulate::kNo}) {
      if (s_.cols > 600 && (container == DType::kBF16 || accumulate == Accumulate::kYes)) continue;
      const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
        ops.norm_backward({.d_out = live(t[kDOut]),
                           .x = live(t[kX]),
                           .inv_rms = t[kInv].columns(0, s_.rows),
                           .gain = t[kG],
                           .d_x = live(t[kDx]),
                           .d_gain_partial = t[kPartial].row_range(0, ops.norm_chunks(s_.rows)),
                           .d_gain = t[kDGain],
                           .accumulate = accumulate});
      };
      HostMatrix inverse(DType::kF32, {1, s_.rows + kSpare});
      inverse.fill([](int64_t, int64_t r) { return 0.5f + float(r % 7) / 8; });
      const Trial trial{
          {input(1), input(2), inverse, random(s_.storage, 1, s_.cols, 3), input(4),
           HostMatrix(DType::kF32, {s_.rows + 1, s_.cols}), random(container, 1, s_.cols, 5)},
          call,
          s_.placement};
      const Matrices got = tuned(trial);
      for (const Matrices& want : {on_gpu(trial, Where::kGeneric), on_cpu(trial)}) {
        const auto& b = trial.before;
        std::vector<double> mean(size_t(s_.rows)), of_gain(size_t(s_.cols));
        for (int64_t r = 0; r < s_.rows; ++r)
          for (int64_t c = 0; c < s_.cols; ++c) {
            const double xhat = std::abs(b[kX].at(r, c)) * inverse.at(0, r),
                         d = std::abs(b[kDOut].at(r, c));
            mean[size_t(r)] += d * std::abs(b[kG].at(0, c)) * xhat / double(s_.cols);
            of_gain[size_t(c)] += d * xhat;
          }
        const Bound dx = [&](int64_t r, int64_t c) {
          const double i = inverse.at(0, r);
          const double largest =
              std::abs(b[kDx].at(r, c)) + i * (std::abs(b[kDOut].at(r, c) * b[kG].at(0, c)) +
                                               std::abs(b[kX].at(r, c)) * i * mean[size_t(r)]);
          return std::abs(want[kDx].at(r, c)) * step_of(s_.storage) +
                 2 * chain(s_.cols) * kFp32 * largest;
        };
        expect_close({got[kDx], want[kDx], b[kDx], s_.rows}, dx, "dx");
        const Bound dgain = [&](int64_t, int64_t c) {
          const double largest = of_gain[size_t(c)] + std::abs(b[kDGain].at(0, c));
          return std::abs(want[kDGain].at(0, c)) * step_of(container) +
                 2 * (double(s_.rows) + 8) * kFp32 * largest;
        };
        expect_close({got[kDGain], want[kDGain], b[kDGain], 1}, dgain, "dgain");
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LlamaOpsNorm, testing::ValuesIn(row_shapes()), shape_name);

// More rows than chunks with one row each, so that chunks are at their longest.
TEST_F(LlamaOpsOnGpu, NormChunksAreEnoughForFewerRows) {
  Gpu gpu;
  const auto ops = make_ops<LlamaOps>(gpu.ref());
  int64_t before = 0;
  for (int64_t n = 0; n < 100000; n += 37) {
    EXPECT_GE(ops->norm_chunks(n), before) << n;
    before = ops->norm_chunks(n);
  }
  EXPECT_LE(ops->norm_chunks(int64_t{1} << 30), 4096);
}

TEST_F(LlamaOpsOnGpu, NormBackwardOfLongChunks) {
  const int64_t rows = 33000, cols = 8;  // chunks of 32 rows
  const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
    ops.norm_backward({.d_out = t[0],
                       .x = t[1],
                       .inv_rms = t[2],
                       .gain = t[3],
                       .d_x = t[4],
                       .d_gain_partial = t[5].row_range(0, ops.norm_chunks(rows)),
                       .d_gain = t[6],
                       .accumulate = Accumulate::kNo});
  };
  HostMatrix inverse(DType::kF32, {1, rows});
  inverse.fill([](int64_t, int64_t) { return 1.0f; });
  const DType type = DType::kBF16;
  const Trial trial{{random(type, rows, cols, 1), random(type, rows, cols, 2), inverse,
                     random(type, 1, cols, 3), random(type, rows, cols, 4),
                     HostMatrix(DType::kF32, {2048, cols}), HostMatrix(DType::kF32, {1, cols})},
                    call};
  const Matrices got = on_gpu(trial, Where::kTuned), want = on_cpu(trial);
  for (int64_t c = 0; c < cols; ++c) {
    double exact = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const double term = double(trial.before[0].at(r, c)) * trial.before[1].at(r, c);
      exact += term;
      size += std::abs(term);
    }
    // A chunk's rows, its block's teams, a thread's chunks and the threads of the second sum.
    EXPECT_NEAR(got[6].at(0, c), exact, (4 + 8 + 16 + 128 + 4) * kFp32 * size);
  }
  const Bound dx = [&](int64_t r, int64_t c) {
    return std::abs(want[4].at(r, c)) * step_of(type) + 64 * 16 * kFp32;
  };
  expect_close({got[4], want[4], trial.before[4], rows}, dx, "dx");
}

// --- RoPE ----------------------------------------------------------------------------------------

struct RopeShape {
  DType storage;
  int64_t heads, key_value_heads, head_dim, padding;
  Placement placement = Placement::kAligned;
};

class LlamaOpsRope : public GpuTest, public testing::WithParamInterface<RopeShape> {};

// With and without documents of several lengths in rows of 4 tokens.
TEST_P(LlamaOpsRope, BothWays) {
  const RopeShape s = GetParam();
  const std::array<int32_t, 11> begins{0, 0, 2, 2, 0, 1, 1, 1, 0, 1, 2};
  const int64_t rows = 11, seq_len = 4, first = 3, half = s.head_dim / 2,
                rotated = (s.heads + s.key_value_heads) * s.head_dim,
                cols = rotated + s.key_value_heads * s.head_dim;
  for (const auto& [direction, documents] :
       {std::pair{1.0f, false}, {-1.0f, false}, {1.0f, true}, {-1.0f, true}}) {
    HostMatrix begin(DType::kI32, {1, rows});
    std::ranges::copy(begins, begin.view().as<int32_t>());
    HostMatrix qkv(s.storage, {rows + kSpare, cols, s.padding}),
        cosine(DType::kF32, {first + seq_len, half}), sine = cosine;
    Draws draws(7);
    qkv.fill([&](int64_t, int64_t) { return draws.bell(2); });
    const auto angle = [&](int64_t t, int64_t i) {
      return double(t) * std::pow(10000.0, -2.0 * double(i) / double(s.head_dim));
    };
    cosine.fill([&](int64_t t, int64_t i) { return float(std::cos(angle(t, i))); });
    sine.fill([&](int64_t t, int64_t i) { return float(std::sin(angle(t, i))); });
    const auto call = [&, direction = direction, documents = documents](LlamaOps& ops,
                                                                        std::span<const Tensor> t) {
      ops.rope({.qkv = t[0].row_range(0, rows),
                .cosine = t[1],
                .sine = t[2],
                .rotated_heads = s.heads + s.key_value_heads,
                .head_dim = s.head_dim,
                .seq_len = seq_len,
                .first_position = first,
                .direction = direction,
                .document_begin = documents ? t[3] : Tensor{}});
    };
    const Trial trial{{qkv, cosine, sine, begin}, call, s.placement};
    const Matrices got = tuned(trial);
    for (const Matrices& want : {on_gpu(trial, Where::kGeneric), on_cpu(trial)}) {
      const Bound bound = [&](int64_t r, int64_t c) {
        if (c >= rotated) return 0.0;  // V stays
        const int64_t partner = c % s.head_dim < half ? c + half : c - half;
        return std::abs(want[0].at(r, c)) * step_of(s.storage) +
               4 * kFp32 * (std::abs(qkv.at(r, c)) + std::abs(qkv.at(r, partner)));
      };
      expect_close({got[0], want[0], qkv, rows}, bound, "qkv");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LlamaOpsRope,
    testing::Values(RopeShape{DType::kF32, 2, 2, 64, 0}, RopeShape{DType::kF32, 3, 3, 8, 0},
                    RopeShape{DType::kF32, 1, 1, 6, 0}, RopeShape{DType::kF32, 2, 2, 8, 1},
                    RopeShape{DType::kBF16, 8, 8, 64, 0}, RopeShape{DType::kBF16, 3, 3, 16, 0},
                    RopeShape{DType::kBF16, 2, 2, 128, 8}, RopeShape{DType::kBF16, 2, 2, 16, 4},
                    RopeShape{DType::kBF16, 2, 2, 24, 0}, RopeShape{DType::kBF16, 1, 1, 2, 0},
                    RopeShape{DType::kF32, 4, 2, 8, 0}, RopeShape{DType::kBF16, 6, 2, 16, 0},
                    RopeShape{DType::kBF16, 4, 1, 16, 0},
                    RopeShape{DType::kBF16, 2, 2, 64, 0, Placement::kShifted}),
    [](const auto& shape) {
      const RopeShape& s = shape.param;
      return fmt::format("{}_{}_{}x{}_padding{}{}", name_of(s.storage), s.heads, s.key_value_heads,
                         s.head_dim, s.padding,
                         s.placement == Placement::kShifted ? "_shifted" : "");
    });

// --- SwiGLU --------------------------------------------------------------------------------------

class LlamaOpsSwiglu : public LlamaOpsOnRows {
 protected:
  // Gates up to 40 and more in either direction.
  [[nodiscard]] HostMatrix gate_up() const {
    return random(s_.storage, s_.rows + kSpare, 2 * s_.cols, 1, 20);
  }
  [[nodiscard]] SwigluElement element(const HostMatrix& gates, int64_t row, int64_t col,
                                      double d_out = 0) const {
    return {gates.at(row, col), gates.at(row, col + s_.cols), d_out};
  }
  // Adds half a step of the type to the error.
  static double rounded(double exact, double error, DType type) {
    return 1.01 * error + (std::abs(exact) + error) * step_of(type) / 2;
  }
};

TEST_P(LlamaOpsSwiglu, Forward) {
  for (const DType out : {s_.storage, DType::kF32}) {
    const auto call = [this](LlamaOps& ops, std::span<const Tensor> t) {
      ops.swiglu_forward(live(t[0]), live(t[1]));
    };
    const Trial trial{{gate_up(), random(out, s_.rows + kSpare, s_.cols, 2)}, call, s_.placement};
    const Matrices got = tuned(trial);
    for (const Matrices& want : {on_gpu(trial, Where::kGeneric), on_cpu(trial)}) {
      const Bound bound = [&](int64_t r, int64_t c) {
        const SwigluElement x = element(got[0], r, c);
        return 2 * rounded(x.y(), x.y_error(), out);
      };
      expect_close({got[1], want[1], trial.before[1], s_.rows}, bound, "y");
      EXPECT_TRUE(got[0] == trial.before[0]);
    }
    for (int64_t r = 0; r < s_.rows; ++r)
      for (int64_t c = 0; c < s_.cols; ++c) {
        const SwigluElement x = element(got[0], r, c);
        ASSERT_NEAR(got[1].at(r, c), x.y(), rounded(x.y(), x.y_error(), out)) << x.gate;
      }
  }
}

TEST_P(LlamaOpsSwiglu, Backward) {
  const auto call = [this](LlamaOps& ops, std::span<const Tensor> t) {
    ops.swiglu_backward(live(t[0]), live(t[1]));
  };
  const Trial trial{{gate_up(), input(2)}, call, s_.placement};
  const HostMatrix &in = trial.before[0], &dy = trial.before[1];
  const Matrices got = tuned(trial);
  const auto bound_of = [&](const SwigluElement& x, bool of_gate) {
    return of_gate ? rounded(x.d_gate(), x.d_gate_error(), s_.storage)
                   : rounded(x.d_up(), x.d_up_error(), s_.storage);
  };
  for (const Matrices& want : {on_gpu(trial, Where::kGeneric), on_cpu(trial)}) {
    const Bound bound = [&](int64_t r, int64_t c) {
      const int64_t at = c % s_.cols;
      return 2 * bound_of(element(in, r, at, dy.at(r, at)), c < s_.cols);
    };
    expect_close({got[0], want[0], in, s_.rows}, bound, "gradient");
    EXPECT_TRUE(got[1] == dy);
  }
  for (int64_t r = 0; r < s_.rows; ++r)
    for (int64_t c = 0; c < s_.cols; ++c) {
      const SwigluElement x = element(in, r, c, dy.at(r, c));
      ASSERT_NEAR(got[0].at(r, c), x.d_gate(), bound_of(x, true)) << x.gate;
      ASSERT_NEAR(got[0].at(r, c + s_.cols), x.d_up(), bound_of(x, false)) << x.gate;
    }
}

// Every gate of BF16 from where e^-gate overflows to where it vanishes.
TEST_F(LlamaOpsOnGpu, SwigluOfAllGates) {
  std::vector<float> gates;
  for (uint32_t bits = 0; bits < 0x10000; ++bits)
    if (const float gate = to_float(bf16{uint16_t(bits)}); std::abs(gate) <= 200)
      gates.push_back(gate);
  const int64_t cols = int64_t(gates.size());
  HostMatrix gate_up(DType::kF32, {1, 2 * cols}), out(DType::kF32, {1, cols});
  gate_up.fill([&](int64_t, int64_t c) { return c < cols ? gates[size_t(c)] : 1.5; });
  const auto call = [](LlamaOps& ops, std::span<const Tensor> t) {
    ops.swiglu_forward(t[0], t[1]);
  };
  const Matrices got = tuned({{gate_up, out}, call});
  for (int64_t c = 0; c < cols; ++c) {
    const SwigluElement x{gates[size_t(c)], 1.5, 0};
    ASSERT_NEAR(got[1].at(0, c), x.y(), 1.01 * x.y_error() + std::abs(x.y()) * 0x1p-24) << x.gate;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LlamaOpsSwiglu, testing::ValuesIn(row_shapes()), shape_name);

// --- cross entropy -------------------------------------------------------------------------------

class LlamaOpsCrossEntropy : public LlamaOpsOnRows {
 protected:
  enum : size_t { kLogits, kTargets, kLosses, kScale };

  [[nodiscard]] Trial trial(float scale) const {
    std::vector<int32_t> targets;
    for (int64_t r = 0; r < s_.rows + kSpare; ++r)
      targets.push_back(r % 4 == 3 ? -1 : int32_t((r * 7919 + s_.cols - 1) % s_.cols));
    HostMatrix scales(DType::kF32, {1, 1});
    scales.set(0, 0, scale);
    const auto call = [this, scale](LlamaOps& ops, std::span<const Tensor> t) {
      ops.cross_entropy({.logits = live(t[kLogits]),
                         .targets = t[kTargets].columns(0, s_.rows),
                         .losses = t[kLosses].columns(0, s_.rows),
                         .gradient_scale = scale == 0 ? nullptr : t[kScale].as<float>()});
    };
    return {{input(1, 6), integers(targets), random(DType::kF32, 1, s_.rows + kSpare, 2), scales},
            call,
            s_.placement};
  }
  void expect_as(const Trial& trial, const Matrices& got, const Matrices& want) const {
    const HostMatrix& z = trial.before[kLogits];
    const double terms = 2 * chain(s_.cols) * kFp32, scale = trial.before[kScale].at(0, 0);
    std::vector<double> top(size_t(s_.rows), -INFINITY), sum(size_t(s_.rows));
    for (int64_t r = 0; r < s_.rows; ++r) {
      for (int64_t c = 0; c < s_.cols; ++c)
        top[size_t(r)] = std::max(top[size_t(r)], double(z.at(r, c)));
      for (int64_t c = 0; c < s_.cols; ++c) sum[size_t(r)] += std::exp(z.at(r, c) - top[size_t(r)]);
    }
    for (int64_t r = 0; r < s_.rows + kSpare; ++r) {
      const double w = want[kLosses].at(0, r);
      const double largest = 1 + std::abs(w) + std::log(double(s_.cols));
      if (r < s_.rows)
        EXPECT_NEAR(got[kLosses].at(0, r), w, terms * largest) << r;
      else
        EXPECT_EQ(got[kLosses].at(0, r), trial.before[kLosses].at(0, r));
    }
    const Bound bound = [&](int64_t r, int64_t c) {
      const int32_t target = trial.before[kTargets].view().as<int32_t>()[r];
      if (target < 0 || scale == 0) return 0.0;
      const double below = top[size_t(r)] - z.at(r, c), p = std::exp(-below) / sum[size_t(r)];
      const double largest = c == target ? 1 : p * (1 + below);
      return std::abs(want[kLogits].at(r, c)) * step_of(s_.storage) + scale * terms * largest +
             0x1p-126;
    };
    expect_close({got[kLogits], want[kLogits], z, s_.rows}, bound, "dz");
  }
};

TEST_P(LlamaOpsCrossEntropy, LossAndGradient) {
  for (const float scale : {1.0f / 37, 0.0f}) {
    const Trial t = trial(scale);
    const Matrices got = tuned(t);
    if (scale == 0) {
      EXPECT_TRUE(got[kLogits] == t.before[kLogits]);
    }
    expect_as(t, got, on_gpu(t, Where::kGeneric));
    expect_as(t, got, on_cpu(t));
  }
}

std::vector<Shape> vocabularies() {
  std::vector<Shape> all;
  for (const DType storage : {DType::kF32, DType::kBF16}) {
    for (const int64_t cols : {1, 7, 8, 509, 4096, 4104, 32000, 32003})
      all.push_back({storage, 5, cols});
    all.push_back({storage, 0, 64});
    all.push_back({storage, 3, 512, Placement::kShifted});
    all.push_back(
        {storage, 2, 120000});  // no block's shared memory holds a row of these in FP32, or in BF16
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, LlamaOpsCrossEntropy, testing::ValuesIn(vocabularies()),
                         shape_name);

TEST_F(LlamaOpsOnGpu, CrossEntropyOfBrokenRows) {
  for (const DType storage : {DType::kF32, DType::kBF16})
    for (const float bad : {float(NAN), INFINITY, -INFINITY})
      for (const int64_t at : {0, 31, 511, 600}) {
        HostMatrix logits = random(storage, 2, 616, 1), scale(DType::kF32, {1, 1});
        scale.set(0, 0, 1);
        logits.set(0, at, bad);
        logits.set(1, at, bad);
        const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
          ops.cross_entropy({.logits = t[0],
                             .targets = t[1],
                             .losses = t[2],
                             .gradient_scale = t[3].as<float>()});
        };
        const Trial trial{{logits, integers({5, -1}), HostMatrix(DType::kF32, {1, 2}), scale},
                          call};
        const Matrices got = tuned(trial);
        EXPECT_EQ(std::isfinite(got[2].at(0, 0)), bad == -INFINITY) << bad << " at " << at;
        EXPECT_EQ(got[2].at(0, 1), 0);
        for (int64_t c = 0; c < 616; ++c) EXPECT_EQ(got[0].at(1, c), 0);
        if (bad == -INFINITY) {
          EXPECT_EQ(got[0].at(0, at), 0);
        }
      }
}

TEST_F(LlamaOpsOnGpu, SumOfLosses) {
  for (const int64_t count : {0, 1, 31, 1024, 1025, 9000}) {
    const HostMatrix losses = random(DType::kF32, 1, count + 1, 3);
    const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
      ops.sum_losses(t[0].columns(0, count), t[1]);
    };
    const Trial trial{{losses, HostMatrix(DType::kF64, {1, 1})}, call};
    double exact = 0, size = 0;
    for (int64_t i = 0; i < count; ++i) {
      exact += losses.at(0, i);
      size += std::abs(losses.at(0, i));
    }
    EXPECT_NEAR(*tuned(trial)[1].view().as<double>(), exact, 2 * double(count) * 0x1p-53 * size)
        << count;
  }
}

// --- embedding -----------------------------------------------------------------------------------

TEST_P(LlamaOpsOnRows, EmbeddingForward) {
  std::vector<int32_t> tokens;
  for (int64_t r = 0; r < s_.rows + kSpare; ++r) tokens.push_back(int32_t(r * 5 % 7));
  const auto call = [this](LlamaOps& ops, std::span<const Tensor> t) {
    ops.embedding_forward(t[0], t[1], live(t[2]));
  };
  const Trial trial{
      {random(s_.storage, 7, s_.cols, 1), integers(tokens), input(2)}, call, s_.placement};
  const Matrices got = tuned(trial);
  EXPECT_TRUE(got[2] == on_gpu(trial, Where::kGeneric)[2]);
  EXPECT_TRUE(got[2] == on_cpu(trial)[2]);
}

class LlamaOpsEmbedding : public LlamaOpsOnRows {};

// Rows of the table without uses, with a few, with just enough to make a run long, or with
// thousands.
TEST_P(LlamaOpsEmbedding, Backward) {
  enum : size_t { kDOut, kFirst, kUses, kTable };
  const std::vector<int64_t> counts{0, 1, 5, 127, 128, 129, 0, 1000, 3, 256, 0};
  std::vector<int32_t> first{0}, uses;
  for (size_t v = 0; v < counts.size(); ++v) first.push_back(first.back() + int32_t(counts[v]));
  const int64_t tokens = first.back();
  // Positions of each row ascend, and rows alternate in the batch.
  for (size_t v = 0; v < counts.size(); ++v)
    for (int64_t i = 0; i < counts[v]; ++i)
      uses.push_back(int32_t((i * 13 + int64_t(v) * 101) % tokens));
  const auto rows = int64_t(counts.size());
  for (const DType container : {DType::kF32, DType::kBF16})
    for (const Accumulate accumulate : {Accumulate::kYes, Accumulate::kNo}) {
      const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
        ops.embedding_backward({.d_out = t[kDOut],
                                .first = t[kFirst],
                                .uses = t[kUses],
                                .d_table = t[kTable].row_range(0, rows),
                                .accumulate = accumulate});
      };
      const Trial trial{{random(s_.storage, tokens, s_.cols, 1), integers(first), integers(uses),
                         random(container, rows + kSpare, s_.cols, 2)},
                        call,
                        s_.placement};
      const Matrices got = tuned(trial);
      for (const Matrices& want : {on_gpu(trial, Where::kGeneric), on_cpu(trial)}) {
        const Bound bound = [&](int64_t v, int64_t c) {
          if (counts[size_t(v)] < 128) return 0.0;  // summed in the same order
          double size = std::abs(trial.before[kTable].at(v, c));
          for (int32_t i = first[size_t(v)]; i < first[size_t(v) + 1]; ++i)
            size += std::abs(trial.before[kDOut].at(uses[size_t(i)], c));
          return std::abs(want[kTable].at(v, c)) * step_of(container) +
                 double(counts[size_t(v)]) * 2 * kFp32 * size;
        };
        expect_close({got[kTable], want[kTable], trial.before[kTable], rows}, bound, "d_table");
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, LlamaOpsOnRows, testing::ValuesIn(row_shapes()), shape_name);
INSTANTIATE_TEST_SUITE_P(Shapes, LlamaOpsEmbedding,
                         testing::Values(Shape{DType::kF32, 0, 8}, Shape{DType::kF32, 0, 520},
                                         Shape{DType::kF32, 0, 33}, Shape{DType::kBF16, 0, 64},
                                         Shape{DType::kBF16, 0, 520}, Shape{DType::kBF16, 0, 33},
                                         Shape{DType::kBF16, 0, 64, Placement::kShifted}),
                         shape_name);

// --- zero, rounding ------------------------------------------------------------------------------

TEST_F(LlamaOpsOnGpu, ZeroAndRounding) {
  for (const Placement placement : {Placement::kAligned, Placement::kShifted})
    for (const int64_t count : {0, 1, 3, 4, 1000, 1027}) {
      const auto call = [&](LlamaOps& ops, std::span<const Tensor> t) {
        ops.round_to_bf16(t[0].columns(0, count));
        ops.zero(t[1].columns(0, count));
        ops.zero(t[2].columns(0, count));
      };
      const Trial trial{{random(DType::kF32, 1, count + 5, 1), random(DType::kF32, 1, count + 5, 2),
                         random(DType::kBF16, 1, count + 5, 3)},
                        call,
                        placement};
      const Matrices got = tuned(trial), generic = on_gpu(trial, Where::kGeneric),
                     cpu = on_cpu(trial);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(got[i] == generic[i]) << count << " elements of matrix " << i;
        EXPECT_TRUE(got[i] == cpu[i]) << count << " elements of matrix " << i;
      }
    }
}

}  // namespace
}  // namespace mpt::test
