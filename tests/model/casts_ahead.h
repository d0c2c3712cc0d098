// Operations that cast their results against the same operations followed by a cast, on any device:
// codes, amaxes, scales, other outputs and the bytes around must be equal bit for bit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/llama_ops.h"
#include "support/device_matrix.h"
#include "support/draws.h"

namespace mpt::test {

enum class Maker : uint8_t {
  kSwigluBackward,
  kRopeBackward,
  kNormBackward,
  kNormForward,
  kRopeBackwardInDocuments
};

struct CastAheadCase {
  Maker maker;
  int64_t rows, cols;    // of the codes; SwiGLU's are gates and ups side by side
  int64_t head_dim = 0;  // RoPE's; cols are three times a multiple of it
  int64_t shift = 0;     // elements between a multiple of 16 bytes and each tensor's first
};

inline std::string name_of_case(const CastAheadCase& c) {
  constexpr std::array kNames{"swiglu_backward", "rope_backward", "norm_backward", "norm_forward",
                              "rope_backward_in_documents"};
  return fmt::format("{}_{}x{}{}{}", kNames[size_t(c.maker)], c.rows, c.cols,
                     c.head_dim > 0 ? fmt::format("_heads_of_{}", c.head_dim) : "",
                     c.shift != 0 ? "_shifted" : "");
}
inline void PrintTo(const CastAheadCase& c, std::ostream* out) { *out << name_of_case(c); }
inline std::string cast_ahead_case_name(const testing::TestParamInfo<CastAheadCase>& info) {
  return name_of_case(info.param);
}

// One tile and several, ends that are no multiples of tiles, runs or packs, rows for every team of
// warps, and tensors unsuitable for kernels that use packs.
inline std::vector<CastAheadCase> cast_ahead_cases() {
  std::vector<CastAheadCase> all;
  const auto add = [&](Maker maker, int64_t rows, int64_t cols, int64_t head_dim = 0) {
    all.push_back({maker, rows, cols, head_dim});
  };
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{16, 32},
                                   {64, 512},
                                   {80, 544},
                                   {129, 688},
                                   {3, 5472},
                                   {1, 2},
                                   {17, 66},
                                   {65, 514}})
    add(Maker::kSwigluBackward, rows, cols);
  add(Maker::kRopeBackward, 64, 3 * 256, 64);
  add(Maker::kRopeBackward, 129, 3 * 5 * 16, 16);
  add(Maker::kRopeBackward, 80, 3 * 2 * 128, 128);
  add(Maker::kRopeBackward, 33, 3 * 3 * 48, 48);
  add(Maker::kRopeBackward, 16, 3 * 2 * 24, 24);  // half a head is no pack
  add(Maker::kRopeBackward, 5, 3 * 2, 2);
  for (const Maker maker : {Maker::kNormBackward, Maker::kNormForward}) {
    add(maker, 16, 16);
    add(maker, 133, 64);
    add(maker, 80, 272);
    add(maker, 65, 512);
    add(maker, 48, 768);
    add(maker, 35, 1024);
    add(maker, 17, 2048);
    add(maker, 3, 4096);
    add(maker, 5, 33);
  }
  for (CastAheadCase c : {all[1], all[8], CastAheadCase{Maker::kNormBackward, 80, 272},
                          CastAheadCase{Maker::kNormForward, 80, 272}}) {
    c.shift = 1;
    all.push_back(c);
  }
  add(Maker::kRopeBackwardInDocuments, 64, 3 * 256, 64);
  add(Maker::kRopeBackwardInDocuments, 33, 3 * 3 * 48, 48);
  add(Maker::kRopeBackwardInDocuments, 16, 3 * 2 * 24, 24);
  return all;
}

enum class AheadInto : uint8_t { kRows, kTransposed, kBoth };
// Special values among random ones.
enum class Extreme : uint8_t { kNone, kZeros, kInfinite, kNaN, kTiny };

