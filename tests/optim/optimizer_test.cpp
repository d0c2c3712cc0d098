// The Optimizer around its rules: first step, clipping, padding, decay by rank, states, formats.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/optimizer_fixture.h"
#include "optim/reference_rule.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Draws;
using test::element;
using test::fill_tensor;
using test::FlatConfig;
using test::optimizer_config;
using test::OptimizerRun;
using test::state_names;

std::vector<Json> every_rule() {
  Json scale = test::m_plus_adam_keys(), exponent = test::m_plus_adam_keys();
  scale["weight_decay_multiplicative"] = 0.1;
  scale["clip_exponent_step"] = 0.5;
  exponent["weight_decay_multiplicative"] = 0.1;
  exponent["weight_decay_multiplicative_mode"] = "exponent";
  Json limited = test::m_plus_adam_keys();
  limited["clip_weight"] = 2.0;
  limited["clip_weight_mode"] = "init_rms";
  return {test::adamw_keys(),
          {{"rule", "additive_twin"}, {"lr_additive", 1e-3}},
          {{"rule", "lion"}, {"lr_additive", 1e-3}},
          test::madam_keys(),
          test::m_plus_adam_keys(),
          scale,
          exponent,
          limited};
}

void fill(const Tensor& t, float x) {
  fill_tensor(t, [=](int64_t, int64_t) { return x; });
}

UpdateTarget target(const std::string& name, const Tensor& weights, const Tensor& gradient) {
  return {.name = name,
          .kind = ParamKind::kLinear,
          .tensor_id = 1,
          .weights = encoded_view(weights),
          .gradient = gradient};
}

// Fresh moments make m^ = g and v^ = g^2: the first step is lr (sign(g) |g| / (|g| + eps) + wd w),
// for any betas.
TEST(Optimizer, FirstStepOfAdamWInClosedForm) {
  Json keys = test::adamw_keys();
  keys["eps"] = 1e-3;
  keys["weight_decay_additive"] = 0.2;
  OptimizerRun run(optimizer_config(keys), {}, {{.rows = 2, .cols = 3}});
  Draws draws(31);
  fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.bell(1); });
  fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(0.01); });
  std::vector<double> expected;
  for (int64_t i = 0; i < 6; ++i) {
    const double w = element(run.weights(), i / 3, i % 3),
                 g = element(run.gradient(), i / 3, i % 3);
    expected.push_back(w - 1e-3 * (g / (std::fabs(g) + 1e-3) + 0.2 * w));
  }
  run.step(1);
  for (int64_t i = 0; i < 6; ++i) {
    const double w = expected[size_t(i)];
    // Ten roundings of a step of at most 2e-3, one of the weight.
    EXPECT_NEAR(element(run.weights(), i / 3, i % 3), w,
                10 * 0x1p-24 * 2e-3 + 0x1p-24 * std::fabs(w));
  }
}

TEST(Optimizer, FirstStepOfMPlusAdamInClosedForm) {
  Json keys = test::m_plus_adam_keys();
  keys["eps"] = 1e-12;
  keys["weight_decay_additive"] = 0.0;
  OptimizerRun run(optimizer_config(keys), {}, {{.cols = 4}});
  const float w0[] = {0.5f, -0.5f, 2.0f, -2.0f}, g0[] = {1.0f, 1.0f, -1.0f, 1.0f};
  fill_tensor(run.weights(), [&](int64_t, int64_t c) { return w0[c]; });
  fill_tensor(run.gradient(), [&](int64_t, int64_t c) { return g0[c]; });
  run.step(1);
  // Either branch moves by its rate against the gradient.
  for (int64_t c = 0; c < 4; ++c)
    EXPECT_NEAR(element(run.weights(), 0, c), w0[c] - 2e-3f * g0[c], 0x1p-22) << w0[c];
}

TEST(Optimizer, StepsCountFromOne) {
  OptimizerRun run(optimizer_config(test::adamw_keys()), {}, {{.cols = 4}});
  EXPECT_THROW(run.step(0), LogicError);
  EXPECT_THROW(run.step(-1), LogicError);
}

