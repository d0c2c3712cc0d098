// Casts of computed inputs against casts of the same inputs in memory, on any device: codes,
// amaxes, scales and the bytes around them must be equal bit for bit.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "model/llama_ops.h"
#include "precision/fp8_scaling.h"
#include "support/device_matrix.h"
#include "support/draws.h"

namespace mpt::test {

enum class Computation : uint8_t { kSwiglu, kNorm };

struct ComputedCase {
  Computation computation;
  int64_t rows, cols;
  int64_t shift = 0;  // elements between a multiple of 16 bytes and the input's first
};

inline std::string name_of_case(const ComputedCase& c) {
  return fmt::format("{}_{}x{}{}", c.computation == Computation::kSwiglu ? "swiglu" : "norm",
                     c.rows, c.cols, c.shift != 0 ? "_shifted" : "");
}
inline void PrintTo(const ComputedCase& c, std::ostream* out) { *out << name_of_case(c); }
inline std::string computed_case_name(const testing::TestParamInfo<ComputedCase>& info) {
  return name_of_case(info.param);
}

// Multiples of 16, of units and of tiles, ends off by one element, a stored 5461, and no alignment
// at all.
inline std::vector<ComputedCase> computed_cases() {
  std::vector<ComputedCase> all;
  for (const Computation c : {Computation::kSwiglu, Computation::kNorm}) {
    all.insert(all.end(), {{c, 16, 16},
                           {c, 64, 256},
                           {c, 80, 272},
                           {c, 129, 344},
                           {c, 3, 5472},
                           {c, 1, 1},
                           {c, 17, 33},
                           {c, 65, 257},
                           {c, 80, 272, 1}});
  }
  return all;
}

enum class CastInto : uint8_t { kRows, kTransposed, kBoth };

class ComputedCastTrial {
 public:
  ComputedCastTrial(Device& device, LlamaOps& ops, const ComputedCase& c)
      : device_(device), allocator_(device.make_allocator()), ops_(ops), c_(c) {}

  // Everything that a single cast may modify.
  struct Outcome {
    HostMatrix rows, columns, numbers;
    bool operator==(const Outcome&) const = default;
  };
  struct Cast {
    Format through = Format::kBF16;
    DType type = DType::kE4M3;
    Fp8CastKind kind = Fp8CastKind::kFold;
    CastInto into = CastInto::kBoth;
  };

  void expect_equal(const Cast& cast) {
    const Input input = make_input(cast.through, 1, Special::kSome);
    ComputedCasts computing(ops_, input.computed);
    const auto reading = make_ops<Fp8Ops>(device_.stream());
    const Outcome computed =
                      outcome(computing, shape_of_source(c_.rows, c_.cols), cast.through, cast),
                  stored = outcome(*reading, encoded_view(input.stored), Format::kF32, cast);
    EXPECT_TRUE(computed.rows == stored.rows);
    EXPECT_TRUE(computed.columns == stored.columns);
    EXPECT_TRUE(computed.numbers == stored.numbers);
    EXPECT_TRUE(computed.rows.padding_untouched() && computed.columns.padding_untouched());
    EXPECT_EQ(computed.numbers.at(0, 1) > kFirstAmax, cast.kind == Fp8CastKind::kFold) << "an amax";
  }

  void expect_equal_amax(Format through) {
    const Input input = make_input(through, 2);
    ComputedCasts computing(ops_, input.computed);
    const DeviceMatrix computed = numbers(), stored = numbers();
    computing.gather_amax({.source = shape_of_source(c_.rows, c_.cols),
                           .through = through,
                           .slot = slot_of(computed)});
    make_ops<Fp8Ops>(device_.stream())
        ->gather_amax({.source = encoded_view(input.stored), .slot = slot_of(stored)});
    EXPECT_TRUE(computed.fetched() == stored.fetched());
    EXPECT_GT(computed.fetched().at(0, 1), kFirstAmax);
  }