class CastAheadTrial {
 public:
  CastAheadTrial(Device& device, LlamaOps& ops, const CastAheadCase& c)
      : device_(device), allocator_(device.make_allocator()), ops_(ops), c_(c) {}

  struct Cast {
    AheadInto into = AheadInto::kBoth;
    Fp8CastKind kind = Fp8CastKind::kFold;
    Format through = Format::kBF16;  // rounding of the forward pass
    Extreme extreme = Extreme::kNone;
  };

  void expect_equal(const Cast& cast) {
    const Outcome ahead = outcome(cast, true), after = outcome(cast, false);
    EXPECT_TRUE(ahead.rows == after.rows) << "codes in rows";
    EXPECT_TRUE(ahead.columns == after.columns) << "codes transposed";
    EXPECT_TRUE(ahead.numbers == after.numbers) << "amax and scales";
    ASSERT_EQ(ahead.others.size(), after.others.size());
    for (size_t i = 0; i < ahead.others.size(); ++i)
      EXPECT_TRUE(ahead.others[i] == after.others[i]) << "tensor " << i;
    EXPECT_TRUE(ahead.rows.padding_untouched() && ahead.columns.padding_untouched());
    if (cast.extreme != Extreme::kNone) return;
    EXPECT_EQ(ahead.numbers.at(0, 1) > kFirstAmax, cast.kind == Fp8CastKind::kFold) << "an amax";
  }

 private:
  static constexpr float kFirstAmax = 1e-30f;

  struct Outcome {
    HostMatrix rows, columns, numbers;
    std::vector<HostMatrix> others;
  };

  [[nodiscard]] DType type() const {
    return c_.maker == Maker::kNormForward ? DType::kE4M3 : DType::kE5M2;
  }

  Tensor upload(const HostMatrix& m) { return DeviceMatrix(device_, *allocator_, m); }
  // Returns random numbers in bf16, one of which may be extreme.
  Tensor drawn(int64_t rows, int64_t cols, double spread, Draws& draws,
               Extreme extreme = Extreme::kNone) {
    HostMatrix m(DType::kBF16, {1, rows * cols + c_.shift});
    m.fill([&](int64_t, int64_t) {
      const uint32_t word = draws.word();
      if (extreme == Extreme::kZeros) return word % 2 == 0 ? 0.0f : -0.0f;
      return word % 512 == 7 ? value_of(extreme, draws) : draws.bell(spread);
    });
    const Tensor t = upload(m);
    return {t.data + c_.shift * size_of(t.dtype), t.dtype, rows, cols, cols};
  }
  static float value_of(Extreme extreme, Draws& draws) {
    const float sign = draws.coin() ? 1.0f : -1.0f;
    switch (extreme) {
      case Extreme::kInfinite:
        return sign * std::numeric_limits<float>::infinity();
      case Extreme::kNaN:
        return std::numeric_limits<float>::quiet_NaN();
      case Extreme::kTiny:
        return sign * 1e-38f;
      default:
        return sign;
    }
  }