// Muon's states differ from tensor to tensor, so it is not among the rules of all tests.
TEST(Optimizer, GradScaleMultipliesTheGradient) {
  std::vector<Json> rules = every_rule();
  rules.push_back({{"rule", "muon"}, {"lr_additive", 1e-3}});
  for (const Json& keys : rules) {
    OptimizerRun scaled(optimizer_config(keys), {}, {{.rows = 2, .cols = 200}});
    OptimizerRun plain(optimizer_config(keys), {}, {{.rows = 2, .cols = 200}});
    for (OptimizerRun* run : {&scaled, &plain}) {
      Draws draws(32);
      fill_tensor(run->weights(), [&](int64_t, int64_t) { return draws.bell(0.1); });
      run->optimizer().weights_initialized();
      fill_tensor(run->gradient(), [&](int64_t, int64_t) {
        return (run == &plain ? 0.3f : 1.0f) * draws.bell(0.1);
      });
    }
    scaled.step(1, 0.3f);
    plain.step(1);
    EXPECT_EQ(scaled.everything(), plain.everything()) << keys;
  }
}

TEST(ClipScale, TheClippedNormIsTheClip) {
  for (const double clip : {0.25, 1.0, 3.0})
    for (const double norm : {3.5, 10.0, 1e6}) {
      // 1e-6 is added to the norm; the scale is rounded to fp32.
      EXPECT_NEAR(clip_scale(clip, norm) * norm, clip, clip * (1e-6 / norm + 0x1p-24));
    }
}

TEST(ClipScale, OffAndUnreached) {
  EXPECT_EQ(clip_scale(0, 1e10), 1.0f);
  EXPECT_EQ(clip_scale(0, 0), 1.0f);
  EXPECT_EQ(clip_scale(1, 0), 1.0f);
  EXPECT_EQ(clip_scale(1, 0.5), 1.0f);
  EXPECT_EQ(clip_scale(1, 0.999998), 1.0f);
  EXPECT_LT(clip_scale(1, 1.0), 1.0f);
  EXPECT_EQ(clip_scale(1e-30, 0), float(1e-30 / 1e-6));
}

// A NaN norm must never look like "nothing to clip".
TEST(ClipScale, NonFiniteNorms) {
  EXPECT_TRUE(std::isnan(clip_scale(1, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_EQ(clip_scale(1, std::numeric_limits<double>::infinity()), 0.0f);
}

// Through the optimizer: the gradient that the rule sees has the norm of the clip.
TEST(Optimizer, ClippedGradientHasTheNormOfTheClip) {
  Json keys = test::adamw_keys();
  keys["beta1"] = 0.0;  // m is the gradient of the step
  OptimizerRun run(optimizer_config(keys), {}, {{.rows = 3, .cols = 150}, {.cols = 70, .rank = 1}});
  Draws draws(33);
  for (const size_t i : {0, 1})
    fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.bell(5); });
  const double norm = run.optimizer().grad_norm();
  ASSERT_GT(norm, 50);
  run.step(1, clip_scale(2.5, norm));
  double sum = 0;
  for (const char* name : {"m/w0", "m/w1"}) {
    const Tensor m = run.state(name);
    for (int64_t r = 0; r < m.rows; ++r)
      for (int64_t c = 0; c < m.cols; ++c) sum += std::pow(element(m, r, c), 2);
  }
  EXPECT_NEAR(std::sqrt(sum), 2.5, 2.5 * (1e-6 / norm + 3 * 0x1p-24));
}

TEST(Optimizer, GradNormOfKnownTensors) {
  for (const DType gradient : {DType::kF32, DType::kBF16}) {
    OptimizerRun run(
        optimizer_config(test::adamw_keys()), {.gradient = gradient},
        {{.rows = 3, .cols = 129, .stride = 144}, {.cols = 1}, {.rows = 0, .cols = 8}});
    EXPECT_EQ(run.optimizer().grad_norm(), 0.0);
    fill(run.gradient(0), -2.0f);
    EXPECT_EQ(run.optimizer().grad_norm(), std::sqrt(3 * 129 * 4.0));
    fill(run.gradient(1), 3.0f);
    EXPECT_EQ(run.optimizer().grad_norm(), std::sqrt(3 * 129 * 4.0 + 9));
  }
}

TEST(Optimizer, GradNormShowsWhatIsNotFinite) {
  OptimizerRun run(optimizer_config(test::adamw_keys()), {}, {{.rows = 3, .cols = 129}});
  run.gradient().as<float>()[200] = INFINITY;
  EXPECT_EQ(run.optimizer().grad_norm(), INFINITY);
  run.gradient().as<float>()[201] = NAN;
  EXPECT_TRUE(std::isnan(run.optimizer().grad_norm()));
}

// Squares beyond fp32 must not overflow.
TEST(Optimizer, GradNormOfHugeAndTinyGradients) {
  OptimizerRun run(optimizer_config(test::adamw_keys()), {}, {{.cols = 4}});
  fill(run.gradient(), 1e30f);
  EXPECT_NEAR(run.optimizer().grad_norm(), 2 * double(1e30f), 1e15);
  fill(run.gradient(), 1e-38f);
  EXPECT_NEAR(run.optimizer().grad_norm(), 2 * double(1e-38f), 1e-53);
}

// Returns the whole storage of a tensor with padding, by rows of `stride`.
std::vector<float> storage(const Tensor& t) {
  std::vector<float> all;
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t c = 0; c < t.stride; ++c) all.push_back(element(t, r, c));
  return all;
}

