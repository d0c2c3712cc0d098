// FP8 scales: the golden updates of delayed scaling, the data that casts gather and record, the
// current recipe.
#include "precision/fp8_scaling.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "core/float_format.h"
#include "device/backends.h"
#include "support/host_matrix.h"

namespace mpt {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Options {
  DType format = DType::kE4M3;
  int64_t slots = 1;
  PrecisionConfig config;
};

PrecisionConfig config_of(int64_t history, AmaxAlgorithm algorithm = AmaxAlgorithm::kMax,
                          int64_t margin = 0) {
  PrecisionConfig config;
  config.fp8_history = history;
  config.fp8_amax_algo = algorithm;
  config.fp8_margin = margin;
  return config;
}

// A scaling that receives tensors of one row.
class Scales {
 public:
  explicit Scales(const Options& options)
      : format_(options.format),
        scaling_({.name = "forward",
                  .format = options.format,
                  .slots = options.slots,
                  .config = options.config},
                 *device_, *allocator_) {}

  std::vector<uint8_t> cast(const std::vector<float>& values, Fp8CastKind kind = Fp8CastKind::kFold,
                            int64_t slot = 0) {
    const test::HostMatrix source = row_of(values);
    std::vector<uint8_t> codes(values.size());
    const auto n = int64_t(codes.size());
    const Tensor target{reinterpret_cast<std::byte*>(codes.data()), format_, 1, n, n};
    scaling_.cast(slot, std::array{Fp8Part{.source = encoded_view(source), .target = target}},
                  kind);
    return codes;
  }
  void observe(const std::vector<float>& values, Fp8CastKind kind) {
    const test::HostMatrix source = row_of(values);
    scaling_.observe(0, std::array{Fp8Part{.source = encoded_view(source)}}, kind);
  }
  void update(float amax, int64_t slot = 0) {
    cast({amax}, Fp8CastKind::kFold, slot);
    scaling_.roll();
  }
  [[nodiscard]] std::vector<float> history(int64_t slot = 0) const {
    const Tensor all = scaling_.named_states().at(0).tensor;
    std::vector<float> column;
    for (int64_t i = 0; i < all.rows; ++i) column.push_back(all.as<float>()[i * all.stride + slot]);
    return column;
  }
  [[nodiscard]] Fp8SlotState state(int64_t slot = 0) const {
    return scaling_.slot_states()[size_t(slot)];
  }
  [[nodiscard]] uint32_t scale_bits(int64_t slot = 0) const { return bits_of(state(slot).scale); }
  [[nodiscard]] float scale_inv(int64_t slot = 0) const { return *scaling_.scale_inv(slot); }
  Fp8Scaling& scaling() { return scaling_; }

 private:
  static test::HostMatrix row_of(const std::vector<float>& values) {
    test::HostMatrix source(DType::kF32, {.rows = 1, .cols = int64_t(values.size())});
    source.fill([&](int64_t, int64_t c) { return values[size_t(c)]; });
    return source;
  }

