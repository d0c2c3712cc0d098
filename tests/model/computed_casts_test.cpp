// Inputs of linear layers computed during their cast to FP8: bit-identical to casts of the stored
// input.
#include "model/computed_casts.h"

#include "device/backends.h"

namespace mpt::test {
namespace {

class ComputedCastsOnCpu : public testing::TestWithParam<ComputedCase> {};

TEST_P(ComputedCastsOnCpu, AreThoseOfTheStoredInput) {
  const auto device = make_cpu_device(2);
  expect_equal_casts(*device, *make_ops<LlamaOps>(device->stream()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, ComputedCastsOnCpu, testing::ValuesIn(computed_cases()),
                         computed_case_name);

// The codes show which of the two roundings a config requests.
TEST(ComputedCasts, RoundingToBf16First) {
  const auto device = make_cpu_device(1);
  const auto ops = make_ops<LlamaOps>(device->stream());
  for (const Computation computation : {Computation::kSwiglu, Computation::kNorm}) {
    ComputedCastTrial trial(*device, *ops, {computation, 129, 344});
    EXPECT_FALSE(trial.codes_through(Format::kBF16) == trial.codes_through(Format::kF32));
  }
}

TEST(ComputedCasts, OtherTypesAndShapesAreRefused) {
  const auto device = make_cpu_device(1);
  const auto ops = make_ops<LlamaOps>(device->stream());
  const HostMatrix narrow(DType::kBF16, {16, 32}), wide(DType::kF32, {16, 32}),
      row(DType::kF32, {1, 32}), codes(DType::kE4M3, {16, 16});
  const auto cast = [&](const ComputedInput& input, const Tensor& target) {
    ops->cast(input,
              {.source = shape_of_source(target.rows, target.cols), .target = target, .slot = {}});
  };
  EXPECT_THROW(cast(SwigluInput{wide}, codes), LogicError);
  EXPECT_THROW(cast(SwigluInput{narrow.view().columns(0, 30)}, codes), LogicError);
  EXPECT_THROW(cast(NormInput{.x = wide, .inv_rms = row, .gain = row}, codes), LogicError);
  EXPECT_THROW(cast(NormInput{.x = narrow, .inv_rms = row, .gain = row}, codes), LogicError);
  EXPECT_THROW(cast(SwigluInput{narrow}, HostMatrix(DType::kE4M3, {16, 32})), LogicError);
}

}  // namespace
}  // namespace mpt::test