// Logical [4, 133] within [7, 144]: padding columns and rows keep the bits of +0 through 20 steps.
TEST(Optimizer, PaddingStaysPlusZero) {
  for (const Json& keys : every_rule())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      OptimizerRun run(optimizer_config(keys), {dtype, dtype, dtype},
                       {{.rows = 4, .cols = 133, .stride = 144}});
      Draws draws(34);
      fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.bell(0.1); });
      run.optimizer().weights_initialized();
      for (int64_t t = 1; t <= 20; ++t) {
        fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(0.1); });
        run.step(t);
      }
      std::vector<Tensor> tensors{run.weights(), run.gradient()};
      for (const NamedTensor& named : run.optimizer().named_states())
        if (named.rank == 2) tensors.push_back(named.tensor);
      ASSERT_GE(tensors.size(), 3u);
      for (const Tensor& t : tensors) {
        const std::vector<float> all = storage(t);
        for (int64_t i = 0; i < std::ssize(all); ++i) {
          if (i % t.stride >= t.cols) {
            ASSERT_EQ(bits_of(all[size_t(i)]), 0u) << i;
          }
        }
      }
    }
}

// Updating physical padding along with the rest (zero weights, gradients and states) preserves the
// bits of +0.
TEST(Optimizer, ZerosThatAreUpdatedStayPlusZero) {
  for (const Json& keys : every_rule())
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      OptimizerRun run(optimizer_config(keys), {dtype, dtype, dtype}, {{.rows = 2, .cols = 130}});
      run.optimizer().weights_initialized();
      for (int64_t t = 1; t <= 20; ++t) run.step(t, 0.37f);
      for (const uint32_t bits : test::bits_of_tensor(run.weights())) ASSERT_EQ(bits, 0u);
      for (const std::string& name : state_names(optimizer_config(keys)))
        for (const uint32_t bits : test::bits_of_tensor(run.state(fmt::format("{}/w0", name))))
          ASSERT_EQ(bits, 0u);
    }
}

// Rows of a larger matrix (one of several fused parameters) are updated without touching their
// neighbors.
TEST(Optimizer, NeighboursInAFusedMatrixAreUntouched) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const Tensor w = allocator->tensor(kWeightMemory, DType::kF32, 9, 140);
  const Tensor g = allocator->tensor({"gradients"}, DType::kF32, 9, 140);
  for (const Tensor& t : {w, g}) fill(t, 0.5f);
  const auto middle = [](const Tensor& t) { return t.row_range(3, 2).columns(0, 133); };
  Optimizer optimizer(optimizer_config(test::adamw_keys()), {.state = Format::kF32},
                      {target("middle", middle(w), middle(g))}, *device, *allocator);
  optimizer.step({.t = 1, .lr_factor = 10});
  for (int64_t r = 0; r < 9; ++r)
    for (int64_t c = 0; c < 140; ++c)
      ASSERT_EQ(element(w, r, c) == 0.5f, r < 3 || r >= 5 || c >= 133) << r << " " << c;
}