  // Micro-batches with their updates of scales, an evaluation and another cast in between.
  void expect_equal_scaling(Fp8Recipe recipe, Format through) {
    PrecisionConfig config;
    config.fp8_recipe = recipe;
    config.fp8_history = 3;
    const Fp8ScalingOptions options{
        .name = "forward", .format = DType::kE4M3, .slots = 1, .config = config};
    Fp8Scaling computing(options, device_, *allocator_), reading(options, device_, *allocator_);
    for (uint64_t step = 0; step < 4; ++step) {
      const Input input = make_input(through, 10 + step);
      ComputedCasts casts(ops_, input.computed);
      for (const Fp8CastKind kind :
           {Fp8CastKind::kNoFold, Fp8CastKind::kFold, Fp8CastKind::kAgain}) {
        const DeviceMatrix computed = codes(DType::kE4M3), stored = codes(DType::kE4M3);
        const std::array of_computed{Fp8Part{
            .source = shape_of_source(c_.rows, c_.cols), .target = computed, .through = through}},
            of_stored{Fp8Part{.source = encoded_view(input.stored), .target = stored}};
        computing.cast(0, of_computed, kind, casts);
        reading.cast(0, of_stored, kind);
        EXPECT_TRUE(computed.fetched() == stored.fetched()) << "step " << step;
        if (kind == Fp8CastKind::kFold) computing.roll(), reading.roll();
      }
      const Fp8SlotState found = computing.slot_states()[0], wanted = reading.slot_states()[0];
      EXPECT_EQ(found.scale, wanted.scale);
      EXPECT_EQ(found.last_amax, wanted.last_amax);
      EXPECT_EQ(found.history_amax, wanted.history_amax);
      EXPECT_NE(found.scale, 1.0f);
    }
  }

  // Returns the codes in rows, without a scale.
  HostMatrix codes_through(Format through) {
    const Input input = make_input(Format::kBF16, 1);
    ComputedCasts casts(ops_, input.computed);
    return outcome(casts, shape_of_source(c_.rows, c_.cols), through, {}).rows;
  }

 private:
  static constexpr float kFirstAmax = 1e-9f;

  // Whether some of the numbers are zeros, tiny, or not finite.
  enum class Special : uint8_t { kNone, kSome };
  struct Input {
    ComputedInput computed;
    Tensor
        stored;  // output of the operations before the cast: bf16, or fp32 if not cast through bf16
  };

  Tensor upload(const HostMatrix& m) { return DeviceMatrix(device_, *allocator_, m); }
  // Returns random numbers in bf16, at the case's alignment.
  Tensor drawn(int64_t rows, int64_t cols, double spread, Draws& draws,
               std::span<const float> special = {}) {
    HostMatrix m(DType::kBF16, {1, rows * cols + c_.shift});
    m.fill([&](int64_t, int64_t) {
      const uint32_t word = draws.word();
      return word % 64 == 0 && !special.empty() ? special[word / 64 % special.size()]
                                                : draws.bell(spread);
    });
    const Tensor t = upload(m);
    return {t.data + c_.shift * size_of(t.dtype), t.dtype, rows, cols, cols};
  }
  // NaNs arise only if rounded to bf16, which drops their sign.
  static std::span<const float> special_values(Format through) {
    constexpr float kInf = std::numeric_limits<float>::infinity();
    static constexpr float kValues[] = {0.0f, -0.0f, 1e-30f, -3e38f, kInf, -kInf};
    return std::span(kValues).first(through == Format::kBF16 ? 6 : 3);
  }
  Input make_input(Format through, uint64_t seed, Special special = Special::kNone) {
    Draws draws(seed);
    const Tensor stored = allocator_->tensor(kScratchMemory, dtype_of(through), c_.rows, c_.cols);
    if (c_.computation == Computation::kSwiglu) {
      const bool plain = special == Special::kNone || c_.rows * c_.cols < 64;
      const Tensor gate_up = drawn(c_.rows, 2 * c_.cols, double(2 + seed), draws,
                                   plain ? std::span<const float>{} : special_values(through));
      ops_.swiglu_forward(gate_up, stored);
      return {SwigluInput{gate_up}, stored};
    }
    const Tensor residual = drawn(c_.rows, c_.cols, 1, draws),
                 branch = drawn(c_.rows, c_.cols, double(seed), draws),
                 gain = drawn(1, c_.cols, 2, draws),
                 sum = allocator_->tensor(kScratchMemory, DType::kBF16, c_.rows, c_.cols),
                 inv_rms = allocator_->tensor(kScratchMemory, DType::kF32, 1, c_.rows);
    NormForwardCall call{.residual = residual,
                         .branch = branch,
                         .sum = sum,
                         .out = stored,
                         .inv_rms = inv_rms,
                         .gain = gain,
                         .eps = 1e-6f};
    ops_.norm_forward(call);
    // The input of the cast is written by the operation that does not store its output.
    call.out = {};
    call.sum = allocator_->tensor(kScratchMemory, DType::kBF16, c_.rows, c_.cols);
    call.inv_rms = allocator_->tensor(kScratchMemory, DType::kF32, 1, c_.rows);
    ops_.norm_forward(call);
    return {NormInput{.x = call.sum, .inv_rms = call.inv_rms, .gain = gain}, stored};
  }

