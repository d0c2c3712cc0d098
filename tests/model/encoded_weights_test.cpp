// Masters in every format with every type that GEMMs read: initial values, names, results of a
// refresh, memory.
#include <gtest/gtest.h>

#include "model/model_bench.h"
#include "model/random_model.h"
#include "precision/codec_ops.h"

namespace mpt::test {
namespace {

// F = 21 is stored as 32, and no width is a multiple of a block.
const LlamaConfig kSmall{.hidden_size = 20,
                         .intermediate_size = 21,
                         .num_hidden_layers = 2,
                         .num_attention_heads = 2,
                         .vocab_size = 31};

struct Regime {
  const char* name;
  WeightEncoding encoding;
  DType storage;
};

std::vector<Regime> regimes() {
  const WeightEncoding fp32{.format = WeightFormat::kF32}, bf16{.format = WeightFormat::kBF16},
      pow2{.format = WeightFormat::kBlockFp8, .fp8_block_size = 16},
      fp16{.format = WeightFormat::kBlockFp8,
           .fp8_block_size = 128,
           .fp8_scale_mode = Fp8ScaleMode::kFp16},
      sticky{.format = WeightFormat::kNvfp4},
      live{.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = Nvfp4ScaleMode::kLive},
      mx{.format = WeightFormat::kMxfp8};
  return {{"fp32_fp32", fp32, DType::kF32},     {"fp32_bf16", fp32, DType::kBF16},
          {"bf16_fp32", bf16, DType::kF32},     {"bf16_bf16", bf16, DType::kBF16},
          {"pow2_fp32", pow2, DType::kF32},     {"pow2_bf16", pow2, DType::kBF16},
          {"fp16_fp32", fp16, DType::kF32},     {"fp16_bf16", fp16, DType::kBF16},
          {"sticky_fp32", sticky, DType::kF32}, {"sticky_bf16", sticky, DType::kBF16},
          {"live_fp32", live, DType::kF32},     {"live_bf16", live, DType::kBF16},
          {"mxfp8_fp32", mx, DType::kF32},      {"mxfp8_bf16", mx, DType::kBF16}};
}

class EncodedWeights : public testing::TestWithParam<Regime> {
 protected:
  [[nodiscard]] WeightOptions options(LinearCopies copies = LinearCopies::kDecoded) const {
    return {.storage = GetParam().storage,
            .gradient = GetParam().storage,
            .linears = GetParam().encoding,
            .linear_copies = copies};
  }
  WeightStore store(const WeightOptions& options) {
    return {llama_parameters(kSmall), options, *device_, *allocator_};
  }
  std::vector<std::byte> bytes_of(const Tensor& tensor) {
    std::vector<std::byte> bytes(size_t(tensor.elements() * size_of(tensor.dtype)));
    device_->download(tensor, bytes.data());
    return bytes;
  }
  // Returns the weights that GEMMs would read, recomputed from the master.
  std::vector<float> decoded(const EncodedTensor& master) {
    const Tensor target =
        allocator_->tensor(kScratchMemory, GetParam().storage, master.rows, master.cols);
    make_ops<CodecOps>(device_->stream(), {*allocator_, master.rows})->decode(master, target);
    return values_of(*device_, target);
  }
  NamedValues drawn() {
    const WeightStore plain = store({.storage = DType::kF32, .gradient = DType::kF32});
    initialize_weights(plain, 0.5, 9, *device_);
    NamedValues values;
    for (const NamedTensor& named : plain.named_tensors())
      values[named.name] = values_of(*device_, named.tensor);
    return values;
  }