// With gradients of zero, only the decay moves a weight.
float weight_after_decay(Json keys, int rank) {
  OptimizerRun run(optimizer_config(std::move(keys)), {}, {{.cols = 5, .rank = rank}});
  fill(run.weights(), 2.5f);
  run.optimizer().weights_initialized();
  run.step(1);
  return element(run.weights(), 0, 4);
}

TEST(Optimizer, DecayAppliesToMatricesUnlessConfigured) {
  Json additive = test::adamw_keys(), scale = test::m_plus_adam_keys(),
       exponent = test::m_plus_adam_keys();
  additive["weight_decay_additive"] = 0.5;
  for (Json* keys : {&scale, &exponent}) {
    (*keys)["weight_decay_additive"] = 0.0;
    (*keys)["weight_decay_multiplicative"] = 0.5;
  }
  exponent["weight_decay_multiplicative_mode"] = "exponent";
  for (Json keys : {additive, scale, exponent}) {
    EXPECT_LT(weight_after_decay(keys, 2), 2.5f) << keys;
    EXPECT_EQ(weight_after_decay(keys, 1), 2.5f) << keys;
    keys["weight_decay_norms"] = true;
    EXPECT_EQ(weight_after_decay(keys, 1), weight_after_decay(keys, 2)) << keys;
  }
}

// clip_weight in multiples of the RMS of the initial weights of each tensor.
TEST(Optimizer, InitRmsMode) {
  Json keys = test::m_plus_adam_keys();
  keys["lr_additive"] = 10.0;
  keys["weight_decay_additive"] = 0.0;
  keys["clip_weight"] = 1.5;
  keys["clip_weight_mode"] = "init_rms";
  OptimizerRun run(optimizer_config(keys), {},
                   {{.rows = 2, .cols = 140, .stride = 144}, {.cols = 3, .rank = 1}});
  fill_tensor(run.weights(0), [](int64_t r, int64_t) { return r == 0 ? 3.0f : -4.0f; });
  fill(run.weights(1), 0.5f);
  run.optimizer().weights_initialized();
  fill(run.gradient(0), -1.0f);
  fill(run.gradient(1), 1.0f);
  const float rms[] = {std::sqrt(12.5f), 0.5f};
  EXPECT_EQ(test::bits_of_tensor(run.state("init_rms")),
            (std::vector{bits_of(rms[0]), bits_of(rms[1])}));
  for (int64_t t = 1; t <= 3; ++t) run.step(t);
  EXPECT_EQ(element(run.weights(0), 1, 139), 1.5f * rms[0]);
  EXPECT_EQ(element(run.weights(1), 0, 2), -1.5f * rms[1]);
  EXPECT_EQ(test::bits_of_tensor(run.state("init_rms")),
            (std::vector{bits_of(rms[0]), bits_of(rms[1])}));
}

// Values restored from a checkpoint replace those that initialization would have computed.
TEST(Optimizer, InitRmsComesBackWithTheStates) {
  Json keys = test::m_plus_adam_keys();
  keys["lr_additive"] = 10.0;
  keys["clip_weight"] = 1.0;
  keys["clip_weight_mode"] = "init_rms";
  OptimizerRun run(optimizer_config(keys), {}, {{.cols = 3}});
  fill(run.weights(), 5.0f);
  run.state("init_rms").as<float>()[0] = 0.25f;
  run.optimizer().states_loaded();
  fill(run.gradient(), 1.0f);
  run.step(1);
  EXPECT_EQ(element(run.weights(), 0, 0), -0.25f);
}