  Outcome outcome(const Cast& cast, bool ahead) {
    HostMatrix first(DType::kF32, {1, 4});  // scale, amax, used scale, its inverse
    first.set(0, 0, 14.9333328f), first.set(0, 1, kFirstAmax);
    first.set(0, 2, 7.5f), first.set(0, 3, 1 / 7.5f);
    const DeviceMatrix rows(device_, *allocator_, HostMatrix(type(), {c_.rows, c_.cols, 16})),
        columns(device_, *allocator_, HostMatrix(type(), {c_.cols, c_.rows, 16 - c_.rows % 16})),
        numbers(device_, *allocator_, first);
    float* const slot = Tensor(numbers).as<float>();
    const Fp8CastCall call{
        .source = shape_of_source(c_.rows, c_.cols),
        .through = c_.maker == Maker::kNormForward ? cast.through : Format::kF32,
        .target = cast.into == AheadInto::kTransposed ? Tensor{} : Tensor(rows),
        .transposed = cast.into == AheadInto::kRows ? Tensor{} : Tensor(columns),
        .slot = {.scale = slot, .amax = slot + 1, .used_scale = slot + 2, .scale_inv = slot + 3},
        .kind = cast.kind};
    Draws draws(7);
    const std::vector<Tensor> others = make(call, cast, ahead, draws);
    Outcome all{rows.fetched(), columns.fetched(), numbers.fetched(), {}};
    for (const Tensor& t : others) all.others.push_back(fetched(t));
    return all;
  }
  HostMatrix fetched(const Tensor& t) {
    HostMatrix host(t.dtype, {t.rows, t.cols});
    if (t.elements() > 0) device_.download(t, host.view().data);
    return host;
  }
  void cast_from_memory(const Tensor& made, const Fp8CastCall& call) {
    Fp8CastCall from_memory = call;
    from_memory.source = encoded_view(made);
    make_ops<Fp8Ops>(device_.stream())->cast(from_memory);
  }

