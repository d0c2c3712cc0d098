// Apollo-E: its projection, its passes against FP64, its factors in closed form, its steps, and its
// bytes.
#include "optim/apollo_e.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include <gtest/gtest.h>

#include "core/normal.h"
#include "core/random.h"
#include "optim/optimizer_fixture.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Draws;
using test::element;
using test::fill_tensor;
using test::FlatConfig;
using test::OptimizerRun;

// An M+Adam whose steps are only those of the multiplicative branch.
FlatConfig apollo_config(ApolloE sharing, int64_t rank) {
  FlatConfig config;
  config.rule = "m_plus_adam";
  config.lr_additive = 0;
  config.lr_multiplicative = 1e-3;
  config.beta2 = 0.95;
  config.eps = 1e-9;
  config.weight_decay_additive = 0;
  config.clip_multiplicative_direction = 0;
  config.clip_relative_step = 0;
  config.apollo_e = sharing;
  config.apollo_e_rank = rank;
  config.apollo_e_gap = 3;
  return config;
}

constexpr MatrixShape kShapes[] = {{40, 24},  {24, 40}, {16, 16}, {70, 300},
                                   {300, 70}, {1, 9},   {9, 1}};

test::RunSetup fp32_setup(const FlatConfig& config) {
  return {.config = config,
          .options = {.state = Format::kF32, .seed = 99},
          .encoding = {.format = WeightFormat::kF32}};
}

// A second Apollo-E in FP64, from the weights, gradients and projection of a run.
class Reference {
 public:
  Reference(const FlatConfig& config, const OptimizerRun& run) : config_(config) {
    const Tensor& w = run.weights();
    rows_ = w.rows >= w.cols;
    channels_ = std::max(w.rows, w.cols);
    depth_ = std::min(w.rows, w.cols);
    second_.resize(size_t(channels_ * config.apollo_e_rank));
    tolerance_.resize(size_t(channels_));
  }

  void step(const OptimizerRun& run, int64_t t, float grad_scale) {
    const Tensor p = run.state("projection/w0");
    const int64_t rank = config_.apollo_e_rank;
    const double b2 = double(float(config_.beta2));
    const double correction = 1 - std::pow(b2, double(t)),
                 spread = std::sqrt(double(depth_) / double(rank));
    normalised.assign(size_t(channels_), 0);
    plain.assign(size_t(channels_), 0);
    for (int64_t j = 0; j < channels_; ++j)
      for (int64_t k = 0; k < rank; ++k) {
        double r = 0, size = 0;
        for (int64_t i = 0; i < depth_; ++i) {
          const double term = double(element(p, k, i)) * gradient(run, i, j, grad_scale);
          r += term;
          size += std::fabs(term);
        }
        tolerance_[size_t(j)] = std::max(tolerance_[size_t(j)], 1e-5 * size / std::fabs(r));
        double& v = second_[size_t(j * rank + k)];
        v = b2 * v + (1 - b2) * r * r;
        const double n = r / (std::sqrt(v / correction) + config_.eps * spread);
        normalised[size_t(j)] += n * n;
        plain[size_t(j)] += r * r;
      }
  }
  // Returns n of element (row, col).
  [[nodiscard]] double direction(const OptimizerRun& run, int64_t row, int64_t col,
                                 float grad_scale) const {
    const double alpha = config_.apollo_e_scale == ApolloEScale::kRms
                             ? std::sqrt(double(depth_) / double(config_.apollo_e_rank))
                             : 1.0;
    return alpha * shared(rows_ ? row : col) * at(run, row, col, grad_scale);
  }
  // Relative error of that, from an error in R of 1e-5 of the magnitudes in a sum: the worst so
  // far.
  [[nodiscard]] double tolerance(int64_t row, int64_t col) const {
    if (config_.apollo_e == ApolloE::kMini)
      return *std::max_element(tolerance_.begin(), tolerance_.end());
    return tolerance_[size_t(rows_ ? row : col)];
  }