  [[nodiscard]] DeviceMatrix codes(DType type) {
    return {device_, *allocator_, HostMatrix(type, {c_.rows, c_.cols, 16})};
  }
  [[nodiscard]] DeviceMatrix numbers() {
    HostMatrix m(DType::kF32, {1, 4});  // scale, amax, used scale, its inverse
    m.set(0, 0, 14.9333328f), m.set(0, 1, kFirstAmax), m.set(0, 2, 7.5f), m.set(0, 3, 1 / 7.5f);
    return {device_, *allocator_, m};
  }
  static Fp8Slot slot_of(const Tensor& numbers) {
    float* const first = numbers.as<float>();
    return {.scale = first, .amax = first + 1, .used_scale = first + 2, .scale_inv = first + 3};
  }
  Outcome outcome(Fp8Casts& casts, const EncodedTensor& source, Format through, const Cast& cast) {
    const DeviceMatrix rows = codes(cast.type),
                       columns(device_, *allocator_, HostMatrix(cast.type, {c_.cols, c_.rows, 16})),
                       slot = numbers();
    casts.cast({.source = source,
                .through = through,
                .target = cast.into == CastInto::kTransposed ? Tensor{} : Tensor(rows),
                .transposed = cast.into == CastInto::kRows ? Tensor{} : Tensor(columns),
                .slot = slot_of(slot),
                .kind = cast.kind});
    return {rows.fetched(), columns.fetched(), slot.fetched()};
  }

  Device& device_;
  std::unique_ptr<Allocator> allocator_;
  LlamaOps& ops_;
  ComputedCase c_;
};

// Runs everything on a device, with the given operations.
inline void expect_equal_casts(Device& device, LlamaOps& ops, const ComputedCase& c) {
  for (const Format through : {Format::kBF16, Format::kF32}) {
    SCOPED_TRACE(testing::Message() << "through " << name_of(through));
    ComputedCastTrial trial(device, ops, c);
    for (const CastInto into : {CastInto::kRows, CastInto::kTransposed, CastInto::kBoth})
      trial.expect_equal({.through = through, .into = into});
    for (const Fp8CastKind kind : {Fp8CastKind::kNoFold, Fp8CastKind::kAgain})
      trial.expect_equal({.through = through, .kind = kind});
    trial.expect_equal({.through = through, .type = DType::kE5M2});
    trial.expect_equal_amax(through);
    for (const Fp8Recipe recipe : {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent})
      trial.expect_equal_scaling(recipe, through);
  }
}

}  // namespace mpt::test