// Every state is named once, listed with its shape, starts at zero and changes in a step (it is
// really in use).
TEST(Optimizer, NamedStatesAreAllInUse) {
  for (const Json& keys : every_rule())
    for (const DType state : {DType::kF32, DType::kBF16}) {
      const FlatConfig config = optimizer_config(keys);
      OptimizerRun run(config, {.state = state},
                       {{.rows = 3, .cols = 140}, {.cols = 9, .rank = 1}});
      const std::vector<std::string> names = state_names(config);
      const bool limited = test::bounds_weights(config);
      const std::vector<NamedTensor> states = run.optimizer().named_states();
      ASSERT_EQ(states.size(), 2 * names.size() + size_t(limited));
      std::set<std::string> seen;
      for (const NamedTensor& named : states) {
        EXPECT_TRUE(seen.insert(named.name).second) << named.name;
        for (const uint32_t bits : test::bits_of_tensor(named.tensor))
          ASSERT_EQ(bits, 0u) << named.name;
      }
      for (const std::string& name : names) {
        EXPECT_EQ(run.state(fmt::format("{}/w0", name)).dtype, state);
        EXPECT_TRUE(seen.contains(fmt::format("{}/w1", name)));
      }
      for (const NamedTensor& named : states) {
        if (named.name == "init_rms") continue;
        EXPECT_EQ(named.shape(),
                  named.rank == 2 ? (std::vector<int64_t>{3, 140}) : (std::vector<int64_t>{9}));
      }
      for (const size_t i : {0, 1}) {
        fill(run.weights(i), 0.75f);
        fill(run.gradient(i), 0.5f);
      }
      run.optimizer().weights_initialized();
      run.step(1);
      for (const NamedTensor& named : states)
        for (const uint32_t bits : test::bits_of_tensor(named.tensor))
          ASSERT_NE(bits, 0u) << named.name;
    }
}

// Weights and named states contain everything that a resumed run needs: copying them gives the same
// future.
TEST(Optimizer, NamedStatesAreSufficient) {
  for (const Json& keys : every_rule()) {
    const std::vector<test::TargetShape> shapes{{.rows = 3, .cols = 140, .stride = 144},
                                                {.cols = 9, .rank = 1}};
    const test::Formats formats{DType::kBF16, DType::kBF16, DType::kF32};
    OptimizerRun whole(optimizer_config(keys), formats, shapes),
        resumed(optimizer_config(keys), formats, shapes);
    Draws draws(35);
    for (const size_t i : {0, 1})
      fill_tensor(whole.weights(i), [&](int64_t, int64_t) { return draws.bell(0.1); });
    whole.optimizer().weights_initialized();
    for (int64_t t = 1; t <= 6; ++t) {
      if (t == 4) {
        for (const size_t i : {0, 1})
          memcpy(resumed.weights(i).data, whole.weights(i).data, size_t(whole.weights(i).bytes()));
        for (const NamedTensor& named : whole.optimizer().named_states())
          memcpy(resumed.state(named.name).data, named.tensor.data, size_t(named.tensor.bytes()));
        resumed.optimizer().states_loaded();
      }
      for (const size_t i : {0, 1}) {
        fill_tensor(whole.gradient(i), [&](int64_t, int64_t) { return draws.bell(0.1); });
        memcpy(resumed.gradient(i).data, whole.gradient(i).data, size_t(whole.gradient(i).bytes()));
      }
      whole.step(t);
      if (t >= 4) resumed.step(t);
    }
    EXPECT_EQ(resumed.everything(), whole.everything());
  }
}

TEST(Optimizer, NoTensors) {
  for (const Json& keys : every_rule()) {
    OptimizerRun run(optimizer_config(keys), {}, {});
    run.optimizer().weights_initialized();
    EXPECT_EQ(run.optimizer().grad_norm(), 0.0);
    run.step(1);
  }
}

TEST(Optimizer, TensorsWithoutElements) {
  for (const Json& keys : every_rule()) {
    OptimizerRun run(optimizer_config(keys), {}, {{.rows = 0, .cols = 8}, {.rows = 2, .cols = 2}});
    fill(run.weights(1), 1.0f);
    run.optimizer().weights_initialized();
    fill(run.gradient(1), 1.0f);
    EXPECT_EQ(run.optimizer().grad_norm(), 2.0);
    run.step(1);
    EXPECT_LT(element(run.weights(1), 1, 1), 1.0f);
  }
}

