// The GEMMs of linear layers in FP8 against FP64 sums over operands rounded independently here, by
// search among all codes: outputs, gradients of inputs and of weights, with scales other than 1.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "core/normal.h"
#include "core/random.h"
#include "device/expect_rounded.h"
#include "model/model_bench.h"
#include "support/host_matrix.h"

namespace mpt::test {
namespace {

const LlamaConfig kConfig{.hidden_size = 32,
                          .intermediate_size = 21,
                          .num_hidden_layers = 1,
                          .num_attention_heads = 2,
                          .vocab_size = 48};
constexpr BatchShape kLinearsBatch{2, 16};

// All finite values of a format, ascending in magnitude, from its definition.
struct Grid {
  std::vector<double> values;
  explicit Grid(DType type) {
    const bool e4m3 = type == DType::kE4M3;
    const int bits = e4m3 ? 3 : 2, bias = e4m3 ? 7 : 15, last = e4m3 ? 0x7E : 0x7B;
    for (int code = 0; code <= last; ++code) {
      const int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
      values.push_back(exponent == 0 ? std::ldexp(mantissa, 1 - bias - bits)
                                     : std::ldexp((1 << bits) + mantissa, exponent - bias - bits));
    }
  }
  // Rounds to nearest, ties to the even code; beyond the largest, to that.
  [[nodiscard]] double round(double x) const {
    const double size = std::fabs(x);
    size_t best = 0;
    for (size_t i = 1; i < values.size(); ++i) {
      const double here = std::fabs(values[i] - size), before = std::fabs(values[best] - size);
      if (here < before || (here == before && i % 2 == 0)) best = i;
    }
    return std::copysign(values[best], x);
  }
};

struct RoundedOperand {
  std::vector<double> codes;  // values of the codes
  double scale_inv = 1;
};

RoundedOperand rounded_operand(const Grid& grid, const std::vector<float>& values, float scale) {
  RoundedOperand operand{.codes = {}, .scale_inv = double(1.0f / scale)};
  for (const float x : values) operand.codes.push_back(grid.round(double(x * scale)));
  return operand;
}

std::vector<float> bf16_normals(int64_t count, double spread, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  fill_normals({seed, 0, 0, 0, kSyntheticStream}, spread, count, values.data());
  for (float& x : values) x = rounded_to<bf16>(x);
  return values;
}

float amax_of(const std::vector<float>& values) {
  float most = 0;
  for (const float x : values) most = std::max(most, std::fabs(x));
  return most;
}

struct World {
  PrecisionConfig config;
  std::unique_ptr<Device> device;
  std::unique_ptr<Allocator> allocator = device->make_allocator();
  WeightStore weights;
  Linears linears;