 private:
  [[nodiscard]] static double at(const OptimizerRun& run, int64_t row, int64_t col,
                                 float grad_scale) {
    return std::numbers::ln2 * double(element(run.weights(), row, col)) *
           (double(grad_scale) * double(element(run.gradient(), row, col)));
  }
  [[nodiscard]] double gradient(const OptimizerRun& run, int64_t i, int64_t j,
                                float grad_scale) const {
    return rows_ ? at(run, j, i, grad_scale) : at(run, i, j, grad_scale);
  }
  [[nodiscard]] double shared(int64_t j) const {
    double n = normalised[size_t(j)], r = plain[size_t(j)];
    if (config_.apollo_e == ApolloE::kMini) {
      n = r = 0;
      for (const double x : normalised) n += x;
      for (const double x : plain) r += x;
    }
    return r > 0 ? std::sqrt(n / r) : 0.0;
  }

  const FlatConfig& config_;
  bool rows_;
  int64_t channels_, depth_;
  std::vector<double> second_, tolerance_, normalised, plain;
};

void start(OptimizerRun& run, uint64_t seed) {
  Draws draws(seed);
  fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.signed_binades(-8, -4); });
}
void draw_gradient(OptimizerRun& run, uint64_t seed) {
  Draws draws(seed);
  fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(1e-3); });
}

// The relative change of weights is that of the FP64 reference, over two refreshes of the
// projection.
void expect_reference_steps(const FlatConfig& config, MatrixShape shape) {
  OptimizerRun run(fp32_setup(config), {{.rows = shape.rows, .cols = shape.cols}});
  Reference reference(config, run);
  start(run, 1);
  for (int64_t t = 1; t <= 5; ++t) {
    draw_gradient(run, 10 + uint64_t(t));
    // The run before this step, for comparison: the reference reads the projection after the step.
    const std::vector<float> before = run.decoded(0);
    run.step(t, 0.7f);
    const std::vector<float> after = run.decoded(0);
    run.encode(0, [&](int64_t r, int64_t c) { return before[size_t(r * shape.cols + c)]; });
    reference.step(run, t, 0.7f);
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < shape.cols; ++c) {
        const auto i = size_t(r * shape.cols + c);
        const double w = before[i], n = reference.direction(run, r, c, 0.7f);
        const double sign = w < 0 ? -1 : 1;
        const double change = -1e-3 * sign * n;
        ASSERT_NEAR(double(after[i]) - w, change,
                    reference.tolerance(r, c) * std::fabs(change) + 0x1p-24 * std::fabs(w + change))
            << "t " << t << " at " << r << "," << c;
      }
    run.encode(0, [&](int64_t r, int64_t c) { return after[size_t(r * shape.cols + c)]; });
  }
}

TEST(ApolloE, StepsAgreeWithFp64) {
  for (const MatrixShape shape : kShapes)
    for (const int64_t rank : {1, 4, 5})
      for (const ApolloE sharing : {ApolloE::kMini, ApolloE::kChannel})
        for (const ApolloEScale scale : {ApolloEScale::kRms, ApolloEScale::kAsProjected}) {
          if (rank > std::min(shape.rows, shape.cols)) continue;
          FlatConfig config = apollo_config(sharing, rank);
          config.apollo_e_scale = scale;
          SCOPED_TRACE(fmt::format("[{},{}] rank {} {} {}", shape.rows, shape.cols, rank,
                                   name_of(sharing), name_of(scale)));
          expect_reference_steps(config, shape);
        }
}