// A gradient that bf16 represents gives the same update from either container.
TEST(Optimizer, GradientContainers) {
  for (const Json& keys : every_rule()) {
    std::vector<std::vector<uint32_t>> results;
    for (const DType gradient : {DType::kF32, DType::kBF16}) {
      OptimizerRun run(optimizer_config(keys), {.gradient = gradient}, {{.rows = 3, .cols = 200}});
      Draws draws(36);
      fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.bell(0.1); });
      run.optimizer().weights_initialized();
      for (int64_t t = 1; t <= 3; ++t) {
        fill_tensor(run.gradient(),
                    [&](int64_t, int64_t) { return rounded_to<bf16>(draws.bell(0.1)); });
        run.step(t, 0.9f);
      }
      results.push_back(run.everything());
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

// The unrounded moments enter the update and are rounded once, on store: the literal rule with
// stores in between.
TEST(Optimizer, RoundsWeightsAndStatesOnceOnStore) {
  for (const Json& keys : every_rule()) {
    Json plain = keys;
    plain.erase("clip_weight");
    plain.erase("clip_weight_mode");
    const FlatConfig config = optimizer_config(plain);
    OptimizerRun run(config, {DType::kBF16, DType::kBF16, DType::kF32}, {{.cols = 300}});
    Draws draws(37);
    fill_tensor(run.weights(), [&](int64_t, int64_t) { return draws.bell(0.1); });
    std::vector<test::ReferenceState> states(300);
    std::vector<float> w(300);
    for (int64_t c = 0; c < 300; ++c) w[size_t(c)] = element(run.weights(), 0, c);
    for (int64_t t = 1; t <= 5; ++t) {
      fill_tensor(run.gradient(), [&](int64_t, int64_t) { return draws.bell(0.1); });
      run.step(t);
      const StepScalars step{.t = t};
      const test::ReferenceRule rule{config, step, {.rank = 2, .weight_unit = 1.0f}};
      for (int64_t c = 0; c < 300; ++c) {
        test::ReferenceState& s = states[size_t(c)];
        w[size_t(c)] = rounded_to<bf16>(rule.next(w[size_t(c)], run.gradient().as<float>()[c], s));
        s = {rounded_to<bf16>(s.m), rounded_to<bf16>(s.v), rounded_to<bf16>(s.v_e)};
        ASSERT_EQ(element(run.weights(), 0, c), w[size_t(c)]) << t << " " << c;
        for (const std::string& name : state_names(config))
          ASSERT_EQ(element(run.state(name + "/w0"), 0, c), name == "m"   ? s.m
                                                            : name == "v" ? s.v
                                                                          : s.v_e);
      }
    }
  }
}

// Subnormal gradients and moments are not flushed.
TEST(Optimizer, TinyInputsSurvive) {
  OptimizerRun run(optimizer_config(test::adamw_keys()), {}, {{.cols = 130}});
  fill(run.gradient(), 1e-41f);
  run.step(1);
  for (int64_t c = 0; c < 130; ++c)
    ASSERT_EQ(element(run.state("m/w0"), 0, c), (1.0f - 0.9f) * 1e-41f);
}

// Planning allocates nothing and reports what a run allocates.
TEST(Optimizer, PlansWhatItAllocates) {
  for (const Json& keys : every_rule()) {
    const auto device = make_cpu_device(1);
    const auto real = device->make_allocator();
    PlanningAllocator planned;
    for (Allocator* allocator : {static_cast<Allocator*>(&planned), real.get()}) {
      std::vector<UpdateTarget> targets;
      for (const int64_t cols : {133, 40000}) {
        const Tensor w =
            allocator->tensor(kWeightMemory, DType::kBF16, 5, cols + 3).columns(0, cols);
        targets.push_back(target(fmt::format("w{}", cols), w, w));
      }
      const Optimizer optimizer(optimizer_config(keys), {}, targets, *device, *allocator);
    }
    for (const MemoryPurpose purpose : {kWeightMemory, kOptimizerStateMemory, kScratchMemory})
      EXPECT_EQ(planned.use().of(purpose), real->use().of(purpose)) << purpose.name;
    EXPECT_EQ(planned.use().total(), real->use().total());
    const auto states = int64_t(state_names(optimizer_config(keys)).size());
    const int64_t moments = states * (align_up(5 * 136 * 2, 64) + align_up(5 * 40003 * 2, 64));
    const bool limited = test::bounds_weights(optimizer_config(keys));
    EXPECT_EQ(planned.use().of(kOptimizerStateMemory), moments + (limited ? 64 : 0));
  }
}

// A target whose views disagree is a bug of the caller, not a read beyond a tensor.
TEST(Optimizer, RefusesViewsThatDisagree) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const auto tensor = [&](int64_t rows, int64_t cols) {
    return allocator->tensor(kWeightMemory, DType::kF32, rows, cols);
  };
  const Tensor w = tensor(4, 8);
  for (const Tensor& other : {tensor(4, 7), tensor(3, 8)}) {
    Optimizer optimizer(optimizer_config(test::adamw_keys()), {}, {target("w", w, other)}, *device,
                        *allocator);
    EXPECT_THROW(optimizer.step({.t = 1}), LogicError);
    const auto ops = make_ops<OptimizerOps>(device->stream());
    const std::vector<Tensor> first{other, w, w}, middle{w, other, w}, last{w, w, other}, few{w, w},
        none;
    const OptimizerConfig config = optimizer_config(test::m_plus_adam_keys());
    const auto batch = ops->make_batch(config.rule, 0, {.format = WeightFormat::kF32});
    for (const std::vector<Tensor>& states : {first, middle, last, few, none}) {
      const std::vector<TensorSlot> slots{
          {.weights = encoded_view(w),
           .states = states,
           .state_dithers = std::vector<DitherSource>(states.size()),
           .gradient = w}};
      std::vector<std::byte> table(size_t(batch->table_bytes(1)));
      const BatchCall call{.tensors = slots, .table = table.data(), .control = nullptr};
      EXPECT_THROW(batch->write_table({.t = 1}, call, table.data()), LogicError);
    }
  }
}

