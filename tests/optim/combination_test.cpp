// Properties of every combination of rule, weight rounding, state and weight format: the bits do
// not depend on threads, padding stays zero, every state is in use, and a checkpoint holds
// everything that a run needs.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "optim/combinations.h"
#include "support/draws.h"

namespace mpt {
namespace {

using test::Combination;
using test::Draws;
using test::fill_tensor;
using test::OptimizerRun;
using test::tested_combinations;

void start_combination(OptimizerRun& run) {
  Draws draws(51);
  for (size_t i = 0; i < run.targets().size(); ++i)
    run.encode(i, [&](int64_t, int64_t) { return draws.signed_binades(-9, -3); });
  run.optimizer().weights_initialized();
}

// Uses gradients of this step, the same for every run; clipped, so that grad_scale is in use.
void step(OptimizerRun& run, int64_t t) {
  for (size_t i = 0; i < run.targets().size(); ++i) {
    Draws draws(100 * uint64_t(t) + i);
    fill_tensor(run.gradient(i), [&](int64_t, int64_t) { return draws.signed_binades(-12, -4); });
  }
  run.step(t, clip_scale(0.5, run.optimizer().grad_norm()));
}

std::vector<uint32_t> result_with_threads(const Combination& c, int threads) {
  test::RunSetup setup = c.setup;
  setup.threads = threads;
  OptimizerRun run(setup, test::combination_shapes());
  start_combination(run);
  for (int64_t t = 1; t <= 2; ++t) step(run, t);
  return run.everything();
}

TEST(EveryCombination, IsThereOnce) {
  std::set<std::string> names;
  for (const Combination& c : test::every_combination())
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
  EXPECT_GT(names.size(), 500u);
}

// Whichever combinations run by default, no two options meet only in omitted ones.
TEST(EveryCombination, EveryPairOfOptionsIsTested) {
  for (const Combination& c : test::every_combination())
    for (size_t a = 0; a < c.place.size(); ++a)
      for (size_t b = a + 1; b < c.place.size(); ++b)
        ASSERT_TRUE(std::ranges::any_of(tested_combinations(),
                                        [&](const Combination& tested) {
                                          return tested.place[a] == c.place[a] &&
                                                 tested.place[b] == c.place[b];
                                        }))
            << c.name << ": axes " << a << " and " << b;
}

TEST(EveryCombination, AnyNumberOfThreads) {
  std::vector<std::vector<uint32_t>> expected;
  for (const Combination& c : tested_combinations()) expected.push_back(result_with_threads(c, 1));
  for (const int threads : {2, 3})
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(result_with_threads(tested_combinations()[i], threads), expected[i])
          << tested_combinations()[i].name << ", " << threads << " threads";
}

// Bytes of a piece's storage outside its logical elements. `rows` are physical.
bool padding_is_zero(const Tensor& piece, int64_t rows) {
  const int64_t size = size_of(piece.dtype), row_bytes = piece.stride * size;
  for (int64_t byte = 0; byte < rows * row_bytes; ++byte) {
    const bool logical = byte / row_bytes < piece.rows && byte % row_bytes < piece.cols * size;
    if (!logical && piece.data[byte] != std::byte{0}) return false;
  }
  return true;
}

// Checks the elements of a last NVFP4 block that are beyond the tensor.
bool nibbles_are_zero(const EncodedTensor& w) {
  for (int64_t row = 0; row < w.rows; ++row)
    for (int64_t col = w.cols; col < 2 * w.codes.cols; ++col) {
      const uint8_t byte = w.codes.as<uint8_t>()[row * w.codes.stride + col / 2];
      if ((col % 2 == 0 ? byte & 0xF : byte >> 4) != 0) return false;
    }
  return true;
}

TEST(EveryCombination, PaddingStaysZero) {
  const std::vector<test::TargetShape> shapes = test::combination_shapes();
  for (const Combination& c : tested_combinations()) {
    OptimizerRun run(c.setup, shapes);
    start_combination(run);
    for (int64_t t = 1; t <= 3; ++t) step(run, t);
    for (size_t i = 0; i < shapes.size(); ++i) {
      const EncodedTensor& w = run.targets()[i].weights;
      const int64_t rows = std::max(shapes[i].rows, shapes[i].physical_rows);
      ASSERT_TRUE(padding_is_zero(w.codes, rows)) << c.name;
      ASSERT_TRUE(w.block_scales.rows == 0 || padding_is_zero(w.block_scales, rows)) << c.name;
      ASSERT_TRUE(w.encoding.format != WeightFormat::kNvfp4 || nibbles_are_zero(w)) << c.name;
    }
    for (const NamedTensor& state : run.optimizer().named_states())
      ASSERT_TRUE(padding_is_zero(state.tensor, state.tensor.rows)) << c.name << ": " << state.name;
  }
}

// Matrices of zeros with zero gradients keep the bits of +0: codes, scales and states.
TEST(EveryCombination, ZerosStayPlusZero) {
  for (const Combination& c : tested_combinations()) {
    OptimizerRun run(c.setup, test::combination_shapes());
    run.optimizer().weights_initialized();
    for (int64_t t = 1; t <= 2; ++t) run.step(t, 0.37f);
    for (const NamedTensor& named : run.tensors()) {
      if (named.name.starts_with("projection/")) continue;
      for (const uint32_t bits : test::bits_of_tensor(named.tensor))
        ASSERT_EQ(bits, 0u) << c.name << ": " << named.name;
    }
  }
}

TEST(EveryCombination, EveryStateChangesInAStep) {
  for (const Combination& c : tested_combinations()) {
    OptimizerRun run(c.setup, test::combination_shapes());
    start_combination(run);
    std::vector<std::vector<uint32_t>> before;
    for (const NamedTensor& state : run.optimizer().named_states())
      before.push_back(test::bits_of_tensor(state.tensor));
    step(run, 1);
    size_t i = 0;
    for (const NamedTensor& state : run.optimizer().named_states()) {
      const bool constant = state.name == "init_rms";
      ASSERT_EQ(test::bits_of_tensor(state.tensor) == before[i++], constant)
          << c.name << ": " << state.name;
    }
  }
}

void copy_tensors(const OptimizerRun& from, const OptimizerRun& to) {
  const std::vector<NamedTensor> source = from.tensors(), target = to.tensors();
  ASSERT_EQ(source.size(), target.size());
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(source[i].name, target[i].name);
    ASSERT_EQ(source[i].shape(), target[i].shape());
    const Tensor &a = source[i].tensor, &b = target[i].tensor;
    for (int64_t row = 0; row < a.rows; ++row)
      memcpy(b.data + row * b.stride * size_of(b.dtype), a.data + row * a.stride * size_of(a.dtype),
             size_t(a.cols * size_of(a.dtype)));
  }
}

// Continued from the named tensors of step 3, which is between two refreshes of a projection.
TEST(EveryCombination, NamedTensorsAreAllThatARunNeeds) {
  for (const Combination& c : tested_combinations()) {
    OptimizerRun whole(c.setup, test::combination_shapes()),
        resumed(c.setup, test::combination_shapes());
    start_combination(whole);
    for (int64_t t = 1; t <= 3; ++t) step(whole, t);
    copy_tensors(whole, resumed);
    resumed.optimizer().states_loaded();
    for (int64_t t = 4; t <= 5; ++t) {
      step(whole, t);
      step(resumed, t);
    }
    ASSERT_EQ(resumed.everything(), whole.everything()) << c.name;
  }
}

// Weights of formats that are encoded only from the values are the encoding of the result of an
// fp32 optimizer with the same decoded weights: nothing is rounded in between.
TEST(EveryCombination, ScaledWeightsAreTheEncodingOfTheUnroundedUpdate) {
  for (const Combination& c : tested_combinations()) {
    const WeightEncoding& encoding = c.setup.encoding;
    const bool stateless = !rescales(encoding);
    const bool one_rate = c.setup.config.nvfp4_additive_scale == Nvfp4AdditiveScale::kOff;
    if (!is_scaled(encoding.format) || !stateless || !one_rate ||
        c.setup.config.weight_rounding != WeightRounding::kNearest)
      continue;
    OptimizerRun scaled(c.setup, {test::combination_shapes()[0]});
    test::RunSetup fp32 = c.setup;
    fp32.encoding = {.format = WeightFormat::kF32};
    OptimizerRun plain(fp32, {test::combination_shapes()[0]});
    start_combination(scaled);
    const std::vector<float> w = scaled.decoded(0);
    const int64_t cols = scaled.targets()[0].weights.cols;
    plain.encode(0, [&](int64_t r, int64_t col) { return w[size_t(r * cols + col)]; });
    plain.optimizer().weights_initialized();
    for (OptimizerRun* run : {&scaled, &plain}) step(*run, 1);
    OptimizerRun encoded(c.setup, {test::combination_shapes()[0]});
    encoded.encode(0,
                   [&](int64_t r, int64_t col) { return test::element(plain.weights(0), r, col); });
    for (size_t i = 0; i < scaled.targets()[0].weights.pieces("w").size(); ++i)
      ASSERT_EQ(test::bits_of_tensor(scaled.tensors()[i].tensor),
                test::bits_of_tensor(encoded.tensors()[i].tensor))
          << c.name << ": " << scaled.tensors()[i].name;
  }
}

}  // namespace
}  // namespace mpt