  DType format_;
  std::unique_ptr<Device> device_ = make_cpu_device(2);
  std::unique_ptr<Allocator> allocator_ = device_->make_allocator();
  Fp8Scaling scaling_;
};

TEST(Fp8Scaling, StartsAtOne) {
  const Scales scales({.config = config_of(4)});
  EXPECT_EQ(scales.state().scale, 1);
  EXPECT_EQ(scales.scale_inv(), 1);
  EXPECT_EQ(scales.history(), (std::vector<float>{0, 0, 0, 0}));
}

// docs/numerics.md "Delayed scaling", the table for L = 4.
TEST(Fp8Scaling, GoldenHistory) {
  struct Row {
    float amax;
    uint32_t scale;
    std::vector<float> history;
  };
  const std::vector<Row> rows{
      {2, 0x43600000, {0, 0, 0, 2}},         {0, 0x43600000, {0, 0, 0, 2}},
      {1, 0x43600000, {0, 0, 2, 1}},         {0.5, 0x43600000, {0, 2, 1, 0.5}},
      {0.25, 0x43600000, {0, 1, 0.5, 0.25}}, {0.125, 0x43e00000, {0, 0.5, 0.25, 0.125}},
      {3, 0x43155555, {0, 0.25, 0.125, 3}},  {kInf, 0x43155555, {0, 0.125, 3, kInf}},
      {1, 0x43155555, {0, 3, kInf, 1}}};
  Scales scales({.config = config_of(4)});
  for (const Row& row : rows) {
    scales.update(row.amax);
    EXPECT_EQ(scales.scale_bits(), row.scale) << row.amax;
    EXPECT_EQ(scales.history(), row.history) << row.amax;
    EXPECT_EQ(scales.state().last_amax, row.amax);
  }
  EXPECT_EQ(scales.state().frozen, 2);
  EXPECT_EQ(scales.state().history_amax, kInf);
  scales.update(1), scales.update(1);
  EXPECT_EQ(scales.state().frozen, 4);
  scales.update(1);
  EXPECT_EQ(scales.state().frozen, 4) << "infinity has rolled out";
  EXPECT_EQ(scales.state().scale, 448);
}

// The inverse is that of the bytes, and moves only with the next cast.
TEST(Fp8Scaling, GoldenInverses) {
  Scales scales({.config = config_of(4)});
  scales.update(2);
  EXPECT_EQ(scales.scale_inv(), 1);
  scales.cast({1});
  EXPECT_EQ(bits_of(scales.scale_inv()), 0x3b924925u);
  Scales eighth({.config = config_of(4)});
  eighth.update(1);
  eighth.cast({1});
  EXPECT_EQ(bits_of(eighth.scale_inv()), 0x3b124925u);
}

TEST(Fp8Scaling, GoldenSingles) {
  struct Single {
    float amax;
    uint32_t e4m3, e5m2;
  };
  for (const auto& [amax, e4m3, e5m2] :
       {Single{0.0437f, 0x46202ede, 0x49a02ede}, Single{17.25f, 0x41cfc4a3, 0x454fc4a3},
        Single{1e-37f, 0x7f7fffff, 0x7f7fffff}}) {
    for (const DType format : {DType::kE4M3, DType::kE5M2}) {
      Scales scales({.format = format, .config = config_of(1024)});
      scales.update(-amax);
      EXPECT_EQ(scales.scale_bits(), format == DType::kE4M3 ? e4m3 : e5m2) << amax;
    }
  }
}

TEST(Fp8Scaling, HistoryOfOneFollowsTheLastAmax) {
  Scales scales({.config = config_of(1)});
  for (const float amax : {2.0f, 8.0f, 0.5f}) {
    scales.update(amax);
    EXPECT_EQ(scales.state().scale, 448 / amax);
    EXPECT_EQ(scales.history(), std::vector<float>{0});
  }
  scales.update(0);
  EXPECT_EQ(scales.state().scale, 896);
}

TEST(Fp8Scaling, MostRecentAndMargin) {
  Scales scales({.config = config_of(4, AmaxAlgorithm::kMostRecent, 3)});
  scales.update(16);
  EXPECT_EQ(scales.state().scale, 448.0f / 8 / 16);
  scales.update(0.5);
  EXPECT_EQ(scales.state().scale, 448.0f / 8 / 0.5f);
  EXPECT_EQ(scales.history(), (std::vector<float>{0, 0, 16, 0.5}));
  scales.update(kInf);
  EXPECT_EQ(scales.state().scale, 112);
  scales.update(2);
  EXPECT_EQ(scales.state().scale, 28);
  Scales below({.config = config_of(2, AmaxAlgorithm::kMax, -1)});
  below.update(448);
  EXPECT_EQ(below.state().scale, 2);
}

TEST(Fp8Scaling, AmaxIsOfUnscaledValuesAndIgnoresNaN) {
  Scales scales({.config = config_of(4)});
  scales.update(2);
  scales.cast({0.25f, -3.0f, kNaN, -kNaN});
  scales.cast({1.0f});
  EXPECT_EQ(scales.history()[0], 3);
  scales.cast({kNaN});
  EXPECT_EQ(scales.history()[0], 3);
}

TEST(Fp8Scaling, CastsAreRoundedProducts) {
  for (const DType format : {DType::kE4M3, DType::kE5M2}) {
    Scales scales({.format = format, .config = config_of(4)});
    scales.update(3);
    const float scale = scales.state().scale;
    std::vector<float> values{0, -0.0f, 1, -2.5f, 3, 4, -1e30f, kInf, -kInf, kNaN, 1e-30f, 1e-6f};
    for (int i = 0; i < 700; ++i) values.push_back(float(std::sin(double(i))) * 3);
    const std::vector<uint8_t> codes = scales.cast(values);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t want = format == DType::kE4M3 ? round_to<kE4M3>(values[i] * scale, Nearest{})
                                                  : round_to<kE5M2>(values[i] * scale, Nearest{});
      ASSERT_EQ(codes[i], want) << values[i];
    }
    EXPECT_EQ(codes[7], format == DType::kE4M3 ? 0x7E : 0x7B) << "infinity saturates";
  }
}