// R itself: V after a first step is (1 - b2) R^2. Within 1e-5 of the sum of the magnitudes of its
// terms.
TEST(ApolloE, ProjectionsAgreeWithFp64) {
  for (const MatrixShape shape : {MatrixShape{512, 300}, {300, 512}, {1376, 512}, {512, 1376}}) {
    FlatConfig config = apollo_config(ApolloE::kChannel, 4);
    config.beta2 = 0;  // V is R^2
    OptimizerRun run(fp32_setup(config), {{.rows = shape.rows, .cols = shape.cols}});
    start(run, 2);
    draw_gradient(run, 3);
    const std::vector<float> w = run.decoded(0);
    run.step(1);
    const Tensor p = run.state("projection/w0"), v = run.state("v_r/w0");
    const ProjectionShape sides = projection_shape(shape.rows, shape.cols);
    ASSERT_EQ(v.rows, sides.channels);
    ASSERT_EQ(v.cols, 4);
    ASSERT_EQ(p.rows, 4);
    ASSERT_EQ(p.cols, sides.depth);
    for (int64_t j = 0; j < sides.channels; ++j)
      for (int64_t k = 0; k < 4; ++k) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < sides.depth; ++i) {
          const int64_t row = sides.axis == ChannelAxis::kRows ? j : i;
          const int64_t col = sides.axis == ChannelAxis::kRows ? i : j;
          const double term = double(element(p, k, i)) * std::numbers::ln2 *
                              double(w[size_t(row * shape.cols + col)]) *
                              double(element(run.gradient(), row, col));
          sum += term;
          size += std::fabs(term);
        }
        ASSERT_NEAR(std::sqrt(double(element(v, j, k))), std::fabs(sum), 1e-5 * size)
            << j << " " << k;
      }
  }
}

// The rule sees exact weights, and so does the projection: R of BF16 weights whose FP32 values are
// kept is that of FP32 weights.
TEST(ApolloE, ProjectsWhatTheRuleSees) {
  const FlatConfig config = apollo_config(ApolloE::kChannel, 4);
  for (const WeightRounding rounding : {WeightRounding::kRemainder, WeightRounding::kMaster}) {
    OptimizerRun exact(fp32_setup(config), {{.rows = 40, .cols = 24}});
    test::RunSetup setup = fp32_setup(config);
    setup.config.weight_rounding = rounding;
    setup.encoding = {.format = WeightFormat::kBF16};
    OptimizerRun kept(setup, {{.rows = 40, .cols = 24}});
    for (OptimizerRun* const run : {&exact, &kept}) {
      Draws draws(6);
      fill_tensor(run->weights(), [&](int64_t, int64_t) {
        return rounded_to<bf16>(float(draws.signed_binades(-8, -4)));
      });
      run->optimizer().weights_initialized();
    }
    for (int64_t t = 1; t <= 3; ++t) {
      for (OptimizerRun* const run : {&exact, &kept}) {
        draw_gradient(*run, 30 + uint64_t(t));
        run->step(t);
      }
      const Tensor v = exact.state("v_r/w0"), same = kept.state("v_r/w0");
      for (int64_t i = 0; i < v.elements(); ++i)
        ASSERT_EQ(same.as<float>()[i], v.as<float>()[i]) << name_of(rounding) << " at " << i;
    }
  }
}

// With one dimension per channel, |N| / |R| is 1 / (sqrt(V^) + eps_R), for any R.
TEST(ApolloE, RankOneChannelFactorInClosedForm) {
  for (const MatrixShape shape : {MatrixShape{40, 24}, {24, 40}}) {
    const FlatConfig config = apollo_config(ApolloE::kChannel, 1);
    OptimizerRun run(fp32_setup(config), {{.rows = shape.rows, .cols = shape.cols}});
    start(run, 4);
    for (int64_t t = 1; t <= 4; ++t) {
      draw_gradient(run, 20 + uint64_t(t));
      const std::vector<float> before = run.decoded(0);
      run.step(t);
      const Tensor v = run.state("v_r/w0");
      const double spread = std::sqrt(24.0);
      for (int64_t r = 0; r < shape.rows; ++r)
        for (int64_t c = 0; c < shape.cols; ++c) {
          const double corrected = double(element(v, shape.rows == 40 ? r : c, 0)) /
                                   (1 - std::pow(double(float(config.beta2)), double(t)));
          const double s = 1 / (std::sqrt(corrected) + config.eps * spread);
          const double w = before[size_t(r * shape.cols + c)];
          const double n =
              spread * s * std::numbers::ln2 * w * double(element(run.gradient(), r, c));
          // Ten roundings of the factor and one of the weight.
          const double change = -1e-3 * (w < 0 ? -1 : 1) * n;
          ASSERT_NEAR(double(element(run.weights(), r, c)) - w, change,
                      10 * 0x1p-24 * std::fabs(change) + 0x1p-24 * std::fabs(w + change));
        }
    }
  }
}