// Incompatible options; configurations are refused earlier, by name.
TEST(Optimizer, RefusesPairsThatDoNotGoTogether) {
  const auto make = [](const FlatConfig& config, const OptimizerOptions& options,
                       WeightFormat weights) {
    const OptimizerRun run({.config = config, .options = options, .encoding = {.format = weights}},
                           {{.rows = 6, .cols = 40}});
  };
  FlatConfig kahan = optimizer_config(test::adamw_keys());
  kahan.weight_rounding = WeightRounding::kKahan;
  EXPECT_NO_THROW(make(kahan, {}, WeightFormat::kBF16));
  for (const WeightFormat weights :
       {WeightFormat::kF32, WeightFormat::kBlockFp8, WeightFormat::kNvfp4, WeightFormat::kMxfp8})
    EXPECT_THROW(make(kahan, {}, weights), LogicError);
  kahan.kahan_variant = KahanVariant::kPerOp;
  EXPECT_NO_THROW(make(kahan, {}, WeightFormat::kBF16));
  for (const char* rule : {"madam", "m_plus_adam"}) {
    FlatConfig other = kahan;
    other.rule = rule;
    EXPECT_THROW(make(other, {}, WeightFormat::kBF16), LogicError);
  }
  const FlatConfig adamw = optimizer_config(test::adamw_keys());
  const OptimizerOptions fp32_stochastic{.state = Format::kF32,
                                         .state_rounding = Rounding::kStochastic};
  const OptimizerOptions fp32_per_op{.state = Format::kF32, .state_update = StateUpdate::kPerOp};
  const OptimizerOptions both{.state_rounding = Rounding::kStochastic,
                              .state_update = StateUpdate::kPerOp};
  for (const OptimizerOptions& options : {fp32_stochastic, fp32_per_op, both})
    EXPECT_THROW(make(adamw, options, WeightFormat::kBF16), LogicError);
  FlatConfig apollo_e = optimizer_config(test::m_plus_adam_keys());
  apollo_e.apollo_e = ApolloE::kMini;
  apollo_e.apollo_e_rank = 6;
  EXPECT_NO_THROW(make(apollo_e, {}, WeightFormat::kBF16));
  apollo_e.apollo_e_rank = 7;
  EXPECT_THROW(make(apollo_e, {}, WeightFormat::kBF16), LogicError);
}

TEST(Optimizer, RefusesMadamStepsBeyondItsSeries) {
  Madam::Config config{.lr_multiplicative = 0.025};
  EXPECT_NO_THROW(Madam::Step::at(config, {.t = 1}, {}));
  config.lr_multiplicative = 0.0251;
  EXPECT_THROW(Madam::Step::at(config, {.t = 1}, {}), LogicError);
}

}  // namespace
}  // namespace mpt
