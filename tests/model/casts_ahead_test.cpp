// Operations that cast their results, on the CPU.
#include "model/casts_ahead.h"

#include "device/backends.h"

namespace mpt::test {
namespace {

class CastsAheadOnCpu : public testing::TestWithParam<CastAheadCase> {};

TEST_P(CastsAheadOnCpu, AreThoseOfCastsAfterwards) {
  const auto device = make_cpu_device(2);
  expect_equal_ahead(*device, *make_ops<LlamaOps>(device->stream()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Shapes, CastsAheadOnCpu, testing::ValuesIn(cast_ahead_cases()),
                         cast_ahead_case_name);

TEST(CastsAhead, OtherShapesAreRefused) {
  const auto device = make_cpu_device(1);
  const auto ops = make_ops<LlamaOps>(device->stream());
  const HostMatrix gate_up(DType::kBF16, {16, 64}), d_out(DType::kBF16, {16, 32}),
      codes(DType::kE5M2, {16, 64}), narrow(DType::kE5M2, {16, 32});
  const auto cast = [&](int64_t cols, const Tensor& target) {
    ops->swiglu_backward_and_cast(
        gate_up, d_out, {.source = shape_of_source(16, cols), .target = target, .slot = {}});
  };
  EXPECT_THROW(cast(32, narrow), LogicError);
  EXPECT_THROW(cast(64, narrow), LogicError);
}

}  // namespace
}  // namespace mpt::test
