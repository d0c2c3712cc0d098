// Attention of one token at a time on a GPU against the CPU: fewer tokens than a warp's lanes, and
// more.
#include <cmath>

#include "cuda/gpu.h"
#include "model/llama_ops.h"
#include "support/draws.h"
#include "support/host_matrix.h"

namespace mpt::test {
namespace {

constexpr int64_t kHeads = 6, kKeyHeads = 3, kHeadDim = 40, kTokens = 70,
                  kWidth = kHeads * kHeadDim, kKeyWidth = kKeyHeads * kHeadDim;

HostMatrix random_operand(DType type, int64_t rows, int64_t cols, uint64_t seed) {
  HostMatrix m(type, {rows, cols});
  Draws draws(seed);
  m.fill([&](int64_t, int64_t) { return draws.bell(1); });
  return m;
}

// Runs all tokens one after the other; `copy` returns the tensors of a device.
template <class Copy>
std::array<Tensor, 3> generate(LlamaOps& ops, DType type, const Copy& copy) {
  const HostMatrix qkv = random_operand(type, kTokens, kWidth + 2 * kKeyWidth, 1),
                   empty = HostMatrix(type, {kTokens, kKeyWidth}),
                   empty_out = HostMatrix(type, {kTokens, kWidth}),
                   scores = HostMatrix(DType::kF32, {kHeads, kTokens});
  const Tensor tokens = copy(qkv), keys = copy(empty), values = copy(empty), out = copy(empty_out),
               scratch = copy(scores);
  for (int64_t t = 0; t < kTokens; ++t)
    ops.cached_attention({.qkv = tokens.row_range(t, 1),
                          .keys = keys,
                          .values = values,
                          .scores = scratch,
                          .out = out.row_range(t, 1),
                          .heads = kHeads,
                          .key_value_heads = kKeyHeads,
                          .head_dim = kHeadDim,
                          .past = t});
  return {keys, values, out};
}

class CachedAttentionOnGpu : public GpuTest, public testing::WithParamInterface<DType> {};

TEST_P(CachedAttentionOnGpu, IsThatOfTheCpu) {
  const DType type = GetParam();
  std::vector<std::unique_ptr<HostMatrix>> kept;
  const auto on_cpu = generate(*make_ops<LlamaOps>({}), type, [&](const HostMatrix& m) {
    return kept.emplace_back(std::make_unique<HostMatrix>(m))->view();
  });
  Gpu gpu;
  const auto on_gpu = generate(*make_ops<LlamaOps>(gpu.ref()), type,
                               [&](const HostMatrix& m) { return gpu.copy(m.view()); });
  for (size_t i = 0; i < 2; ++i) {
    HostMatrix got(type, {kTokens, kKeyWidth});
    gpu.fetch(on_gpu[i], got.view());
    EXPECT_EQ(memcmp(got.view().data, on_cpu[i].data, size_t(on_cpu[i].bytes())), 0)
        << (i == 0 ? "keys" : "values");
  }
  HostMatrix got(type, {kTokens, kWidth}), want(type, {kTokens, kWidth});
  gpu.fetch(on_gpu[2], got.view());
  memcpy(want.view().data, on_cpu[2].data, size_t(on_cpu[2].bytes()));
  // Values of at most 6 are averaged. Scores are sums of 40 products, at most 6 * 6 * sqrt(40) in
  // magnitude, added in another order: their absolute error is relative in the weights.
  const double score = 36 * std::sqrt(double(kHeadDim));
  const double terms = (2 * double(kHeadDim) * score + 2 * double(kTokens)) * 0x1p-24;
  const double step = type == DType::kBF16 ? 0x1p-7 : 0x1p-23;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t c = 0; c < kWidth; ++c)
      ASSERT_NEAR(got.at(t, c), want.at(t, c), 6 * terms + step * std::abs(want.at(t, c)))
          << t << "," << c;
}

INSTANTIATE_TEST_SUITE_P(Storage, CachedAttentionOnGpu, testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

}  // namespace
}  // namespace mpt::test