  std::unique_ptr<Device> device_ = make_cpu_device(2);
  std::unique_ptr<Allocator> allocator_ = device_->make_allocator();
};

// Bit-identical to the CodecOps encoding of the draw of an FP32 model.
TEST_P(EncodedWeights, AreTheEncodedDraw) {
  const WeightStore weights = store(options()), again = store(options());
  initialize_weights(weights, 0.5, 9, *device_);
  const NamedValues draws = drawn();
  const auto ops = make_ops<CodecOps>(device_->stream(), {*allocator_, 100});
  for (int64_t i = 0; i < int64_t(weights.specs().size()); ++i) {
    const ParamSpec& spec = weights.specs()[size_t(i)];
    const Tensor source = allocator_->tensor(kScratchMemory, DType::kF32, spec.rows, spec.cols);
    set_values(*device_, source, draws.at(spec.name));
    ops->encode(source, again.master(i));
    const auto got = weights.master(i).pieces(spec.name), want = again.master(i).pieces(spec.name);
    ASSERT_EQ(got.size(), want.size());
    for (size_t p = 0; p < got.size(); ++p)
      EXPECT_EQ(bytes_of(got[p].tensor), bytes_of(want[p].tensor)) << got[p].name;
  }
}

TEST_P(EncodedWeights, PiecesAreNamedInTheirFormats) {
  const WeightStore weights = store(options());
  const WeightFormat format = GetParam().encoding.format;
  std::map<std::string, DType> types;
  for (const NamedTensor& named : weights.named_tensors()) types[named.name] = named.tensor.dtype;
  const DType plain = format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
  const std::map<WeightFormat, DType> codes{{WeightFormat::kF32, DType::kF32},
                                            {WeightFormat::kBF16, DType::kBF16},
                                            {WeightFormat::kBlockFp8, DType::kE4M3},
                                            {WeightFormat::kNvfp4, DType::kU8},
                                            {WeightFormat::kMxfp8, DType::kE4M3}},
      scales{{WeightFormat::kBlockFp8, DType::kF16},
             {WeightFormat::kNvfp4, DType::kE4M3},
             {WeightFormat::kMxfp8, DType::kE8M0}};
  size_t expected = 0;
  for (const ParamSpec& spec : weights.specs()) {
    const bool linear = spec.kind == ParamKind::kLinear;
    EXPECT_EQ(types.at(spec.name), linear ? codes.at(format) : plain) << spec.name;
    expected +=
        1 + size_t(linear && is_scaled(format)) + size_t(linear && format == WeightFormat::kNvfp4);
    if (linear && is_scaled(format)) {
      EXPECT_EQ(types.at(spec.name + "_block_scales"), scales.at(format));
    }
    if (linear && format == WeightFormat::kNvfp4) {
      EXPECT_EQ(types.at(spec.name + "_tensor_scale"), DType::kF32);
    }
  }
  EXPECT_EQ(types.size(), expected);
}

TEST_P(EncodedWeights, ProductsReadTheDecodedMasters) {
  const WeightStore weights = store(options());
  initialize_weights(weights, 0.5, 9, *device_);
  for (int64_t i = 0; i < int64_t(weights.specs().size()); ++i) {
    const ParamSpec& spec = weights.specs()[size_t(i)];
    EXPECT_EQ(weights.compute(i).dtype, GetParam().storage);
    EXPECT_EQ(values_of(*device_, logical_view(spec, weights.compute(i))),
              decoded(weights.master(i)))
        << spec.name;
  }
  const Tensor qkv = weights.compute_fused(layer_index(kSmall, 0, LayerParam::kQ));
  EXPECT_EQ(qkv.rows, 60);
  EXPECT_TRUE(qkv.contiguous());
}

// A changed master shows after the next refresh, not before unless GEMMs read it directly.
TEST_P(EncodedWeights, RefreshFollowsTheMasters) {
  const WeightStore weights = store(options());
  initialize_weights(weights, 0.5, 9, *device_);
  const int64_t i = layer_index(kSmall, 1, LayerParam::kDown);
  const ParamSpec& spec = weights.specs()[size_t(i)];
  const std::vector<float> before = decoded(weights.master(i));
  const Tensor source = allocator_->tensor(kScratchMemory, DType::kF32, spec.rows, spec.cols);
  set_values(*device_, source, std::vector<float>(size_t(spec.elements()), 0.75f));
  make_ops<CodecOps>(device_->stream(), {*allocator_, spec.rows})
      ->encode(source, weights.master(i));
  const auto read = [&] { return values_of(*device_, logical_view(spec, weights.compute(i))); };
  const bool is_master = weights.compute(i).data == weights.master(i).codes.data;
  EXPECT_EQ(read() == before, !is_master);
  weights.decode_weights();
  EXPECT_EQ(read(), decoded(weights.master(i)));
  EXPECT_NE(read(), before);
}

TEST_P(EncodedWeights, PaddingOfCopiesIsZero) {
  const WeightStore weights = store(options());
  initialize_weights(weights, 0.5, 9, *device_);
  for (const LayerParam which : {LayerParam::kGate, LayerParam::kDown}) {
    const int64_t i = layer_index(kSmall, 1, which);
    const ParamSpec& spec = weights.specs()[size_t(i)];
    const std::vector<std::byte> all = bytes_of(weights.compute(i));
    const int64_t size = size_of(weights.compute(i).dtype);
    for (int64_t r = 0; r < spec.physical_rows; ++r)
      for (int64_t c = 0; c < spec.physical_cols; ++c) {
        if (r < spec.rows && c < spec.cols) continue;
        for (int64_t b = 0; b < size; ++b)
          ASSERT_EQ(all[size_t((r * spec.physical_cols + c) * size + b)], std::byte{0});
      }
  }
}

// A copy exists where types differ and nowhere else; linear layers may omit it.
TEST_P(EncodedWeights, CopiesTakeMemoryOnlyWhereNeeded) {
  const auto use_of = [&](LinearCopies copies) {
    PlanningAllocator plan;
    const WeightStore weights(llama_parameters(kSmall), options(copies), *device_, plan);
    return plan.use();
  };
  int64_t linears = 0, others = 0;
  const WeightFormat format = GetParam().encoding.format;
  const auto type_of = [](WeightFormat f) {
    return f == WeightFormat::kF32 ? DType::kF32 : DType::kBF16;
  };
  const bool linears_differ = is_scaled(format) || type_of(format) != GetParam().storage;
  const bool others_differ = type_of(unscaled_format(format)) != GetParam().storage;
  const std::vector<ParamSpec> specs = llama_parameters(kSmall);
  for (size_t i = 0; i < specs.size(); i += size_t(specs[i].fused)) {
    const int64_t bytes = align_up(
        specs[i].fused * specs[i].physical_elements() * size_of(GetParam().storage), kAlignment);
    (specs[i].kind == ParamKind::kLinear ? linears : others) += bytes;
  }
  EXPECT_EQ(use_of(LinearCopies::kDecoded).of(kComputeWeightMemory),
            (linears_differ ? linears : 0) + (others_differ ? others : 0));
  EXPECT_EQ(use_of(LinearCopies::kNone).of(kComputeWeightMemory), others_differ ? others : 0);
  const WeightStore weights = store(options());
  EXPECT_EQ(allocator_->use().total(), use_of(LinearCopies::kDecoded).total());
}

std::string regime_name(const testing::TestParamInfo<Regime>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(All, EncodedWeights, testing::ValuesIn(regimes()), regime_name);

// GEMMs can read only a decoded copy, or a master of the same type.
TEST(EncodedWeightsTest, WhatIsNotKeptIsNotHandedOut) {
  const auto device = make_cpu_device(1);
  const auto allocator = device->make_allocator();
  const WeightStore weights(llama_parameters(kSmall),
                            {.storage = DType::kBF16,
                             .gradient = DType::kBF16,
                             .linears = WeightEncoding{.format = WeightFormat::kNvfp4},
                             .linear_copies = LinearCopies::kNone},
                            *device, *allocator);
  EXPECT_THROW((void)weights.compute_fused(layer_index(kSmall, 0, LayerParam::kO)), LogicError);
  EXPECT_THROW((void)weights.decoded_tensors(), LogicError);
  EXPECT_EQ(weights.compute_fused(embedding_index()).rows, 31);
}

}  // namespace
}  // namespace mpt::test