// Gradients of zero have R = 0: factors are 0, not NaN, and weights stay.
TEST(ApolloE, ZeroGradients) {
  for (const ApolloE sharing : {ApolloE::kMini, ApolloE::kChannel}) {
    OptimizerRun run(fp32_setup(apollo_config(sharing, 4)), {{.rows = 20, .cols = 33}});
    start(run, 5);
    const std::vector<float> before = run.decoded(0);
    for (int64_t t = 1; t <= 3; ++t) run.step(t);
    EXPECT_EQ(run.decoded(0), before);
    // Only one channel.
    run.gradient().as<float>()[7] = 1e-3f;
    run.step(4);
    for (int64_t i = 0; i < 20 * 33; ++i)
      ASSERT_EQ(run.weights().as<float>()[i] == before[size_t(i)], i != 7) << i;
  }
}

// Gradients far below what FP32 can square.
TEST(ApolloE, TinyGradients) {
  FlatConfig config = apollo_config(ApolloE::kMini, 4);
  config.eps = 1e-30;
  OptimizerRun run(fp32_setup(config), {{.rows = 20, .cols = 33}});
  start(run, 6);
  Draws draws(7);
  fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(1e-14); });
  const std::vector<float> before = run.decoded(0);
  run.step(1);
  double change = 0;
  for (size_t i = 0; i < before.size(); ++i)
    change += std::pow(double(run.weights().as<float>()[i]) - double(before[i]), 2);
  // Directions have an RMS of about 1: in a first step every N_jk is 1, and |R|^2 is |G|^2 on
  // average.
  EXPECT_NEAR(std::sqrt(change / double(before.size())), 1e-3, 0.4e-3);
}

TEST(ApolloE, ProjectionIsDrawnByItsCoordinates) {
  const ProjectionDraw draw{.seed = 42, .tensor = 7, .refresh = 3, .rank = 6, .depth = 11};
  const std::vector<float> p = draw_projection(draw);
  ASSERT_EQ(p.size(), 66u);
  for (uint32_t i = 0; i < 11; ++i)
    for (uint32_t k = 0; k < 6; ++k) {
      const PhiloxBlock block = RandomCounter{42, 7, i, 3, kProjectionStream}.block(k / 4);
      EXPECT_EQ(p[k * 11 + i], float(normals_of(block)[k % 4] / std::sqrt(6.0)));
    }
}

// New at updates 1, 1 + gap, 1 + 2 gap, by the number of the refresh; V stays.
TEST(ApolloE, ProjectionIsRefreshedEveryGapUpdates) {
  OptimizerRun run(fp32_setup(apollo_config(ApolloE::kChannel, 2)), {{.rows = 8, .cols = 5}});
  start(run, 8);
  draw_gradient(run, 9);
  for (int64_t t = 1; t <= 8; ++t) {
    run.step(t);
    const auto refresh = uint32_t((t - 1) / 3);
    const std::vector<float> expected =
        draw_projection({.seed = 99, .tensor = 1, .refresh = refresh, .rank = 2, .depth = 5});
    const Tensor p = run.state("projection/w0");
    for (int64_t i = 0; i < 10; ++i) ASSERT_EQ(p.as<float>()[i], expected[size_t(i)]) << t;
  }
}

// Linear layers only; everything else keeps its dense v_e.
TEST(ApolloE, OnlyLinearLayersAreProjected) {
  const OptimizerRun run(fp32_setup(apollo_config(ApolloE::kMini, 2)),
                         {{.rows = 8, .cols = 5},
                          {.cols = 9, .rank = 1},
                          {.rows = 8, .cols = 5, .matrix_kind = ParamKind::kEmbedding},
                          {.rows = 8, .cols = 5, .matrix_kind = ParamKind::kHead}});
  EXPECT_THROW(std::ignore = run.state("v_e/w0"), LogicError);
  EXPECT_EQ(run.state("v_r/w0").elements(), 16);
  for (const char* name : {"v_e/w1", "v_e/w2", "v_e/w3"}) EXPECT_GT(run.state(name).elements(), 0);
  EXPECT_THROW(std::ignore = run.state("v_r/w2"), LogicError);
}