  // Runs the operation and returns its outputs for readers other than the cast.
  std::vector<Tensor> make(const Fp8CastCall& call, const Cast& cast, bool ahead, Draws& draws) {
    switch (c_.maker) {
      case Maker::kSwigluBackward:
        return swiglu_backward(call, cast, ahead, draws);
      case Maker::kRopeBackward:
      case Maker::kRopeBackwardInDocuments:
        return rope_backward(call, cast, ahead, draws);
      case Maker::kNormBackward:
        return norm_backward(call, cast, ahead, draws);
      case Maker::kNormForward:
        return norm_forward(call, cast, ahead, draws);
    }
    return {};
  }
  std::vector<Tensor> swiglu_backward(const Fp8CastCall& call, const Cast& cast, bool ahead,
                                      Draws& draws) {
    const Tensor gate_up = drawn(c_.rows, c_.cols, 3, draws),
                 d_out = drawn(c_.rows, c_.cols / 2, 1, draws, cast.extreme);
    if (ahead) {
      ops_.swiglu_backward_and_cast(gate_up, d_out, call);
    } else {
      ops_.swiglu_backward(gate_up, d_out);
      cast_from_memory(gate_up, call);
    }
    return {d_out};
  }
  std::vector<Tensor> rope_backward(const Fp8CastCall& call, const Cast& cast, bool ahead,
                                    Draws& draws) {
    const int64_t seq_len = 12, first = 3, half = c_.head_dim / 2;
    HostMatrix cosine(DType::kF32, {first + seq_len, half}), sine = cosine;
    const auto angle = [&](int64_t t, int64_t i) {
      return double(t) * std::pow(10000.0, -2.0 * double(i) / double(c_.head_dim));
    };
    cosine.fill([&](int64_t t, int64_t i) { return float(std::cos(angle(t, i))); });
    sine.fill([&](int64_t t, int64_t i) { return float(std::sin(angle(t, i))); });
    HostMatrix begins(DType::kI32, {1, c_.rows});  // at 0 and 5 of every row
    for (int64_t r = 0; r < c_.rows; ++r) begins.view().as<int32_t>()[r] = r % seq_len < 5 ? 0 : 5;
    const bool documents = c_.maker == Maker::kRopeBackwardInDocuments;
    const RopeCall rope{.qkv = drawn(c_.rows, c_.cols, 2, draws, cast.extreme),
                        .cosine = upload(cosine),
                        .sine = upload(sine),
                        .rotated_heads = c_.cols / 3 / c_.head_dim * 2,
                        .head_dim = c_.head_dim,
                        .seq_len = seq_len,
                        .first_position = first,
                        .direction = -1.0f,
                        .document_begin = documents ? upload(begins) : Tensor{}};
    if (ahead) {
      ops_.rope_and_cast(rope, call);
    } else {
      ops_.rope(rope);
      cast_from_memory(rope.qkv, call);
    }
    return {};
  }
  std::vector<Tensor> norm_backward(const Fp8CastCall& call, const Cast& cast, bool ahead,
                                    Draws& draws) {
    HostMatrix inverse(DType::kF32, {1, c_.rows});
    inverse.fill([](int64_t, int64_t r) { return 0.5f + float(r % 7) / 8; });
    const auto scratch = [&](int64_t rows) {
      return allocator_->tensor(kScratchMemory, DType::kF32, rows, c_.cols);
    };
    const bool zeros = cast.extreme == Extreme::kZeros;
    const NormBackwardCall norm{
        .d_out = drawn(c_.rows, c_.cols, 1, draws, zeros ? Extreme::kZeros : Extreme::kNone),
        .x = drawn(c_.rows, c_.cols, 2, draws),
        .inv_rms = upload(inverse),
        .gain = drawn(1, c_.cols, 1, draws),
        .d_x = drawn(c_.rows, c_.cols, 1, draws, cast.extreme),
        .d_gain_partial = scratch(std::max(ops_.norm_chunks(c_.rows), int64_t{1})),
        .d_gain = scratch(1),
        .accumulate = Accumulate::kNo};
    if (ahead) {
      ops_.norm_backward_and_cast(norm, call);
    } else {
      ops_.norm_backward(norm);
      cast_from_memory(norm.d_x, call);
    }
    return {norm.d_x, norm.d_gain};
  }
  std::vector<Tensor> norm_forward(const Fp8CastCall& call, const Cast& cast, bool ahead,
                                   Draws& draws) {
    const NormForwardCall norm{
        .residual = drawn(c_.rows, c_.cols, 1, draws, cast.extreme),
        .branch = cast.extreme == Extreme::kZeros ? Tensor{} : drawn(c_.rows, c_.cols, 1, draws),
        .sum = allocator_->tensor(kScratchMemory, DType::kBF16, c_.rows, c_.cols),
        .out = {},
        .inv_rms = allocator_->tensor(kScratchMemory, DType::kF32, 1, c_.rows),
        .gain = drawn(1, c_.cols, 1, draws),
        .eps = 1e-6f};
    if (ahead) {
      ops_.norm_forward_and_cast(norm, call);
    } else {
      ops_.norm_forward(norm);
      ops_.cast(NormInput{.x = norm.branch.data == nullptr ? norm.residual : norm.sum,
                          .inv_rms = norm.inv_rms,
                          .gain = norm.gain},
                call);
    }
    if (norm.branch.data == nullptr) return {norm.inv_rms};
    return {norm.sum, norm.inv_rms};
  }

  Device& device_;
  std::unique_ptr<Allocator> allocator_;
  LlamaOps& ops_;
  CastAheadCase c_;
};

// Runs everything on a device, with the given operations. Wide rows, whose kernels differ only in
// the warps per row, run two of the trials: an emulated GPU is slow.
inline void expect_equal_ahead(Device& device, LlamaOps& ops, const CastAheadCase& c) {
  CastAheadTrial trial(device, ops, c);
  if (c.cols > 600) {
    trial.expect_equal({});
    trial.expect_equal({.extreme = Extreme::kInfinite});
    return;
  }
  for (const AheadInto into : {AheadInto::kRows, AheadInto::kTransposed, AheadInto::kBoth})
    trial.expect_equal({.into = into});
  for (const Fp8CastKind kind : {Fp8CastKind::kNoFold, Fp8CastKind::kAgain})
    trial.expect_equal({.kind = kind});
  for (const Extreme extreme :
       {Extreme::kZeros, Extreme::kInfinite, Extreme::kNaN, Extreme::kTiny}) {
    SCOPED_TRACE(testing::Message() << "extreme " << int(extreme));
    trial.expect_equal({.extreme = extreme});
  }
  trial.expect_equal({.through = Format::kF32});
}

}  // namespace mpt::test
