// Encoding, decoding and rescaling on the GPU against the CPU, bit for bit, including padding.
#include "precision/codec_ops.h"

#include <string>

#include "cuda/gpu.h"
#include "device/backends.h"
#include "support/draws.h"
#include "support/host_encoded.h"

namespace mpt::test {
namespace {

constexpr int64_t kRows = 5;

std::vector<WeightEncoding> encodings() {
  std::vector<WeightEncoding> all{{.format = WeightFormat::kF32}, {.format = WeightFormat::kBF16}};
  for (const int64_t block : {16, 32, 64, 128, 256})
    for (const Fp8ScaleMode mode : {Fp8ScaleMode::kPow2, Fp8ScaleMode::kFp16})
      all.push_back(
          {.format = WeightFormat::kBlockFp8, .fp8_block_size = block, .fp8_scale_mode = mode});
  for (const Nvfp4ScaleMode mode : {Nvfp4ScaleMode::kSticky, Nvfp4ScaleMode::kLive})
    all.push_back({.format = WeightFormat::kNvfp4, .nvfp4_scale_mode = mode});
  all.push_back({.format = WeightFormat::kMxfp8});
  return all;
}

std::string name_of_case(const WeightEncoding& e, int64_t cols) {
  return fmt::format("{} block {} {} {}, {} columns", name_of(e.format), e.fp8_block_size,
                     name_of(e.fp8_scale_mode), name_of(e.nvfp4_scale_mode), cols);
}

HostMatrix random_matrix(int64_t cols, uint64_t seed) {
  HostMatrix m(DType::kF32, {kRows, cols, 3});
  Draws draws(seed);
  m.fill([&](int64_t, int64_t) { return draws.signed_binades(-10, 3); });
  return m;
}

class CodecOpsOnGpu : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    gpu_ = std::make_unique<Gpu>();
    on_gpu_ = make_ops<CodecOps>(gpu_->ref(), {gpu_->allocator(), kRows});
  }
  EncodedTensor copy(const HostEncoded& host) {
    EncodedTensor device = host.view();
    device.codes = gpu_->copy(device.codes);
    device.block_scales = gpu_->copy(device.block_scales);
    device.tensor_scale = gpu_->copy(device.tensor_scale);
    return device;
  }
  void expect_same(const EncodedTensor& device, const HostEncoded& expected) {
    HostEncoded found = expected;
    const EncodedTensor host = found.view();
    const auto fetch = [&](const Tensor& from, const Tensor& to) {
      if (to.data == nullptr) return;
      memset(to.data, 0x77, size_t(to.bytes()));
      gpu_->fetch(from, to);
    };
    fetch(device.codes, host.codes);
    fetch(device.block_scales, host.block_scales);
    fetch(device.tensor_scale, host.tensor_scale);
    EXPECT_TRUE(found == expected);
    EXPECT_TRUE(found.padding_untouched());
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device(1);
  std::unique_ptr<Allocator> host_memory_ = cpu_->make_allocator();
  std::unique_ptr<CodecOps> on_cpu_ = make_ops<CodecOps>({}, {*host_memory_, kRows});
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<CodecOps> on_gpu_;
};

TEST_F(CodecOpsOnGpu, EncodesTheSameBits) {
  for (const int64_t cols : {1, 21, 300, 512})
    for (const WeightEncoding& encoding : encodings()) {
      SCOPED_TRACE(name_of_case(encoding, cols));
      const HostMatrix source = random_matrix(cols, 31);
      const HostEncoded expected(encoding, {kRows, cols, 4});
      const EncodedTensor device = copy(expected);
      on_cpu_->encode(source, expected.view());
      on_gpu_->encode(gpu_->copy(source), device);
      expect_same(device, expected);
    }
}

TEST_F(CodecOpsOnGpu, DecodesTheSameBits) {
  for (const int64_t cols : {1, 21, 300, 512})
    for (const WeightEncoding& encoding : encodings())
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(name_of_case(encoding, cols));
        const HostEncoded weights(encoding, {kRows, cols, 4});
        on_cpu_->encode(random_matrix(cols, 32), weights.view());
        const HostMatrix expected(dtype, {kRows, cols, 3});
        HostMatrix found = expected;
        const Tensor device = gpu_->copy(found);
        on_cpu_->decode(weights.view(), expected);
        on_gpu_->decode(copy(weights), device);
        gpu_->fetch(device, found);
        EXPECT_TRUE(found == expected);
      }
}

// The scale that overflows may be in any row: the last one here. Nothing happens before it does.
TEST_F(CodecOpsOnGpu, RescalesTheSameBits) {
  for (const int64_t cols : {40, 300})
    for (const uint8_t largest : {uint8_t{0x40}, uint8_t{0x7E}}) {
      HostEncoded weights({.format = WeightFormat::kNvfp4}, {kRows, cols, 4});
      on_cpu_->encode(random_matrix(cols, 33), weights.view());
      const Tensor scales = weights.view().block_scales;
      for (int64_t r = 0; r < kRows; ++r)
        for (int64_t b = 0; b < scales.cols; ++b)
          scales.as<uint8_t>()[r * scales.stride + b] = uint8_t(0x20 + (7 * r + b) % 0x18);
      scales.as<uint8_t>()[(kRows - 1) * scales.stride + scales.cols - 1] = largest;
      const HostEncoded before = weights;
      const EncodedTensor device = copy(weights);
      on_cpu_->rescale(weights.view());
      on_gpu_->rescale(device);
      EXPECT_EQ(weights == before, largest == 0x40) << "the case tests nothing";
      expect_same(device, weights);
    }
}

TEST_F(CodecOpsOnGpu, RescalesNothingElse) {
  for (const WeightEncoding& encoding : encodings()) {
    SCOPED_TRACE(name_of_case(encoding, 300));
    const HostEncoded weights(encoding, {kRows, 300, 4});
    on_cpu_->encode(random_matrix(300, 34), weights.view());
    const EncodedTensor device = copy(weights);
    on_cpu_->rescale(weights.view());
    on_gpu_->rescale(device);
    expect_same(device, weights);
  }
}

}  // namespace
}  // namespace mpt::test