struct ModelShape {
  int64_t hidden, intermediate, layers;
  std::array<int64_t, 4> bytes;  // of states of rank 1, 4, 8, 16
};

std::vector<UpdateTarget> targets_of(const ModelShape& model, Allocator& allocator) {
  std::vector<UpdateTarget> targets;
  const auto add = [&](ParamKind kind, int64_t rows, int64_t cols) {
    const Tensor t = allocator.tensor(kWeightMemory, DType::kBF16, rows, cols);
    targets.push_back({.name = fmt::format("w{}", targets.size()),
                       .kind = kind,
                       .tensor_id = uint32_t(targets.size()),
                       .weights = encoded_view(t, kind == ParamKind::kNorm ? 1 : 2),
                       .gradient = t});
  };
  constexpr int64_t kVocabulary = 32000;
  add(ParamKind::kEmbedding, kVocabulary, model.hidden);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    for (int i = 0; i < 2; ++i) add(ParamKind::kNorm, 1, model.hidden);
    for (int i = 0; i < 4; ++i) add(ParamKind::kLinear, model.hidden, model.hidden);
    for (int i = 0; i < 2; ++i) add(ParamKind::kLinear, model.intermediate, model.hidden);
    add(ParamKind::kLinear, model.hidden, model.intermediate);
  }
  add(ParamKind::kNorm, 1, model.hidden);
  add(ParamKind::kHead, kVocabulary, model.hidden);
  return targets;
}

TEST(ApolloE, StateBytesOfThePublishedModels) {
  const ModelShape models[] = {
      {512, 1376, 8, {298160128, 299097088, 300346368, 302844928}},
      {768, 2048, 12, {635466240, 637567488, 640369152, 645972480}},
      {1024, 2736, 24, {1604918784, 1610526720, 1618003968, 1632958464}},
      {2048, 5461, 24, {5622411168, 5633617536, 5648559360, 5678443008}},
  };
  constexpr int64_t kRanks[] = {1, 4, 8, 16};
  const auto device = make_cpu_device(1);
  for (const ModelShape& model : models)
    for (const ApolloE sharing : {ApolloE::kMini, ApolloE::kChannel})
      for (size_t i = 0; i < 4; ++i) {
        PlanningAllocator allocator;
        FlatConfig config = apollo_config(sharing, kRanks[i]);
        config.clip_weight = 1;  // values that exist once per tensor do not count
        config.clip_weight_mode = ClipWeightMode::kInitRms;
        const Optimizer optimizer(config, {}, targets_of(model, allocator), *device, allocator);
        EXPECT_EQ(optimizer.optimizer_state_bytes(), model.bytes[i])
            << model.hidden << " rank " << kRanks[i];
      }
}

// Without Apollo-E: bytes per parameter.
TEST(ApolloE, StateBytesOfDenseStates) {
  const auto device = make_cpu_device(1);
  const ModelShape model{512, 1376, 8, {}};
  constexpr int64_t kParameters = 58073600;
  const auto bytes = [&](const FlatConfig& config, const OptimizerOptions& options) {
    PlanningAllocator allocator;
    return Optimizer(config, options, targets_of(model, allocator), *device, allocator)
        .optimizer_state_bytes();
  };
  FlatConfig config;
  config.rule = "adamw";
  EXPECT_EQ(bytes(config, {}), 4 * kParameters);
  EXPECT_EQ(bytes(config, {.state = Format::kF32}), 8 * kParameters);
  config.weight_rounding = WeightRounding::kKahan;
  EXPECT_EQ(bytes(config, {}), 6 * kParameters);
  config.weight_rounding = WeightRounding::kNearest;
  config.rule = "m_plus_adam";
  EXPECT_EQ(bytes(config, {}), 348441600);
  config.rule = "madam";
  EXPECT_EQ(bytes(config, {}), 2 * kParameters);
}

}  // namespace
}  // namespace mpt