TEST(Fp8Scaling, KindsOfCasts) {
  Scales scales({.config = config_of(4)});
  scales.update(2);
  const std::vector<float> values{0.3f, -5.0f, 0.01f};
  const std::vector<uint8_t> first = scales.cast(values, Fp8CastKind::kNoFold);
  EXPECT_EQ(scales.history()[0], 0) << "evaluation is not seen";
  EXPECT_EQ(scales.cast(values, Fp8CastKind::kFold), first);
  EXPECT_EQ(scales.history()[0], 5);
  const float inverse = scales.scale_inv();
  scales.scaling().roll();
  EXPECT_NE(scales.state().scale, 224);
  EXPECT_EQ(scales.cast(values, Fp8CastKind::kAgain), first) << "with the scale of the bytes";
  EXPECT_EQ(scales.scale_inv(), inverse);
  EXPECT_EQ(scales.history()[0], 0);
  EXPECT_NE(scales.cast(values, Fp8CastKind::kNoFold), first);
}

// An observed tensor is cast later, as often as needed, to the codes that an immediate cast would
// have given; the slot is that of the cast.
TEST(Fp8Scaling, ObservingIsCastingWithoutCodes) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent})
    for (const Fp8CastKind kind : {Fp8CastKind::kFold, Fp8CastKind::kNoFold}) {
      PrecisionConfig config = config_of(4);
      config.fp8_recipe = recipe;
      Scales at_once({.config = config}), later({.config = config});
      at_once.update(3), later.update(3);
      for (const std::vector<float>& values :
           {std::vector<float>{2}, {0.3f, -5, 0.01f}, {kNaN, 0.25f}, {0, 0}, {kInf, 1}, {1, 7}}) {
        const std::vector<uint8_t> codes = at_once.cast(values, kind);
        later.observe(values, kind);
        at_once.scaling().roll(), later.scaling().roll();
        for (int i = 0; i < 2; ++i) EXPECT_EQ(later.cast(values, Fp8CastKind::kAgain), codes);
        EXPECT_EQ(bits_of(later.scale_inv()), bits_of(at_once.scale_inv()));
        EXPECT_EQ(later.scale_bits(), at_once.scale_bits());
        EXPECT_EQ(later.state().last_amax, at_once.state().last_amax);
        EXPECT_EQ(later.state().history_amax, at_once.state().history_amax);
        EXPECT_EQ(later.state().frozen, at_once.state().frozen);
      }
    }
}

TEST(Fp8Scaling, SlotsAreIndependent) {
  Scales scales({.slots = 3, .config = config_of(4)});
  scales.cast({2}, Fp8CastKind::kFold, 0);
  scales.cast({8}, Fp8CastKind::kFold, 2);
  scales.scaling().roll();
  EXPECT_EQ(scales.state(0).scale, 224);
  EXPECT_EQ(scales.state(1).scale, 1);
  EXPECT_EQ(scales.state(2).scale, 56);
  EXPECT_EQ(scales.history(1), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(scales.history(2), (std::vector<float>{0, 0, 0, 8}));
}

// docs/numerics.md "Current scaling".
TEST(Fp8Scaling, CurrentRecipe) {
  PrecisionConfig config;
  config.fp8_recipe = Fp8Recipe::kCurrent;
  Scales scales({.config = config});
  const auto scale_for = [&](const std::vector<float>& values) {
    scales.cast(values);
    return scales.state().scale;
  };
  EXPECT_EQ(scale_for({1, -4}), 112);
  EXPECT_EQ(scales.scale_inv(), 1 / 112.0f);
  EXPECT_EQ(scale_for({0.5f}), 896) << "nothing is remembered";
  EXPECT_EQ(scale_for({0, 0}), 1);
  EXPECT_EQ(scale_for({kInf, 2}), 1);
  EXPECT_EQ(scale_for({kNaN}), 1);
  EXPECT_EQ(scale_for({1e-37f}), std::numeric_limits<float>::max());
  EXPECT_TRUE(scales.scaling().named_states().empty());
  scales.scaling().roll();
  EXPECT_EQ(scales.state().scale, std::numeric_limits<float>::max());
}

// Parts of one operand share the largest of all.
TEST(Fp8Scaling, PartsShareAScale) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kDelayed, Fp8Recipe::kCurrent}) {
    PrecisionConfig config = config_of(2);
    config.fp8_recipe = recipe;
    const auto device = make_cpu_device(1);
    const auto allocator = device->make_allocator();
    Fp8Scaling scaling({.name = "forward", .format = DType::kE4M3, .slots = 1, .config = config},
                       *device, *allocator);
    test::HostMatrix small(DType::kF32, {1, 3}), large(DType::kBF16, {2, 3});
    small.fill([](int64_t, int64_t) { return 0.5f; });
    large.fill([](int64_t, int64_t) { return -7.0f; });
    const Tensor codes = allocator->tensor(kScratchMemory, DType::kE4M3, 3, 3);
    const std::array parts{Fp8Part{.source = encoded_view(large), .target = codes.row_range(0, 2)},
                           Fp8Part{.source = encoded_view(small), .target = codes.row_range(2, 1)}};
    scaling.cast(0, parts, Fp8CastKind::kFold);
    if (recipe == Fp8Recipe::kDelayed) scaling.roll();
    EXPECT_EQ(scaling.slot_states()[0].scale, 64);
    scaling.cast(0, parts, Fp8CastKind::kFold);
    EXPECT_EQ(codes.as<uint8_t>()[0], 0xFE);
    EXPECT_EQ(codes.as<uint8_t>()[8], (round_to<kE4M3>(32.0f, Nearest{})));
  }
}

