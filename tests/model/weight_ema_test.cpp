// The EMA of weights: the weighted mean of the stored weights, in every format, and for every
// partition of the parameters over ranks.
#include "model/weight_ema.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "model/model_bench.h"
#include "model/parameters.h"
#include "model/random_model.h"

namespace mpt::test {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kDecay = 0.8;
// A width that is more than one update block and no multiple of one.
const LlamaConfig kAveraged{.hidden_size = 300,
                            .intermediate_size = 21,
                            .num_hidden_layers = 1,
                            .num_attention_heads = 2,
                            .vocab_size = 31};

Partition cut_over(const WeightStore& weights, int64_t ranks) {
  std::vector<PartitionedTensor> tensors;
  for (const ParamSpec& spec : weights.specs())
    tensors.push_back({.rows = spec.rows, .cols = spec.cols});
  return {std::move(tensors), ranks};
}

class WeightEmaTest : public testing::TestWithParam<WeightFormat> {
 protected:
  WeightEmaTest()
      : weights_(llama_parameters(kAveraged),
                 {.storage = DType::kF32,
                  .gradient = DType::kF32,
                  .linears = WeightEncoding{.format = GetParam()},
                  .gradients = Gradients::kNone},
                 *device_, *allocator_) {}

  WeightEma ema(const Partition& partition, int64_t rank) {
    return {weights_,
            kDecay,
            {.partition = partition, .rank = rank, .device = *device_, .allocator = *allocator_}};
  }
  // All weights of all parameters, as GEMMs read them.
  std::vector<float> weights() {
    std::vector<float> all;
    for (const NamedTensor& one : weights_.decoded_tensors())
      for (const float value : values_of(*device_, one.tensor)) all.push_back(value);
    return all;
  }
  // Returns the mean of all ranks, in the order of the parameters.
  std::vector<float> mean(const std::vector<WeightEma>& ranks) {
    std::vector<float> all;
    for (size_t i = 0; i < weights_.specs().size(); ++i)
      for (const WeightEma& rank : ranks) {
        const TensorPart part = rank.parts()[i];
        const Tensor& values = part.whole.tensor;
        for (int64_t e = part.first; e < part.first + part.count; ++e)
          all.push_back(values.as<float>()[e / values.cols * values.stride + e % values.cols]);
      }
    return all;
  }

  std::unique_ptr<Device> device_ = make_cpu_device(2);
  std::unique_ptr<Allocator> allocator_ = device_->make_allocator();
  WeightStore weights_;
};

TEST_P(WeightEmaTest, IsTheWeightedMeanOfStoredWeights) {
  const Partition whole = cut_over(weights_, 1), cut = cut_over(weights_, 3);
  std::vector<WeightEma> one, three;
  one.push_back(ema(whole, 0));
  for (int64_t rank = 0; rank < 3; ++rank) three.push_back(ema(cut, rank));
  std::vector<double> sums, largest;
  double total = 0;
  for (int64_t step = 1; step <= kSteps; ++step) {
    initialize_weights(weights_, 0.1, uint64_t(step), *device_);
    const std::vector<float> now = weights();
    sums.resize(now.size());
    largest.resize(now.size());
    total = total * kDecay + 1;
    for (size_t i = 0; i < now.size(); ++i) {
      sums[i] = sums[i] * kDecay + now[i];
      largest[i] = std::max(largest[i], std::fabs(double(now[i])));
    }
    for (WeightEma& part : one) part.follow(step);
    for (WeightEma& part : three) part.follow(step);
    if (step == 1) {
      EXPECT_EQ(mean(one), now) << "the first mean is the weights";
    }
  }
  const std::vector<float> found = mean(one);
  EXPECT_EQ(mean(three), found);
  ASSERT_EQ(found.size(), sums.size());
  // A step rounds the share, a difference of at most 2 largest, its product, and the mean.
  const double bound = kSteps * 5 * 0x1p-24;
  int64_t moved = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], sums[i] / total, bound * largest[i]) << i;
    moved += std::fabs(double(found[i])) < 0.99 * largest[i];
  }
  EXPECT_GT(moved, int64_t(found.size()) / 2);
}

INSTANTIATE_TEST_SUITE_P(Formats, WeightEmaTest,
                         testing::Values(WeightFormat::kF32, WeightFormat::kBF16,
                                         WeightFormat::kBlockFp8, WeightFormat::kNvfp4,
                                         WeightFormat::kMxfp8),
                         [](const auto& format) { return std::string(name_of(format.param)); });

}  // namespace
}  // namespace mpt::test