  World(const PrecisionConfig& precision, Fp8Layout layout)
      : config(precision),
        device(make_cpu_device_with({.layout = layout}, 2)),
        weights(llama_parameters(kConfig),
                {.storage = DType::kBF16,
                 .gradient = DType::kF32,
                 .linears = linear_encoding(config),
                 .linear_copies = LinearCopies::kNone},
                *device, *allocator),
        linears(kConfig,
                {.micro_batch = kLinearsBatch,
                 .storage = DType::kBF16,
                 .loss_chunk_rows = 32,
                 .fp8 = config},
                weights, *device, *allocator) {
    initialize_weights(weights, 0.3, 4, *device);
    linears.update_casts();
  }
  Tensor tensor(DType dtype, int64_t rows, int64_t cols) {
    return allocator->tensor(kScratchMemory, dtype, rows, cols);
  }
  // Returns a linear layer's operand for a tensor [rows, cols].
  mpt::QuantizedMatrix operand(int64_t rows, int64_t cols) {
    mpt::QuantizedMatrix codes{tensor(DType::kE4M3, rows, cols)};
    if (device->gemm().fp8_layout() == Fp8Layout::kRowsOfK)
      codes.transposed = tensor(DType::kE4M3, cols, rows);
    return codes;
  }
  // Returns decoded weights, as FP32 or through BF16 depending on the config, including padding.
  std::vector<float> weight_values(int64_t first) {
    std::vector<float> all;
    for (int64_t j = 0; j < weights.specs()[size_t(first)].fused; ++j) {
      const ParamSpec& spec = weights.specs()[size_t(first + j)];
      const Tensor physical = tensor(DType::kF32, spec.physical_rows, spec.physical_cols);
      make_ops<CodecOps>(device->stream(), {*allocator, spec.rows})
          ->decode(weights.master(first + j), logical_view(spec, physical));
      for (const float x : values_of(*device, physical))
        all.push_back(config.fp8_weight_source == Format::kBF16 ? rounded_to<bf16>(x) : x);
    }
    return all;
  }
  [[nodiscard]] Fp8SlotState state(const std::string& name) const {
    for (const Fp8OperandState& operand : linears.operand_states())
      if (operand.name == name) return operand.state;
    throw std::logic_error(name);
  }
};

struct CastCase {
  const char* name;
  WeightFormat weights;
  Format weight_source;
  Fp8Recipe recipe;
  Fp8Layout layout = Fp8Layout::kAny;
};

PrecisionConfig config_of(const CastCase& c) {
  PrecisionConfig config;
  config.weights = c.weights;
  config.compute = ComputeFormat::kFp8;
  config.fp8_history = 3;
  config.fp8_block_size = 32;
  config.nvfp4_scale_mode = Nvfp4ScaleMode::kLive;  // decoded values are not exact in bf16
  config.fp8_weight_source = c.weight_source;
  config.fp8_recipe = c.recipe;
  config.fp8_lm_head = true;
  return config;
}

class LinearsFp8 : public testing::TestWithParam<CastCase> {};

TEST_P(LinearsFp8, ThreeProductsOfEveryLinear) {
  World world(config_of(GetParam()), GetParam().layout);
  const Grid e4m3(DType::kE4M3), e5m2(DType::kE5M2);
  const struct {
    std::string name;
    int64_t first;
  } all[] = {{"model.layers.0.qkv", layer_index(kConfig, 0, LayerParam::kQ)},
             {"model.layers.0.o", layer_index(kConfig, 0, LayerParam::kO)},
             {"model.layers.0.gate_up", layer_index(kConfig, 0, LayerParam::kGate)},
             {"model.layers.0.down", layer_index(kConfig, 0, LayerParam::kDown)},
             {"lm_head", head_index(kConfig)}};
  const int64_t n = kLinearsBatch.tokens();
  for (int64_t i = 0; i <= head_linear(kConfig); ++i) {
    SCOPED_TRACE(all[i].name);
    const std::vector<float> w = world.weight_values(all[i].first);
    const int64_t in = world.weights.specs()[size_t(all[i].first)].physical_cols,
                  out = int64_t(w.size()) / in;
    const mpt::QuantizedMatrix codes = world.operand(n, in);
    const Tensor x = world.tensor(DType::kBF16, n, in), y = world.tensor(DType::kBF16, n, out),
                 dy = world.tensor(DType::kBF16, n, out), dx = world.tensor(DType::kBF16, n, in);
    const auto pass = [&](const std::vector<float>& inputs, const std::vector<float>& gradients) {
      set_values(*world.device, x, inputs);
      set_values(*world.device, dy, gradients);
      world.linears.cast_input(i, x, codes, Fp8CastKind::kFold);
      world.linears.forward(i, codes, y);
      world.linears.end_forward();  // the bytes keep their scale
      world.linears.backward(i, {.d_y = dy, .x = codes, .d_x = dx});
      world.linears.end_backward();
    };
    const std::vector<float> x0 = bf16_normals(n * in, 1, 1), dy0 = bf16_normals(n * out, 1e-4, 2);
    pass(x0, dy0);
    world.linears.update_casts();  // now with the scale from their own amax
    const std::vector<float> x1 = bf16_normals(n * in, 2, 3), dy1 = bf16_normals(n * out, 3e-4, 4);
    pass(x1, dy1);
    // Every slot has seen one amax when it casts again; the current recipe uses the data being
    // cast.
    const bool current = GetParam().recipe == Fp8Recipe::kCurrent;
    const RoundedOperand qx = rounded_operand(e4m3, x1, 448 / amax_of(current ? x1 : x0)),
                         qw = rounded_operand(e4m3, w, 448 / amax_of(w)),
                         qdy = rounded_operand(e5m2, dy1, 57344 / amax_of(current ? dy1 : dy0));
    const auto expect = [&](float found, int64_t k, const auto& a, const auto& b,
                            const RoundedOperand& left, const RoundedOperand& right, DType type) {
      double sum = 0, size = 0;
      for (int64_t j = 0; j < k; ++j) {
        const double term = left.codes[size_t(a(j))] * right.codes[size_t(b(j))];
        sum += term, size += std::fabs(term);
      }
      const double scale = left.scale_inv * right.scale_inv;
      return is_rounded(found, scale * sum, double(k + 2) * 0x1p-24 * scale * size, type);
    };
    const std::vector<float> got_y = values_of(*world.device, y),
                             got_dx = values_of(*world.device, dx),
                             got_dw = values_of(*world.device,
                                                world.weights.gradient_fused(all[i].first));
    for (int64_t t = 0; t < n; ++t)
      for (int64_t o = 0; o < out; ++o)
        ASSERT_TRUE(expect(
            got_y[size_t(t * out + o)], in, [&](int64_t j) { return t * in + j; },
            [&](int64_t j) { return o * in + j; }, qx, qw, DType::kBF16));
    for (int64_t t = 0; t < n; ++t)
      for (int64_t c = 0; c < in; ++c)
        ASSERT_TRUE(expect(
            got_dx[size_t(t * in + c)], out, [&](int64_t j) { return t * out + j; },
            [&](int64_t j) { return j * in + c; }, qdy, qw, DType::kBF16));
    for (int64_t o = 0; o < out; ++o)
      for (int64_t c = 0; c < in; ++c)
        ASSERT_TRUE(expect(
            got_dw[size_t(o * in + c)], n, [&](int64_t j) { return j * out + o; },
            [&](int64_t j) { return j * in + c; }, qdy, qx, DType::kF32));
    // With a suitable scale, outputs are those of BF16 within the bounds of Transformer Engine's
    // own test of modules: rtol 0.125, atol 0.0675 for outputs of about 1.
    pass(x1, dy1);
    std::vector<double> exact(static_cast<size_t>(n * out));
    double largest = 0;
    for (int64_t t = 0; t < n; ++t)
      for (int64_t o = 0; o < out; ++o) {
        double& sum = exact[size_t(t * out + o)];
        for (int64_t j = 0; j < in; ++j)
          sum += double(x1[size_t(t * in + j)]) * double(w[size_t(o * in + j)]);
        largest = std::max(largest, std::fabs(sum));
      }
    const std::vector<float> fitting = values_of(*world.device, y);
    for (size_t j = 0; j < exact.size(); ++j)
      EXPECT_NEAR(fitting[j], exact[j], 0.125 * std::fabs(exact[j]) + 0.0675 * largest);
    if (current) continue;
    EXPECT_EQ(world.state(all[i].name + ".input").last_amax, amax_of(x1));
    EXPECT_EQ(world.state(all[i].name + ".output_gradient").last_amax, amax_of(dy1));
    EXPECT_EQ(world.state(all[i].name + ".weight").history_amax, amax_of(w));
  }
}

std::string cast_case_name(const testing::TestParamInfo<CastCase>& tested) {
  return tested.param.name;
}

INSTANTIATE_TEST_SUITE_P(
    All, LinearsFp8,
    testing::Values(
        CastCase{"bf16", WeightFormat::kBF16, Format::kF32, Fp8Recipe::kDelayed},
        CastCase{"bf16_current", WeightFormat::kBF16, Format::kF32, Fp8Recipe::kCurrent},
        CastCase{"fp32", WeightFormat::kF32, Format::kF32, Fp8Recipe::kDelayed},
        CastCase{"fp32_through_bf16", WeightFormat::kF32, Format::kBF16, Fp8Recipe::kDelayed},
        CastCase{"block_fp8", WeightFormat::kBlockFp8, Format::kF32, Fp8Recipe::kDelayed},
        CastCase{"nvfp4", WeightFormat::kNvfp4, Format::kF32, Fp8Recipe::kDelayed},
        CastCase{"nvfp4_through_bf16", WeightFormat::kNvfp4, Format::kBF16, Fp8Recipe::kCurrent},
        CastCase{"bf16_rows_of_k", WeightFormat::kBF16, Format::kF32, Fp8Recipe::kDelayed,
                 Fp8Layout::kRowsOfK},
        CastCase{"fp32_current_rows_of_k", WeightFormat::kF32, Format::kF32, Fp8Recipe::kCurrent,
                 Fp8Layout::kRowsOfK},
        CastCase{"block_fp8_rows_of_k", WeightFormat::kBlockFp8, Format::kF32, Fp8Recipe::kDelayed,
                 Fp8Layout::kRowsOfK},
        CastCase{"nvfp4_rows_of_k", WeightFormat::kNvfp4, Format::kBF16, Fp8Recipe::kDelayed,
                 Fp8Layout::kRowsOfK}),
    cast_case_name);

}  // namespace
}  // namespace mpt::test