// Codes in rows, transposed, or both: the same bytes, and nothing around them changes.
TEST(Fp8Scaling, TransposedCodesAreTheSame) {
  for (const auto& [rows, cols, padding] :
       {std::array<int64_t, 3>{1, 1, 0}, {16, 16, 0}, {3, 300, 5}, {33, 17, 0}, {2, 512, 16}}) {
    Scales scales({.config = config_of(4)});
    scales.update(3);
    test::HostMatrix source(DType::kBF16, {rows, cols, padding});
    source.fill([](int64_t r, int64_t c) { return float(std::sin(double(r * 1000 + c))) * 3; });
    const test::HostMatrix both(DType::kE4M3, {rows, cols, padding}),
        alone = both, both_transposed(DType::kE4M3, {cols, rows, 2 * padding}),
        alone_transposed = both_transposed;
    const auto cast = [&](const Tensor& target, const Tensor& transposed) {
      scales.scaling().cast(
          0,
          std::array{Fp8Part{
              .source = encoded_view(source.view()), .target = target, .transposed = transposed}},
          Fp8CastKind::kNoFold);
    };
    cast(both, both_transposed);
    cast(alone, {});
    cast({}, alone_transposed);
    EXPECT_TRUE(both == alone);
    EXPECT_TRUE(both_transposed == alone_transposed);
    EXPECT_TRUE(both.padding_untouched() && both_transposed.padding_untouched());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        const uint32_t want = round_to<kE4M3>(source.at(r, c) * scales.state().scale, Nearest{});
        ASSERT_EQ(both.bits(r, c), want);
        ASSERT_EQ(both_transposed.bits(c, r), want);
      }
  }
}

TEST(Fp8Scaling, TargetsThatDoNotFitAreRefused) {
  Scales scales({.config = config_of(4)});
  const test::HostMatrix source(DType::kBF16, {16, 32}), good(DType::kE4M3, {16, 32}),
      turned(DType::kE4M3, {32, 16}), other(DType::kE5M2, {32, 16});
  const auto cast = [&](const Tensor& target, const Tensor& transposed) {
    scales.scaling().cast(
        0,
        std::array{Fp8Part{
            .source = encoded_view(source.view()), .target = target, .transposed = transposed}},
        Fp8CastKind::kNoFold);
  };
  EXPECT_NO_THROW(cast(good, turned));
  EXPECT_THROW(cast(turned, {}), LogicError);
  EXPECT_THROW(cast({}, good), LogicError);
  EXPECT_THROW(cast(good, other), LogicError);
  EXPECT_THROW(cast({}, {}), LogicError);
}

TEST(Fp8Scaling, ThroughBf16RoundsTwice) {
  Scales scales({.config = config_of(2)});
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  // Just above the tie between 16 and 18, which bf16 rounds down to the tie.
  test::HostMatrix source(DType::kF32, {1, 1});
  source.set(0, 0, 17.0001f);
  const auto cast = [&](Format through) {
    const Tensor code = allocator->tensor(kScratchMemory, DType::kE4M3, 1, 1);
    scales.scaling().cast(
        0, std::array{Fp8Part{.source = encoded_view(source), .target = code, .through = through}},
        Fp8CastKind::kNoFold);
    return decode<kE4M3>(code.as<uint8_t>()[0]);
  };
  EXPECT_EQ(cast(Format::kF32), 18);
  EXPECT_EQ(cast(Format::kBF16), 16);
}

}  // namespace
}  // namespace mpt
